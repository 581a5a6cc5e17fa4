//! The numbers that describe a model, from the metadata of its file.

mod experts;
mod kda;
mod layers;
mod mla;
mod pooling;
mod reader;
mod rotation;
mod ssm;
mod windows;
mod wkv;

pub use experts::Experts;
pub use kda::Kda;
pub use layers::LayerHparams;
pub use mla::Mla;
pub use pooling::Pooling;
pub use rotation::{RopeParams, RopeScaling};
pub use ssm::Ssm;
pub use windows::{Pattern, Windows};
pub use wkv::Wkv;

use crate::{
    error::Error,
    gguf::{Gguf, PerLayer},
    graph::Temperature,
};
use alloc::{string::String, vec::Vec};
use experts::ExpertLayers;
use layers::Layers;
use reader::{MAX_BUCKETS, MAX_LAYERS, MAX_TAPS, MAX_VOCAB, MAX_WIDTH, Reader};

/// Sizes and constants of a model, named after the keys of GGUF files; `n_` counts.
///
/// [`Hparams::read`] makes them and checks the range of every number. Numbers that may differ from
/// layer to layer are in the [`LayerHparams`] that [`Hparams::layers`] yields.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert!(hparams.layers().all(|layer| layer.n_head % layer.n_head_kv == 0));
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hparams {
    /// `general.architecture`.
    pub architecture: String,
    /// Tokens of the vocabulary: rows of the embedding matrix.
    pub n_vocab: usize,
    /// Context length the model was trained with.
    pub n_ctx_train: u32,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Layers.
    pub n_layer: usize,
    layers: Layers,
    /// Added to the mean square in RMS norms.
    pub norm_rms_eps: f32,
    /// Added to the variance in layer norms.
    pub norm_eps: f32,
    /// Layers of the decoder of an encoder-decoder.
    pub n_layer_decoder: usize,
    /// The function of the networks' gates, as the file names it.
    pub hidden_activation: Option<String>,
    /// Buckets of distances that have relative position biases.
    pub n_bucket: Option<usize>,
    /// The token with which a decoder starts a text.
    pub decoder_start: Option<u32>,
    /// Pooling of an encoder's embeddings, unless the context says otherwise.
    pub pooling: Pooling,
    /// True if tokens see those before them only, false if they see all of their text.
    pub is_causal: bool,
    /// Factor of attention scores, where the file states one.
    pub f_attention_scale: Option<f32>,
    /// Attention scores become `cap * tanh(score / cap)`, where an architecture says so.
    pub attn_soft_cap: Option<f32>,
    /// Scores of the vocabulary are capped alike, where an architecture says so.
    pub final_soft_cap: Option<f32>,
    /// The layers that see the last tokens only, where the file says so.
    pub windows: Windows,
    /// Rotation of queries and keys by position, as far as it is alike in all layers.
    pub rope: RopeParams,
    /// Pairs of dimensions that turn by time, height, width and a fourth coordinate, where
    /// positions have axes.
    pub rope_sections: Option<[usize; 4]>,
    /// True for each layer that rotates queries and keys, where the file says so, `[n_layer]`.
    pub rope_pattern: Option<Vec<bool>>,
    /// One of so many layers attends to everything, where the file says so; others have a
    /// recurrence in its place.
    pub full_attention_interval: Option<usize>,
    recurrent_layers: Option<PerLayer<bool>>,
    /// Latent attention.
    pub mla: Option<Mla>,
    /// Exponent of the last slope by which scores fall with the distance, where the file says so.
    pub max_alibi_bias: Option<f32>,
    /// Queries, keys and values are held between this and its negative, where the file says so.
    pub clamp_kqv: Option<f32>,
    /// The growth of queries with their position, where the file says so.
    pub temperature: Option<Temperature>,
    /// Factor of what attention returns, where the file states one.
    pub value_scale: Option<f32>,
    /// True if a layer's network reads what its attention reads, where the file says so.
    pub has_parallel_residual: Option<bool>,
    /// Width of the embeddings that each layer has of its own.
    pub n_embd_per_layer: Option<usize>,
    /// Mixture of experts; [`Hparams::experts_of`] has the numbers of a layer.
    pub experts: Option<Experts>,
    expert_layers: Option<ExpertLayers>,
    /// Factors of the residual stream.
    pub scales: Scales,
    /// State-space layers.
    pub ssm: Option<Ssm>,
    /// Taps of short convolutions.
    pub n_taps: Option<usize>,
    /// RWKV's layers.
    pub wkv: Option<Wkv>,
    /// Kimi delta attention.
    pub kda: Option<Kda>,
}

