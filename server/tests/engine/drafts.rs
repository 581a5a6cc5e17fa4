//! Drafts change the number of steps, never a text.

use crate::{KINDS, alone, alone_with, answer, demo, golden, greedy, params, request, some_tokens, tokens};
use backstitch_models::grammar::{Compiler, GrammarSampler};
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::{Params, Token};
use backstitch_server::engine::{DraftSource, Drafts, Engine, EngineParams};

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
