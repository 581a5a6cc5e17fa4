//! The budget of a context equals the bytes that are allocated.
//!
//! The allocator counts them, so all caches here are of less than 2 MiB: larger ones are mapped. A
//! test of kv holds their sizes to what it reports.

use backstitch_models::adapter::{Adapter, AdapterSet};
use backstitch_models::gguf::Gguf;
use backstitch_models::{Budget, Context, Model, Params, RollbackParams, Token, arch};
use backstitch_testing::Counting;

#[allow(dead_code, reason = "other tests use the rest")]
mod adapted;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Return the bytes that this thread allocates for a context with all its sequences and a token in
/// the first.
fn allocated(model: &Model, params: Params) -> u64 {
    let (_, tally) = ALLOCATOR.during_here(|| {
        let mut ctx = Context::new(model, params).unwrap();
        (0..params.n_seq_max).for_each(|_| _ = ctx.sequence().unwrap());
        ctx
    });
    tally.bytes
}

/// The bytes of lists whose length does not depend on the context's, as the models of these tests
/// are small.
const LISTS: u64 = 96 << 10;

fn assert_near(what: &str, found: u64, said: u64) {
    let off = found.abs_diff(said).saturating_sub(LISTS) as f64 / found.max(1) as f64;
    assert!(off < 0.05, "{what}: {found} bytes were allocated, {said} were said");
}

/// Return the change of the allocation and of the budget, as a whole and of `part`, that a change
/// of parameters makes.
fn compare(name: &str, what: &str, from: Params, to: Params, part: impl Fn(&Budget) -> u64) {
    let model = Model::from_bytes(&bytes(name)).unwrap();
    let (hparams, graph) = (model.hparams(), model.graph());
    let [before, after] = [from, to].map(|params| Budget::new(hparams, graph, &params));
    let grown = allocated(&model, to).checked_sub(allocated(&model, from));
    let grown = grown.unwrap_or_else(|| panic!("{name}, {what}: less is allocated"));
    assert_near(&format!("{name}, {what}"), grown, after.total() - before.total());
    let of_part = part(&after) - part(&before);
    assert!(of_part > 0 && of_part >= (after.total() - before.total()) * 8 / 10, "{name}, {what}: {of_part}");
}

#[test]
fn every_figure_grows_as_what_is_allocated() {
    let params = Params::default().n_ctx(256).n_ubatch(64).n_batch(64).n_threads(1);
    let off = RollbackParams::OFF;
    let journal = |journal| off.journal(journal);
    for name in ["llama", "gemma3", "qwen35", "t5"] {
        let params = params.rollback(off);
        compare(name, "caches", params, params.n_ctx(768), |budget| budget.caches);
        let f32 = backstitch_core::cell::CellType::F32;
        let wider = params.type_k(f32).type_v(f32);
        compare(name, "wider caches", params, wider, |budget| budget.caches);
    }
    for name in ["llama", "mamba2", "t5", "bert"] {
        // The memory of an encoder is cells for a whole batch, which it does not retain.
        let larger = params.n_ubatch(1024);
        compare(name, "arena", params, larger, |budget| budget.arena);
    }
    for name in ["mamba2", "rwkv7", "falcon_h1"] {
        let with = |rollback, n_seq_max| params.rollback(rollback).n_seq_max(n_seq_max).n_ctx(64);
        compare(name, "states", with(off, 1), with(off, 25), |budget| budget.states + budget.caches);
        let one = off.checkpoint_bytes(1 << 20);
        let states = |budget: &Budget| budget.states + budget.caches;
        compare(name, "checkpoints", with(off, 9), with(one, 9), states);
        compare(name, "journal", with(journal(64), 9), with(journal(4096), 9), |budget| budget.journal);
    }
    let threads = |n_threads| params.n_threads(n_threads).n_ctx(1 << 17);
    compare("llama", "attention", threads(1), threads(2), |budget| budget.arena);
    let sequences = |n_seq_max| params.n_seq_max(n_seq_max).rollback(off);
    compare("mamba2", "tokens", sequences(1), sequences(200), |budget| budget.tokens + budget.states);
}

