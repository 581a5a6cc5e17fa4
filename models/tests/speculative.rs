//! Speculative decoding generates the same text as plain decoding, bit for bit, however bad the
//! drafts are. The inputs and draws of the sampler chain are recorded and compared.

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_models::{
    Cancel, Context, Error, Model, Params, Pos, RollbackParams, SeqId, Token,
    sampler::{Candidates, Chain, Greedy, History, Penalties, Sampler, Temperature, TopK, TopP},
    speculative::{DraftModel, Drafter, Lookup, Speculative, Stats},
};
use backstitch_testing::{Random, assert_bits};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

/// Models, each with another one of the same vocabulary.
const MODELS: [[&str; 2]; 13] = [
    ["llama", "gemma3"],
    ["gemma2", "llama"],
    ["gemma3", "llama"],
    ["falcon_h1", "qwen3"],
    ["qwen3", "falcon_h1"],
    ["mamba", "qwen3"],
    ["mamba2", "mamba"],
    ["jamba", "qwen3"],
    ["lfm2", "mamba2"],
    ["lfm2_swa", "lfm2"],
    ["rwkv6", "rwkv7"],
    ["rwkv7", "rwkv6"],
    ["qwen35", "jamba"],
];
const N_TOKENS: usize = 100;
const N_DRAFT: usize = 6;

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn params() -> Params {
    Params::default().n_ctx(512).n_seq_max(2)
}

/// Return a prompt that repeats itself.
fn prompt() -> Vec<Token> {
    (0..24).map(|i| Token(20 + (i % 9) * (i % 9))).collect()
}

/// The first sampler of a chain: it records the bits of all logits and the tokens in the history.
#[derive(Clone)]
struct Recorder(Arc<Mutex<Vec<u32>>>);

impl Sampler for Recorder {
    fn apply(&mut self, candidates: &mut Candidates, history: &History) {
        let mut seen = self.0.lock().unwrap();
        seen.extend(candidates.items().iter().map(|c| c.logit.to_bits()));
        seen.extend(history.tokens().map(|token| token.0));
    }
}

/// The settings of a chain.
#[derive(Clone, Copy, Debug)]
enum Choice {
    Greedy,
    Sampled { seed: u64 },
}

const CHOICES: [Choice; 3] = [Choice::Greedy, Choice::Sampled { seed: 1 }, Choice::Sampled { seed: 99 }];

impl Choice {
    fn chain(self, seen: &Arc<Mutex<Vec<u32>>>) -> Chain {
        let chain = Chain::builder(288).last_n(32).with(Recorder(seen.clone()));
        let penalties = Penalties { repeat: 1.05, frequency: 0.02, presence: 0.02 };
        let mut chain = match self {
            Choice::Greedy => chain.with(Greedy).build(),
            Choice::Sampled { seed } => {
                let chain = chain.seed(seed).with(penalties).with(TopK(12)).with(TopP(0.9));
                chain.with(Temperature(0.7)).build()
            }
        };
        prompt().into_iter().for_each(|token| chain.accept(token));
        chain
    }
}

/// Re-evaluate the last token of the prompt, for its logits.
fn again(ctx: &mut Context, seq: SeqId) {
    ctx.rollback(seq, Pos(prompt().len() as i32 - 1)).unwrap();
    ctx.append(seq, &prompt()[prompt().len() - 1..]).unwrap();
}

/// The results of decoding.
#[derive(PartialEq)]
struct Story {
    tokens: Vec<Token>,
    /// All the chain has seen.
    seen: Vec<u32>,
    /// Logits of the last token.
    logits: Vec<f32>,
    /// The tokens of the sequence.
    held: Vec<Token>,
}

impl Story {
    fn of(ctx: &Context, seq: SeqId, tokens: Vec<Token>, seen: &Mutex<Vec<u32>>) -> Self {
        let held = ctx.tokens(seq).unwrap().to_vec();
        let logits = ctx.logits_at_hand(seq).unwrap().to_vec();
        Story { tokens, seen: seen.lock().unwrap().clone(), logits, held }
    }
}

