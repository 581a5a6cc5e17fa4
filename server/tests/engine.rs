//! The engine: whatever runs beside a request, it answers as if it were alone, and reuses what is
//! held.

use backstitch_models::adapter::AdapterSet;
use backstitch_models::grammar::{Compiler, GrammarSampler};
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::session::{Finish, GenerateOptions, TokenLogprobs};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Batch, Context, Model, Params, Pooling, Pos, Session, Token, Wanted};
use backstitch_server::Error;
use backstitch_server::engine::{
    DraftSource, Drafts, Ended, Engine, EngineParams, Event, Generate, Reuse, ReuseLimit, SlotLayout, Tenant,
    WhenFull,
};
use backstitch_testing::assert_bits;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// Models of every kind of memory: all cells, windows, recurrent states, and mixtures of them.
const KINDS: [&str; 5] = ["llama", "gemma3", "mamba2", "falcon_h1", "qwen35"];

fn demo() -> Model {
    Model::from_bytes(backstitch_demo::GGUF).unwrap()
}

fn golden(name: &str) -> Model {
    Model::open(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn params() -> EngineParams {
    let context = Params::default().n_threads(2);
    EngineParams { context, n_ctx: 512, n_slots: 4, n_held: 8, ..EngineParams::default() }
}

fn tokens(model: &Model, text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    model.vocab().tokenize(text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
    tokens
}

/// Return some tokens of a model, the same for the same seed.
fn some_tokens(model: &Model, n: usize, seed: u32) -> Vec<Token> {
    let n_vocab = model.vocab().n_vocab() as u32;
    (0..n as u32).map(|i| Token((i * 7919 + seed * 104_729 + i * i % 31) % (n_vocab - 8) + 4)).collect()
}

fn settings(seed: u64) -> Settings {
    Settings::default().temp(0.9).seed(seed)
}

fn request(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Generate {
    let chain = Chain::new(model.vocab().n_vocab(), &settings(seed));
    let mut request = Generate::new(prompt.to_vec(), chain);
    request.limit = Some(n);
    request.ignore_eos = true;
    request
}

fn greedy(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Generate {
    let mut request = request(model, prompt, n, seed);
    request.chain = Chain::new(model.vocab().n_vocab(), &Settings::default().temp(0.0));
    request
}

struct Answer {
    tokens: Vec<Token>,
    text: String,
    reuse: Reuse,
    ended: Ended,
}

fn answer(mut events: Receiver<Event>) -> Answer {
    let (mut tokens, mut text, mut reuse) = (Vec::new(), String::new(), None);
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Began { reuse: new, .. } => reuse = Some(new),
            Event::Chunk(chunk) => {
                tokens.extend(chunk.tokens);
                text += &chunk.text;
            }
            Event::Ended(ended) => return Answer { tokens, text, reuse: reuse.unwrap(), ended },
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    panic!("no end");
}

/// Return what a session alone generates.
fn alone(model: &Model, prompt: &[Token], n: usize, seed: u64) -> Vec<Token> {
    alone_with(model, prompt, n, &settings(seed))
}

fn alone_with(model: &Model, prompt: &[Token], n: usize, settings: &Settings) -> Vec<Token> {
    let ctx = Context::new(model, Params::default().n_ctx(512)).unwrap();
    let mut session = Session::new(ctx, settings).unwrap();
    session.feed(prompt).unwrap();
    let options = GenerateOptions::default().limit(n).ignore_eos();
    session.generate(options).for_each(|chunk| drop(chunk.unwrap()));
    session.tokens()[prompt.len()..].to_vec()
}

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

#[test]
fn an_edited_conversation_reevaluates_its_last_message_only() {
    for kind in KINDS {
        let model = golden(kind);
        let engine = Engine::start(&model, params()).unwrap();
        let mut prompt = some_tokens(&model, 300, 1);
        let mut first = request(&model, &prompt, 8, 1);
        first.message_ends = vec![100, 200, 290];
        let first = answer(engine.generate(first).unwrap());
        assert_eq!(first.reuse.limit, ReuseLimit::NothingHeld);

        // The same prompt again: the last token gives the logits.
        let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
        assert_eq!(again.tokens, first.tokens, "{kind}");
        assert_eq!((again.reuse.n_reused, again.reuse.limit), (299, ReuseLimit::Complete), "{kind}");

        // Another last message.
        let former = prompt.clone();
        prompt.truncate(290);
        prompt.extend(some_tokens(&model, 10, 77));
        let edited = answer(engine.generate(request(&model, &prompt, 8, 3)).unwrap());
        assert_eq!(edited.tokens, alone(&model, &prompt, 8, 3), "{kind}");
        assert_eq!(edited.reuse.n_reused, 290, "{kind}");

        // The former one is still held.
        let back = answer(engine.generate(request(&model, &former, 8, 1)).unwrap());
        assert_eq!((back.tokens, back.reuse.n_reused), (first.tokens, 299), "{kind}");
    }
}

#[test]
fn a_continued_conversation_reuses_its_answer() {
    for kind in KINDS {
        let model = golden(kind);
        let engine = Engine::start(&model, params()).unwrap();
        let mut prompt = some_tokens(&model, 60, 5);
        let first = answer(engine.generate(request(&model, &prompt, 20, 1)).unwrap());
        prompt.extend(&first.tokens);
        prompt.extend(some_tokens(&model, 9, 6));
        let second = answer(engine.generate(request(&model, &prompt, 5, 2)).unwrap());
        // The last token of an answer is drawn, but not evaluated.
        assert_eq!(second.reuse.n_reused, 79, "{kind}");
        assert_eq!(second.tokens, alone(&model, &prompt, 5, 2), "{kind}");
    }
}

#[test]
fn a_busy_prefix_is_shared() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 300, 9);
    let all: Vec<_> =
        (0..4).map(|seed| engine.generate(request(&model, &prompt, 20, seed)).unwrap()).collect();
    let answers: Vec<Answer> = all.into_iter().map(answer).collect();
    assert_eq!(answers.iter().filter(|answer| answer.reuse.n_reused == 0).count(), 1);
    let evaluated: usize = answers.iter().map(|answer| answer.ended.timings.n_prompt).sum();
    assert!(evaluated < 300 + 4 * 40, "{evaluated} tokens");
    for (seed, answer) in (0..).zip(answers) {
        assert_eq!(answer.tokens, alone(&model, &prompt, 20, seed));
    }
}

/// A longer text drafts from itself, and a model drafts for itself: both change nothing but the
/// number of steps.
#[test]
fn drafts_do_not_change_the_text() {
    let mut n_looked_up = 0;
    for kind in KINDS {
        let model = golden(kind);
        let own = DraftSource::Model { model: model.clone(), params: Params::default().n_threads(1) };
        for (source, least) in [(DraftSource::Lookup, 0), (own, 60)] {
            let drafts = Some(Drafts { source, n_max: 6 });
            let engine = Engine::start(&model, EngineParams { drafts, ..params() }).unwrap();
            let some = some_tokens(&model, 30, 5);
            let prompts: Vec<Vec<Token>> =
                (0..3).map(|i| some.iter().cycle().take(60 + 20 * i).copied().collect()).collect();
            let all: Vec<_> = (0u64..)
                .zip(&prompts)
                .map(|(seed, prompt)| engine.generate(greedy(&model, prompt, 40, seed)).unwrap())
                .collect();
            let (mut n_drafted, mut n_accepted) = (0, 0);
            for (prompt, events) in prompts.iter().zip(all) {
                let answer = answer(events);
                assert_eq!(
                    answer.tokens,
                    alone_with(&model, prompt, 40, &Settings::default().temp(0.0)),
                    "{kind}"
                );
                assert_eq!(answer.ended.n_held, prompt.len() + 39, "{kind}");
                n_drafted += answer.ended.timings.n_drafted;
                n_accepted += answer.ended.timings.n_accepted;
            }
            assert!((least..=n_drafted).contains(&n_accepted), "{kind}: {n_accepted} of {n_drafted}");
            n_looked_up += if least == 0 { n_accepted } else { 0 };
            // What was drafted in vain is not held.
            let mut more = prompts[0].clone();
            more.extend(alone_with(&model, &more, 40, &Settings::default().temp(0.0)));
            let next = answer(engine.generate(request(&model, &more, 8, 3)).unwrap());
            assert_eq!(next.reuse.n_reused, more.len() - 1, "{kind}");
            assert_eq!(next.tokens, alone(&model, &more, 8, 3), "{kind}");
        }
    }
    assert!(n_looked_up > 10);
}

#[test]
fn sampled_texts_and_their_drafts_agree_with_plain_ones() {
    let model = demo();
    let drafts = Some(Drafts { source: DraftSource::Lookup, n_max: 8 });
    let engine = Engine::start(&model, EngineParams { drafts, ..params() }).unwrap();
    let prompt = tokens(&model, "Once upon a time a dog and a cat and a dog and a cat and a dog");
    for seed in 0..6 {
        let answer = answer(engine.generate(request(&model, &prompt, 60, seed)).unwrap());
        assert_eq!(answer.tokens, alone(&model, &prompt, 60, seed));
        let mut plain = request(&model, &prompt, 60, seed);
        plain.n_draft = 0;
        let plain = self::answer(engine.generate(plain).unwrap());
        assert_eq!((plain.tokens, plain.ended.timings.n_drafted), (answer.tokens, 0));
    }
}

/// A grammar only follows tokens that were drawn, so it never has to go back from a draft.
#[test]
fn a_grammar_holds_behind_drafts() {
    let model = demo();
    let drafts = Some(Drafts { source: DraftSource::Lookup, n_max: 8 });
    let engine = Engine::start(&model, EngineParams { drafts, ..params() }).unwrap();
    let grammar = Compiler::new(model.vocab()).unwrap().regex("( (the|a) (dog|cat) (ran|sat)[.])+").unwrap();
    let prompt = tokens(&model, " the dog ran. the dog ran. the dog ran.");
    let (mut n_accepted, mut texts) = (0, Vec::new());
    for (seed, n_draft) in (0..4).flat_map(|seed| [(seed, 0), (seed, usize::MAX)]) {
        let sampler = GrammarSampler::new(&grammar, prompt.len());
        let mut request = request(&model, &prompt, 60, seed);
        let chain = Chain::builder(model.vocab().n_vocab()).with(sampler);
        request.chain = chain.settings(&Settings::default().temp(0.7).seed(seed)).build();
        request.ignore_eos = false;
        request.n_draft = n_draft;
        let answer = answer(engine.generate(request).unwrap());
        n_accepted += answer.ended.timings.n_accepted;
        texts.push(answer.text);
    }
    assert!(n_accepted > 20, "{n_accepted}");
    for pair in texts.chunks(2) {
        assert_eq!(pair[0], pair[1]);
        let words =
            |text: &str| text.replace('.', " .").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(words(&pair[0]).iter().step_by(4).all(|word| word == "the" || word == "a"), "{pair:?}");
    }
}

#[test]
fn a_draft_model_with_another_vocabulary_is_refused() {
    let model = demo();
    let source = DraftSource::Model { model: golden("mamba2"), params: Params::default() };
    let drafts = Some(Drafts { source, n_max: 8 });
    assert!(Engine::start(&model, EngineParams { drafts, ..params() }).is_err());
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
fn tenants_share_nothing() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 100, 9);
    let of = |tenant: Tenant| {
        let mut request = request(&model, &prompt, 3, 1);
        request.tenant = tenant;
        answer(engine.generate(request).unwrap())
    };
    let (a, b) = (Tenant::of(&["a"]), Tenant::of(&["b"]));
    let first = of(a);
    assert_eq!(of(b).reuse.n_reused, 0);
    assert_eq!(of(Tenant::default()).reuse.n_reused, 0);
    let again = of(a);
    assert_eq!((again.reuse.n_reused, again.tokens), (99, first.tokens));
}

#[test]
fn a_cancelled_request_leaves_what_it_evaluated() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 200, 3);
    let mut events = engine.generate(request(&model, &prompt, 250, 1)).unwrap();
    while let Some(event) = events.blocking_recv() {
        if matches!(event, Event::Chunk(_)) {
            break;
        }
    }
    drop(events);
    let next = answer(engine.generate(request(&model, &prompt, 5, 1)).unwrap());
    assert_eq!(next.reuse.n_reused, 199);
    assert_eq!(next.tokens, alone(&model, &prompt, 5, 1));
}

