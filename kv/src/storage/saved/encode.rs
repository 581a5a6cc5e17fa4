//! The descriptions of shape and snapshot as bytes.
//!
//! Each type says once, by [`Stored`], which fields it has and in which order; writing and reading
//! both follow from that. A list is a count and its entries, an option a flag and, if the flag is
//! set, a value. Lists are as long as their counts say only if the bytes for them are there and
//! [`Room`] is left; whether they fit each other is the business of the checks of snapshot and
//! pieces.

use super::pieces::GroupPieces;
use super::{IMAGE, SHAPE, cells_of};
use crate::ids::Pos;
use crate::io::ByteReader;
use crate::layer::{StateTensor, Window};
use crate::snapshot::{
    Block, CellLayer, Cells, Checkpoint, CheckpointRef, Group, Sees, Sequence, Shape, Snapshot, State,
    StateLayer,
};
use crate::storage::container::{Fields, MAX_IMAGE, Room, expect_at_most};
use crate::storage::error::Error;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, BlockEntry, CellType};

/// Bytes of a section, and the memory that is left for what they describe.
struct Input<'a> {
    fields: Fields<'a>,
    room: Room,
}

/// A type that descriptions are made of.
trait Stored: Sized {
    /// The fewest bytes that a value takes, by which counts of lists are bounded.
    const LEAST: usize;

    fn put(&self, out: &mut Vec<u8>);

    fn get(from: &mut Input<'_>) -> Result<Self, Error>;
}

/// Implement [`Stored`] for a struct: its fewest bytes, and its fields in order.
macro_rules! stored {
    ($($type:ty: $least:literal { $($field:ident),* })*) => {$(
        impl Stored for $type {
            const LEAST: usize = $least;

            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(from: &mut Input<'_>) -> Result<Self, Error> {
                Ok(Self { $($field: Stored::get(from)?),* })
            }
        }
    )*};
}

stored! {
    Group: 11 { sees, k_type, v_type, layers }
    CellLayer: 16 { layer, n_head_kv, d_k, d_v }
    StateLayer: 8 { layer, parts }
    StateTensor: 8 { len, input }
    Shape: 8 { groups, recurrent }
    Cells: 12 { whole_from, start, extents }
    BlockEntry: 8 { block, live }
    State: 5 { state, first }
    Checkpoint: 8 { pinned, floor, journal, state, cells }
    CheckpointRef: 12 { checkpoint, pos, n_rows }
    Sequence: 13 { cells, state, last, checkpoints }
    GroupPieces: 8 { masks, ends }
}

impl Stored for u32 {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        from.fields.read(ByteReader::u32)
    }
}

impl Stored for Pos {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        from.fields.read(ByteReader::i32).map(Pos)
    }
}

/// A length in 32 bits. One that has more is written as the largest, which no shape can have.
impl Stored for usize {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(*self).unwrap_or(u32::MAX).put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        u32::get(from).map(|len| len as usize)
    }
}

impl Stored for bool {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        match from.fields.read(ByteReader::u8)? {
            0 => Ok(false),
            1 => Ok(true),
            flag => Err(from.fields.malformed("flag", flag.into(), 1)),
        }
    }
}

impl<T: Stored> Stored for Option<T> {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        bool::get(from)?.then(|| T::get(from)).transpose()
    }
}

impl<T: Stored> Stored for Vec<T> {
    const LEAST: usize = 4;

    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|entry| entry.put(out));
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        let n = from.fields.count(T::LEAST)?;
        let mut list = from.room.list(n)?;
        for _ in 0..n {
            list.push(T::get(from)?);
        }
        Ok(list)
    }
}

/// Numbers of element types, those of GGUF.
const TYPES: [(CellType, u8); 5] =
    [(CellType::F32, 0), (CellType::F16, 1), (CellType::BF16, 30), (CellType::Q8_0, 8), (CellType::Q4_0, 2)];

impl Stored for CellType {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        // A type that came later has a number that no reader takes.
        out.push(TYPES.iter().find(|known| known.0 == *self).map_or(u8::MAX, |known| known.1));
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        let number = from.fields.read(ByteReader::u8)?;
        let known = TYPES.iter().find(|known| known.1 == number).map(|known| known.0);
        known.ok_or_else(|| from.fields.malformed("element type", number.into(), 0))
    }
}

impl Stored for Sees {
    const LEAST: usize = 5;

