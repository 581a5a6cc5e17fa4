//! Work shared out between threads: by tokens, or by spans where tokens are few.
//!
//! Prompts have many tokens, each with its own rows of the output: tokens are shared out. A single
//! token with a long context has few rows and many spans: spans are shared out, each to a row of
//! its own in the scratch, and a second run of the pool joins them in order. Both ways give the
//! same bits, because spans are joined in one order.

use super::bundle::{Extend, Narrow, Part, Place, Wide, Work};
use super::task::{Attention, Task};
use super::tile::Rows;
use crate::error::Error;
use crate::kernels::attention::{MAX_ROWS, Running};
use crate::pool::{MAX_THREADS, Parts, Pool, n_jobs};
use core::ops::Range;

/// Jobs for each thread that spans are shared out to: a thread that is done early helps others.
const SPAN_JOBS: usize = 8;

/// Rows that keep a job busy: sharing loads of K and V is worth more than sharing it out further.
const JOB_ROWS: usize = 96;

impl Task<'_, '_> {
    /// Share out tokens; each job does all spans of its own.
    pub(super) fn by_tokens(&self, pool: &dyn Pool, n_tokens: usize, out: &mut [f32]) -> Result<(), Error> {
        let Attention { n_head, layout, .. } = *self.attention;
        // Neighbours share loads, but the threads must have enough to share: later tokens see more.
        let group = self.attention.group();
        let each =
            (JOB_ROWS / group).min(n_tokens / (4 * pool.n_threads())).min(self.most_tokens(pool)).max(1);
        let n_jobs = n_tokens.div_ceil(each).clamp(1, MAX_THREADS);
        let width = n_head * layout.d_v;
        let parts = Parts::new(out, width, n_jobs);
        pool.run(n_jobs, &|job| {
            let Some((first, out)) = parts.take(job) else { return };
            let first = first / width.max(1);
            let tokens = first..first + out.len() / width.max(1);
            match tokens.len() * group <= MAX_ROWS {
                true => self.few_rows(&tokens, out),
                false => self.many_rows(&tokens, out),
            }
        })?;
        Ok(())
    }

    /// Do all heads of few rows. Workspaces lie in functions of their own, so that a single token
    /// needs no stack for many.
    #[inline(never)]
    fn few_rows(&self, tokens: &Range<usize>, out: &mut [f32]) {
        self.heads(&mut Narrow::new(), tokens, out);
    }

    #[inline(never)]
    fn many_rows(&self, tokens: &Range<usize>, out: &mut [f32]) {
        self.heads(&mut Wide::new(), tokens, out);
    }

    /// Return the most tokens that a job of the pool should do.
    fn most_tokens(&self, pool: &dyn Pool) -> usize {
        let most = pool.most_per_job();
        if most == u64::MAX {
            return usize::MAX;
        }
        let Attention { n_head, layout, .. } = *self.attention;
        let n_tokens = self.q.len() / (n_head * layout.d_k).max(1);
        let n_cells = (0..n_tokens).map(|i| (self.seen)(i).slots().len()).fold(0, usize::max);
        let cost = (n_head * (layout.d_k + layout.d_v)) as u64 * n_cells as u64;
        usize::try_from(most / cost.max(1)).unwrap_or(usize::MAX)
    }

    /// Do all heads of some tokens.
    fn heads<const TILES: usize, const Q: usize>(
        &self,
        work: &mut Work<TILES, Q>,
        tokens: &Range<usize>,
        out: &mut [f32],
    ) {
        let Attention { n_head, layout, .. } = *self.attention;
        let group = self.attention.group();
        for head in 0..layout.n_head_kv {
            let data = &mut *out;
            let mut rows = Rows { data, width: layout.d_v, stride: n_head, first: head * group, group };
            let part = Part { head, tokens: tokens.clone(), extend: Extend::All };
            self.part(work, &part, &mut rows);
        }
    }

    /// Share out spans and key heads, then join the spans of each row in order.
    pub(super) fn by_spans(
        &self,
        pool: &dyn Pool,
        spans: Range<usize>,
        n_tokens: usize,
        parts: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let Attention { n_head, layout, sinks, .. } = *self.attention;
        let (n_head_kv, group, part_len) =
            (layout.n_head_kv, self.attention.group(), self.attention.part_len());
        // One unit is [n_tokens, group, part_len]: a span, then a key head.
        let unit = (n_tokens * group * part_len).max(1);
        let n_units = spans.len() * n_head_kv;
        let n_parts = n_units.clamp(1, SPAN_JOBS * pool.n_threads()).min(MAX_THREADS);
        let split = Parts::new(parts, unit, n_parts);
        pool.run(n_parts, &|job| {
            let Some((first, units)) = split.take(job) else { return };
            let mut work = Narrow::new();
            for (i, data) in (first / unit..).zip(units.chunks_exact_mut(unit)) {
                let place = |i: usize| Place { head: i % n_head_kv, span: spans.start + i / n_head_kv };
                let Place { head, span } = place(i);
                let then = (i + 1 < n_units).then(|| place(i + 1));
                let mut rows = Rows { data, width: part_len, stride: group, first: 0, group };
                let extend = Extend::One { span, then };
                let part = Part { head, tokens: 0..n_tokens, extend };
                self.part(&mut work, &part, &mut rows);
            }
        })?;
        let parts = &*parts;
        let n_jobs = n_jobs(pool, n_tokens * n_head * spans.len(), 512);
        let rows = Parts::new(out, layout.d_v, n_jobs);
        pool.run(n_jobs, &|job| {
            let Some((first, rows)) = rows.take(job) else { return };
            for (i, out) in rows.chunks_exact_mut(layout.d_v.max(1)).enumerate() {
                let row = first / layout.d_v.max(1) + i;
                let (token, head) = (row / n_head, row % n_head);
                let at = (head / group * n_tokens + token) * group + head % group;
                let per_span = n_head_kv * unit;
                let mut row_parts =
                    parts.chunks_exact(per_span).map(|span| &span[at * part_len..][..part_len]);
                let mut running = Running::START;
                (self.set.merge_spans)(&mut row_parts, out, &mut running);
                (self.set.finish_row)(out, running.max[0], running.sum[0], sinks.get(head).copied());
            }
        })?;
        Ok(())
    }
}
