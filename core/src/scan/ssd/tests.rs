use super::*;
use crate::pool::{Inline, ThreadPool};
use backstitch_testing::{Random, assert_bits};

struct Case {
    ssd: (usize, usize, usize, usize),
    weights: [Vec<f32>; 3],
    xbc: Vec<f32>,
    dt: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    fn new(n_head: usize, d_head: usize, n_group: usize, d_state: usize, n_tokens: usize) -> Self {
        let mut random = Random::new(7);
        let width = n_head * d_head + 2 * n_group * d_state;
        let decay = random.floats(n_head).iter().map(|x| -1.1 - x).collect();
        Case {
            ssd: (n_head, d_head, n_group, d_state),
            weights: [random.floats(n_head), decay, random.floats(n_head)],
            xbc: random.floats(width * n_tokens),
            dt: random.floats(n_head * n_tokens),
            state: random.floats(n_head * d_head * d_state),
        }
    }

    fn ssd(&self) -> Ssd<'_> {
        let (n_head, d_head, n_group, d_state) = self.ssd;
        let [dt_bias, a, d] = &self.weights;
        Ssd { n_head, d_head, n_group, d_state, dt_bias, a, d }
    }

    /// Output and final state, the run cut into pieces of these lengths.
    fn run(&self, set: &KernelSet, pool: &dyn Pool, pieces: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let ssd = self.ssd();
        let (width, n_out) = (ssd.width(), ssd.n_head * ssd.d_head);
        let (mut state, mut at) = (self.state.clone(), 0);
        let n_tokens = self.dt.len() / ssd.n_head;
        let mut out = vec![0.0; n_tokens * n_out];
        for n in pieces {
            let end = at + n;
            let (xbc, dt) = (&self.xbc[at * width..end * width], &self.dt[at * ssd.n_head..end * ssd.n_head]);
            ssd.run(set, pool, xbc, dt, &mut state, &mut out[at * n_out..end * n_out]).unwrap();
            at = end;
        }
        assert_eq!(at, n_tokens);
        (out, state)
    }

    fn exact(&self) -> Vec<f64> {
        let ssd = self.ssd();
        let mut state: Vec<f64> = self.state.iter().map(|&x| x.into()).collect();
        let mut out = vec![];
        let rows = self.xbc.chunks(ssd.width()).zip(self.dt.chunks(ssd.n_head));
        for (row, dt) in rows {
            let (x, bc) = row.split_at(ssd.n_head * ssd.d_head);
            let (b, c) = bc.split_at(ssd.n_group * ssd.d_state);
            for (i, &x) in x.iter().enumerate() {
                let (head, x) = (i / ssd.d_head, f64::from(x));
                let group = head / (ssd.n_head / ssd.n_group) * ssd.d_state;
                let dt = f64::from(dt[head] + ssd.dt_bias[head]).exp().ln_1p();
                let decay = (dt * f64::from(ssd.a[head])).exp();
                let mut y = f64::from(ssd.d[head]) * x;
                for j in 0..ssd.d_state {
                    let number = &mut state[i * ssd.d_state + j];
                    *number = *number * decay + f64::from(b[group + j]) * x * dt;
                    y += *number * f64::from(c[group + j]);
                }
                out.push(y);
            }
        }
        out
    }
}

#[test]
fn the_scan_agrees_with_double_precision() {
    for (n_head, d_head, n_group, d_state) in [(1, 1, 1, 1), (6, 32, 1, 32), (4, 5, 2, 19)] {
        let case = Case::new(n_head, d_head, n_group, d_state, 9);
        let (got, _) = case.run(KernelSet::scalar(), &Inline, &[9]);
        let far = got.iter().zip(case.exact()).map(|(&a, b)| (f64::from(a) - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-5, "{far}");
    }
}

#[test]
fn the_scan_has_the_same_bits_on_every_set_in_any_pieces_with_any_threads() {
    let three = ThreadPool::new(3).unwrap();
    for (n_head, d_head, n_group, d_state) in [(6, 32, 1, 32), (4, 5, 2, 19), (8, 16, 2, 16)] {
        let case = Case::new(n_head, d_head, n_group, d_state, 40);
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
fn slices_that_do_not_fit_are_refused() {
    let case = Case::new(2, 4, 1, 8, 3);
    let (mut state, mut out) = (case.state.clone(), vec![0.0; 24]);
    let run = |xbc: &[f32], state: &mut [f32], out: &mut [f32]| {
        case.ssd().run(KernelSet::scalar(), &Inline, xbc, &case.dt, state, out)
    };
    assert!(run(&case.xbc[1..], &mut state, &mut out).is_err());
    assert!(run(&case.xbc, &mut state[1..], &mut out).is_err());
    assert!(run(&case.xbc, &mut state, &mut out[1..]).is_err());
    assert!(run(&case.xbc, &mut state, &mut out).is_ok());
}

#[test]
fn x_b_and_c_may_lie_apart() {
    let case = Case::new(4, 5, 2, 19, 9);
    let (out, state) = case.run(KernelSet::scalar(), &Inline, &[9]);
    let (n_x, n_b) = (20, 38);
    let columns = |first: usize, n: usize| -> Vec<f32> {
        case.xbc.chunks(n_x + 2 * n_b).flat_map(|row| row[first..first + n].to_vec()).collect()
    };
    let (x, b, c) = (columns(0, n_x), columns(n_x, n_b), columns(n_x + n_b, n_b));
    for set in KernelSet::available() {
        let run = |xbc: [&[f32]; 3], state: &mut [f32], out: &mut [f32]| {
            case.ssd().run_apart(set, &Inline, xbc, &case.dt, state, out)
        };
        let (mut got_state, mut got) = (case.state.clone(), vec![0.0; out.len()]);
        assert!(run([&x[1..], &b, &c], &mut got_state, &mut got).is_err());
        assert!(run([&x, &b, &c[1..]], &mut got_state, &mut got).is_err());
        run([&x, &b, &c], &mut got_state, &mut got).unwrap();
        assert_bits(format!("{set:?} output"), &got, &out);
        assert_bits(format!("{set:?} state"), &got_state, &state);
    }
}
