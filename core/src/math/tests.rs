//! Every function against `f64`, at the ends of its range, and on every instruction set.

use crate::kernel_set::KernelSet;
use backstitch_testing::{Random, assert_bits};
use core::ops::RangeInclusive;
use std::vec::Vec;

type Function = fn(&KernelSet) -> fn(&mut [f32]);

/// Name, kernel, definition in `f64`, range that the bound in ulps holds on, bound.
type Row = (&'static str, Function, fn(f64) -> f64, [f32; 2], i64);

const FUNCTIONS: [Row; 6] = [
    ("exp", |set| set.exp_in_place, libm::exp, [-87.0, 88.0], 2),
    ("tanh", |set| set.tanh_in_place, libm::tanh, [-12.0, 12.0], 3),
    ("sigmoid", |set| set.sigmoid_in_place, |x| 1.0 / (1.0 + libm::exp(-x)), [-86.0, 30.0], 3),
    ("silu", |set| set.silu_in_place, |x| x / (1.0 + libm::exp(-x)), [-86.0, 30.0], 4),
    ("gelu", |set| set.gelu_in_place, gelu, [-2.0, 12.0], 16),
    ("softplus", |set| set.softplus_in_place, softplus, [-86.0, 80.0], 4),
];

fn gelu(x: f64) -> f64 {
    let u = (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    x / 2.0 * (1.0 + libm::tanh(u))
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

fn ulps(a: f32, b: f32) -> i64 {
    let line = |x: f32| {
        let bits = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -bits } else { bits }
    };
    (line(a) - line(b)).abs()
}

#[test]
fn functions_are_within_their_documented_bounds() {
    backstitch_testing::each(0..FUNCTIONS.len(), |&i| {
        let (name, kernel, exact, [low, high], bound) = FUNCTIONS[i];
        let n = 200_000;
        let x: Vec<f32> = (0..n).map(|i| low + (high - low) * i as f32 / n as f32).collect();
        let mut y = x.clone();
        kernel(KernelSet::detect().unwrap())(&mut y);
        let worst =
            x.iter().zip(&y).map(|(&x, &y)| (ulps(y, exact(f64::from(x)) as f32), x)).max_by_key(|w| w.0);
        let (worst, x) = worst.unwrap();
        assert!(worst <= bound, "{name}: {worst} ulps at {x}");
    });
}

#[test]
fn gelu_is_absolutely_close_where_it_vanishes() {
    for i in 0..10_000 {
        let x = -12.0 + i as f32 / 1000.0;
        let mut y = [x];
        (KernelSet::scalar().gelu_in_place)(&mut y);
        assert!((f64::from(y[0]) - gelu(f64::from(x))).abs() < 1e-7, "{x}: {y:?}");
    }
}

#[test]
fn functions_hold_at_the_ends() {
    const INF: f32 = f32::INFINITY;
    let apply = |f: fn(&mut [f32]), x: f32| {
        let mut y = [x];
        f(&mut y);
        y[0]
    };
    let set = KernelSet::scalar();
    type Case = (&'static str, fn(&mut [f32]), f32, f32);
    let cases: [Case; 21] = [
        ("exp", set.exp_in_place, -INF, 0.0),
        ("exp", set.exp_in_place, -200.0, 0.0),
        ("exp", set.exp_in_place, -0.0, 1.0),
        ("exp", set.exp_in_place, 100.0, INF),
        ("exp", set.exp_in_place, INF, INF),
        ("tanh", set.tanh_in_place, -INF, -1.0),
        ("tanh", set.tanh_in_place, INF, 1.0),
        ("tanh", set.tanh_in_place, -0.0, -0.0),
        ("tanh", set.tanh_in_place, 1e-40, 1e-40),
        ("sigmoid", set.sigmoid_in_place, -INF, 0.0),
        ("sigmoid", set.sigmoid_in_place, 0.0, 0.5),
        ("sigmoid", set.sigmoid_in_place, INF, 1.0),
        ("silu", set.silu_in_place, -0.0, -0.0),
        ("silu", set.silu_in_place, -300.0, -0.0),
        ("silu", set.silu_in_place, INF, INF),
        ("gelu", set.gelu_in_place, -300.0, -0.0),
        ("gelu", set.gelu_in_place, 300.0, 300.0),
        ("softplus", set.softplus_in_place, -INF, 0.0),
        ("softplus", set.softplus_in_place, 0.0, core::f32::consts::LN_2),
        ("softplus", set.softplus_in_place, 100.0, 100.0),
        ("softplus", set.softplus_in_place, INF, INF),
    ];
    for (name, f, x, wanted) in cases {
        assert_eq!(apply(f, x).to_bits(), wanted.to_bits(), "{name} of {x}: {}", apply(f, x));
    }
    for (name, kernel, ..) in FUNCTIONS {
        assert!(apply(kernel(set), f32::NAN).is_nan(), "{name}");
    }
}

#[test]
fn every_set_gives_the_same_bits_at_every_length() {
    let mut random = Random::new(1);
    for (name, kernel, ..) in FUNCTIONS {
        for n in 0..=35 {
            let mut x: Vec<f32> = random.wild_floats(n);
            x.extend(random.floats(40).iter().map(|x| x * 20.0));
            x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
            let mut expected = x.clone();
            kernel(KernelSet::scalar())(&mut expected[1..]);
            for set in KernelSet::available() {
                let mut got = x.clone();
                kernel(set)(&mut got[1..]);
                assert_bits(format_args!("{name} {}", set.name()), &got, &expected);
            }
        }
    }
}

#[test]
#[ignore = "takes minutes: every f32 there is, or one of FLOAT_STEP, on every set"]
fn every_set_gives_the_same_bits_for_every_input() {
    const PARTS: u32 = 4;
    let step = std::env::var("FLOAT_STEP").map_or(1, |step| step.parse().expect("a number above 0"));
    std::thread::scope(|threads| {
        for part in 0..PARTS {
            let n = u32::MAX / PARTS;
            let first = part * (n + 1);
            threads
                .spawn(move || FUNCTIONS.iter().for_each(|row| compare_sets(row, first..=first + n, step)));
        }
    });
}

/// Assert that every set gives the results of the scalar one, for one of `step` floats with these
/// bits.
fn compare_sets(&(name, kernel, ..): &Row, bits: RangeInclusive<u32>, step: usize) {
    // Three of these stay in the nearest cache.
    const CHUNK: usize = 1 << 11;
    let scalar = KernelSet::scalar();
    let mut others: Vec<_> = KernelSet::available().map(|set| (set.name(), kernel(set))).collect();
    others.retain(|&(set, _)| set != scalar.name());
    // Sets that differ in products alone share all else.
    others.dedup_by_key(|&mut (_, kernel)| kernel as usize);
    let mut input = [0.0; CHUNK];
    for start in bits.step_by(CHUNK * step) {
        let bits = (start..=u32::MAX).step_by(step);
        input.iter_mut().zip(bits).for_each(|(x, bits)| *x = f32::from_bits(bits));
        let mut expected = input;
        kernel(scalar)(&mut expected);
        for (set, kernel) in &others {
            let mut got = input;
            kernel(&mut got);
            assert_bits(format_args!("{name} {set} from {start:x}"), &got, &expected);
        }
    }
}

/// Return the operands that fused multiply-add gets wrong first: signs, ends, cancellation, sums
/// beside the middle of two floats, subnormal results. Sixteen `a`, one `b`, sixteen `c`.
pub(crate) fn triples(n: usize) -> impl Iterator<Item = ([f32; 16], f32, [f32; 16])> {
    let ends =
        [0.0, 1.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x7f_ffff)];
    let ends: Vec<f32> =
        ends.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN, 1.0 + f32::EPSILON]).collect();
    let whole: [f32; 16] = ends.try_into().unwrap();
    let all = whole.into_iter().flat_map(move |b| whole.map(|c| (whole, b, [c; 16])));
    let mut random = Random::new(7);
    all.chain((0..n).map(move |_| random_triple(&mut random)))
}

