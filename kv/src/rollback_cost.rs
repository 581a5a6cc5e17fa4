//! Costs of rollbacks, as a pure function of what a sequence keeps: its end, its checkpoints, and
//! the cells that windows let go.
//!
//! A position is reached at once if all caches still hold it or a checkpoint stands there. Else the
//! rollback starts from the nearest checkpoint before it: recurrences are stepped again from the
//! journal where that reaches and the cells are there, otherwise the tokens after the checkpoint
//! are re-evaluated. Nothing here looks at a memory, so a saved state can be asked as well as a
//! live one.

use crate::ids::Pos;
use crate::rollback::{CostRange, RollbackCost, Route};
use crate::snapshot::{Sees, Snapshot};
use alloc::vec::Vec;

/// A checkpoint of a sequence, as far as costs depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointAt {
    /// The position of the token that follows it.
    pub pos: Pos,
    /// The number of tokens after it that are in its journal.
    pub n_rows: u32,
}

/// Cells that a window let go. A sequence can be cut at `start` or before, where it has none, and
/// from `cut_from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The position that the cells began at.
    pub start: Pos,
    /// The first position whose next token sees only cells that are there.
    pub cut_from: Pos,
}

/// Everything of a sequence that decides what a rollback costs.
///
/// ```
/// use backstitch_kv::rollback_cost::{CheckpointAt, Kept};
/// use backstitch_kv::Pos;
///
/// // A recurrent model after 100 tokens, with one checkpoint and a journal of 8 tokens.
/// let checkpoints = vec![CheckpointAt { pos: Pos(64), n_rows: 8 }];
/// let kept = Kept { end: Pos(100), checkpoints, gone: vec![], has_state: true };
/// assert_eq!(kept.route(Pos(64)).reevaluated, 0);
/// assert_eq!(kept.route(Pos(70)).replayed, 6);
/// assert_eq!(kept.route(Pos(99)).reevaluated, 35);
/// assert_eq!(kept.route(Pos(10)).restored_from, Pos::ZERO);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The position that the next token gets.
    pub end: Pos,
    /// The checkpoints, ascending.
    pub checkpoints: Vec<CheckpointAt>,
    /// The windows that let cells go.
    pub gone: Vec<Gone>,
    /// True if the sequence has a recurrent state, which is that of its end alone.
    pub has_state: bool,
}

impl Kept {
    /// Return what sequence `number` of a snapshot keeps; `None` if there is no such sequence.
    pub fn of(snapshot: &Snapshot, number: usize) -> Option<Kept> {
        let sequence = snapshot.sequences.get(number)?;
        let groups = snapshot.shape.groups.iter().zip(&sequence.cells);
        let gone = groups.filter(|(_, cells)| cells.whole_from > Pos::ZERO).map(|(group, cells)| {
            let cut_from = match group.sees {
                Sees::Window(window) => window.whole_after(cells.whole_from),
                Sees::All | Sees::EncoderOutput => snapshot.end_of(sequence).next(),
            };
            Gone { start: cells.start, cut_from }
        });
        let checkpoints = sequence.checkpoints.iter().map(|mark| {
            let checkpoint = snapshot.checkpoints.get(mark.checkpoint as usize);
            let has_journal = checkpoint.is_some_and(|checkpoint| checkpoint.journal.is_some());
            CheckpointAt { pos: mark.pos, n_rows: if has_journal { mark.n_rows } else { 0 } }
        });
        Some(Kept {
            end: snapshot.end_of(sequence),
            checkpoints: checkpoints.collect(),
            gone: gone.collect(),
            has_state: sequence.state.is_some(),
        })
    }

    /// Return how `pos` is reached; it is neither negative nor behind the end.
    pub fn route(&self, pos: Pos) -> Route {
        let has_cells = self.gone.iter().all(|gone| pos <= gone.start || pos >= gone.cut_from);
        if pos == Pos::ZERO || has_cells && (!self.has_state || pos == self.end) {
            return Route::at_once(pos);
        }
        let n_before = self.checkpoints.partition_point(|checkpoint| checkpoint.pos <= pos);
        route_from(self.checkpoints[..n_before].last().copied(), pos, has_cells)
    }

    /// Return the cost of every position, the end included, as ascending ranges of positions
    /// that are reached in the same way.
    pub fn costs(&self) -> Vec<CostRange> {
        let cuts = self.gone.iter().flat_map(|gone| [gone.start.next(), gone.cut_from]);
        costs(self.end, self.checkpoints.iter().copied(), cuts, |pos| self.route(pos))
    }
}

