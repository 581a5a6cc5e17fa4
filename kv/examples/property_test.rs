//! A property test of an engine's own storage, to copy.
//!
//! The programs are those of this crate's own tests: batches in pieces, forks, rollbacks, removals,
//! shifts, pins, full caches, plans that are dropped or leaked, and exports imported elsewhere.
//! After every step the machine compares the memory with the oracle, and the engine's storage with
//! both. To test an engine, implement [`Storage`](backstitch_kv::external::Storage) and
//! [`Engine`](backstitch_kv::testing::programs::Engine) for it, and use it in place of `Blocks`:
//!
//! ```text
//! cargo add --dev backstitch-kv --features proptest
//! cargo add --dev backstitch-core proptest
//! ```
//!
//! In a test, the body of `main` belongs in a function with `#[test]`.

use backstitch_core::cell::CellType;
use backstitch_kv::testing::programs::{self, Blocks, Machine};
use proptest::test_runner::{Config, TestRunner};

fn main() {
    let kinds =
        [programs::transformer, programs::windowed, programs::recurrent, programs::hybrid].map(|kind| kind());
    for layers in kinds {
        let mut runner =
            TestRunner::new(Config { cases: 20, failure_persistence: None, ..Config::default() });
        let result = runner.run(&programs::program(), |(n_ctx, steps)| {
            let mut machine = Machine::<Blocks>::new(layers.clone(), n_ctx, CellType::F32, CellType::F32);
            steps.iter().for_each(|step| machine.run(step));
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    }
    println!("the engine's storage agrees with the oracle");
}
