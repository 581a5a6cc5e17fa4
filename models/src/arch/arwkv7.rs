//! ARWKV (Yueyu et al., 2025, arXiv 2501.15570): Qwen 2.5 with the time mixing of RWKV 7 in the
//! place of attention.
//!
//! The recurrence is that of RWKV 7, with or without its gate (`time_mix_g*`) and the norm of its
//! heads (`time_mix_ln`).

use super::{rwkv, rwkv7};
use crate::{
    error::Error,
    graph::{Builder, WkvSizes},
    hparams::Hparams,
};

pub(super) fn build(b: &mut Builder<'_, '_>, h: &Hparams) -> Result<(), Error> {
    let wkv = h.wkv_of(1)?;
    let sizes = WkvSizes { n_head: wkv.n_head, d_head: wkv.d_head, eps: rwkv::HEAD_EPS };
    let mut first = None;
    rwkv::transformer(b, h, &mut |b, h, _, x| rwkv7::time_mix(b, h, sizes, x, &mut first))
}