#[test]
fn stop_strings_and_limits_end_a_text() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = tokens(&model, "Once upon a time");
    let greedy = |n: usize, stops: &[&str]| {
        let chain = Chain::new(model.vocab().n_vocab(), &Settings::default().temp(0.0));
        let mut request = Generate::new(prompt.clone(), chain);
        request.limit = Some(n);
        request.stops = stops.iter().map(|&stop| stop.into()).collect();
        answer(engine.generate(request).unwrap())
    };
    let stopped = greedy(50, &["girl"]);
    assert_eq!(stopped.text, ", there was a little ");
    assert_eq!(stopped.ended.finish, Finish::Stop { index: 0 });
    assert_eq!(greedy(3, &[]).ended.finish, Finish::Limit);
    let nothing = greedy(0, &[]);
    assert_eq!((nothing.tokens.len(), nothing.ended.finish), (0, Finish::Limit));
}

#[test]
fn a_full_context_ends_or_shifts() {
    let model = demo();
    let engine = Engine::start(&model, EngineParams { n_ctx: 64, ..params() }).unwrap();
    let prompt = some_tokens(&model, 40, 3);
    let full = answer(engine.generate(request(&model, &prompt, 100, 1)).unwrap());
    assert_eq!((full.ended.finish, full.tokens.len()), (Finish::ContextFull, 24));
    let mut shifting = request(&model, &prompt, 100, 1);
    shifting.when_full = WhenFull::Shift { n_keep: 8, n_discard: 0 };
    let shifted = answer(engine.generate(shifting).unwrap());
    assert_eq!((shifted.ended.finish, shifted.tokens.len()), (Finish::Limit, 100));
    assert!(shifted.ended.is_shifted);
    assert_eq!(shifted.tokens[..24], full.tokens[..]);
}

