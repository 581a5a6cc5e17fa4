//! SHA-256.

/// Square roots of the first primes, as the standard prescribes.
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Return the first 32 bits behind the point of the cube root of a number, exactly.
fn cube_root_bits(prime: u64) -> u32 {
    // floor(cbrt(prime) * 2^32) = the largest n with n^3 <= prime * 2^96, by bisection.
    let wanted = u128::from(prime) << 96;
    let (mut low, mut high) = (0u128, 1 << 35);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if middle * middle * middle <= wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    low as u32
}

/// Return the round constants, which come from the first 64 primes.
fn constants() -> Vec<u32> {
    let is_prime = |n: &u64| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (2u64..).filter(is_prime).take(64).map(cube_root_bits).collect()
}

/// Return the SHA-256 of a text in hexadecimal digits.
pub(super) fn sha256(text: &str) -> String {
    let mut message = text.as_bytes().to_vec();
    let n_bits = 8 * message.len() as u64;
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64) + if message.len() % 64 > 56 { 64 } else { 0 }, 0);
    message.truncate(message.len() - 8);
    // The standard counts and reads with the high byte first.
    message.extend(n_bits.swap_bytes().to_le_bytes());
    let constants = constants();
    let mut state = START;
    for block in message.as_chunks::<64>().0 {
        state = compress(state, block, &constants);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// Mix a block into the state.
fn compress(state: [u32; 8], block: &[u8; 64], constants: &[u32]) -> [u32; 8] {
    let mut words: Vec<u32> =
        block.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word).swap_bytes()).collect();
    for i in 16..64 {
        let word = |back: usize| words.get(i - back).copied().unwrap_or(0);
        let (x, y) = (word(15), word(2));
        let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
        let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
        words.push(word(16).wrapping_add(s0).wrapping_add(word(7)).wrapping_add(s1));
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, constant) in words.iter().zip(constants) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let first = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(*constant).wrapping_add(*word);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = s0.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
    }
    let mut sums = state;
    for (sum, word) in sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(word);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let known = [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ];
        for (text, hash) in known {
            assert_eq!(sha256(text), hash);
        }
        // Lengths around the place of the counter.
        assert_eq!(
            sha256(&"a".repeat(64)),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"
        );
    }
}
