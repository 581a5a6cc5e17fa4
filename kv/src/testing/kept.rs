//! Snapshots without the bytes of unused cells, to compare what was saved with what was restored.

use crate::snapshot::{Owned, Snapshot};
use alloc::vec::Vec;

/// A snapshot and all of its values that have a meaning.
///
/// Unused cells of a block may contain anything, so two equal snapshots can differ in their bytes.
/// Values are compared by bits, because NaN may be among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Description of the sequences.
    pub snapshot: Snapshot,
    /// Bytes of the cells in use, per group, block and layer.
    cells: Vec<Vec<Vec<Vec<u8>>>>,
    states: Vec<Vec<Vec<u32>>>,
    journals: Vec<Vec<Vec<u32>>>,
}

impl Kept {
    /// Return the values of `owned`, without the bytes of unused cells.
    pub fn of(owned: &Owned) -> Kept {
        let groups = owned.snapshot.shape.groups.iter().zip(&owned.snapshot.blocks).zip(&owned.blocks);
        let cells = groups.map(|((group, blocks), bytes)| {
            let block = |(block, layers): (&crate::snapshot::Block, &Vec<Vec<u8>>)| {
                let of_layer = |(layout, bytes): (_, &Vec<u8>)| used(&layout, bytes, block.live);
                group.layouts().zip(layers).map(of_layer).collect()
            };
            blocks.iter().zip(bytes).map(block).collect()
        });
        Kept {
            cells: cells.collect(),
            states: bits(&owned.states),
            journals: bits(&owned.journals),
            snapshot: owned.snapshot.clone(),
        }
    }
}

fn used(layout: &backstitch_core::cell::CellLayout, bytes: &[u8], live: u32) -> Vec<u8> {
    let mut used = Vec::new();
    for cell in (0..32).filter(|cell| live >> cell & 1 == 1) {
        let start = used.len();
        used.resize(start + layout.cell_bytes(), 0);
        layout.take_cell(bytes, cell, &mut used[start..]);
    }
    used
}

fn bits(lists: &[Vec<Vec<f32>>]) -> Vec<Vec<Vec<u32>>> {
    let of = |numbers: &Vec<f32>| numbers.iter().map(|x| x.to_bits()).collect();
    lists.iter().map(|pieces| pieces.iter().map(of).collect()).collect()
}
