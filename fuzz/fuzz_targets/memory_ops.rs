//! Programs of memory operations, with faults, on every kind of memory.
//!
//! The first byte chooses a model and the type of its cells, and from 128 on lets sequences have
//! different adapters. The second byte chooses the sizes of its context, and each four after that
//! are a step of the machine that the tests run. It appends, rolls back, forks, removes, moves,
//! pins, remembers, fails and retries, and compares every logit with a fresh evaluation, bit for
//! bit.
#![no_main]

#[path = "../../models/tests/adapted/mod.rs"]
mod adapted;
#[path = "../../models/tests/programs/machine.rs"]
mod machine;

use backstitch_core::cell::CellType;
use backstitch_models::Model;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::prompt_cache::{Access, PromptCache};
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

/// The first byte of programs whose sequences have adapters, and of all after it.
const ADAPTED: u8 = 128;

/// The model, oracles and prompt cache that programs on one model share.
struct Ground {
    model: Model,
    cells: CellType,
    plain: Vec<Fresh>,
    /// Sequences with different sets of adapters, and their prompt cache; made when first needed.
    adapted: Option<(Vec<Fresh>, PromptCache, tempfile::TempDir)>,
}

impl Ground {
    fn new(bytes: &[u8], cells: CellType) -> Option<Self> {
        let model = Model::from_bytes(bytes).ok()?;
        let plain = vec![Fresh::new(&model, cells, AdapterSet::default())];
        Some(Self { model, cells, plain, adapted: None })
    }

    /// Return the machine of a program.
    fn machine(&mut self, is_adapted: bool, shape: u8) -> Machine<'_> {
        let Self { model, cells, plain, adapted } = self;
        if !is_adapted {
            return Machine::new(model, plain, shape);
        }
        let (fresh, cache, _) = adapted.get_or_insert_with(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let access = Access::ReadWrite { budget: 1 << 26 };
            let cache = PromptCache::open(folder.path(), access).expect("a prompt cache");
            let fresh = adapted::sets(model).map(|set| Fresh::new(model, *cells, set));
            (fresh.into(), cache, folder)
        });
        Machine::new(model, fresh, shape).with_prompts(cache)
    }
}

thread_local! {
    static KNOWN: RefCell<Vec<Ground>> = RefCell::new(
        MODELS.iter().filter_map(|(bytes, cells)| Ground::new(bytes, *cells)).collect(),
    );
}

fuzz_target!(|input: &[u8]| {
    let [which, shape, steps @ ..] = input else { return };
    let steps = steps.as_chunks().0;
    KNOWN.with_borrow_mut(|known| {
        assert_eq!(known.len(), MODELS.len());
        let ground = &mut known[usize::from(*which) % MODELS.len()];
        ground.machine(*which >= ADAPTED, *shape).run(&steps[..steps.len().min(MAX_STEPS)]);
    });
});
