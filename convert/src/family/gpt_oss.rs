//! gpt-oss: experts in MXFP4 blocks, sinks.

use super::standard::{self, need_numbers};
use super::{At, Edit, Family, PLAIN};
use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{ATTENTION, Names};
use crate::plan::Tensors;
use crate::tensor::Tensor;

/// The block of gpt-oss.
const GPT_OSS: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("self_attn.sinks", "attn_sinks"),
    ("mlp.router", "ffn_gate_inp"),
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
];

/// Blocks of experts' weights.
const DOWN: &str = "mlp.experts.down_proj";
const GATE_UP: &str = "mlp.experts.gate_up_proj";

pub(super) const FAMILIES: &[Family] = &[Family {
    classes: &["GptOssForCausalLM"],
    architecture: "gpt-oss",
    metadata: |config, meta| {
        standard::metadata(config, meta)?;
        own_keys(config, meta)
    },
    rename,
    merge: |_, tensors| join_blocks(tensors),
    names: &[GPT_OSS, ATTENTION],
    edits: &[("ffn_gate_up_exps", Edit::Parts(split_gate_up)), ("ffn_down_exps", Edit::Each(plain_down))],
    ..PLAIN
}];

fn own_keys(config: &Config, meta: &mut Metadata) -> Result<(), Error> {
    need_numbers(
        config,
        meta,
        &[
            ("attention.sliding_window", &["sliding_window"]),
            ("expert_feed_forward_length", &["intermediate_size"]),
        ],
    )
}

/// Give tensors the endings that others have.
fn rename(_: &Config, name: String) -> Option<String> {
    let plain = [".sinks", ".gate_up_proj", ".down_proj"];
    let name = name.replace("_proj_bias", "_proj.bias");
    Some(if plain.iter().any(|end| name.ends_with(end)) { format!("{name}.weight") } else { name })
}

/// Join blocks and their scales.
fn join_blocks(tensors: &mut Tensors) -> Result<(), Error> {
    for layer in tensors.layers_with(&format!("{DOWN}_blocks")) {
        let (blocks, scales) = pair(tensors, layer, DOWN)?;
        tensors.put(layer, DOWN, ".weight", experts(&blocks, &scales, |x| Ok(x.clone()))?);
    }
    for layer in tensors.layers_with(&format!("{GATE_UP}_blocks")) {
        let (blocks, scales) = pair(tensors, layer, GATE_UP)?;
        // Rows of gates and projections up alternate.
        for (path, first) in [("mlp.experts.gate_proj", 0), ("mlp.experts.up_proj", 1)] {
            let half = |x: &Tensor| x.every(1, first, 2, x.dim(1) / 2);
            tensors.put(layer, path, ".weight", experts(&blocks, &scales, half)?);
        }
    }
    Ok(())
}

/// Take the blocks and the scales of a layer. Neither is empty: an empty tensor needs no data, so
/// its shape could claim any number of experts.
fn pair(tensors: &mut Tensors, layer: Option<usize>, path: &str) -> Result<(Tensor, Tensor), Error> {
    let mut take = |kind: &str| {
        let name = format!("{path}_{kind}");
        tensors.take(layer, &name, "").ok_or_else(|| Error::MissingTensor {
            tensor: format!("{name} of layer {}", layer.unwrap_or(0)),
            reason: "blocks have scales".into(),
        })
    };
    let blocks = take("blocks")?.expect_rank(4)?.expect_elements()?;
    Ok((blocks, take("scales")?.expect_rank(3)?.expect_elements()?))
}

/// Make MXFP4 of blocks and scales, expert by expert, so that memory holds one of them.
fn experts(
    blocks: &Tensor,
    scales: &Tensor,
    rows: impl Fn(&Tensor) -> Result<Tensor, Error>,
) -> Result<Tensor, Error> {
    let one = |expert: usize| {
        Tensor::mxfp4(&rows(&blocks.slice(0, expert, 1)?)?, &rows(&scales.slice(0, expert, 1)?)?)
    };
    let all: Result<Vec<_>, _> = (0..blocks.dim(0)).map(one).collect();
    Tensor::join(0, all?)
}

/// Split alternating gates and projections up, of floats or of a bias.
fn split_gate_up(_: At<'_>, tensor: Tensor) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let tensor = if tensor.shape().len() == 3 { tensor.transpose()? } else { tensor.expect_rank(2)? };
    let half = tensor.dim(1) / 2;
    let part = |first: usize| tensor.every(1, first, 2, half);
    Ok(vec![("ffn_gate_exps", part(0)?), ("ffn_up_exps", part(1)?)])
}

/// Transpose experts that are stored as floats.
fn plain_down(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    if tensor.is_mxfp4() || tensor.shape().len() < 3 { Ok(tensor) } else { tensor.transpose() }
}