/// Factors of the residual stream; 1 where the file states none.
///
/// # Example
/// ```
/// use backstitch_models::{Hparams, gguf::Gguf};
///
/// let hparams = Hparams::read(&Gguf::parse(backstitch_demo::GGUF)?)?;
/// assert_eq!(hparams.scales.residual, 1.0); // no factor in this file
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Factor of embeddings.
    pub embedding: f32,
    /// Factor of each branch before it is added.
    pub residual: f32,
    /// Factor of logits, or their divisor, depending on the architecture.
    pub logit: f32,
}

impl Hparams {
    /// Read and check the numbers of the model that `gguf` describes.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::WrongType`] or [`Error::OutOfRange`] for a key that is
    /// missing or of another type, [`Error::Length`] for an array that has not one element a layer,
    /// [`Error::Hparam`] for a number that makes no sense, [`Error::MissingTensor`] if nothing
    /// tells the size of the vocabulary.
    pub fn read(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let r = Reader { gguf, architecture: gguf.architecture()? };
        let n_embd = r.count("embedding_length", MAX_WIDTH)?;
        let n_block = r.count("block_count", MAX_LAYERS)?;
        let n_layer = n_layer(&r, n_block)?;
        let n_bucket = n_bucket(&r, n_block)?;
        let layers = Layers::read(&r, n_embd, n_layer, n_block)?;
        let n_ff = layers.full.iter().map(|layer| layer.n_ff).fold(0, usize::max);
        let (experts, expert_layers) = Experts::read(&r, n_ff, n_block)?.unzip();
        let n_head = layers.full.iter().map(|layer| layer.n_head).fold(0, usize::max);
        Ok(Hparams {
            architecture: r.architecture.into(),
            n_vocab: n_vocab(&r)?,
            n_ctx_train: r.count("context_length", i32::MAX as u32)? as u32,
            n_embd,
            n_layer,
            // Files of one kind of norm lack the other's key.
            norm_rms_eps: r.positive_f32("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
            norm_eps: r.positive_f32("attention.layer_norm_epsilon")?.unwrap_or(1e-5),
            n_layer_decoder: r.optional_count("decoder_block_count", MAX_LAYERS)?.unwrap_or(n_block),
            hidden_activation: r.gguf.keys()?.optional::<&str>("hidden_activation")?.map(String::from),
            n_bucket,
            decoder_start: r.gguf.keys()?.optional::<u32>("decoder_start_token_id")?,
            pooling: Pooling::read(&r)?,
            is_causal: r.gguf.keys()?.optional("attention.causal")?.unwrap_or(true),
            f_attention_scale: r.positive_f32("attention.scale")?,
            attn_soft_cap: r.positive_f32("attn_logit_softcapping")?,
            final_soft_cap: r.positive_f32("final_logit_softcapping")?,
            windows: Windows::read(&r, n_block)?,
            rope: RopeParams::read(&r)?,
            rope_sections: rotation::sections(&r)?,
            rope_pattern: r.flags("attention.rope_pattern", n_block)?,
            full_attention_interval: r.optional_count("full_attention_interval", MAX_LAYERS)?,
            recurrent_layers: r.per_layer("attention.recurrent_layers", n_block)?,
            mla: Mla::read(&r, n_head)?,
            // Files of models whose scores do not fall state 0.
            max_alibi_bias: r.f32_unless_0("attention.max_alibi_bias")?,
            clamp_kqv: r.f32_unless_0("attention.clamp_kqv")?,
            temperature: temperature(&r)?,
            value_scale: r.positive_f32("attention.value_scale")?,
            has_parallel_residual: r.gguf.keys()?.optional("use_parallel_residual")?,
            n_embd_per_layer: n_embd_per_layer(&r, n_layer)?,
            experts,
            expert_layers,
            scales: Scales {
                embedding: r.positive_f32("embedding_scale")?.unwrap_or(1.0),
                residual: r.positive_f32("residual_scale")?.unwrap_or(1.0),
                logit: r.positive_f32("logit_scale")?.unwrap_or(1.0),
            },
            ssm: Ssm::read(&r)?,
            n_taps: r.optional_count("shortconv.l_cache", MAX_TAPS)?,
            wkv: Wkv::read(&r, n_embd)?,
            kda: Kda::read(&r)?,
            layers,
        })
    }

    /// Iterate over the layers of a model without windows.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = LayerHparams> + '_ {
        self.layers.full.iter().copied()
    }

