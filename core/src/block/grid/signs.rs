//! The signs of groups of eight elements.
//!
//! IQ2_S and IQ3_S store eight signs in a byte. IQ2_XXS, IQ2_XS and IQ3_XXS store seven bits: the
//! number of minus signs in a group is always even, so the eighth follows from the others. Where
//! weights have an odd number, encoding turns the sign of the element that matters least.

/// Return eight signs of which the lowest seven bits are stored.
pub fn complete(stored: u8) -> u8 {
    let seven = stored & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Magnitudes of `S` elements, with the signs of each eight of them.
pub struct Signed<const S: usize> {
    /// The elements without their signs; one whose sign was turned is negative.
    pub x: [f32; S],
    /// Bit `i` of byte `k` is set if element `8 k + i` is negative.
    pub signs: [u8; 4],
}

impl<const S: usize> Signed<S> {
    /// Take the signs off `x`, as many as there are.
    pub fn any(x: &[f32; S]) -> Self {
        let mut signs = [0; 4];
        for (signs, x) in signs.iter_mut().zip(x.as_chunks::<8>().0) {
            *signs = negative(x);
        }
        Self { x: x.map(magnitude), signs }
    }

    /// Take the signs off `x`, an even number of each eight; errors count by `w`.
    pub fn even(x: &[f32; S], w: &[f32; S]) -> Self {
        let mut even = Self::any(x);
        let groups = even.x.as_chunks_mut::<8>().0.iter_mut().zip(&mut even.signs);
        for ((magnitudes, signs), (x, w)) in groups.zip(x.as_chunks().0.iter().zip(w.as_chunks().0)) {
            if signs.count_ones() % 2 == 1 {
                let turned = least_important(x, w);
                magnitudes[turned] = -magnitudes[turned];
                *signs ^= 1 << turned;
            }
        }
        even
    }

    /// Turn all signs.
    pub fn turn(&mut self) {
        self.signs = self.signs.map(|signs| !signs);
    }
}

/// Return `x` without its sign, like [`f32::abs`] but for zeros.
fn magnitude(x: f32) -> f32 {
    if x >= 0.0 { x } else { -x }
}

fn negative(x: &[f32; 8]) -> u8 {
    let bit = |(i, &x): (usize, &f32)| if x >= 0.0 { 0 } else { 1 << i };
    x.iter().enumerate().map(bit).sum()
}

fn least_important(x: &[f32; 8], w: &[f32; 8]) -> usize {
    let cost = |i: usize| w[i] * x[i] * x[i];
    (1..8).fold(0, |least, i| if cost(i) < cost(least) { i } else { least })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_bits_give_back_an_even_number_of_signs() {
        for stored in 0..128 {
            let signs = complete(stored);
            assert_eq!((signs & 127, signs.count_ones() % 2), (stored, 0));
        }
    }

    #[test]
    fn the_sign_that_costs_least_is_turned() {
        let x = [1.0, -2.0, 3.0, 0.5, 4.0, 0.25, 1.0, 9.0];
        let even = Signed::even(&x, &[1.0, 1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(even.signs[0], 0b1010);
        assert_eq!(even.x, [1.0, 2.0, 3.0, -0.5, 4.0, 0.25, 1.0, 9.0]);
        assert_eq!(Signed::any(&x).signs[0], 0b10);
    }
}
