//! The journal: the values that enter recurrent states, kept for the last tokens; and its replay,
//! which steps the states again.
//!
//! A replay loads the journaled values of a step into the arena and runs that step as it always
//! runs, so its states have the same bits. It runs no other step of the graph, and ignores what the
//! steps write.

use super::frame::{Frame, Values};
use super::outputs::Outputs;
use super::recurrent::states_of;
use crate::{
    error::Error,
    graph::{Step, Value},
};
use backstitch_kv::{StateSegment, States, Ubatch};

impl Frame<'_> {
    /// Write the values that enter the step's state, if it has one, to the journal.
    pub(super) fn log(&mut self, step: &Step, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let Some(state) = step.state() else { return Ok(()) };
        let mut states = states_of(ubatch, state)?;
        for run in states.segments() {
            each_piece(&mut self.values, &mut states, &run, &state.journaled, |value, row| {
                row.copy_from_slice(value)
            });
        }
        Ok(())
    }

    /// Step the step's state, if it has one, through the journaled values.
    pub(super) fn replay(
        &mut self,
        step: &Step,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let Some(state) = step.state() else { return Ok(()) };
        let mut states = states_of(ubatch, state)?;
        for run in states.segments() {
            each_piece(&mut self.values, &mut states, &run, &state.journaled, |value, row| {
                value.copy_from_slice(row)
            });
        }
        self.step(step, ubatch, outputs)
    }
}

/// Call `f` with every row of every journaled value and its place in the journal; not at all if the
/// segment is not journaled.
fn each_piece(
    values: &mut Values<'_>,
    states: &mut States<'_>,
    run: &StateSegment,
    journaled: &[Value],
    f: impl Fn(&mut [f32], &mut [f32]),
) {
    let n_tokens = (run.end - run.start) as usize;
    let Some(journal) = states.inputs(run) else { return };
    let width = journal.len() / n_tokens.max(1);
    for (i, mut row) in journal.chunks_exact_mut(width.max(1)).enumerate() {
        for &value in journaled {
            let n = values.width(value);
            let start = values.range(value).start + (run.start as usize + i) * n;
            let (piece, rest) = row.split_at_mut(n);
            f(&mut values.arena[start..start + n], piece);
            row = rest;
        }
    }
}
