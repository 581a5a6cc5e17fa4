//! Contradictions that a folder may hold although each of its files is valid: numbers that exclude
//! each other, and tensors that do not fit the numbers.
//!
//! An engine would find them too, but only when the file is written.

use std::path::Path;

use crate::error::Error;
use crate::metadata::{Meta, Metadata};
use crate::plan::Output;
use crate::tensor::Tensor;

/// Matrices whose columns are the width of the model.
const READ_THE_STREAM: [&str; 8] =
    ["attn_q", "attn_k", "attn_v", "attn_qkv", "ffn_gate", "ffn_up", "output", "token_embd"];
/// Matrices whose rows are the width of the model.
const WRITE_THE_STREAM: [&str; 2] = ["attn_output", "ffn_down"];

/// Compare the numbers of the new file with each other; `path` is the file that they come from.
///
/// # Errors
/// [`Error::Key`] if more experts are used than there are, or heads of keys do not divide heads of
/// queries.
pub(crate) fn numbers(path: &Path, meta: &Metadata) -> Result<(), Error> {
    let wrong = |key: &str, found: u32, wanted: String| Error::Key {
        path: path.into(),
        key: format!("{}.{key}", meta.architecture()),
        found: found.to_string(),
        wanted,
    };
    let number = |key: &str| own(meta, key);
    let (used, experts) = (number("expert_used_count"), number("expert_count").filter(|&n| n > 0));
    if let (Some(used), Some(experts)) = (used, experts)
        && !(1..=experts).contains(&used)
    {
        return Err(wrong("expert_used_count", used, format!("1 to {experts}, the number of experts")));
    }
    let (heads, keys) = (number("attention.head_count"), number("attention.head_count_kv"));
    if let (Some(heads), Some(keys)) = (heads, keys.filter(|&n| n > 0))
        && !heads.is_multiple_of(keys)
    {
        let wanted = format!("a divisor of {heads}, the number of heads of queries");
        return Err(wrong("attention.head_count_kv", keys, wanted));
    }
    Ok(())
}

/// Return a number of the architecture; `None` for a list.
fn own(meta: &Metadata, key: &str) -> Option<u32> {
    match meta.get(&format!("{}.{key}", meta.architecture())) {
        Some(Meta::U32(n)) => Some(*n),
        _ => None,
    }
}

/// Compare the tensors of the new file with its numbers.
///
/// # Errors
/// [`Error::MissingTensor`] for a layer without tensors, [`Error::Tensor`] for a matrix of another
/// width, or another number of experts.
pub(crate) fn tensors(outputs: &[Output], n_layers: usize, meta: &Metadata) -> Result<(), Error> {
    let width = own(meta, "embedding_length").map(|n| n as usize);
    let experts = own(meta, "expert_count").map(|n| n as usize);
    let mut is_there = vec![false; n_layers];
    for Output { name, tensor, .. } in outputs {
        let layer =
            name.split_once("blk.").and_then(|(_, rest)| rest.split_once('.')?.0.parse::<usize>().ok());
        if let Some(there) = layer.and_then(|layer| is_there.get_mut(layer)) {
            *there = true;
        }
        if let Some(width) = width {
            self::width(name, tensor, width, "as config.json says")?;
        }
        let n = experts.filter(|_| name.ends_with("_exps.weight"));
        if let Some(n) = n.filter(|&n| n != tensor.dim(0)) {
            return Err(tensor.misfit(format!("{n} as dimension 0, the number of experts")));
        }
    }
    match is_there.iter().position(|there| !there) {
        None => Ok(()),
        Some(layer) => {
            let reason = format!("config.json says {n_layers} layers");
            Err(Error::MissingTensor { tensor: format!("blk.{layer}"), reason })
        }
    }
}

/// Compare the side of a matrix that all layers share with the width of the model; `reason` ends
/// the error.
///
/// # Errors
/// [`Error::Tensor`] if it differs.
pub(crate) fn width(name: &str, tensor: &Tensor, width: usize, reason: &str) -> Result<(), Error> {
    let own = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |parts| parts.1);
    let Some(own) = own.strip_suffix(".weight") else { return Ok(()) };
    let (side, found) = match tensor.shape() {
        [_, columns] if READ_THE_STREAM.contains(&own) => ("columns", *columns),
        [rows, _] if WRITE_THE_STREAM.contains(&own) => ("rows", *rows),
        _ => return Ok(()),
    };
    if found == width { Ok(()) } else { Err(tensor.misfit(format!("{width} {side}, {reason}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_experts_are_used_than_there_are() {
        let mut meta = Metadata::new("qwen3moe");
        meta.set_own("expert_count", 4u32);
        for (used, is_right) in [(0u32, false), (1, true), (4, true), (5, false)] {
            meta.set_own("expert_used_count", used);
            let result = numbers(Path::new("config.json"), &meta);
            assert_eq!(result.is_ok(), is_right, "{used}");
            if let Err(error) = result {
                let text = format!("key \"qwen3moe.expert_used_count\" is {used}, wanted 1 to 4");
                assert!(error.to_string().contains(&text), "{error}");
            }
        }
        meta.set_own("expert_used_count", 2u32);
        let stack = Tensor::of_values("t", vec![0.0; 24]).reshape(&[3, 2, 4]).unwrap();
        let dtype = backstitch_core::DType::F32;
        let output = Output { name: "blk.0.ffn_up_exps.weight".into(), tensor: stack, dtype };
        let error = tensors(&[output], 1, &meta).unwrap_err().to_string();
        assert!(error.contains("wanted 4 as dimension 0, the number of experts"), "{error}");
    }
}
