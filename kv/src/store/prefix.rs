//! A stored beginning of a prompt as an image that a memory can take.

use super::{Doing, Error, Found, Payload};
use crate::ids::Pos;
use crate::image::{Block, Cells, Image, Sequence, Shape, Source};
use crate::state::{self, Container, StoredImage};
use backstitch_core::cell::{BLOCK_CELLS, Extent};
use core::fmt;
use std::boxed::Box;
use std::io::ErrorKind;
use std::path::Path;
use std::vec;
use std::vec::Vec;

/// Bytes of a payload that are read into memory of its own, at most.
const MAX_OWNED: u64 = 1 << 30;

/// Why a stored beginning is of no use.
#[derive(Debug)]
pub enum Unusable {
    /// Its bytes cannot be had.
    Store(Error),
    /// Its resume point is not sound.
    State(state::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Store(error) => error.fmt(f),
            Unusable::State(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Unusable {}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Unusable::Store(error)
    }
}

impl From<state::Error> for Unusable {
    fn from(error: state::Error) -> Self {
        Unusable::State(error)
    }
}

impl Payload {
    /// All of it, at most 1 GiB.
    ///
    /// # Errors
    /// [`Error::LongPayload`], and as [`Payload::read`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        // A file can be long without being full: its length does not justify any allocation.
        if self.len() > MAX_OWNED {
            return Err(Error::LongPayload { path: self.path(), bytes: self.len(), limit: MAX_OWNED });
        }
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let doing = Doing::Read;
        let refused = |_| Error::Io { doing, path: self.path(), error: ErrorKind::OutOfMemory.into() };
        bytes.try_reserve_exact(len).map_err(refused)?;
        bytes.resize(len, 0);
        self.read(&mut [&mut bytes])?;
        Ok(bytes)
    }

    /// The file that it lies in.
    fn path(&self) -> Box<Path> {
        self.pack.store.folder.path_of(&self.pack.name).into()
    }
}

/// The beginning of a sequence, of whole blocks, and the bytes of it that lie in a store.
#[derive(Debug)]
pub struct Prefix<'a> {
    image: Image,
    blocks: &'a [Payload],
    resume: Option<StoredImage<'a>>,
    /// The group whose cells are in the blocks.
    all: Option<usize>,
}

impl<'a> Prefix<'a> {
    /// What `found` holds for layers of this shape; `resume` is the container of its resume point, where the shape needs one.
    ///
    /// # Errors
    /// [`state::Error`] if that is not a resume point of such layers.
    pub fn new(
        shape: &Shape,
        found: &'a Found,
        resume: Option<&'a Container<'a>>,
    ) -> Result<Self, state::Error> {
        let resume = resume.map(StoredImage::open).transpose()?;
        let n_blocks = found.n_tokens / BLOCK_CELLS;
        let all = shape.group_of_all();
        let mut sequence = Sequence { last: Pos(found.n_tokens as i32 - 1), ..Sequence::default() };
        let mut blocks = Vec::new();
        let mut rest = resume.as_ref().map(StoredImage::image).cloned().unwrap_or_default();
        let is_alike = rest.shape == shape.resumed() && rest.checkpoints.is_empty();
        let ([] | [_], true) = (rest.sequences.as_slice(), is_alike) else { return Err(unlike(&rest)) };
        let own = rest.sequences.pop().unwrap_or_default();
        sequence.state = own.state;
        let mut others = own.cells.into_iter().zip(rest.blocks);
        for group in 0..shape.groups.len() {
            let (cells, list) = match Some(group) == all {
                true => full(n_blocks),
                false => others.next().ok_or_else(|| unlike(&Image::default()))?,
            };
            sequence.cells.push(cells);
            blocks.push(list);
        }
        let sequences = vec![sequence];
        let image =
            Image { shape: shape.clone(), blocks, n_states: rest.n_states, sequences, ..Image::default() };
        Ok(Prefix { image, blocks: &found.blocks, resume, all })
    }

    /// One sequence: the beginning.
    pub fn image(&self) -> &Image {
        &self.image
    }

    fn rest(&self) -> Result<&StoredImage<'a>, state::Error> {
        self.resume.as_ref().ok_or(state::Error::Missing { section: state::IMAGE, index: 0 })
    }
}

fn unlike(found: &Image) -> state::Error {
    let (found, what) = (found.sequences.len() as u64, "sequences of a resume point");
    state::Error::Malformed { section: state::IMAGE, offset: 0, what, found, wanted: 1 }
}

/// Full blocks one after the other.
fn full(n_blocks: usize) -> (Cells, Vec<Block>) {
    let extents = (0..n_blocks as u32).map(|block| Extent { block, live: u32::MAX }).collect();
    let block = |i: usize| Block {
        live: u32::MAX,
        pos: core::array::from_fn(|cell| Pos((i * BLOCK_CELLS + cell) as i32)),
    };
    (Cells { extents, ..Cells::default() }, (0..n_blocks).map(block).collect())
}

impl Source for Prefix<'_> {
    type Error = Unusable;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Unusable> {
        if Some(group) != self.all {
            let before = usize::from(self.all.is_some_and(|all| all < group));
            return Ok(self.rest()?.fill_block(group - before, block, layers)?);
        }
        match self.blocks.get(block) {
            Some(payload) => Ok(payload.read(layers)?),
            None => Err(Error::Gap { block: block as u64 }.into()),
        }
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Unusable> {
        Ok(self.rest()?.fill_state(state, pieces)?)
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Unusable> {
        Ok(self.rest()?.fill_journal(journal, pieces)?)
    }
}
