//! Random programs of memory operations for every kind of memory: after any operations, each logit
//! has the bits of a fresh evaluation.
//!
//! A program that fails is shrunk and written to `target/failing-programs`. Move it to
//! `tests/programs/kept`, with a file name that begins with the names of the model and of the
//! cells' type, and "adapted" if it ran with adapters, and every test run repeats it from then on.

mod adapted;
#[path = "programs/machine.rs"]
mod machine;

use backstitch_core::cell::CellType;
use backstitch_models::Model;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::prompt_cache::{Access, PromptCache};
use machine::{Fresh, Machine, Step, Tally};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use std::fs;
use std::path::{Path, PathBuf};

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&fs::read(path).unwrap()).unwrap()
}

/// The model, oracles and prompt cache that programs on one model share.
struct Ground {
    model: Model,
    /// One for each set of adapters that sequences may have.
    fresh: Vec<Fresh>,
    prompts: Option<(PromptCache, tempfile::TempDir)>,
}

impl Ground {
    /// Return that of programs without adapters.
    fn plain(name: &str, cells: CellType) -> Self {
        let model = model(name);
        let fresh = vec![Fresh::new(&model, cells, AdapterSet::default())];
        Self { model, fresh, prompts: None }
    }

    /// Return that of programs whose sequences have different sets of adapters and share a prompt
    /// cache.
    fn adapted(name: &str, cells: CellType) -> Self {
        let model = model(name);
        let fresh = adapted::sets(&model).map(|set| Fresh::new(&model, cells, set)).into();
        let folder = tempfile::tempdir().unwrap();
        let cache = PromptCache::open(folder.path(), Access::ReadWrite { budget: 1 << 28 }).unwrap();
        Self { model, fresh, prompts: Some((cache, folder)) }
    }

    fn run(&mut self, shape: u8, steps: &[Step]) -> Tally {
        let mut machine = Machine::new(&self.model, &mut self.fresh, shape);
        if let Some((cache, _)) = &self.prompts {
            machine = machine.with_prompts(cache);
        }
        machine.run(steps);
        machine.tally
    }
}

/// Run `cases` random programs on a model, and keep the smallest that fails.
fn hold(name: &str, cells: CellType, cases: u32) -> Tally {
    hold_on(Ground::plain(name, cells), &format!("{name}-{}", cells.name()), cases)
}

/// Run random programs with different adapters, as [`hold`] does.
fn hold_adapted(name: &str, cells: CellType, cases: u32) -> Tally {
    hold_on(Ground::adapted(name, cells), &format!("{name}-{}-adapted", cells.name()), cases)
}

fn hold_on(ground: Ground, name: &str, cases: u32) -> Tally {
    let ground = std::cell::RefCell::new(ground);
    let sum = std::cell::Cell::new(Tally::default());
    let programs = (any::<u8>(), prop::collection::vec(any::<Step>(), 1..40));
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&programs, |(shape, steps)| {
        let mut ground = ground.try_borrow_mut().map_err(|_| TestCaseError::fail("left over"))?;
        let tally = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ground.run(shape, &steps)));
        let tally = tally.map_err(|_| TestCaseError::fail("see above"))?;
        let mut all = sum.get();
        all += tally;
        sum.set(all);
        Ok(())
    });
    if let Err(TestError::Fail(_, (shape, steps))) = &result {
        let path = keep(name, *shape, steps);
        panic!("{name}: {} steps fail: {}", steps.len(), path.display());
    }
    result.unwrap();
    println!("{name}: {cases} programs, {:?}", sum.get());
    sum.get()
}

