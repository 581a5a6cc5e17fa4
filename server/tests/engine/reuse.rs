//! Reuse of held sequences, within their budget and by their tenant alone.

use crate::{Answer, KINDS, alone, answer, demo, golden, params, request, some_tokens};
use backstitch_server::engine::{Engine, EngineParams, Event, ReuseLimit, Tenant};

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
