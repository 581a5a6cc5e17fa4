use alloc::{string::ToString, vec};

use proptest::prelude::*;

use super::*;
use crate::grammar::Trigger;
use crate::grammar::testing::{FIRST_BYTE, compiler, vocab};
use crate::sampler::{Chain, Greedy};

const N_VOCAB: usize = FIRST_BYTE as usize + 256;
const EOS: Token = Token(2);

fn byte(byte: u8) -> Token {
    Token(FIRST_BYTE + u32::from(byte))
}

fn chain(sampler: GrammarSampler) -> Chain {
    Chain::builder(N_VOCAB).with(sampler).with(Greedy).build()
}

/// Return logits with which the tokens of `wanted` win, the first of them before the others.
fn wanting(wanted: &[Token]) -> Vec<f32> {
    let mut logits = vec![0.0; N_VOCAB];
    for (i, token) in wanted.iter().enumerate() {
        logits[token.0 as usize] = 100.0 - i as f32;
    }
    logits
}

fn accept_all(chain: &mut Chain, text: &str) {
    text.bytes().for_each(|b| chain.accept(byte(b)));
}

fn take(sampler: &mut GrammarSampler, tokens: &[Token]) {
    tokens.iter().for_each(|&token| Sampler::accept(sampler, token));
}

#[test]
fn the_end_is_banned_until_the_grammar_accepts_and_all_else_afterwards() {
    let mut chain = chain(GrammarSampler::new(&compiler().gbnf("root ::= \"cat\" \"s\"?").unwrap(), 0));
    let cat = vocab().find(b"cat").unwrap();
    assert_eq!(chain.sample(&wanting(&[EOS, byte(b'x'), byte(b'c'), cat])), Some(byte(b'c')));
    chain.accept(cat);
    assert_eq!(chain.sample(&wanting(&[byte(b'x'), EOS])), Some(EOS));
    assert_eq!(chain.sample(&wanting(&[byte(b'x'), byte(b's'), EOS])), Some(byte(b's')));
    chain.accept(byte(b's'));
    assert_eq!(chain.sample(&wanting(&[byte(b's')])), Some(EOS));
    chain.accept(EOS);
    assert_eq!(chain.sample(&wanting(&[byte(b's')])), Some(EOS));
}

#[test]
fn the_prompt_is_skipped() {
    let sampler = GrammarSampler::new(&compiler().regex("ab*").unwrap(), 3);
    let state = sampler.state();
    let mut chain = chain(sampler);
    accept_all(&mut chain, "xy");
    assert_eq!(chain.sample(&wanting(&[byte(b'a')])), None);
    assert!(
        matches!(state.error(), Some(GrammarError::Stuck { reason }) if reason.contains("3 tokens, and 2"))
    );
    accept_all(&mut chain, "z");
    assert_eq!(chain.sample(&wanting(&[byte(b'b'), byte(b'a')])), Some(byte(b'a')));
    assert_eq!(state.error(), None);
    accept_all(&mut chain, "a");
    assert_eq!(chain.sample(&wanting(&[byte(b'b')])), Some(byte(b'b')));
}

#[test]
fn a_token_that_is_not_allowed_bans_all_until_the_sequence_goes_back() {
    let sampler = GrammarSampler::new(&compiler().regex("ab*c").unwrap(), 0);
    let state = sampler.state();
    let mut chain = chain(sampler);
    accept_all(&mut chain, "axb");
    assert_eq!(chain.sample(&wanting(&[byte(b'b')])), None);
    assert_eq!(state.error(), Some(GrammarError::Token { token: byte(b'x') }));
    chain.roll_back(0, 0, &[byte(b'a')], [(0, &[]), (0, &[])]).unwrap();
    assert_eq!(chain.sample(&wanting(&[byte(b'b')])), Some(byte(b'b')));
}

#[test]
fn a_state_is_resumed_from_the_tokens() {
    let grammar = compiler().regex("ab*c").unwrap();
    let mut first = chain(GrammarSampler::new(&grammar, 1));
    accept_all(&mut first, "xabb");
    let mut second = chain(GrammarSampler::new(&grammar, 1));
    let tokens: Vec<Token> = "xabb".bytes().map(byte).collect();
    second.resume_after(&first.state(), &tokens).unwrap();
    assert_eq!(second.sample(&wanting(&[byte(b'a'), byte(b'c')])), Some(byte(b'c')));
    assert!(first.state().samplers.is_empty(), "tokens are enough");
}

fn lazy(triggers: &[Trigger]) -> GrammarSampler {
    let grammar = compiler().gbnf("root ::= \"<call>\" [a-z]+ \"</call>\"").unwrap();
    GrammarSampler::lazy(&grammar, 0, Triggers::new(triggers).unwrap())
}

