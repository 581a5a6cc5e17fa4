//! What sequences hold, without the bytes of cells that nobody uses: what must come back.

use crate::image::{Image, Owned};
use alloc::vec::Vec;

/// An image and all of its numbers that mean something.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The image.
    pub image: Image,
    /// For each group, for each block, for each layer: the cells in use.
    cells: Vec<Vec<Vec<Vec<u8>>>>,
    states: Vec<Vec<Vec<u32>>>,
    journals: Vec<Vec<Vec<u32>>>,
}

impl Kept {
    /// What `owned` holds, less the bytes of unused cells.
    pub fn of(owned: &Owned) -> Kept {
        let groups = owned.image.shape.groups.iter().zip(&owned.image.blocks).zip(&owned.blocks);
        let cells = groups.map(|((group, blocks), bytes)| {
            let block = |(block, layers): (&crate::image::Block, &Vec<Vec<u8>>)| {
                let of_layer = |(layout, bytes): (_, &Vec<u8>)| used(&layout, bytes, block.live);
                group.layouts().zip(layers).map(of_layer).collect()
            };
            blocks.iter().zip(bytes).map(block).collect()
        });
        Kept {
            cells: cells.collect(),
            states: bits(&owned.states),
            journals: bits(&owned.journals),
            image: owned.image.clone(),
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