    /// Iterate over the layers of a model some of which have a window: those of the file's pattern
    /// or, where it has none, of `pattern`. They have the sizes that the file states for them.
    pub fn layers_by(&self, pattern: Pattern) -> impl Iterator<Item = LayerHparams> + '_ {
        self.layers.full.iter().zip(&self.layers.windowed).map(move |(full, windowed)| {
            match self.windows.of_layer(full.il, &pattern) {
                Some(window) => LayerHparams { window: Some(window), ..*windowed },
                None => *full,
            }
        })
    }

    /// Iterate over the layers of an encoder-decoder's decoder. Such models have the same numbers
    /// in all layers of both halves.
    pub fn decoder_layers(&self) -> impl Iterator<Item = LayerHparams> + '_ {
        let (n_layer, all) = (self.n_layer_decoder, self.layers.full.iter().cycle());
        all.take(n_layer).enumerate().map(move |(il, layer)| LayerHparams {
            il,
            is_last: il + 1 == n_layer,
            ..*layer
        })
    }

    /// Return true if a layer has a recurrence in the place of attention, where the file says so.
    pub fn is_recurrent(&self, layer: &LayerHparams) -> Option<bool> {
        self.recurrent_layers.as_ref()?.at(layer.il)
    }

    /// Return the factor of a layer's attention scores: the file's, or one over the square root of
    /// a key's width.
    pub fn attention_scale(&self, layer: &LayerHparams) -> f32 {
        self.f_attention_scale.unwrap_or(1.0 / libm::sqrtf(layer.d_k as f32))
    }

    /// Return the state-space sizes of an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none.
    pub fn ssm(&self) -> Result<Ssm, Error> {
        self.ssm.ok_or_else(|| self.missing("ssm.inner_size"))
    }

    /// Return the state-space sizes of an architecture whose recurrence has heads.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none, [`Error::Hparam`] if heads or their groups do
    /// not divide the recurrence.
    pub fn ssm_heads(&self) -> Result<Ssm, Error> {
        let ssm = self.ssm()?;
        if ssm.d_inner.is_multiple_of(ssm.dt_rank) && ssm.dt_rank.is_multiple_of(ssm.n_group) {
            return Ok(ssm);
        }
        let wanted = "a divisor of ssm.inner_size and a multiple of ssm.group_count";
        Err(self.invalid("ssm.time_step_rank", ssm.dt_rank, wanted))
    }

    /// Check a layer whose gates are as wide as both queries and values.
    ///
    /// # Errors
    /// [`Error::Hparam`] if keys and values differ in width.
    pub fn check_heads_alike(&self, layer: &LayerHparams) -> Result<(), Error> {
        if layer.d_k == layer.d_v {
            return Ok(());
        }
        Err(self.invalid("attention.value_length", layer.d_v, "attention.key_length"))
    }

    /// Return the sizes of RWKV's layers in an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none.
    pub fn wkv(&self) -> Result<Wkv, Error> {
        self.wkv.ok_or_else(|| self.missing("wkv.head_size"))
    }

    /// Return the sizes of latent attention in an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none.
    pub fn mla(&self) -> Result<Mla, Error> {
        self.mla.ok_or_else(|| self.missing("attention.kv_lora_rank"))
    }

    /// Return the mixture of experts of a layer in an architecture that needs one.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none; [`Error::Hparam`] if it says so of this layer
    /// alone.
    pub fn experts(&self, layer: &LayerHparams) -> Result<Experts, Error> {
        self.experts_of(layer).ok_or_else(|| match self.experts {
            Some(_) => self.invalid("expert_used_count", 0, "a number from 1 up"),
            None => self.missing("expert_count"),
        })
    }

    /// Return the error for a key that the architecture needs and the file lacks.
    pub fn missing(&self, key: &str) -> Error {
        Error::MissingKey { key: alloc::format!("{}.{key}", self.architecture).into() }
    }

    /// Return the error for a file that says that tokens see all of their text, where the
    /// architecture has something that goes one way only.
    pub(crate) fn not_causal(&self) -> Error {
        self.invalid("attention.causal", false, "true, as all that this architecture can do")
    }

    pub(crate) fn invalid(&self, key: &str, found: impl core::fmt::Display, wanted: &'static str) -> Error {
        let key = alloc::format!("{}.{key}", self.architecture).into();
        Error::Hparam { key, found: alloc::format!("{found}").into(), wanted }
    }
}

