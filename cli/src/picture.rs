//! A sequence's memory as a picture: the facts to draw, and what follows from them.
//!
//! `backstitch timeline` makes a [`Picture`]. [`text`] draws it for a terminal, [`svg`] as a file
//! and [`json`] writes its numbers for programs. The three agree because everything that is more
//! than layout comes from here: the role of a checkpoint, the cells that a window sees, the cost of
//! a rollback. [`captions`] has the sentences that the drawings share, [`legend`] the colours.

mod captions;
pub mod json;
mod legend;
pub mod svg;
pub mod text;

use backstitch_kv::survey::{Checkpoint, Layers, Survey};
use backstitch_models::{CostRange, Pos, Rollback, RollbackCost};
use std::ops::Range;

/// The memory of a sequence at one moment, with the forks that share it and the rollbacks that led
/// to it.
#[derive(Debug)]
pub struct Picture {
    /// Name of the model.
    pub model: String,
    /// Memory of the sequence.
    pub survey: Survey,
    /// Rollback costs of all its positions, ascending and without gaps.
    pub costs: Vec<CostRange>,
    /// Memory of the sequences that were forked from it.
    pub forks: Vec<Survey>,
    /// Rollbacks that were carried out, in order: the position, and the cost.
    pub rollbacks: Vec<(Pos, Rollback)>,
}

/// The reason for which a checkpoint is retained. Where several hold, the first listed counts: it
/// keeps the checkpoint longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Pinned by the user.
    Pinned,
    /// Retained by the checkpoint schedule.
    Scheduled,
    /// Retained as the start of a journal.
    Journal,
}

impl Role {
    /// Return the role of a checkpoint.
    fn of(checkpoint: &Checkpoint) -> Self {
        match checkpoint {
            Checkpoint { is_pinned: true, .. } => Self::Pinned,
            Checkpoint { is_scheduled: true, .. } => Self::Scheduled,
            _ => Self::Journal,
        }
    }
}

impl Picture {
    /// Return the end of the longest sequence, the last position that is drawn.
    fn end(&self) -> Pos {
        self.forks.iter().map(|fork| fork.end).fold(self.survey.end, Pos::max)
    }

    /// Return the number of tokens that the most expensive rollback re-evaluates, and the first
    /// position with that cost. Within a range the last position is the most expensive.
    fn most_expensive(&self) -> (u32, Pos) {
        let last = |range: &CostRange| Pos(range.positions.end.0 - 1);
        let costs = self.costs.iter().map(|range| (n_reevaluated(range, last(range).0), last(range)));
        costs.fold((0, Pos::ZERO), |most, cost| if cost.0 > most.0 { cost } else { most })
    }

    /// Return the layers with recurrent states; none if the model has no such layers.
    fn recurrent(&self) -> Option<&Layers> {
        self.survey.layers.iter().find(|layers| layers.state_bytes > 0)
    }
}

/// Return the number of tokens re-evaluated in a rollback to `pos`, a position of the range.
fn n_reevaluated(range: &CostRange, pos: i32) -> u32 {
    if range.cost == RollbackCost::Reevaluated {
        pos.saturating_sub(range.restored_from.0).max(0) as u32
    } else {
        0
    }
}

/// Return the groups of layers that retain cells, each with the label of its row: its window, or
/// "blocks" without one.
fn with_cells(survey: &Survey) -> impl Iterator<Item = (&Layers, String)> {
    use backstitch_kv::Window;
    let label = |layers: &Layers| match layers.window {
        Some(Window::Sliding(size)) => format!("window {size}"),
        Some(Window::Chunked(size)) => format!("chunks {size}"),
        Some(Window::Symmetric(size)) => format!("window {size} around"),
        None => "blocks".into(),
    };
    let layers = survey.layers.iter().filter(|layers| layers.block_bytes > 0);
    layers.map(move |layers| (layers, label(layers)))
}

/// Return the group of layers that retains most cells: one without a window, if there is one.
fn widest(survey: &Survey) -> Option<&Layers> {
    with_cells(survey).map(|(layers, _)| layers).max_by_key(|layers| layers.extents.len())
}

/// Return the positions in the window of the next token, itself not counted; none if the layers
/// have no window.
fn in_window(layers: &Layers, end: Pos) -> Option<Range<Pos>> {
    layers.window.map(|window| window.first(end)..end)
}

/// Return the positions whose cells a checkpoint retains for layers with a window; empty if none.
fn retained(layers: &Layers, checkpoint: &Checkpoint) -> Range<Pos> {
    match layers.window {
        Some(window) if checkpoint.n_blocks > 0 => window.first(checkpoint.pos)..checkpoint.pos,
        _ => Pos::ZERO..Pos::ZERO,
    }
}

#[cfg(test)]
mod tests;
