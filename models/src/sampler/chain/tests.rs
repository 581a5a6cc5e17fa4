//! Chains of samplers: what they draw, and what they remember.

use super::super::tests::logits_of;
use super::*;
use crate::sampler::Greedy;
use proptest::prelude::*;

fn story(chain: &mut Chain, logits: &[f32], n: usize) -> Vec<u32> {
    let mut next = || {
        let token = chain.sample(logits)?;
        chain.accept(token);
        Some(token.0)
    };
    (0..n).filter_map(|_| next()).collect()
}

#[test]
fn tokens_come_as_often_as_their_probability_says() {
    let probabilities = [0.5, 0.3, 0.15, 0.05];
    let mut chain = Chain::builder(4).seed(42).build();
    let tokens = story(&mut chain, &logits_of(&probabilities), 20_000);
    for (token, p) in (0..).zip(probabilities) {
        let share = tokens.iter().filter(|&&t| t == token).count() as f32 / 20_000.0;
        assert!((share - p).abs() < 0.01, "token {token}: {share} instead of {p}");
    }
}

#[test]
fn the_seed_tells_the_story() {
    let logits = [0.0; 50];
    let settings = |seed| Settings { seed, ..Settings::default() };
    let a = story(&mut Chain::new(50, &settings(1)), &logits, 40);
    let b = story(&mut Chain::new(50, &settings(1)), &logits, 40);
    let c = story(&mut Chain::new(50, &settings(2)), &logits, 40);
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn the_drawn_tokens_are_pinned() {
    // A change of any bit on the way from seed to token changes saved conversations: it has to be
    // noticed.
    let logits: Vec<f32> = (0..32).map(|i| ((i * 37) % 17) as f32 * 0.25).collect();
    let mut chain = Chain::new(32, &Settings { seed: 7, repeat_penalty: 1.1, ..Settings::default() });
    assert_eq!(story(&mut chain, &logits, 12), [5, 11, 3, 10, 16, 22, 22, 5, 28, 22, 11, 25]);
}

#[test]
fn a_clone_goes_the_same_way_and_a_reset_starts_again() {
    let logits = [0.0, 0.5, 1.0, 0.25];
    let mut chain = Chain::new(4, &Settings { frequency_penalty: 0.5, ..Settings::default() });
    let start = story(&mut chain, &logits, 10);
    let mut twin = chain.clone();
    assert_eq!(story(&mut chain, &logits, 10), story(&mut twin, &logits, 10));
    chain.reset();
    assert_eq!(story(&mut chain, &logits, 10), start);
}

#[test]
fn temperature_zero_takes_the_best_whatever_the_seed() {
    for seed in 0..20 {
        let mut chain = Chain::new(3, &Settings { temp: 0.0, seed, ..Settings::default() });
        assert_eq!(chain.sample(&[1.0, 1.5, 1.5]), Some(Token(1)));
    }
}

#[test]
fn penalties_break_a_loop() {
    let mut chain = Chain::new(
        2,
        &Settings { temp: 0.0, presence_penalty: 1.0, repeat_last_n: 1, ..Settings::default() },
    );
    assert_eq!(story(&mut chain, &[1.0, 0.5], 4), [0, 1, 0, 1]);
}

#[test]
fn a_ban_holds_even_at_high_temperature() {
    let logit_bias = alloc::vec![(Token(0), f32::NEG_INFINITY)];
    let mut chain = Chain::new(3, &Settings { temp: 100.0, logit_bias, ..Settings::default() });
    assert!(!story(&mut chain, &[9.0, 0.0, 0.0], 200).contains(&0));
}

#[test]
fn no_logits_no_token() {
    assert_eq!(Chain::new(0, &Settings::default()).sample(&[]), None);
}

/// Return typical chains: greedy, at a temperature, of one token, and with every sampler on.
fn usual(logit_bias: Vec<(Token, f32)>) -> [Settings; 6] {
    let of = |temp, top_k| Settings { temp, top_k, logit_bias: logit_bias.clone(), ..Settings::default() };
    let all = Settings { typical_p: 0.5, repeat_penalty: 1.2, presence_penalty: 0.5, ..of(0.8, 5) };
    [of(0.0, 40), of(0.8, 40), of(0.8, 1), of(0.8, 0), of(1e-45, 0), all]
}

#[test]
fn what_is_banned_is_never_drawn() {
    let ban = |n: u32| (0..n).map(|id| (Token(id), f32::NEG_INFINITY)).collect::<Vec<_>>();
    for settings in usual(ban(4)) {
        assert_eq!(Chain::new(4, &settings).sample(&[1.0, 2.0, 3.0, 4.0]), None, "{settings:?}");
    }
    for settings in usual(ban(3)) {
        let mut chain = Chain::new(4, &settings);
        let told: Vec<_> = (0..20).map(|_| chain.sample(&[9.0, 9.0, 9.0, -30.0])).collect();
        assert_eq!(told, [Some(Token(3)); 20], "{settings:?}");
    }
    for settings in usual(Vec::new()) {
        let mut chain = Chain::new(3, &settings);
        assert_eq!(chain.sample(&[f32::NAN, f32::NEG_INFINITY, f32::NAN]), None, "{settings:?}");
        assert_eq!(chain.sample(&[f32::NAN, f32::NEG_INFINITY, -5.0]), Some(Token(2)), "{settings:?}");
    }
}

/// Bans the token accepted last, and counts.
#[derive(Clone)]
struct NotTwice {
    last: Option<Token>,
    n: u8,
}

impl Sampler for NotTwice {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        self.n = self.n.wrapping_add(1);
        self.last.into_iter().for_each(|token| candidates.add(token, f32::NEG_INFINITY));
    }

    fn accept(&mut self, token: Token) {
        self.last = Some(token);
    }

    fn reset(&mut self) {
        (self.last, self.n) = (None, 0);
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.n);
        bytes.extend(self.last.map_or(255, |token| token.0 as u8).to_le_bytes());
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let &[n, last] = bytes else {
            let found = bytes.len() as u64;
            return Err(Error::SavedLength { what: "the last token", found, wanted: 2 });
        };
        (self.n, self.last) = (n, Some(Token(last.into())).filter(|_| last != 255));
        Ok(())
    }
}

