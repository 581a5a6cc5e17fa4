mod reference;

use super::*;
use crate::isa::cache;
use crate::packed::PackedType;
use crate::packed::{BLOCK, Line, Source, pack, packed_bytes};
use crate::pool::{Inline, ThreadPool, limited::Limited};
use crate::quantized::{QBlock, quantize, quantized_row_bytes};
use crate::{DType, float};
use backstitch_testing::{Random, assert_bits, each};

/// Return all types that hold weights.
fn types() -> Vec<DType> {
    let all = DType::table().iter().map(|info| info.dtype);
    all.filter(|dtype| PackedType::of(*dtype).is_some()).collect()
}

/// A random matrix, as stored and packed.
struct Weights {
    dtype: DType,
    rows: Vec<u8>,
    n_rows: usize,
    n_cols: usize,
    lines: Vec<Line>,
}

impl Weights {
    fn new(dtype: DType, n_rows: usize, n_cols: usize, values: &[f32]) -> Self {
        let mut rows = vec![0; dtype.row_bytes(n_cols).unwrap() * n_rows];
        dtype.encode_important(values, &vec![1.0; n_cols], &mut rows).unwrap();
        Self::stored(dtype, n_rows, n_cols, rows)
    }

    /// Make the matrix from rows as a file holds them.
    fn stored(dtype: DType, n_rows: usize, n_cols: usize, rows: Vec<u8>) -> Self {
        let source = Source::new(dtype, n_rows, n_cols, &rows).unwrap();
        let size = packed_bytes(source.kind(), n_rows, n_cols).unwrap();
        let mut lines = vec![Line([0x55; 64]); size / 64];
        pack(&source, 0, bytemuck::cast_slice_mut(&mut lines)).unwrap();
        Self { dtype, rows, n_rows, n_cols, lines }
    }

    fn random(dtype: DType, n_rows: usize, n_cols: usize) -> Self {
        let seed = (dtype as usize * 1000 + n_rows) * 1000 + n_cols;
        Self::new(dtype, n_rows, n_cols, &Random::new(seed as u64).floats(n_rows * n_cols))
    }

    fn packed(&self) -> Packed<'_> {
        let kind = PackedType::of(self.dtype).unwrap();
        Packed::new(kind, self.n_rows, self.n_cols, bytemuck::cast_slice(&self.lines)).unwrap()
    }

    fn floats(&self) -> Vec<f32> {
        let mut floats = vec![0.0; self.n_rows * self.n_cols];
        self.dtype.decode(&self.rows, &mut floats).unwrap();
        floats
    }

    /// Return the product by the module's description, computed from the rows as stored, without
    /// panels, lanes or kernels.
    fn naive(&self, x: &[f32]) -> Vec<f32> {
        let (w, row_bytes) = (self.floats(), self.dtype.row_bytes(self.n_cols).unwrap());
        let rows = w.chunks(self.n_cols).zip(self.rows.chunks(row_bytes)).collect::<Vec<_>>();
        let dot = |(w, stored): &(&[f32], &[u8]), x: &[f32]| {
            if self.packed().kind().takes_quantized() {
                reference::dot(self.dtype, stored, w, x)
            } else {
                w.iter().zip(x).fold(0.0, |acc, (w, x)| float::fma(*w, *x, acc))
            }
        };
        x.chunks(self.n_cols).flat_map(|x| rows.iter().map(|row| dot(row, x)).collect::<Vec<_>>()).collect()
    }
}

/// Rows of `n_cols` floats with a quantised copy.
struct Rows {
    floats: Vec<f32>,
    n_cols: usize,
    room: Vec<QBlock>,
}

impl Rows {
    fn new(set: &KernelSet, floats: Vec<f32>, n_cols: usize) -> Self {
        let whole = n_cols.is_multiple_of(BLOCK);
        let mut room = vec![QBlock::default(); if whole { floats.len() / BLOCK } else { 0 }];
        if whole {
            quantize(set, &Inline, &floats, n_cols, bytemuck::cast_slice_mut(&mut room)).unwrap();
        }
        Self { floats, n_cols, room }
    }

    fn multiply(&self, set: &KernelSet, pool: &dyn Pool, w: &Weights, write: Write) -> Vec<f32> {
        let n_tokens = self.floats.len() / self.n_cols;
        let mut out = vec![0.5; n_tokens * w.n_rows];
        let mut again = self.room.clone();
        let input = if w.packed().kind().takes_quantized() {
            let bytes = bytemuck::cast_slice_mut(&mut again);
            Input::quantized(quantize(set, pool, &self.floats, self.n_cols, bytes).unwrap())
        } else {
            Input::floats(&self.floats, self.n_cols).unwrap()
        };
        let product = Product { weights: w.packed(), out: &mut out, write };
        matmul(set, pool, input, &mut [product]).unwrap();
        out
    }
}