#[test]
fn a_lazy_grammar_waits_for_its_word() {
    let mut sampler = lazy(&[Trigger::Word("<call>".to_string())]);
    let mut check = |text: &str, is_free: bool, is_stopped: bool| {
        sampler.reset();
        text.bytes().for_each(|b| Sampler::accept(&mut sampler, byte(b)));
        assert_eq!(sampler.is_stopped(), is_stopped, "{text}");
        assert_eq!(sampler.follower.is_free(), is_free, "{text}");
    };
    check("a < call>", true, false);
    check("any text<call>ab</cal", false, false);
    check("any text<call>ab</call>", false, true);
    check("any text<call", true, false);
    check("any text<call>", false, false);
    check("other <call>x", false, false);
    check("", true, false);
    check("<call>x</call>", false, true);
}

#[test]
fn a_trigger_can_be_a_token_or_a_pattern() {
    let mut chain = chain(lazy(&[Trigger::Pattern("[xy]=(<c)".to_string())]));
    accept_all(&mut chain, "<c y=<");
    assert_eq!(chain.sample(&wanting(&[EOS])), Some(EOS));
    accept_all(&mut chain, "c");
    assert_eq!(chain.sample(&wanting(&[EOS, byte(b'x'), byte(b'a')])), Some(byte(b'a')));

    let mut sampler = lazy(&[Trigger::FullPattern("a+<call>".to_string())]);
    "aab<call>".bytes().for_each(|b| Sampler::accept(&mut sampler, byte(b)));
    assert!(sampler.is_accepting() && sampler.follower.is_free());

    let grammar = compiler().gbnf("root ::= <|c5|> \"ab\"").unwrap();
    let triggers = Triggers::new(&[Trigger::Token(Token(5))]).unwrap();
    let mut sampler = GrammarSampler::lazy(&grammar, 0, triggers);
    take(&mut sampler, &[byte(b'x'), Token(6), Token(5), byte(b'a')]);
    assert!(!sampler.is_stopped() && !sampler.is_accepting());
    Sampler::accept(&mut sampler, byte(b'b'));
    assert!(sampler.is_stopped() && sampler.is_accepting());
}

#[test]
fn a_trigger_may_be_a_control_token_among_text() {
    let triggers = || Triggers::new(&[Trigger::Word("<|c5|>ab".to_string())]).unwrap();
    let (ab, abc) = (vocab().find(b"ab").unwrap(), vocab().find(b"abc").unwrap());
    // The grammar has the token, or its text, as clients of llama-server write it.
    for text in ["root ::= <|c5|> \"ab\" \"cd\"", "root ::= \"<|c5|>abcd\""] {
        let grammar = compiler().gbnf(text).unwrap();
        let mut sampler = GrammarSampler::lazy(&grammar, 0, triggers());
        take(&mut sampler, &[byte(b'x'), Token(6), Token(5), ab]);
        assert!(!sampler.is_accepting() && !sampler.follower.is_free(), "{text}");
        take(&mut sampler, &[byte(b'c'), byte(b'd')]);
        assert!(sampler.is_accepting() && sampler.is_stopped(), "{text}");
        sampler.reset();
        take(&mut sampler, &[byte(b'x'), Token(5), abc, byte(b'd')]);
        assert!(sampler.is_accepting() && sampler.is_stopped(), "{text}");
    }
}

#[test]
fn a_trigger_that_the_grammar_cannot_begin_with_is_text() {
    let triggers = ["7", "<call>"].map(|word| Trigger::Word(word.to_string()));
    for last in [Trigger::Token(Token(5)), Trigger::Pattern("[5-8]".to_string())] {
        let mut chain = chain(lazy(&[&triggers[..], &[last]].concat()));
        accept_all(&mut chain, "a 7 and 8");
        chain.accept(Token(5));
        assert_eq!(chain.sample(&wanting(&[byte(b'9')])), Some(byte(b'9')));
        accept_all(&mut chain, " then <call>");
        assert_eq!(chain.sample(&wanting(&[byte(b'9'), byte(b'a')])), Some(byte(b'a')));
    }
}

#[test]
fn a_trigger_may_count_at_the_beginning_only() {
    let grammar = compiler().gbnf("root ::= \"ab\" [0-9]+").unwrap();
    let triggers = Triggers::new(&[Trigger::Start("ab".to_string())]).unwrap();
    for (text, is_free) in [("ab", false), ("xab", true), ("a", true)] {
        let mut sampler = GrammarSampler::lazy(&grammar, 0, triggers.clone());
        text.bytes().for_each(|b| Sampler::accept(&mut sampler, byte(b)));
        assert!(!sampler.is_stopped(), "{text}");
        assert_eq!(sampler.follower.is_free(), is_free, "{text}");
    }
}

