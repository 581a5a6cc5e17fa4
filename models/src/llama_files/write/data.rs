//! Keys and values of the cells of a file.

use super::Writer;
use super::entries::{Entry, Place};
use crate::llama_files::Error;
use crate::llama_files::layout::type_number;
use alloc::collections::{BTreeMap, btree_map};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_kv::reserve;
use backstitch_kv::snapshot::Group;

/// Blocks of a group by number, layer by layer.
type Blocks<'a> = BTreeMap<u32, Vec<&'a [u8]>>;

impl<'a> Writer<'a> {
    pub(super) fn data(&mut self, index: usize, group: &Group, entries: &[Entry]) -> Result<(), Error> {
        let places: Vec<Place> = entries.iter().filter_map(|entry| entry.place).collect();
        let blocks = &self.blocks(index, group, &places)?;
        let cells =
            |layer: usize| places.iter().map(move |(block, slot)| (blocks[block][layer], *slot as usize));
        for (layer, layout) in group.layouts().enumerate() {
            let n_bytes = layout.cell_k_bytes();
            self.put(type_number(group.k_type));
            self.put_u64(n_bytes as u64);
            let rows = self.more(places.len(), n_bytes)?;
            for ((block, slot), row) in cells(layer).zip(rows.chunks_exact_mut(n_bytes.max(1))) {
                layout.take_keys(block, slot, row);
            }
        }
        for (layer, layout) in group.layouts().enumerate() {
            let (n_bytes, unit) = (layout.cell_v_bytes(), group.v_type.unit_bytes());
            self.put(type_number(group.v_type));
            // The bytes of a cell that lie together.
            let n_together = if self.options.v_trans {
                self.put(unit as u32);
                self.put((n_bytes / unit) as u32);
                unit
            } else {
                self.put_u64(n_bytes as u64);
                n_bytes
            };
            let rows = self.more(places.len(), n_bytes)?;
            let mut row = vec![0; n_bytes];
            for (cell, (block, slot)) in cells(layer).enumerate() {
                layout.take_values(block, slot, &mut row);
                let columns = rows.chunks_exact_mut((places.len() * n_together).max(1));
                for (column, elements) in columns.zip(row.chunks_exact(n_together.max(1))) {
                    column[cell * n_together..][..n_together].copy_from_slice(elements);
                }
            }
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

    /// Append room for `n` cells of `n_bytes` bytes each.
    fn more(&mut self, n: usize, n_bytes: usize) -> Result<&mut [u8], Error> {
        let (first, n_bytes) = (self.out.len(), n.saturating_mul(n_bytes));
        reserve::for_more(&mut self.out, n_bytes)?;
        self.out.resize(first + n_bytes, 0);
        Ok(&mut self.out[first..])
    }
}
