//! Ends of texts, and requests that are refused.

use crate::{answer, demo, params, request, settings, some_tokens, tokens};
use backstitch_models::Token;
use backstitch_models::grammar::{Compiler, GrammarSampler};
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::session::Finish;
use backstitch_server::Error;
use backstitch_server::engine::{Engine, EngineParams, Generate, WhenFull};
use std::time::Duration;

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