/// Return numbers of columns; the last is long enough for every set's way with long rows.
fn columns(dtype: DType) -> [usize; 4] {
    match dtype.block_len() {
        1 => [1, 3, 32, 77],
        64 => [64, 128, 192, 832],
        128 => [128, 256, 384, 896],
        256 => [256, 512, 256, 1024],
        _ => [32, 64, 96, 800],
    }
}

#[test]
fn products_are_those_of_the_description() {
    each(types(), |&dtype| {
        for (n_cols, n_rows) in columns(dtype).into_iter().zip([1, 16, 37, 80]) {
            let w = Weights::random(dtype, n_rows, n_cols);
            let x = Rows::new(KernelSet::scalar(), Random::new(3).floats(5 * n_cols), n_cols);
            let wanted = w.naive(&x.floats);
            let got = x.multiply(KernelSet::scalar(), &Inline, &w, Write::Store);
            assert_bits(format_args!("{n_rows}x{n_cols}"), &got, &wanted);
            let sums: Vec<_> = wanted.iter().map(|y| 0.5 + y).collect();
            let got = x.multiply(KernelSet::scalar(), &Inline, &w, Write::Add);
            assert_bits(format_args!("{n_rows}x{n_cols} added"), &got, &sums);
        }
    });
}

#[test]
fn products_are_close_to_the_exact_ones() {
    for dtype in types() {
        let (n_rows, n_cols) = (48, 256);
        let w = Weights::random(dtype, n_rows, n_cols);
        let x = Random::new(5).floats(n_cols);
        let got = Rows::new(KernelSet::scalar(), x.clone(), n_cols).multiply(
            KernelSet::scalar(),
            &Inline,
            &w,
            Write::Store,
        );
        for (w, y) in w.floats().chunks(n_cols).zip(got) {
            let exact: f64 = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            // Half a step of the activations' 8 bits, times the weights' root sum of squares, three
            // times over.
            let bound = if PackedType::of(dtype).unwrap().takes_quantized() { 0.15 } else { 1e-5 };
            assert!((exact - f64::from(y)).abs() < bound, "{dtype}: {y} for {exact}");
        }
    }
}

#[test]
fn every_set_gives_the_same_bits() {
    each(types(), |&dtype| {
        for (n_cols, n_rows) in columns(dtype).into_iter().zip([1, 33, 16, 130]) {
            let w = Weights::random(dtype, n_rows, n_cols);
            for n_tokens in [1, 2, 3, 6, 19] {
                let x = Rows::new(KernelSet::scalar(), Random::new(7).floats(n_tokens * n_cols), n_cols);
                let wanted = x.multiply(KernelSet::scalar(), &Inline, &w, Write::Add);
                for set in KernelSet::available() {
                    let got = x.multiply(set, &Inline, &w, Write::Add);
                    assert_bits(format_args!("{} {n_rows}x{n_cols}, {n_tokens}", set.name()), &got, &wanted);
                }
            }
        }
    });
}

/// At the edges of tiles and groups of tokens, with a panel without a partner and more columns than
/// are unpacked at once.
#[test]
fn many_tokens_give_the_same_bits_on_every_set() {
    each(types(), |&dtype| {
        cache::ASSUMED.set(Some(None));
        let n_cols = match dtype.block_len() {
            1 => 40,
            32 => 1120,
            _ => 1280,
        };
        let w = Weights::random(dtype, 77, n_cols);
        let floats = Random::new(31).floats(230 * n_cols);
        let narrow = Rows::new(KernelSet::scalar(), floats.clone(), n_cols);
        let wanted = narrow.multiply(KernelSet::scalar(), &Inline, &w, Write::Add);
        for set in KernelSet::available().filter(|set| set.name() != "scalar") {
            for n_tokens in
                [15, 16, 17, 31, 32, 33, 48, 50, 51, 52, 95, 96, 97, 111, 112, 113, 191, 192, 208, 230]
            {
                let x = Rows::new(set, floats[..n_tokens * n_cols].to_vec(), n_cols);
                let got = x.multiply(set, &Inline, &w, Write::Add);
                assert_bits(format_args!("{} {n_tokens}", set.name()), &got, &wanted[..n_tokens * 77]);
            }
        }
    });
}