/// Return the number of layers without those behind the last that only guess further tokens.
fn n_layer(r: &Reader<'_, '_>, n_block: usize) -> Result<usize, Error> {
    const GUESSING: &str = "nextn_predict_layers";
    match r.gguf.keys()?.optional::<u32>(GUESSING)? {
        None => Ok(n_block),
        Some(n) if (n as usize) < n_block => Ok(n_block - n as usize),
        Some(n) => Err(r.invalid(GUESSING, n, "less than block_count")),
    }
}

/// Return the growth of queries; none if the file says 0. It begins behind the context of the
/// training, unless the file says otherwise.
fn temperature(r: &Reader<'_, '_>) -> Result<Option<Temperature>, Error> {
    let Some(scale) = r.f32_unless_0("attention.temperature_scale")? else { return Ok(None) };
    let floor_scale = match r.optional_count("attention.temperature_length", i32::MAX as u32)? {
        Some(n) => n as u32,
        None => rotation::n_ctx_orig(r)?,
    };
    Ok(Some(Temperature { floor_scale, scale, offset: 0.0 }))
}

/// Return the width of the embeddings of each layer. They lie side by side, which bounds all
/// together.
fn n_embd_per_layer(r: &Reader<'_, '_>, n_layer: usize) -> Result<Option<usize>, Error> {
    const KEY: &str = "embedding_length_per_layer_input";
    match r.gguf.keys()?.optional::<u32>(KEY)? {
        None | Some(0) => Ok(None),
        Some(n) if n > MAX_WIDTH => Err(r.invalid(KEY, n, "at most 2^20")),
        Some(n) => r.product(KEY, n_layer, n as usize).map(|()| Some(n as usize)),
    }
}

/// Return the rows of the embedding matrix, or the file's own count.
fn n_vocab(r: &Reader<'_, '_>) -> Result<usize, Error> {
    const TABLE: &str = "token_embd.weight";
    let rows = r.gguf.tensor(TABLE).and_then(|table| table.shape().first().copied());
    match rows.or(r.optional_count("vocab_size", MAX_VOCAB)?) {
        Some(n) if n <= MAX_VOCAB as usize => Ok(n),
        Some(n) => Err(r.invalid("vocab_size", n, "at most 16777216 tokens")),
        None => Err(Error::MissingTensor { tensor: TABLE.into() }),
    }
}

