//! The recurrence of RWKV 7: checks, and heads shared out.

use super::heads;
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::kernels::wkv7::{Wkv7, Wkv7Inputs};
use crate::pool::Pool;

impl Wkv7<'_> {
    /// Return true if heads are not normalised.
    fn is_plain(&self) -> bool {
        self.norm.is_empty() && self.norm_bias.is_empty()
    }

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
        x: &Wkv7Inputs<'_>,
        state: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        heads::check_state(state, self.n_head, self.d_head, self.d_head)?;
        let width = self.n_head * self.d_head;
        length("recurrence's output", out.len() % width, 0)?;
        for x in [x.r, x.w, x.k, x.v, x.a] {
            length("recurrence's input", x.len(), out.len())?;
        }
        let norm = [self.norm, self.norm_bias].into_iter().filter(|_| !self.is_plain());
        for weight in [self.k_k, self.k_a, self.r_k].into_iter().chain(norm) {
            length("recurrence's weights", weight.len(), width)?;
        }
        heads::each(pool, self.n_head, self.d_head, state, out, |heads, states, band| {
            (set.wkv7)(self, heads, x, states, band);
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
        weights: [Vec<f32>; 5],
        /// r, w, k, v and a.
        inputs: [Vec<f32>; 5],
        state: Vec<f32>,
    }

    impl Case {
        fn new(n_head: usize, d_head: usize, n_tokens: usize) -> Self {
            let (mut random, width) = (Random::new(7), n_head * d_head);
            Case {
                n_head,
                d_head,
                weights: [(); 5].map(|()| random.floats(width)),
                inputs: [(); 5].map(|()| random.floats(width * n_tokens)),
                state: random.floats(width * d_head),
            }
        }

        fn wkv(&self) -> Wkv7<'_> {
            let [k_k, k_a, r_k, norm, norm_bias] = &self.weights;
            let (n_head, d_head) = (self.n_head, self.d_head);
            Wkv7 { n_head, d_head, k_k, k_a, r_k, norm, norm_bias, eps: EPS }
        }

        fn inputs(&self) -> Wkv7Inputs<'_> {
            let [r, w, k, v, a] = &self.inputs;
            Wkv7Inputs { r, w, k, v, a }
        }

        /// Output and final state by definition.
        fn exact(&self) -> (Vec<f64>, Vec<f64>) {
            let (d, width) = (self.d_head, self.n_head * self.d_head);
            let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
            let sigmoid = |x: &f64| 1.0 / (1.0 + (-x).exp());
            let (mut state, mut out) = (wide(&self.state), vec![]);
            for first in (0..self.inputs[0].len()).step_by(d) {
                let head = first % width / d;
                let [r, w, k, v, a] = self.inputs.each_ref().map(|x| wide(&x[first..first + d]));
                let own = head * d..(head + 1) * d;
                let weight = |i: usize| wide(&self.weights[i][own.clone()]);
                let (k_k, k_a, r_k) = (weight(0), weight(1), weight(2));
                let a: Vec<f64> = a.iter().map(sigmoid).collect();
                let removed: Vec<f64> = k.iter().zip(&k_k).map(|(k, k_k)| k * k_k).collect();
                let length = removed.iter().map(|x| x * x).sum::<f64>().sqrt();
                let k: Vec<f64> = (0..d).map(|j| k[j] * (1.0 + (a[j] - 1.0) * k_a[j])).collect();
                let state = &mut state[head * d * d..(head + 1) * d * d];
                let mut y = vec![0.0; d];
                for i in 0..d {
                    let held = (0..d).map(|j| state[j * d + i] * removed[j] / length).sum::<f64>();
                    for j in 0..d {
                        let s = &mut state[j * d + i];
                        *s *= (-0.606531 * sigmoid(&w[j])).exp();
                        *s += v[i] * k[j] - held * a[j] * removed[j] / length;
                        y[i] += *s * r[j];
                    }
                }
                let bonus = (0..d).map(|j| k[j] * r[j] * r_k[j]).sum::<f64>();
                if !self.weights[3].is_empty() {
                    normed(&mut y, &self.weights[3][own.clone()], &self.weights[4][own], EPS.into());
                }
                out.extend(y.iter().zip(&v).map(|(y, v)| y + bonus * v));
            }
            (out, state)
        }
    }

    #[test]
    fn it_is_what_it_says_with_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
        let sizes = [(1, 1), (2, 64), (3, 19), (2, 80), (1, 16)];
        for (i, (n_head, d_head)) in sizes.into_iter().chain(sizes).enumerate() {
            let mut case = Case::new(n_head, d_head, 12);
            let is_plain = i >= sizes.len();
            if is_plain {
                case.weights[3..].iter_mut().for_each(Vec::clear);
            }
            let (width, wkv) = (n_head * d_head, case.wkv());
            let what = std::format!("{n_head} heads of {d_head}, plain: {is_plain}");
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
        let run = |wkv: Wkv7<'_>, x: Wkv7Inputs<'_>, state: &mut [f32], out: &mut [f32]| {
            wkv.run(KernelSet::scalar(), &Inline, &x, state, out)
        };
        let (wkv, x) = (case.wkv(), case.inputs());
        assert!(run(wkv, Wkv7Inputs { a: &x.a[1..], ..x }, &mut state, &mut out).is_err());
        assert!(run(wkv, x, &mut state[1..], &mut out).is_err());
        assert!(run(wkv, x, &mut state, &mut out[1..]).is_err());
        assert!(run(Wkv7 { r_k: &[], ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv7 { norm: &[], ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv7 { norm_bias: &[], ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv7 { n_head: usize::MAX, ..wkv }, x, &mut state, &mut out).is_err());
        assert!(run(Wkv7 { d_head: 0, ..wkv }, x, &mut [], &mut out).is_err());
        assert!(run(wkv, x, &mut state, &mut out).is_ok());
    }
}
