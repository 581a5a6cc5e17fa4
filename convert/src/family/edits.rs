//! Edits that several architectures share.

use super::At;
use crate::error::Error;
use crate::tensor::Tensor;

/// Reorder the rows of each head from halves to pairs: Hugging Face rotates dimension `i` with
/// `i + d / 2`, GGUF's Llama rotates neighbours.
fn pairs(tensor: Tensor, n_heads: usize) -> Result<Tensor, Error> {
    let shape = tensor.shape().to_vec();
    let heads = tensor.split_axis(0, n_heads)?;
    let rows = heads.dim(1);
    if rows % 2 == 1 {
        return Err(tensor.misfit(format!("an even number of rows for each of {n_heads} heads")));
    }
    let halves = heads.split_axis(1, 2)?;
    let mut order: Vec<usize> = (0..halves.shape().len()).collect();
    order.swap(1, 2);
    halves.permute(&order)?.reshape(&shape)
}

/// Reorder the rows of the queries' projection.
pub(super) fn query_pairs(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    pairs(tensor, at.config.n_heads()?)
}

/// Reorder the rows of the keys' projection.
pub(super) fn key_pairs(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    pairs(tensor, at.config.n_heads_kv()?)
}

/// Add 1 to the weights of a norm that multiplies by `1 + w`.
pub(super) fn add_one(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    Ok(tensor.add(1.0))
}

/// Turn logarithms of decay rates into negated rates.
pub(super) fn neg_exp(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    Ok(tensor.neg_exp())
}

/// Drop dimensions of 1.
pub(super) fn squeeze(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    Ok(tensor.squeeze())
}

/// Exchange the last two axes of a matrix; a bias stays.
pub(super) fn transpose(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    if tensor.shape().len() < 2 { Ok(tensor) } else { tensor.transpose() }
}

/// Make a column of a vector.
pub(super) fn column(_: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let n = tensor.n_elements();
    tensor.reshape(&[n, 1])
}

/// Make a column of negated rates of a vector of their logarithms.
pub(super) fn neg_exp_column(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    column(at, tensor.neg_exp())
}

/// Reorder fused projections: from queries, keys and values of each head to all queries, all keys,
/// all values.
pub(super) fn ungroup_heads(at: At<'_>, tensor: Tensor) -> Result<Tensor, Error> {
    let shape = tensor.shape().to_vec();
    let parts = tensor.split_axis(0, at.config.n_heads()?)?.split_axis(1, 3)?;
    let mut order: Vec<usize> = (0..parts.shape().len()).collect();
    order.swap(0, 1);
    parts.permute(&order)?.reshape(&shape)
}

/// Split stacked experts' gates and projections up, which lie behind each other.
pub(super) fn split_gate_up_experts(_: At<'_>, tensor: Tensor) -> Result<Vec<(&'static str, Tensor)>, Error> {
    halves(tensor.expect_rank(3)?, 1, ["ffn_gate_exps", "ffn_up_exps"])
}

/// Split an axis into two halves.
pub(super) fn halves(
    tensor: Tensor,
    axis: usize,
    names: [&'static str; 2],
) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let half = tensor.dim(axis) / 2;
    Ok(names.into_iter().zip(tensor.cut(axis, &[half, half])?).collect())
}

/// Split the joint projection of compressed keys and values, and transpose the keys' part.
pub(super) fn split_latent(at: At<'_>, tensor: Tensor) -> Result<Vec<(&'static str, Tensor)>, Error> {
    let config = at.config;
    let (n_keys, n_values) = (config.size(&["qk_nope_head_dim"])?, config.size(&["v_head_dim"])?);
    let heads = tensor.split_axis(0, config.n_heads_kv()?)?;
    let parts = heads.cut(1, &[n_keys, n_values])?;
    let [keys, values] = parts.as_slice() else { return Ok(Vec::new()) };
    Ok(vec![("attn_k_b", keys.transpose()?), ("attn_v_b", values.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use crate::config::Config;
    use std::path::Path;

    #[test]
    fn heads_are_reordered() {
        let config = br#"{"num_attention_heads": 2, "num_key_value_heads": 1}"#;
        let config = Config::parse(Path::new("config.json"), config).unwrap();
        let at = At { config: &config, layer: 0 };
        let counting = |n: usize| Tensor::of_values("t", (0..n).map(|i| i as f32).collect());
        let values = |t: Tensor| t.values(&mut Checkpoint::empty()).unwrap();
        assert_eq!(values(query_pairs(at, counting(8)).unwrap()), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        assert_eq!(values(key_pairs(at, counting(4)).unwrap()), [0.0, 2.0, 1.0, 3.0]);
        assert_eq!(values(ungroup_heads(at, counting(6)).unwrap()), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let error = query_pairs(at, counting(6)).unwrap_err().to_string();
        assert!(error.contains("an even number of rows for each of 2 heads"), "{error}");
    }
}
