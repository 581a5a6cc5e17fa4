//! Requests that run beside each other.

use crate::{KINDS, alone, answer, demo, golden, greedy, params, request, some_tokens};
use backstitch_models::adapter::AdapterSet;
use backstitch_models::session::TokenLogprobs;
use backstitch_models::{Batch, Context, Params, Pooling, Pos, Token, Wanted};
use backstitch_server::Error;
use backstitch_server::engine::{DraftSource, Drafts, Engine, EngineParams, Event, Tenant};
use backstitch_testing::assert_bits;
use std::time::{Duration, Instant};

#[test]
fn requests_together_answer_as_alone() {
    for kind in KINDS {
        let model = golden(kind);
        let engine = Engine::start(&model, params()).unwrap();
        let prompts: Vec<Vec<Token>> =
            (0..10).map(|i| some_tokens(&model, 20 + 13 * i as usize, i % 4)).collect();
        let all: Vec<_> = (0u64..)
            .zip(&prompts)
            .map(|(seed, prompt)| engine.generate(request(&model, prompt, 12, seed)).unwrap())
            .collect();
        for ((seed, prompt), events) in (0u64..).zip(&prompts).zip(all) {
            assert_eq!(answer(events).tokens, alone(&model, prompt, 12, seed), "{kind} {seed}");
        }
    }
}

/// The model rotates keys otherwise in contexts of more than 128 tokens, which those of requests
/// are not, though all together are.
#[test]
fn the_cells_of_others_do_not_make_a_context_long() {
    let model = golden("phi3_long");
    let engine = Engine::start(&model, EngineParams { n_ctx: 128, ..params() }).unwrap();
    let prompt = some_tokens(&model, 60, 1);
    let mut ctx = Context::new(&model, Params::default().n_ctx(128)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &prompt).unwrap();
    let mut asked = greedy(&model, &prompt, 1, 0);
    asked.logprobs = Some(0);
    let mut events = engine.generate(asked).unwrap();
    let found = loop {
        if let Event::Chunk(chunk) = events.blocking_recv().unwrap() {
            break chunk.logprobs[0].clone();
        }
    };
    let expected = TokenLogprobs::of(ctx.logits(seq).unwrap(), found.token, 0, &mut Vec::new());
    assert_eq!(found.logprob.unwrap().to_bits(), expected.logprob.unwrap().to_bits());
}

/// The embeddings of a model that generates: they take their cells from idle sequences, and texts
/// under way go on as if alone.
#[test]
fn a_model_that_generates_gives_embeddings_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for kind in KINDS {
        let model = golden(kind);
        let context = Params::default().n_threads(2).n_ubatch(64).pooling(Some(Pooling::Last));
        let small = EngineParams { context, n_ctx: 256, n_held: 0, held_bytes: 0, ..params() };
        let engine = Engine::start(&model, small).unwrap();
        let inputs: Vec<Vec<Token>> = (1..9).map(|i| some_tokens(&model, 25 * i as usize, i)).collect();
        let prompts: Vec<_> = (0..4).map(|i| some_tokens(&model, 100, 20 + i)).collect();
        let texts: Vec<_> =
            prompts.iter().map(|prompt| engine.generate(request(&model, prompt, 40, 7)).unwrap()).collect();
        let embeddings = runtime.block_on(engine.embed(inputs.clone(), &AdapterSet::default()));
        for (prompt, text) in prompts.iter().zip(texts) {
            assert_eq!(answer(text).tokens, alone(&model, prompt, 40, 7), "{kind}");
        }
        for (input, embedding) in inputs.iter().zip(&embeddings.unwrap()) {
            let mut ctx = Context::new(&model, context.n_ctx(256)).unwrap();
            let (seq, mut batch) = (ctx.sequence().unwrap(), Batch::new());
            batch.extend(seq, Pos(0), input, Wanted::All).unwrap();
            ctx.decode_embeddings(&batch).unwrap();
            assert_eq!((embedding.n_tokens, embedding.is_pooled), (input.len(), true));
            assert_bits(kind, &embedding.rows[0], ctx.pooled(seq).unwrap());
        }
        let long = runtime.block_on(engine.embed(vec![some_tokens(&model, 257, 1)], &AdapterSet::default()));
        assert!(matches!(long, Err(Error::PromptTooLong { n_prompt_tokens: 257, n_ctx: 256 })));
        let before = runtime.block_on(engine.counters()).unwrap();
        runtime.block_on(engine.embed(inputs[..2].to_vec(), &AdapterSet::default())).unwrap();
        let after = runtime.block_on(engine.counters()).unwrap();
        assert_eq!(after.n_slots_in_batches, before.n_slots_in_batches + 2);
        assert!(after.prompt > before.prompt, "{kind}");
    }
}

