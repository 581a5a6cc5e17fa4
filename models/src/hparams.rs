//! The numbers that describe a model, from the metadata of its file.

mod experts;
mod rotation;
mod windows;
mod wkv;

pub use experts::Experts;
pub use rotation::{RopeParams, RopeScaling};
pub use windows::{Pattern, Windows};
pub use wkv::Wkv;

use crate::{
    context::Pooling,
    error::Error,
    gguf::Gguf,
    graph::{Builder, RopeId},
};
use alloc::{boxed::Box, string::String};
use backstitch_core::rope::Pairs;
use backstitch_kv::{AttentionLayer, AttentionSpec, Window};

// Limits well above any model that exists. They and `MAX_PRODUCT` keep the products that are formed before a tensor of
// that shape was found in the file, heads times their width above all, far from overflow, on 32-bit targets too.
const MAX_WIDTH: u32 = 1 << 20;
const MAX_LAYERS: u32 = 4096;
const MAX_VOCAB: u32 = 1 << 24;
const MAX_TAPS: u32 = 64;
const MAX_BUCKETS: u32 = 128;
const MAX_PRODUCT: u64 = 1 << 28;

/// Sizes and constants of a model. Names are those of the GGUF keys' world; `n_` counts.
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
    /// Width of the feed-forward network, or of each expert's; 0 if there is none.
    pub n_ff: usize,
    /// Query heads; 0 if no layer attends.
    pub n_head: usize,
    /// Key and value heads of the layers that attend.
    pub n_head_kv: usize,
    /// Which layers attend, `[n_layer]`; in the place of attention, others may have a recurrence.
    pub attends: Box<[bool]>,
    /// Width of a query or key head.
    pub d_k: usize,
    /// Width of a value head.
    pub d_v: usize,
    /// Added to the mean square in RMS norms.
    pub norm_rms_eps: f32,
    /// Added to the variance in layer norms.
    pub norm_eps: f32,
    /// Layers of the decoder of an encoder-decoder.
    pub n_layer_decoder: usize,
    /// Buckets of distances that attention scores have terms for.
    pub n_bucket: Option<usize>,
    /// The token that a decoder starts a text with.
    pub decoder_start: Option<u32>,
    /// How an encoder's embeddings become one for a whole text, unless the context says otherwise.
    pub pooling: Pooling,
    /// Factor of attention scores, where the file states one.
    pub f_attention_scale: Option<f32>,
    /// Attention scores become `cap * tanh(score / cap)`, where an architecture says so.
    pub attn_soft_cap: Option<f32>,
    /// The same for the scores of the vocabulary.
    pub final_soft_cap: Option<f32>,
    /// Which layers see the last tokens only, where the file says so.
    pub windows: Windows,
    /// How positions rotate queries and keys.
    pub rope: RopeParams,
    /// Pairs of dimensions that turn by time, height, width and a fourth coordinate, where positions have axes.
    pub rope_sections: Option<[usize; 4]>,
    /// Every how many layers one attends to everything, where the file says so; others have a recurrence in its place.
    pub full_attention_interval: Option<usize>,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// Factors of the residual stream.
    pub scales: Scales,
    /// State-space layers.
    pub ssm: Option<Ssm>,
    /// Taps of short convolutions.
    pub n_taps: Option<usize>,
    /// RWKV's layers.
    pub wkv: Option<Wkv>,
}

/// Factors of the residual stream; 1 where the file states none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// Of embeddings.
    pub embedding: f32,
    /// Of each branch before it is added.
    pub residual: f32,
    /// Of logits, or their divisor: architectures differ.
    pub logit: f32,
}

/// Sizes of state-space layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssm {
    /// Taps of the convolution.
    pub d_conv: usize,
    /// Width of the recurrence.
    pub d_inner: usize,
    /// State size a channel.
    pub d_state: usize,
    /// `ssm.time_step_rank`: the heads of Mamba-2; the columns that Mamba-1 computes time steps from.
    pub dt_rank: usize,
    /// Groups of heads that share B and C.
    pub n_group: usize,
    /// Whether time steps, B and C are normalised, without weights.
    pub dt_b_c_rms: bool,
}

