//! A fuzz target for an engine's own storage, to copy.
//!
//! The bytes of the fuzzer are a program: the first chooses the layers, the second the number of
//! cells, and each eight after that are a step. The machine compares the memory with the oracle
//! after each step, and the engine's storage with both. To fuzz an engine, implement
//! [`Storage`](backstitch_kv::external::Storage) and
//! [`Engine`](backstitch_kv::testing::programs::Engine) for it, and use it in place of `Blocks`.
//! With cargo-fuzz, `run` is the body of the target:
//!
//! ```text
//! #![no_main]
//! libfuzzer_sys::fuzz_target!(|bytes: &[u8]| { run(bytes); });
//! ```
//!
//! Here a few programs stand in for the fuzzer:
//!
//! ```text
//! cargo run -p backstitch-kv --example fuzz_target --features testing
//! ```

use backstitch_core::cell::CellType;
use backstitch_kv::testing::programs::{self, Blocks, Machine, Step, Tally};

/// Longest program, in steps.
const MAX_STEPS: usize = 64;

/// Run the program in `bytes`, and count what it did.
fn run(bytes: &[u8]) -> Tally {
    let [kind, size, steps @ ..] = bytes else { return Tally::default() };
    let layers = match kind % 4 {
        0 => programs::transformer(),
        1 => programs::windowed(),
        2 => programs::recurrent(),
        _ => programs::hybrid(),
    };
    let n_ctx = 33 + 3 * u32::from(*size);
    let mut machine = Machine::<Blocks>::new(layers, n_ctx, CellType::F32, CellType::F32);
    for step in steps.as_chunks().0.iter().take(MAX_STEPS) {
        machine.run(&Step::read(step));
    }
    machine.tally()
}

fn main() {
    let commits = (0..64u32).map(|seed| {
        let next = |byte: u32| Some(byte.wrapping_mul(1_103_515_245).wrapping_add(12_345));
        let bytes = std::iter::successors(Some(seed), |&byte| next(byte)).map(|word| (word >> 16) as u8);
        run(&bytes.take(2 + 8 * MAX_STEPS).collect::<Vec<u8>>()).commits
    });
    println!("the storage agrees with the oracle after {} batches", commits.sum::<u32>());
}
