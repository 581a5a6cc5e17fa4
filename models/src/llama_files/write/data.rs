//! Keys and values of the cells of a file.

use super::entries::{Entry, Place};
use super::{Writer, put};
use crate::llama_files::Error;
use crate::llama_files::layout::type_number;
use crate::llama_files::moves::Rows;
use crate::llama_files::reserve;
use alloc::collections::{BTreeMap, btree_map};
use alloc::vec::Vec;
use backstitch_kv::snapshot::Group;

/// Blocks of a group by number, layer by layer.
type Blocks<'a> = BTreeMap<u32, Vec<&'a [u8]>>;

impl Writer<'_> {
    pub(super) fn data(
        &self,
        out: &mut Vec<u8>,
        index: usize,
        group: &Group,
        entries: &[Entry],
    ) -> Result<(), Error> {
        let places: Vec<Place> = entries.iter().filter_map(|entry| entry.place).collect();
        let blocks = self.blocks(index, group, &places)?;
        for (layer, layout) in group.layouts().enumerate() {
            let rows = Rows::keys(layout, places.len());
            put(out, type_number(group.k_type));
            out.extend_from_slice(&(rows.cell_bytes() as u64).to_le_bytes());
            put_rows(out, layer, &rows, &blocks, &places)?;
        }
        for (layer, layout) in group.layouts().enumerate() {
            let rows = Rows::values(layout, places.len(), self.options.v_trans);
            put(out, type_number(group.v_type));
            if self.options.v_trans {
                put(out, group.v_type.unit_bytes() as u32);
                put(out, rows.width() as u32);
            } else {
                out.extend_from_slice(&(rows.cell_bytes() as u64).to_le_bytes());
            }
            put_rows(out, layer, &rows, &blocks, &places)?;
        }
        Ok(())
    }

    /// Return the blocks of group `index` that these cells are in.
    fn blocks(&self, index: usize, group: &Group, places: &[Place]) -> Result<Blocks<'_>, Error> {
        let mut blocks = Blocks::new();
        for &(block, _) in places {
            if let btree_map::Entry::Vacant(place) = blocks.entry(block) {
                let layers = self.content.block(index, block as usize);
                let lens = layers.iter().map(|layer| layer.len());
                if !lens.eq(group.layouts().map(|layout| layout.block_bytes())) {
                    return Err(Error::Content { what: "the bytes of its blocks" });
                }
                place.insert(layers);
            }
        }
        Ok(blocks)
    }
}

fn put_rows(
    out: &mut Vec<u8>,
    layer: usize,
    rows: &Rows,
    blocks: &Blocks<'_>,
    places: &[Place],
) -> Result<(), Error> {
    let first = out.len();
    reserve::for_more(out, rows.n_bytes())?;
    out.resize(first + rows.n_bytes(), 0);
    for (cell, (block, slot)) in places.iter().enumerate() {
        rows.write(blocks[block][layer], *slot as usize, &mut out[first..], cell);
    }
    Ok(())
}
