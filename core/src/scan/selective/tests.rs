use super::*;
use crate::pool::{Inline, ThreadPool};
use backstitch_testing::{Random, assert_bits};

struct Case {
    n_channels: usize,
    d_state: usize,
    weights: [Vec<f32>; 2],
    /// x, dt, B and C.
    inputs: [Vec<f32>; 4],
    state: Vec<f32>,
}

impl Case {
    fn new(n_channels: usize, d_state: usize, n_tokens: usize) -> Self {
        let mut random = Random::new(11);
        let len = n_channels * d_state;
        let a = random.floats(len).iter().map(|x| -1.1 - x).collect();
        let widths = [n_channels, n_channels, d_state, d_state];
        Case {
            n_channels,
            d_state,
            weights: [a, random.floats(n_channels)],
            inputs: widths.map(|width| random.floats(width * n_tokens)),
            state: random.floats(len),
        }
    }

    fn scan(&self) -> Selective<'_> {
        let [a, d] = &self.weights;
        Selective { n_channels: self.n_channels, d_state: self.d_state, a, d }
    }

    fn tokens(&self, from: usize, to: usize) -> SelectiveInputs<'_> {
        let of = |i: usize, width: usize| &self.inputs[i][from * width..to * width];
        let (n, d_state) = (self.n_channels, self.d_state);
        SelectiveInputs { x: of(0, n), dt: of(1, n), b: of(2, d_state), c: of(3, d_state) }
    }

    /// Output and final state, the run cut into pieces of these lengths.
    fn run(&self, set: &KernelSet, pool: &dyn Pool, pieces: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let n = self.n_channels;
        let (mut state, mut out, mut at) = (self.state.clone(), vec![0.0; self.inputs[0].len()], 0);
        for piece in pieces {
            let end = at + piece;
            let input = self.tokens(at, end);
            self.scan().run(set, pool, &input, &mut state, &mut out[at * n..end * n]).unwrap();
            at = end;
        }
        assert_eq!(at * n, out.len());
        (out, state)
    }

    fn exact(&self) -> Vec<f64> {
        let (n, d_state) = (self.n_channels, self.d_state);
        // The state channel by channel, from panels.
        let place = |i: usize, j: usize| {
            let (first, width) = (i / LANES * LANES, LANES.min(n - i / LANES * LANES));
            first * d_state + j * width + i - first
        };
        let mut state = self.state.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let mut out = vec![];
        for t in 0..self.inputs[0].len() / n {
            let input = self.tokens(t, t + 1);
            for i in 0..n {
                let (x, dt) = (f64::from(input.x[i]), f64::from(input.dt[i]).exp().ln_1p());
                let mut y = f64::from(self.weights[1][i]) * x;
                for j in 0..d_state {
                    let number = &mut state[place(i, j)];
                    let decay = (dt * f64::from(self.weights[0][j * n + i])).exp();
                    *number = *number * decay + f64::from(input.b[j]) * x * dt;
                    y += *number * f64::from(input.c[j]);
                }
                out.push(y);
            }
        }
        out
    }
}

const SHAPES: [(usize, usize); 4] = [(1, 1), (128, 16), (45, 5), (16, 33)];

#[test]
fn the_scan_agrees_with_double_precision() {
    for (n_channels, d_state) in SHAPES {
        let case = Case::new(n_channels, d_state, 9);
        let (got, _) = case.run(KernelSet::scalar(), &Inline, &[9]);
        let far = got.iter().zip(case.exact()).map(|(&a, b)| (f64::from(a) - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-5, "{n_channels} {d_state}: {far}");
    }
}

#[test]
fn the_scan_has_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
    let three = ThreadPool::new(3).unwrap();
    for (n_channels, d_state) in SHAPES {
        let case = Case::new(n_channels, d_state, 40);
        let (out, state) = case.run(KernelSet::scalar(), &Inline, &[40]);
        for set in KernelSet::available() {
            for pool in [&Inline as &dyn Pool, &three] {
                for pieces in [&[40][..], &[1; 40], &[1, 7, 16, 16]] {
                    let got = case.run(set, pool, pieces);
                    assert_bits(format!("{set:?} output"), &got.0, &out);
                    assert_bits(format!("{set:?} state"), &got.1, &state);
                }
            }
        }
    }
}

#[test]
fn the_state_does_not_depend_on_c() {
    let mut case = Case::new(20, 4, 12);
    let (_, state) = case.run(KernelSet::scalar(), &Inline, &[12]);
    case.inputs[3].fill(f32::NAN);
    assert_bits("state", &case.run(KernelSet::scalar(), &Inline, &[12]).1, &state);
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let case = Case::new(20, 4, 3);
    let (scan, input) = (case.scan(), case.tokens(0, 3));
    let (mut state, mut out) = (case.state.clone(), vec![0.0; 60]);
    let run = |scan: &Selective<'_>, input: &SelectiveInputs<'_>, state: &mut [f32], out: &mut [f32]| {
        scan.run(KernelSet::scalar(), &Inline, input, state, out)
    };
    let short = SelectiveInputs { c: &input.c[1..], ..input };
    assert!(run(&scan, &short, &mut state, &mut out).is_err());
    let short = SelectiveInputs { dt: &input.dt[20..], ..input };
    assert!(run(&scan, &short, &mut state, &mut out).is_err());
    assert!(run(&Selective { a: &scan.a[1..], ..scan }, &input, &mut state, &mut out).is_err());
    assert!(run(&scan, &input, &mut state[1..], &mut out).is_err());
    assert!(run(&scan, &input, &mut state, &mut out[1..]).is_err());
    assert!(run(&scan, &input, &mut state, &mut out).is_ok());
    let none = Selective { n_channels: 0, d_state: 4, a: &[], d: &[] };
    let nothing = SelectiveInputs { x: &[], dt: &[], b: &[], c: &[] };
    assert!(run(&none, &nothing, &mut [], &mut []).is_ok());
}