    fn put(&self, out: &mut Vec<u8>) {
        let (kind, window) = match *self {
            Sees::All => (0, 0),
            Sees::Window(Window::Sliding(size)) => (1, size),
            Sees::Window(Window::Chunked(size)) => (2, size),
            Sees::EncoderOutput => (3, 0),
            Sees::Window(Window::Symmetric(size)) => (4, size),
        };
        out.push(kind);
        window.put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        match (from.fields.read(ByteReader::u8)?, u32::get(from)?) {
            (0, 0) => Ok(Sees::All),
            (1, size @ 1..) => Ok(Sees::Window(Window::Sliding(size))),
            (2, size @ 1..) => Ok(Sees::Window(Window::Chunked(size))),
            (3, 0) => Ok(Sees::EncoderOutput),
            (4, size @ 1..) => Ok(Sees::Window(Window::Symmetric(size))),
            (kind, _) => Err(from.fields.malformed("what a group sees", kind.into(), 0)),
        }
    }
}

/// Positions that go up by one from cell to cell, as they nearly always do, are one number.
impl Stored for Block {
    const LEAST: usize = 5;

    fn put(&self, out: &mut Vec<u8>) {
        self.live.put(out);
        let base = |cell: usize| self.pos[cell].0.wrapping_sub(cell as i32);
        let first = cells_of(self.live).next().map_or(0, base);
        let listed = cells_of(self.live).any(|cell| base(cell) != first);
        listed.put(out);
        match listed {
            true => cells_of(self.live).for_each(|cell| self.pos[cell].put(out)),
            false => Pos(first).put(out),
        }
    }

    fn get(from: &mut Input<'_>) -> Result<Self, Error> {
        let (live, listed) = (u32::get(from)?, bool::get(from)?);
        let base = if listed { Pos::ZERO } else { Pos::get(from)? };
        let mut pos = [Pos::ZERO; BLOCK_CELLS];
        for cell in cells_of(live) {
            pos[cell] = match listed {
                true => Pos::get(from)?,
                // A position that there cannot be is refused with the snapshot.
                false => Pos(base.0.checked_add(cell as i32).unwrap_or(-1)),
            };
        }
        Ok(Block { live, pos })
    }
}

/// Return the description of `shape` that containers hold; equal shapes have equal bytes.
pub fn encode_shape(shape: &Shape) -> Vec<u8> {
    let mut out = Vec::new();
    shape.put(&mut out);
    out
}

/// Read what layers keep from `bytes`, the content of `SHAP`, and check it.
pub(super) fn read_shape(bytes: &[u8]) -> Result<Shape, Error> {
    let mut from = Input { fields: Fields::new(SHAPE, bytes), room: Room::of(0) };
    let shape = Shape::get(&mut from)?;
    if shape.groups.iter().flat_map(Group::layouts).any(|layout| layout.check().is_err()) {
        return Err(from.fields.malformed("cells of a layer that their element type does not suit", 0, 1));
    }
    from.fields.end()?;
    shape.check()?;
    Ok(shape)
}

/// Return the description of what sequences hold, unless a reader would refuse it as too long.
pub(super) fn snapshot(snapshot: &Snapshot, pieces: &[GroupPieces]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    snapshot.blocks.put(&mut out);
    pieces.len().put(&mut out);
    pieces.iter().for_each(|group| group.put(&mut out));
    snapshot.n_states.put(&mut out);
    snapshot.journals.put(&mut out);
    snapshot.checkpoints.put(&mut out);
    snapshot.sequences.put(&mut out);
    expect_at_most("bytes of a description of sequences", out.len() as u64, MAX_IMAGE)?;
    Ok(out)
}

/// Read what sequences hold from `bytes`, the content of `MEMO`, in lists that take no more than
/// `room`.
pub(super) fn read_snapshot(
    bytes: &[u8],
    shape: Shape,
    room: Room,
) -> Result<(Snapshot, Vec<GroupPieces>), Error> {
    let from = &mut Input { fields: Fields::new(IMAGE, bytes), room };
    let (blocks, pieces) = (Stored::get(from)?, Stored::get(from)?);
    let (n_states, journals) = (Stored::get(from)?, Stored::get(from)?);
    let (checkpoints, sequences) = (Stored::get(from)?, Stored::get(from)?);
    from.fields.clone().end()?;
    Ok((Snapshot { shape, blocks, n_states, journals, checkpoints, sequences }, pieces))
}
