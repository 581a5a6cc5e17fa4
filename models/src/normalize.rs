//! Normalisation of embeddings, which makes them comparable: division by a norm.

/// The norm that [`normalize`] divides by.
///
/// # Example
/// ```
/// use backstitch_models::{Norm, normalize};
///
/// let mut embedding = [3.0, -1.0];
/// normalize(&mut embedding, Norm::Taxicab);
/// assert_eq!(embedding, [0.75, -0.25]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Norm {
    /// The largest magnitude over 32,760, so that elements fill 16-bit integers.
    MaxAbs,
    /// The sum of magnitudes (L1).
    Taxicab,
    /// The root of the sum of squares (L2). The inner product of two embeddings is then the cosine
    /// of their angle.
    Euclidean,
    /// The p-th root of the sum of p-th powers of magnitudes.
    P(f64),
}

/// The largest magnitude after division by [`Norm::MaxAbs`].
const MOST: f64 = 32_760.0;

impl Norm {
    fn of(self, x: &[f32]) -> f64 {
        let magnitudes = x.iter().map(|x| f64::from(x.abs()));
        match self {
            Norm::MaxAbs => magnitudes.fold(0.0, f64::max) / MOST,
            Norm::Taxicab => magnitudes.sum(),
            Norm::Euclidean => libm::sqrt(magnitudes.map(|x| x * x).sum()),
            Norm::P(p) => libm::pow(magnitudes.map(|x| libm::pow(x, p)).sum(), 1.0 / p),
        }
    }
}

/// Divide `x` by its norm. The norm is summed in double precision in the order of the elements.
/// Zeros stay zeros.
///
/// # Example
/// ```
/// use backstitch_models::{Norm, normalize};
///
/// let mut embedding = [3.0, 0.0, -4.0];
/// normalize(&mut embedding, Norm::Euclidean);
/// assert_eq!(embedding, [0.6, 0.0, -0.8]);
/// ```
pub fn normalize(x: &mut [f32], norm: Norm) {
    let norm = norm.of(x);
    if norm > 0.0 {
        x.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_norm_of_what_it_made_is_one() {
        let x: [f32; 5] = core::array::from_fn(|i| (i as f32 - 1.7) * 0.3);
        for norm in [Norm::Taxicab, Norm::Euclidean, Norm::P(3.0), Norm::P(1.5)] {
            let mut y = x;
            normalize(&mut y, norm);
            assert!((norm.of(&y) - 1.0).abs() < 1e-6, "{norm:?}");
            assert!(x.iter().zip(&y).all(|(x, y)| x.signum() == y.signum()));
        }
        let (mut two, mut euclidean) = (x, x);
        normalize(&mut two, Norm::P(2.0));
        normalize(&mut euclidean, Norm::Euclidean);
        assert!(two.iter().zip(&euclidean).all(|(a, b)| (a - b).abs() < 1e-7));
        let mut short = [0.5, -2.0, 1.0];
        normalize(&mut short, Norm::MaxAbs);
        assert_eq!(short, [8190.0, -32760.0, 16380.0]);
        let mut nothing = [0.0, -0.0];
        normalize(&mut nothing, Norm::Euclidean);
        assert_eq!(nothing, [0.0, 0.0]);
        normalize(&mut [], Norm::MaxAbs);
    }
}
