//! A session compared with a naive one that starts anew at every step: tokens, text, chains and
//! logits are the same, bit for bit.

use super::*;
use backstitch_models::sampler::{Rng, State};
use backstitch_models::session::{Finish, GenerateOptions, Randomness};
use backstitch_models::speculative::Lookup;
use backstitch_models::vocab::TextStream;
use backstitch_models::{Batch, Cancel, Pos, SaveOptions, SeqId};
use backstitch_testing::assert_bits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;

/// The samplers of a chain.
#[derive(Clone, Copy)]
struct Samplers {
    make: fn(&Model) -> Chain,
    /// True if some have random numbers of their own.
    draw_alone: bool,
}

const DRIFT: Samplers = Samplers { make: chain, draw_alone: false };
const ADAPTIVE: Samplers = Samplers { make: adaptive, draw_alone: true };
const MIROSTAT: Samplers = Samplers { make: mirostat, draw_alone: false };

/// An event of a branch.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Fed(Token),
    Drawn(Token),
    /// The end of the text was drawn.
    End,
    Random {
        seed: u64,
        rng: u64,
        /// True if samplers with random numbers of their own start among these too.
        is_new: bool,
    },
}

/// Return the state of `chain` with other random numbers.
fn with_numbers(chain: &Chain, seed: u64, rng: u64, is_new: bool) -> State {
    let mut state = State { seed, rng, ..chain.state() };
    let mut from_seed = Rng::new(seed);
    let n_drawn = (0u32..)
        .find(|_| {
            from_seed.state() == rng || {
                from_seed.bits();
                false
            }
        })
        .unwrap();
    // The number of those used ends the state of each such sampler. DRY, which has none, is first.
    let own = state.samplers.iter_mut().filter(|sampler| is_new && sampler.index > 0);
    for used in own.filter_map(|sampler| sampler.bytes.last_chunk_mut::<4>()) {
        *used = (2 * n_drawn).to_le_bytes();
    }
    state
}

/// A branch as a list of events. Everything else is computed from them, from the beginning.
#[derive(Clone)]
struct Naive {
    samplers: Samplers,
    events: Vec<Event>,
    /// The start of the last generation, and the events before it.
    generated: Option<(usize, Vec<Event>)>,
}

impl Naive {
    fn new(samplers: Samplers) -> Self {
        Naive { samplers, events: Vec::new(), generated: None }
    }

    fn tokens(&self) -> Vec<Token> {
        let token = |event: &Event| match event {
            Event::Fed(token) | Event::Drawn(token) => Some(*token),
            _ => None,
        };
        self.events.iter().filter_map(token).collect()
    }

    /// Return to the state in which the branch first had `n` tokens; other random numbers chosen
    /// there stay.
    fn rollback(&mut self, n: usize) {
        let is_token = |event: &Event| matches!(event, Event::Fed(_) | Event::Drawn(_));
        let places = self.events.iter().enumerate().filter(|(_, event)| is_token(event));
        let n_events = n.checked_sub(1).map_or(0, |last| places.map(|(i, _)| i + 1).nth(last).unwrap());
        let here = self.events[n_events..].iter().take_while(|event| !is_token(event));
        let n_set = here.enumerate().filter(|(_, event)| matches!(event, Event::Random { .. })).last();
        self.events.truncate(n_events + n_set.map_or(0, |(i, _)| i + 1));
        self.generated.take_if(|(start, _)| *start > n);
    }

    fn feed(&mut self, tokens: &[Token]) {
        self.events.extend(tokens.iter().map(|&token| Event::Fed(token)));
    }

