//! The descriptions of shape and image as bytes.

use super::super::Error;
use super::super::fields::{Fields, Put};
use super::super::limits::{MAX_IMAGE, Room, expect_at_most};
use super::pieces::{GroupPieces, Pieces};
use crate::ids::Pos;
use crate::image::{
    Block, CellLayer, Cells, Checkpoint, Group, Image, Mark, Sees, Sequence, Shape, State, StateLayer,
};
use crate::layer::{StatePart, Window};
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellType, Extent};

/// Numbers of element types, those of GGUF.
const TYPES: [(CellType, u8); 5] =
    [(CellType::F32, 0), (CellType::F16, 1), (CellType::BF16, 30), (CellType::Q8_0, 8), (CellType::Q4_0, 2)];

fn type_number(ty: CellType) -> u8 {
    TYPES.iter().find(|known| known.0 == ty).map_or(0, |known| known.1)
}

fn read_type(fields: &mut Fields<'_>) -> Result<CellType, Error> {
    let number = fields.u8()?;
    let known = TYPES.iter().find(|known| known.1 == number).map(|known| known.0);
    known.ok_or_else(|| fields.malformed("element type", number.into(), 0))
}

pub(super) fn shape(shape: &Shape) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_len(shape.groups.len());
    for group in &shape.groups {
        let (kind, window) = match group.sees {
            Sees::All => (0, 0),
            Sees::Window(Window::Sliding(size)) => (1, size),
            Sees::Window(Window::Chunked(size)) => (2, size),
            Sees::Text => (3, 0),
        };
        out.put_u8(kind);
        out.put_u32(window);
        out.put_u8(type_number(group.k_type));
        out.put_u8(type_number(group.v_type));
        out.put_len(group.layers.len());
        for layer in &group.layers {
            [layer.layer, layer.n_head_kv, layer.d_k, layer.d_v].iter().for_each(|x| out.put_u32(*x));
        }
    }
    out.put_len(shape.recurrent.len());
    for layer in &shape.recurrent {
        out.put_u32(layer.layer);
        out.put_len(layer.parts.len());
        for part in &layer.parts {
            out.put_len(part.len);
            out.put_len(part.input);
        }
    }
    out
}

/// Reads what layers keep, checked.
pub(super) fn read_shape(mut fields: Fields<'_>) -> Result<Shape, Error> {
    let (mut shape, mut room) = (Shape::default(), Room::of(0));
    // A group has a layer at least.
    shape.groups = list(&mut fields, &mut room, 27, read_group)?;
    // And so has a recurrent layer a piece of state.
    shape.recurrent = list(&mut fields, &mut room, 16, |fields, room| {
        let layer = fields.u32()?;
        let parts = list(fields, room, 8, |fields, _| {
            Ok(StatePart { len: fields.u32()? as usize, input: fields.u32()? as usize })
        })?;
        Ok(StateLayer { layer, parts })
    })?;
    fields.end()?;
    shape.check()?;
    Ok(shape)
}

/// Reads a count and so many entries of at least `least` bytes each.
fn list<T>(
    fields: &mut Fields<'_>,
    room: &mut Room,
    least: usize,
    mut read: impl FnMut(&mut Fields<'_>, &mut Room) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let n = fields.count(least)?;
    let mut list = room.list(n)?;
    for _ in 0..n {
        list.push(read(fields, room)?);
    }
    Ok(list)
}

fn read_group(fields: &mut Fields<'_>, room: &mut Room) -> Result<Group, Error> {
    let (kind, window) = (fields.u8()?, fields.u32()?);
    let sees = match (kind, window) {
        (0, 0) => Sees::All,
        (1, 1..) => Sees::Window(Window::Sliding(window)),
        (2, 1..) => Sees::Window(Window::Chunked(window)),
        (3, 0) => Sees::Text,
        _ => return Err(fields.malformed("what a group sees", kind.into(), 0)),
    };
    let (k_type, v_type) = (read_type(fields)?, read_type(fields)?);
    let layers = list(fields, room, 16, |fields, _| {
        let (layer, n_head_kv) = (fields.u32()?, fields.u32()?);
        Ok(CellLayer { layer, n_head_kv, d_k: fields.u32()?, d_v: fields.u32()? })
    })?;
    let group = Group { sees, k_type, v_type, layers };
    if group.layouts().any(|layout| layout.check().is_err()) {
        return Err(fields.malformed("element type", type_number(k_type).into(), 0));
    }
    Ok(group)
}

/// Writes what sequences hold; stops where a reader would refuse it as too long.
pub(super) fn image(image: &Image, pieces: &Pieces) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for (group, blocks) in image.blocks.iter().enumerate() {
        out.put_len(blocks.len());
        for (number, block) in blocks.iter().enumerate() {
            put_block(&mut out, block);
            let masks = pieces.of(group, number);
            out.put_u8(masks.len() as u8);
            masks.iter().for_each(|mask| out.put_u32(*mask));
        }
        expect_short(&out)?;
    }
    out.put_u32(image.n_states);
    out.put_len(image.journals.len());
    image.journals.iter().for_each(|n_rows| out.put_u32(*n_rows));
    out.put_len(image.checkpoints.len());
    for checkpoint in &image.checkpoints {
        put_checkpoint(&mut out, checkpoint);
        expect_short(&out)?;
    }
    out.put_len(image.sequences.len());
    for sequence in &image.sequences {
        put_sequence(&mut out, sequence);
        expect_short(&out)?;
    }
    Ok(out)
}

