//! A sequence's memory as a picture: what there is to draw. `text`, `svg` and `json` draw it.

pub mod json;
mod legend;
pub mod svg;
pub mod text;

use backstitch_kv::survey::{Checkpoint, Layers, Survey};
use backstitch_models::{CostRange, Pos, Rollback, RollbackCost};
use std::ops::Range;

/// What is drawn.
#[derive(Debug)]
pub struct Picture {
    /// The model's name.
    pub model: String,
    /// The sequence.
    pub survey: Survey,
    /// How each of its positions is reached again, ascending.
    pub ways: Vec<CostRange>,
    /// Sequences that parted from it.
    pub forks: Vec<Survey>,
    /// What was gone back to, and what that took.
    pub rollbacks: Vec<(Pos, Rollback)>,
}

/// What a checkpoint is for, first what matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Pinned,
    Scheduled,
    Journal,
}

impl Picture {
    /// The end of the longest sequence.
    fn end(&self) -> Pos {
        self.forks.iter().map(|fork| fork.end).fold(self.survey.end, Pos::max)
    }

    /// Return the tokens of the most expensive rollback, and its position.
    fn most_expensive(&self) -> (u32, Pos) {
        let most_expensive =
            |way: &CostRange| (n_reevaluated(way, way.positions.end.0 - 1), Pos(way.positions.end.0 - 1));
        let dearer = |a: (u32, Pos), b: (u32, Pos)| if b.0 > a.0 { b } else { a };
        self.ways.iter().map(most_expensive).fold((0, Pos::ZERO), dearer)
    }

    /// The part that has recurrent states, if one does.
    fn recurrent(&self) -> Option<&Layers> {
        self.survey.layers.iter().find(|layers| layers.state_bytes > 0)
    }
}

/// Return the number of tokens re-evaluated in a rollback to `pos`, a position of `way`.
fn n_reevaluated(way: &CostRange, pos: i32) -> u32 {
    if way.cost == RollbackCost::Reevaluated {
        pos.saturating_sub(way.restored_from.0).max(0) as u32
    } else {
        0
    }
}

fn role(checkpoint: &Checkpoint) -> Role {
    match checkpoint {
        Checkpoint { is_pinned: true, .. } => Role::Pinned,
        Checkpoint { is_scheduled: true, .. } => Role::Scheduled,
        _ => Role::Journal,
    }
}

/// The parts that keep cells, each with its name.
fn with_cells(survey: &Survey) -> impl Iterator<Item = (&Layers, String)> {
    let named = |layers| {
        let name = window_name(layers).map_or("blocks".into(), |(kind, size)| format!("{kind} {size}"));
        (layers, name)
    };
    survey.layers.iter().filter(|layers| layers.block_bytes > 0).map(named)
}

fn window_name(layers: &Layers) -> Option<(&'static str, u32)> {
    use backstitch_kv::Window;
    Some(match layers.window? {
        Window::Sliding(size) => ("window", size),
        Window::Chunked(size) => ("chunks", size),
    })
}

/// The part that keeps most cells: one without a window, if there is one.
fn widest(survey: &Survey) -> Option<&Layers> {
    with_cells(survey).map(|(layers, _)| layers).max_by_key(|layers| layers.extents.len())
}

/// The positions that the next token sees, itself not counted.
fn seen(layers: &Layers, end: Pos) -> Option<Range<Pos>> {
    layers.window.map(|window| window.first(end)..end)
}

/// The positions whose cells a checkpoint keeps for layers with a window.
fn kept(layers: &Layers, checkpoint: &Checkpoint) -> Range<Pos> {
    match layers.window {
        Some(window) if checkpoint.n_blocks > 0 => window.first(checkpoint.pos)..checkpoint.pos,
        _ => Pos::ZERO..Pos::ZERO,
    }
}

/// "1 token", "2 tokens".
fn count(n: impl Into<u64>, what: &str) -> String {
    match n.into() {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// What a rollback took.
fn told(pos: Pos, took: &Rollback) -> String {
    let from = took.restored_from;
    match took {
        Rollback { reevaluated: 1.., .. } => {
            format!(
                "rollback to {pos}: restored from {from}, {} re-evaluated",
                count(took.reevaluated, "token")
            )
        }
        Rollback { replayed: 1.., .. } => {
            format!(
                "rollback to {pos}: restored from {from}, {} replayed, none evaluated",
                count(took.replayed, "token")
            )
        }
        _ => format!("rollback to {pos}: held, nothing replayed or evaluated"),
    }
}

/// Name of what is drawn, its length, and its kind of memory.
fn title(picture: &Picture) -> String {
    let model = crate::output::shorten(&crate::error::one_line(&picture.model));
    let n_tokens = count(picture.survey.end.0.max(0) as u64, "token");
    format!("{model}: {n_tokens}, {} memory", picture.survey.kind)
}

/// What takes how many bytes: name, bytes, explanation.
fn costs(picture: &Picture) -> Vec<(&'static str, u64, String)> {
    let Survey { layers, checkpoints, budget, .. } = &picture.survey;
    let bytes = picture.survey.bytes();
    let mut costs = Vec::new();
    let extents = || layers.iter().flat_map(|layers| &layers.extents);
    let n_layers =
        |has: fn(&Layers) -> bool| layers.iter().filter(|l| has(l)).map(|l| l.n_layer as u64).sum::<u64>();
    if bytes.cells > 0 {
        let (n, n_shared) =
            (extents().count() as u64, extents().filter(|extent| extent.sequences > 1).count());
        let shared =
            if n_shared > 0 { format!(", {n_shared} of them shared with forks") } else { String::new() };
        let of = count(n_layers(|l| l.block_bytes > 0), "layer");
        costs.push(("cells", bytes.cells, format!("{} in {of}{shared}", count(n, "block"))));
    }
    if let Some(recurrent) = picture.recurrent().filter(|_| bytes.states > 0) {
        let shared = recurrent.state_users.saturating_sub(1);
        let shared = match shared {
            0 => String::new(),
            n => format!(", with {}", count(n, "other user")),
        };
        let of = count(n_layers(|l| l.state_bytes > 0), "layer");
        costs.push(("state", bytes.states, format!("after the last token, in {of}{shared}")));
    }
    if budget.n_paid > 0 || !checkpoints.is_empty() {
        let n = |wanted| checkpoints.iter().filter(|checkpoint| role(checkpoint) == wanted).count();
        let (pinned, scheduled, journal) = (n(Role::Pinned), n(Role::Scheduled), n(Role::Journal));
        let what = format!(
            "{}: {pinned} pinned, {scheduled} of the checkpoint schedule, {journal} for the journal",
            checkpoints.len()
        );
        costs.push(("checkpoints", bytes.checkpoints, what));
        if picture.recurrent().is_some() {
            let n_rows: u64 = checkpoints.iter().map(|checkpoint| u64::from(checkpoint.n_rows)).sum();
            costs.push(("journal", bytes.journal, format!("inputs of {}", count(n_rows, "token"))));
        }
        let paid = format!("at most, for up to {} of all sequences", count(budget.n_paid, "checkpoint"));
        costs.push(("budget", budget.params.checkpoint_bytes, paid));
    }
    costs
}

#[cfg(test)]
mod tests;
