//! Snapshots with bytes of their own.

use super::{Content, Snapshot, Source};
use crate::error::Error;
use alloc::vec::Vec;

/// A snapshot and its bytes, independent of any memory or file.
///
/// [`Owned::copy`] makes it of an export or a state file. It is a [`Content`] to save and a
/// [`Source`] to import; the example of the [module](super) does the latter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owned {
    /// Description of the bytes.
    pub snapshot: Snapshot,
    /// Bytes per group, block and layer: 32 cells in the layout of
    /// [`Group::layout`](super::Group::layout).
    pub blocks: Vec<Vec<Vec<Vec<u8>>>>,
    /// Values per state and tensor.
    pub states: Vec<Vec<Vec<f32>>>,
    /// Rows per journal and state tensor, `[n_rows, input]` each.
    pub journals: Vec<Vec<Vec<f32>>>,
}

fn copies<T: Clone>(slices: &[&[T]]) -> Vec<Vec<T>> {
    slices.iter().map(|slice| slice.to_vec()).collect()
}

impl Owned {
    /// Copy all bytes of `content`.
    pub fn copy(content: &impl Content) -> Owned {
        let snapshot = content.snapshot().clone();
        let group = |(group, blocks): (usize, &Vec<_>)| {
            (0..blocks.len()).map(|block| copies(&content.block(group, block))).collect()
        };
        Owned {
            blocks: snapshot.blocks.iter().enumerate().map(group).collect(),
            states: (0..snapshot.n_states as usize).map(|state| copies(&content.state(state))).collect(),
            journals: (0..snapshot.journals.len()).map(|number| copies(&content.journal(number))).collect(),
            snapshot,
        }
    }

    /// Read all bytes of `snapshot` from `source`.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn load<S: Source>(snapshot: &Snapshot, source: &S) -> Result<Owned, S::Error> {
        let Snapshot { shape, blocks, n_states, journals, .. } = snapshot;
        let mut owned = Owned { snapshot: snapshot.clone(), ..Owned::default() };
        for (group, (blocks, layers)) in blocks.iter().zip(&shape.groups).enumerate() {
            let lens = || layers.layouts().map(|layout| layout.block_bytes());
            let load = |block| filled(lens(), |layers| source.fill_block(group, block, layers));
            owned.blocks.push((0..blocks.len()).map(load).collect::<Result<_, _>>()?);
        }
        for state in 0..*n_states as usize {
            let lens = shape.pieces().map(|piece| piece.len);
            owned.states.push(filled(lens, |pieces| source.fill_state(state, pieces))?);
        }
        for (journal, &n_rows) in journals.iter().enumerate() {
            let lens = shape.pieces().map(|piece| piece.input * n_rows as usize);
            owned.journals.push(filled(lens, |pieces| source.fill_journal(journal, pieces))?);
        }
        Ok(owned)
    }
}

/// Return buffers of these lengths with what `fill` writes into them.
pub(super) fn filled<T: Clone + Default, E>(
    lens: impl Iterator<Item = usize>,
    fill: impl FnOnce(&mut [&mut [T]]) -> Result<(), E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut buffers: Vec<Vec<T>> = lens.map(|len| alloc::vec![T::default(); len]).collect();
    let mut targets: Vec<&mut [T]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    fill(&mut targets)?;
    Ok(buffers)
}

fn slices<T>(list: Option<&Vec<Vec<T>>>) -> Vec<&[T]> {
    list.into_iter().flatten().map(Vec::as_slice).collect()
}

impl Content for Owned {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        slices(self.blocks.get(group).and_then(|blocks| blocks.get(block)))
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        slices(self.states.get(state))
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        slices(self.journals.get(journal))
    }
}

/// Copy slices into targets, whose number and lengths have to match.
fn fill<T: Copy>(slices: &[&[T]], targets: &mut [&mut [T]], what: &'static str) -> Result<(), Error> {
    let ensure = |found: usize, wanted: usize| match found == wanted {
        true => Ok(()),
        false => Err(Error::Shape { what, found: found as u64, wanted: wanted as u64 }),
    };
    ensure(slices.len(), targets.len())?;
    for (slice, target) in slices.iter().zip(targets) {
        ensure(slice.len(), target.len())?;
        target.copy_from_slice(slice);
    }
    Ok(())
}

impl Source for Owned {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        fill(&self.block(group, block), layers, "bytes of a block")
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        fill(&self.state(state), pieces, "numbers of a state")
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        fill(&self.journal(journal), pieces, "rows of a journal")
    }
}