/// With more tokens and blocks than pass at once where there is a near third cache.
#[test]
fn the_largest_passes_give_the_same_bits_on_every_set() {
    let types = [DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::Q4_K, DType::Q6_K];
    each(types.to_vec(), |&dtype| {
        cache::ASSUMED.set(Some(Some(32 << 20)));
        let n_cols = if dtype.block_len() == 32 { 65 * 32 } else { 9 * 256 };
        let (n_rows, n_tokens) = (33, 12 * 48 + 13);
        let w = Weights::random(dtype, n_rows, n_cols);
        let floats = Random::new(37).floats(n_tokens * n_cols);
        let wanted = Rows::new(KernelSet::scalar(), floats.clone(), n_cols).multiply(
            KernelSet::scalar(),
            &Inline,
            &w,
            Write::Add,
        );
        for set in KernelSet::available().filter(|set| set.name() != "scalar") {
            let got = Rows::new(set, floats.clone(), n_cols).multiply(set, &Inline, &w, Write::Add);
            assert_bits(set.name(), &got, &wanted);
        }
    });
}

#[test]
fn a_token_does_not_know_its_company() {
    each(types(), |&dtype| {
        let (n_rows, n_cols) = (100, *columns(dtype).last().unwrap());
        let w = Weights::random(dtype, n_rows, n_cols);
        let floats = Random::new(11).floats(45 * n_cols);
        for set in KernelSet::available() {
            let all = Rows::new(set, floats.clone(), n_cols).multiply(set, &Inline, &w, Write::Store);
            for n_tokens in 1..=20 {
                for first in [0, 45 - n_tokens] {
                    let part = floats[first * n_cols..(first + n_tokens) * n_cols].to_vec();
                    let got = Rows::new(set, part, n_cols).multiply(set, &Inline, &w, Write::Store);
                    let wanted = &all[first * n_rows..(first + n_tokens) * n_rows];
                    assert_bits(format_args!("{} {n_tokens} from {first}", set.name()), &got, wanted);
                }
            }
        }
    });
}

#[test]
fn threads_change_no_bit() {
    let pools = [2, 3, 5].map(|n| ThreadPool::new(n).unwrap());
    each(types(), |&dtype| {
        let (n_rows, n_cols) = (330, *columns(dtype).last().unwrap());
        let w = Weights::random(dtype, n_rows, n_cols);
        for set in KernelSet::available() {
            for n_tokens in [1, 70] {
                let x = Rows::new(set, Random::new(13).floats(n_tokens * n_cols), n_cols);
                let wanted = x.multiply(set, &Inline, &w, Write::Store);
                for pool in &pools {
                    assert_bits(pool.n_threads(), &x.multiply(set, pool, &w, Write::Store), &wanted);
                }
            }
        }
    });
}

#[test]
fn limits_of_jobs_are_kept_and_change_no_bit() {
    let limited = Limited::new(1 << 20);
    each(types(), |&dtype| {
        let (n_rows, n_cols) = (330, *columns(dtype).last().unwrap());
        let w = Weights::random(dtype, n_rows, n_cols);
        for set in KernelSet::available() {
            for n_tokens in [1, 70] {
                let x = Rows::new(set, Random::new(13).floats(n_tokens * n_cols), n_cols);
                let wanted = x.multiply(set, &Inline, &w, Write::Store);
                assert_bits(n_tokens, &x.multiply(set, &limited, &w, Write::Store), &wanted);
                // 21 panels: as many jobs as the limit asks for and no fewer.
                let panels = n_rows.div_ceil(PANEL) as u64;
                let cost = panels * panel_cost(&w.packed(), n_tokens);
                assert!(
                    limited.n_jobs() as u64 >= cost.div_ceil(limited.most),
                    "{dtype:?}, {n_tokens} tokens"
                );
            }
        }
    });
}

#[test]
fn products_that_share_an_input_are_those_computed_alone() {
    let set = KernelSet::detect().unwrap();
    let pool = ThreadPool::new(3).unwrap();
    let weights = [(DType::Q4_0, 96), (DType::F16, 40), (DType::Q8_0, 8), (DType::Q4_1, 300)];
    let weights = weights.map(|(dtype, n_rows)| Weights::random(dtype, n_rows, 64));
    let x = Rows::new(set, Random::new(17).floats(9 * 64), 64);
    let mut room = vec![QBlock::default(); 18];
    let quantized = quantize(set, &pool, &x.floats, 64, bytemuck::cast_slice_mut(&mut room)).unwrap();
    let mut outs = weights.each_ref().map(|w| vec![0.5; 9 * w.n_rows]);
    let mut products: Vec<_> = outs
        .iter_mut()
        .zip(&weights)
        .map(|(out, w)| Product { weights: w.packed(), out, write: Write::Add })
        .collect();
    matmul(set, &pool, Input::both(&x.floats, quantized).unwrap(), &mut products).unwrap();
    for (w, got) in weights.iter().zip(&outs) {
        assert_bits(w.dtype, got, &x.multiply(set, &Inline, w, Write::Add));
    }
}

