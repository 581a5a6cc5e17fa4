//! Random calls with random handles; the fuzz target `capi` makes more of them.

mod calls;

/// Return pseudo-random bytes (xorshift), the same ones in every run.
fn bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    std::iter::repeat_with(next).take(n).collect()
}

#[test]
fn random_calls_with_stale_handles_never_crash() {
    let programs: u64 = std::env::var("PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    for name in ["llama", "falcon_h1", "gemma3"] {
        let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        (0..programs / 4).for_each(|seed| calls::run(&path, &bytes(seed, 1500)));
    }
}
