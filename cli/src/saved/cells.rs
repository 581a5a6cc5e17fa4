//! The first cell in which two sequences differ, whichever blocks their cells lie in.
//!
//! Cells are read block by block, in the order of positions of the sequence, so that a comparison
//! needs the memory of one block on each side, however long the sequences are.

use backstitch_core::cell::CellLayout;
use backstitch_kv::Pos;
use backstitch_kv::snapshot::{Sequence, Source};
use backstitch_kv::storage::Error;
use backstitch_models::{SavedContext, SavedSequence};

/// A sequence of one of the states.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The state.
    pub saved: &'a SavedContext<'a>,
    /// The sequence in the memory's part.
    pub held: &'a Sequence,
    /// The rest of the sequence.
    pub own: &'a SavedSequence,
}

/// A place at which two sequences differ: the token or position if there is one, and a description.
pub type Place = (Option<u64>, String);

/// Return the first position and layer at which the cells of two sequences differ.
///
/// # Errors
/// The [`Error`] of reading a block, if one of the files is damaged; [`Error::OutOfMemory`].
pub fn compare(a: Side<'_>, b: Side<'_>) -> Result<Option<Place>, Error> {
    for group in 0..a.saved.snapshot().shape.groups.len() {
        let (mut cells_a, mut cells_b) = (Cells::new(a, group)?, Cells::new(b, group)?);
        loop {
            let (in_a, in_b) = (cells_a.next()?, cells_b.next()?);
            let (pos_a, pos_b) = match (in_a, in_b) {
                (None, None) => break,
                (Some(pos_a), Some(pos_b)) => (pos_a, pos_b),
                (Some(pos), None) => return Ok(alone("A", pos)),
                (None, Some(pos)) => return Ok(alone("B", pos)),
            };
            if pos_a != pos_b {
                let side = if pos_a < pos_b { "A" } else { "B" };
                return Ok(alone(side, pos_a.min(pos_b)));
            }
            if let Some((layer, what)) = cells_a.first_difference(&cells_b) {
                let text = format!("position {}: {what} of layer {layer} differ", pos_a.0);
                return Ok(Some((u64::try_from(pos_a.0).ok(), text)));
            }
        }
    }
    Ok(None)
}

/// Return the place of a cell that one side has and the other lacks.
fn alone(side: &str, pos: Pos) -> Option<Place> {
    Some((u64::try_from(pos.0).ok(), format!("position {}: only {side} has a cell", pos.0)))
}

/// Return `n` zeros, or a typed error where the allocator refuses.
pub fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let bytes = (n as u64).saturating_mul(size_of::<T>() as u64);
    list.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { bytes })?;
    list.resize(n, T::default());
    Ok(list)
}

/// The cells of a sequence in a group of layers, one after the other.
struct Cells<'a> {
    saved: &'a SavedContext<'a>,
    group: usize,
    /// Position of each cell, its block and its index there.
    cells: Vec<(Pos, u32, u32)>,
    /// Index of the next cell.
    next: usize,
    /// Layout of a block in each layer.
    layouts: Vec<CellLayout>,
    /// Block whose bytes are loaded.
    block: Option<u32>,
    /// Bytes of the block in each layer.
    layers: Vec<Vec<u8>>,
    /// Bytes of the current cell in each layer.
    rows: Vec<Vec<u8>>,
}

impl<'a> Cells<'a> {
    /// Begin before the first cell of a sequence.
    fn new(Side { saved, held, .. }: Side<'a>, group: usize) -> Result<Self, Error> {
        let snapshot = saved.snapshot();
        let blocks = snapshot.blocks.get(group).map_or(&[][..], Vec::as_slice);
        let cells = held.cells.get(group);
        let cells: Vec<_> = cells.into_iter().flat_map(|cells| cells.places(blocks)).collect();
        // A file may describe layers of any size. Buffers for a block are allocated only if it
        // holds a cell, and where the allocator has room.
        let shape = snapshot.shape.groups.get(group).filter(|_| !cells.is_empty());
        let layouts: Vec<CellLayout> = shape.into_iter().flat_map(|group| group.layouts()).collect();
        let layers = layouts.iter().map(|layout| zeros(layout.block_bytes())).collect::<Result<_, _>>()?;
        let rows = layouts.iter().map(|layout| zeros(layout.cell_bytes())).collect::<Result<_, _>>()?;
        Ok(Self { saved, group, cells, next: 0, layouts, block: None, layers, rows })
    }

    /// Load the next cell and return its position; none after the last.
    fn next(&mut self) -> Result<Option<Pos>, Error> {
        let Some(&(pos, block, cell)) = self.cells.get(self.next) else { return Ok(None) };
        self.next += 1;
        if self.block != Some(block) {
            let mut targets: Vec<&mut [u8]> = self.layers.iter_mut().map(Vec::as_mut_slice).collect();
            self.saved.memory.fill_block(self.group, block as usize, &mut targets)?;
            self.block = Some(block);
        }
        for ((layout, layer), row) in self.layouts.iter().zip(&self.layers).zip(&mut self.rows) {
            layout.take_cell(layer, cell as usize, row);
        }
        Ok(Some(pos))
    }

    /// Return the first layer in which the current cells differ, with "keys" or "values".
    fn first_difference(&self, other: &Self) -> Option<(u32, &'static str)> {
        let at = self.rows.iter().zip(&other.rows).position(|(own, other)| own != other)?;
        let layout = self.layouts.get(at)?;
        let n_key = layout.n_head_kv * layout.k_type.row_bytes(layout.d_k);
        let (own, other) = (self.rows.get(at)?, other.rows.get(at)?);
        let what = if own.get(..n_key) == other.get(..n_key) { "values" } else { "keys" };
        let layer = self.saved.snapshot().shape.groups.get(self.group)?.layers.get(at)?.layer;
        Some((layer, what))
    }
}
