//! GLM 4.

use super::standard;
use super::{Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::{Meta, Metadata};
use crate::names::{ATTENTION, GATED, Names};

/// Norms around both parts of the block, under names of its own; joined projections.
const GLM4: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_self_attn_layernorm", "post_attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("post_mlp_layernorm", "post_ffw_norm"),
    ("mlp.gate_up_proj", "ffn_up"),
];

pub(super) const FAMILIES: &[Family] = &[Family {
    classes: &["Glm4ForCausalLM"],
    architecture: "glm4",
    metadata,
    names: &[GLM4, ATTENTION, GATED],
    after_vocabulary: roles,
    ..PLAIN
}];

fn metadata(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    standard::metadata(config, meta)?;
    let part = config.rope_outer().float(&["partial_rotary_factor"])?.unwrap_or(0.5);
    meta.set_own("rope.dimension_count", (config.head_dim()? as f32 * part) as u32);
    Ok(())
}

/// Give roles to tokens that the files do not name: `<|user|>` ends turns.
fn roles(_: &Config, meta: &mut Metadata) -> Result<(), Error> {
    let Some(Meta::Texts(tokens)) = meta.get("tokenizer.ggml.tokens") else { return Ok(()) };
    let find = |text: &str| tokens.iter().position(|token| token == text);
    let (end, user) = (find("<|endoftext|>"), find("<|user|>"));
    let roles = [("eos", end), ("eot", user), ("unknown", end), ("bos", end)];
    for (role, id) in roles {
        let key = format!("tokenizer.ggml.{role}_token_id");
        if let Some(id) = id.filter(|_| meta.get(&key).is_none()) {
            meta.set(&key, id as u32);
        }
    }
    Ok(())
}