fn plain(model: &Model, choice: Choice) -> Story {
    let mut ctx = Context::new(model, params()).unwrap();
    let (seq, seen) = (ctx.sequence().unwrap(), Arc::default());
    let mut chain = choice.chain(&seen);
    ctx.append(seq, &prompt()).unwrap();
    let mut tokens = vec![];
    for _ in 0..N_TOKENS {
        let token = chain.sample(ctx.logits(seq).unwrap()).unwrap();
        chain.accept(token);
        tokens.push(token);
        ctx.append(seq, &[token]).unwrap();
    }
    Story::of(&ctx, seq, tokens, &seen)
}

/// Generate with drafts in `ctx`, whose sequence holds the prompt.
fn speculate(ctx: &mut Context, seq: SeqId, choice: Choice, drafter: impl Drafter) -> (Story, Stats) {
    let seen = Arc::default();
    let mut chain = choice.chain(&seen);
    let mut speculative = Speculative::new(drafter, seq, N_DRAFT);
    let mut tokens = vec![];
    while tokens.len() < N_TOKENS {
        let step = speculative.step(ctx, &mut chain, N_TOKENS - tokens.len(), |_| false).unwrap();
        assert!(!step.tokens.is_empty() && step.end.is_none());
        tokens.extend_from_slice(step.tokens);
        assert_eq!(speculative.next(), tokens.last().copied());
        assert_eq!(ctx.tokens(seq).unwrap().len() + 1, prompt().len() + tokens.len());
    }
    speculative.flush(ctx).unwrap();
    (Story::of(ctx, seq, tokens, &seen), speculative.stats())
}

#[track_caller]
fn assert_same(what: &str, got: &Story, expected: &Story) {
    assert_eq!(got.tokens, expected.tokens, "{what}");
    assert!(got.seen == expected.seen, "{what}: the chain saw other logits or another history");
    assert_bits(what, &got.logits, &expected.logits);
    assert_eq!(got.held, expected.held, "{what}");
}

/// A drafter with the right tokens except every n-th one; 1 is always wrong.
struct Wrong {
    right: Vec<Token>,
    every: usize,
}

impl Drafter for Wrong {
    fn draft(&mut self, held: &[Token], _: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        let told = held.len() + 1 - prompt().len();
        for (i, token) in self.right.iter().skip(told).take(n).enumerate() {
            let wrong = (i + 1) % self.every == 0;
            draft.push(if wrong { Token((token.0 + 1) % 288) } else { *token });
        }
        Ok(())
    }
}

/// A drafter with arbitrary tokens, more than it was asked for, and tokens that do not exist.
struct Dice(Random);

impl Drafter for Dice {
    fn draft(&mut self, _: &[Token], _: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        (0..self.0.below(n + 3)).for_each(|_| draft.push(Token(self.0.below(300) as u32)));
        Ok(())
    }
}

