use super::*;
use backstitch_testing::{Random, assert_bits};

fn sigmoid_weighted(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn the_convolution_agrees_with_double_precision_and_itself() {
    for (n_channels, d_conv, silu) in
        [(1, 2, true), (16, 4, true), (45, 4, false), (40, 3, false), (20, 1, true)]
    {
        let mut random = Random::new(3);
        let taps = random.floats(n_channels * d_conv);
        // Both kinds with a bias and without.
        let bias = random.floats(if d_conv == 4 { n_channels } else { 0 });
        let conv = Conv { n_channels, taps: &taps, bias: &bias, silu };
        let (before, x) = (random.floats((d_conv - 1) * n_channels), random.floats(20 * n_channels));
        let run = |set: &KernelSet, pieces: &[usize]| {
            let (mut state, mut out, mut at) = (before.clone(), vec![0.0; x.len()], 0);
            for n in pieces {
                let range = at * n_channels..(at + n) * n_channels;
                conv.run(set, &x[range.clone()], &mut state, &mut out[range]).unwrap();
                at += n;
            }
            out.extend(state);
            out
        };
        let expected = run(KernelSet::scalar(), &[20]);
        let all = [before.as_slice(), &x].concat();
        for (i, &got) in expected[..x.len()].iter().enumerate() {
            let product = |j: usize| {
                f64::from(taps[j * n_channels + i % n_channels]) * f64::from(all[i + j * n_channels])
            };
            let bias = bias.get(i % n_channels).copied().unwrap_or(0.0);
            let sum = f64::from(bias) + (0..d_conv).map(product).sum::<f64>();
            assert!((f64::from(got) - if silu { sigmoid_weighted(sum) } else { sum }).abs() < 1e-5);
        }
        for set in KernelSet::available() {
            for pieces in [&[20][..], &[1; 20], &[1, 2, 17]] {
                assert_bits(format!("{set:?}"), &run(set, pieces), &expected);
            }
        }
    }
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let conv = Conv { n_channels: 4, taps: &[0.0; 12], bias: &[], silu: true };
    assert!(conv.run(KernelSet::scalar(), &[0.0; 8], &mut [0.0; 7], &mut [0.0; 8]).is_err());
    assert!(conv.run(KernelSet::scalar(), &[0.0; 8], &mut [0.0; 8], &mut [0.0; 8]).is_ok());
}