#[test]
fn a_client_that_reads_nothing_pauses_its_request_alone() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 20, 3);
    let stalled = engine.generate(request(&model, &prompt, 400, 1)).unwrap();
    let other = answer(engine.generate(request(&model, &some_tokens(&model, 20, 4), 400, 2)).unwrap());
    assert_eq!(other.tokens.len(), 400);
    assert_eq!(answer(stalled).tokens, alone(&model, &prompt, 400, 1));
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let model = demo();
    let context = Params::default().n_threads(1);
    let engine = Engine::start(&model, EngineParams { context, n_ctx: 8192, ..params() }).unwrap();
    let long = engine.generate(request(&model, &some_tokens(&model, 8000, 1), 1, 1)).unwrap();
    let short = answer(engine.generate(request(&model, &some_tokens(&model, 8, 2), 2, 1)).unwrap());
    // The long prompt is still being evaluated, or was so fast that nobody waited.
    assert!(long.is_empty() || long.len() == 1, "only its beginning was told");
    assert_eq!(short.tokens.len(), 2);
    assert_eq!(answer(long).tokens.len(), 1);
}

#[test]
fn clients_take_turns_whatever_their_priorities() {
    let model = demo();
    let engine = Engine::start(&model, EngineParams { n_slots: 1, ..params() }).unwrap();
    let ask = |key: &str, priority: i32, seed: u32| {
        let mut asked = request(&model, &some_tokens(&model, 30, seed), 10, 1);
        (asked.tenant, asked.priority) = (Tenant::of(&[key]), priority);
        engine.generate(asked).unwrap()
    };
    let many: Vec<_> = (0..6).map(|seed| ask("many", i32::MAX, seed)).collect();
    let one = answer(ask("one", i32::MIN, 9)).ended.timings.queued;
    let many: Vec<_> = many.into_iter().map(|events| answer(events).ended.timings.queued).collect();
    assert!(many.iter().filter(|&&queued| queued > one).count() >= 4, "{one:?} {many:?}");
}

#[test]
fn a_request_that_fails_leaves_those_in_its_batch_alone() {
    let model = golden("gpt2");
    let n_pos = model.hparams().n_ctx_train;
    let engine = Engine::start(&model, EngineParams { n_ctx: 2 * n_pos, ..params() }).unwrap();
    let (long, short) = (some_tokens(&model, n_pos as usize - 8, 1), some_tokens(&model, 10, 2));
    let mut failing = engine.generate(request(&model, &long, 40, 1)).unwrap();
    let other = engine.generate(request(&model, &short, 60, 2)).unwrap();
    assert_eq!(answer(other).tokens, alone(&model, &short, 60, 2));
    let error = std::iter::from_fn(|| failing.blocking_recv()).find_map(|event| match event {
        Event::Failed(error) => Some(error),
        _ => None,
    });
    let error = error.expect("positions beyond those that the model knows");
    assert!(error.to_string().contains("position"), "{error}");
}

#[test]
fn cells_that_run_out_are_taken_from_idle_sequences() {
    let model = demo();
    let small = EngineParams { n_ctx: 256, n_slots: 2, n_held: 16, held_bytes: 0, ..params() };
    let engine = Engine::start(&model, small).unwrap();
    for seed in 0..8 {
        let prompt = some_tokens(&model, 200, seed);
        let answer = answer(engine.generate(request(&model, &prompt, 40, 1)).unwrap());
        assert_eq!(answer.tokens, alone(&model, &prompt, 40, 1));
    }
}

#[test]
fn slots_that_are_all_full_fit_together() {
    for kind in KINDS {
        let model = golden(kind);
        let (n_ctx, n_slots, n_prompt) = (100, 4, 40);
        // The cells do not suffice for drafts, which are left out then.
        let drafts = Some(Drafts { source: DraftSource::Lookup, n_max: 8 });
        let small = EngineParams { n_ctx, n_slots, n_held: 0, held_bytes: 0, drafts, ..params() };
        let engine = Engine::start(&model, small).unwrap();
        let prompts: Vec<_> =
            (0..2 * n_slots as u32).map(|seed| some_tokens(&model, n_prompt, seed)).collect();
        let n = n_ctx as usize - n_prompt;
        let ask = |prompt: &Vec<Token>| engine.generate(request(&model, prompt, n, 1)).unwrap();
        let all: Vec<_> = prompts.iter().map(ask).collect();
        for (prompt, events) in prompts.iter().zip(all) {
            assert_eq!(answer(events).tokens, alone(&model, prompt, n, 1), "{kind}");
        }
        // Those that were put back into the queue went on with what they had evaluated themselves.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(engine.counters()).unwrap().n_cached, 0, "{kind}");
    }
}

#[test]
fn the_engine_ends_with_its_last_handle() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let events = engine.generate(request(&model, &some_tokens(&model, 20, 1), 30, 1)).unwrap();
    let began = Instant::now();
    drop(engine);
    // What was under way is finished.
    assert_eq!(answer(events).tokens.len(), 30);
    assert!(began.elapsed() < Duration::from_secs(60));
}
