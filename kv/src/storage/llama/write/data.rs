//! Keys and values of the cells of a file.

use super::entries::Entry;
use super::{Writer, put};
use crate::reserve;
use crate::snapshot::Group;
use crate::storage::llama::Error;
use crate::storage::llama::layout::type_number;
use crate::storage::llama::moves::{Every, copy};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};

/// Where the bytes of a file's cells are.
struct Sources<'a> {
    /// Blocks, for each layer.
    blocks: Vec<Vec<&'a [u8]>>,
    /// For each cell its block and its slot there.
    cells: Vec<(usize, usize)>,
}

impl<'a> Sources<'a> {
    /// Return the cells' blocks of a layer, and their slots.
    fn of_layer(&self, layer: usize) -> impl Iterator<Item = (&'a [u8], usize)> + '_ {
        self.cells.iter().filter_map(move |&(block, slot)| Some((*self.blocks.get(block)?.get(layer)?, slot)))
    }
}

impl Writer<'_> {
    pub(super) fn data(
        &self,
        out: &mut Vec<u8>,
        index: usize,
        group: &Group,
        entries: &[Entry],
    ) -> Result<(), Error> {
        let sources = self.sources(index, group, entries)?;
        for (layer, layout) in group.layouts().enumerate() {
            put(out, type_number(group.k_type));
            let row = (layout.n_head_kv * group.k_type.row_bytes(layout.d_k)) as u64;
            out.extend_from_slice(&row.to_le_bytes());
            put_keys(out, layer, &layout, &sources)?;
        }
        for (layer, layout) in group.layouts().enumerate() {
            put(out, type_number(group.v_type));
            let (width, bytes) = (layout.n_head_kv * layout.d_v, group.v_type.unit_bytes());
            if self.options.v_trans {
                put(out, bytes as u32);
                put(out, width as u32);
            } else {
                out.extend_from_slice(&((width * bytes) as u64).to_le_bytes());
            }
            put_values(out, layer, &layout, &sources, self.options.v_trans)?;
        }
        Ok(())
    }

    fn sources(&self, index: usize, group: &Group, entries: &[Entry]) -> Result<Sources<'_>, Error> {
        let mut known: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut blocks, mut cells) = (Vec::new(), Vec::with_capacity(entries.len()));
        for (block, slot) in entries.iter().filter_map(|entry| entry.place) {
            let number = *known.entry(block).or_insert(blocks.len());
            if number == blocks.len() {
                let layers = self.content.block(index, block as usize);
                let lens = layers.iter().map(|layer| layer.len());
                if !lens.eq(group.layouts().map(|layout| layout.block_bytes())) {
                    return Err(Error::Content { what: "the bytes of its blocks" });
                }
                blocks.push(layers);
            }
            cells.push((number, slot as usize));
        }
        Ok(Sources { blocks, cells })
    }
}

/// Room for so many cells of `width` bytes; returns where it begins.
fn make_room(out: &mut Vec<u8>, n_cells: usize, width: usize) -> Result<usize, Error> {
    let (first, n_bytes) = (out.len(), n_cells.saturating_mul(width));
    reserve::for_more(out, n_bytes)?;
    out.resize(first + n_bytes, 0);
    Ok(first)
}

fn put_keys(
    out: &mut Vec<u8>,
    layer: usize,
    layout: &CellLayout,
    sources: &Sources<'_>,
) -> Result<(), Error> {
    let width = layout.n_head_kv * layout.d_k;
    let n_cells = sources.cells.len();
    let first = make_room(out, n_cells, width * layout.k_type.unit_bytes())?;
    for (cell, (block, slot)) in sources.of_layer(layer).enumerate() {
        for head in 0..layout.n_head_kv {
            let from = Every { first: slot, step: BLOCK_CELLS };
            let to = Every::from(cell * width + head * layout.d_k);
            let part = &block[layout.k_range(0, head)];
            copy(layout.k_type, layout.d_k, (part, from), (&mut out[first..], to));
        }
    }
    Ok(())
}

fn put_values(
    out: &mut Vec<u8>,
    layer: usize,
    layout: &CellLayout,
    sources: &Sources<'_>,
    v_trans: bool,
) -> Result<(), Error> {
    let width = layout.n_head_kv * layout.d_v;
    let n_cells = sources.cells.len();
    let first = make_room(out, n_cells, width * layout.v_type.unit_bytes())?;
    for (cell, (block, slot)) in sources.of_layer(layer).enumerate() {
        for head in 0..layout.n_head_kv {
            let element = head * layout.d_v;
            let to = match v_trans {
                true => Every { first: element * n_cells + cell, step: n_cells },
                false => Every::from(cell * width + element),
            };
            let part = &block[layout.v_range(0, head)];
            let from = Every::from(slot * layout.d_v);
            copy(layout.v_type, layout.d_v, (part, from), (&mut out[first..], to));
        }
    }
    Ok(())
}
