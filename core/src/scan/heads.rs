//! Heads of a recurrence shared out over a pool.

use super::cost::{LEAST, STEP};
use crate::error::{Error, length};
use crate::pool::{Band, Bands, Parts, Pool, Share, n_limited_jobs};
use core::ops::Range;

/// Call `step` with disjoint ranges of the `n_head` heads, their parts of `state`, which has the
/// same length for each head, and their columns of `out`, rows of `n_head * d_out`.
pub(super) fn each(
    pool: &dyn Pool,
    n_head: usize,
    d_out: usize,
    state: &mut [f32],
    out: &mut [f32],
    step: impl Fn(Range<usize>, &mut [f32], &mut Band<'_, f32>) + Sync,
) -> Result<(), Error> {
    let (width, per_head) = (n_head * d_out, (state.len() / n_head.max(1)).max(1));
    let n_tokens = out.len() / width.max(1);
    let jobs = n_limited_jobs(pool, state.len() * n_tokens, LEAST, STEP).min(n_head.max(1));
    let states = Parts::new(state, per_head, jobs);
    let bands = Bands::new(out, width, d_out, Share::alone(jobs, n_head));
    pool.run(jobs, &|job| {
        if let (Some((first, states)), Some(mut band)) = (states.take(job), bands.take(job)) {
            let (first, n) = (first / per_head, states.len() / per_head);
            step(first..first + n, states, &mut band);
        }
    })?;
    Ok(())
}

/// Check that there are heads, of `d_k` keys and `d_v` values each, and that they fit their state.
pub(super) fn check_state(state: &[f32], n: usize, d_k: usize, d_v: usize) -> Result<(), Error> {
    let len = n.saturating_mul(d_k).saturating_mul(d_v);
    length("recurrence's state", state.len(), len)?;
    if len == 0 {
        Err(Error::Ragged { what: "heads of a recurrence", found: n, block: d_k.min(d_v) })
    } else {
        Ok(())
    }
}

/// Check that `n_head` heads can share `n_shared` others evenly.
pub(super) fn check_shared(n_head: usize, n_shared: usize) -> Result<(), Error> {
    if n_shared > 0 && n_head.is_multiple_of(n_shared) {
        Ok(())
    } else {
        Err(Error::Ragged { what: "heads of a recurrence", found: n_head, block: n_shared })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel_set::KernelSet;
    use crate::pool::{Inline, ThreadPool, limited::Limited};
    use backstitch_testing::assert_bits;
    use std::{vec, vec::Vec};

    #[test]
    fn limits_of_jobs_are_kept() {
        // Four heads of eight numbers, ten tokens.
        for (most, n_jobs) in [(u64::MAX, 1), (STEP * 32 * 10, 1), (STEP * 16 * 10, 2), (1, 4)] {
            let limited = Limited::new(most);
            let (mut state, mut out) = (vec![0.0; 32], vec![0.0; 10 * 8]);
            each(&limited, 4, 2, &mut state, &mut out, |_, state, _| state.fill(1.0)).unwrap();
            assert_eq!((limited.n_jobs(), state), (n_jobs, vec![1.0; 32]));
        }
    }

    /// Steps `state` through tokens `from..to` of a case, writing `out`.
    pub(in crate::scan) type Run<'a> =
        &'a dyn Fn(&KernelSet, &dyn Pool, Range<usize>, &mut [f32], &mut [f32]) -> Result<(), Error>;

    /// Run a case in one piece and in many, on one thread and on several, with every kernel set;
    /// all outputs and final states must have the same bits. Returns output and final state.
    pub(in crate::scan) fn agreed(
        what: &str,
        n_tokens: usize,
        width: usize,
        state: &[f32],
        run: Run<'_>,
    ) -> (Vec<f32>, Vec<f32>) {
        let all = |set: &KernelSet, pool: &dyn Pool, pieces: &[usize]| {
            let (mut state, mut out, mut at) = (state.to_vec(), vec![f32::NAN; n_tokens * width], 0);
            for n in pieces.iter().copied().chain([n_tokens]) {
                let end = n_tokens.min(at + n);
                run(set, pool, at..end, &mut state, &mut out[at * width..end * width]).unwrap();
                at = end;
            }
            (out, state)
        };
        let expected = all(KernelSet::scalar(), &Inline, &[]);
        let (three, limited) = (ThreadPool::new(3).unwrap(), Limited::new(1));
        for set in KernelSet::available() {
            for pool in [&Inline as &dyn Pool, &three, &limited] {
                for pieces in [&[][..], &vec![1; n_tokens], &[1, 7, 3]] {
                    let got = all(set, pool, pieces);
                    assert_bits(format_args!("{what} {set:?} output"), &got.0, &expected.0);
                    assert_bits(format_args!("{what} {set:?} state"), &got.1, &expected.1);
                }
            }
        }
        expected
    }

    pub(in crate::scan) fn assert_near(what: &str, got: &[f32], exact: &[f64], tolerance: f64) {
        assert_eq!(got.len(), exact.len());
        for (i, (&got, exact)) in got.iter().zip(exact).enumerate() {
            let far = (f64::from(got) - exact).abs();
            assert!(far <= tolerance * exact.abs().max(1.0), "{what} at {i}: {got}, {exact} wanted");
        }
    }

    /// Mean 0 and variance 1, times `weight`, plus `bias`, by definition.
    pub(in crate::scan) fn normed(x: &mut [f64], weight: &[f32], bias: &[f32], eps: f64) {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
        for ((x, &weight), &bias) in x.iter_mut().zip(weight).zip(bias) {
            *x = (*x - mean) / (variance + eps).sqrt() * f64::from(weight) + f64::from(bias);
        }
    }
}