fn random_triple(random: &mut Random) -> ([f32; 16], f32, [f32; 16]) {
    let any = |random: &mut Random| f32::from_bits(random.bits() as u32);
    // 1 + k 2^-23 and its counterpart: the product is so close to a power of two that a double can
    // hold no sum with it.
    let k = 1 + random.below(9) as u32;
    let (over, under) = (f32::from_bits((127 << 23) + k), f32::from_bits((127 << 23) - 2 * k));
    let pow2 = |e: i32| libm::exp2(f64::from(e)) as f32;
    let shift = random.below(100) as i32 - 80;
    let b = if random.below(4) == 0 { any(random) } else { under * pow2(shift) };
    let mut c = [0.0; 16];
    let a = core::array::from_fn(|i| {
        let a = match random.below(4) {
            0 => any(random),
            1 => random.float(),
            // Half of the last bit of the smallest subnormal numbers.
            2 => over * pow2((-150 - shift).clamp(-126, 127)),
            _ => over * pow2(random.below(80) as i32 - 40),
        };
        let a = if random.below(2) == 0 { a } else { -a };
        let product = f64::from(a) * f64::from(b);
        c[i] = match random.below(5) {
            0 => any(random),
            1 => f32::from_bits(random.bits() as u32 & 0x8000_0000 | random.below(1 << (1 + i)) as u32),
            2 => f32::from_bits((-product as f32).to_bits().wrapping_add(random.below(3) as u32)),
            _ => f32::from_bits(
                ((product as f32).to_bits() & !0x3f).wrapping_add((24 << 23) + random.below(64) as u32),
            ),
        };
        a
    });
    (a, b, c)
}

/// The digest of all results is that of processors with an instruction for it.
#[test]
fn fused_multiply_add_rounds_once_on_every_set_and_machine() {
    for set in KernelSet::available() {
        let digest = triples(30_000).fold(0xcbf2_9ce4_8422_2325, |digest: u64, (a, b, mut c)| {
            (set.add_scaled)(&mut c, &a, b);
            let bits = c.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() });
            bits.iter().fold(digest, |digest, &x| (digest ^ u64::from(x)).wrapping_mul(0x100_0000_01b3))
        });
        assert_eq!(digest, 0x3b1c_3e01_3939_dc5d, "{}: {digest:x}", set.name());
    }
}
