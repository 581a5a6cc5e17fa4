//! Multi-head latent attention (DeepSeek-AI, 2024, arXiv 2405.04434): keys and values of all heads
//! are made of one compressed row a token, and one key with the position is for all heads.
//!
//! Files come in two forms. In the older one, `attn_kv_b` makes the keys and values of all heads,
//! and these are stored. In the other, cells hold the compressed rows alone: what made the keys is
//! on the queries' side (`attn_k_b`), what made the values behind the attention (`attn_v_b`). The
//! rotated dimensions come first in a head here, where a K-shift finds them.

use super::{blocks, decoder::AttentionSpec};
use crate::{
    error::Error,
    graph::{Builder, Cells, Columns, Linear, Norm, Part, Qkv, RopeId, Value},
    hparams::{Hparams, LayerHparams, Mla},
};

/// Return the shape of the keys and values of a layer.
pub(super) fn cells(h: &Hparams, layer: &LayerHparams, rope: Option<RopeId>) -> Result<Cells, Error> {
    let (mla, window) = (h.mla()?, None);
    if layer.n_rot >= mla.d_k {
        return Err(h.invalid("rope.dimension_count", layer.n_rot, "less than the length of a key"));
    }
    Ok(match mla.is_absorbed {
        true => Cells { n_head_kv: 1, d_k: layer.n_rot + mla.kv_rank, d_v: mla.kv_rank, window, rope },
        false => Cells { n_head_kv: layer.n_head, d_k: mla.d_k, d_v: mla.d_v, window, rope },
    })
}

/// Return self-attention up to, not including, the output projection.
pub(super) fn attention(b: &mut Builder<'_, '_>, spec: AttentionSpec<'_>, x: Value) -> Result<Value, Error> {
    let AttentionSpec { h, layer, choices, rope } = spec;
    let (mla, n_head) = (h.mla()?, layer.n_head);
    let [q_pe, q_nope] = queries(b, h, layer, &mla, x)?;
    let parts = [("kv", mla.kv_rank), ("k_pe", layer.n_rot)];
    let [kv, k_pe] = b.linears(x, Linear::fused("attn_kv_a_mqa", parts))?;
    b.norm_in_place(kv, Norm::rms("attn_kv_a_norm", h.norm_rms_eps))?;
    if let Some(rope) = rope {
        b.rotate(q_pe, rope, n_head);
        b.rotate(k_pe, rope, 1);
    }
    let scores = (choices.scores)(h, layer);
    if mla.is_absorbed {
        let q_nope = b.linear_heads(q_nope, "attn_k_b", n_head, mla.kv_rank)?;
        let q = b.join("q", n_head, [Part::Each(q_pe), Part::Each(q_nope)]);
        let k = b.join("k", 1, [Part::Each(k_pe), Part::Each(kv)]);
        blocks::grow(b, h, q);
        let y = b.attend(Qkv { q, k, v: kv }, scores);
        return b.linear_heads(y, "attn_v_b", n_head, mla.d_v);
    }
    let d_nope = mla.d_k - layer.n_rot;
    let group = d_nope + mla.d_v;
    let both = b.linear(kv, Linear::new("attn_kv_b", n_head * group))?;
    let k_nope = b.columns("k_nope", both, Columns { first: 0, n: d_nope, group });
    let v = b.columns("v", both, Columns { first: d_nope, n: mla.d_v, group });
    let q = b.join("q", n_head, [Part::Each(q_pe), Part::Each(q_nope)]);
    let k = b.join("k", n_head, [Part::Same(k_pe), Part::Each(k_nope)]);
    blocks::grow(b, h, q);
    Ok(b.attend(Qkv { q, k, v }, scores))
}

/// Return the part of the queries that is rotated, and the part that is not.
fn queries(
    b: &mut Builder<'_, '_>,
    h: &Hparams,
    layer: &LayerHparams,
    mla: &Mla,
    x: Value,
) -> Result<[Value; 2], Error> {
    let n_q = layer.n_head * mla.d_k;
    let q = match mla.q_rank.filter(|_| b.has("attn_q_a.weight")) {
        Some(rank) => {
            let q = b.linear(x, Linear::new("attn_q_a", rank))?;
            b.norm_in_place(q, Norm::rms("attn_q_a_norm", h.norm_rms_eps))?;
            b.linear(q, Linear::new("attn_q_b", n_q))?
        }
        None => b.linear(x, Linear::new("attn_q", n_q))?,
    };
    let d_nope = mla.d_k - layer.n_rot;
    let pe = b.columns("q_pe", q, Columns { first: d_nope, n: layer.n_rot, group: mla.d_k });
    Ok([pe, b.columns("q_nope", q, Columns { first: 0, n: d_nope, group: mla.d_k })])
}
