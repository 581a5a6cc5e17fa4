//! Layers with a recurrent state: each run of a sequence's tokens reads the old state and writes the new one.

use super::Frame;
use crate::{
    error::Error,
    graph::{SsdParams, Value, WeightId},
};
use alloc::vec;
use backstitch_kv::Ubatch;

impl Frame<'_> {
    pub(super) fn conv(
        &mut self,
        layer: usize,
        x: Value,
        w: WeightId,
        b: WeightId,
        out: Value,
        u: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let c = self.values.width(x);
        let (w, b) = (self.weights.vector(w), self.weights.vector(b));
        let d = w.len() / c;
        let [x, out] = self.values.slices([x, out])?;
        let Some(s) = u.states(layer) else { return Ok(()) };
        let n = s.conv_len + s.state_len;
        for r in s.runs() {
            let mut hist = match r.read {
                Some(i) => s.states[i as usize * n..][..s.conv_len].to_vec(),
                None => vec![0.0; s.conv_len],
            };
            hist.extend_from_slice(&x[r.start as usize * c..r.end as usize * c]);
            for t in 0..(r.end - r.start) as usize {
                for i in 0..c {
                    let mut a = b[i];
                    for j in 0..d {
                        a += w[j * c + i] * hist[(t + j) * c + i];
                    }
                    out[(r.start as usize + t) * c + i] = a / (1.0 + libm::expf(-a));
                }
            }
            let l = hist.len();
            s.states[r.write as usize * n..][..s.conv_len].copy_from_slice(&hist[l - s.conv_len..]);
        }
        Ok(())
    }
    pub(super) fn ssd(
        &mut self,
        layer: usize,
        xbc: Value,
        dt: Value,
        out: Value,
        p: &SsdParams,
        u: &mut Ubatch<'_>,
    ) -> Result<(), Error> {
        let c = self.values.width(xbc);
        let (a, dw, db) =
            (self.weights.vector(p.a), self.weights.vector(p.d), self.weights.vector(p.dt_bias));
        let [xbc, dt, out] = self.values.slices([xbc, dt, out])?;
        let Some(s) = u.states(layer) else { return Ok(()) };
        let n = s.conv_len + s.state_len;
        for r in s.runs() {
            let mut st = match r.read {
                Some(i) => s.states[i as usize * n + s.conv_len..][..s.state_len].to_vec(),
                None => vec![0.0; s.state_len],
            };
            for t in r.start as usize..r.end as usize {
                let row = &xbc[t * c..][..c];
                let di = p.n_head * p.d_head;
                for h in 0..p.n_head {
                    let g = h / (p.n_head / p.n_group);
                    let z = dt[t * p.n_head + h] + db[h];
                    let sp = if z > 20.0 { z } else { libm::log1pf(libm::expf(z)) };
                    let da = libm::expf(sp * a[h]);
                    for i in 0..p.d_head {
                        let x = row[h * p.d_head + i];
                        let mut y = 0.0;
                        for j in 0..p.d_state {
                            let e = &mut st[(h * p.d_head + i) * p.d_state + j];
                            *e = *e * da + row[di + g * p.d_state + j] * x * sp;
                            y += *e * row[di + (p.n_group + g) * p.d_state + j];
                        }
                        out[t * di + h * p.d_head + i] = y + dw[h] * x;
                    }
                }
            }
            s.states[r.write as usize * n + s.conv_len..][..s.state_len].copy_from_slice(&st);
        }
        Ok(())
    }
}
