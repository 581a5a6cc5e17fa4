//! Attention over the cache: streaming softmax, exact whatever the tiles, threads, chunks and places.
//!
//! # What is computed, on bits
//! A row is one query head of one token; it sees those live slots of its sequence that lie in its range. Slots are taken
//! in spans of [`SPAN_CELLS`] that start at multiples of it, and a span in which a row sees nothing is passed over.
//!
//! 1. The score of a cell: `fma(q[d], k[d], sum)` for each d in order, from +0.0; then times `scale`; then plus the term of its distance, if there are such; then, with a cap,
//!    `cap * tanh(score / cap)`.
//! 2. `m` is the largest score seen in the span, `p = exp(score - m)` (here and in 4 zero where that is below 2^-64, which keeps
//!    clear of numbers so small that processors take long for them), `l` the sum of p over sixteen lanes, slot i in
//!    lane i % 16 in order, and the fixed tree of [`Simd::sum`](crate::isa::Simd::sum).
//! 3. `a[d]`: `fma(p, v[d], sum)` for each cell seen, in order, from +0.0. Cells that are not seen take no part, whatever
//!    bytes they hold.
//! 4. The first span's `m, l, a` become `M, L, A`. Each later one joins: `m' = max(M, m)`, then
//!    `L = fma(L, exp(M - m'), l * exp(m - m'))`, `A` alike, `M = m'`.
//! 5. A sink joins `M` and `L` as a span with one cell and no value. The result is `A * (exp(M - M') / L)`, the quotient
//!    taken first (1 / L without a sink). A row that saw nothing is zero.
//!
//! Keys and values are the stored ones, as floats: `scale * q` of quantised cells, which is exact.
//!
//! # How it is fast
//! Rows that share keys and values (the query heads of a group, and neighbouring tokens of a sequence) form tiles, and each
//! load of K or V serves a whole tile. Threads share tokens out; where there are few, spans, whose results are
//! joined afterwards in order.

mod bundle;
mod relative;
mod store;
mod tile;

pub use relative::Relative;
pub use store::store;

use crate::cell::{BLOCK_CELLS, CellLayout, Extent, SPAN_CELLS};
use crate::error::{Error, length};
use crate::isa::KernelSet;
use crate::kernels::attention::{MAX_ROWS, Running};
use crate::pool::{MAX_THREADS, Parts, Pool, n_jobs};
use bundle::{Extend, Narrow, Part, Wide, Work};
use core::ops::Range;
use tile::Rows;

/// What a token sees: some slots of one sequence.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The sequence's table, indexed by `slot / 32`.
    pub extents: &'a [Extent],
    /// The slots that are seen where they are live; what lies beyond the table is not.
    pub slots: Range<u32>,
}

impl Seen<'_> {
    /// The slots inside the table.
    fn slots(&self) -> Range<usize> {
        let end = (self.slots.end as usize).min(self.extents.len().saturating_mul(BLOCK_CELLS));
        (self.slots.start as usize).min(end)..end
    }

    /// The spans that hold these slots.
    fn spans(&self) -> Range<usize> {
        let slots = self.slots();
        if slots.is_empty() { 0..0 } else { slots.start / SPAN_CELLS..slots.end.div_ceil(SPAN_CELLS) }
    }
}

/// One layer's attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads; a multiple of the layout's `n_head_kv`. Query head h uses key head `h / (n_head / n_head_kv)`.
    pub n_head: usize,
    /// Factor of the scores, usually `1 / sqrt(d_k)`.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`; 0 for none.
    pub soft_cap: f32,
    /// One more score a head in the softmax, without a value: `[n_head]`, or empty for none.
    pub sinks: &'a [f32],
    /// Terms of the scores by distance; none for most models.
    pub relative: Option<Relative<'a>>,
    /// Shape and types of keys and values.
    pub layout: CellLayout,
}

/// The most tokens whose spans are shared out between threads; with more, tokens are.
const SPLIT_TOKENS: usize = 8;

/// Jobs for each thread that spans are shared out to: who is done early helps others.
const SPAN_JOBS: usize = 8;

/// Rows that keep a job busy: it would rather share loads of K and V than be shared out further.
const JOB_ROWS: usize = 96;

