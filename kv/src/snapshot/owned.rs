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
        let mut owned = Owned { snapshot: snapshot.clone(), ..Owned::default() };
        for (group, blocks) in snapshot.blocks.iter().enumerate() {
            let layouts: Vec<_> =
                snapshot.shape.groups.get(group).into_iter().flat_map(|g| g.layouts()).collect();
            let mut list = Vec::with_capacity(blocks.len());
            for block in 0..blocks.len() {
                let mut layers: Vec<Vec<u8>> =
                    layouts.iter().map(|layout| alloc::vec![0; layout.block_bytes()]).collect();
                let mut targets: Vec<&mut [u8]> = layers.iter_mut().map(Vec::as_mut_slice).collect();
                source.fill_block(group, block, &mut targets)?;
                list.push(layers);
            }
            owned.blocks.push(list);
        }
        let zeros = |len: usize| alloc::vec![0.0; len];
        for state in 0..snapshot.n_states as usize {
            let mut pieces: Vec<Vec<f32>> = snapshot.shape.pieces().map(|piece| zeros(piece.len)).collect();
            let mut targets: Vec<&mut [f32]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_state(state, &mut targets)?;
            owned.states.push(pieces);
        }
        for (journal, &n_rows) in snapshot.journals.iter().enumerate() {
            let rows = |input: usize| zeros(input * n_rows as usize);
            let mut pieces: Vec<Vec<f32>> = snapshot.shape.pieces().map(|piece| rows(piece.input)).collect();
            let mut targets: Vec<&mut [f32]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_journal(journal, &mut targets)?;
            owned.journals.push(pieces);
        }
        Ok(owned)
    }
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
    let (found, wanted) = (slices.len() as u64, targets.len() as u64);
    if found != wanted {
        return Err(Error::Shape { what, found, wanted });
    }
    for (slice, target) in slices.iter().zip(targets) {
        let (found, wanted) = (slice.len() as u64, target.len() as u64);
        if found != wanted {
            return Err(Error::Shape { what, found, wanted });
        }
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
