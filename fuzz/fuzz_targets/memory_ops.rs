//! Programs of memory operations, with faults, on every kind of memory.
//!
//! The first byte chooses a model and the type of its cells, the second the sizes of its context,
//! and each four after that are a step of the machine that the tests run. It appends, rolls back,
//! forks, removes, moves, pins, fails and retries, and compares every logit with a fresh
//! evaluation, bit for bit.
#![no_main]

#[path = "../../models/tests/programs/machine.rs"]
mod machine;

use backstitch_core::cell::CellType;
use backstitch_models::Model;
use libfuzzer_sys::fuzz_target;
use machine::{Fresh, Machine};
use std::cell::RefCell;

/// One model for each kind of memory, and two whose heads are wide enough for quantised cells.
const MODELS: [(&[u8], CellType); 9] = [
    (include_bytes!("../../goldens/models/llama.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/gemma3.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/mamba2.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/falcon_h1.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/rwkv7.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/lfm2_swa.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/qwen35.gguf"), CellType::F16),
    (include_bytes!("../../goldens/models/quant_f16.gguf"), CellType::Q4_0),
    (include_bytes!("../../goldens/models/qwen35.gguf"), CellType::Q8_0),
];

/// The longest program, in steps; longer ones find nothing more.
const MAX_STEPS: usize = 48;

thread_local! {
    static KNOWN: RefCell<Vec<(Model, Fresh)>> = RefCell::new(
        MODELS
            .iter()
            .filter_map(|(bytes, cells)| Some((Model::from_bytes(bytes).ok()?, *cells)))
            .map(|(model, cells)| {
                let fresh = Fresh::new(&model, cells);
                (model, fresh)
            })
            .collect(),
    );
}

fuzz_target!(|input: &[u8]| {
    let [which, shape, steps @ ..] = input else { return };
    let steps = steps.as_chunks().0;
    KNOWN.with_borrow_mut(|known| {
        assert_eq!(known.len(), MODELS.len());
        let (model, fresh) = &mut known[usize::from(*which) % MODELS.len()];
        Machine::new(model, fresh, *shape).run(&steps[..steps.len().min(MAX_STEPS)]);
    });
});