    /// Return a fresh context and a fresh chain that went through all events; every draw gives the
    /// token that it gave.
    fn replay(&self, model: &Model) -> (Context, SeqId, Chain) {
        let mut ctx = Context::new(model, params()).unwrap();
        let (seq, tokens) = (ctx.sequence().unwrap(), self.tokens());
        let mut batch = Batch::new();
        for (pos, &token) in (0..).zip(&tokens) {
            batch.push(token, Pos(pos), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        let (mut chain, mut n) = ((self.samplers.make)(model), 0);
        for event in &self.events {
            match *event {
                Event::Fed(token) => chain.accept(token),
                Event::Drawn(token) => {
                    assert_eq!(chain.sample(ctx.output(n - 1).unwrap()), Some(token));
                    chain.accept(token);
                }
                Event::End => drop(chain.sample(ctx.output(n - 1).unwrap())),
                Event::Random { seed, rng, is_new } => {
                    let is_new = is_new && self.samplers.draw_alone;
                    chain.resume(&with_numbers(&chain, seed, rng, is_new)).unwrap();
                }
            }
            n += usize::from(matches!(event, Event::Fed(_) | Event::Drawn(_)));
        }
        (ctx, seq, chain)
    }

    /// Generates at most `n` tokens, until the text ends or one of `stops` came. Returns the text
    /// before that, and why it ended.
    fn generate(&mut self, model: &Model, n: usize, stops: &[String]) -> (String, Finish) {
        let (mut ctx, seq, mut chain) = self.replay(model);
        self.generated = Some((self.tokens().len(), self.events.clone()));
        let (mut stream, mut text) = (TextStream::default(), String::new());
        for _ in 0..n {
            if self.tokens().len() >= N_CTX as usize {
                return (text, Finish::ContextFull);
            }
            let logits = ctx.logits(seq).unwrap().to_vec();
            let token = chain.sample(&logits).unwrap();
            if model.vocab().is_eog(token) {
                self.events.push(Event::End);
                return (text, Finish::End(token));
            }
            chain.accept(token);
            self.events.push(Event::Drawn(token));
            if !model.vocab().is_hidden(token) {
                stream.push(model.vocab().piece(token), &mut text);
            }
            let met =
                stops.iter().enumerate().filter_map(|(index, stop)| Some((text.find(stop)?, index))).min();
            if let Some((at, index)) = met {
                text.truncate(at);
                return (text, Finish::Stop { index });
            }
            ctx.append(seq, &[token]).unwrap();
        }
        (text, Finish::Limit)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Feed(Vec<u32>),
    Hold {
        keep: u8,
        new: Vec<u32>,
    },
    Edit {
        keep: u8,
        new: Vec<u32>,
    },
    Rollback(u8),
    /// At most so many tokens; the text of the last ones is a stop string if wanted.
    Generate {
        n: u8,
        stop: Option<(u8, u8)>,
    },
    /// Drop a generation after so many pieces.
    Begin {
        n: u8,
        n_pieces: u8,
    },
    Cancelled,
    Regenerate {
        seed: Option<u64>,
        go_on: bool,
        n: u8,
    },
    Reseed(u64),
    Branch,
    Empty,
    Switch(u8),
    Remove(u8),
    Look,
    SaveAll,
}

fn any_op() -> impl Strategy<Value = Op> {
    let tokens = || prop::collection::vec(3u32..280, 1..20);
    prop_oneof![
        3 => tokens().prop_map(Op::Feed),
        2 => (any::<u8>(), tokens()).prop_map(|(keep, new)| Op::Hold { keep, new }),
        2 => (any::<u8>(), tokens()).prop_map(|(keep, new)| Op::Edit { keep, new }),
        3 => any::<u8>().prop_map(Op::Rollback),
        6 => (1u8..24, prop::option::of((any::<u8>(), 1u8..6))).prop_map(|(n, stop)| Op::Generate { n, stop }),
        2 => (1u8..16, 0u8..6).prop_map(|(n, n_pieces)| Op::Begin { n, n_pieces }),
        1 => Just(Op::Cancelled),
        3 => (prop::option::of(any::<u64>()), any::<bool>(), 1u8..12)
            .prop_map(|(seed, go_on, n)| Op::Regenerate { seed, go_on, n }),
        1 => any::<u64>().prop_map(Op::Reseed),
        2 => Just(Op::Branch),
        1 => Just(Op::Empty),
        3 => any::<u8>().prop_map(Op::Switch),
        1 => any::<u8>().prop_map(Op::Remove),
        2 => Just(Op::Look),
        2 => Just(Op::SaveAll),
    ]
}

struct Pair<'a> {
    model: &'a Model,
    samplers: Samplers,
    session: Session,
    naive: BTreeMap<SeqId, Naive>,
    guesses: bool,
}

impl<'a> Pair<'a> {
    fn new(model: &'a Model, samplers: Samplers, guesses: bool) -> Self {
        let ctx = Context::new(model, params()).unwrap();
        let session = Session::with_chain(ctx, (samplers.make)(model)).unwrap();
        let naive = [(session.current(), Naive::new(samplers))].into();
        let mut pair = Pair { model, samplers, session, naive, guesses };
        pair.guess();
        pair.run(&Op::Feed(vec![30, 31, 32, 30, 31]));
        pair
    }

    fn guess(&mut self) {
        if self.guesses {
            self.session.set_drafter(Some(Box::new(Lookup { n_min: 1, ..Lookup::default() })), 4);
        }
    }

    fn here(&mut self) -> &mut Naive {
        self.naive.get_mut(&self.session.current()).unwrap()
    }

    fn n_held(&self) -> usize {
        self.session.tokens().len()
    }

    /// Return a position of the branch.
    fn pos(&self, at: u8) -> usize {
        usize::from(at) * self.n_held() / 255
    }

    fn fits(&self, held: usize, new: usize) -> bool {
        // Every branch has cells enough of its own.
        held + new <= N_CTX as usize / 4
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Feed(new) if self.fits(self.n_held(), new.len()) => {
                self.session.feed(&tokens(new)).unwrap();
                self.here().feed(&tokens(new));
            }
            Op::Hold { keep, new } if self.fits(self.pos(*keep), new.len()) => {
                let mut all = self.here().tokens();
                all.truncate(self.pos(*keep));
                all.extend(tokens(new));
                let same = self.here().tokens().iter().zip(&all).take_while(|(a, b)| a == b).count();
                let held = self.session.set_tokens(&all).unwrap();
                assert_eq!((held.kept, held.evaluated), (same, all.len() - same));
                self.go_back(same);
                self.here().feed(&all[same..]);
            }
            Op::Edit { keep, new } if self.fits(self.pos(*keep), new.len()) => {
                let keep = self.pos(*keep);
                self.session.edit(Pos(keep as i32), &tokens(new)).unwrap();
                self.go_back(keep);
                self.here().feed(&tokens(new));
            }
            Op::Rollback(at) => {
                let n = self.pos(*at);
                self.session.rollback(Pos(n as i32)).unwrap();
                self.go_back(n);
            }
            Op::Generate { n, stop } => self.generate(*n, *stop),
            Op::Begin { n, n_pieces } => self.begin(*n, *n_pieces),
            Op::Cancelled => self.cancelled(),
            Op::Regenerate { seed, go_on, n } => self.regenerate(*seed, *go_on, *n),
            Op::Reseed(seed) => {
                self.session.reseed(*seed);
                self.here().events.push(Event::Random { seed: *seed, rng: *seed, is_new: true });
            }
            Op::Branch | Op::Empty if self.naive.len() < 4 => {
                let fork = matches!(op, Op::Branch).then(|| self.here().clone());
                let id = if fork.is_some() { self.session.branch() } else { self.session.empty_branch() };
                let mut branch = fork.unwrap_or_else(|| Naive::new(self.samplers));
                if branch.tokens().is_empty() && branch.events.is_empty() {
                    // An empty branch draws from the seed of the one that it was made beside.
                    let seed = self.session.chain().seed();
                    branch.events.push(Event::Random { seed, rng: seed, is_new: true });
                }
                self.naive.insert(id.unwrap(), branch);
            }
            Op::Switch(at) => {
                let ids = self.session.branches();
                self.session.switch(ids[usize::from(*at) % ids.len()]).unwrap();
            }
            Op::Remove(at) if self.naive.len() > 1 => {
                let ids = self.session.branches();
                let id = ids[usize::from(*at) % ids.len()];
                self.session.remove(id).unwrap();
                self.naive.remove(&id);
            }
            Op::Look => self.look(),
            Op::SaveAll => self.save_all(),
            _ => {}
        }
        let ids: Vec<SeqId> = self.naive.keys().copied().collect();
        assert_eq!(self.session.branches(), ids);
        let expected = self.here().tokens();
        assert_eq!(self.session.tokens(), expected);
    }

    /// Roll the naive branch back; nothing happens if it ends there already.
    fn go_back(&mut self, n: usize) {
        if n < self.here().tokens().len() {
            self.here().rollback(n);
        }
    }

    fn generate(&mut self, n: u8, stop: Option<(u8, u8)>) {
        if self.n_held() == 0 || !self.fits(self.n_held(), n.into()) {
            return;
        }
        let model = self.model;
        // A stop string that comes: part of the text that would come without it.
        let would = self.here().clone().generate(model, n.into(), &[]).0;
        let stops = stop.and_then(|(at, len)| {
            let start = would.floor_char_boundary(usize::from(at) % would.len().max(1));
            let end = would.ceil_char_boundary(start + usize::from(len));
            Some(vec!["no such text".to_owned(), would.get(start..end.min(would.len()))?.to_owned()])
        });
        let stops = stops.filter(|stops| !stops[1].is_empty()).unwrap_or_default();
        let (text, finish) = self.here().generate(model, n.into(), &stops);
        let mut options = GenerateOptions::default().limit(n.into());
        options.stops = stops.clone();
        let (mut told, mut n_told) = (String::new(), 0);
        let mut generation = self.session.generate(options);
        for piece in &mut generation {
            let piece = piece.unwrap();
            told += &piece.text;
            n_told += piece.tokens.len();
            assert!(text.starts_with(&told), "{told:?} is not a beginning of {text:?}, {stops:?}");
        }
        assert_eq!((told, generation.finish()), (text.clone(), Some(finish)));
        assert!(n_told <= n.into());
        if matches!(finish, Finish::Stop { .. }) && n.is_multiple_of(2) {
            self.cut_stop(&text);
        }
    }

    /// The branch has the text before the stop string, and nothing more.
    fn cut_stop(&mut self, text: &str) {
        let cut = self.session.cut_stop().unwrap().unwrap();
        let after = self.session.tokens().to_vec();
        assert_eq!(after.len(), cut.kept + cut.evaluated);
        self.here().rollback(cut.kept);
        self.here().feed(&after[cut.kept..]);
        let start = self.here().generated.clone().unwrap().0;
        let (mut stream, mut held) = (TextStream::default(), String::new());
        let vocab = self.model.vocab();
        let shown = after[start..].iter().filter(|&&token| !vocab.is_hidden(token));
        shown.for_each(|&token| stream.push(vocab.piece(token), &mut held));
        assert_eq!(held, text);
        assert!(self.session.cut_stop().unwrap().is_none());
    }

    fn begin(&mut self, n: u8, n_pieces: u8) {
        if self.n_held() == 0 || !self.fits(self.n_held(), n.into()) {
            return;
        }
        let before = self.n_held();
        let mut all = Vec::new();
        let mut generation = self.session.generate(GenerateOptions::default().limit(n.into()));
        for piece in generation.by_ref().take(n_pieces.into()) {
            all.extend(piece.unwrap().tokens);
        }
        let finish = generation.finish();
        assert_eq!(self.session.tokens()[before..], all);
        let model = self.model;
        let mut full = self.here().clone();
        full.generate(model, all.len().max(1), &[]);
        let is_end = matches!(finish, Some(Finish::End(_)));
        let here = self.here();
        here.generated = Some((before, here.events.clone()));
        let drawn = full.events.iter().filter(|event| matches!(event, Event::Drawn(_)));
        let n_drawn = here.events.iter().filter(|event| matches!(event, Event::Drawn(_))).count();
        here.events.extend(drawn.skip(n_drawn).take(all.len()).cloned());
        if is_end {
            here.events.push(Event::End);
        }
    }

    fn cancelled(&mut self) {
        let cancel = Cancel::new();
        cancel.cancel();
        self.session.set_cancel(Some(cancel));
        let before = self.session.tokens().to_vec();
        let mut generation = self.session.generate(GenerateOptions::default().limit(3));
        assert!(generation.next().is_none());
        assert_eq!(generation.finish(), Some(Finish::Cancelled));
        assert!(matches!(self.session.feed(&[Token(3)]), Err(Error::Cancelled)));
        assert_eq!(self.session.tokens(), before);
        self.session.set_cancel(None);
        let here = self.here();
        here.generated = Some((before.len(), here.events.clone()));
    }

    fn regenerate(&mut self, seed: Option<u64>, go_on: bool, n: u8) {
        let Some((start, events)) = self.here().generated.clone() else {
            let refused = self.session.regenerate(Randomness::Repeat);
            assert!(matches!(refused, Err(Error::NothingGenerated { .. })), "{refused:?}");
            return;
        };
        let chain = self.session.chain();
        let randomness = match (seed, go_on) {
            (Some(seed), _) => (Randomness::Seed(seed), Some((seed, seed))),
            (None, true) => (Randomness::Continue, Some((chain.seed(), chain.rng().state()))),
            (None, false) => (Randomness::Repeat, None),
        };
        self.session.regenerate(randomness.0).unwrap();
        if start < self.here().tokens().len() {
            self.here().rollback(start);
        }
        let model = self.model;
        let (seed, rng) = randomness.1.unwrap_or_else(|| {
            self.here().events = events;
            let chain = self.here().replay(model).2;
            (chain.seed(), chain.rng().state())
        });
        let is_new = randomness.1.is_some();
        self.here().events.push(Event::Random { seed, rng, is_new });
        self.generate(n, None);
    }

    /// Compare the chain and the logits.
    fn look(&mut self) {
        let model = self.model;
        let (mut ctx, seq, chain) = self.here().replay(model);
        assert_eq!(self.session.chain().state(), chain.state());
        if self.n_held() > 0 {
            let logits = ctx.logits(seq).unwrap();
            assert_bits("logits", self.session.logits().unwrap(), logits);
        }
    }

    fn save_all(&mut self) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.bst");
        let here = self.session.current();
        self.session.save_all_with(&path, &SaveOptions::default().sync(false)).unwrap();
        let mut ctx = Context::new(self.model, params()).unwrap();
        let restored = ctx.restore_all(&path).unwrap();
        self.session = Session::adopt(ctx, &(self.samplers.make)(self.model), &restored).unwrap();
        self.session.switch(here).unwrap();
        self.guess();
        self.naive.values_mut().for_each(|naive| naive.generated = None);
    }
}

