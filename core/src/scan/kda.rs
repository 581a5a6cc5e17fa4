//! Kimi delta attention: checks, and heads shared out.

use super::heads;
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::kda::{Kda, KdaInputs};
use crate::pool::Pool;

impl Kda<'_> {
    /// Step `state` `[n_head, d_k, d_v]` through the tokens of one segment into `out` `[n_tokens,
    /// n_head, d_v]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other, [`Error::Ragged`] for sizes that
    /// are zero: nothing was written then. [`Error::Panicked`] if a job of the pool panicked.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        x: &KdaInputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        heads::check_state(state, self.n_head, self.d_k, self.d_v)?;
        let n_tokens = out.len() / (self.n_head * self.d_v);
        length("recurrence's output", out.len(), n_tokens * self.n_head * self.d_v)?;
        length("recurrence's input", x.v.len(), out.len())?;
        for x in [x.q, x.k, x.alpha] {
            length("recurrence's input", x.len(), n_tokens * self.n_head * self.d_k)?;
        }
        length("recurrence's gates", x.beta.len(), n_tokens * self.n_head)?;
        length("recurrence's weights", self.dt_bias.len(), self.n_head * self.d_k)?;
        length("recurrence's weights", self.a.len(), self.n_head)?;
        heads::each(pool, self.n_head, self.d_v, state, out, |heads, states, band| {
            (set.kda)(self, heads, x, states, band);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::heads::tests::{agreed, assert_near};
    use super::*;
    use crate::pool::Inline;
    use backstitch_testing::Random;
    use core::ops::Range;
    use std::{vec, vec::Vec};

    const EPS: f32 = 1e-5;

    /// Heads, keys, values.
    type Shape = (usize, usize, usize);

    struct Case {
        shape: Shape,
        weights: [Vec<f32>; 2],
        /// q, k, v, beta and alpha.
        inputs: [Vec<f32>; 5],
        state: Vec<f32>,
    }

    impl Case {
        fn new(shape: Shape, n_tokens: usize) -> Self {
            let (n_head, d_k, d_v) = shape;
            let mut random = Random::new(7);
            let decay = random.floats(n_head).iter().map(|x| -1.1 - x).collect();
            Case {
                shape,
                weights: [random.floats(n_head * d_k), decay],
                inputs: [d_k, d_k, d_v, 1, d_k].map(|width| random.floats(n_head * width * n_tokens)),
                state: random.floats(n_head * d_k * d_v),
            }
        }

        fn kda(&self) -> Kda<'_> {
            let ((n_head, d_k, d_v), [dt_bias, a]) = (self.shape, &self.weights);
            Kda { n_head, d_k, d_v, dt_bias, a, eps: EPS }
        }

        fn inputs(&self, tokens: Range<usize>) -> KdaInputs<'_> {
            let (n_head, d_k, d_v) = self.shape;
            let part = |i: usize, width: usize| {
                &self.inputs[i][tokens.start * n_head * width..tokens.end * n_head * width]
            };
            KdaInputs {
                q: part(0, d_k),
                k: part(1, d_k),
                v: part(2, d_v),
                beta: part(3, 1),
                alpha: part(4, d_k),
            }
        }

        /// Output and final state by definition.
        fn exact(&self, n_tokens: usize) -> (Vec<f64>, Vec<f64>) {
            let (n_head, d_k, d_v) = self.shape;
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
            let unit = |x: &[f32]| -> Vec<f64> {
                let x = wide(x);
                let length = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(EPS.into());
                x.iter().map(|x| x / length).collect()
            };
            let (mut states, mut out) = (wide(&self.state), vec![]);
            for t in 0..n_tokens {
                let x = self.inputs(t..t + 1);
                for head in 0..n_head {
                    let (q, k) = (unit(&x.q[head * d_k..][..d_k]), unit(&x.k[head * d_k..][..d_k]));
                    let v = wide(&x.v[head * d_v..][..d_v]);
                    let beta = 1.0 / (1.0 + (-f64::from(x.beta[head])).exp());
                    let state = &mut states[head * d_k * d_v..][..d_k * d_v];
                    for (j, row) in state.chunks_mut(d_v).enumerate() {
                        let at = head * d_k + j;
                        let dt = (f64::from(x.alpha[at]) + f64::from(self.weights[0][at])).exp().ln_1p();
                        let decay = (dt * f64::from(self.weights[1][head])).exp();
                        row.iter_mut().for_each(|s| *s *= decay);
                    }
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
        for shape in [(1, 1, 1), (4, 16, 16), (6, 19, 21), (2, 64, 96), (3, 33, 80)] {
            let case = Case::new(shape, 12);
            let (width, kda, what) = (shape.0 * shape.2, case.kda(), std::format!("{shape:?}"));
            let (out, state) = agreed(&what, 12, width, &case.state, &|set, pool, tokens, state, out| {
                kda.run(set, pool, &case.inputs(tokens), state, out)
            });
            let exact = case.exact(12);
            assert_near(&what, &state, &exact.1, 1e-5);
            assert_near(&what, &out, &exact.0, 1e-5);
        }
    }

    #[test]
    fn slices_that_do_not_fit_are_refused() {
        let case = Case::new((4, 4, 5), 3);
        let (mut state, mut out) = (case.state.clone(), vec![0.0; 60]);
        let run = |kda: Kda<'_>, x: KdaInputs<'_>, state: &mut [f32], out: &mut [f32]| {
            kda.run(KernelSet::scalar(), &Inline, &x, state, out)
        };
        let (kda, x) = (case.kda(), case.inputs(0..3));
        assert!(run(kda, KdaInputs { k: &x.k[1..], ..x }, &mut state, &mut out).is_err());
        assert!(run(kda, KdaInputs { alpha: x.beta, ..x }, &mut state, &mut out).is_err());
        assert!(run(kda, KdaInputs { v: x.q, ..x }, &mut state, &mut out).is_err());
        assert!(run(kda, x, &mut state[1..], &mut out).is_err());
        assert!(run(kda, x, &mut state, &mut out[1..]).is_err());
        assert!(run(Kda { a: &[], ..kda }, x, &mut state, &mut out).is_err());
        assert!(run(Kda { dt_bias: kda.a, ..kda }, x, &mut state, &mut out).is_err());
        assert!(run(Kda { d_k: usize::MAX, ..kda }, x, &mut state, &mut out).is_err());
        assert!(run(kda, x, &mut state, &mut out).is_ok());
    }
}
