//! Every operation of a set held to the scalar one. No test of a kernel meets all lanes and all
//! bytes.

use super::{LANES, Scalar, Simd};
use backstitch_testing::Random;

/// Panic unless all operations of `simd` return what those of the scalar set do. Inlined, for sets
/// whose operations are assembly, which a function takes only if it is compiled for their features;
/// so no closure multiplies bytes.
#[inline(always)]
pub(super) fn check<S: Simd>(simd: S) {
    check_floats(simd);
    check_zeros(simd);
    check_halves(simd);
    check_integers(simd);
    check_bytes(simd);
}

/// Return floats of all kinds.
fn floats(random: &mut Random) -> [f32; LANES] {
    core::array::from_fn(|_| match random.below(8) {
        0 => f32::NAN,
        1 => f32::INFINITY.copysign(random.float()),
        2 => random.wild_floats(1)[0],
        3 => f32::from_bits(random.bits() as u32),
        _ => random.float() * 100.0,
    })
}

fn stored<S: Simd>(s: S, x: S::F) -> [u32; LANES] {
    let mut out = [0.0; LANES];
    s.store(x, &mut out);
    out.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}

/// Return sixteen integers, by way of floats.
fn lanes<S: Simd>(s: S, x: S::I) -> [i32; LANES] {
    let mut out = [0.0; LANES];
    s.store(s.with_bits(x), &mut out);
    out.map(|x| x.to_bits() as i32)
}

fn ints<S: Simd>(s: S, x: &[i32; LANES]) -> S::I {
    s.to_bits(s.load(&x.map(|x| f32::from_bits(x as u32))))
}

/// `same!(simd, rounds, |s, random| value)`: the value is the same for both sets.
macro_rules! same {
    ($simd:expr, $rounds:expr, |$s:ident, $random:ident| $value:expr) => {
        for seed in 0..$rounds {
            let of_scalar = {
                let ($s, $random) = (Scalar::token(), &mut Random::new(seed));
                $value
            };
            let of_simd = {
                let ($s, $random) = ($simd, &mut Random::new(seed));
                $value
            };
            assert_eq!(of_simd, of_scalar, "{} with seed {seed}", stringify!($value));
        }
    };
}

#[inline(always)]
fn check_floats<S: Simd>(simd: S) {
    same!(simd, 3000, |s, random| {
        let (x, y) = (floats(random), floats(random));
        let (a, b) = (s.load(&x), s.load(&y));
        let mask = random.bits() as u16;
        [
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, b),
            s.max(a, b),
            s.min(a, b),
            s.select(mask, a, b),
            s.abs(a),
            s.swap_pairs(a),
            s.splat(x[3]),
            s.fma(a, b, s.load(&floats(random))),
        ]
        .map(|x| stored(s, x))
    });
    same!(simd, 3000, |s, random| {
        let (a, b) = (s.load(&floats(random)), s.load(&floats(random)));
        (s.lt(a, b), s.largest(a).to_bits() & 0x7fc0_0000, stored(s, s.splat(s.sum(a)))[0])
    });
}

#[inline(always)]
fn check_zeros<S: Simd>(simd: S) {
    same!(simd, 3000, |s, random| {
        let n = 3 + random.below(2);
        let x: [f32; LANES] = core::array::from_fn(|_| [0.0, -0.0, -1.0, 2.0][random.below(n)]);
        (s.largest(s.load(&x)).to_bits(), s.sum(s.load(&x)).to_bits())
    });
}

#[inline(always)]
fn check_halves<S: Simd>(simd: S) {
    for start in (0..=u16::MAX).step_by(LANES) {
        same!(simd, 1, |s, _random| {
            let bits = core::array::from_fn(|i| start + i as u16);
            [s.load_f16(&bits), s.load_bf16(&bits)].map(|x| stored(s, x))
        });
    }
    // All 16-bit fronts, with ends that lie below, in and above the middle of two halves.
    for front in (0..=u16::MAX).step_by(LANES) {
        for end in [0, 1, 0xfff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff] {
            same!(simd, 1, |s, _random| {
                let bits = core::array::from_fn(|i| f32::from_bits(u32::from(front + i as u16) << 16 | end));
                let (mut half, mut brain) = ([0; LANES], [0; LANES]);
                s.store_f16(s.load(&bits), &mut half);
                s.store_bf16(s.load(&bits), &mut brain);
                (
                    half.map(|x| if x & 0x7fff > 0x7c00 { 0x7e00 } else { x }),
                    brain.map(|x| if x & 0x7fff > 0x7f80 { 0x7fc0 } else { x }),
                )
            });
        }
    }
}

#[inline(always)]
fn check_integers<S: Simd>(simd: S) {
    same!(simd, 3000, |s, random| {
        let [x, y]: [[i32; LANES]; 2] =
            core::array::from_fn(|_| core::array::from_fn(|_| random.bits() as i32));
        let (a, b) = (ints(s, &x), ints(s, &y));
        let small = core::array::from_fn(|_| (random.below(200_000) as f32 - 100_000.0) / 2.0);
        let near = core::array::from_fn(|_| 1.25 + 0.75 * random.float());
        let n = core::array::from_fn(|_| random.below(507) as i32 - 252);
        (
            [
                s.iadd(a, b),
                s.isub(a, b),
                s.iand(a, b),
                s.ishr::<1>(a),
                s.ishr::<16>(a),
                s.ishl(a, 0),
                s.ishl(a, 5),
                s.isplat(x[0]),
                s.to_int(s.load(&small)),
            ]
            .map(|x| lanes(s, x)),
            [s.to_float(a), s.times_pow2(s.load(&near), ints(s, &n))].map(|x| stored(s, x)),
            s.isum(a),
        )
    });
}

