//! Attention over the cache: streaming softmax, the same bits whatever the tiles, threads, chunks
//! of the prompt, and places in the cache.
//!
//! # The order of operations
//! A *row* is one query head of one token; it sees those live slots of its sequence that lie in its
//! range. Slots are taken in *spans* of [`SPAN_CELLS`] that start at multiples of it, and a span in
//! which a row sees nothing is passed over. This is the definition, to the bit:
//!
//! 1. The score of a cell: `fma(q[d], k[d], sum)` for each d in order, from +0.0; then times
//!    `scale`; then plus the relative position bias, if the model has one; then, with a cap, `cap *
//!    tanh(score / cap)`.
//! 2. `m` is the largest score seen in the span, `p = exp(score - m)`, and `l` the sum of p over
//!    sixteen lanes, slot i in lane i % 16 in order, and the fixed tree of
//!    [`Simd::sum`](crate::isa::Simd::sum). Exponentials below 2^-64, here and in 4, are zero,
//!    which keeps clear of numbers so small that processors take long for them.
//! 3. `a[d]`: `fma(p, v[d], sum)` for each cell seen, in order, from +0.0. Cells that are not seen
//!    take no part, whatever bytes they hold.
//! 4. The first span's `m, l, a` become `M, L, A`. Each later one joins: `m' = max(M, m)`, then `L
//!    = fma(L, exp(M - m'), l * exp(m - m'))`, `A` alike, `M = m'`.
//! 5. A sink joins `M` and `L` as a span with one cell and no value. The result is `A * (exp(M -
//!    M') / L)`, the quotient taken first (1 / L without a sink). A row that saw nothing is zero.
//!
//! Keys and values are the stored ones, as floats: `scale * q` of quantised cells, which is exact.
//!
//! # Speed
//! Rows that share keys and values (the query heads of a group, and neighbouring tokens of a
//! sequence) form *tiles*, and each load of K or V serves a whole tile. Tiles of one key head that
//! go through the spans side by side are a *bundle*. Threads share tokens out; where there are few
//! tokens, they share spans out, whose results are joined afterwards in order.
//!
//! | file | content |
//! |---|---|
//! | `task.rs` | parameters, and one call with its inputs |
//! | `share.rs` | work shared out between threads |
//! | `bundle.rs` | tiles taken through spans: the calls of kernels |
//! | `tile.rs` | rows, masks and ranges of one tile |
//! | `position_bias.rs` | relative position bias |
//! | `store.rs` | keys and values written to the cache |

mod bundle;
mod position_bias;
mod seen;
mod share;
mod store;
mod task;
mod tile;

pub use position_bias::{BiasRule, PositionBias};
pub use seen::Seen;
pub use store::store;
pub use task::Attention;

use crate::cell::{BlockEntry, CellBlocks, SPAN_CELLS};
use crate::error::{Error, length};
use crate::kernel_set::KernelSet;
use crate::pool::Pool;
use task::Task;

/// The most tokens whose spans are shared out between threads; with more, tokens are.
const SPLIT_TOKENS: usize = 8;

impl Attention<'_> {
    /// Return the length of the scratch that lets few tokens use all threads, with sequences of at
    /// most `n_ctx` slots and batches of `n_tokens`. A shorter scratch, even none, costs speed
    /// only.
    pub const fn scratch_len(&self, n_ctx: usize, n_tokens: usize) -> usize {
        let n_tokens = if n_tokens < SPLIT_TOKENS { n_tokens } else { SPLIT_TOKENS };
        n_ctx.div_ceil(SPAN_CELLS) * n_tokens * self.n_head * self.part_len()
    }

    /// Attend: compute `out` `[n_tokens, n_head, d_v]` from `q` `[n_tokens, n_head, d_k]` and the
    /// `blocks` of one layer.
    ///
    /// `seen` returns the slots that token i of the batch sees. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::Length`] for slices or blocks that do not fit the others, [`Error::Ragged`] for
    /// heads that do not, [`Error::Alignment`] for blocks that do not start at multiples of 64
    /// bytes, [`Error::Block`] for a live entry whose block is not there: nothing was written then.
    /// [`Error::Panicked`] if a job of the pool panicked.
    #[expect(clippy::too_many_arguments, reason = "inputs, output and means of one operation")]
    pub fn run<'s>(
        &self,
        set: &KernelSet,
        pool: &dyn Pool,
        q: &[f32],
        blocks: CellBlocks<'_>,
        seen: &(dyn Fn(usize) -> Seen<'s> + Sync),
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_tokens = self.check(q, &blocks, seen, out)?;
        let task = Task { attention: self, set, q, blocks, seen };
        let spans = (0..n_tokens).map(|i| seen(i).spans()).filter(|spans| !spans.is_empty());
        let spans = spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        let n_parts = spans.len() * n_tokens * self.n_head;
        let few = n_tokens <= SPLIT_TOKENS && pool.n_threads() > 1 && spans.len() > 1;
        match scratch.get_mut(..n_parts * self.part_len()) {
            Some(parts) if few => task.by_spans(pool, spans, n_tokens, parts, out),
            _ => task.by_tokens(pool, n_tokens, out),
        }
    }

    /// Check everything that the loops rely on; return the number of tokens.
    fn check<'s>(
        &self,
        q: &[f32],
        blocks: &CellBlocks<'_>,
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
        let n_tokens = q.len() / q_width.max(1);
        length("queries", q.len(), n_tokens * q_width)?;
        length("attention output", out.len(), n_tokens * out_width)?;
        if !self.sinks.is_empty() {
            length("attention sinks", self.sinks.len(), self.n_head)?;
        }
        if let Some(bias) = &self.position_bias {
            bias.rule.check(self.n_head)?;
        }
        blocks.check(layout)?;
        let n_blocks = blocks.len();
        let mut checked: &[BlockEntry] = &[];
        for i in 0..n_tokens {
            let table = seen(i).table;
            if !core::ptr::eq(table, checked) {
                let bad = table.iter().find(|e| e.live != 0 && e.block as usize >= n_blocks);
                bad.map_or(Ok(()), |bad| Err(Error::Block { found: bad.block, n_blocks }))?;
                checked = table;
            }
        }
        Ok(n_tokens)
    }
}

#[cfg(test)]
mod tests;