#[test]
fn guesses_change_nothing_but_the_number_of_batches() {
    for [name, other] in MODELS {
        let (target, other) = (model(name), model(other));
        for choice in CHOICES {
            let expected = plain(&target, choice);
            let draft_model = |of| DraftModel::new(&target, of, params()).unwrap();
            let wrong = |every| Wrong { right: expected.tokens.clone(), every };
            let drafters: [(&str, Box<dyn Drafter>); 8] = [
                ("nothing", Box::new(None::<Lookup>)),
                ("look-up", Box::new(Lookup { n_min: 1, ..Lookup::default() })),
                ("the same model", Box::new(draft_model(&target))),
                ("another model", Box::new(draft_model(&other))),
                ("always wrong", Box::new(wrong(1))),
                ("every third wrong", Box::new(wrong(3))),
                ("always right", Box::new(wrong(usize::MAX))),
                ("dice", Box::new(Dice(Random::new(3)))),
            ];
            for (how, drafter) in drafters {
                let what = format!("{name}, {how}, {choice:?}");
                let mut ctx = Context::new(&target, params()).unwrap();
                let seq = ctx.sequence().unwrap();
                ctx.append(seq, &prompt()).unwrap();
                let (story, stats) = speculate(&mut ctx, seq, choice, drafter);
                assert_same(&what, &story, &expected);
                assert_eq!(stats.n_reevaluated, 0, "{what}");
                let n = N_TOKENS as u64;
                assert_eq!(stats.n_decodes + stats.n_accepted + 1, n, "{what}: {stats:?}");
                let all = stats.n_accepted == stats.n_drafted;
                match how {
                    "nothing" => assert_eq!(stats.n_drafted, 0, "{what}"),
                    "always wrong" => {
                        assert!(stats.n_accepted == 0 && stats.n_drafted > 0, "{what}: {stats:?}")
                    }
                    "always right" => assert!(all && stats.n_decodes < n / 3, "{what}: {stats:?}"),
                    "the same model" if matches!(choice, Choice::Greedy) => {
                        assert!(all && stats.n_decodes < n / 3, "{what}: {stats:?}");
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn without_a_way_back_guesses_cost_evaluations_and_change_nothing_either() {
    for name in ["llama", "gemma3", "falcon_h1", "mamba2"] {
        let target = model(name);
        let expected = plain(&target, CHOICES[1]);
        let rollback = RollbackParams::OFF;
        let mut ctx = Context::new(&target, params().rollback(rollback)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt()).unwrap();
        let right = expected.tokens.clone();
        let (story, stats) = speculate(&mut ctx, seq, CHOICES[1], Wrong { right, every: 2 });
        assert_same(name, &story, &expected);
        assert_eq!(stats.n_reevaluated > 0, name != "llama", "{name}: {stats:?}");
    }
}

#[test]
fn a_fork_beside_it_keeps_its_bits() {
    for name in ["llama", "gemma3", "falcon_h1"] {
        let target = model(name);
        let expected = plain(&target, Choice::Greedy);
        let mut ctx = Context::new(&target, params()).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt()).unwrap();
        let fork = ctx.fork(seq).unwrap();
        let right = expected.tokens.clone();
        let (story, _) = speculate(&mut ctx, seq, Choice::Greedy, Wrong { right, every: 2 });
        assert_same(name, &story, &expected);
        again(&mut ctx, fork);
        let (story, _) = speculate(&mut ctx, fork, Choice::Greedy, Lookup::default());
        assert_same(name, &story, &expected);
    }
}

#[test]
fn a_token_that_ends_the_text_is_drawn_and_left_out() {
    for name in ["llama", "falcon_h1"] {
        let target = model(name);
        let expected = plain(&target, Choice::Sampled { seed: 5 });
        // The first token that comes up late and for the first time.
        let at = (8..N_TOKENS).find(|&i| !expected.tokens[..i].contains(&expected.tokens[i])).unwrap();
        let last = expected.tokens[at];
        let mut ctx = Context::new(&target, params()).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt()).unwrap();
        let seen = Arc::default();
        let mut chain = Choice::Sampled { seed: 5 }.chain(&seen);
        let right = expected.tokens.clone();
        let mut speculative = Speculative::new(Wrong { right, every: usize::MAX }, seq, N_DRAFT);
        let mut tokens = vec![];
        loop {
            let step = speculative.step(&mut ctx, &mut chain, 100, |token| token == last).unwrap();
            tokens.extend_from_slice(step.tokens);
            if let Some(end) = step.end {
                assert_eq!(end, last);
                break;
            }
        }
        assert_eq!(tokens, expected.tokens[..at]);
        assert_eq!(speculative.next(), None);
        speculative.flush(&mut ctx).unwrap();
        assert_eq!(ctx.tokens(seq).unwrap(), [prompt(), tokens].concat());
        // As many draws as plain decoding up to and with that token, and no more.
        let seen: &[u32] = &seen.lock().unwrap();
        assert!(expected.seen.starts_with(seen));
        assert!(matches!(seen.len() / 288, n if n > at && n <= at * 5 / 4 + 2));
    }
}

#[test]
fn a_full_context_takes_no_guesses_and_then_errs_cleanly() {
    let target = model("llama");
    let expected = plain(&target, Choice::Greedy);
    let mut ctx = Context::new(&target, params().n_ctx(64).n_seq_max(1)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &prompt()).unwrap();
    let right = expected.tokens.clone();
    let mut chain = Choice::Greedy.chain(&Arc::default());
    let mut speculative = Speculative::new(Wrong { right, every: usize::MAX }, seq, N_DRAFT);
    let mut tokens = vec![];
    let error = loop {
        match speculative.step(&mut ctx, &mut chain, 100, |_| false) {
            Ok(step) => tokens.extend_from_slice(step.tokens),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Memory(backstitch_kv::Error::Full { .. })), "{error}");
    assert_eq!(tokens.len(), 64 - prompt().len() + 1);
    assert_eq!(tokens, expected.tokens[..tokens.len()]);
    assert_eq!(ctx.pos(seq).unwrap(), Pos(64));
    assert_eq!(speculative.next(), tokens.last().copied());
}

#[test]
fn the_last_positions_of_a_model_take_no_guesses() {
    let target = model("gpt2");
    let n = target.graph().n_positions().unwrap();
    let mut ctx = Context::new(&target, params().n_ctx(2 * n as u32)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &vec![Token(20); n - 10]).unwrap();
    let mut chain = Choice::Greedy.chain(&Arc::default());
    let mut speculative = Speculative::new(Wrong { right: vec![Token(3); n], every: 1 }, seq, N_DRAFT);
    let error = loop {
        match speculative.step(&mut ctx, &mut chain, 100, |_| false) {
            Ok(step) => assert!(!step.tokens.is_empty()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::BeyondPositions { .. }), "{error}");
    assert_eq!(ctx.pos(seq).unwrap(), Pos(n as i32));
    assert!(speculative.stats().n_drafted > 0);
}

#[test]
fn guesses_that_find_no_room_beside_other_sequences_are_left_out() {
    let target = model("llama");
    let expected = plain(&target, Choice::Greedy);
    let mut ctx = Context::new(&target, params().n_ctx(128).n_seq_max(5)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &prompt()).unwrap();
    // Others fill the rest, so that only the sequence's own block has free cells: 24 to 31.
    while let Ok(other) = ctx.sequence() {
        while ctx.append(other, &[Token(1); 8]).is_ok() {}
    }
    again(&mut ctx, seq);
    let right = expected.tokens.clone();
    let mut chain = Choice::Greedy.chain(&Arc::default());
    let mut speculative = Speculative::new(Wrong { right, every: usize::MAX }, seq, 16);
    let mut tokens = vec![];
    while let Ok(step) = speculative.step(&mut ctx, &mut chain, 100, |_| false) {
        tokens.extend_from_slice(step.tokens);
    }
    assert!((8..N_TOKENS).contains(&tokens.len()), "{}", tokens.len());
    assert_eq!(tokens[..], expected.tokens[..tokens.len()]);
    assert_eq!(ctx.tokens(seq).unwrap().len() + 1, prompt().len() + tokens.len());
}

#[test]
fn a_draft_context_that_is_full_gives_no_guesses() {
    let target = model("llama");
    let expected = plain(&target, Choice::Greedy);
    let small = params().n_ctx(prompt().len() as u32 + 10);
    let drafter = DraftModel::new(&target, &target, small).unwrap();
    let mut ctx = Context::new(&target, params()).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &prompt()).unwrap();
    let (story, stats) = speculate(&mut ctx, seq, Choice::Greedy, drafter);
    assert_same("a small draft context", &story, &expected);
    assert!((1..=11).contains(&stats.n_accepted), "{stats:?}");
}

#[test]
fn a_draft_model_drafts_as_far_as_it_has_positions() {
    let target = model("gpt2");
    let n = target.graph().n_positions().unwrap();
    let mut drafter = DraftModel::new(&target, &target, params().n_ctx(4 * n as u32)).unwrap();
    let text: Vec<Token> = (0..n as u32 + 8).map(|i| Token(20 + i % 7)).collect();
    let mut draft = |len: usize| {
        let mut draft = Vec::new();
        drafter.draft(&text[..len], text[len], 4, &mut draft).unwrap();
        draft.len()
    };
    assert_eq!([draft(n - 10), draft(n - 2), draft(n - 1), draft(n), draft(n + 6)], [4, 2, 1, 0, 0]);
}

#[test]
fn a_draft_model_stops_when_it_is_asked_to() {
    let target = model("llama");
    let cancel = Cancel::new();
    let mut drafter: Box<dyn Drafter> = Box::new(Some(DraftModel::new(&target, &target, params()).unwrap()));
    drafter.set_cancel(Some(cancel.clone()));
    cancel.cancel();
    let mut draft = Vec::new();
    let refused = drafter.draft(&prompt(), Token(3), 4, &mut draft);
    assert!(matches!(refused, Err(Error::Cancelled)), "{refused:?}");
    drafter.set_cancel(None);
    drafter.draft(&prompt(), Token(3), 4, &mut draft).unwrap();
    assert_eq!(draft.len(), 4);
}

#[test]
fn a_draft_model_of_another_vocabulary_is_named() {
    let (spm, bpe) = (model("llama"), model("qwen3"));
    let error = DraftModel::new(&spm, &bpe, params()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::DraftVocab { what, .. } if what.starts_with("token ")), "{error}");
    let demo = format!("{}/../demo/demo.gguf", env!("CARGO_MANIFEST_DIR"));
    let demo = Model::from_bytes(&std::fs::read(demo).unwrap()).unwrap();
    let error = DraftModel::new(&bpe, &demo, params()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("number of tokens") && error.contains("2048") && error.contains("288"), "{error}");
}

/// A drafter that fails every other time.
struct Failing(bool);

impl Drafter for Failing {
    fn draft(&mut self, _: &[Token], _: Token, _: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        draft.push(Token(3));
        self.0 = !self.0;
        if self.0 { Err(Error::Arena) } else { Ok(()) }
    }
}

/// A pool that panics in the call that is due, if any.
struct Faulty {
    runs: Arc<AtomicU64>,
    every: u64,
}

impl Pool for Faulty {
    fn n_threads(&self) -> usize {
        1
    }

    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        let run = self.runs.fetch_add(1, Relaxed);
        if self.every > 0 && run % self.every == self.every - 1 {
            Err(Panicked)
        } else {
            Inline.run(n_jobs, job)
        }
    }
}

/// Step until the text is complete, and repeat steps that fail. Return the number of failures.
fn stubborn(ctx: &mut Context, seq: SeqId, drafter: impl Drafter, expected: &Story) -> u32 {
    let seen = Arc::default();
    let mut chain = Choice::Sampled { seed: 1 }.chain(&seen);
    let mut speculative = Speculative::new(drafter, seq, N_DRAFT);
    let (mut tokens, mut n_errors) = (vec![], 0);
    while tokens.len() < N_TOKENS {
        let next = speculative.next();
        match speculative.step(ctx, &mut chain, N_TOKENS - tokens.len(), |_| false) {
            Ok(step) => tokens.extend_from_slice(step.tokens),
            Err(_) => {
                n_errors += 1;
                assert_eq!(speculative.next(), next);
            }
        }
        assert!(n_errors < 10_000);
    }
    while speculative.flush(ctx).is_err() {
        n_errors += 1;
    }
    assert_same("after errors", &Story::of(ctx, seq, tokens, &seen), expected);
    n_errors
}

#[test]
fn a_step_that_fails_can_be_tried_again() {
    for name in ["llama", "gemma3", "falcon_h1"] {
        let target = model(name);
        let expected = plain(&target, Choice::Sampled { seed: 1 });
        let mut ctx = Context::new(&target, params()).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt()).unwrap();
        assert!(stubborn(&mut ctx, seq, Failing(false), &expected) > 5);

        // A step runs the pool some tens of times; every run in turn is the one that fails.
        let runs = Arc::new(AtomicU64::new(0));
        let pool = Arc::new(Faulty { runs: runs.clone(), every: 97 });
        let mut ctx = Context::with_pool(&target, params(), pool).unwrap();
        let seq = ctx.sequence().unwrap();
        while ctx.append(seq, &prompt()).is_err() {}
        let right = expected.tokens.clone();
        assert!(stubborn(&mut ctx, seq, Wrong { right, every: 2 }, &expected) > 0, "{name}: {runs:?}");
    }
}

/// In a cache without a free block, a re-evaluation that fails leaves fewer tokens.
#[test]
fn a_failure_that_costs_tokens_of_the_text_is_told_and_leaves_nothing_to_do() {
    let target = model("falcon_h1");
    let start: Vec<Token> = (0..100).map(|i| Token(20 + i % 9 * (i % 9))).collect();
    let greedy = || Chain::builder(288).with(Greedy).build();
    let begin = || {
        let params = params().n_ctx(128).n_seq_max(1).n_batch(32).rollback(RollbackParams::OFF);
        let mut ctx = Context::new(&target, params).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &start).unwrap();
        (ctx, seq)
    };
    let bad = || Wrong { right: vec![Token(3); 200], every: 1 };
    let tell = |ctx: &mut Context, speculative: &mut Speculative<Wrong>, text: &mut Vec<Token>| {
        while text.len() < start.len() + 5 {
            let n = start.len() + 5 - text.len();
            text.extend_from_slice(speculative.step(ctx, &mut greedy(), n, |_| false).unwrap().tokens);
        }
    };
    let (mut ctx, seq) = begin();
    let mut expected = start.clone();
    tell(&mut ctx, &mut Speculative::new(bad(), seq, 0), &mut expected);
    let mut n_lost = 0;
    for n_checks in (1..).step_by(29) {
        let (mut ctx, seq) = begin();
        let mut speculative = Speculative::new(bad(), seq, 4);
        let checks = Arc::new(AtomicI64::new(i64::MAX));
        let left = checks.clone();
        ctx.set_cancel(Some(Cancel::from_fn(move || left.fetch_sub(1, Relaxed) <= 0)));
        let mut text = start.clone();
        text.extend_from_slice(speculative.step(&mut ctx, &mut greedy(), 1, |_| false).unwrap().tokens);
        checks.store(n_checks, Relaxed);
        let step = speculative.step(&mut ctx, &mut greedy(), 4, |_| false).map(|step| step.tokens.to_vec());
        let is_cancelled = checks.swap(i64::MAX, Relaxed) < 0;
        let held = ctx.tokens(seq).unwrap().len();
        match step {
            Ok(tokens) => text.extend(tokens),
            Err(_) if held < start.len() => {
                n_lost += 1;
                assert_eq!(speculative.next(), None);
                ctx.append(seq, &text[held..]).unwrap();
            }
            Err(_) => assert_eq!(speculative.next(), text.last().copied()),
        }
        tell(&mut ctx, &mut speculative, &mut text);
        assert_eq!(text, expected, "{n_checks}");
        if !is_cancelled {
            break;
        }
    }
    assert!(n_lost > 0);
}

