//! What enters a recurrent state, kept for the last tokens; and stepping the states through it again.
//!
//! A replay loads the journaled values of an operation into the arena and runs that operation as it always runs, so its
//! states are the same on bits. Nothing else of the graph is run; what such operations give out is of no interest.

use super::{Frame, Values, recurrent::states_of};
use crate::{
    context::Outputs,
    error::Error,
    graph::{MAX_INPUTS, Op, Value},
};
use backstitch_kv::{StateRun, States, Ubatch};

/// Values that enter one state.
type Inputs = [Option<Value>; MAX_INPUTS];

impl Frame<'_> {
    /// Writes what enters the state of `op`, if it has one, to the journal.
    pub(super) fn log(&mut self, op: &Op, ubatch: &mut Ubatch<'_>) -> Result<(), Error> {
        let Some((state, inputs)) = op.state() else { return Ok(()) };
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            each_piece(&mut self.values, &mut states, &run, &inputs, |value, row| row.copy_from_slice(value));
        }
        Ok(())
    }

    /// Steps the state of `op`, if it has one, through what was journaled.
    pub(super) fn replay(
        &mut self,
        op: &Op,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let Some((state, inputs)) = op.state() else { return Ok(()) };
        let mut states = states_of(ubatch, state)?;
        for run in states.runs() {
            each_piece(&mut self.values, &mut states, &run, &inputs, |value, row| value.copy_from_slice(row));
        }
        self.step(op, ubatch, outputs)
    }
}

/// Calls `f` with every row of every value that enters a state and its place in the journal; not at all if the run is not
/// journaled.
fn each_piece(
    values: &mut Values<'_>,
    states: &mut States<'_>,
    run: &StateRun,
    inputs: &Inputs,
    f: impl Fn(&mut [f32], &mut [f32]),
) {
    let n_tokens = (run.end - run.start) as usize;
    let Some(journal) = states.inputs(run) else { return };
    let width = journal.len() / n_tokens.max(1);
    for (i, mut row) in journal.chunks_exact_mut(width.max(1)).enumerate() {
        for &value in inputs.iter().flatten() {
            let n = values.width(value);
            let start = values.range(value).start + (run.start as usize + i) * n;
            let (piece, rest) = row.split_at_mut(n);
            f(&mut values.arena[start..start + n], piece);
            row = rest;
        }
    }
}