fn keep(name: &str, shape: u8, steps: &[Step]) -> PathBuf {
    let bytes: Vec<u8> = [shape].into_iter().chain(steps.iter().flatten().copied()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/failing-programs");
    fs::create_dir_all(&folder).unwrap();
    let number = bytes.iter().fold(5381u32, |h, &b| h.wrapping_mul(33) ^ u32::from(b));
    let path = folder.join(format!("{name}-{number:08x}.program"));
    fs::write(&path, bytes).unwrap();
    path
}

/// One model for each kind of memory: full KV cache, encoder output beside it, windows, recurrent
/// states, recurrent states beside a KV cache.
const KINDS: [&str; 8] = ["llama", "t5", "gemma3", "mamba2", "rwkv7", "falcon_h1", "lfm2_swa", "qwen35"];

#[test]
fn whatever_is_done_logits_are_those_of_a_fresh_evaluation() {
    for name in KINDS {
        let tally = hold(name, CellType::F16, 120);
        assert!(
            tally.rows_compared > 2_000
                && tally.logits_compared > 500
                && tally.faults > 10
                && tally.cancelled > 10
                && tally.forks > 15
                && tally.held > 20
                && tally.restored > 5,
            "{tally:?}"
        );
        if !["llama", "t5"].contains(&name) {
            assert!(tally.evaluated > 2, "{tally:?}");
        }
    }
}

/// Models with the kinds of memory of [`KINDS`], kept by other operations.
const OTHERS: [&str; 10] = [
    "mamba",
    "rwkv6",
    "rwkv6qwen2",
    "arwkv7",
    "jamba",
    "nemotron_h",
    "nemotron_h_moe",
    "kimi_linear",
    "plamo2",
    "lfm2",
];

#[test]
fn whatever_is_done_with_other_recurrences_logits_are_those_of_a_fresh_evaluation() {
    for name in OTHERS {
        let tally = hold(name, CellType::F16, 60);
        assert!(tally.rows_compared > 600 && tally.logits_compared > 150, "{name}: {tally:?}");
    }
}

/// Transformers whose layers keep cells in ways of their own: windows beside sinks, layers without
/// positions, cells of other layers, compressed rows, slopes, experts.
const TRANSFORMERS: [&str; 8] =
    ["gptoss", "cohere2", "gemma4", "deepseek2", "deepseek2_mha", "bloom", "granite_swa", "qwen3moe"];

#[test]
fn whatever_is_done_with_other_transformers_logits_are_those_of_a_fresh_evaluation() {
    for name in TRANSFORMERS {
        let tally = hold(name, CellType::F16, 30);
        assert!(tally.rows_compared > 200 && tally.logits_compared > 50, "{name}: {tally:?}");
    }
}

#[test]
fn whatever_is_done_with_quantised_cells_logits_are_those_of_a_fresh_evaluation() {
    for (name, cells) in [("quant_f16", CellType::Q4_0), ("qwen35", CellType::Q8_0)] {
        let tally = hold(name, cells, 60);
        assert!(tally.rows_compared > 1_000 && tally.forks > 5 && tally.restored > 1, "{tally:?}");
    }
}

/// Models with each kind of memory and of changed matrices: full caches, windows, states beside
/// cells and alone, experts and shared latent rows, an encoder, and quantised weights.
const ADAPTED: [&str; 7] = ["llama", "gemma3", "falcon_h1", "mamba2", "deepseek2", "t5", "quant_q4_k"];

#[test]
fn whatever_is_done_with_adapters_logits_are_those_of_a_fresh_evaluation() {
    for name in ADAPTED {
        let tally = hold_adapted(name, CellType::F16, 60);
        assert!(
            tally.adapted > 500 && tally.restored > 1 && tally.forks > 5 && tally.held > 5,
            "{name}: {tally:?}"
        );
        // What an encoder-decoder evaluates is no matter of tokens alone.
        assert!(tally.recalled > 10 || name == "t5", "{name}: {tally:?}");
    }
}

/// Run many programs on one model: as many as the environment variable `PROGRAMS` says.
fn many(name: &str) {
    hold(name, CellType::F16, std::env::var("PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000));
}

macro_rules! many {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        #[ignore = "takes minutes; PROGRAMS says how many"]
        fn $test() {
            many($name);
        })*
    };
}

many! {
    many_programs_on_a_cache: "llama";
    many_programs_on_windows: "gemma3";
    many_programs_on_states_of_mamba2: "mamba2";
    many_programs_on_states_of_rwkv7: "rwkv7";
    many_programs_on_a_cache_and_states: "falcon_h1";
    many_programs_on_windows_and_states: "lfm2_swa";
    many_programs_on_a_cache_and_the_delta_rule: "qwen35";
}

#[test]
fn programs_that_failed_once_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/kept");
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let mut parts = path.file_stem().unwrap().to_str().unwrap().split('-');
        let (name, cells) = (parts.next().unwrap(), parts.next().unwrap());
        let cells = CellType::ALL.into_iter().find(|ty| ty.name() == cells).unwrap();
        let is_adapted = parts.next() == Some("adapted");
        let mut ground = if is_adapted { Ground::adapted(name, cells) } else { Ground::plain(name, cells) };
        let bytes = fs::read(&path).unwrap();
        let (shape, steps) = bytes.split_first().unwrap();
        ground.run(*shape, steps.as_chunks().0);
    }
}