impl Ssm {
    /// Channels that go through the convolution of Mamba-2: x, B and C.
    pub fn n_channels(&self) -> usize {
        self.d_inner + 2 * self.n_group * self.d_state
    }
}

/// A number of heads, the same in all layers that have any, and which layers those are.
struct Heads {
    n: usize,
    attends: Box<[bool]>,
}

/// Reads keys below the architecture's prefix and holds them to limits.
struct Reader<'g, 'a> {
    gguf: &'g Gguf<'a>,
    architecture: &'a str,
}

impl Reader<'_, '_> {
    fn invalid(&self, key: &'static str, found: impl core::fmt::Display, wanted: &'static str) -> Error {
        let key: Box<str> = alloc::format!("{}.{key}", self.architecture).into();
        Error::Hparam { key, found: alloc::format!("{found}").into(), wanted }
    }

    fn optional_count(&self, key: &'static str, limit: u32) -> Result<Option<usize>, Error> {
        match self.gguf.keys()?.optional::<u32>(key)? {
            Some(n) if n == 0 || n > limit => {
                Err(self.invalid(key, n, "a number from 1 to the largest this engine takes"))
            }
            n => Ok(n.map(|n| n as usize)),
        }
    }

    fn count(&self, key: &'static str, limit: u32) -> Result<usize, Error> {
        match self.optional_count(key, limit)? {
            Some(n) => Ok(n),
            None => self.gguf.keys()?.required::<u32>(key).map(|n| n as usize),
        }
    }

    /// Holds the width of `n` things of `width` each, the last stated by `key`, to [`MAX_PRODUCT`].
    fn product(&self, key: &'static str, n: usize, width: usize) -> Result<(), Error> {
        // u64: the product may not fit a 32-bit usize.
        match n as u64 * width as u64 {
            0..=MAX_PRODUCT => Ok(()),
            _ => Err(self.invalid(key, width, "at most 2^28 in all heads or experts together")),
        }
    }

    /// A number that may be 0: the model has none of what it counts.
    fn size(&self, key: &'static str, limit: u32) -> Result<usize, Error> {
        match self.gguf.keys()?.required::<u32>(key)? {
            n if n > limit => Err(self.invalid(key, n, "a number up to the largest this engine takes")),
            n => Ok(n as usize),
        }
    }

    fn heads(&self, key: &'static str, n_layer: usize) -> Result<Option<Heads>, Error> {
        let Some(heads) = self.gguf.keys()?.per_layer::<u32>(key, n_layer as u32)? else { return Ok(None) };
        let all = || (0..n_layer).map(|il| heads.at(il).unwrap_or(0));
        let most = all().max().unwrap_or(0);
        if all().any(|n| n != 0 && n != most) {
            return Err(self.invalid(
                key,
                "different numbers",
                "the same number in every layer that attends",
            ));
        }
        if most > MAX_WIDTH {
            return Err(self.invalid(key, most, "a number up to the largest this engine takes"));
        }
        Ok(Some(Heads { n: most as usize, attends: all().map(|n| n > 0).collect() }))
    }

    fn optional_f32(&self, key: &'static str) -> Result<Option<f32>, Error> {
        match self.gguf.keys()?.optional::<f32>(key)? {
            Some(x) if !x.is_finite() => Err(self.invalid(key, x, "a finite number")),
            x => Ok(x),
        }
    }

    fn positive_f32(&self, key: &'static str) -> Result<Option<f32>, Error> {
        match self.optional_f32(key)? {
            Some(x) if x <= 0.0 => Err(self.invalid(key, x, "a number above 0")),
            x => Ok(x),
        }
    }
}

