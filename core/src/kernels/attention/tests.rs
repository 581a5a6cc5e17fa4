//! The loops that one processor alone takes, beside the others, on every machine.

use super::*;
use crate::isa::Scalar;
use backstitch_testing::{Random, assert_bits};
use std::{vec, vec::Vec};

/// Return scores and values of a span: `R` rows, heads of 40 dimensions, F16 cells, of which some
/// rows do not see some.
fn span<const R: usize, const FROM_MEMORY: bool>() -> Vec<f32> {
    const D: usize = 40;
    let s = Scalar;
    let mut random = Random::new(5);
    let mut cells = || -> Vec<u16> {
        let mut cells = vec![0; D * BLOCK_CELLS];
        super::super::stored::encode_f16(s, &random.floats(cells.len()), &mut cells);
        cells
    };
    let blocks: Vec<[Vec<u16>; 2]> = (0..SPAN_BLOCKS).map(|_| [cells(), cells()]).collect();
    let [keys, v] = [0, 1].map(|i| core::array::from_fn(|block| bytemuck::cast_slice(&blocks[block][i])));
    let q = random.floats(D * R);
    let mut p = [[0.0; SPAN_CELLS]; R];
    scores::<_, F16, R, 2, FROM_MEMORY>(s, &q, &keys, &v, false, &mut p);
    let mut masks = [[u32::MAX; SPAN_BLOCKS]; R];
    (masks[0][6], masks[R - 1][7]) = (0x00ff_00ff, 0);
    let join = Join { first: u16::MAX, sees: u16::MAX, ..Join::NONE };
    let mut out = vec![0.0; D * R];
    let mut rows: Vec<&mut [f32]> = out.chunks_exact_mut(D).collect();
    values::<_, F16, R, 2, FROM_MEMORY>(s, &p, &masks, &v, &keys, &join, &mut rows);
    [p.as_flattened(), &out].concat()
}

#[test]
fn factors_from_memory_give_the_same_bits() {
    assert_bits("3 rows", &span::<3, true>(), &span::<3, false>());
    assert_bits("12 rows", &span::<12, true>(), &span::<12, false>());
}

#[test]
fn rows_are_placed_at_every_height() {
    for height in (0..=MAX_ROWS).map(tile_height).filter(|height| *height > 0) {
        let mut out = vec![0.0; 5 * height];
        for r in 0..height {
            let row: Vec<f32> = (0..5).map(|d| (100 * d + r) as f32).collect();
            place_row(&row, r, height, &mut out);
        }
        let wanted: Vec<f32> = (0..5).flat_map(|d| (0..height).map(move |r| (100 * d + r) as f32)).collect();
        assert_eq!(out, wanted);
    }
}
