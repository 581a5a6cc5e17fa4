//! Rollback costs: tokens that are replayed and re-evaluated to return to a position.

use crate::ids::Pos;
use core::ops::Range;

/// Cost of a rollback to one position.
///
/// A rollback restores a checkpoint at or before the position, replays tokens from the journal, and
/// leaves the rest to be re-evaluated by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Position of the checkpoint that is restored. It is the wanted position if the caches still
    /// hold everything for it, and 0 if there is no checkpoint before it.
    pub restored_from: Pos,
    /// Number of tokens whose recurrences are replayed from the journal.
    pub replayed: u32,
    /// Number of tokens that the model re-evaluates.
    pub reevaluated: u32,
}

/// Range of positions of a sequence with one kind of rollback cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CostRange {
    /// Range of positions.
    pub positions: Range<Pos>,
    /// Position of the checkpoint that is restored; the positions themselves if the caches hold
    /// everything for them, 0 if there is no checkpoint.
    pub restored_from: Pos,
    /// Kind of work after the checkpoint is restored.
    pub cost: RollbackCost,
}

impl CostRange {
    /// Return a range that the caller made up, to draw it for example.
    pub fn new(positions: Range<Pos>, restored_from: Pos, cost: RollbackCost) -> Self {
        CostRange { positions, restored_from, cost }
    }
}

/// Kind of work that a rollback does after it has restored a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RollbackCost {
    /// No work: the caches hold everything for the position.
    Held,
    /// Replay of the journal, without running the model.
    Replayed,
    /// Re-evaluation of tokens by the model.
    Reevaluated,
}

impl Route {
    /// Return the route to a position for which the caches hold everything.
    pub(crate) fn at_once(pos: Pos) -> Route {
        Route { restored_from: pos, replayed: 0, reevaluated: 0 }
    }

    /// Return the most expensive kind of work of this rollback.
    pub fn cost(&self) -> RollbackCost {
        match self {
            Route { reevaluated: 1.., .. } => RollbackCost::Reevaluated,
            Route { replayed: 1.., .. } => RollbackCost::Replayed,
            _ => RollbackCost::Held,
        }
    }
}
