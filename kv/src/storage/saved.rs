//! Saved states: a snapshot as sections of a container, and the files that such containers lie in.
//!
//! `SHAP` describes the layers, `MEMO` the snapshot; the bytes are in one section for each block of
//! cells (`CELL`), state (`STAT`) and journal (`ROWS`). A block that is not full is stored cell by
//! cell, and as several sections if it grew between saves: what was written once is not written
//! again.

mod encode;
#[cfg(feature = "std")]
mod file;
mod pieces;
#[cfg(feature = "std")]
mod save;
#[cfg(test)]
mod tests;

use super::container::{
    Container, MAX_DIRECTORY, MAX_IMAGE, MAX_SHAPE, Pending, RECORD_BYTES, Room, Section, Writer,
    expect_at_most,
};
use super::error::{Error, expect_equal};
use super::header::Tag;
use crate::snapshot::import::ImportError;
use crate::snapshot::{Block, Content, Group, Snapshot, Source};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::BLOCK_CELLS;
use backstitch_core::pool::{Inline, Pool};

pub use encode::encode_shape;
#[cfg(feature = "std")]
pub use file::StateFile;
use pieces::GroupPieces;
#[cfg(feature = "std")]
pub use save::{Saved, Sync, Watch, save, save_watched};

/// The shape of the layers.
pub const SHAPE: Tag = Tag(*b"SHAP");
/// The snapshot.
pub const IMAGE: Tag = Tag(*b"MEMO");
/// Cells of a block.
pub const CELLS: Tag = Tag(*b"CELL");
/// A recurrent state.
pub const STATE: Tag = Tag(*b"STAT");
/// A journal.
pub const ROWS: Tag = Tag(*b"ROWS");

/// The version of all of them.
pub const SNAPSHOT_VERSION: u16 = 2;

/// Sections that are written together, at most.
const MAX_WAITING: usize = 256;

/// All cells of a block.
const ALL: u32 = u32::MAX;

/// The tags and versions that a snapshot is read from.
pub const IMAGE_TAGS: [(Tag, u16); 5] = [
    (SHAPE, SNAPSHOT_VERSION),
    (IMAGE, SNAPSHOT_VERSION),
    (CELLS, SNAPSHOT_VERSION),
    (STATE, SNAPSHOT_VERSION),
    (ROWS, SNAPSHOT_VERSION),
];

impl<E: Into<Error>> From<ImportError<E>> for Error {
    fn from(error: ImportError<E>) -> Self {
        match error {
            ImportError::Memory(error) => Error::Memory(error),
            ImportError::Source(error) => error.into(),
        }
    }
}

/// Write all of `content`. Where a container is continued, `old` is the snapshot in it.
///
/// # Errors
/// Those of the writer; [`Error::TooLarge`] and [`Error::Memory`] before anything is written, if it
/// could not be read again, or `content` is of a memory [without
/// storage](crate::Memory::without_storage): its bytes are not there to be written.
pub fn write_snapshot(
    writer: &mut Writer<'_>,
    content: &impl Content,
    old: Option<&StoredSnapshot<'_>>,
) -> Result<(), Error> {
    write_snapshot_with(writer, content, old, &Inline)
}

/// As [`write_snapshot`], with what is known already looked for, and [room](crate::io::Write::room)
/// filled, on all threads of `pool`; the same bytes are written.
///
/// # Errors
/// As [`write_snapshot`].
pub fn write_snapshot_with(
    writer: &mut Writer<'_>,
    content: &impl Content,
    old: Option<&StoredSnapshot<'_>>,
    pool: &dyn Pool,
) -> Result<(), Error> {
    expect_storage(content)?;
    put_snapshot(writer, content, old, pool, true)
}

/// Refuse what has no bytes to write: a snapshot of a memory whose bytes somebody else has.
fn expect_storage(content: &impl Content) -> Result<(), Error> {
    let snapshot = content.snapshot();
    let mut groups = snapshot.shape.groups.iter().zip(&snapshot.blocks).enumerate();
    let lacks_cells = |(number, (group, blocks)): (usize, (&Group, &Vec<Block>))| {
        !blocks.is_empty() && content.block(number, 0).len() < group.layers.len()
    };
    let lacks_states = snapshot.n_states > 0 && content.state(0).iter().all(|piece| piece.is_empty());
    let lacks_bytes = lacks_states || groups.any(lacks_cells);
    if lacks_bytes { Err(Error::Memory(crate::Error::NoStorage)) } else { Ok(()) }
}

