//! Parameters of rollbacks: the budget of checkpoints, their schedule, journals and margins.

use crate::ids::Pos;
use crate::setters::setters;

/// Memory that is reserved for rollbacks. All of it is allocated with the memory, and touched only
/// when used.
///
/// A KV cache of all cells needs none of it: its sequences can be cut anywhere. The parameters
/// matter to recurrent states, which have no inverse, and to windowed caches, which release old
/// cells. Three means make rollbacks cheap there: checkpoints on a schedule whose distance grows
/// with their age, a journal of the most recent inputs of the recurrences, and a margin of cells
/// behind each window.
///
/// ```
/// use backstitch_kv::RollbackParams;
///
/// let params = RollbackParams::default().checkpoint_bytes(1 << 30).journal(64);
/// assert_eq!((params.spacing, params.journal), (256, 64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollbackParams {
    /// Most bytes that checkpoints take, shared by all sequences. A block of cells counts once,
    /// however many checkpoints share it. Checkpoints at which journals begin are not counted. If
    /// the bytes run out, the least useful checkpoint is dropped.
    pub checkpoint_bytes: u64,
    /// Least distance of scheduled checkpoints, in tokens: rolling back by d tokens re-evaluates at
    /// most `max(d, spacing)` tokens. It is rounded up to a multiple of `journal`.
    pub spacing: u32,
    /// Number of most recent tokens whose recurrences can be replayed without running the model; 0
    /// for no journal. It has no use in models without a recurrent state.
    pub journal: u32,
    /// Least number of cells behind its window that a windowed layer retains, so that rolling back
    /// by this many tokens costs nothing. At least twice `journal`.
    pub margin: u32,
}

impl Default for RollbackParams {
    /// Return the usual parameters: 256 MiB, a checkpoint every 256 tokens, journals of 32 tokens,
    /// a margin of 64 cells.
    fn default() -> Self {
        RollbackParams { checkpoint_bytes: 256 << 20, spacing: 256, journal: 32, margin: 64 }
    }
}

setters!(RollbackParams { checkpoint_bytes: u64, spacing: u32, journal: u32, margin: u32 });

impl RollbackParams {
    /// Parameters that reserve nothing: a rollback re-evaluates the whole sequence, except where
    /// cells still exist.
    pub const OFF: RollbackParams =
        RollbackParams { checkpoint_bytes: 0, spacing: 256, journal: 0, margin: 0 };

    /// Return these parameters clamped and rounded to what the fields' descriptions promise about
    /// each other.
    pub(crate) fn settled(self) -> Self {
        let journal = self.journal.min(1 << 16);
        let spacing = self.spacing.clamp(1, 1 << 24).next_multiple_of(journal.max(1));
        RollbackParams { journal, spacing, margin: self.margin.clamp(2 * journal, 1 << 24), ..self }
    }

    /// Return the largest number of scheduled checkpoints of a sequence of `n_ctx` tokens.
    pub(crate) fn schedule_len(&self, n_ctx: u32) -> u32 {
        2 * (n_ctx / self.spacing.max(1)).saturating_add(1).ilog2() + 3
    }

    /// Return true if the schedule keeps a checkpoint at `pos` while the sequence ends at `end`.
    ///
    /// At a distance of x tokens from the end, the schedule keeps a checkpoint every `x / 4` to `x
    /// / 2` tokens, at multiples of `spacing` times a power of two.
    pub(crate) fn keeps(&self, pos: Pos, end: Pos) -> bool {
        let spacing = i64::from(self.spacing.max(1));
        let distance = i64::from(end.0) - i64::from(pos.0);
        let octave = (distance / spacing).max(1).ilog2();
        // Multiples of a step are multiples of all smaller steps, so every checkpoint that is kept
        // far back was kept before.
        pos.0 > 0 && i64::from(pos.0) % (spacing << octave.saturating_sub(1)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_context_has_a_schedule() {
        let params = RollbackParams { journal: 0, ..RollbackParams::default() }.spacing(1);
        assert_eq!(params.settled().schedule_len(u32::MAX), 65);
    }
}