fn as_naive(name: &str) {
    as_naive_with(name, DRIFT, 48);
}

fn as_naive_with(name: &str, samplers: Samplers, cases: u32) {
    let model = model(name);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let programs = (prop::collection::vec(any_op(), 1..24), any::<bool>());
    let result = runner.run(&programs, |(ops, guesses)| {
        let mut pair = Pair::new(&model, samplers, guesses);
        ops.iter().for_each(|op| pair.run(op));
        for id in pair.session.branches() {
            pair.session.switch(id).unwrap();
            pair.look();
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn a_rollback_behind_a_restored_end_of_text_draws_as_before() {
    let model = model("falcon_h1");
    let mut pair = Pair::new(&model, DRIFT, false);
    for n in [1, 6, 7] {
        pair.run(&Op::Generate { n, stop: None });
    }
    pair.run(&Op::SaveAll);
    pair.run(&Op::Feed(vec![3; 10]));
    pair.run(&Op::Edit { keep: 174, new: vec![3] });
    pair.look();
}

#[test]
fn a_session_of_llama_is_as_a_naive_one() {
    as_naive("llama");
}

#[test]
fn a_session_of_mamba_is_as_a_naive_one() {
    as_naive("mamba");
}

#[test]
fn a_session_of_rwkv7_is_as_a_naive_one() {
    as_naive("rwkv7");
}

#[test]
fn a_session_of_falcon_h1_is_as_a_naive_one() {
    as_naive("falcon_h1");
}

#[test]
fn a_session_of_gemma3_is_as_a_naive_one() {
    as_naive("gemma3");
}

#[test]
fn a_session_with_adaptive_p_is_as_a_naive_one() {
    as_naive_with("llama", ADAPTIVE, 32);
}

#[test]
fn a_session_with_mirostat_is_as_a_naive_one() {
    as_naive_with("llama", MIROSTAT, 32);
}
