//! Ends, errors and edges of sessions.

use super::*;
use backstitch_models::sampler::{Logprobs, Settings};
use backstitch_models::session::{Finish, GenerateOptions, Randomness};
use backstitch_models::speculative::{Drafter, Lookup};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Cancel, Pos, RestoreOptions, SaveOptions};
use backstitch_testing::assert_bits;
use std::sync::{Arc, Mutex};

#[test]
fn scores_are_those_of_evaluating_token_by_token() {
    for name in ["llama", "mamba", "gemma3"] {
        let all: Vec<Token> = (0..60).map(|i| Token(30 + 5 * i % 97)).collect();
        let (start, rest) = all.split_at(3);
        let mut one = session(name);
        one.feed(start).unwrap();
        let mut scored = Vec::new();
        one.score(rest, 4, |token| scored.push(token)).unwrap();
        let mut other = session(name);
        other.feed(start).unwrap();
        for (&token, scored) in rest.iter().zip(&scored) {
            let logits = other.logits().unwrap().to_vec();
            let logprobs = Logprobs::of(&logits);
            let mut top = Vec::new();
            logprobs.top(4, &mut top);
            assert_eq!((scored.token, scored.logprob), (token, logprobs.get(token)), "{name}");
            assert_eq!(scored.top, top, "{name}");
            other.feed(&[token]).unwrap();
        }
        assert_eq!((scored.len(), one.tokens()), (rest.len(), other.tokens()));
        assert_bits(name, one.logits().unwrap(), other.logits().unwrap());
        let mut empty = session(name);
        let mut first = None;
        empty.score(&all, 1, |token| first = first.take().or(Some(token.logprob))).unwrap();
        assert_eq!(first, Some(None));
    }
}

#[test]
fn generated_tokens_have_the_log_probabilities_of_their_logits() {
    let mut told = session("falcon_h1");
    told.feed(&tokens(&[30, 31, 32, 30, 31])).unwrap();
    told.set_drafter(Some(Box::new(Lookup { n_min: 1, ..Lookup::default() })), 4);
    let pieces = told.generate(GenerateOptions::default().limit(20).logprobs(2));
    let all: Vec<_> = pieces.flat_map(|piece| piece.unwrap().logprobs).collect();
    let mut plain = session("falcon_h1");
    plain.feed(&tokens(&[30, 31, 32, 30, 31])).unwrap();
    for token in &all {
        let logprobs = Logprobs::of(plain.logits().unwrap()).get(token.token);
        assert_eq!((token.logprob, token.top.len()), (logprobs, 2));
        plain.feed(&[token.token]).unwrap();
    }
    assert_eq!(plain.tokens(), told.tokens());
    assert!(all.len() >= 2);
}

#[test]
fn an_answer_of_an_encoder_decoder_can_be_had_again() {
    let mut session = session("t5");
    session.prompt(&tokens(&[40, 41, 42, 43, 1])).unwrap();
    assert_eq!(session.tokens().len(), 1);
    let tell = |session: &mut Session| -> Vec<Token> {
        let pieces = session.generate(GenerateOptions::default().limit(12).ignore_eos());
        pieces.flat_map(|piece| piece.unwrap().tokens).collect()
    };
    let first = tell(&mut session);
    session.regenerate(Randomness::Repeat).unwrap();
    assert_eq!((tell(&mut session), first.len()), (first, 12));
}

#[test]
fn a_full_context_ends_a_generation_and_holds_what_was_told() {
    let mut session = session("llama");
    session.feed(&vec![Token(30); N_CTX as usize - 3]).unwrap();
    let mut generation = session.generate(GenerateOptions::default().ignore_eos());
    assert_eq!(generation.by_ref().map(|piece| piece.unwrap().tokens.len()).sum::<usize>(), 3);
    assert_eq!(generation.finish(), Some(Finish::ContextFull));
    assert!(matches!(
        session.set_tokens(&[Token(3); 193]),
        Err(Error::TooLong { n_tokens: 193, n_ctx: 192 })
    ));
    session.evaluate_pending().unwrap();
    assert_eq!(session.tokens().len(), N_CTX as usize);
}