fn expect_short(description: &[u8]) -> Result<(), Error> {
    expect_at_most("bytes of a description of sequences", description.len() as u64, MAX_IMAGE)
}

/// What the position of cell 0 would be if positions go up by one from cell to cell.
fn base(block: &Block) -> Option<i32> {
    let pos = |cell: u32| block.pos.get(cell as usize).map_or(0, |pos| pos.0);
    let mut bases = super::cells_of(block.live).map(|cell| pos(cell as u32) - cell as i32);
    let first = bases.next().unwrap_or_default();
    bases.all(|base| base == first).then_some(first)
}

fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.put_u32(block.live);
    match base(block) {
        Some(base) => {
            out.put_u8(0);
            out.put_i32(base);
        }
        None => {
            out.put_u8(1);
            super::cells_of(block.live).for_each(|cell| out.put_i32(block.pos[cell].0));
        }
    }
}

fn read_block(fields: &mut Fields<'_>) -> Result<Block, Error> {
    let live = fields.u32()?;
    let mut pos = [Pos::ZERO; BLOCK_CELLS];
    let listed = fields.u8()?;
    let base = if listed == 0 { fields.i32()? } else { 0 };
    for (cell, pos) in pos.iter_mut().enumerate().filter(|(cell, _)| live >> cell & 1 == 1) {
        *pos = match listed {
            0 => Pos(base.checked_add(cell as i32).unwrap_or(-1)),
            1 => Pos(fields.i32()?),
            _ => return Err(fields.malformed("how positions are stored", listed.into(), 1)),
        };
    }
    Ok(Block { live, pos })
}

fn put_cells(out: &mut Vec<u8>, cells: &Cells) {
    out.put_i32(cells.whole_from.0);
    out.put_i32(cells.start.0);
    out.put_len(cells.extents.len());
    for extent in &cells.extents {
        out.put_u32(extent.block);
        out.put_u32(extent.live);
    }
}

fn read_cells(fields: &mut Fields<'_>, room: &mut Room) -> Result<Cells, Error> {
    let (whole_from, start) = (Pos(fields.i32()?), Pos(fields.i32()?));
    let extents =
        list(fields, room, 8, |fields, _| Ok(Extent { block: fields.u32()?, live: fields.u32()? }))?;
    Ok(Cells { extents, whole_from, start })
}

/// A number that may be missing.
fn put_option(out: &mut Vec<u8>, number: Option<u32>) {
    out.put_u8(u8::from(number.is_some()));
    out.put_u32(number.unwrap_or_default());
}

fn read_option(fields: &mut Fields<'_>) -> Result<Option<u32>, Error> {
    let (is_there, number) = (read_flag(fields)?, fields.u32()?);
    match (is_there, number) {
        (true, number) => Ok(Some(number)),
        (false, 0) => Ok(None),
        (false, number) => Err(fields.malformed("number that is not there", number.into(), 0)),
    }
}

fn read_flag(fields: &mut Fields<'_>) -> Result<bool, Error> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        flag => Err(fields.malformed("flag", flag.into(), 1)),
    }
}

fn put_state(out: &mut Vec<u8>, state: Option<State>) {
    out.put_u8(u8::from(state.is_some()));
    if let Some(State { state, first }) = state {
        put_option(out, state);
        out.put_i32(first.0);
    }
}

