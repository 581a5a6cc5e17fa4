//! The layout of queries.

use super::*;
use std::{vec, vec::Vec};

#[test]
fn rows_are_placed_at_every_height() {
    for height in (1..=MAX_ROWS).map(tile_height) {
        let mut out = vec![0.0; 5 * height];
        for r in 0..height {
            let row: Vec<f32> = (0..5).map(|d| (100 * d + r) as f32).collect();
            place_row(&row, r, height, &mut out);
        }
        let wanted: Vec<f32> = (0..5).flat_map(|d| (0..height).map(move |r| (100 * d + r) as f32)).collect();
        assert_eq!(out, wanted);
    }
}
