//! The recurrence of RWKV 6: checks, and heads shared out.

use super::heads;
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::wkv6::{Wkv6, Wkv6Inputs};
use crate::pool::Pool;

impl Wkv6<'_> {
    /// Step `state` `[n_head, d_head, d_head]` through the tokens of one segment into `out`
    /// `[n_tokens, n_head, d_head]`.
    ///
    /// # Errors
    /// [`Error::Length`] for slices that do not fit each other, [`Error::Ragged`] for sizes that
    /// are zero: nothing was written then. [`Error::Panicked`] if a job of the pool panicked.
    pub fn run(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        x: &Wkv6Inputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        heads::check_state(state, self.n_head, self.d_head, self.d_head)?;
        let width = self.n_head * self.d_head;
        length("recurrence's output", out.len() % width, 0)?;
        for x in [x.r, x.w, x.k, x.v] {
            length("recurrence's input", x.len(), out.len())?;
        }
        for weight in [self.first, self.norm, self.norm_bias] {
            length("recurrence's weights", weight.len(), width)?;
        }
        heads::each(pool, self.n_head, self.d_head, state, out, |heads, states, band| {
            (set.wkv6)(self, heads, x, states, band);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::heads::tests::{agreed, assert_near, normed};
    use super::*;
    use crate::pool::Inline;
    use backstitch_testing::Random;
    use std::{vec, vec::Vec};

    const EPS: f32 = 64e-5;

    struct Case {
        n_head: usize,
        d_head: usize,
        weights: [Vec<f32>; 3],
        /// r, w, k and v.
        inputs: [Vec<f32>; 4],
        state: Vec<f32>,
    }

    impl Case {
        fn new(n_head: usize, d_head: usize, n_tokens: usize) -> Self {
            let (mut random, width) = (Random::new(7), n_head * d_head);
            Case {
                n_head,
                d_head,
                weights: [(); 3].map(|()| random.floats(width)),
                inputs: [(); 4].map(|()| random.floats(width * n_tokens)),
                state: random.floats(width * d_head),
            }
        }

        fn wkv(&self) -> Wkv6<'_> {
            let [first, norm, norm_bias] = &self.weights;
            Wkv6 { n_head: self.n_head, d_head: self.d_head, first, norm, norm_bias, eps: EPS }
        }

        fn inputs(&self) -> Wkv6Inputs<'_> {
            let [r, w, k, v] = &self.inputs;
            Wkv6Inputs { r, w, k, v }
        }

        /// Output and final state by definition.
        fn exact(&self) -> (Vec<f64>, Vec<f64>) {
            let (d, width) = (self.d_head, self.n_head * self.d_head);
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
            let (mut state, mut out) = (wide(&self.state), vec![]);
            for first in (0..self.inputs[0].len()).step_by(d) {
                let head = first % width / d;
                let own = head * d..(head + 1) * d;
                let [r, w, k, v] = self.inputs.each_ref().map(|x| wide(&x[first..first + d]));
                let u = wide(&self.weights[0][own.clone()]);
                let mut y = vec![0.0; d];
                for j in 0..d {
                    for i in 0..d {
                        let s = &mut state[(head * d + j) * d + i];
                        y[i] += r[j] * (u[j] * k[j] * v[i] + *s);
                        *s = *s * (-w[j].exp()).exp() + k[j] * v[i];
                    }
                }
                normed(&mut y, &self.weights[1][own.clone()], &self.weights[2][own], EPS.into());
                out.extend(y);
            }
            (out, state)
        }
    }

    #[test]
    fn it_is_what_it_says_with_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
        for (n_head, d_head) in [(1, 1), (2, 64), (3, 19), (2, 80), (1, 16)] {
            let case = Case::new(n_head, d_head, 12);
            let (width, wkv) = (n_head * d_head, case.wkv());
            let what = std::format!("{n_head} heads of {d_head}");
            let (out, state) = agreed(&what, 12, width, &case.state, &|set, pool, tokens, state, out| {
                let x = case.inputs().part(tokens.start * width..tokens.end * width);
                wkv.run(set, pool, &x, state, out)
            });
            let exact = case.exact();
            assert_near(&what, &state, &exact.1, 2e-5);
            // A head of one value is all mean: what is left of it depends on the rounding alone.
            if d_head > 1 {
                assert_near(&what, &out, &exact.0, 2e-4);
            }
        }
    }

    #[test]
    fn slices_that_do_not_fit_are_refused() {
        let case = Case::new(2, 4, 3);
        let (mut state, mut out) = (case.state.clone(), vec![0.0; 24]);
        let run = |wkv: Wkv6<'_>, x: Wkv6Inputs<'_>, state: &mut [f32], out: &mut [f32]| {
            wkv.run(KernelSet::scalar(), &Inline, &x, state, out)
        };
        let (wkv, x) = (case.wkv(), case.inputs());
        assert!(run(wkv, Wkv6Inputs { w: &x.w[1..], ..x }, &mut state, &mut out).is_err());
        assert!(run(wkv, x, &mut state[1..], &mut out).is_err());
        assert!(run(wkv, x, &mut state, &mut out[1..]).is_err());
        assert!(run(Wkv6 { first: &[], ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv6 { n_head: usize::MAX, ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv6 { d_head: 0, ..wkv }, x, &mut [], &mut out).is_err());
        assert!(run(wkv, x, &mut state, &mut out).is_ok());
    }
}