/// Return the bytes as lanes of four.
#[inline(always)]
fn quads<S: Simd>(s: S, x: S::B) -> [[i32; LANES]; 4] {
    let mut out = [[0; LANES]; 4];
    for (j, out) in out.iter_mut().enumerate() {
        *out = lanes(s, s.dot_small(s.isplat(0), s.field(x, 0, 0x7f), 1 << (8 * j)));
    }
    out
}

#[inline(always)]
fn check_bytes<S: Simd>(simd: S) {
    same!(simd, 3000, |s, random| {
        let bytes: [u8; 64] = core::array::from_fn(|_| random.bits() as u8);
        let [x, y]: [[i8; 4]; 2] =
            core::array::from_fn(|_| core::array::from_fn(|_| (random.below(255) as i32 - 127) as i8));
        let correction = x.iter().chain(&y).map(|&x| -128 * i32::from(x)).sum();
        let (w, table) = (s.bytes(&bytes), core::array::from_fn(|i| bytes[i] >> 1));
        let [x, y] = [x, y].map(|x| i32::from_le_bytes(x.map(|x| x as u8)));
        let biased = s.dot_biased(s.dot_biased(s.start_biased(correction), w, x), s.or(w, w), y);
        let (low, high) = (s.field(w, 0, 15), s.field(w, 4, 15));
        let parts =
            [low, high, s.look_up(&table, low), s.field(w, 3, 31), s.field(w, -2, 0x7c), s.or(low, high)];
        let mut taken = [[[0; LANES]; 4]; 6];
        for (part, out) in parts.into_iter().zip(&mut taken) {
            *out = quads(s, part);
        }
        (taken, [biased, s.dot_small(s.isplat(5), s.field(w, 1, 0x7f), x)].map(|x| lanes(s, x)))
    });
    same!(simd, 3000, |s, random| {
        let (bytes, x) = many_products(random);
        let w = bytes.each_ref().map(|bytes| s.bytes(bytes));
        let start = s.isplat(random.bits() as i32 >> 4);
        [
            s.dot_few_bits::<8, 4>(start, &w.map(|w| s.field(w, 0, 15)), &x),
            s.dot_few_bits::<8, 5>(start, &w.map(|w| s.field(w, 0, 31)), &x),
            s.dot_few_bits::<8, 6>(start, &w.map(|w| s.field(w, 0, 63)), &x),
            s.dot_few_bits::<8, 7>(start, &w.map(|w| s.field(w, 0, 127)), &x),
        ]
        .map(|x| lanes(s, x))
    });
    same!(simd, 3000, |s, random| {
        let (bytes, x) = many_products(random);
        let other = x.map(i32::swap_bytes);
        let start = s.isplat(random.bits() as i32 >> 4);
        let cut = |mask: u8| {
            bytes.map(|bytes| {
                let mut cut = [0; 4 * LANES];
                s.store_bytes(s.field(s.bytes(&bytes), 0, mask), &mut cut);
                cut
            })
        };
        let mut sums = [[start; 2]; 5];
        let [four, five, six, seven, eight] = &mut sums;
        s.dot_tokens::<8, 2, 4>(four, &cut(15), [&x, &other]);
        s.dot_tokens::<8, 2, 5>(five, &cut(31), [&x, &other]);
        s.dot_tokens::<8, 2, 6>(six, &cut(63), [&x, &other]);
        s.dot_tokens::<8, 2, 7>(seven, &cut(127), [&x, &other]);
        s.dot_tokens::<8, 2, 8>(eight, &bytes, [&x, &other]);
        sums.map(|sums| sums.map(|x| lanes(s, x)))
    });
    same!(simd, 3000, |s, random| {
        let bytes: [u8; LANES] = core::array::from_fn(|_| random.bits() as u8);
        let signed = bytes.map(|x| x as i8);
        let mut out = [0; LANES];
        s.store_i8(s.load_i8(&signed), &mut out);
        (out, [s.widen_u8(&bytes), s.load_i8(&signed)].map(|x| lanes(s, x)))
    });
}

/// Return the bytes of eight vectors and of as many words; now and then all products are as large,
/// or as small, as they can be.
fn many_products(random: &mut Random) -> ([[u8; 4 * LANES]; 8], [i32; 8]) {
    let largest = random.below(4) == 0;
    let extreme = if random.below(2) == 0 { 255 } else { 0 };
    let w = core::array::from_fn(|_| {
        core::array::from_fn(|_| if largest { extreme } else { random.bits() as u8 })
    });
    let x: [i32; 8] =
        core::array::from_fn(|_| {
            let bytes = core::array::from_fn(|_| {
                if largest { 127 } else { (random.below(255) as i32 - 127) as i8 as u8 }
            });
            i32::from_le_bytes(bytes)
        });
    if random.below(2) == 0 {
        return (w, x);
    }
    (w, x.map(|x| i32::from_le_bytes(x.to_le_bytes().map(u8::wrapping_neg))))
}