#[test]
fn the_last_position_of_a_model_ends_a_generation_with_and_without_drafts() {
    let model = model("gpt2");
    let n = model.graph().n_positions().unwrap();
    let prompt: Vec<Token> = (0..n as u32 - 10).map(|i| Token(20 + i % 7)).collect();
    let texts = [0, 8].map(|n_draft| {
        let ctx = Context::new(&model, params().n_ctx(2 * n as u32)).unwrap();
        let mut session = Session::with_chain(ctx, chain(&model)).unwrap();
        session.set_drafter(Some(Box::new(Lookup { n_min: 1, ..Lookup::default() })), n_draft);
        session.feed(&prompt).unwrap();
        let mut generation = session.generate(GenerateOptions::default().ignore_eos());
        assert_eq!(generation.by_ref().map(|chunk| chunk.unwrap().tokens.len()).sum::<usize>(), 10);
        assert_eq!(generation.finish(), Some(Finish::ContextFull));
        session.evaluate_pending().unwrap();
        let refused = session.set_tokens(&vec![Token(30); n + 1]);
        let at = n as i32;
        assert!(
            matches!(refused, Err(Error::BeyondPositions { pos, n_pos }) if (pos, n_pos) == (at, n)),
            "{refused:?}"
        );
        assert!(n_draft == 0 || session.draft_stats().n_drafted > 0);
        session.tokens().to_vec()
    });
    assert_eq!((texts[0].len(), &texts[0]), (n, &texts[1]));
}

/// A drafter that only keeps the request to cancel.
struct Keeps(Arc<Mutex<Option<Cancel>>>);

impl Drafter for Keeps {
    fn draft(&mut self, _: &[Token], _: Token, _: usize, _: &mut Vec<Token>) -> Result<(), Error> {
        Ok(())
    }

    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        *self.0.lock().unwrap() = cancel;
    }
}

#[test]
fn a_drafter_gets_the_request_to_cancel() {
    let (mut session, kept) = (session("llama"), Arc::default());
    session.set_drafter(Some(Box::new(Keeps(Arc::clone(&kept)))), 4);
    assert!(kept.lock().unwrap().is_none());
    let cancel = Cancel::new();
    session.set_cancel(Some(cancel.clone()));
    cancel.cancel();
    assert!(kept.lock().unwrap().take().unwrap().is_cancelled());
    session.set_drafter(Some(Box::new(Keeps(Arc::clone(&kept)))), 4);
    assert!(kept.lock().unwrap().is_some());
    session.set_cancel(None);
    assert!(kept.lock().unwrap().is_none());
}

#[test]
fn a_cancelled_prompt_of_which_nothing_was_evaluated_leaves_the_stop_string_to_be_cut() {
    let (mut session, cancel) = (session("falcon_h1"), Cancel::new());
    session.feed(&tokens(&[30, 31])).unwrap();
    let would = session.generate(GenerateOptions::default().limit(1)).next().unwrap().unwrap();
    session.rollback(Pos(2)).unwrap();
    session.generate(GenerateOptions::default().stop(would.text)).for_each(|chunk| drop(chunk.unwrap()));
    assert_eq!(session.finish(), Some(Finish::Stop { index: 0 }));
    session.evaluate_pending().unwrap();
    session.set_cancel(Some(cancel.clone()));
    cancel.cancel();
    assert!(matches!(session.feed(&tokens(&[32])), Err(Error::Cancelled)));
    cancel.reset();
    assert!(session.cut_stop().unwrap().is_some());
    assert_eq!(session.pos(), Pos(2));
}

#[test]
fn a_prompt_that_is_cancelled_keeps_what_was_evaluated() {
    let mut session = session("mamba");
    let (cancel, all) = (Cancel::new(), vec![Token(30); 100]);
    session.set_cancel(Some(cancel.clone()));
    let stop = |n| {
        if n >= 32 {
            cancel.cancel()
        }
    };
    assert!(matches!(session.feed_with(&all, stop), Err(Error::Cancelled)));
    assert_eq!(session.tokens().len(), 32);
    cancel.reset();
    assert_eq!(session.set_tokens(&all).unwrap().kept, 32);
    assert_eq!(session.tokens(), all);
}

