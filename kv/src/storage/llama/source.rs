//! The bytes of a file where a snapshot wants them.

use super::assemble::{Members, NO_CELL};
use super::cells::{Cache, Stream};
use super::layout::Row;
use super::moves::{Every, copy, take};
use super::{Error, File};
use crate::snapshot::Source;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};

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
        for (index, (target, layout)) in layers.iter_mut().zip(shape.layouts()).enumerate() {
            fill_layer(cache, members, index, &layout, target);
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

/// Put the cells of a block into layer `index` of the cache's.
fn fill_layer(cache: &Cache<'_>, members: &Members, index: usize, layout: &CellLayout, target: &mut [u8]) {
    for (slot, &member) in members.iter().enumerate().filter(|member| *member.1 != NO_CELL) {
        let Some((stream, at)) = cache.place(member) else { continue };
        for head in 0..layout.n_head_kv {
            if let Some(k) = stream.k.get(index) {
                let first = (at * layout.n_head_kv + head) * layout.d_k;
                let to = Every { first: slot, step: BLOCK_CELLS };
                let part = &mut target[layout.k_range(0, head)];
                copy(layout.k_type, layout.d_k, (k, Every::from(first)), (part, to));
            }
            if let Some(v) = stream.v.get(index) {
                let from = values(stream, at, layout, head);
                let part = &mut target[layout.v_range(0, head)];
                copy(layout.v_type, layout.d_v, (v, from), (part, Every::from(slot * layout.d_v)));
            }
        }
    }
}

/// Return where the values of one head of a cell are.
fn values(stream: &Stream<'_>, at: usize, layout: &CellLayout, head: usize) -> Every {
    if stream.v_trans {
        let n_cells = (stream.cells.end - stream.cells.start) as usize;
        return Every { first: head * layout.d_v * n_cells + at, step: n_cells };
    }
    Every::from((at * layout.n_head_kv + head) * layout.d_v)
}
