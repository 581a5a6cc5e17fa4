//! Qwen 3.5: gated delta rule (Yang, Kautz and Hatamizadeh, 2024, arXiv 2412.06464) in most layers, gated attention in every
//! n-th.

use super::{Arch, blocks};
use crate::{
    error::Error,
    graph::{Activation, Builder, Columns, DeltaParams, RopeId, Scores, Sharing, Value},
    hparams::{Hparams, Ssm},
};
use backstitch_core::rope::Pairs;
use backstitch_kv::LayerSpec;

pub(super) static ARCH: Arch = Arch { name: "qwen35", build };

fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let ssm = h.ssm_heads()?;
    let rope = h.rope(b, Pairs::Split)?;
    if let Some(sections) = h.rope_sections {
        b.hold_still(rope, |pair| is_unclaimed(sections, pair));
    }
    let mut x = b.embed("token_embd.weight", h.n_vocab, h.n_embd)?;
    for il in 0..h.n_layer {
        let attends = (il + 1).is_multiple_of(h.full_attention_interval.unwrap_or(4));
        let mut layer = LayerSpec::default();
        if attends {
            layer.attention = h.attention_layer(b, rope);
        }
        b.layer(layer);
        let normed = b.rms_norm("attn_norm", x, "attn_norm.weight", h.norm_rms_eps)?;
        let (mut mixed, output, width) = match attends {
            true => (attention(b, h, normed, rope)?, "attn_output", h.n_head * h.d_v),
            false => (delta(b, h, &ssm, normed)?, "ssm_out", ssm.d_inner),
        };
        if il + 1 == h.n_layer {
            (mixed, x) = (b.outputs(mixed), b.outputs(x));
        }
        let output = b.linear(output, h.n_embd, width)?;
        b.add_linear(x, mixed, output);
        let normed = b.rms_norm("ffn_norm", x, "post_attention_norm.weight", h.norm_rms_eps)?;
        blocks::feed_forward(b, h, x, normed)?;
    }
    blocks::head(b, h, x)
}

/// Whether a pair of dimensions belongs to none of the three axes of position, which take turns as long as their sections
/// reach: such a pair turns by a fourth coordinate, which text does not have.
fn is_unclaimed(sections: [usize; 4], pair: usize) -> bool {
    let place = pair % sections.iter().sum::<usize>().max(1);
    place >= 3 * sections[place % 3]
}

/// Attention up to, not including, its output projection: queries come with a gate for each head.
fn attention(b: &mut Builder<'_, '_>, h: &Hparams, x: Value, rope: RopeId) -> Result<Value, Error> {
    h.check_heads_alike()?;
    let matrices = [
        b.linear("attn_q", 2 * h.n_head * h.d_k, h.n_embd)?,
        b.linear("attn_k", h.n_head_kv * h.d_k, h.n_embd)?,
        b.linear("attn_v", h.n_head_kv * h.d_v, h.n_embd)?,
    ];
    let [both, k, v] = b.linears(x, matrices, ["q_gate", "k", "v"]);
    let half = |first| Columns { first, n: h.d_k, group: 2 * h.d_k };
    let (q, gate) = (b.columns("q", both, half(0)), b.columns("gate", both, half(h.d_k)));
    b.group_norm(q, "attn_q_norm.weight", h.d_k, h.d_k, h.norm_rms_eps)?;
    b.group_norm(k, "attn_k_norm.weight", h.d_k, h.d_k, h.norm_rms_eps)?;
    b.rotate(q, rope, h.n_head);
    b.rotate(k, rope, h.n_head_kv);
    let scores = Scores { scale: h.attention_scale(), soft_cap: 0.0 };
    let y = b.attend(q, k, v, h.n_head, h.d_v, scores);
    Ok(b.gate(Activation::Sigmoid, gate, y))
}

/// The gated delta rule up to, not including, its output projection.
fn delta(b: &mut Builder<'_, '_>, h: &Hparams, ssm: &Ssm, x: Value) -> Result<Value, Error> {
    let (n_head, n_head_k, d_k, d_v) = (ssm.dt_rank, ssm.n_group, ssm.d_state, ssm.d_inner / ssm.dt_rank);
    let (n_k, n_qkv) = (n_head_k * d_k, ssm.n_channels());
    let matrices = [
        b.linear("attn_qkv", n_qkv, h.n_embd)?,
        b.linear("attn_gate", ssm.d_inner, h.n_embd)?,
        b.linear("ssm_beta", n_head, h.n_embd)?,
        b.linear("ssm_alpha", n_head, h.n_embd)?,
    ];
    let [qkv, z, beta, alpha] = b.linears(x, matrices, ["qkv", "z", "beta", "alpha"]);
    let qkv = b.conv(qkv, "ssm_conv1d", ssm.d_conv, true)?;
    let q = b.columns("q", qkv, Columns { first: 0, n: n_k, group: n_qkv });
    let kv = b.columns("kv", qkv, Columns { first: n_k, n: n_qkv - n_k, group: n_qkv });
    let params = DeltaParams {
        n_head,
        n_head_k,
        sharing: Sharing::Strided,
        d_k,
        d_v,
        dt_bias: b.vector("ssm_dt.bias", n_head)?,
        a: b.vector("ssm_a", n_head)?,
        eps: h.norm_rms_eps,
    };
    let y = b.delta([q, kv, beta, alpha], params);
    b.group_norm(y, "ssm_norm.weight", d_v, d_v, h.norm_rms_eps)?;
    Ok(b.gate(Activation::Silu, z, y))
}

#[cfg(test)]
mod tests {
    use super::is_unclaimed;

    #[test]
    fn axes_take_turns_as_far_as_their_sections_reach() {
        let unclaimed =
            |sections| -> Vec<usize> { (0..12).filter(|&pair| is_unclaimed(sections, pair)).collect() };
        assert_eq!(unclaimed([4, 4, 4, 0]), [0; 0]);
        // The second axis ends at 1, the third at 2; the fourth section is all unclaimed but for what the first reaches.
        assert_eq!(unclaimed([4, 1, 1, 6]), [4, 5, 7, 8, 10, 11]);
        assert_eq!(unclaimed([3, 3, 2, 0]), [0; 0]);
        assert_eq!(unclaimed([0; 4]), (0..12).collect::<Vec<_>>());
    }
}
