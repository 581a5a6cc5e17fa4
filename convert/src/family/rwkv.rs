//! RWKV 6 and 7, also with the networks of Qwen 2.

use super::edits::{squeeze, transpose};
use super::standard::need_numbers;
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{GATED, Names, PRE_NORMS};
use crate::plan::Tensors;
use crate::tensor::Tensor;
use crate::vocab::Style;

/// Time mix and channel mix of RWKV 6.
const RWKV6: Names = &[
    ("ln1", "attn_norm"),
    ("ln2", "attn_norm_2"),
    ("attention.time_maa_x", "time_mix_lerp_x"),
    ("attention.time_maa_fused", "time_mix_lerp_fused"),
    ("attention.time_maa_w1", "time_mix_w1"),
    ("attention.time_maa_w2", "time_mix_w2"),
    ("attention.time_faaaa", "time_mix_first"),
    ("attention.time_decay", "time_mix_decay"),
    ("attention.time_decay_w1", "time_mix_decay_w1"),
    ("attention.time_decay_w2", "time_mix_decay_w2"),
    ("attention.key", "time_mix_key"),
    ("attention.value", "time_mix_value"),
    ("attention.receptance", "time_mix_receptance"),
    ("attention.gate", "time_mix_gate"),
    ("attention.ln_x", "time_mix_ln"),
    ("attention.output", "time_mix_output"),
    ("feed_forward.time_maa_k", "channel_mix_lerp_k"),
    ("feed_forward.time_maa_r", "channel_mix_lerp_r"),
    ("feed_forward.key", "channel_mix_key"),
    ("feed_forward.receptance", "channel_mix_receptance"),
    ("feed_forward.value", "channel_mix_value"),
];

/// Names of projections that came from attention.
const OF_ATTENTION: Names = &[
    ("attention.k_proj", "time_mix_key"),
    ("attention.v_proj", "time_mix_value"),
    ("attention.q_proj", "time_mix_receptance"),
    ("attention.r_proj", "time_mix_receptance"),
    ("attention.o_proj", "time_mix_output"),
];

/// Low-rank parts of RWKV 7.
const RWKV7: Names = &[
    ("attention.w0", "time_mix_w0"),
    ("attention.w1", "time_mix_w1"),
    ("attention.w2", "time_mix_w2"),
    ("attention.a0", "time_mix_a0"),
    ("attention.a1", "time_mix_a1"),
    ("attention.a2", "time_mix_a2"),
    ("attention.v0", "time_mix_v0"),
    ("attention.v1", "time_mix_v1"),
    ("attention.v2", "time_mix_v2"),
    ("attention.g1", "time_mix_g1"),
    ("attention.g2", "time_mix_g2"),
    ("attention.k_k", "time_mix_k_k"),
    ("attention.k_a", "time_mix_k_a"),
    ("attention.r_k", "time_mix_r_k"),
    ("attention.x_fused", "time_mix_lerp_fused"),
    ("attention_norm", "attn_norm"),
    ("feed_forward.x_k", "channel_mix_lerp_k"),
];

/// Length of contexts, which nothing limits.
const ENDLESS: u32 = 1 << 20;

const SIXTH: Family = Family {
    architecture: "rwkv6",
    metadata: sixth,
    rename: |_, name| Some(weight(name.replace("rwkv.blocks.0.pre_ln", "model.pre_ln"))),
    merge: |_, tensors| tensors.stack(&lerps("time_maa_", "wkvrg"), ".weight", "attention.time_maa_fused"),
    names: &[RWKV6],
    edits: &[
        ("time_mix_w1", Edit::Each(transpose)),
        ("time_mix_decay_w1", Edit::Each(transpose)),
        ("time_mix_decay_w2", Edit::Each(transpose)),
        ("time_mix_w2", Edit::Each(transpose)),
        ("time_mix_decay", Edit::Each(squeeze)),
        ("time_mix_lerp_fused", Edit::Each(fused)),
        ("time_mix_lerp_x", Edit::Each(squeeze)),
        ("channel_mix_lerp_k", Edit::Each(squeeze)),
        ("channel_mix_lerp_r", Edit::Each(squeeze)),
        ("time_mix_output", Edit::Each(rescaled)),
        ("channel_mix_value", Edit::Each(rescaled)),
    ],
    vocabulary: &[Style::RwkvWorld],
    ..PLAIN
};

const SEVENTH: Family = Family {
    architecture: "rwkv7",
    metadata: seventh,
    rename: rename_seventh,
    merge: merge_seventh,
    names: &[RWKV7, OF_ATTENTION, RWKV6],
    edits: &[
        ("time_mix_lerp_fused", Edit::Each(fused)),
        ("time_mix_r_k", Edit::Each(flat)),
        ("token_embd", Edit::Each(|_, x| Ok(x))),
        ("*", Edit::Each(squeeze)),
    ],
    vocabulary: &[Style::RwkvWorld],
    ..PLAIN
};

