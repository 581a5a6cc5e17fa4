//! Numbers from one order to another, bit by bit the same.

use super::layout::Order;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout, CellType};
use core::ops::Range;

/// Every `step`-th element from `first` on.
#[derive(Clone, Copy)]
struct Every {
    first: usize,
    step: usize,
}

impl Every {
    /// Return neighbours from `first` on.
    fn from(first: usize) -> Every {
        Every { first, step: 1 }
    }
}

/// Keys or values of one layer: `n_cells` cells that lie together in a file, and the blocks that
/// hold them here.
pub(super) struct Rows {
    layout: CellLayout,
    n_cells: usize,
    part: Part,
}

enum Part {
    Keys,
    Values,
    TransposedValues,
}

impl Rows {
    pub fn keys(layout: CellLayout, n_cells: usize) -> Rows {
        Rows { layout, n_cells, part: Part::Keys }
    }

    pub fn values(layout: CellLayout, n_cells: usize, transposed: bool) -> Rows {
        let part = if transposed { Part::TransposedValues } else { Part::Values };
        Rows { layout, n_cells, part }
    }

    /// Return the element type, and the number of elements of a head.
    fn elements(&self) -> (CellType, usize) {
        match self.part {
            Part::Keys => (self.layout.k_type, self.layout.d_k),
            Part::Values | Part::TransposedValues => (self.layout.v_type, self.layout.d_v),
        }
    }

    /// Return the number of elements of a cell.
    pub fn width(&self) -> usize {
        self.layout.n_head_kv * self.elements().1
    }

    /// Return the bytes of a cell.
    pub fn cell_bytes(&self) -> usize {
        self.width() * self.elements().0.unit_bytes()
    }

    /// Return the bytes of all cells.
    pub fn n_bytes(&self) -> usize {
        self.n_cells.saturating_mul(self.cell_bytes())
    }

    /// Copy a cell of the file into a slot of a block.
    pub fn read(&self, file: &[u8], cell: usize, block: &mut [u8], slot: usize) {
        let (kind, n) = self.elements();
        for head in 0..self.layout.n_head_kv {
            let (range, ours) = self.in_block(head, slot);
            copy(kind, n, (file, self.in_file(head, cell)), (&mut block[range], ours));
        }
    }

    /// Copy a slot of a block to a cell of the file.
    pub fn write(&self, block: &[u8], slot: usize, file: &mut [u8], cell: usize) {
        let (kind, n) = self.elements();
        for head in 0..self.layout.n_head_kv {
            let (range, ours) = self.in_block(head, slot);
            copy(kind, n, (&block[range], ours), (file, self.in_file(head, cell)));
        }
    }

    /// Return the range of a head in a block, and the elements of a slot in it.
    fn in_block(&self, head: usize, slot: usize) -> (Range<usize>, Every) {
        match self.part {
            Part::Keys => (self.layout.k_range(head), Every { first: slot, step: BLOCK_CELLS }),
            _ => (self.layout.v_range(head), Every::from(slot * self.layout.d_v)),
        }
    }

    /// Return the elements of a head of a cell in the file.
    fn in_file(&self, head: usize, cell: usize) -> Every {
        let element = head * self.elements().1;
        match self.part {
            Part::TransposedValues => Every { first: element * self.n_cells + cell, step: self.n_cells },
            _ => Every::from(cell * self.width() + element),
        }
    }
}

/// Copy `n` elements of a type that has a place for each.
fn copy(kind: CellType, n: usize, from: (&[u8], Every), to: (&mut [u8], Every)) {
    match kind.unit_bytes() {
        2 => copy_sized::<2>(n, from, to),
        _ => copy_sized::<4>(n, from, to),
    }
}

fn copy_sized<const N: usize>(n: usize, (from, read): (&[u8], Every), (to, write): (&mut [u8], Every)) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let end = |every: Every| every.first + n.saturating_sub(1) * every.step;
    debug_assert!(n == 0 || end(read) < from.len() && end(write) < to.len(), "readers check lengths");
    let from = from.iter().skip(read.first).step_by(read.step);
    to.iter_mut().skip(write.first).step_by(write.step).zip(from).take(n).for_each(|(to, from)| *to = *from);
}

/// Return where the number that is the `index`-th of ours, of `len`, is among a file's.
fn place(order: Order, index: usize, len: usize) -> usize {
    let Order::Transposed { rows, cols } = order else { return index };
    let matrix = index / (rows * cols) * (rows * cols);
    let cols = cols.min((len - matrix) / rows);
    let (row, col) = ((index - matrix) / cols, (index - matrix) % cols);
    matrix + col * rows + row
}

/// Read a piece of a state from a file's numbers, of which there are as many.
pub(super) fn take(order: Order, theirs: &[u8], ours: &mut [f32]) {
    let (theirs, len) = (theirs.as_chunks::<4>().0, ours.len());
    debug_assert_eq!(theirs.len(), len);
    for (index, number) in ours.iter_mut().enumerate() {
        *number = f32::from_le_bytes(theirs[place(order, index, len)]);
    }
}

/// Append a piece of a state as a file has it.
pub(super) fn give(order: Order, ours: &[f32], out: &mut Vec<u8>) {
    let first = out.len();
    out.resize(first + ours.len() * 4, 0);
    let theirs = out[first..].as_chunks_mut::<4>().0;
    for (index, number) in ours.iter().enumerate() {
        theirs[place(order, index, ours.len())] = number.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn transposed_pieces_go_there_and_back_with_a_narrower_end() {
        // Two rows, panels of three columns and then one of two.
        let order = Order::Transposed { rows: 2, cols: 3 };
        let ours = [0., 1., 2., 10., 11., 12., 3., 4., 13., 14.];
        let mut theirs = vec![];
        give(order, &ours, &mut theirs);
        let numbers = theirs.as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x));
        assert_eq!(numbers.collect::<Vec<f32>>(), [0., 10., 1., 11., 2., 12., 3., 13., 4., 14.]);
        let mut back = [0.0; 10];
        take(order, &theirs, &mut back);
        assert_eq!(back, ours);
    }

    #[test]
    fn elements_keep_their_bits() {
        let (from, mut to) = ([1u8, 2, 3, 4, 5, 6, 7, 8], [0u8; 8]);
        copy(CellType::F16, 2, (&from, Every { first: 1, step: 2 }), (&mut to, Every { first: 0, step: 3 }));
        assert_eq!(to, [3, 4, 0, 0, 0, 0, 7, 8]);
        copy(CellType::F32, 1, (&from, Every::from(1)), (&mut to, Every::from(0)));
        assert_eq!(to, [5, 6, 7, 8, 0, 0, 7, 8]);
    }
}