fn read_state(fields: &mut Fields<'_>) -> Result<Option<State>, Error> {
    if !read_flag(fields)? {
        return Ok(None);
    }
    let state = read_option(fields)?;
    Ok(Some(State { state, first: Pos(fields.i32()?) }))
}

fn put_checkpoint(out: &mut Vec<u8>, checkpoint: &Checkpoint) {
    out.put_u8(u8::from(checkpoint.pinned));
    out.put_u8(u8::from(checkpoint.anchor));
    put_option(out, checkpoint.journal);
    put_state(out, checkpoint.state);
    for cells in &checkpoint.cells {
        out.put_u8(u8::from(cells.is_some()));
        cells.iter().for_each(|cells| put_cells(out, cells));
    }
}

fn read_checkpoint(fields: &mut Fields<'_>, room: &mut Room, n_groups: usize) -> Result<Checkpoint, Error> {
    let (pinned, anchor) = (read_flag(fields)?, read_flag(fields)?);
    let (journal, state) = (read_option(fields)?, read_state(fields)?);
    let mut cells = room.list(n_groups)?;
    for _ in 0..n_groups {
        cells.push(if read_flag(fields)? { Some(read_cells(fields, room)?) } else { None });
    }
    Ok(Checkpoint { pinned, anchor, journal, cells, state })
}

fn put_sequence(out: &mut Vec<u8>, sequence: &Sequence) {
    sequence.cells.iter().for_each(|cells| put_cells(out, cells));
    put_state(out, sequence.state);
    out.put_i32(sequence.last.0);
    out.put_len(sequence.line.len());
    for mark in &sequence.line {
        out.put_u32(mark.checkpoint);
        out.put_i32(mark.pos.0);
        out.put_u32(mark.n_rows);
    }
}

fn read_sequence(fields: &mut Fields<'_>, room: &mut Room, n_groups: usize) -> Result<Sequence, Error> {
    let mut cells = room.list(n_groups)?;
    for _ in 0..n_groups {
        cells.push(read_cells(fields, room)?);
    }
    let (state, last) = (read_state(fields)?, Pos(fields.i32()?));
    let line = list(fields, room, 12, |fields, _| {
        Ok(Mark { checkpoint: fields.u32()?, pos: Pos(fields.i32()?), n_rows: fields.u32()? })
    })?;
    Ok(Sequence { cells, state, last, line })
}

fn read_blocks(fields: &mut Fields<'_>, room: &mut Room) -> Result<(Vec<Block>, GroupPieces), Error> {
    // A block has cells, how they stand, and a piece at least.
    let n = fields.count(14)?;
    let (mut blocks, mut pieces) = (room.list(n)?, GroupPieces { ends: room.list(n)?, masks: Vec::new() });
    for _ in 0..n {
        blocks.push(read_block(fields)?);
        let n_pieces = fields.u8()?.into();
        room.more(&mut pieces.masks, n_pieces)?;
        for _ in 0..n_pieces {
            pieces.masks.push(fields.u32()?);
        }
        pieces.ends.push(pieces.masks.len() as u32);
    }
    Ok((blocks, pieces))
}

/// Reads what sequences hold, in lists that take no more than `room`.
pub(super) fn read_image(
    mut fields: Fields<'_>,
    shape: Shape,
    mut room: Room,
) -> Result<(Image, Pieces), Error> {
    let (fields, room, n_groups) = (&mut fields, &mut room, shape.groups.len());
    let mut image = Image { shape, blocks: room.list(n_groups)?, ..Image::default() };
    let mut pieces = Pieces(room.list(n_groups)?);
    for _ in 0..n_groups {
        let (blocks, of_blocks) = read_blocks(fields, room)?;
        image.blocks.push(blocks);
        pieces.0.push(of_blocks);
    }
    image.n_states = fields.u32()?;
    image.journals = list(fields, room, 4, |fields, _| fields.u32())?;
    // A checkpoint has two flags, the option of a journal, the flag of a state and one for each group.
    image.checkpoints =
        list(fields, room, 8 + n_groups, |fields, room| read_checkpoint(fields, room, n_groups))?;
    // A sequence has cells of each group, a state's flag, a position and a count at least.
    image.sequences =
        list(fields, room, 9 + 12 * n_groups, |fields, room| read_sequence(fields, room, n_groups))?;
    fields.clone().end()?;
    Ok((image, pieces))
}