pub(super) const FAMILIES: &[Family] = &[
    Family { classes: &["Rwkv6ForCausalLM"], ..SIXTH },
    Family {
        classes: &["RWKV6Qwen2ForCausalLM"],
        architecture: "rwkv6qwen2",
        metadata: sixth_qwen,
        rename: |_, name| Some(weight(name.replace(".self_attn.", ".attention."))),
        names: &[RWKV6, OF_ATTENTION, PRE_NORMS, GATED],
        edits: &[
            ("time_mix_w1", Edit::Each(|at, x| reordered(transpose(at, x)?, false))),
            ("time_mix_w2", Edit::Each(|at, x| reordered(transpose(at, x)?, true))),
            SIXTH.edits[1],
            SIXTH.edits[2],
            SIXTH.edits[4],
            SIXTH.edits[5],
            SIXTH.edits[6],
        ],
        vocabulary: &[Style::SentencePiece, Style::Bpe],
        ..SIXTH
    },
    Family { classes: &["Rwkv7ForCausalLM", "RWKV7ForCausalLM"], ..SEVENTH },
    Family {
        classes: &["RwkvHybridForCausalLM"],
        architecture: "arwkv7",
        metadata: hybrid,
        names: &[RWKV7, OF_ATTENTION, PRE_NORMS, GATED, RWKV6],
        vocabulary: &[Style::SentencePiece, Style::Bpe],
        ..SEVENTH
    },
];

/// Give a tensor the ending that others have.
fn weight(name: String) -> String {
    let has_ending = name.ends_with(".weight") || name.ends_with(".bias");
    if has_ending { name } else { format!("{name}.weight") }
}

/// Return the paths of interpolations, one for each letter.
fn lerps(prefix: &str, letters: &str) -> Vec<String> {
    letters.chars().map(|letter| format!("attention.{prefix}{letter}")).collect()
}

/// Give stacked interpolations the dimensions that GGUF keeps.
fn fused(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let n = tensor.dim(0);
    let width = tensor.n_elements() / n.max(1);
    tensor.reshape(&[n, 1, 1, width])
}

fn flat(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let n = tensor.n_elements();
    tensor.reshape(&[n])
}

/// Halve what deeper layers add, as often as the model rescales.
fn rescaled(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let Some(every) = at.config.number(&["rescale_every"])?.filter(|n| *n > 0) else { return Ok(tensor) };
    let times = (at.layer / every as usize).min(100) as i32;
    Ok(if times == 0 { tensor } else { tensor.multiply(2f32.powi(-times)) })
}

/// Bring five parts from the order of Qwen's variant into RWKV's: r, k, v, w, g to w, k, v, r, g.
fn reordered(tensor: Tensor, stays_cube: bool) -> Result<Tensor, Error> {
    let width = tensor.dim(tensor.shape().len().saturating_sub(1));
    let rows = tensor.n_elements() / width.max(1);
    let parts = tensor.reshape(&[rows, width])?.split_axis(0, 5)?;
    let order =
        [3, 1, 2, 0, 4].map(|part| parts.slice(0, part, 1)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let joined = Tensor::join(0, order)?;
    if stays_cube { Ok(joined) } else { joined.reshape(&[rows, width]) }
}

/// Set the keys that all RWKVs have.
fn common(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    meta.set_own("context_length", ENDLESS);
    meta.set_own("embedding_length", config.need(&["hidden_size"])?);
    meta.set_own("block_count", config.n_layers()? as u32);
    meta.set_own("attention.head_count", 0u32);
    Ok(())
}

fn sixth(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    need_numbers(
        config,
        meta,
        &[("wkv.head_size", &["head_size"]), ("rescale_every_n_layers", &["rescale_every"])],
    )?;
    meta.set_own("attention.layer_norm_epsilon", config.need_float(&["layer_norm_epsilon"])?);
    let width = config.need(&["hidden_size"])?;
    let is_large = width == 4096;
    meta.set_own("time_mix_extra_dim", if is_large { 64u32 } else { 32 });
    meta.set_own("time_decay_extra_dim", if is_large { 128u32 } else { 64 });
    let network = config.number(&["intermediate_size"])?;
    meta.set_own("feed_forward_length", network.unwrap_or((f64::from(width) * 3.5) as u32 / 32 * 32));
    Ok(())
}

fn sixth_qwen(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    let width = config.need(&["hidden_size"])?;
    let is_large = width >= 4096;
    let rank = |key: &str, large: u32, small: u32| {
        Ok::<_, Error>(config.number(&[key])?.unwrap_or(if is_large { large } else { small }))
    };
    meta.set_own("wkv.head_size", width / config.n_heads()? as u32);
    meta.set_own("time_mix_extra_dim", rank("lora_rank_tokenshift", 64, 32)?);
    meta.set_own("time_decay_extra_dim", rank("lora_rank_decay", 128, 64)?);
    need_numbers(
        config,
        meta,
        &[
            ("feed_forward_length", &["intermediate_size"]),
            ("attention.head_count_kv", &["num_key_value_heads"]),
        ],
    )?;
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["rms_norm_eps"])?);
    meta.set_own("token_shift_count", 1u32);
    Ok(())
}

