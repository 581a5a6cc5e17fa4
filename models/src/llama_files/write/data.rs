//! Keys and values of the cells of a file.

use super::Writer;
use super::entries::{Entry, Place};
use crate::llama_files::Error;
use crate::llama_files::layout::type_number;
use crate::llama_files::moves::Rows;
use alloc::collections::{BTreeMap, btree_map};
use alloc::vec::Vec;
use backstitch_kv::reserve;
use backstitch_kv::snapshot::Group;

/// Blocks of a group by number, layer by layer.
type Blocks<'a> = BTreeMap<u32, Vec<&'a [u8]>>;

impl<'a> Writer<'a> {
    pub(super) fn data(&mut self, index: usize, group: &Group, entries: &[Entry]) -> Result<(), Error> {
        let places: Vec<Place> = entries.iter().filter_map(|entry| entry.place).collect();
        let blocks = self.blocks(index, group, &places)?;
        for (layer, layout) in group.layouts().enumerate() {
            let rows = Rows::keys(layout, places.len());
            self.put(type_number(group.k_type));
            self.put_u64(rows.cell_bytes() as u64);
            self.put_rows(layer, &rows, &blocks, &places)?;
        }
        for (layer, layout) in group.layouts().enumerate() {
            let rows = Rows::values(layout, places.len(), self.options.v_trans);
            self.put(type_number(group.v_type));
            if self.options.v_trans {
                self.put(group.v_type.unit_bytes() as u32);
                self.put(rows.width() as u32);
            } else {
                self.put_u64(rows.cell_bytes() as u64);
            }
            self.put_rows(layer, &rows, &blocks, &places)?;
        }
        Ok(())
    }

    /// Return the blocks of group `index` that these cells are in.
    fn blocks(&self, index: usize, group: &Group, places: &[Place]) -> Result<Blocks<'a>, Error> {
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

    fn put_rows(
        &mut self,
        layer: usize,
        rows: &Rows,
        blocks: &Blocks<'_>,
        places: &[Place],
    ) -> Result<(), Error> {
        let first = self.out.len();
        reserve::for_more(&mut self.out, rows.n_bytes())?;
        self.out.resize(first + rows.n_bytes(), 0);
        for (cell, (block, slot)) in places.iter().enumerate() {
            rows.write(blocks[block][layer], *slot as usize, &mut self.out[first..], cell);
        }
        Ok(())
    }
}
