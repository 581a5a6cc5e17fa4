//! Moving keys that carry their position: a rotation by the difference.

use crate::layer::{Pairs, Rope};
use alloc::vec::Vec;

/// The rotation of one layer's keys by one distance, kept while keys move by the same.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    delta: i64,
    /// Cosine and sine of each pair.
    table: Vec<(f32, f32)>,
}

impl Turn {
    /// Turns keys `[n_head_kv, d_k]` by `delta` positions.
    pub fn apply(&mut self, rope: &Rope, d_k: usize, delta: i64, keys: &mut [f32]) {
        if self.delta != delta || self.table.is_empty() {
            self.delta = delta;
            self.table.clear();
            // In double precision: the angle is large, and every key is turned once at most per operation.
            let angles = rope.freqs.iter().map(|&freq| delta as f64 * f64::from(freq));
            self.table.extend(angles.map(|a| (libm::cos(a) as f32, libm::sin(a) as f32)));
        }
        let n_pairs = self.table.len();
        for head in keys.chunks_exact_mut(d_k.max(1)) {
            for (i, &(cos, sin)) in self.table.iter().enumerate() {
                let (a, b) = match rope.pairs {
                    Pairs::Adjacent => (2 * i, 2 * i + 1),
                    Pairs::Split => (i, i + n_pairs),
                };
                let (x, y) = (head[a], head[b]);
                head[a] = x * cos - y * sin;
                head[b] = x * sin + y * cos;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn rope(pairs: Pairs) -> Rope {
        Rope { freqs: vec![1.0, 0.1], pairs }
    }

    #[test]
    fn pairs_turn_by_their_own_frequency_and_the_rest_stays() {
        for (pairs, [a, b, c, d]) in [(Pairs::Adjacent, [0, 1, 2, 3]), (Pairs::Split, [0, 2, 1, 3])] {
            let mut keys = vec![0.0; 10];
            for head in keys.chunks_exact_mut(5) {
                (head[a], head[b], head[c], head[d], head[4]) = (1.0, 0.0, 0.0, 2.0, 9.0);
            }
            Turn::default().apply(&rope(pairs), 5, 3, &mut keys);
            for head in keys.chunks_exact(5) {
                let close = |x: f32, y: f64| (f64::from(x) - y).abs() < 1e-6;
                assert!(close(head[a], 3f64.cos()) && close(head[b], 3f64.sin()), "{pairs:?} {head:?}");
                assert!(close(head[c], -2.0 * 0.3f64.sin()) && close(head[d], 2.0 * 0.3f64.cos()));
                assert_eq!(head[4], 9.0);
            }
        }
    }

    #[test]
    fn there_and_back_again_is_where_it_was() {
        let mut turn = Turn::default();
        let mut keys = vec![0.5, -1.5, 2.5, 3.5];
        for delta in [12, -5, -7] {
            turn.apply(&rope(Pairs::Split), 4, delta, &mut keys);
        }
        assert!(keys.iter().zip([0.5, -1.5, 2.5, 3.5]).all(|(x, y)| (x - y).abs() < 1e-5), "{keys:?}");
    }
}
