//! Numbers from one order to another, bit by bit the same.

use super::layout::Order;
use alloc::vec::Vec;
use backstitch_core::cell::CellType;

/// Every `step`-th element from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Every {
    pub first: usize,
    pub step: usize,
}

impl Every {
    /// Neighbours from `first` on.
    pub fn from(first: usize) -> Every {
        Every { first, step: 1 }
    }
}

/// Copy `n` elements of a type that has a place for each.
pub(super) fn copy(kind: CellType, n: usize, from: (&[u8], Every), to: (&mut [u8], Every)) {
    match kind.unit_bytes() {
        2 => copy_sized::<2>(n, from, to),
        _ => copy_sized::<4>(n, from, to),
    }
}

fn copy_sized<const N: usize>(n: usize, (from, read): (&[u8], Every), (to, write): (&mut [u8], Every)) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let from = from.get(read.first..).unwrap_or_default().iter().step_by(read.step.max(1));
    let to = to.get_mut(write.first..).unwrap_or_default().iter_mut().step_by(write.step.max(1));
    to.zip(from).take(n).for_each(|(to, from)| *to = *from);
}

/// Return where the number that is the `index`-th of ours, of `len`, is among a file's.
fn place(order: Order, index: usize, len: usize) -> usize {
    let Order::Transposed { rows, cols } = order else { return index };
    let matrix = index / (rows * cols) * (rows * cols);
    let cols = cols.min((len - matrix) / rows);
    let (row, col) = ((index - matrix) / cols, (index - matrix) % cols);
    matrix + col * rows + row
}

/// Return a piece of a state from a file's numbers.
pub(super) fn take(order: Order, theirs: &[u8], ours: &mut [f32]) {
    let (theirs, len) = (theirs.as_chunks::<4>().0, ours.len());
    for (index, number) in ours.iter_mut().enumerate() {
        let found = theirs.get(place(order, index, len)).copied().unwrap_or_default();
        *number = f32::from_le_bytes(found);
    }
}

/// Return a piece of a state as a file has it.
pub(super) fn give(order: Order, ours: &[f32], out: &mut Vec<u8>) {
    let first = out.len();
    out.resize(first + ours.len() * 4, 0);
    let theirs = out[first..].as_chunks_mut::<4>().0;
    for (index, number) in ours.iter().enumerate() {
        if let Some(place) = theirs.get_mut(place(order, index, ours.len())) {
            *place = number.to_le_bytes();
        }
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
        copy(CellType::F32, 9, (&from, Every::from(1)), (&mut to, Every::from(0)));
        assert_eq!(to, [5, 6, 7, 8, 0, 0, 7, 8]);
    }
}
