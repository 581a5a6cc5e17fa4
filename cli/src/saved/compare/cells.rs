//! The first cell that differs, whichever blocks the cells lie in.

use backstitch_core::cell::CellLayout;
use backstitch_kv::Pos;
use backstitch_kv::snapshot::{Sequence, Source};
use backstitch_kv::storage::Error;
use backstitch_models::SavedContext;

/// The first position and layer at which the cells of two sequences differ.
pub fn compare(
    (a, snapshot_a): (&SavedContext<'_>, &Sequence),
    (b, snapshot_b): (&SavedContext<'_>, &Sequence),
) -> Result<Option<(Option<u64>, String)>, Error> {
    for group in 0..a.snapshot().shape.groups.len() {
        let (mut cells_a, mut cells_b) = (Cells::new(a, snapshot_a, group), Cells::new(b, snapshot_b, group));
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

fn alone(side: &str, pos: Pos) -> Option<(Option<u64>, String)> {
    Some((u64::try_from(pos.0).ok(), format!("position {}: only {side} has a cell", pos.0)))
}

/// The cells of a sequence in a group, one after the other.
struct Cells<'a> {
    saved: &'a SavedContext<'a>,
    group: usize,
    /// For each cell its position, its block and its place there.
    places: Vec<(Pos, u32, usize)>,
    next: usize,
    layouts: Vec<CellLayout>,
    /// The block whose bytes are here.
    block: Option<u32>,
    layers: Vec<Vec<u8>>,
    /// For each layer the current cell.
    rows: Vec<Vec<u8>>,
}

impl<'a> Cells<'a> {
    fn new(saved: &'a SavedContext<'a>, sequence: &Sequence, group: usize) -> Self {
        let snapshot = saved.snapshot();
        let blocks = snapshot.blocks.get(group).map_or(&[][..], Vec::as_slice);
        let extents = sequence.cells.get(group).into_iter().flat_map(|cells| &cells.extents);
        let places = extents.flat_map(|extent| {
            let pos = blocks.get(extent.block as usize).map(|block| block.pos);
            let cells = (0..).zip(pos.into_iter().flatten()).filter(|(cell, _)| extent.live >> cell & 1 == 1);
            cells.map(|(cell, pos)| (pos, extent.block, cell as usize))
        });
        let places: Vec<_> = places.collect();
        // Room for a block is justified by one that is there.
        let shape = snapshot.shape.groups.get(group).filter(|_| !places.is_empty());
        let layouts: Vec<CellLayout> = shape.into_iter().flat_map(|group| group.layouts()).collect();
        let layers = layouts.iter().map(|layout| vec![0; layout.block_bytes()]).collect();
        let rows = layouts.iter().map(|layout| vec![0; layout.cell_bytes()]).collect();
        Self { saved, group, places, next: 0, layouts, block: None, layers, rows }
    }

    /// Go to the next cell and gives its position.
    fn next(&mut self) -> Result<Option<Pos>, Error> {
        let Some(&(pos, block, cell)) = self.places.get(self.next) else { return Ok(None) };
        self.next += 1;
        if self.block != Some(block) {
            let mut targets: Vec<&mut [u8]> = self.layers.iter_mut().map(Vec::as_mut_slice).collect();
            self.saved.memory.fill_block(self.group, block as usize, &mut targets)?;
            self.block = Some(block);
        }
        for ((layout, layer), row) in self.layouts.iter().zip(&self.layers).zip(&mut self.rows) {
            layout.take_cell(layer, cell, row);
        }
        Ok(Some(pos))
    }

    /// The first layer in which the current cells differ, and what of it.
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