/// Return the route to `pos` from the nearest checkpoint before it. `has_cells` is true if the
/// caches hold the cells that are seen from `pos`.
pub(crate) fn route_from(nearest: Option<CheckpointAt>, pos: Pos, has_cells: bool) -> Route {
    let CheckpointAt { pos: restored_from, n_rows } =
        nearest.unwrap_or(CheckpointAt { pos: Pos::ZERO, n_rows: 0 });
    match (pos.0 - restored_from.0).unsigned_abs() {
        0 => Route::at_once(pos),
        replayed if has_cells && replayed <= n_rows => Route { restored_from, replayed, reevaluated: 0 },
        reevaluated => Route { restored_from, replayed: 0, reevaluated },
    }
}

/// Return the cost of every position up to `end`, by the `route` to each. A rollback can go another
/// way than to the position before at checkpoints, behind their journals, and at `cuts`.
pub(crate) fn costs(
    end: Pos,
    checkpoints: impl Iterator<Item = CheckpointAt>,
    cuts: impl Iterator<Item = Pos>,
    route: impl Fn(Pos) -> Route,
) -> Vec<CostRange> {
    let mut starts = Vec::from([Pos::ZERO, Pos(1), end]);
    starts.extend(
        checkpoints.flat_map(|CheckpointAt { pos, n_rows }| [pos, pos.next(), (pos + n_rows).next()]),
    );
    starts.extend(cuts);
    starts.retain(|&start| start <= end);
    starts.sort_unstable();
    starts.dedup();
    let mut costs: Vec<CostRange> = Vec::new();
    let ends = starts.iter().skip(1).copied().chain([end.next()]);
    for (&start, end) in starts.iter().zip(ends) {
        let route = route(start);
        let (cost, restored_from) = (route.cost(), route.restored_from);
        let goes_on = |last: &&mut CostRange| {
            last.cost == cost && (cost == RollbackCost::Held || last.restored_from == restored_from)
        };
        match costs.last_mut().filter(goes_on) {
            Some(last) => last.positions.end = end,
            None => costs.push(CostRange::new(start..end, restored_from, cost)),
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, StateTensor, Window};
    use crate::memory::Memory;
    use crate::params::Params;
    use crate::snapshot::Content;
    use crate::{Batch, RollbackParams, SeqId, Token};
    use alloc::vec;

    /// Append tokens at these positions, and pin some ends on the way.
    fn fill(memory: &mut Memory, range: core::ops::Range<i32>) {
        for pos in range {
            let mut batch = Batch::new();
            batch.push(Token(1), Pos(pos), &[SeqId(0)], false);
            let mut plan = memory.prepare(&batch, 1).unwrap();
            while plan.next_ubatch().is_some() {}
            plan.commit().unwrap();
            if pos % 97 == 50 {
                // A memory without checkpoints refuses.
                let _ = memory.pin(SeqId(0));
            }
        }
    }

    #[test]
    fn a_live_memory_and_its_snapshot_cost_the_same() {
        let cached = |window| {
            let layer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, window, ..AttentionLayer::default() };
            LayerSpec { attention: AttentionSpec::Cached(layer), recurrent: vec![] }
        };
        let recurrent =
            || LayerSpec { recurrent: vec![StateTensor { len: 1, input: 1 }], ..LayerSpec::default() };
        let kinds = [
            vec![cached(None)],
            vec![cached(Some(Window::Sliding(40)))],
            vec![cached(None), cached(Some(Window::Chunked(64)))],
            vec![recurrent()],
            vec![recurrent(), cached(None)],
            vec![recurrent(), cached(Some(Window::Sliding(50)))],
        ];
        for layers in &kinds {
            for timeline in [RollbackParams::default(), RollbackParams::OFF] {
                let ends = [0, 1, 31, 32, 33, 200, 500].map(|end| (0, end));
                for (start, end) in ends.into_iter().chain([(45, 300)]) {
                    let params = Params::default().n_ctx(512).n_seq_max(1).n_batch(8).rollback(timeline);
                    let mut memory = Memory::new(layers, &params).unwrap();
                    fill(&mut memory, start..end);
                    let snapshot = memory.export(&[SeqId(0)]).unwrap();
                    let kept = Kept::of(snapshot.snapshot(), 0).unwrap();
                    let wanted = memory.positions(SeqId(0)).unwrap();
                    assert_eq!(kept.costs(), wanted, "{layers:?} after {end} tokens: {kept:?}");
                    for pos in 0..=end {
                        assert_eq!(kept.route(Pos(pos)), memory.route(SeqId(0), Pos(pos)).unwrap(), "{pos}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_no_memory_would_have_are_no_panic() {
        let checkpoints =
            vec![CheckpointAt { pos: Pos::MAX, n_rows: u32::MAX }, CheckpointAt { pos: Pos(3), n_rows: 9 }];
        let gone = vec![Gone { start: Pos::MAX, cut_from: Pos(-7) }];
        for end in [Pos::ZERO, Pos(5), Pos(i32::MAX - 1)] {
            let kept = Kept { end, checkpoints: checkpoints.clone(), gone: gone.clone(), has_state: true };
            assert_eq!(kept.costs().last().unwrap().positions.end, end.next());
        }
    }
}
