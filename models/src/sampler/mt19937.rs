//! llama.cpp's random numbers.

/// MT19937 (Matsumoto and Nishimura, "Mersenne Twister", 1998), read at any index.
///
/// The outputs of a seed are numbered from 0. Only the 624 words around the last index are kept, so
/// a position is a number, and going back to one needs no saved state. Moving on by one word is
/// cheap; going back, or far ahead, makes the words again from the seed, which takes about a
/// microsecond for every 312 tokens drawn in between. The index counts modulo 2^27, which bounds
/// this time for an index that was read from a file; the numbers repeat after 67 million tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mt19937 {
    seed: u32,
    words: [u32; N],
    /// The number of times that all words were replaced; 0 right after seeding.
    n_twists: u64,
}

const N: usize = 624;
/// The distance of the word that is mixed into each.
const M: usize = 397;
/// The number of words after which the outputs of a seed repeat here.
const PERIOD: u64 = 1 << 27;

impl Mt19937 {
    pub fn new(seed: u32) -> Self {
        let mut numbers = Mt19937 { seed, words: [0; N], n_twists: 0 };
        numbers.start(seed);
        numbers
    }

    /// Go to the beginning of the numbers of `seed`.
    pub fn start(&mut self, seed: u32) {
        self.seed = seed;
        self.n_twists = 0;
        let mut word = seed;
        for (i, slot) in (0u32..).zip(&mut self.words) {
            if i > 0 {
                word = (word ^ (word >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i);
            }
            *slot = word;
        }
    }

    /// Return the output at `index`.
    pub fn word(&mut self, index: u64) -> u32 {
        let index = index % PERIOD;
        let wanted = index / N as u64 + 1;
        if wanted < self.n_twists {
            self.start(self.seed);
        }
        while self.n_twists < wanted {
            self.twist();
        }
        let word = self.words[(index % N as u64) as usize];
        let word = word ^ (word >> 11);
        let word = word ^ ((word << 7) & 0x9d2c_5680);
        let word = word ^ ((word << 15) & 0xefc6_0000);
        word ^ (word >> 18)
    }

    /// Replace all words by the next ones.
    fn twist(&mut self) {
        for i in 0..N {
            let both = self.words[i] & 0x8000_0000 | self.words[(i + 1) % N] & 0x7fff_ffff;
            let mix = if both & 1 == 0 { 0 } else { 0x9908_b0df };
            self.words[i] = self.words[(i + M) % N] ^ (both >> 1) ^ mix;
        }
        self.n_twists += 1;
    }

    /// Return the number in `0.0..1.0` that a uniform distribution of doubles makes of the outputs
    /// at `index` and behind it.
    pub fn double(&mut self, index: u64) -> f64 {
        const WORD: f64 = (1u64 << 32) as f64;
        let (low, high) = (self.word(index), self.word(index + 1));
        below_one((f64::from(low) + f64::from(high) * WORD) / (WORD * WORD), 1.0 - f64::EPSILON / 2.0)
    }

    /// Return the number in `0.0..1.0` that a uniform distribution of floats makes of the output at
    /// `index`.
    pub fn float(&mut self, index: u64) -> f32 {
        below_one(self.word(index) as f32 / (1u64 << 32) as f32, 1.0 - f32::EPSILON / 2.0)
    }
}

/// Return `x`, or the greatest number below 1 if `x` was rounded up to 1.
fn below_one<T: PartialOrd>(x: T, greatest: T) -> T {
    if x > greatest { greatest } else { x }
}

/// The random numbers of a sampler that draws on its own, as some of llama.cpp do: each starts from
/// the seed and counts what it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnNumbers {
    numbers: Mt19937,
    /// The number of outputs used.
    pub used: u32,
}

impl OwnNumbers {
    pub fn new() -> Self {
        OwnNumbers { numbers: Mt19937::new(0), used: 0 }
    }

    /// Go to the numbers of `seed` behind those that `n_drawn` draws may have used.
    pub fn start(&mut self, seed: u64, n_drawn: u64) {
        // The low half of a seed is the seed, as in llama.cpp, where it has 32 bits.
        self.numbers.start(seed as u32);
        self.used = (2 * (n_drawn % PERIOD) % PERIOD) as u32;
    }

    pub fn double(&mut self) -> f64 {
        let index = self.used;
        self.used = index.wrapping_add(2);
        self.numbers.double(index.into())
    }

    pub fn float(&mut self) -> f32 {
        let index = self.used;
        self.used = index.wrapping_add(1);
        self.numbers.float(index.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn outputs_are_those_of_the_published_generator() {
        // The C++ standard demands the 10,000th output for the default seed, [rand.predef].
        let mut numbers = Mt19937::new(5489);
        assert_eq!(numbers.word(9_999), 4_123_659_995);
        // The first outputs of the authors' program for this seed.
        assert_eq!([0, 1, 2].map(|i| numbers.word(i)), [3_499_211_612, 581_869_302, 3_890_346_734]);
    }

    #[test]
    fn fractions_stay_below_one() {
        let mut numbers = Mt19937::new(5489);
        let all = (0..10_000).map(|i| (numbers.double(2 * i), numbers.float(i)));
        assert!(all.into_iter().all(|(d, f)| (0.0..1.0).contains(&d) && (0.0..1.0).contains(&f)));
        assert_eq!(below_one(1.0, 1.0 - f32::EPSILON / 2.0), 0.999_999_94);
        let double = (3_499_211_612.0 + 581_869_302.0 * 4_294_967_296.0) / 18_446_744_073_709_551_616.0;
        assert_eq!(numbers.double(0), double);
    }

    #[test]
    fn any_index_is_within_reach() {
        let mut numbers = Mt19937::new(1);
        let first = numbers.word(7);
        assert_eq!(numbers.word((u64::MAX / PERIOD) * PERIOD + 7), first);
    }

    proptest! {
        #[test]
        fn the_way_to_an_index_does_not_matter(seed: u32, indices in prop::collection::vec(0u64..3_000, 1..20)) {
            let mut numbers = Mt19937::new(seed);
            let jumped: Vec<u32> = indices.iter().map(|&i| numbers.word(i)).collect();
            let walked: Vec<u32> = indices.iter().map(|&i| {
                let mut fresh = Mt19937::new(seed);
                (0..i).for_each(|i| { fresh.word(i); });
                fresh.word(i)
            }).collect();
            prop_assert_eq!(jumped, walked);
        }
    }
}