#[test]
fn without_logits_there_is_nothing_to_go_on_from() {
    let target = model("llama");
    let mut ctx = Context::new(&target, params()).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut chain = Choice::Greedy.chain(&Arc::default());
    let mut speculative = Speculative::new(Lookup::default(), seq, N_DRAFT);
    let empty = speculative.step(&mut ctx, &mut chain, 1, |_| false).map(|_| ());
    assert!(matches!(empty, Err(Error::NoLogits { .. })), "{empty:?}");
    ctx.append(seq, &prompt()).unwrap();
    assert_eq!(speculative.step(&mut ctx, &mut chain, 0, |_| false).unwrap().tokens, []);
    assert_eq!(speculative.step(&mut ctx, &mut chain, 1, |_| false).unwrap().tokens.len(), 1);
    // After a change of the sequence, the caller resets the decoder.
    ctx.rollback(seq, Pos(10)).unwrap();
    speculative.reset();
    ctx.append(seq, &[Token(5)]).unwrap();
    assert_eq!(speculative.step(&mut ctx, &mut chain, 1, |_| false).unwrap().tokens.len(), 1);
    assert_eq!(ctx.pos(seq).unwrap(), Pos(11));
}

/// The last sampler of a chain: it bans all tokens at every n-th draw.
#[derive(Clone)]
struct Mute {
    calls: u64,
    every: u64,
}