impl Attention<'_> {
    /// Length of the scratch that lets few tokens use all threads, with sequences of at most `n_ctx` slots and
    /// batches of `n_tokens`. A shorter scratch, even none, costs speed only.
    pub const fn scratch_len(&self, n_ctx: usize, n_tokens: usize) -> usize {
        let n_tokens = if n_tokens < SPLIT_TOKENS { n_tokens } else { SPLIT_TOKENS };
        n_ctx.div_ceil(SPAN_CELLS) * n_tokens * self.n_head * self.part_len()
    }

    /// Weighted values, maximum and sum of one row and span.
    const fn part_len(&self) -> usize {
        self.layout.d_v + 2
    }

    /// Attends: `out` `[n_tokens, n_head, d_v]` from `q` `[n_tokens, n_head, d_k]` and one layer's `cache`.
    ///
    /// `seen` tells what token i of the batch sees. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Length`] or [`Error::Ragged`] for slices and heads that do not fit each other, [`Error::Alignment`] for a
    /// cache that does not start at a multiple of 64 bytes, [`Error::Block`] for a live extent whose block the cache does
    /// not have: nothing was written then. [`Error::Panicked`] from the pool.
    #[expect(clippy::too_many_arguments, reason = "inputs, output and means of one operation")]
    pub fn run<'s>(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        q: &[f32],
        cache: &[u8],
        seen: &(dyn Fn(usize) -> Seen<'s> + Sync),
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = self.check(q, cache, seen, out)?;
        let task = Task { attention: self, set, q, cache, seen };
        let spans = (0..n_tokens).map(|i| seen(i).spans()).filter(|spans| !spans.is_empty());
        let spans = spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        let n_parts = spans.len() * n_tokens * self.n_head;
        let few = n_tokens <= SPLIT_TOKENS && pool.n_threads() > 1 && spans.len() > 1;
        match scratch.get_mut(..n_parts * self.part_len()) {
            Some(parts) if few => task.by_spans(pool, spans, n_tokens, parts, out),
            _ => task.by_tokens(pool, n_tokens, out),
        }
    }

    /// Query heads that share a key head.
    fn group(&self) -> usize {
        self.n_head / self.layout.n_head_kv.max(1)
    }

    /// Checks everything that the loops rely on; returns the number of tokens.
    fn check<'s>(
        &self,
        q: &[f32],
        cache: &[u8],
        seen: &(dyn Fn(usize) -> Seen<'s> + Sync),
        out: &[f32],
    ) -> Result<usize, Error> {
        let layout = &self.layout;
        let (q_width, out_width) = (self.n_head * layout.d_k, self.n_head * layout.d_v);
        if self.n_head == 0 {
            return Err(Error::Length { what: "query heads", found: 0, wanted: layout.n_head_kv });
        }
        if layout.n_head_kv == 0 || !self.n_head.is_multiple_of(layout.n_head_kv) {
            let block = layout.n_head_kv;
            return Err(Error::Ragged { what: "query heads", found: self.n_head, block });
        }
        layout.check()?;
        let n_tokens = q.len().checked_div(q_width).unwrap_or(0);
        length("queries", q.len(), n_tokens * q_width)?;
        length("attention output", out.len(), n_tokens * out_width)?;
        if !self.sinks.is_empty() {
            length("attention sinks", self.sinks.len(), self.n_head)?;
        }
        if let Some(relative) = &self.relative {
            let wanted = self.n_head.saturating_mul(relative.n_terms());
            length("terms by distance", relative.terms.len(), wanted)?;
        }
        check_alignment(cache)?;
        let n_blocks = cache.len() / layout.block_bytes().max(1);
        let mut checked: &[Extent] = &[];
        for i in 0..n_tokens {
            let extents = seen(i).extents;
            if !core::ptr::eq(extents, checked) {
                let bad = extents.iter().find(|e| e.live != 0 && e.block as usize >= n_blocks);
                bad.map_or(Ok(()), |bad| Err(Error::Block { found: bad.block, n_blocks }))?;
                checked = extents;
            }
        }
        Ok(n_tokens)
    }
}

/// Keys and values are read as vectors of their type, so the layer's buffer must start where vectors may.
fn check_alignment(cache: &[u8]) -> Result<(), Error> {
    if cache.as_ptr().addr().is_multiple_of(64) {
        return Ok(());
    }
    Err(Error::Alignment { what: "cache", wanted: 64 })
}

/// One call of [`Attention::run`].
#[derive(Clone, Copy)]
struct Task<'t, 's> {
    attention: &'t Attention<'t>,
    set: &'t KernelSet,
    q: &'t [f32],
    cache: &'t [u8],
    seen: &'t (dyn Fn(usize) -> Seen<'s> + Sync),
}

impl Task<'_, '_> {
    /// Shares out tokens; each job does all spans of its own.
    fn by_tokens(&self, pool: &dyn Pool, n_tokens: usize, out: &mut [f32]) -> Result<(), Error> {
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
            if tokens.len() * group <= MAX_ROWS {
                self.heads(&mut Narrow::new(), &tokens, out);
            } else {
                self.heads(&mut Wide::new(), &tokens, out);
            }
        })?;
        Ok(())
    }

    /// How many tokens a job of the pool should do at most.
    fn most_tokens(&self, pool: &dyn Pool) -> usize {
        let most = pool.most_per_job();
        if most == u64::MAX {
            return usize::MAX;
        }
        let Attention { n_head, layout, .. } = *self.attention;
        let n_tokens = self.q.len() / (n_head * layout.d_k).max(1);
        let n_cells = (0..n_tokens).map(|i| (self.seen)(i).slots().len()).max().unwrap_or(0);
        let cost = (n_head * (layout.d_k + layout.d_v)) as u64 * n_cells as u64;
        usize::try_from(most / cost.max(1)).unwrap_or(usize::MAX)
    }

    /// Does all heads of some tokens.
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

    /// Shares out spans and key heads, then joins the spans of each row in order.
    fn by_spans(
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
                let (head, span) = (i % n_head_kv, spans.start + i / n_head_kv);
                let mut rows = Rows { data, width: part_len, stride: group, first: 0, group };
                let part = Part { head, tokens: 0..n_tokens, extend: Extend::One(span) };
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

#[cfg(test)]
mod tests;