#[test]
fn extreme_numbers_give_the_same_bits_on_every_set() {
    each(types(), |&dtype| {
        let (n_rows, n_cols) = (32, if dtype.block_len() > 64 { 256 } else { 64 });
        let mut values = Random::new(19).wild_floats(n_rows * n_cols);
        // Half precision holds less; what overflows it becomes infinite, which is wanted here for
        // some rows only.
        values.iter_mut().skip(n_cols * 4).for_each(|x| *x = x.clamp(-1e4, 1e4));
        let w = Weights::new(dtype, n_rows, n_cols, &values);
        let mut x = Random::new(23).wild_floats(8 * n_cols);
        for (i, bad) in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN].into_iter().enumerate() {
            x[i * n_cols + 5] = bad;
        }
        x[3 * n_cols..4 * n_cols].fill(f32::from_bits(3));
        x[4 * n_cols..5 * n_cols].fill(-0.0);
        let rows = Rows::new(KernelSet::scalar(), x, n_cols);
        let wanted = rows.multiply(KernelSet::scalar(), &Inline, &w, Write::Store);
        for set in KernelSet::available() {
            assert_bits(set.name(), &rows.multiply(set, &Inline, &w, Write::Store), &wanted);
        }
        assert!(wanted[..3 * n_rows].iter().all(|y| !y.is_finite()), "{dtype}: infinities do not vanish");
    });
}

/// Few tokens, and so many tokens and columns that tiles are used. An encoder never writes most of
/// these blocks: scales that are infinite or no number, the ends of every range together.
#[test]
fn whatever_bytes_a_file_holds_every_set_gives_the_same_bits() {
    each(types(), |&dtype| {
        let (n_rows, n_cols) = (80, if dtype.block_len() > 32 { 1024 } else { 800 });
        let row_bytes = dtype.row_bytes(n_cols).unwrap();
        let mut bytes = Random::new(37).bytes(n_rows * row_bytes);
        for (row, fill) in bytes.chunks_mut(row_bytes).zip([0, 0x7f, 0x80, 0xff, 0x77, 0x88]) {
            row.fill(fill);
        }
        let w = Weights::stored(dtype, n_rows, n_cols, bytes);
        let floats = w.floats();
        for (row, wanted) in floats.chunks(n_cols).enumerate() {
            let mut decoded = vec![0.0; n_cols];
            w.packed().decode_row(row, &mut decoded).unwrap();
            assert_bits(format_args!("{dtype} row {row}"), &decoded, wanted);
        }
        let mut x = Random::new(41).floats(41 * n_cols);
        // Whole rows of the largest activations, of both signs.
        x[..n_cols].fill(1.0);
        x[20 * n_cols..21 * n_cols].fill(-1.0);
        x[40 * n_cols] = f32::NAN;
        for n_tokens in [8, 41] {
            let rows = Rows::new(KernelSet::scalar(), x[..n_tokens * n_cols].to_vec(), n_cols);
            let wanted = rows.multiply(KernelSet::scalar(), &Inline, &w, Write::Store);
            for set in KernelSet::available() {
                let got = rows.multiply(set, &Inline, &w, Write::Store);
                assert_bits(format_args!("{dtype} {} {n_tokens}", set.name()), &got, &wanted);
            }
        }
    });
}

/// More tokens than pass one pair of panels together, and more columns than go without tiles.
#[test]
fn tokens_in_several_passes_give_the_same_bits_on_every_set() {
    for dtype in [DType::Q8_0, DType::Q4_1] {
        let w = Weights::random(dtype, 40, 800);
        let x = Rows::new(KernelSet::scalar(), Random::new(43).floats(1250 * 800), 800);
        let wanted = x.multiply(KernelSet::scalar(), &Inline, &w, Write::Store);
        for set in KernelSet::available() {
            assert_bits(set.name(), &x.multiply(set, &Inline, &w, Write::Store), &wanted);
        }
    }
}

