//! Numbers of states from one order to another, bit by bit the same.

use super::layout::Order;
use alloc::vec::Vec;

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
}