fn not_twice() -> Chain {
    Chain::builder(3).with(NotTwice { last: None, n: 0 }).with(Greedy).build()
}

#[test]
fn a_sampler_has_state_of_its_own() {
    let logits = [1.0, 3.0, 2.0];
    let mut chain = not_twice();
    assert_eq!(story(&mut chain, &logits, 4), [1, 2, 1, 2]);
    let mut twin = chain.clone();
    assert_eq!(story(&mut twin, &logits, 1), [1]);
    assert_eq!(story(&mut chain, &logits, 2), [1, 2], "the clone changed the original");
    let state = State::decode(&chain.state().encode()).unwrap();
    assert_eq!(state.samplers, [SamplerState { index: 0, bytes: alloc::vec![6, 2] }]);
    let mut other = not_twice();
    other.resume(&state).unwrap();
    assert_eq!(
        (story(&mut other, &logits, 1), other.state()),
        (story(&mut chain, &logits, 1), chain.state())
    );
    chain.reset();
    assert_eq!(story(&mut chain, &logits, 1), [1]);
}

#[test]
fn a_refused_state_changes_nothing() {
    let mut chain = not_twice();
    story(&mut chain, &[1.0, 3.0, 2.0], 3);
    let before = chain.state();
    let with = |index, bytes: &[u8]| State {
        seed: 9,
        samplers: alloc::vec![SamplerState { index, bytes: bytes.to_vec() }],
        ..State::default()
    };
    let refused = [with(0, &[1]), with(1, &[1]), with(2, &[1, 1])];
    for state in &refused {
        assert!(chain.resume(state).is_err(), "{state:?}");
        assert_eq!(chain.state(), before);
    }
    chain.resume(&with(0, &[1, 1])).unwrap();
}