impl Sampler for Mute {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        self.calls += 1;
        if self.calls.is_multiple_of(self.every) {
            *candidates = Candidates::new(288);
        }
    }
}

#[test]
fn a_step_in_which_no_token_is_left_can_be_tried_again() {
    for name in ["llama", "falcon_h1", "mamba2"] {
        let target = model(name);
        let expected = plain(&target, Choice::Greedy);
        let mut n_errors = 0;
        for every in [2, 3, 5, 7] {
            let mut ctx = Context::new(&target, params()).unwrap();
            let seq = ctx.sequence().unwrap();
            ctx.append(seq, &prompt()).unwrap();
            let mute = Mute { calls: 0, every };
            let mut chain = Chain::builder(288).with(Greedy).with(mute).build();
            let drafter = Wrong { right: expected.tokens.clone(), every: 4 };
            let mut speculative = Speculative::new(drafter, seq, N_DRAFT);
            let mut tokens = vec![];
            while tokens.len() < N_TOKENS {
                let (next, pos) = (speculative.next(), ctx.pos(seq).unwrap());
                match speculative.step(&mut ctx, &mut chain, N_TOKENS - tokens.len(), |_| false) {
                    Ok(step) => tokens.extend_from_slice(step.tokens),
                    Err(Error::NoToken { .. }) => {
                        n_errors += 1;
                        assert_eq!(
                            (speculative.next(), ctx.pos(seq).unwrap()),
                            (next, pos),
                            "{name}, every {every}"
                        );
                    }
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(speculative.next(), tokens.last().copied());
            }
            speculative.flush(&mut ctx).unwrap();
            assert_eq!(tokens, expected.tokens, "{name}, every {every}");
            assert_eq!(ctx.tokens(seq).unwrap(), expected.held);
            assert_bits(name, ctx.logits(seq).unwrap(), &expected.logits);
        }
        assert!(n_errors > 0, "{name}");
    }
}

#[test]
fn a_memory_without_a_limit_is_guessed_for_beyond_the_context() {
    let target = model("mamba2");
    let expected = plain(&target, Choice::Greedy);
    let small = params().n_ctx(48);
    let right = expected.tokens.clone();
    let drafters: [Box<dyn Drafter>; 2] = [
        Box::new(Wrong { right, every: usize::MAX }),
        Box::new(DraftModel::new(&target, &target, small).unwrap()),
    ];
    for drafter in drafters {
        let mut ctx = Context::new(&target, small).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt()).unwrap();
        let (story, stats) = speculate(&mut ctx, seq, Choice::Greedy, drafter);
        assert_same("beyond the context", &story, &expected);
        assert!(stats.n_decodes < N_TOKENS as u64 / 3, "{stats:?}");
    }
}
