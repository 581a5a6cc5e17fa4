//! Gated linear attention: checks, and heads shared out.

use super::heads;
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::gla::{Gla, GlaInputs};
use crate::pool::Pool;

impl Gla {
    /// Step `state` `[n_head, d_head, d_head]` through the tokens of one segment into `out`
    /// `[n_tokens, n_head, d_head]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other, [`Error::Ragged`] for sizes that
    /// are zero or heads that do not divide: nothing was written then. [`Error::Panicked`] if a job
    /// of the pool panicked.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        x: &GlaInputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        heads::check_state(state, self.n_head, self.d_head, self.d_head)?;
        heads::check_shared(self.n_head, self.n_head_kv)?;
        let width = self.n_head * self.d_head;
        length("recurrence's output", out.len() % width, 0)?;
        for x in [x.r, x.w] {
            length("recurrence's input", x.len(), out.len())?;
        }
        for x in [x.k, x.v] {
            length("recurrence's input", x.len(), out.len() / width * self.n_head_kv * self.d_head)?;
        }
        heads::each(pool, self.n_head, self.d_head, state, out, |heads, states, band| {
            (set.gla)(self, heads, x, states, band);
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

    struct Case {
        gla: Gla,
        /// r, w, k and v.
        inputs: [Vec<f32>; 4],
        state: Vec<f32>,
    }

    impl Case {
        fn new(n_head: usize, n_head_kv: usize, d_head: usize, n_tokens: usize) -> Self {
            let mut random = Random::new(7);
            let heads = [n_head, n_head, n_head_kv, n_head_kv];
            Case {
                gla: Gla { n_head, n_head_kv, d_head },
                inputs: heads.map(|n| random.floats(n * d_head * n_tokens)),
                state: random.floats(n_head * d_head * d_head),
            }
        }

        fn inputs(&self, tokens: Range<usize>) -> GlaInputs<'_> {
            let Gla { n_head, n_head_kv, d_head } = self.gla;
            let part =
                |i: usize, n: usize| &self.inputs[i][tokens.start * n * d_head..tokens.end * n * d_head];
            GlaInputs { r: part(0, n_head), w: part(1, n_head), k: part(2, n_head_kv), v: part(3, n_head_kv) }
        }

        /// Output and final state by definition.
        fn exact(&self, n_tokens: usize) -> (Vec<f64>, Vec<f64>) {
            let Gla { n_head, n_head_kv, d_head: d } = self.gla;
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
            let (mut states, mut out) = (wide(&self.state), vec![]);
            for t in 0..n_tokens {
                let x = self.inputs(t..t + 1);
                for head in 0..n_head {
                    let kv = head / (n_head / n_head_kv) * d;
                    let (k, v) = (wide(&x.k[kv..kv + d]), wide(&x.v[kv..kv + d]));
                    let (r, w) = (wide(&x.r[head * d..][..d]), wide(&x.w[head * d..][..d]));
                    let state = &mut states[head * d * d..][..d * d];
                    for i in 0..d {
                        let mut y = 0.0;
                        for j in 0..d {
                            let decay = (-w[j].exp()).exp();
                            let s = &mut state[j * d + i];
                            *s = *s * decay + k[j] * (1.0 - decay) * v[i];
                            y += *s * r[j];
                        }
                        out.push(y / (d as f64).sqrt());
                    }
                }
            }
            (out, states)
        }
    }

    #[test]
    fn it_is_what_it_says_with_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
        for (n_head, n_head_kv, d_head) in [(1, 1, 1), (4, 2, 64), (6, 1, 19), (2, 2, 80), (3, 3, 16)] {
            let case = Case::new(n_head, n_head_kv, d_head, 12);
            let what = std::format!("{n_head} heads of {d_head}, {n_head_kv} of keys");
            let width = n_head * d_head;
            let (out, state) = agreed(&what, 12, width, &case.state, &|set, pool, tokens, state, out| {
                case.gla.run(set, pool, &case.inputs(tokens), state, out)
            });
            let exact = case.exact(12);
            assert_near(&what, &state, &exact.1, 1e-5);
            assert_near(&what, &out, &exact.0, 1e-5);
        }
    }

    #[test]
    fn slices_that_do_not_fit_are_refused() {
        let case = Case::new(4, 2, 3, 3);
        let (mut state, mut out) = (case.state.clone(), vec![0.0; 36]);
        let run = |gla: Gla, x: GlaInputs<'_>, state: &mut [f32], out: &mut [f32]| {
            gla.run(KernelSet::scalar(), &Inline, &x, state, out)
        };
        let (gla, x) = (case.gla, case.inputs(0..3));
        assert!(run(gla, GlaInputs { w: &x.w[1..], ..x }, &mut state, &mut out).is_err());
        assert!(run(gla, GlaInputs { k: x.r, ..x }, &mut state, &mut out).is_err());
        assert!(run(gla, x, &mut state[1..], &mut out).is_err());
        assert!(run(gla, x, &mut state, &mut out[1..]).is_err());
        assert!(run(Gla { n_head_kv: 3, ..gla }, x, &mut state, &mut out).is_err());
        assert!(run(Gla { n_head_kv: 0, ..gla }, x, &mut state, &mut out).is_err());
        assert!(run(Gla { n_head: usize::MAX, ..gla }, x, &mut state, &mut out).is_err());
        assert!(run(Gla { d_head: 0, ..gla }, x, &mut [], &mut out).is_err());
        assert!(run(gla, x, &mut state, &mut out).is_ok());
    }
}
