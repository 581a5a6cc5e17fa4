//! Time spent in each kind of operation.

use super::computation::Graph;
use alloc::vec::Vec;

/// Calls and nanoseconds of one kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProfileRow {
    /// The operation's name.
    pub name: &'static str,
    /// Number of runs.
    pub calls: u64,
    /// Time of all runs.
    pub nanoseconds: u64,
}

/// Sums of time by kind of operation; made for one graph, filled while it runs.
#[derive(Clone, Debug)]
pub struct Profile {
    rows: Vec<ProfileRow>,
    of_step: Vec<usize>,
    clock: fn() -> u64,
}

impl Profile {
    /// Make an empty profile of `graph`; `clock` returns nanoseconds since some fixed moment.
    pub fn new(graph: &Graph, clock: fn() -> u64) -> Self {
        let mut rows: Vec<ProfileRow> = Vec::new();
        let row_of = |name: &'static str| {
            rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
                rows.push(ProfileRow { name, calls: 0, nanoseconds: 0 });
                rows.len() - 1
            })
        };
        let of_step = graph.steps.iter().map(|step| step.name).map(row_of).collect();
        Profile { rows, of_step, clock }
    }

    /// Return the sums, in the order in which the operations first appear.
    pub fn rows(&self) -> &[ProfileRow] {
        &self.rows
    }

    /// Run step number `step` under the clock.
    pub(crate) fn time<R>(&mut self, step: usize, run: impl FnOnce() -> R) -> R {
        let start = (self.clock)();
        let result = run();
        let row = &mut self.rows[self.of_step[step]];
        row.calls += 1;
        row.nanoseconds += (self.clock)().saturating_sub(start);
        result
    }
}