#[test]
fn a_state_that_was_not_saved_follows_from_the_tokens_or_is_missed() {
    let logits = [1.0, 3.0, 2.0];
    let state = State { tokens: alloc::vec![Token(1)], ..State::default() };
    let mut chain = not_twice();
    assert!(matches!(chain.resume(&state), Err(Error::NoSamplerState { index: 0 })));
    chain.resume_after(&state, &[Token(0), Token(1)]).unwrap();
    assert_eq!(story(&mut chain, &logits, 2), [2, 1], "it did not know that 1 came");
}

#[test]
fn a_state_of_other_samplers_is_named() {
    let samplers = alloc::vec![SamplerState { index: 0, bytes: alloc::vec![1, 1] }];
    let state = State { samplers, ..State::default() };
    let mut stateless = Chain::builder(3).with(Greedy).build();
    let mut empty = Chain::builder(3).build();
    for chain in [&mut stateless, &mut empty] {
        assert!(matches!(chain.resume(&state), Err(Error::OtherSamplers { index: 0 })));
        assert!(matches!(chain.resume_after(&state, &[]), Err(Error::OtherSamplers { index: 0 })));
    }
}

#[test]
fn tokens_that_were_not_remembered_are_those_held() {
    let settings = Settings { temp: 0.0, presence_penalty: 9.0, ..Settings::default() };
    let state = Chain::new(3, &Settings::default()).state();
    let mut chain = Chain::new(3, &settings);
    chain.resume_after(&state, &[Token(1)]).unwrap();
    assert_eq!(chain.sample(&[1.0, 3.0, 2.0]), Some(Token(2)));
}

#[test]
fn settings_go_behind_samplers_of_ones_own() {
    let settings = Settings { temp: 0.0, repeat_penalty: 1.5, seed: 3, ..Settings::default() };
    let own = NotTwice { last: None, n: 0 };
    let mut chain = Chain::builder(3).with(own).last_n(100).settings(&settings).build();
    assert_eq!((chain.seed(), chain.steps.len()), (3, 3));
    assert_eq!(story(&mut chain, &[1.0, 3.0, 2.0], 3), [1, 2, 1]);
    assert_eq!(chain.state().samplers.len(), 1);
}

fn any_logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -30.0f32..30.0,
        1 => prop::num::f32::ANY,
        1 => prop::sample::select(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -0.0][..]),
    ]
}

proptest! {
    #[test]
    fn any_logits_under_any_settings_give_a_token(
        logits in prop::collection::vec(any_logit(), 1..200),
        temp in any_logit(), top_k in 0usize..100, top_p in any_logit(), min_p in any_logit(),
        typical_p in any_logit(), repeat_penalty in any_logit(), frequency_penalty in any_logit(),
        bias in any_logit(), seed: u64,
    ) {
        let logit_bias = alloc::vec![(Token(0), bias), (Token(3), -bias)];
        let settings = Settings {
            seed, temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty, logit_bias,
            ..Settings::default()
        };
        let mut chain = Chain::new(logits.len(), &settings);
        for token in story(&mut chain, &logits, 5) {
            prop_assert!((token as usize) < logits.len());
        }
        let drawn = chain.sample(&logits);
        let is_any_left = chain.candidates().max_logit() > f32::NEG_INFINITY;
        prop_assert_eq!(drawn.is_some(), is_any_left);
        let logit = |token| chain.candidates().items().iter().find(|c| Some(c.id) == token).map(|c| c.logit);
        prop_assert!(logit(drawn) != Some(f32::NEG_INFINITY));
    }

    #[test]
    fn probabilities_sum_to_one(logits in prop::collection::vec(-30.0f32..30.0, 1..300), top_k in 0usize..50) {
        let mut chain = Chain::new(logits.len(), &Settings { top_k, ..Settings::default() });
        chain.sample(&logits);
        let mut left = chain.candidates().clone();
        let total = left.softmax();
        let sum: f64 = left.items().iter().map(|c| f64::from(c.score) / total).sum();
        prop_assert!((sum - 1.0).abs() < 1e-12);
    }
}
