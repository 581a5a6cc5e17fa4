//! The gated delta rule: checks, and heads shared out.

use super::heads;
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::delta::{Delta, DeltaInputs};
use crate::pool::Pool;

impl Delta<'_> {
    /// Step `state` `[n_head, d_k, d_v]` through the tokens of one segment into `out` `[n_tokens,
    /// n_head, d_v]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other, [`Error::Ragged`] for sizes that
    /// are zero or heads that do not divide: nothing was written then. [`Error::Panicked`] if a job
    /// of the pool panicked.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        x: &DeltaInputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        heads::check_state(state, self.n_head, self.d_k, self.d_v)?;
        heads::check_shared(self.n_head, self.n_head_k)?;
        let n_tokens = out.len() / (self.n_head * self.d_v);
        length("recurrence's output", out.len(), n_tokens * self.n_head * self.d_v)?;
        length("recurrence's input", x.qkv.len(), n_tokens * self.width())?;
        for gate in [x.beta, x.alpha] {
            length("recurrence's gates", gate.len(), n_tokens * self.n_head)?;
        }
        for weight in [self.dt_bias, self.a] {
            length("recurrence's weights", weight.len(), self.n_head)?;
        }
        heads::each(pool, self.n_head, self.d_v, state, out, |heads, states, band| {
            (set.delta)(self, heads, x, states, band);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::heads::tests::{agreed, assert_near};
    use super::*;
    use crate::kernels::delta::Sharing;
    use crate::pool::Inline;
    use backstitch_testing::Random;
    use core::ops::Range;
    use std::{vec, vec::Vec};

    const EPS: f32 = 1e-6;

    /// Heads, heads of keys, keys, values.
    type Shape = (usize, usize, usize, usize);

    struct Case {
        shape: Shape,
        sharing: Sharing,
        weights: [Vec<f32>; 2],
        /// qkv, beta and alpha.
        inputs: [Vec<f32>; 3],
        state: Vec<f32>,
    }

    impl Case {
        fn new(shape: Shape, sharing: Sharing, n_tokens: usize) -> Self {
            let (n_head, n_head_k, d_k, d_v) = shape;
            let mut random = Random::new(7);
            let decay = random.floats(n_head).iter().map(|x| -1.1 - x).collect();
            let widths = [2 * n_head_k * d_k + n_head * d_v, n_head, n_head];
            Case {
                shape,
                sharing,
                weights: [random.floats(n_head), decay],
                inputs: widths.map(|width| random.floats(width * n_tokens)),
                state: random.floats(n_head * d_k * d_v),
            }
        }

        fn delta(&self) -> Delta<'_> {
            let (n_head, n_head_k, d_k, d_v) = self.shape;
            let ([dt_bias, a], sharing) = (&self.weights, self.sharing);
            Delta { n_head, n_head_k, sharing, d_k, d_v, dt_bias, a, eps: EPS }
        }

        fn inputs(&self, tokens: Range<usize>) -> DeltaInputs<'_> {
            let widths = [self.delta().width(), self.shape.0, self.shape.0];
            let part = |i: usize| &self.inputs[i][tokens.start * widths[i]..tokens.end * widths[i]];
            DeltaInputs { qkv: part(0), beta: part(1), alpha: part(2) }
        }

        /// Output and final state by definition.
        fn exact(&self, n_tokens: usize) -> (Vec<f64>, Vec<f64>) {
            let (n_head, n_head_k, d_k, d_v) = self.shape;
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
            let unit = |x: &[f32]| -> Vec<f64> {
                let x = wide(x);
                let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(EPS)).sqrt();
                x.iter().map(|x| x / length).collect()
            };
            let (mut states, mut out) = (wide(&self.state), vec![]);
            for t in 0..n_tokens {
                let x = self.inputs(t..t + 1);
                let (q, kv) = x.qkv.split_at(n_head_k * d_k);
                for head in 0..n_head {
                    let key = match self.sharing {
                        Sharing::Neighbours => head / (n_head / n_head_k),
                        Sharing::Strided => head % n_head_k,
                    };
                    let (q, k) = (unit(&q[key * d_k..][..d_k]), unit(&kv[key * d_k..][..d_k]));
                    let v = wide(&kv[n_head_k * d_k + head * d_v..][..d_v]);
                    let dt = (f64::from(x.alpha[head]) + f64::from(self.weights[0][head])).exp().ln_1p();
                    let decay = (dt * f64::from(self.weights[1][head])).exp();
                    let beta = 1.0 / (1.0 + (-f64::from(x.beta[head])).exp());
                    let state = &mut states[head * d_k * d_v..][..d_k * d_v];
                    state.iter_mut().for_each(|s| *s *= decay);
                    for i in 0..d_v {
                        let held = (0..d_k).map(|j| state[j * d_v + i] * k[j]).sum::<f64>();
                        (0..d_k).for_each(|j| state[j * d_v + i] += k[j] * beta * (v[i] - held));
                        let y = (0..d_k).map(|j| state[j * d_v + i] * q[j]).sum::<f64>();
                        out.push(y / (d_k as f64).sqrt());
                    }
                }
            }
            (out, states)
        }
    }

    #[test]
    fn it_is_what_it_says_with_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
        for shape in [(1, 1, 1, 1), (4, 2, 16, 16), (6, 3, 19, 21), (2, 1, 64, 96), (4, 4, 33, 80)] {
            for sharing in [Sharing::Neighbours, Sharing::Strided] {
                let case = Case::new(shape, sharing, 12);
                let (width, delta) = (shape.0 * shape.3, case.delta());
                let what = std::format!("{shape:?} {sharing:?}");
                let (out, state) = agreed(&what, 12, width, &case.state, &|set, pool, tokens, state, out| {
                    delta.run(set, pool, &case.inputs(tokens), state, out)
                });
                let exact = case.exact(12);
                assert_near(&what, &state, &exact.1, 1e-5);
                assert_near(&what, &out, &exact.0, 1e-5);
            }
        }
    }

    #[test]
    fn slices_that_do_not_fit_are_refused() {
        let case = Case::new((4, 2, 4, 5), Sharing::Strided, 3);
        let (mut state, mut out) = (case.state.clone(), vec![0.0; 60]);
        let run = |delta: Delta<'_>, x: DeltaInputs<'_>, state: &mut [f32], out: &mut [f32]| {
            delta.run(KernelSet::scalar(), &Inline, &x, state, out)
        };
        let (delta, x) = (case.delta(), case.inputs(0..3));
        assert!(run(delta, DeltaInputs { qkv: &x.qkv[1..], ..x }, &mut state, &mut out).is_err());
        assert!(run(delta, x, &mut state[1..], &mut out).is_err());
        assert!(run(delta, x, &mut state, &mut out[1..]).is_err());
        assert!(run(Delta { a: &[], ..delta }, x, &mut state, &mut out).is_err());
        assert!(run(Delta { n_head_k: 3, ..delta }, x, &mut state, &mut out).is_err());
        assert!(run(Delta { n_head_k: 0, ..delta }, x, &mut state, &mut out).is_err());
        assert!(run(Delta { d_k: usize::MAX, ..delta }, x, &mut state, &mut out).is_err());
        assert!(run(delta, x, &mut state, &mut out).is_ok());
    }
}
