//! Reuse of held sequences, within their budget and by their tenant alone.

use crate::{Answer, KINDS, alone, answer, demo, golden, params, request, some_tokens};
use backstitch_models::{Model, Token};
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

/// A conversation of messages, each of the given length.
fn conversation(model: &Model, lengths: &[usize]) -> (Vec<Token>, Vec<usize>) {
    let (mut prompt, mut ends) = (Vec::new(), Vec::new());
    for (seed, &n) in (100..).zip(lengths) {
        prompt.extend(some_tokens(model, n, seed));
        ends.push(prompt.len());
    }
    (prompt, ends)
}

/// Return parameters whose checkpoints may take so many bytes.
fn with_checkpoints(n_bytes: u64) -> EngineParams {
    let params = params();
    let rollback = params.context.rollback.checkpoint_bytes(n_bytes);
    EngineParams { context: params.context.rollback(rollback), ..params }
}

/// Return the number of tokens that are reused if the message behind each end is another.
fn reused_behind(engine: &Engine, model: &Model, prompt: &[Token], ends: &[usize]) -> Vec<usize> {
    let edited = |&end: &usize| {
        let mut prompt = prompt[..end].to_vec();
        prompt.extend(some_tokens(model, 5, 999));
        answer(engine.generate(request(model, &prompt, 1, 1)).unwrap()).reuse.n_reused
    };
    ends.iter().map(edited).collect()
}

#[test]
fn every_end_of_a_message_is_held_within_the_budget() {
    for kind in KINDS {
        let model = golden(kind);
        let engine = Engine::start(&model, EngineParams { n_held: 64, ..params() }).unwrap();
        let (prompt, ends) = conversation(&model, &[20; 20]);
        // Turn by turn, as an agent asks.
        for n in (2..=ends.len()).step_by(2) {
            let mut turn = request(&model, &prompt[..ends[n - 1]], 1, 1);
            turn.message_ends = ends[..n].to_vec();
            answer(engine.generate(turn).unwrap());
        }
        assert_eq!(reused_behind(&engine, &model, &prompt, &ends[..19]), ends[..19], "{kind}");
    }
}

#[test]
fn ends_are_thinned_from_the_oldest_on_beyond_the_budget() {
    for kind in ["gemma3", "mamba2", "falcon_h1"] {
        let model = golden(kind);
        let (prompt, ends) = conversation(&model, &[40; 12]);
        // The smallest budget that holds several.
        let held = (10..30).map(|shift| 1 << shift).find_map(|n_bytes| {
            let engine =
                Engine::start(&model, EngineParams { n_held: 64, ..with_checkpoints(n_bytes) }).unwrap();
            let mut whole = request(&model, &prompt, 1, 1);
            whole.message_ends = ends.clone();
            answer(engine.generate(whole).unwrap());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let held = runtime.block_on(engine.held(Tenant::default())).unwrap();
            let is_held = |end: &&usize| {
                let end = i32::try_from(**end).unwrap();
                let mut ranges = held[0].positions.iter();
                ranges.any(|range| {
                    range.positions.contains(&backstitch_models::Pos(end)) && range.restored_from.0 == end
                })
            };
            let held: Vec<usize> = ends[..11].iter().filter(is_held).copied().collect();
            (held.len() >= 5).then_some(held)
        });
        let held = held.unwrap();
        assert_eq!(held[0], ends[0], "{kind}: {held:?}");
        let gaps: Vec<usize> = held.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.is_sorted_by(|a, b| a >= b), "{kind}: {held:?}");
    }
}

#[test]
fn what_another_sequence_holds_more_of_is_told() {
    let model = golden("gemma3");
    let engine = Engine::start(&model, with_checkpoints(0)).unwrap();
    let prompt = some_tokens(&model, 300, 3);
    answer(engine.generate(request(&model, &prompt, 1, 1)).unwrap());
    answer(engine.generate(request(&model, &prompt[..100], 1, 1)).unwrap());
    let mut edited = prompt[..150].to_vec();
    edited.extend(some_tokens(&model, 20, 77));
    let reuse = answer(engine.generate(request(&model, &edited, 1, 1)).unwrap()).reuse;
    let told = (reuse.n_reused, reuse.n_reevaluated, reuse.first_difference, reuse.limit);
    assert_eq!(told, (100, 50, 150, ReuseLimit::Checkpoint));
}