#[test]
fn bad_requests_are_refused() {
    let model = demo();
    let engine = Engine::start(&model, EngineParams { n_ctx: 64, max_waiting: 2, ..params() }).unwrap();
    let refused = |request: Generate| engine.generate(request).map(|_| ()).unwrap_err();
    assert!(matches!(refused(request(&model, &[], 1, 1)), Error::EmptyPrompt));
    let long = some_tokens(&model, 64, 1);
    assert!(matches!(
        refused(request(&model, &long, 1, 1)),
        Error::PromptTooLong { n_prompt_tokens: 64, n_ctx: 64 }
    ));
    let mut elsewhere = request(&model, &long[..5], 1, 1);
    elsewhere.slot = Some(4);
    assert!(matches!(refused(elsewhere), Error::Slot { slot: 4, n_slots: 4 }));
    let stranger = [Token(model.vocab().n_vocab() as u32)];
    assert!(matches!(refused(request(&model, &stranger, 1, 1)), Error::Engine(_)));
    let sent: Vec<_> = (0..50).map(|_| engine.generate(request(&model, &long[..5], 20, 1))).collect();
    let n_busy = sent.iter().filter(|sent| matches!(sent, Err(Error::Busy { limit: 2 }))).count();
    assert!(n_busy > 0);
    for events in sent.into_iter().flatten() {
        assert_eq!(answer(events).tokens.len(), 20);
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
fn what_was_evaluated_survives_a_restart() {
    for kind in KINDS {
        let model = golden(kind);
        let folder = tempfile::tempdir().unwrap();
        let kept = EngineParams { state: Some(folder.path().into()), ..params() };
        let prompt = some_tokens(&model, 300, 1);
        let first = {
            let engine = Engine::start(&model, kept.clone()).unwrap();
            let mut request = request(&model, &prompt, 8, 1);
            request.message_ends = vec![128, 256];
            answer(engine.generate(request).unwrap())
        };
        let engine = Engine::start(&model, kept).unwrap();
        let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
        assert!(again.reuse.n_from_disk >= 256, "{kind}: {:?}", again.reuse);
        assert_eq!(again.tokens, first.tokens, "{kind}");
    }
}

/// Less may wait for the disk than a block has, so that each becomes a part of its own.
#[test]
fn what_is_larger_than_may_wait_is_stored_in_parts() {
    for kind in KINDS {
        let model = golden(kind);
        let folder = tempfile::tempdir().unwrap();
        let kept = EngineParams { state: Some(folder.path().into()), state_waiting: 1, ..params() };
        let prompt = some_tokens(&model, 300, 1);
        let engine = Engine::start(&model, kept.clone()).unwrap();
        let mut asked = request(&model, &prompt, 8, 1);
        asked.message_ends = vec![128, 256];
        let first = answer(engine.generate(asked).unwrap());
        drop(engine);
        let engine = Engine::start(&model, kept).unwrap();
        let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
        assert!(again.reuse.n_from_disk >= 256, "{kind}: {:?}", again.reuse);
        assert_eq!(again.tokens, first.tokens, "{kind}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(engine.counters()).unwrap().n_unstored, 0, "{kind}");
    }
}

#[test]
fn what_the_disk_does_not_take_is_counted() {
    let (model, folder) = (demo(), tempfile::tempdir().unwrap());
    // Less than a block.
    let state = Some(folder.path().to_owned());
    let kept = EngineParams { state, state_bytes: 1, state_waiting: 1, ..params() };
    let engine = Engine::start(&model, kept).unwrap();
    answer(engine.generate(request(&model, &some_tokens(&model, 400, 1), 8, 1)).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let since = Instant::now();
    while runtime.block_on(engine.counters()).unwrap().n_unstored == 0 {
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
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
fn a_busy_slot_is_saved_when_it_is_idle() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let engine = Engine::start(&model, params()).unwrap();
    let begin = |n: usize| {
        let mut asked = request(&model, &some_tokens(&model, 20, 1), n, 1);
        asked.slot = Some(1);
        let mut events = engine.generate(asked).unwrap();
        assert!(matches!(events.blocking_recv(), Some(Event::Began { slot: 1, .. })));
        events
    };
    let events = begin(100);
    let path = folder.path().join("a");
    let saved = runtime.block_on(engine.save_slot(1, tenant, path, SlotLayout::default())).unwrap();
    assert_eq!(saved.n_tokens, 119);
    drop(events);
    // A client that went away keeps its slot busy no longer.
    drop(begin(400));
    assert!(runtime.block_on(engine.erase_slot(1, tenant)).unwrap() >= 20);
}

#[test]
fn a_line_ends_a_text_that_takes_too_long() {
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let compiler = Compiler::new(model.vocab()).unwrap();
    let prompt = tokens(&model, "Once");
    let text = |line_time: Option<Duration>| {
        let grammar = compiler.regex("(a\n){20}").unwrap();
        let sampler = GrammarSampler::new(&grammar, prompt.len());
        let mut asked = request(&model, &prompt, 60, 1);
        asked.ignore_eos = false;
        asked.chain = Chain::builder(model.vocab().n_vocab()).with(sampler).settings(&settings(1)).build();
        asked.line_time = line_time;
        let answer = answer(engine.generate(asked).unwrap());
        (answer.text, answer.ended.finish)
    };
    assert_eq!(text(None).0, "a\n".repeat(20));
    assert_eq!(text(Some(Duration::from_secs(3600))).0, "a\n".repeat(20));
    assert_eq!(text(Some(Duration::ZERO)), ("a\n".into(), Finish::Limit));
}

#[test]
fn slots_are_saved_restored_and_erased() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 100, 1);
    let mut saved = request(&model, &prompt, 5, 1);
    saved.slot = Some(2);
    let first = answer(engine.generate(saved).unwrap());
    for (layout, name) in [(SlotLayout::Backstitch, "a.bst"), (SlotLayout::Llama, "a.bin")] {
        let path = folder.path().join(name);
        let file = runtime.block_on(engine.save_slot(2, tenant, path.clone(), layout)).unwrap();
        assert_eq!(file.n_tokens, 104);
        assert_eq!(file.n_bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(
            runtime.block_on(engine.restore_slot(1, path, Tenant::of(&[name]), Vec::new())).unwrap().n_tokens,
            104
        );
        // The files of llama.cpp have no checkpoints, so only the end can be continued at once.
        let longer = [&prompt[..], &first.tokens, &some_tokens(&model, 3, 8)].concat();
        let mut again = request(&model, &longer, 5, 1);
        again.tenant = Tenant::of(&[name]);
        let again = answer(engine.generate(again).unwrap());
        assert_eq!(again.reuse.n_reused, 104, "{name}");
        assert_eq!(again.tokens, alone(&model, &longer, 5, 1), "{name}");
    }
    // The slot shows nothing to another tenant.
    assert_eq!(runtime.block_on(engine.erase_slot(2, Tenant::of(&["other"]))).unwrap(), 0);
    assert_eq!(runtime.block_on(engine.erase_slot(2, tenant)).unwrap(), 104);
    assert!(matches!(
        runtime.block_on(engine.save_slot(2, tenant, folder.path().join("b"), SlotLayout::Llama)),
        Err(Error::EmptySlot { slot: 2 })
    ));
    std::fs::write(folder.path().join("bad"), b"no state").unwrap();
    let bad =
        runtime.block_on(engine.restore_slot(0, folder.path().join("bad"), Tenant::default(), Vec::new()));
    assert!(matches!(bad, Err(Error::Engine(_))), "{bad:?}");
    let missing =
        runtime.block_on(engine.restore_slot(0, folder.path().join("none"), Tenant::default(), Vec::new()));
    assert!(matches!(missing, Err(Error::File { .. })), "{missing:?}");
}

#[test]
fn a_slot_whose_sequence_goes_on_in_another_has_nothing_to_erase() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 20, 1);
    let first = answer(engine.generate(request(&model, &prompt, 10, 1)).unwrap());
    // Too little in common for the same slot, but the sequence itself goes on.
    let longer = [&prompt[..], &first.tokens, &some_tokens(&model, 400, 2)].concat();
    let mut events = engine.generate(request(&model, &longer, 40, 1)).unwrap();
    let Event::Began { slot: 1, reuse } = events.blocking_recv().unwrap() else { panic!("not in slot 1") };
    assert_eq!(reuse.n_reused, 29);
    assert_eq!(runtime.block_on(engine.erase_slot(0, Tenant::default())).unwrap(), 0);
    let mut tokens = Vec::new();
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Chunk(chunk) => tokens.extend(chunk.tokens),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(tokens, alone(&model, &longer, 40, 1));
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
fn idle_sequences_make_place_for_a_restored_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let small = EngineParams { n_ctx: 256, n_slots: 2, n_held: 16, held_bytes: 0, ..params() };
    let engine = Engine::start(&model, small).unwrap();
    for (layout, name) in [(SlotLayout::Backstitch, "a.bst"), (SlotLayout::Llama, "a.bin")] {
        let path = folder.path().join(name);
        let mut saved = request(&model, &some_tokens(&model, 200, 1), 40, 1);
        saved.slot = Some(0);
        answer(engine.generate(saved).unwrap());
        runtime.block_on(engine.save_slot(0, tenant, path.clone(), layout)).unwrap();
        for seed in 2..10 {
            answer(engine.generate(request(&model, &some_tokens(&model, 200, seed), 40, 1)).unwrap());
        }
        let restored = runtime.block_on(engine.restore_slot(0, path, tenant, Vec::new())).unwrap();
        assert_eq!(restored.n_tokens, 239, "{name}");
    }
}

#[test]
fn a_slot_that_no_context_like_this_holds_drops_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let path = folder.path().join("long.bst");
    let engine = Engine::start(&model, params()).unwrap();
    answer(engine.generate(request(&model, &some_tokens(&model, 490, 1), 5, 1)).unwrap());
    runtime.block_on(engine.save_slot(0, tenant, path.clone(), SlotLayout::Backstitch)).unwrap();
    let small = EngineParams { n_ctx: 128, n_slots: 2, n_held: 4, held_bytes: 0, ..params() };
    let engine = Engine::start(&model, small).unwrap();
    for seed in 1..3 {
        answer(engine.generate(request(&model, &some_tokens(&model, 60, seed), 5, 1)).unwrap());
    }
    let refused = runtime.block_on(engine.restore_slot(1, path, tenant, Vec::new())).unwrap_err();
    assert!(refused.to_string().contains("cache is full"), "{refused}");
    assert_eq!(runtime.block_on(engine.held(tenant)).unwrap().len(), 2);
}

#[test]
fn salts_leave_nothing_on_disk() {
    let (model, folder) = (demo(), tempfile::tempdir().unwrap());
    let kept = EngineParams { state: Some(folder.path().into()), ..params() };
    let engine = Engine::start(&model, kept).unwrap();
    let mut salted = request(&model, &some_tokens(&model, 100, 1), 4, 1);
    salted.tenant = Tenant::salted(&[], "a");
    answer(engine.generate(salted).unwrap());
    let mut of_key = request(&model, &some_tokens(&model, 100, 1), 4, 1);
    of_key.tenant = Tenant::of(&["key", "a"]);
    answer(engine.generate(of_key).unwrap());
    drop(engine);
    let found: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, [Tenant::of(&["key", "a"]).folder().unwrap().as_str()]);
}

#[test]
fn the_cache_stays_within_its_budget() {
    let model = demo();
    let engine = Engine::start(&model, EngineParams { n_held: 3, n_slots: 2, ..params() }).unwrap();
    for seed in 0..12 {
        answer(engine.generate(request(&model, &some_tokens(&model, 50, seed), 5, 1)).unwrap());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counters = runtime.block_on(engine.counters()).unwrap();
    assert_eq!((counters.n_held, counters.n_evicted), (5, 7));
    let held = runtime.block_on(engine.held(Tenant::default())).unwrap();
    assert_eq!(held.len(), 5);
    assert_eq!(held[0].tokens[..50], some_tokens(&model, 50, 11)[..]);
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