#[test]
fn what_bans_everything_is_an_error_and_can_be_taken_back() {
    let model = model("llama");
    let ban = (0..model.hparams().n_vocab as u32).map(|id| (Token(id), f32::NEG_INFINITY)).collect();
    let settings = Settings::default().logit_bias(ban);
    let ctx = Context::new(&model, params()).unwrap();
    let mut session = Session::new(ctx, &settings).unwrap();
    session.feed(&[Token(30)]).unwrap();
    let mut generation = session.generate(GenerateOptions::default());
    assert!(matches!(generation.next(), Some(Err(Error::NoToken { .. }))));
    assert!(generation.next().is_none());
    session.set_chain(chain(&model));
    assert!(session.generate(GenerateOptions::default().limit(2)).all(|piece| piece.is_ok()));
    let unknown = Settings::default().logit_bias(vec![(Token(9999), 1.0)]);
    let refused = Session::new(Context::new(&model, params()).unwrap(), &unknown);
    assert!(matches!(refused, Err(Error::LogitBias { token: 9999, .. })));
}

/// A sampler that bans all tokens but an end-of-generation token, behind three others.
#[derive(Clone)]
struct EndAfterThree(Token);

impl Sampler for EndAfterThree {
    fn apply(&mut self, candidates: &mut Candidates, history: &History) {
        if history.tokens().count() >= 3 {
            candidates.map(|c| if c.id == self.0 { 0.0 } else { f32::NEG_INFINITY });
        }
    }
}

#[test]
fn a_token_that_ends_the_text_has_no_log_probability_in_it() {
    let model = model("falcon_h1");
    let n_vocab = model.hparams().n_vocab;
    let end = (0..n_vocab as u32).map(Token).find(|&token| model.vocab().is_eog(token)).unwrap();
    let ctx = Context::new(&model, params()).unwrap();
    let chain = Chain::builder(n_vocab).last_n(8).with(EndAfterThree(end)).with(Temperature(0.0));
    let mut session = Session::with_chain(ctx, chain.build()).unwrap();
    session.feed(&tokens(&[30, 31])).unwrap();
    let would = session.generate(GenerateOptions::default().limit(1)).next().unwrap().unwrap();
    assert!(!would.text.is_empty());
    session.rollback(Pos(2)).unwrap();
    // The text of the token is held back: it may become this.
    let options = GenerateOptions::default().stop(would.text.clone() + "\u{1}").logprobs(1);
    let pieces: Vec<_> = session.generate(options).map(Result::unwrap).collect();
    let lens: Vec<_> = pieces.iter().map(|piece| (piece.tokens.len(), piece.logprobs.len())).collect();
    assert_eq!((lens, session.finish()), (vec![(1, 1), (0, 0)], Some(Finish::End(end))));
    assert_eq!(pieces[1].text, would.text);
}

#[test]
fn another_chain_goes_back_by_the_tokens_alone() {
    let mut told = session("llama");
    let n_vocab = told.context().model().hparams().n_vocab;
    told.feed(&tokens(&[30, 31, 32])).unwrap();
    assert_eq!(told.generate(GenerateOptions::default().limit(6).ignore_eos()).count(), 6);
    let plain = Chain::new(n_vocab, &Settings::default().repeat_penalty(1.5));
    told.set_chain(plain.clone());
    told.rollback(Pos(5)).unwrap();
    let mut expected = plain;
    told.tokens().iter().for_each(|&token| expected.accept(token));
    assert_eq!(told.chain().state().tokens, expected.state().tokens);
    told.regenerate(Randomness::Repeat).unwrap();
    assert_eq!(told.pos(), Pos(3));
}

#[test]
fn what_an_edit_cannot_hold_takes_nothing_away() {
    let mut session = session("llama");
    session.feed(&tokens(&[30, 31, 32])).unwrap();
    let refused = session.edit(Pos(1), &tokens(&[33, 99_999]));
    assert!(matches!(refused, Err(Error::Token { index: 1, token: 99_999, .. })));
    let refused = session.edit(Pos(1), &vec![Token(33); N_CTX as usize]);
    assert!(matches!(refused, Err(Error::TooLong { n_tokens: 193, n_ctx: 192 })));
    assert_eq!(session.tokens(), tokens(&[30, 31, 32]));
}