/// Return the buckets of distances. Memory spreads each head's over all distances, which bounds the
/// heads.
fn n_bucket(r: &Reader<'_, '_>, n_block: usize) -> Result<Option<usize>, Error> {
    const KEY: &str = "attention.relative_buckets_count";
    const HEADS: &str = "attention.head_count";
    let heads = r.per_layer::<u32>(HEADS, n_block)?;
    let n_head = (0..n_block).filter_map(|il| heads.as_ref()?.at(il)).fold(0, u32::max);
    match r.optional_count(KEY, MAX_BUCKETS)? {
        Some(n) if n < 4 || n % 2 != 0 => Err(r.invalid(KEY, n, "an even number from 4 to 128")),
        Some(_) if n_head > MAX_LAYERS => {
            let wanted = "at most 4096 heads that have relative position biases";
            Err(r.invalid(HEADS, n_head, wanted))
        }
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Writer;
    use alloc::{format, string::ToString};

    fn read(changes: &[(&'static str, u32)]) -> Result<Hparams, Error> {
        let mut writer = Writer::new();
        writer.set("general.architecture", "llama")?;
        let counts = [
            ("llama.context_length", 128),
            ("llama.embedding_length", 64),
            ("llama.block_count", 1),
            ("llama.attention.head_count", 4),
            ("llama.feed_forward_length", 96),
            ("llama.expert_used_count", 2),
            ("llama.vocab_size", 300),
        ];
        for &(key, n) in counts.iter().chain(changes) {
            writer.set(key, n)?;
        }
        Hparams::read(&Gguf::parse(&writer.to_bytes())?)
    }

    #[test]
    fn sizes_whose_product_is_beyond_reason_are_refused() {
        let hparams = read(&[("llama.attention.key_length", 1 << 20)]).unwrap();
        let layer = hparams.layers().next().unwrap();
        assert_eq!((layer.d_k, layer.d_v), (1 << 20, 16));
        let heads = ("llama.attention.head_count", 1 << 12);
        let cases = [
            [heads, ("llama.attention.key_length", 1 << 20)],
            [heads, ("llama.attention.value_length", 1 << 20)],
            [("llama.expert_count", 1 << 12), ("llama.feed_forward_length", 1 << 20)],
            [("llama.block_count", 1 << 12), ("llama.embedding_length_per_layer_input", 1 << 20)],
        ];
        for mut case in cases {
            let width = ("llama.embedding_length", 1 << 13);
            let error = read(&[width, case[0], case[1]]).unwrap_err().to_string();
            assert!(error.contains(case[1].0) && error.contains("2^28"), "{error}");
            case[1].1 = 1 << 16;
            assert!(read(&[width, case[0], case[1]]).is_ok());
        }
    }

    #[test]
    fn heads_of_latent_attention_are_bounded_together() {
        let keys = [
            "llama.attention.kv_lora_rank",
            "llama.attention.key_length_mla",
            "llama.attention.value_length_mla",
        ];
        let few = [("llama.attention.head_count", 1 << 12), ("llama.embedding_length", 1 << 13)];
        let sizes = keys.map(|key| (key, 64));
        assert!(read(&[&few[..], &sizes].concat()).unwrap().mla.is_some());
        for i in 0..keys.len() {
            let mut sizes = sizes;
            sizes[i].1 = 1 << 20;
            let error = read(&[&few[..], &sizes].concat()).unwrap_err().to_string();
            assert!(error.contains(keys[i]) && error.contains("2^28"), "{error}");
        }
    }

    #[test]
    fn no_more_experts_or_groups_are_used_than_there_are() {
        let used = |n| [("llama.expert_count", 8), ("llama.expert_used_count", n)];
        assert_eq!(read(&used(8)).unwrap().experts.unwrap().n_used, 8);
        for n in [0, 9] {
            let error = read(&used(n)).unwrap_err().to_string();
            let wanted = format!(
                "key \"llama.expert_used_count\" is {n}, not 1 to 8, which \"llama.expert_count\" says"
            );
            assert_eq!(error, wanted);
        }
        let groups = [("llama.expert_group_count", 4), ("llama.expert_group_used_count", 5)];
        let error = read(&[&used(2)[..], &groups].concat()).unwrap_err().to_string();
        assert!(
            error.contains("group_used_count\" is 5, not 1 to 4, which \"llama.expert_group_count\""),
            "{error}"
        );
    }

    #[test]
    fn buckets_of_distances_are_held_to_what_a_table_can_have() {
        const KEY: &str = "llama.attention.relative_buckets_count";
        assert_eq!(read(&[(KEY, 32)]).unwrap().n_bucket, Some(32));
        let heads = ("llama.attention.head_count", 1 << 13);
        let width = ("llama.embedding_length", 1 << 13);
        for case in [&[(KEY, 2)][..], &[(KEY, 33)], &[(KEY, 130)], &[(KEY, 32), heads, width]] {
            let error = read(case).unwrap_err().to_string();
            assert!(error.contains("relative_buckets_count") || error.contains("4096 heads"), "{error}");
        }
    }
}