#[test]
fn the_whole_is_what_a_context_takes() {
    for name in ["llama", "gemma3", "falcon_h1", "mamba2", "rwkv7", "qwen35", "lfm2_swa", "t5"] {
        let model = Model::from_bytes(&bytes(name)).unwrap();
        let params = Params::default().n_ctx(768).n_ubatch(128).n_batch(128).n_threads(1);
        let params = params.rollback(RollbackParams::default().checkpoint_bytes(128 << 10));
        let budget = Budget::new(model.hparams(), model.graph(), &params);
        assert_near(name, allocated(&model, params), budget.total() - budget.weights);
        assert_eq!(Context::new(&model, params).unwrap().budget(), budget, "{name}");
    }
}

#[test]
fn adapters_and_their_buffers_are_counted_once() {
    let model = Model::from_bytes(&bytes("quant_q4_k")).unwrap();
    let file = adapted::file(&model, 1, 2048, |name| name == "blk.0.attn_q.weight");
    let adapter = Adapter::from_bytes(&file, &model).unwrap();
    let one = AdapterSet::default().with(&adapter, 1.0).unwrap();
    let steered = adapted::steered(&model, one.clone(), 2, 0.5);
    let sets = [one.clone(), steered, AdapterSet::default().with(&adapter, 0.5).unwrap(), one];
    let params = Params::default().n_ctx(256).n_seq_max(4).n_ubatch(64).n_batch(64).n_threads(1);
    let budget = |sets: &[AdapterSet]| Budget::with_adapters(model.hparams(), model.graph(), &params, sets);
    let with = |sets: &[AdapterSet]| {
        let made = ALLOCATOR.during_here(|| {
            let mut ctx = Context::new(&model, params).unwrap();
            sets.iter().for_each(|set| _ = ctx.sequence_with(set).unwrap());
            ctx
        });
        assert_eq!(made.0.budget(), budget(sets));
        made.1.bytes
    };
    assert_eq!(budget(&vec![AdapterSet::default(); 4]).adapters, 0);
    // The adapter is there before the context.
    let said = budget(&sets).adapters - adapter.n_bytes() as u64;
    assert_near("buffers of adapters", with(&sets) - with(&[]), said);
    assert!(said > 4 * LISTS && adapter.n_bytes() as u64 > 4 * LISTS, "{said}");
}

#[test]
fn a_context_of_the_models_own_length_is_not_free() {
    let model = Model::from_bytes(&bytes("llama")).unwrap();
    let (hparams, graph) = (model.hparams(), model.graph());
    let own = Params::default().n_ctx(hparams.n_ctx_train).n_ubatch(64).n_batch(64).n_threads(1);
    let open = own.n_ctx(0);
    assert_eq!(Budget::new(hparams, graph, &open), Budget::new(hparams, graph, &own));
    assert_near("own length", allocated(&model, open), {
        let budget = Budget::new(hparams, graph, &open);
        budget.total() - budget.weights
    });
}

#[test]
fn weights_are_known_before_they_are_loaded() {
    let folder = format!("{}/../goldens/models", env!("CARGO_MANIFEST_DIR"));
    let mut n_compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let Ok(gguf) = Gguf::parse(&bytes) else { continue };
        let (Ok((hparams, graph)), Ok(model)) =
            (Model::describe(&gguf, arch::ALL), Model::from_bytes(&bytes))
        else {
            continue;
        };
        let budget = Budget::new(&hparams, &graph, &Params::default());
        assert_eq!(budget.weights, model.n_bytes() as u64, "{}", path.display());
        n_compared += 1;
    }
    assert!(n_compared > 20, "{n_compared}");
}

#[test]
fn by_default_all_threads_of_the_process_are_used() {
    let all = std::thread::available_parallelism().unwrap().get().min(512);
    assert_eq!(Params::default().n_threads as usize, all);
    let model = Model::from_bytes(&bytes("llama")).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &[Token(1), Token(2)]).unwrap();
    assert_eq!(ctx.params().n_threads as usize, all);
}

#[test]
fn a_budget_says_what_takes_how_much() {
    let mut budget = Budget::default();
    assert_eq!(budget.to_string(), "0.0 MiB");
    (budget.weights, budget.caches) = (10 << 20, 5 << 19);
    assert_eq!(budget.to_string(), "12.5 MiB: weights 10.0, caches 2.5");
    budget.adapters = 1 << 20;
    assert_eq!(budget.to_string(), "13.5 MiB: weights 10.0, caches 2.5, adapters 1.0");
}
