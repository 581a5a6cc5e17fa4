//! Nemotron-H (NVIDIA, 2025, arXiv 2504.03624): layers of one branch each, a Mamba-2 mixer, a
//! network or attention.
//!
//! `feed_forward_length` and `attention.head_count_kv` have an element a layer. A layer with a
//! width is a network without a gate, of squared rectifiers; of the others those with KV heads
//! attend, and the rest are mixers. Attention knows no positions: the mixers carry the order.

use super::{blocks, mamba2};
use crate::{
    error::Error,
    graph::{Activation, Builder, Linear, Norm},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let mut x = blocks::embed(b, h)?;
    for layer in h.layers() {
        let attends = layer.attends() && layer.n_ff == 0;
        b.layer(attends.then(|| blocks::cells(&layer, None)));
        let normed = b.norm(x, Norm::rms("attn_norm", h.norm_rms_eps))?;
        let (branch, output) = match (attends, layer.n_ff) {
            (true, _) => (blocks::attention(b, h, &layer, normed, None)?, "attn_output"),
            (false, 0) => (mamba2::mixer(b, h, normed)?, "ssm_out"),
            (false, n_ff) => {
                let up = b.linear(normed, Linear::new("ffn_up", n_ff))?;
                b.activate(Activation::SquaredRelu, up);
                (up, "ffn_down")
            }
        };
        let [branch, residual] = b.last_outputs(layer.is_last, [branch, x]);
        x = residual;
        b.add_linear(x, branch, output)?;
    }
    blocks::head(b, h, x)
}