/// As [`write_snapshot`], whatever the snapshot says: for tests of those who read it.
///
/// # Errors
/// Those of the writer.
#[cfg(any(test, feature = "testing"))]
pub fn forge_snapshot(
    writer: &mut Writer<'_>,
    content: &impl Content,
    old: Option<&StoredSnapshot<'_>>,
) -> Result<(), Error> {
    put_snapshot(writer, content, old, &Inline, false)
}

/// Write all of `content`; if it is `checked`, only what could be read again.
fn put_snapshot(
    writer: &mut Writer<'_>,
    content: &impl Content,
    old: Option<&StoredSnapshot<'_>>,
    pool: &dyn Pool,
    checked: bool,
) -> Result<(), Error> {
    let snapshot = content.snapshot();
    let pieces = pieces::plan(snapshot, old.map(|old| (&old.snapshot, &*old.pieces)));
    let (shape, description) = (encode_shape(&snapshot.shape), encode::snapshot(snapshot, &pieces)?);
    if checked {
        expect_read_again(snapshot, &pieces, &shape, &description)?;
    }
    writer.section(SHAPE, SNAPSHOT_VERSION, true, 0, &[&shape])?;
    writer.section(IMAGE, SNAPSHOT_VERSION, true, 0, &[&description])?;
    let groups = pieces.iter().zip(&snapshot.shape.groups).enumerate();
    let cells = groups.flat_map(|(group, (pieces, layers))| {
        let blocks = (0..pieces.ends.len()).map(|block| (block, pieces.range(block).zip(pieces.of(block))));
        let numbered = blocks.flat_map(|(block, pieces)| pieces.map(move |piece| (block, piece)));
        numbered.map(move |(block, (number, &mask))| {
            let bytes = content.block(group, block);
            let bytes = match mask {
                ALL => bytes.into_iter().map(Cow::Borrowed).collect(),
                _ => vec![Cow::Owned(take_cells(layers, &bytes, mask))],
            };
            pending(CELLS, section_index(group, number), bytes)
        })
    });
    let states = (0..snapshot.n_states as usize)
        .map(|state| pending(STATE, state as u64, bytes_of(content.state(state))));
    let journals = (0..snapshot.journals.len())
        .map(|journal| pending(ROWS, journal as u64, bytes_of(content.journal(journal))));
    let mut waiting = Vec::new();
    for section in cells.chain(states).chain(journals) {
        // Copies of cells take memory, and do not wait for others.
        let is_copy = matches!(*section.pieces, [Cow::Owned(_)]);
        waiting.push(section);
        if is_copy || waiting.len() == MAX_WAITING {
            writer.sections(core::mem::take(&mut waiting), pool)?;
        }
    }
    writer.sections(waiting, pool)
}

/// Read the descriptions as a reader does, so that nothing is written that it would refuse. The
/// container has more bytes than what is counted here of it.
fn expect_read_again(
    snapshot: &Snapshot,
    pieces: &[GroupPieces],
    shape: &[u8],
    description: &[u8],
) -> Result<(), Error> {
    let n_pieces: usize = pieces.iter().map(|group| group.masks.len()).sum();
    let n_sections = n_pieces + snapshot.n_states as usize + snapshot.journals.len();
    let bytes = description.len() as u64 + RECORD_BYTES * n_sections as u64;
    expect_at_most("bytes of the directory", RECORD_BYTES * n_sections as u64, MAX_DIRECTORY)?;
    expect_at_most("bytes of a description of layers", shape.len() as u64, MAX_SHAPE)?;
    let shape = encode::read_shape(shape)?;
    let (again, _) = encode::read_snapshot(description, shape, Room::of(bytes))?;
    Ok(again.check()?)
}

fn pending(tag: Tag, index: u64, pieces: Vec<Cow<'_, [u8]>>) -> Pending<'_> {
    Pending { section: Section::named(tag, SNAPSHOT_VERSION, true, index), pieces }
}

fn bytes_of(pieces: Vec<&[f32]>) -> Vec<Cow<'_, [u8]>> {
    pieces.into_iter().map(|piece| Cow::Borrowed(bytemuck::must_cast_slice(piece))).collect()
}

/// Return the index of the section with the `number`th piece of a group.
fn section_index(group: usize, number: usize) -> u64 {
    (group as u64) << 32 | number as u64
}

fn cells_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..BLOCK_CELLS).filter(move |cell| mask >> cell & 1 == 1)
}

/// Some cells of a block, layer by layer.
fn take_cells(group: &Group, layers: &[&[u8]], mask: u32) -> Vec<u8> {
    let mut rows = Vec::new();
    for (layout, layer) in group.layouts().zip(layers) {
        for cell in cells_of(mask) {
            let start = rows.len();
            rows.resize(start + layout.cell_bytes(), 0);
            layout.take_cell(layer, cell, &mut rows[start..]);
        }
    }
    rows
}

