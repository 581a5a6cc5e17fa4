//! Norms, gates and sampling primitives: against plain `f64` code, and bit for bit on every set.

use crate::kernel_set::KernelSet;
use backstitch_testing::{Random, assert_bits};
use std::{vec, vec::Vec};

/// Run `f` on a copy of `x` with every set, assert that all sets agree, and return the result.
fn agreed(what: &str, x: &[f32], f: impl Fn(&KernelSet, &mut [f32])) -> Vec<f32> {
    let mut expected = x.to_vec();
    f(KernelSet::scalar(), &mut expected);
    for set in KernelSet::available() {
        // One element off, so that no alignment can be relied on.
        let mut got = vec![0.0; x.len() + 1];
        got[1..].copy_from_slice(x);
        f(set, &mut got[1..]);
        assert_bits(format_args!("{what}, {} elements, {}", x.len(), set.name()), &got[1..], &expected);
    }
    expected
}

fn assert_near(got: &[f32], exact: impl IntoIterator<Item = f64>, tolerance: f64) {
    for (i, (&got, exact)) in got.iter().zip(exact).enumerate() {
        assert!(
            (f64::from(got) - exact).abs() <= tolerance * exact.abs().max(1.0),
            "at {i}: {got}, {exact} wanted"
        );
    }
}

fn mean(x: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = x.len() as f64;
    x.sum::<f64>() / n
}

fn rms_by_definition(x: &[f32], weight: impl Fn(usize) -> f64, eps: f64) -> Vec<f64> {
    let scale = 1.0 / (mean(x.iter().map(|&x| f64::from(x) * f64::from(x))) + eps).sqrt();
    x.iter().enumerate().map(|(i, &x)| f64::from(x) * scale * weight(i)).collect()
}

const LENGTHS: [usize; 14] = [0, 1, 2, 15, 16, 17, 31, 32, 33, 35, 64, 100, 576, 2048];

#[test]
fn rms_norm_is_what_it_says_on_every_set() {
    let mut random = Random::new(11);
    for n in LENGTHS {
        let (x, weight) = (random.floats(3 * n), random.floats(n));
        let got = agreed("rms_norm", &x, |set, x| (set.rms_norm_in_place)(x, n, &weight, 1e-5));
        for (row, got) in x.chunks_exact(n.max(1)).zip(got.chunks_exact(n.max(1))) {
            assert_near(got, rms_by_definition(row, |i| weight[i].into(), 1e-5), 1e-6);
        }
        let out =
            agreed("rms_norm", &vec![f32::NAN; 3 * n], |set, out| (set.rms_norm)(&x, n, &weight, 1e-5, out));
        assert_bits("out of place", &out, &got);
    }
}

#[test]
fn rms_norm_without_weight_and_with_a_weight_a_group() {
    let mut random = Random::new(12);
    let (x, weight) = (random.floats(4 * 20), random.floats(2 * 20));
    let plain = agreed("plain", &x, |set, x| (set.rms_norm_in_place)(x, 20, &[], 1e-6));
    let grouped = agreed("grouped", &x, |set, x| (set.rms_norm_in_place)(x, 20, &weight, 1e-6));
    for row in 0..4 {
        let x = &x[20 * row..][..20];
        assert_near(&plain[20 * row..][..20], rms_by_definition(x, |_| 1.0, 1e-6), 1e-6);
        let weight = &weight[20 * (row % 2)..][..20];
        assert_near(&grouped[20 * row..][..20], rms_by_definition(x, |i| weight[i].into(), 1e-6), 1e-6);
    }
    let out = agreed("plain", &vec![f32::NAN; 80], |set, out| (set.rms_norm)(&x, 20, &[], 1e-6, out));
    assert_bits("out of place", &out, &plain);
}

#[test]
fn layer_norm_is_what_it_says_on_every_set() {
    let mut random = Random::new(13);
    for n in LENGTHS {
        let (x, weight, bias) = (random.floats(2 * n), random.floats(n), random.floats(n));
        let got = agreed("layer_norm", &x, |set, x| (set.layer_norm_in_place)(x, n, &weight, &bias, 1e-5));
        let bare = agreed("layer_norm", &x, |set, x| (set.layer_norm_in_place)(x, n, &[], &[], 1e-5));
        let rows = [weight.clone(), bias.clone()].concat();
        let own = agreed("own", &x, |set, x| (set.layer_norm_in_place)(x, n, &rows, &rows, 1e-5));
        for row in 0..2 {
            let at = n * row..n * (row + 1);
            let factors = &rows[at.clone()];
            let mean = mean(x[at.clone()].iter().map(|&x| f64::from(x)));
            let centred: Vec<f32> = x[at.clone()].iter().map(|&x| (f64::from(x) - mean) as f32).collect();
            let exact = rms_by_definition(&centred, |_| 1.0, 1e-5);
            let whole = exact.iter().enumerate().map(|(i, x)| x * f64::from(weight[i]) + f64::from(bias[i]));
            assert_near(&got[at.clone()], whole, 2e-6);
            assert_near(&bare[at.clone()], exact.clone(), 2e-6);
            let whole = exact.into_iter().zip(factors).map(|(x, &w)| x * f64::from(w) + f64::from(w));
            assert_near(&own[at], whole, 2e-6);
        }
    }
}

