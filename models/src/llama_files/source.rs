//! The bytes of a file where a snapshot wants them.

use super::assemble::NO_CELL;
use super::layout::Row;
use super::moves::take;
use super::{Error, File};
use alloc::vec::Vec;
use backstitch_kv::snapshot::Source;

/// Return part `i` of parts of `n` bytes each.
fn part(bytes: &[u8], i: usize, n: usize) -> Option<&[u8]> {
    bytes.get(i * n..(i + 1) * n)
}

impl Source for File<'_> {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        const MISSING: Error = Error::Content { what: "a block that the file does not have" };
        let index = self.layout.caches.iter().position(|&of| of == Some(group)).ok_or(MISSING)?;
        let cache = self.caches.get(index).ok_or(MISSING)?;
        let members = self.blocks.get(group).and_then(|blocks| blocks.get(block)).ok_or(MISSING)?;
        let shape = self.snapshot.shape.groups.get(group).ok_or(MISSING)?;
        let is_right = layers.iter().map(|target| target.len()).eq(shape.layouts().map(|l| l.block_bytes()));
        if !is_right {
            return Err(Error::Content { what: "room for a block" });
        }
        let mut row = Vec::new();
        for (slot, &member) in members.iter().enumerate().filter(|(_, member)| **member != NO_CELL) {
            let (stream, cell) = cache.place(member).ok_or(MISSING)?;
            let n = stream.cells.len();
            let rows = stream.k.iter().zip(&stream.v).zip(shape.layouts());
            for (((k, v), layout), target) in rows.zip(layers.iter_mut()) {
                let (k_bytes, v_bytes) = (layout.cell_k_bytes(), layout.cell_v_bytes());
                // A column of transposed values has one element of all cells.
                let v_bytes = if stream.v_trans { shape.v_type.unit_bytes() } else { v_bytes };
                row.clear();
                row.extend_from_slice(part(k, cell, k_bytes).ok_or(MISSING)?);
                for column in v.chunks((n * v_bytes).max(1)) {
                    row.extend_from_slice(part(column, cell, v_bytes).ok_or(MISSING)?);
                }
                layout.put_cell(target, slot, &row);
            }
        }
        Ok(())
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        const MISSING: Error = Error::Content { what: "a state that the file does not have" };
        let n_states = self.states.states.len();
        if state >= n_states {
            return Err(MISSING);
        }
        let mut pieces = pieces.iter_mut();
        for (layer, (r, s)) in self.states.r.iter().zip(&self.states.s).enumerate() {
            let row = |rows: &'_ [u8]| state * (rows.len() / n_states)..(state + 1) * (rows.len() / n_states);
            let (mut r, mut s) = (&r[row(r)], &s[row(s)]);
            for (piece, len) in self.layout.pieces(layer) {
                let rest = if piece.row == Row::R { &mut r } else { &mut s };
                let (theirs, after) = rest.split_at_checked(len * 4).ok_or(MISSING)?;
                *rest = after;
                let ours = pieces.next().filter(|piece| piece.len() == len).ok_or(MISSING)?;
                take(piece.order, theirs, ours);
            }
        }
        Ok(())
    }

    fn fill_journal(&self, _journal: usize, _pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        Err(Error::Content { what: "a journal, which no file of llama.cpp has" })
    }
}