/// The snapshot that a container holds, checked, with its bytes at hand.
#[derive(Debug)]
pub struct StoredSnapshot<'a> {
    container: &'a Container<'a>,
    snapshot: Snapshot,
    pieces: Vec<GroupPieces>,
}

impl<'a> StoredSnapshot<'a> {
    /// Read the description and check it, and that all sections which it needs are there and as
    /// long as they must be.
    ///
    /// # Errors
    /// [`Error`] with the section that is missing or wrong, [`Error::Memory`] where the description
    /// contradicts itself.
    pub fn open(container: &'a Container<'a>) -> Result<Self, Error> {
        let (shape, described) = (container.require(SHAPE, 0)?, container.require(IMAGE, 0)?);
        let shape = encode::read_shape(&container.read_at_most(shape, MAX_SHAPE)?)?;
        let room = Room::of(container.committed_len());
        let description = container.read_at_most(described, MAX_IMAGE)?;
        let (snapshot, pieces) = encode::read_snapshot(&description, shape, room)?;
        snapshot.check().map_err(Error::Memory)?;
        pieces::check(&pieces, &snapshot, described.offset)?;
        let stored = StoredSnapshot { container, snapshot, pieces };
        stored.check_lengths()?;
        Ok(stored)
    }

    /// Return the description.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Sections are there and have the lengths that the snapshot says.
    fn check_lengths(&self) -> Result<(), Error> {
        let shape = &self.snapshot.shape;
        for (group, (pieces, layers)) in self.pieces.iter().zip(&shape.groups).enumerate() {
            let cell: u64 = layers.layouts().map(|layout| layout.cell_bytes() as u64).sum();
            for (number, mask) in pieces.masks.iter().enumerate() {
                let len = cell * u64::from(mask.count_ones());
                self.check_length(CELLS, section_index(group, number), len)?;
            }
        }
        let len = |of: fn(&crate::StateTensor) -> usize| -> u64 {
            shape.pieces().map(|piece| 4 * of(piece) as u64).fold(0, u64::saturating_add)
        };
        let (state, row) = (len(|piece| piece.len), len(|piece| piece.input));
        for number in 0..self.snapshot.n_states {
            self.check_length(STATE, number.into(), state)?;
        }
        for (number, n_rows) in self.snapshot.journals.iter().enumerate() {
            self.check_length(ROWS, number as u64, row.saturating_mul((*n_rows).into()))?;
        }
        Ok(())
    }

    fn check_length(&self, tag: Tag, index: u64, wanted: u64) -> Result<(), Error> {
        self.container.require(tag, index)?.expect_len(wanted)
    }

    fn fill_numbers(&self, tag: Tag, index: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        let mut targets: Vec<&mut [u8]> =
            pieces.iter_mut().map(|piece| bytemuck::must_cast_slice_mut(piece)).collect();
        self.container.read_into(self.container.require(tag, index as u64)?, &mut targets)
    }

    fn fill_cells(
        &self,
        group: &Group,
        section: &Section,
        mask: u32,
        layers: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let rows = self.container.read(section)?;
        let mut rest: &[u8] = &rows;
        for (layout, layer) in group.layouts().zip(layers) {
            let (found, wanted) = (layer.len() as u64, layout.block_bytes() as u64);
            expect_equal(section.tag, section.offset, "bytes of a layer's block", found, wanted)?;
            for cell in cells_of(mask) {
                // Opening has checked that the section has all these rows.
                let (row, after) = rest.split_at(layout.cell_bytes());
                layout.put_cell(layer, cell, row);
                rest = after;
            }
        }
        Ok(())
    }
}

impl Source for StoredSnapshot<'_> {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        let missing = Error::Missing { section: CELLS, index: section_index(group, block) };
        let known = self.pieces.get(group).zip(self.snapshot.shape.groups.get(group));
        let (pieces, shape) = known.filter(|(pieces, _)| block < pieces.ends.len()).ok_or(missing)?;
        for (number, &mask) in pieces.range(block).zip(pieces.of(block)) {
            let index = section_index(group, number);
            let section = self.container.require(CELLS, index)?;
            match mask {
                ALL => self.container.read_into(section, layers)?,
                _ => self.fill_cells(shape, section, mask, layers)?,
            }
        }
        Ok(())
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.fill_numbers(STATE, state, pieces)
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        self.fill_numbers(ROWS, journal, pieces)
    }
}