#[test]
fn quantised_blocks_are_as_described_on_every_set() {
    let mut x = Random::new(29).floats(32 * 40);
    x[0..32].fill(0.0);
    x[32..64].fill(1e-42);
    x[70] = f32::INFINITY;
    x[100] = f32::NAN;
    x[128..160].copy_from_slice(&Random::new(1).wild_floats(32).map_max());
    for set in KernelSet::available() {
        let rows = Rows::new(set, x.clone(), 32);
        for (i, (x, q)) in x.chunks(32).zip(&rows.room).enumerate() {
            let what = format!("{} block {i}", set.name());
            let bytes: [i8; 32] = bytemuck::cast(q.q.map(i32::to_le));
            let total: i32 = bytes.iter().map(|q| i32::from(*q)).sum();
            assert_eq!((q.correction_8, q.correction_128), (-8 * total, -128 * total), "{what}");
            let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            match i {
                0 | 1 => assert_eq!(*q, QBlock::default(), "{what}"),
                2 | 3 => assert!(q.d.is_nan() && q.sum.is_nan() && total == 0, "{what}"),
                _ => {
                    assert_eq!(q.d.to_bits(), (max / 127.0).to_bits(), "{what}");
                    assert_eq!(q.sum.to_bits(), (q.d * total as f32).to_bits(), "{what}");
                    let wanted = x.iter().map(|x| (x * (127.0 / max)).round_ties_even() as i8);
                    assert!(wanted.eq(bytes), "{what}");
                }
            }
        }
    }
}

trait MapMax {
    fn map_max(self) -> Vec<f32>;
}

impl MapMax for Vec<f32> {
    /// Set the first number to the largest float, for which `127 / max` is still a normal number.
    fn map_max(mut self) -> Vec<f32> {
        self[0] = f32::MAX;
        self
    }
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_written() {
    let set = KernelSet::scalar();
    let w = Weights::random(DType::Q8_0, 20, 64);
    let f = Weights::random(DType::F32, 20, 64);
    let floats = vec![1.0; 2 * 64];
    let mut room = vec![QBlock::default(); 4];
    let q = quantize(set, &Inline, &floats, 64, bytemuck::cast_slice_mut(&mut room)).unwrap();
    let narrow = Weights::random(DType::F32, 20, 32);
    let refused = |input: Input<'_>, second: &Weights, len: usize| {
        let (mut a, mut b) = (vec![7.0; 40], vec![7.0; len]);
        let first = if input.floats.is_some() { &f } else { &w };
        let mut products = [
            Product { weights: first.packed(), out: &mut a, write: Write::Store },
            Product { weights: second.packed(), out: &mut b, write: Write::Store },
        ];
        let error = matmul(set, &Inline, input, &mut products).unwrap_err();
        assert!(a.iter().chain(&b).all(|x| *x == 7.0));
        error
    };
    let (q, x) = (Input::quantized(q), Input::floats(&floats, 64).unwrap());
    assert_eq!(refused(q, &f, 40), Error::Length { what: "float input", found: 0, wanted: 128 });
    assert_eq!(refused(x, &w, 40), Error::Length { what: "quantised input", found: 0, wanted: 128 });
    let wanted = Error::Shape { what: "weights", found: [20, 32], wanted: [20, 64] };
    assert_eq!(refused(x, &narrow, 40), wanted);
    assert_eq!(refused(q, &w, 41), Error::Length { what: "output of a product", found: 41, wanted: 40 });
    assert!(Input::floats(&floats, 63).is_err());
    assert!(Input::floats(&floats, 0).is_err());
    let mut products: [Product<'_>; MAX_PRODUCTS + 1] =
        core::array::from_fn(|_| Product { weights: w.packed(), out: &mut [], write: Write::Store });
    assert!(matches!(matmul(set, &Inline, q, &mut products), Err(Error::Length { what: "products", .. })));
}

#[test]
fn quantising_refuses_ragged_rows_and_small_rooms() {
    let set = KernelSet::scalar();
    let mut room = vec![QBlock::default(); 2];
    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
    assert_eq!(quantized_row_bytes(64).unwrap(), room.len());
    assert!(matches!(quantize(set, &Inline, &[1.0; 64], 48, room), Err(Error::Ragged { .. })));
    assert!(matches!(quantize(set, &Inline, &[1.0; 65], 64, room), Err(Error::Ragged { .. })));
    assert!(matches!(quantize(set, &Inline, &[1.0; 128], 64, room), Err(Error::Length { .. })));
    assert!(matches!(quantize(set, &Inline, &[1.0; 32], 32, &mut room[1..]), Err(Error::Alignment { .. })));
    assert!(room.iter().all(|b| *b == 0));
}
