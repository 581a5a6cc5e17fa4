//! The random number generator of the draw.

/// The random numbers that a chain draws with.
///
/// # Example
/// ```
/// use backstitch_models::sampler::{Chain, Generator, Settings};
///
/// let settings = Settings::default().seed(7).generator(Generator::Llama);
/// let mut chain = Chain::new(3, &settings);
/// assert!(chain.sample(&[1.0, 1.1, 0.9]).is_some()); // the token that llama.cpp would draw
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generator {
    /// [`Rng`].
    #[default]
    Backstitch,
    /// llama.cpp's: MT19937, of which a draw takes two numbers. The low 32 bits of the seed count.
    /// The order of the candidates, the random numbers that XTC, mirostat and adaptive-p take for
    /// themselves, and what the samplers do at a temperature of zero are llama.cpp's too, so that
    /// equal logits give equal texts.
    Llama,
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014,
/// figure 16).
///
/// The state is one 64-bit word that each draw advances by a constant. This gives the same numbers
/// on every platform, takes eight bytes to save, and goes back by a subtraction.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Rng;
///
/// let mut rng = Rng::new(7);
/// rng.bits();
/// let mut copy = Rng::new(rng.state());
/// assert_eq!(copy.unit(), rng.unit());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

/// The odd number closest to 2^64 divided by the golden ratio.
pub(super) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The inverse of [`STEP`]: their product is 1 modulo 2^64.
const PER_STEP: u64 = 0xf1de_83e1_9937_733d;

impl Rng {
    /// Make a generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Return the state. [`Rng::new`] with this number continues from here.
    pub fn state(self) -> u64 {
        self.state
    }

    /// Return the number of draws that lead from `seed` here.
    pub(super) fn n_drawn(self, seed: u64) -> u64 {
        self.state.wrapping_sub(seed).wrapping_mul(PER_STEP)
    }

    /// Return the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Return the next random number in `0.0..1.0`, a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.bits() >> 11) as f64 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_published_generator() {
        // The sequence for seed 1234567 that implementations of SplitMix64 commonly check
        // themselves against.
        let mut rng = Rng::new(1_234_567);
        let bits = core::array::from_fn(|_| rng.bits());
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(bits, expected);
    }

    #[test]
    fn draws_are_counted_from_the_seed() {
        assert_eq!(STEP.wrapping_mul(PER_STEP), 1);
        let mut rng = Rng::new(u64::MAX - 3);
        for n in 0..100 {
            assert_eq!(rng.n_drawn(u64::MAX - 3), n);
            rng.bits();
        }
    }

    #[test]
    fn unit_stays_below_one_and_is_even() {
        let mut rng = Rng::new(7);
        let mut tenths = [0; 10];
        for _ in 0..100_000 {
            let x = rng.unit();
            assert!((0.0..1.0).contains(&x));
            tenths[(x * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|n| (9_500..10_500).contains(n)), "{tenths:?}");
    }
}
