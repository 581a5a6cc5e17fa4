//! Programs of memory operations without storage: the memory's bookkeeping, an external storage
//! that follows it, and the oracle.
//!
//! The first byte chooses the layers, the second the size of the cache, and each eight after that
//! are a step. To fuzz the storage of another engine, implement `Engine` for it and use it instead
//! of `Blocks`.
#![no_main]

use backstitch_core::cell::CellType;
use backstitch_kv::testing::programs::{self, Blocks, Machine, Step};
use libfuzzer_sys::fuzz_target;

/// The longest program, in steps; longer ones find nothing more.
const MAX_STEPS: usize = 64;
const SIZES: [u32; 5] = [33, 100, 130, 161, 700];

fuzz_target!(|input: &[u8]| {
    let [kind, size, steps @ ..] = input else { return };
    let layers = match kind % 5 {
        0 => programs::transformer(),
        1 => programs::windowed(),
        2 => programs::recurrent(),
        3 => programs::windowed_and_recurrent(),
        _ => programs::hybrid(),
    };
    let n_ctx = SIZES[usize::from(*size) % SIZES.len()];
    let mut machine = Machine::<Blocks>::new(layers, n_ctx, CellType::F32, CellType::F32);
    let steps = steps.as_chunks().0;
    steps.iter().take(MAX_STEPS).for_each(|step| machine.run(&Step::read(step)));
});
