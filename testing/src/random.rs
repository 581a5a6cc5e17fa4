//! Repeatable random data: the same seed gives the same test on every machine.

/// A xorshift64* generator (Vigna, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled", 2016). It is good enough to vary inputs, and must not be used for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Make a generator whose values depend on `seed` alone. Neighbouring seeds give unrelated
    /// values.
    pub fn new(seed: u64) -> Random {
        // One step of splitmix64 spreads small seeds over all bits; xorshift cannot start from
        // zero.
        let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((x ^ (x >> 31)).max(1))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Return a number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        // The high half of a 64 by 64 bit product maps onto 0..n without division; its bias does
        // not matter here.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Return a float in [-1, 1), a multiple of 2^-23.
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Return `n` floats in [-1, 1).
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }

    /// Return `n` floats of any finite size, of which about a third are zeros of both signs,
    /// subnormals and extremes.
    pub fn wild_floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.wild_float()).collect()
    }

    fn wild_float(&mut self) -> f32 {
        const EDGES: [f32; 6] = [
            0.0,
            -0.0,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            f32::from_bits(1), /* smallest subnormal */
        ];
        if self.below(3) == 0 {
            return EDGES[self.below(EDGES.len())];
        }
        let any = f32::from_bits(self.bits() as u32);
        if any.is_finite() { any } else { self.float() }
    }

    /// `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.bits() >> 56) as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_TWO: [u64; 2] = [5_424_204_624_148_110_235, 15_555_979_849_632_202_484];

    #[test]
    fn a_seed_means_the_same_values_for_ever() {
        let mut random = Random::new(1);
        assert_eq!([random.bits(), random.bits()], FIRST_TWO);
        assert_ne!(Random::new(2).bits(), FIRST_TWO[0]);
        assert_ne!(Random::new(0).bits(), 0);
    }

    #[test]
    fn ranges_hold_and_are_filled() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[random.below(5)] = true);
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
        let floats = random.floats(1000);
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(floats.iter().any(|x| *x < -0.9) && floats.iter().any(|x| *x > 0.9));
    }

    #[test]
    fn wild_floats_are_finite_and_reach_the_edges() {
        let floats = Random::new(3).wild_floats(1000);
        assert!(floats.iter().all(|x| x.is_finite()));
        assert!(floats.iter().any(|x| *x != 0.0 && !x.is_normal()));
        assert!(floats.contains(&f32::MAX));
        assert!(floats.iter().any(|x| x.to_bits() == (-0.0f32).to_bits()));
    }

    #[test]
    fn bytes_use_the_whole_range() {
        let bytes = Random::new(9).bytes(10_000);
        assert!((0..=255).all(|b| bytes.contains(&b)));
    }
}