impl Hparams {
    /// Reads and checks the numbers of the model that `gguf` describes.
    ///
    /// # Errors
    /// If a key is missing, of another type, or out of the range that makes sense.
    pub fn read(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let r = Reader { gguf, architecture: gguf.architecture()? };
        let n_embd = r.count("embedding_length", MAX_WIDTH)?;
        let n_block = r.count("block_count", MAX_LAYERS)?;
        let keys = gguf.keys()?;
        let missing =
            || Error::MissingKey { key: alloc::format!("{}.attention.head_count", keys.prefix()).into() };
        let heads = r.heads("attention.head_count", n_block)?.ok_or_else(missing)?;
        let n_head = heads.n;
        let Heads { n: n_head_kv, attends } = r.heads("attention.head_count_kv", n_block)?.unwrap_or(heads);
        if n_head_kv > 0 && n_head % n_head_kv != 0 {
            return Err(r.invalid("attention.head_count_kv", n_head_kv, "a divisor of attention.head_count"));
        }
        let d_k = head_width(&r, "attention.key_length", n_embd, n_head)?;
        let d_v = head_width(&r, "attention.value_length", n_embd, n_head)?;
        let n_ff = r.size("feed_forward_length", MAX_WIDTH)?;
        let experts = Experts::read(&r, n_ff)?;
        Ok(Hparams {
            architecture: r.architecture.into(),
            n_vocab: n_vocab(&r)?,
            n_ctx_train: r.count("context_length", i32::MAX as u32)? as u32,
            n_embd,
            n_layer: n_layer(&r, n_block)?,
            n_ff,
            n_head,
            n_head_kv,
            attends,
            d_k,
            d_v,
            norm_rms_eps: r.positive_f32("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
            norm_eps: r.positive_f32("attention.layer_norm_epsilon")?.unwrap_or(1e-5),
            n_layer_decoder: r.optional_count("decoder_block_count", MAX_LAYERS)?.unwrap_or(n_block),
            n_bucket: n_bucket(&r, n_head)?,
            decoder_start: r.gguf.keys()?.optional::<u32>("decoder_start_token_id")?,
            pooling: pooling(&r)?,
            f_attention_scale: r.positive_f32("attention.scale")?,
            attn_soft_cap: r.positive_f32("attn_logit_softcapping")?,
            final_soft_cap: r.positive_f32("final_logit_softcapping")?,
            windows: Windows::read(&r, n_block)?,
            rope: rotation::read(&r, d_k)?,
            rope_sections: rotation::sections(&r)?,
            full_attention_interval: r.optional_count("full_attention_interval", MAX_LAYERS)?,
            experts,
            scales: Scales {
                embedding: r.positive_f32("embedding_scale")?.unwrap_or(1.0),
                residual: r.positive_f32("residual_scale")?.unwrap_or(1.0),
                logit: r.positive_f32("logit_scale")?.unwrap_or(1.0),
            },
            ssm: ssm(&r)?,
            n_taps: r.optional_count("shortconv.l_cache", MAX_TAPS)?,
            wkv: Wkv::read(&r, n_embd)?,
        })
    }

    /// Whether layer `il` attends.
    pub fn attends(&self, il: usize) -> bool {
        self.attends.get(il).copied().unwrap_or(false)
    }

    /// Factor of attention scores: the file's, or one over the square root of a key's width.
    pub fn attention_scale(&self) -> f32 {
        self.f_attention_scale.unwrap_or(1.0 / libm::sqrtf(self.d_k as f32))
    }

    /// The rotation of queries and keys, declared to the builder.
    ///
    /// # Errors
    /// If the file's frequency factors are not of its size.
    pub fn rope(&self, b: &mut Builder<'_, '_>, pairs: Pairs) -> Result<RopeId, Error> {
        rotation::declare(b, pairs, self.rope)
    }

    /// The rotation of windowed layers of an architecture that has one of their own: by `windows.freq_base` if the file
    /// states it, or `default`.
    ///
    /// # Errors
    /// As [`Hparams::rope`].
    pub fn window_rope(
        &self,
        b: &mut Builder<'_, '_>,
        pairs: Pairs,
        default: RopeParams,
    ) -> Result<RopeId, Error> {
        let freq_base = self.windows.freq_base.unwrap_or(default.freq_base);
        rotation::declare(b, pairs, RopeParams { freq_base, ..default })
    }

    /// What an attention layer keeps: keys, turned by `rope` if there is one, and values.
    pub fn attention_layer(&self, b: &Builder<'_, '_>, rope: impl Into<Option<RopeId>>) -> AttentionSpec {
        AttentionSpec::Cached(AttentionLayer {
            n_head_kv: self.n_head_kv,
            d_k: self.d_k,
            d_v: self.d_v,
            window: None,
            rope: rope.into().map(|rope| b.rotation(rope).clone()),
        })
    }

    /// As [`Hparams::attention_layer`], for a layer that sees the last `window` positions only.
    pub fn windowed_layer(&self, b: &Builder<'_, '_>, rope: RopeId, window: u32) -> AttentionSpec {
        match self.attention_layer(b, rope) {
            AttentionSpec::Cached(layer) => {
                AttentionSpec::Cached(AttentionLayer { window: Some(Window::Sliding(window)), ..layer })
            }
            other => other,
        }
    }

    /// The state-space sizes of an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none.
    pub fn ssm(&self) -> Result<Ssm, Error> {
        let key = || alloc::format!("{}.ssm.inner_size", self.architecture).into();
        self.ssm.ok_or_else(|| Error::MissingKey { key: key() })
    }

    /// The same where the recurrence has heads.
    ///
    /// # Errors
    /// As [`Hparams::ssm`], and [`Error::Hparam`] if heads or their groups do not divide it.
    pub fn ssm_heads(&self) -> Result<Ssm, Error> {
        let ssm = self.ssm()?;
        if ssm.d_inner.is_multiple_of(ssm.dt_rank) && ssm.dt_rank.is_multiple_of(ssm.n_group) {
            return Ok(ssm);
        }
        let key = alloc::format!("{}.ssm.time_step_rank", self.architecture).into();
        let found = alloc::format!("{}", ssm.dt_rank).into();
        Err(Error::Hparam {
            key,
            found,
            wanted: "a divisor of ssm.inner_size and a multiple of ssm.group_count",
        })
    }

    /// For layers whose gates are as wide as both queries and values.
    ///
    /// # Errors
    /// [`Error::Hparam`] if keys and values differ in width.
    pub fn check_heads_alike(&self) -> Result<(), Error> {
        if self.d_k == self.d_v {
            return Ok(());
        }
        let key = alloc::format!("{}.attention.value_length", self.architecture).into();
        Err(Error::Hparam {
            key,
            found: alloc::format!("{}", self.d_v).into(),
            wanted: "attention.key_length",
        })
    }

    /// The sizes of RWKV's layers in an architecture that needs them.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if the file has none.
    pub fn wkv(&self) -> Result<Wkv, Error> {
        let key = || alloc::format!("{}.wkv.head_size", self.architecture).into();
        self.wkv.ok_or_else(|| Error::MissingKey { key: key() })
    }
}

fn head_width(r: &Reader<'_, '_>, key: &'static str, n_embd: usize, n_head: usize) -> Result<usize, Error> {
    match r.optional_count(key, MAX_WIDTH)? {
        Some(width) => r.product(key, n_head, width).map(|()| width),
        None if n_head == 0 => Ok(0),
        None if n_embd.is_multiple_of(n_head) => Ok(n_embd / n_head),
        None => Err(r.invalid("attention.head_count", n_head, "a divisor of embedding_length")),
    }
}

/// Layers without those behind the last that only guess further tokens.
fn n_layer(r: &Reader<'_, '_>, n_block: usize) -> Result<usize, Error> {
    const GUESSING: &str = "nextn_predict_layers";
    match r.gguf.keys()?.optional::<u32>(GUESSING)?.unwrap_or(0) {
        n if (n as usize) < n_block => Ok(n_block - n as usize),
        n => Err(r.invalid(GUESSING, n, "less than block_count")),
    }
}

/// The file's own count, or the rows of the embedding matrix.
fn n_vocab(r: &Reader<'_, '_>) -> Result<usize, Error> {
    const TABLE: &str = "token_embd.weight";
    let rows = r.gguf.tensor(TABLE).map(|table| table.shape()[0]);
    match rows.or(r.optional_count("vocab_size", MAX_VOCAB)?) {
        Some(n) if n <= MAX_VOCAB as usize => Ok(n),
        Some(n) => Err(r.invalid("vocab_size", n, "at most 16777216 tokens")),
        None => Err(Error::MissingTensor { tensor: TABLE.into() }),
    }
}

/// Buckets of distances. Each head's are spread over all distances in memory, which bounds the heads.
fn n_bucket(r: &Reader<'_, '_>, n_head: usize) -> Result<Option<usize>, Error> {
    const KEY: &str = "attention.relative_buckets_count";
    match r.optional_count(KEY, MAX_BUCKETS)? {
        Some(n) if n < 4 || n % 2 != 0 => Err(r.invalid(KEY, n, "an even number from 4 to 128")),
        Some(_) if n_head > MAX_LAYERS as usize => {
            Err(r.invalid("attention.head_count", n_head, "at most 4096 heads that have terms by distance"))
        }
        n => Ok(n),
    }
}

fn pooling(r: &Reader<'_, '_>) -> Result<Pooling, Error> {
    match r.gguf.keys()?.optional::<u32>("pooling_type")? {
        None | Some(0) => Ok(Pooling::None),
        Some(1) => Ok(Pooling::Mean),
        Some(2) => Ok(Pooling::Cls),
        Some(3) => Ok(Pooling::Last),
        Some(other) => Err(r.invalid(
            "pooling_type",
            other,
            "0 for none, 1 for the mean, 2 for the first or 3 for the last token",
        )),
    }
}

fn ssm(r: &Reader<'_, '_>) -> Result<Option<Ssm>, Error> {
    let Some(d_inner) = r.optional_count("ssm.inner_size", MAX_WIDTH)? else { return Ok(None) };
    let ssm = Ssm {
        d_conv: r.count("ssm.conv_kernel", MAX_TAPS)?,
        d_inner,
        d_state: r.count("ssm.state_size", 1 << 16)?,
        dt_rank: r.count("ssm.time_step_rank", MAX_WIDTH)?,
        n_group: r.optional_count("ssm.group_count", MAX_WIDTH)?.unwrap_or(1),
        dt_b_c_rms: r.gguf.keys()?.optional("ssm.dt_b_c_rms")?.unwrap_or(false),
    };
    // u64: the product may not fit a 32-bit usize.
    if ssm.d_inner as u64 * ssm.d_state as u64 > 1 << 28
        || ssm.n_group as u64 * ssm.d_state as u64 > u64::from(MAX_WIDTH)
    {
        return Err(r.invalid("ssm.state_size", ssm.d_state, "a state of at most 2^28 numbers"));
    }
    Ok(Some(ssm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Writer;
    use alloc::string::ToString;

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
        assert_eq!((hparams.d_k, hparams.d_v), (1 << 20, 16));
        let heads = ("llama.attention.head_count", 1 << 12);
        let cases = [
            [heads, ("llama.attention.key_length", 1 << 20)],
            [heads, ("llama.attention.value_length", 1 << 20)],
            [("llama.expert_count", 1 << 12), ("llama.feed_forward_length", 1 << 20)],
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