#[test]
fn a_branch_goes_back_to_before_the_tokens_that_are_known() {
    let model = model("llama");
    let mut ctx = Context::new(&model, params()).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &tokens(&[30, 31, 32, 33, 34, 35, 36, 37])).unwrap();
    ctx.seq_rm(seq, Pos(2)..Pos(4)).unwrap();
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &SaveOptions::default()).unwrap();
    let mut ctx = Context::new(&model, params()).unwrap();
    let seq = ctx.sequence().unwrap();
    let restored = ctx.seq_state_read_bytes(seq, &bytes, &RestoreOptions::default()).unwrap();
    let plain = Chain::new(model.hparams().n_vocab, &Settings::default());
    let mut session = Session::adopt(ctx, &plain, &restored).unwrap();
    assert_eq!((session.pos(), session.tokens().len()), (Pos(8), 0));
    session.rollback(Pos(6)).unwrap();
    assert_eq!(session.pos(), Pos(6));
    session.feed(&tokens(&[40, 41])).unwrap();
    assert_eq!((session.pos(), session.context().pos(seq).unwrap()), (Pos(8), Pos(8)));
    session.rollback(Pos(7)).unwrap();
    assert_eq!((session.pos(), session.tokens()), (Pos(7), &tokens(&[40])[..]));
}

#[test]
fn text_behind_text_is_the_text_of_both() {
    for name in ["llama", "gemma3"] {
        let mut session = session(name);
        let vocab = session.context().model().clone();
        let vocab = vocab.vocab();
        session.prompt(&session.tokenize("ab c", ParseSpecial::No)).unwrap();
        for more in ["d e", " f", "g"] {
            session.feed(&session.tokenize_behind(more, ParseSpecial::No)).unwrap();
        }
        assert_eq!(vocab.adds_bos(), session.tokens().first().copied() == vocab.bos());
        let text = |tokens: &[Token]| {
            let text: Vec<u8> = tokens.iter().flat_map(|&token| vocab.piece(token).to_vec()).collect();
            String::from_utf8(text).unwrap()
        };
        let begin = text(&session.tokenize("ab c", ParseSpecial::No));
        assert_eq!(text(session.tokens()), begin + "d e fg", "{name}");
        // Behind a control token, text begins as at the start of a text.
        let bos = vocab.bos().unwrap();
        session.set_tokens(&[bos]).unwrap();
        let mut whole = vec![bos];
        vocab.tokenize("ab c", AddSpecial::No, ParseSpecial::No, &mut whole);
        session.feed(&session.tokenize_behind("ab c", ParseSpecial::No)).unwrap();
        assert_eq!(session.tokens(), whole, "{name}");
    }
}

#[test]
fn control_tokens_in_a_text_steer_only_where_asked() {
    let session = session("llama");
    let vocab = session.context().model().vocab();
    let bos = vocab.bos().unwrap();
    let text = String::from_utf8(vocab.piece(bos).to_vec()).unwrap() + "a";
    let n_of = |parse| session.tokenize(&text, parse).iter().filter(|&&token| token == bos).count();
    assert_eq!(n_of(ParseSpecial::Yes), n_of(ParseSpecial::No) + 1);
}

#[test]
fn a_generation_without_a_token_is_none_to_have_again() {
    let mut session = session("llama");
    let generation = session.generate(GenerateOptions::default()).next();
    assert!(matches!(generation, Some(Err(Error::NoLogits { .. }))));
    assert!(matches!(session.regenerate(Randomness::Repeat), Err(Error::NothingGenerated { .. })));
    session.feed(&tokens(&[30, 31])).unwrap();
    // One that ended without a token may end otherwise the next time.
    assert_eq!(session.generate(GenerateOptions::default().limit(0)).count(), 0);
    session.regenerate(Randomness::Continue).unwrap();
}

#[test]
fn control_tokens_are_part_of_the_text_where_they_are_shown() {
    let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
    let eos = model.vocab().eos().unwrap();
    let text = |options: GenerateOptions| {
        let settings = Settings::default().logit_bias(vec![(eos, 1e6)]);
        let ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
        let mut session = Session::new(ctx, &settings).unwrap();
        session.feed(&[Token(5)]).unwrap();
        let pieces = session.generate(options.limit(2).ignore_eos());
        pieces.map(|piece| piece.unwrap().text).collect::<String>()
    };
    assert_eq!(text(GenerateOptions::default()), "");
    assert_eq!(text(GenerateOptions::default().show(&[eos])), "<|endoftext|><|endoftext|>");
}
