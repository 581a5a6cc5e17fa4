//! Attention over the layer's cache.

use super::Frame;
use crate::{
    context::Params,
    error::Error,
    graph::{Graph, Value},
};
use backstitch_kv::Ubatch;

pub(super) fn scratch_len(_graph: &Graph, _params: &Params, _n_threads: usize) -> usize {
    0
}

impl Frame<'_> {
    pub(super) fn attend(
        &mut self,
        layer: usize,
        v: [Value; 4],
        n_head: usize,
        scale: f32,
        u: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let [q, k, v, out] = self.values.slices(v)?;
        if let Some(mut s) = u.store(layer) {
            s.put(k, v)?;
        }
        let Some(att) = u.attention(layer) else { return Ok(()) };
        let l = att.layout;
        let g = n_head / l.n_head_kv;
        for (t, vis) in att.visible().iter().enumerate() {
            let table = att.table(vis);
            let mut ks = alloc::vec::Vec::new();
            let mut vs = alloc::vec::Vec::new();
            for slot in vis.lo..vis.hi {
                let e = table[slot as usize / 32];
                if e.live >> (slot % 32) & 1 == 0 {
                    continue;
                }
                let block = &att.storage[l.block_range(e.block as usize)];
                let mut kr = alloc::vec![0.0; l.n_head_kv * l.d_k];
                let mut vr = alloc::vec![0.0; l.n_head_kv * l.d_v];
                l.load_k(block, slot as usize % 32, &mut kr);
                l.load_v(block, slot as usize % 32, &mut vr);
                ks.push(kr);
                vs.push(vr);
            }
            for h in 0..n_head {
                let q = &q[(t * n_head + h) * l.d_k..][..l.d_k];
                let s: alloc::vec::Vec<f32> = ks
                    .iter()
                    .map(|k| q.iter().zip(&k[h / g * l.d_k..]).map(|(a, b)| a * b).sum::<f32>() * scale)
                    .collect();
                let m = s.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let p: alloc::vec::Vec<f32> = s.iter().map(|s| libm::expf(s - m)).collect();
                let sum: f32 = p.iter().sum();
                for d in 0..l.d_v {
                    out[(t * n_head + h) * l.d_v + d] =
                        p.iter().zip(&vs).map(|(p, v)| p * v[h / g * l.d_v + d]).sum::<f32>() / sum;
                }
            }
        }
        Ok(())
    }
}
