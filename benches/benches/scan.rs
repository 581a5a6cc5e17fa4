//! Recurrent layers: a single token, which reads and writes its state in memory, and 64 in a row,
//! which keep it in a processor cache.
//!
//! Bytes are those of the state, read and written, and of inputs and outputs. Operations are those
//! of the recurrence on each number of the state.
#![allow(missing_docs, reason = "criterion's macros make an undocumented main")]

use backstitch_benches::{Best, Cost};
use backstitch_core::KernelSet;
use backstitch_core::pool::Inline;
use backstitch_core::scan::{
    Conv, Delta, DeltaInputs, Selective, SelectiveInputs, Sharing, Ssd, Wkv6, Wkv6Inputs, Wkv7, Wkv7Inputs,
};
use backstitch_testing::Random;
use criterion::{Criterion, criterion_group, criterion_main};
use std::time::Duration;

const TOKENS: [usize; 2] = [1, 64];

fn floats<const N: usize>(lengths: [usize; N]) -> [Vec<f32>; N] {
    let mut random = Random::new(1);
    lengths.map(|n| random.floats(n))
}

/// Return decays, which are negative.
fn negative(n: usize) -> Vec<f32> {
    Random::new(2).floats(n).iter().map(|x| -1.1 - x).collect()
}

/// Time `step`, which advances `state` and writes `out`, with `operations` for each number of the
/// state and each token.
fn time(
    c: &mut Criterion,
    (name, n_tokens): (&str, usize),
    (inputs, state, operations): (usize, usize, usize),
    mut step: impl FnMut(&'static KernelSet),
) {
    let cost = Cost { bytes: 4 * (2 * state + inputs), flops: operations * state * n_tokens, byte_ops: 0 };
    let mut group = c.benchmark_group(format!("{name} by {n_tokens}"));
    for set in KernelSet::available().filter(|set| set.name() != "amx") {
        let mut best = Best::new(cost, 1);
        group.bench_function(set.name(), |b| b.iter_custom(|n| best.time(n, || step(set))));
    }
}

fn ssd(c: &mut Criterion) {
    let (n_head, d_head, n_group, d_state) = (24, 64, 1, 128);
    let ([dt_bias, d], a) = (floats([n_head; 2]), negative(n_head));
    let ssd = Ssd { n_head, d_head, n_group, d_state, dt_bias: &dt_bias, a: &a, d: &d };
    for n in TOKENS {
        let [xbc, dt, mut state, mut out] =
            floats([n * ssd.width(), n * n_head, ssd.state_len(), n * n_head * d_head]);
        let cost = (xbc.len() + dt.len() + out.len(), state.len(), 5);
        time(c, ("ssd", n), cost, |set| {
            ssd.run(set, &Inline, &xbc, &dt, &mut state, &mut out).expect("fits")
        });
    }
}

fn selective(c: &mut Criterion) {
    let (n_channels, d_state) = (1536, 16);
    let ([d], a) = (floats([n_channels]), negative(n_channels * d_state));
    let scan = Selective { n_channels, d_state, a: &a, d: &d };
    for n in TOKENS {
        let [x, dt, b, c_, mut state, mut out] = floats([
            n * n_channels,
            n * n_channels,
            n * d_state,
            n * d_state,
            scan.state_len(),
            n * n_channels,
        ]);
        let input = SelectiveInputs { x: &x, dt: &dt, b: &b, c: &c_ };
        let cost = (x.len() + dt.len() + b.len() + c_.len() + out.len(), state.len(), 6);
        time(c, ("selective", n), cost, |set| {
            scan.run(set, &Inline, &input, &mut state, &mut out).expect("fits");
        });
    }
}

fn wkv6(c: &mut Criterion) {
    let (n_head, d_head) = (12, 64);
    let width = n_head * d_head;
    let [first, norm, norm_bias] = floats([width; 3]);
    let wkv = Wkv6 { n_head, d_head, first: &first, norm: &norm, norm_bias: &norm_bias, eps: 64e-5 };
    for n in TOKENS {
        let [r, w, k, v, mut out] = floats([n * width; 5]);
        let [mut state] = floats([width * d_head]);
        let x = Wkv6Inputs { r: &r, w: &w, k: &k, v: &v };
        time(c, ("wkv6", n), (5 * out.len(), state.len(), 6), |set| {
            wkv.run(set, &Inline, &x, &mut state, &mut out).expect("fits");
        });
    }
}

fn wkv7(c: &mut Criterion) {
    let (n_head, d_head) = (12, 64);
    let width = n_head * d_head;
    let [k_k, k_a, r_k, norm, norm_bias] = floats([width; 5]);
    let (k_k, k_a, r_k) = (&k_k[..], &k_a[..], &r_k[..]);
    let wkv = Wkv7 { n_head, d_head, k_k, k_a, r_k, norm: &norm, norm_bias: &norm_bias, eps: 64e-5 };
    for n in TOKENS {
        let [r, w, k, v, a, mut out] = floats([n * width; 6]);
        let [mut state] = floats([width * d_head]);
        let x = Wkv7Inputs { r: &r, w: &w, k: &k, v: &v, a: &a };
        time(c, ("wkv7", n), (6 * out.len(), state.len(), 8), |set| {
            wkv.run(set, &Inline, &x, &mut state, &mut out).expect("fits");
        });
    }
}

fn delta(c: &mut Criterion) {
    let (n_head, n_head_k, d_k, d_v) = (32, 16, 128, 128);
    let ([dt_bias], a) = (floats([n_head]), negative(n_head));
    let sharing = Sharing::Neighbours;
    let delta = Delta { n_head, n_head_k, sharing, d_k, d_v, dt_bias: &dt_bias, a: &a, eps: 1e-6 };
    for n in TOKENS {
        let [qkv, beta, alpha, mut state, mut out] =
            floats([n * delta.width(), n * n_head, n * n_head, n_head * d_k * d_v, n * n_head * d_v]);
        let x = DeltaInputs { qkv: &qkv, beta: &beta, alpha: &alpha };
        time(c, ("delta", n), (qkv.len() + out.len(), state.len(), 7), |set| {
            delta.run(set, &Inline, &x, &mut state, &mut out).expect("fits");
        });
    }
}

fn conv(c: &mut Criterion) {
    let (n_channels, d_conv) = (1792, 4);
    let [taps, bias] = floats([d_conv * n_channels, n_channels]);
    let conv = Conv { n_channels, taps: &taps, bias: &bias, silu: true };
    for n in TOKENS {
        let [x, mut state, mut out] = floats([n * n_channels, (d_conv - 1) * n_channels, n * n_channels]);
        // The state is three rows. Each token multiplies them, and a row of its own.
        let inputs = taps.len() + bias.len() + x.len() + out.len();
        time(c, ("conv", n), (inputs, state.len(), 2 * d_conv / (d_conv - 1)), |set| {
            conv.run(set, &x, &mut state, &mut out).expect("fits");
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20);
    targets = ssd, selective, wkv6, wkv7, delta, conv
}
criterion_main!(benches);