#[test]
fn gates_and_sums_are_what_they_say_on_every_set() {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    fn gelu(x: f64) -> f64 {
        x * sigmoid(2.0 * (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x))
    }
    type Case = (&'static str, fn(&KernelSet) -> fn(&mut [f32], &[f32]), fn(f64, f64) -> f64);
    let cases: [Case; 11] = [
        ("add", |set| set.add, |x, y| x + y),
        ("mul", |set| set.mul, |x, y| x * y),
        ("silu_mul", |set| set.silu_mul, |x, y| x * sigmoid(x) * y),
        ("gelu_mul", |set| set.gelu_mul, |x, y| gelu(x) * y),
        ("mul_silu", |set| set.mul_silu, |x, y| x * y * sigmoid(y)),
        ("mul_gelu", |set| set.mul_gelu, |x, y| x * gelu(y)),
        ("mul_relu", |set| set.mul_relu, |x, y| x * y.max(0.0)),
        ("mul_squared_relu", |set| set.mul_squared_relu, |x, y| x * y.max(0.0) * y.max(0.0)),
        (
            "mul_clamped_swish",
            |set| set.mul_clamped_swish,
            |x, y| (x.clamp(-7.0, 7.0) + 1.0) * y.min(7.0) * sigmoid(f64::from(1.702f32) * y.min(7.0)),
        ),
        ("mul_tanh", |set| set.mul_tanh, |x, y| x * y.tanh()),
        ("mul_sigmoid", |set| set.mul_sigmoid, |x, y| x * sigmoid(y)),
    ];
    let mut random = Random::new(14);
    for n in 0..=50 {
        let x: Vec<f32> = random.floats(n).iter().map(|x| x * 8.0).collect();
        let y: Vec<f32> = random.floats(n).iter().map(|x| x * 8.0).collect();
        let pairs = || x.iter().zip(&y).map(|(&x, &y)| (f64::from(x), f64::from(y)));
        for (name, kernel, exact) in cases {
            let got = agreed(name, &x, |set, x| kernel(set)(x, &y));
            assert_near(&got, pairs().map(|(x, y)| exact(x, y)), 1e-5);
        }
        let got = agreed("add_scaled", &x, |set, x| (set.add_scaled)(x, &y, 0.3));
        assert_near(&got, pairs().map(|(x, y)| x + y * f64::from(0.3f32)), 1e-6);
        let got = agreed("relu", &x, |set, x| (set.relu_in_place)(x));
        assert_near(&got, pairs().map(|(x, _)| x.max(0.0)), 0.0);
        let got = agreed("squared_relu", &x, |set, x| (set.squared_relu_in_place)(x));
        assert_near(&got, pairs().map(|(x, _)| x.max(0.0) * x.max(0.0)), 1e-6);
        let got = agreed("scale", &x, |set, x| (set.scale_in_place)(x, 0.3));
        assert_near(&got, pairs().map(|(x, _)| x * f64::from(0.3f32)), 1e-6);
        let got = agreed("soft_cap", &x, |set, x| (set.soft_cap_in_place)(x, 5.0));
        assert_near(&got, pairs().map(|(x, _)| 5.0 * (x / 5.0).tanh()), 1e-6);
    }
}

/// A model that computes NaN is noticed by its outputs, so no function makes a number of it, not
/// even one with limits.
#[test]
fn nan_stays_nan_on_every_set() {
    type Alone = (&'static str, fn(&KernelSet, &mut [f32]));
    let alone: [Alone; 10] = [
        ("exp", |set, x| (set.exp_in_place)(x)),
        ("tanh", |set, x| (set.tanh_in_place)(x)),
        ("sigmoid", |set, x| (set.sigmoid_in_place)(x)),
        ("silu", |set, x| (set.silu_in_place)(x)),
        ("gelu", |set, x| (set.gelu_in_place)(x)),
        ("relu", |set, x| (set.relu_in_place)(x)),
        ("squared_relu", |set, x| (set.squared_relu_in_place)(x)),
        ("softplus", |set, x| (set.softplus_in_place)(x)),
        ("soft_cap", |set, x| (set.soft_cap_in_place)(x, 5.0)),
        ("softmax", |set, x| (set.softmax_in_place)(x)),
    ];
    type Pair = (&'static str, fn(&KernelSet) -> fn(&mut [f32], &[f32]));
    let pairs: [Pair; 9] = [
        ("silu_mul", |set| set.silu_mul),
        ("gelu_mul", |set| set.gelu_mul),
        ("mul_silu", |set| set.mul_silu),
        ("mul_gelu", |set| set.mul_gelu),
        ("mul_relu", |set| set.mul_relu),
        ("mul_squared_relu", |set| set.mul_squared_relu),
        ("mul_clamped_swish", |set| set.mul_clamped_swish),
        ("mul_tanh", |set| set.mul_tanh),
        ("mul_sigmoid", |set| set.mul_sigmoid),
    ];
    for set in KernelSet::available() {
        for (n, place) in [(1, 0), (16, 3), (33, 15), (33, 32)] {
            let (mut wrong, right) = (vec![0.5; n], vec![0.5; n]);
            wrong[place] = f32::NAN;
            for (name, function) in alone {
                let mut x = wrong.clone();
                function(set, &mut x);
                assert!(x[place].is_nan(), "{name} of {n} on {}: {x:?}", set.name());
            }
            for (name, function) in pairs {
                for (mut x, y) in [(wrong.clone(), &right), (right.clone(), &wrong)] {
                    function(set)(&mut x, y);
                    assert!(x[place].is_nan(), "{name} of {n} on {}: {x:?}", set.name());
                }
            }
        }
    }
}

#[test]
fn rows_are_mixed_by_weights_by_values_and_by_both() {
    let mut random = Random::new(17);
    for n in [1, 15, 16, 17, 33, 100] {
        let [x, y, by] = [(); 3].map(|()| random.floats(3 * n));
        let weight = random.floats(n);
        for (weight, by) in [(&weight[..], &[][..]), (&[], &by), (&weight, &by)] {
            let got = agreed("lerp", &x, |set, out| (set.lerp)(&x, &y, weight, by, out));
            let mix = |i: usize| {
                [weight.get(i % n), by.get(i)].into_iter().flatten().map(|&m| f64::from(m)).sum::<f64>()
            };
            let exact = (0..3 * n).map(|i| f64::from(x[i]) + (f64::from(y[i]) - f64::from(x[i])) * mix(i));
            assert_near(&got, exact, 1e-6);
        }
    }
}

#[test]
fn softmax_sums_to_one_and_survives_large_scores() {
    let mut random = Random::new(15);
    for n in [1, 2, 15, 16, 17, 33, 1000] {
        let x: Vec<f32> = random.floats(n).iter().map(|x| 1e4 + x * 10.0).collect();
        let got = agreed("softmax", &x, |set, x| (set.softmax_in_place)(x));
        let top = x.iter().copied().fold(f32::MIN, f32::max);
        let exps: Vec<f64> = x.iter().map(|&x| f64::from(x - top).exp()).collect();
        let sum: f64 = exps.iter().sum();
        assert_near(&got, exps.iter().map(|e| e / sum), 1e-6);
    }
    let banned = agreed("softmax", &[f32::NEG_INFINITY, 3.0, 3.0], |set, x| (set.softmax_in_place)(x));
    assert_eq!(banned, [0.0, 0.5, 0.5]);
    agreed("softmax", &[], |set, x| (set.softmax_in_place)(x));
}

#[test]
fn argmax_takes_the_first_of_equals_and_no_nan() {
    const NAN: f32 = f32::NAN;
    const LOW: f32 = f32::NEG_INFINITY;
    let mut long = vec![0.5; 100];
    (long[40], long[41], long[90], long[99]) = (NAN, 2.0, 2.0, 1.0);
    let cases: [(&[f32], Option<usize>); 9] = [
        (&[], None),
        (&[NAN], None),
        (&[NAN; 17], None),
        (&[LOW, LOW], Some(0)),
        (&[NAN, LOW, NAN], Some(1)),
        (&[1.0, 3.0, 3.0], Some(1)),
        (&[-0.0, 0.0], Some(0)),
        (&[f32::INFINITY, NAN], Some(0)),
        (&long, Some(41)),
    ];
    for (x, wanted) in cases {
        for set in KernelSet::available() {
            assert_eq!((set.argmax)(x), wanted, "{} {x:?}", set.name());
        }
    }
}
