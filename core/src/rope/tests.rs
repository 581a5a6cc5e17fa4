use super::*;
use crate::cell::CellType;
use backstitch_testing::{Random, assert_bits};
use std::{vec, vec::Vec};

const PLAIN: Rope = Rope {
    n_rot: 8,
    pairs: Pairs::Adjacent,
    freq_base: 10_000.0,
    freq_scale: 1.0,
    attn_factor: 1.0,
    yarn: None,
};

fn frequencies(rope: &Rope, factors: &[f32]) -> Vec<f64> {
    let mut out = vec![0.0; rope.n_rot / 2];
    rope.frequencies(factors, &mut out).unwrap();
    out
}

fn angles(rope: &Rope, pos: i32) -> Vec<f32> {
    let mut row = vec![0.0; rope.row_len()];
    rope.angles(&frequencies(rope, &[]), pos, &mut row).unwrap();
    row
}

/// Rotation as the paper writes it, in `f64`.
fn by_definition(rope: &Rope, frequencies: &[f64], pos: i32, x: &mut [f32]) {
    for (i, frequency) in frequencies.iter().enumerate() {
        let (a, b) = match rope.pairs {
            Pairs::Adjacent => (2 * i, 2 * i + 1),
            Pairs::Split => (i, i + rope.n_rot / 2),
        };
        let (sin, cos) = (f64::from(pos) * frequency).sin_cos();
        let (u, v) = (f64::from(x[a]), f64::from(x[b]));
        (x[a], x[b]) = ((u * cos - v * sin) as f32, (u * sin + v * cos) as f32);
    }
}

#[test]
fn heads_turn_as_defined_on_every_set() {
    let mut random = Random::new(5);
    for n_rot in [0, 2, 6, 8, 16, 20, 32, 34, 64, 70, 128] {
        for pairs in [Pairs::Adjacent, Pairs::Split] {
            for tail in [0, 3] {
                let rope = Rope { n_rot, pairs, ..PLAIN };
                let d = n_rot + tail;
                let row = angles(&rope, 777);
                let x = random.floats(3 * d);
                let mut expected = x.clone();
                (KernelSet::scalar().rotate)(&mut expected, d, pairs, &row);
                for set in KernelSet::available() {
                    let mut got = x.clone();
                    (set.rotate)(&mut got, d, pairs, &row);
                    assert_bits(format_args!("{} {n_rot} {pairs:?}", set.name()), &got, &expected);
                }
                let mut exact = x.clone();
                for head in exact.chunks_exact_mut(d.max(1)) {
                    by_definition(&rope, &frequencies(&rope, &[]), 777, head);
                }
                assert!(expected.iter().zip(&exact).all(|(a, b)| (a - b).abs() < 5e-7));
            }
        }
    }
}

#[test]
fn turning_far_is_as_exact_as_turning_near() {
    let rope = Rope { n_rot: 64, ..PLAIN };
    for pos in [0, 1, 8191, 131_071, 10_000_000] {
        let row = angles(&rope, pos);
        for (i, pair) in row[..64].chunks_exact(2).enumerate() {
            let angle = f64::from(pos) * 10_000f64.powf(-(i as f64) / 32.0);
            assert!((f64::from(pair[0]) - angle.cos()).abs() < 1e-7, "{pos} {i}");
        }
    }
}

#[test]
fn linear_scaling_and_factors_slow_the_turning() {
    let plain = frequencies(&PLAIN, &[]);
    let scaled = frequencies(&Rope { freq_scale: 0.25, ..PLAIN }, &[]);
    let divided = frequencies(&PLAIN, &[1.0, 2.0, 4.0, 8.0]);
    for i in 0..4 {
        assert_eq!(scaled[i], plain[i] / 4.0);
        assert_eq!(divided[i], plain[i] / f64::from(1 << i));
    }
}

#[test]
fn yarn_keeps_fast_pairs_scales_slow_ones_and_raises_the_amplitude() {
    let yarn = Yarn { ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0, n_ctx_orig: 4096 };
    let rope = Rope { n_rot: 64, freq_scale: 0.25, yarn: Some(yarn), ..PLAIN };
    let (plain, got) = (frequencies(&Rope { n_rot: 64, ..PLAIN }, &[]), frequencies(&rope, &[]));
    // 4096 positions hold 32 turns up to pair 10.46 and one turn up to pair 22.5.
    for i in 0..32 {
        let share = (1.0 - (i as f64 - 10.0) / 13.0).clamp(0.0, 1.0);
        let wanted = plain[i] * (0.25 * (1.0 - share) + share);
        assert!((got[i] / wanted - 1.0).abs() < 1e-12, "{i}");
    }
    let mut row = vec![0.0; 128];
    rope.angles(&got, 0, &mut row).unwrap();
    assert!((row[0] - (1.0 + 0.1 * 4f32.ln())).abs() < 1e-6);
}

#[test]
fn keys_in_the_cache_follow_their_positions() {
    let layout = CellLayout { n_head_kv: 2, d_k: 12, d_v: 4, k_type: CellType::F32, v_type: CellType::F32 };
    for pairs in [Pairs::Adjacent, Pairs::Split] {
        let rope = Rope { pairs, attn_factor: 1.5, ..PLAIN };
        let frequencies = frequencies(&rope, &[]);
        let mut block = vec![0; layout.block_bytes()];
        let keys = Random::new(2).floats(24);
        for (cell, pos) in [(3, 20), (4, 20), (5, 13)] {
            let (mut keys, row) = (keys.clone(), angles(&rope, pos));
            (KernelSet::scalar().rotate)(&mut keys, 12, pairs, &row);
            layout.store_k(&mut block, cell, &keys);
        }
        let mut scratch = vec![0.0; rope.row_len() + 24];
        let set = KernelSet::detect().unwrap();
        rope.shift_keys(set, &frequencies, &layout, &mut block, 1 << 3, -7, &mut scratch).unwrap();
        let mut rows = [[0.0; 24]; 3];
        rows.iter_mut().enumerate().for_each(|(i, row)| layout.load_k(&block, 3 + i, row));
        assert!(rows[0].iter().zip(&rows[2]).all(|(a, b)| (a - b).abs() < 1e-6), "moved from 20 to 13");
        assert!(rows[1].iter().zip(&rows[2]).any(|(a, b)| (a - b).abs() > 1e-3), "the next cell stayed");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let mut out = [0.0; 4];
    let odd = Rope { n_rot: 7, ..PLAIN };
    assert_eq!(odd.frequencies(&[], &mut out), Err(Error::Ragged { what: "n_rot", found: 7, block: 2 }));
    let short = Error::Length { what: "frequencies", found: 3, wanted: 4 };
    assert_eq!(PLAIN.frequencies(&[], &mut out[..3]), Err(short));
    assert_eq!(PLAIN.angles(&[0.0; 3], 0, &mut [0.0; 16]), Err(short));
    let factors = Error::Length { what: "frequency factors", found: 1, wanted: 4 };
    assert_eq!(PLAIN.frequencies(&[1.0], &mut out), Err(factors));
    let row = Error::Length { what: "row of angles", found: 8, wanted: 16 };
    assert_eq!(PLAIN.angles(&out, 0, &mut [0.0; 8]), Err(row));
}
