//! A stored beginning of a prompt as a snapshot that a memory can take.

use super::found::{Found, Payload};
use crate::ids::Pos;
use crate::snapshot::{Block, Cells, Sequence, Shape, Snapshot, Source};
use crate::storage::container::Container;
use crate::storage::error::Error;
use crate::storage::saved::{IMAGE, StoredSnapshot};
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry};
use std::vec::Vec;

/// The beginning of a sequence, of whole blocks, and the bytes of it that lie in a prompt cache.
#[derive(Debug)]
pub struct Prefix<'a> {
    snapshot: Snapshot,
    blocks: &'a [Payload],
    resume: Option<StoredSnapshot<'a>>,
    /// The group whose cells are in the blocks.
    all: Option<usize>,
}

impl<'a> Prefix<'a> {
    /// Describe what `found` holds for layers of this shape; `resume` is the container of its
    /// resume point, where the shape needs one.
    ///
    /// # Errors
    /// [`Error::Malformed`] if that is not a resume point of such layers, and what
    /// [`StoredSnapshot::open`] says.
    pub fn new(shape: &Shape, found: &'a Found, resume: Option<&'a Container<'a>>) -> Result<Self, Error> {
        let resume = resume.map(StoredSnapshot::open).transpose()?;
        let n_blocks = found.n_tokens / BLOCK_CELLS;
        let all = shape.group_of_all();
        let mut rest = resume.as_ref().map(StoredSnapshot::snapshot).cloned().unwrap_or_default();
        let is_alike = rest.shape == shape.resumed() && rest.checkpoints.is_empty();
        let ([] | [_], true) = (rest.sequences.as_slice(), is_alike) else { return Err(unlike(&rest)) };
        let own = rest.sequences.pop().unwrap_or_default();
        let last = Pos(found.n_tokens as i32 - 1);
        let mut others = own.cells.into_iter().zip(rest.blocks);
        let groups = (0..shape.groups.len()).map(|group| match Some(group) == all {
            true => Some(full(n_blocks)),
            false => others.next(),
        });
        let groups: Option<(Vec<_>, Vec<_>)> = groups.collect();
        let (cells, blocks) = groups.ok_or_else(|| unlike(&Snapshot::default()))?;
        let sequences = Vec::from([Sequence { cells, state: own.state, last, ..Sequence::default() }]);
        let (shape, n_states) = (shape.clone(), rest.n_states);
        let snapshot = Snapshot { shape, blocks, n_states, sequences, ..Snapshot::default() };
        Ok(Prefix { snapshot, blocks: &found.blocks, resume, all })
    }

    /// Return the description: one sequence, the beginning.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn rest(&self) -> Result<&StoredSnapshot<'a>, Error> {
        self.resume.as_ref().ok_or(Error::Missing { section: IMAGE, index: 0 })
    }
}

fn unlike(found: &Snapshot) -> Error {
    let (found, what) = (found.sequences.len() as u64, "sequences of a resume point");
    Error::Malformed { section: IMAGE, offset: 0, what, found, wanted: 1 }
}

/// Return full blocks one after the other.
fn full(n_blocks: usize) -> (Cells, Vec<Block>) {
    let extents = (0..n_blocks as u32).map(|block| BlockEntry { block, live: u32::MAX }).collect();
    let block = |i: usize| Block {
        live: u32::MAX,
        pos: core::array::from_fn(|cell| Pos((i * BLOCK_CELLS + cell) as i32)),
    };
    (Cells { extents, ..Cells::default() }, (0..n_blocks).map(block).collect())
}

impl Source for Prefix<'_> {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        if Some(group) != self.all {
            let before = usize::from(self.all.is_some_and(|all| all < group));
            return self.rest()?.fill_block(group - before, block, layers);
        }
        self.blocks.get(block).ok_or(Error::Gap { block: block as u64 })?.read(layers)
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.rest()?.fill_state(state, pieces)
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.rest()?.fill_journal(journal, pieces)
    }
}