fn seventh(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    let width = config.need(&["hidden_size"])?;
    meta.set_own("wkv.head_size", config.need(&["head_size", "head_dim"])?);
    let epsilon = config.need_float(&["layer_norm_epsilon", "norm_eps"])?;
    meta.set_own("attention.layer_norm_epsilon", epsilon);
    let rank = |names: [&str; 2], exponent: f64, factor: f64| {
        let usual = (f64::from(width).powf(exponent) * factor / 32.0).round_ties_even().max(1.0) * 32.0;
        Ok::<_, Error>(config.number(&names)?.unwrap_or(usual as u32))
    };
    let decay = rank(["lora_rank_decay", "decay_low_rank_dim"], 0.5, 1.8)?;
    meta.set_own("attention.decay_lora_rank", decay);
    meta.set_own("attention.iclr_lora_rank", rank(["lora_rank_iclr", "a_low_rank_dim"], 0.5, 1.8)?);
    let mix = rank(["lora_rank_value_residual_mix", "v_low_rank_dim"], 0.5, 1.3)?;
    meta.set_own("attention.value_residual_mix_lora_rank", mix);
    meta.set_own("attention.gate_lora_rank", rank(["lora_rank_gate", "gate_low_rank_dim"], 0.8, 0.6)?);
    let network = config.number(&["intermediate_size"])?;
    meta.set_own("feed_forward_length", network.unwrap_or(width.saturating_mul(4)));
    Ok(())
}

fn hybrid(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    common(config, meta)?;
    need_numbers(
        config,
        meta,
        &[("wkv.head_size", &["head_size"]), ("feed_forward_length", &["intermediate_size"])],
    )?;
    meta.set_own("attention.layer_norm_rms_epsilon", config.need_float(&["rms_norm_eps"])?);
    meta.set_own("attention.decay_lora_rank", 64u32);
    meta.set_own("attention.iclr_lora_rank", 64u32);
    meta.set_own("attention.value_residual_mix_lora_rank", 32u32);
    let has_gate = config.flag("wkv_has_gate").unwrap_or(false);
    meta.set_own("attention.gate_lora_rank", if has_gate { 128u32 } else { 0 });
    meta.set_own("token_shift_count", 1u32);
    Ok(())
}

/// Name RWKV 7's tensors as tables have them.
fn rename_seventh(_: &Config, name: String) -> Option<String> {
    let name = name.replace("blocks", "layers").replace("ffn", "feed_forward");
    let name = name.replace("self_attn", "attention").replace("attn", "attention");
    let name = name.replace("time_mixer.", "").replace("feed_forward_norm", "ln2").replace("g_norm", "ln_x");
    let name = name.replace("model.layers.0.pre_norm", "model.pre_ln");
    let parts = [("_lora.lora.0.weight", "1.of_linear"), ("_lora.lora.2.weight", "2.of_linear")];
    let name = parts.into_iter().fold(name, |name, (from, to)| name.replace(from, to));
    Some(weight(name.replace("_lora.lora.2.bias", "0")))
}

/// Stack interpolations, transpose low-rank parts that are not stored as linear layers, and let the
/// first layer's values repeat another part, because they mix with nothing.
fn merge_seventh(config: &Config, tensors: &mut Tensors) -> Result<(), Error> {
    let letters = if config.flag("wkv_has_gate").unwrap_or(true) { "rwkvag" } else { "rwkva" };
    tensors.stack(&lerps("x_", letters), ".weight", "attention.x_fused")?;
    for layer in tensors.layers_with("attention.x_x") {
        if let Some(fused) = tensors.take(layer, "attention.x_x", ".weight") {
            tensors.put(layer, "attention.x_fused", ".weight", fused.split_axis(0, letters.len())?);
        }
    }
    for part in ["w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2"] {
        let path = format!("attention.{part}");
        for layer in tensors.layers_with(&path) {
            if let Some(tensor) = tensors.take(layer, &path, ".weight") {
                tensors.put(layer, &path, ".weight", tensor.squeeze().transpose()?);
            }
        }
        let linear = format!("{path}.of_linear");
        for layer in tensors.layers_with(&linear) {
            if let Some(tensor) = tensors.take(layer, &linear, ".weight") {
                tensors.put(layer, &path, ".weight", tensor);
            }
        }
    }
    for number in 0..3 {
        let (values, other) = (format!("attention.v{number}"), format!("attention.a{number}"));
        tensors.take(Some(0), &values, ".weight");
        if let Some(tensor) = tensors.take(Some(0), &other, ".weight") {
            tensors.put(Some(0), &values, ".weight", tensor.clone());
            tensors.put(Some(0), &other, ".weight", tensor);
        }
    }
    Ok(())
}
