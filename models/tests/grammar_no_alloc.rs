//! Steady state of a generation with a grammar: our layers allocate nothing for a token. The
//! library that computes masks does, for each of them.
#![cfg(feature = "grammar")]

use std::sync::Arc;

use backstitch_models::grammar::{Compiler, GrammarSampler, Trigger, Triggers};
use backstitch_models::sampler::{Chain, Greedy};
use backstitch_models::vocab::{ParseSpecial, Vocab};
use backstitch_models::{Model, Token};
use backstitch_testing::{Counting, Tally};
use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// A schema within Lark, which both compile as it is.
const LARK: &str = r#"start: %json {"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
    "tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","tags"]}"#;
const TEXT: &str =
    r#"{"name": "Lily and the big dog", "age": 7, "tags": ["a story", "of a garden", "in the sun"]}"#;

fn tokens_of(vocab: &Vocab, text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    vocab.tokenize_behind(text, ParseSpecial::No, &mut tokens);
    tokens
}

/// The requests of one generation, by what made them.
#[derive(Debug, Default)]
struct Tallies {
    /// Computing masks, which is the library's work.
    masks: Tally,
    /// Applying them, drawing, and accepting tokens.
    ours: Tally,
}

fn add(tally: &mut Tally, more: Tally) {
    tally.allocations += more.allocations;
    tally.bytes += more.bytes;
}

/// Generate `tokens`, which the logits favour.
fn generate(chain: &mut Chain, tokens: &[Token], n_vocab: usize) -> Tallies {
    let (mut tallies, mut logits) = (Tallies::default(), vec![0.0_f32; n_vocab]);
    chain.reset();
    for &token in tokens {
        logits.fill(0.0);
        logits[token.0 as usize] = 1.0;
        let ((), masks) = ALLOCATOR.during_here(|| chain.prepare());
        let (drawn, ours) = ALLOCATOR.during_here(|| {
            let drawn = chain.sample(&logits);
            chain.accept(token);
            drawn
        });
        assert_eq!(drawn, Some(token));
        add(&mut tallies.masks, masks);
        add(&mut tallies.ours, ours);
    }
    tallies
}

/// Return what llguidance alone requests for the masks of `tokens`, once it has computed them
/// before.
fn of_the_library(vocab: &Vocab, lark: &str, tokens: &[Token]) -> Tally {
    let all = (0..vocab.n_vocab() as u32).map(Token);
    let words: Vec<Vec<u8>> = all
        .map(|token| match vocab.is_hidden(token) || vocab.is_eog(token) {
            true => [&[TokTrie::SPECIAL_TOKEN_MARKER], vocab.piece(token)].concat(),
            false => vocab.piece(token).to_vec(),
        })
        .collect();
    let eog: Vec<u32> = vocab.eog().iter().map(|token| token.0).collect();
    let trie =
        TokTrie::from(&TokRxInfo::new(words.len() as u32, INVALID_TOKEN), &words).with_eos_tokens(&eog);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices).unwrap();
    factory.quiet();
    let mut matcher =
        llguidance::Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned())));
    let mut follow = |tally: &mut Tally| {
        for &token in tokens {
            let ((), more) = ALLOCATOR.during_here(|| {
                drop(matcher.compute_mask().unwrap());
                assert_eq!(matcher.try_consume_tokens(&[token.0]).unwrap(), 1);
            });
            add(tally, more);
        }
        matcher.rollback(tokens.len()).unwrap();
    };
    follow(&mut Tally::default());
    let mut tally = Tally::default();
    follow(&mut tally);
    tally
}

/// All checks in one test, because the allocator is that of the whole program.
#[test]
fn a_generation_with_a_grammar_allocates_nothing_of_its_own() {
    let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
    let (vocab, n_vocab) = (model.vocab(), model.vocab().n_vocab());
    let compiler = Compiler::new(vocab).unwrap();
    let grammar = compiler.lark(LARK).unwrap();
    let tokens = tokens_of(vocab, TEXT);

    let sampler = GrammarSampler::new(&grammar, 0);
    let mut chain = Chain::builder(n_vocab).with(sampler).with(Greedy).build();
    let first = generate(&mut chain, &tokens, n_vocab);
    // The list of generated tokens grows, but not with every token.
    assert!(first.ours.allocations <= 8, "{first:?}");
    let again = generate(&mut chain, &tokens, n_vocab);
    assert_eq!(again.ours, Tally::default());
    // The library makes the set anew for each token, and rows of its parser's table.
    let library = of_the_library(vocab, LARK, &tokens);
    println!("{} tokens: {:?}, llguidance alone {library:?}", tokens.len(), again.masks);
    assert!(again.masks.allocations <= library.allocations, "{again:?} {library:?}");
    assert!(again.masks.bytes <= library.bytes, "{again:?} {library:?}");

    // Before its trigger a grammar computes no masks.
    let triggers = Triggers::new(&[Trigger::Word("never in this text".into())]).unwrap();
    let sampler = GrammarSampler::lazy(&grammar, 0, triggers);
    let mut chain = Chain::builder(n_vocab).with(sampler).with(Greedy).build();
    generate(&mut chain, &tokens, n_vocab);
    let waiting = generate(&mut chain, &tokens, n_vocab);
    assert_eq!((waiting.masks, waiting.ours), (Tally::default(), Tally::default()));
}
