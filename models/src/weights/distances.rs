//! Relative position biases by distance, from a table by bucket (Raffel et al., 2020,
//! arXiv 1910.10683, section 2.1).

use alloc::vec::Vec;

/// All distances from here on are in the last bucket.
pub(crate) const REACH: usize = 128;

/// Return the bucket of a cell at the query's position plus `distance`.
///
/// The first half of the buckets holds one distance each; the others hold ranges that grow by a
/// constant factor up to [`REACH`]. With `both_ways` tokens ahead have the upper half of all
/// buckets; else they have that of distance 0.
fn bucket(distance: i64, n_bucket: usize, both_ways: bool) -> usize {
    let (n_bucket, ahead) = match both_ways {
        true => (n_bucket / 2, if distance > 0 { n_bucket / 2 } else { 0 }),
        false => (n_bucket, 0),
    };
    let back = if both_ways { distance.unsigned_abs() } else { (-distance).max(0) as u64 } as usize;
    let n_exact = n_bucket / 2;
    if back < n_exact {
        return ahead + back;
    }
    let octaves = libm::log(back as f64 / n_exact as f64) / libm::log(REACH as f64 / n_exact as f64);
    // Rounded to f32 first: where the quotient is a whole number, the logarithms may come out a
    // little below it.
    let far = (n_exact as f64 + octaves * (n_bucket - n_exact) as f64) as f32;
    ahead + (far as usize).min(n_bucket - 1)
}

/// Return the biases of all distances from `-REACH` to `REACH`, head by head, from a table
/// `[n_bucket, n_head]`.
pub(super) fn terms(table: &[f32], n_bucket: usize, n_head: usize, both_ways: bool) -> Vec<f32> {
    let reach = REACH as i64;
    let of_head =
        |head: usize| (-reach..=reach).map(move |d| table[bucket(d, n_bucket, both_ways) * n_head + head]);
    (0..n_head).flat_map(of_head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_distances_have_their_own_bucket_and_far_ones_share() {
        let behind: Vec<usize> =
            [0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 9999].map(|d| bucket(-d, 32, true)).into();
        assert_eq!(behind, [0, 1, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15, 15]);
        assert_eq!([1, 8, 128].map(|d| bucket(d, 32, true)), [17, 24, 31]);
        let causal = [5, 1, 0, -1, -15, -16, -31, -127, -128].map(|d| bucket(d, 32, false));
        assert_eq!(causal, [0, 0, 0, 1, 15, 16, 21, 31, 31]);
        for n_bucket in (4..=128).step_by(2) {
            for both_ways in [false, true] {
                let all: Vec<usize> = (-300..300).map(|d| bucket(d, n_bucket, both_ways)).collect();
                assert!(all.iter().all(|&bucket| bucket < n_bucket), "{n_bucket}");
            }
        }
    }

    #[test]
    fn terms_are_laid_out_by_head_and_distance() {
        let table: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let terms = terms(&table, 32, 2, false);
        assert_eq!(terms.len(), 2 * (2 * REACH + 1));
        assert_eq!((terms[REACH], terms[REACH - 3], terms[0]), (0.0, 6.0, 62.0));
        assert_eq!(terms[2 * REACH + 1 + REACH - 3], 7.0);
    }
}