/// The word ends in the middle of a token that is longer.
#[test]
fn a_trigger_can_begin_and_end_within_tokens() {
    let grammar = compiler().gbnf("root ::= \"bc\" [0-9]+").unwrap();
    let triggers = || Triggers::new(&[Trigger::Word("bc".to_string())]).unwrap();
    let mut sampler = GrammarSampler::lazy(&grammar, 0, triggers());
    let tokens = [vocab().find(b"abc").unwrap(), vocab().find(b"12").unwrap()];
    take(&mut sampler, &tokens);
    assert!(sampler.is_accepting() && !sampler.follower.is_free());
    let mut sampler = GrammarSampler::lazy(&grammar, 0, triggers());
    take(&mut sampler, &[tokens[0], byte(b'x')]);
    assert!(sampler.is_stopped() && !sampler.is_accepting());
}

#[test]
fn patterns_are_checked() {
    let error = Triggers::new(&[Trigger::FullPattern("a)".to_string())]).unwrap_err();
    assert!(matches!(error, GrammarError::Syntax { place, .. } if place.column == 2), "{error}");
    let error = Triggers::new(&[Trigger::Pattern("(\\w{200}){200}".to_string())]).unwrap_err();
    assert!(matches!(error, GrammarError::Compile { .. }), "{error}");
    assert!(Triggers::new(&vec![Trigger::Token(EOS); 4097]).is_err());
}

/// The mask that another thread computed is the one that the draw uses.
#[test]
fn a_mask_is_computed_ahead_and_dropped_when_the_sequence_moves() {
    let mut sampler = GrammarSampler::new(&compiler().regex("ab*c").unwrap(), 1);
    assert!(sampler.is_prepared(), "there is nothing to do before the prompt ends");
    take(&mut sampler, &[byte(b'x'), byte(b'a')]);
    assert!(!sampler.is_prepared());
    std::thread::scope(|scope| scope.spawn(|| sampler.prepare()).join()).unwrap();
    assert!(sampler.is_prepared() && sampler.follower.matcher.has_mask());
    assert_eq!(sampler.follower.tokens, [byte(b'a')]);
    Sampler::accept(&mut sampler, byte(b'c'));
    assert!(!sampler.is_prepared());
    sampler.prepare();
    Sampler::reset(&mut sampler);
    take(&mut sampler, &[byte(b'x')]);
    assert!(!sampler.is_prepared());

    let mut chain = chain(sampler);
    chain.prepare();
    assert!(chain.is_prepared());
    assert_eq!(chain.sample(&wanting(&[byte(b'c'), byte(b'b'), byte(b'a')])), Some(byte(b'a')));
}

/// The draw says why, as it does without that.
#[test]
fn an_error_that_was_found_ahead_is_reported_by_the_draw() {
    let sampler = GrammarSampler::new(&compiler().regex("ab").unwrap(), 0);
    let state = sampler.state();
    let mut chain = chain(sampler);
    accept_all(&mut chain, "x");
    chain.prepare();
    assert_eq!(state.error(), None);
    assert_eq!(chain.sample(&wanting(&[byte(b'b')])), None);
    assert_eq!(state.error(), Some(GrammarError::Token { token: byte(b'x') }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Wherever a sampler comes from, its state is that of a new one with the same tokens.
    #[test]
    fn the_way_to_a_text_does_not_matter(
        texts in prop::collection::vec("(x{0,2}(<call>[ab]{0,3}(</call>)?)?|[abx<]{0,4})", 1..6),
        is_lazy in any::<bool>(),
        ahead in 0_usize..5,
    ) {
        let words = [Trigger::Word("<call>".to_string())];
        let eager = || GrammarSampler::new(&compiler().gbnf("root ::= [xab]* (\"<call>\" [a-z]+ \"</call>\")?").unwrap(), 1);
        let make = || if is_lazy { lazy(&words) } else { eager() };
        let outcome = |sampler: &mut GrammarSampler| {
            let mut candidates = Candidates::new(N_VOCAB);
            candidates.load(&[0.0; N_VOCAB]);
            sampler.apply(&mut candidates, &History::new(N_VOCAB, 0));
            let allowed = candidates.items().iter().filter(|c| c.logit == 0.0).map(|c| c.id.0).collect::<Vec<_>>();
            (allowed, sampler.is_accepting(), sampler.is_stopped())
        };
        let mut traveller = make();
        for text in texts {
            let mut fresh = make();
            traveller.reset();
            for (i, b) in text.bytes().enumerate() {
                // Masks that are computed ahead change nothing, wherever the sequence goes then.
                if i == ahead {
                    traveller.prepare();
                }
                Sampler::accept(&mut traveller, byte(b));
                Sampler::accept(&mut fresh, byte(b));
            }
            if ahead % 2 == 0 {
                traveller.prepare();
            }
            prop_assert_eq!(outcome(&mut traveller), outcome(&mut fresh), "{}", text);
        }
    }
}
