//! The functions that make samplers of the library.

use super::built_in::{BuiltIn, Role, random_seed, settings};
use super::registry::{Known, SamplerRef};
use crate::border::{In, Text, exports};
use crate::error::Error;
use crate::handles::Handle;
use crate::layouts::LogitBias as CBias;
use crate::model::of_vocab;
use backstitch_models::Token;
use backstitch_models::grammar::{GrammarSampler, Trigger, Triggers};
use backstitch_models::sampler::{
    AdaptiveP, Builder, Chain, Dry, DryBreakers, DryParams, DynamicTemperature, Generator, Greedy, Infill,
    Kind, LogitBias, MinP, Mirostat, MirostatVersion, Penalties, TopK, TopNSigma, TopP, Typical,
};
use std::ffi::CStr;
use std::sync::{Arc, Mutex};

/// The seed that stands for a random one.
const RANDOM_SEED: u32 = u32::MAX;
/// The largest vocabulary and history that a sampler keeps tables for.
const LARGEST: i32 = 1 << 24;
/// The most texts or tokens of a list.
const MOST: usize = 1 << 16;

/// Keep a sampler of the library.
fn keep(name: &'static CStr, role: Role, seed: Option<u32>, chain: Builder) -> Result<SamplerRef, Error> {
    let built_in = BuiltIn { name, role, seed, is_seed_random: false, chain: chain.build() };
    Ok(of(built_in))
}

fn of(built_in: BuiltIn) -> SamplerRef {
    SamplerRef::of(Known::BuiltIn(Arc::new(Mutex::new(built_in))))
}

/// Start a chain with llama.cpp's conventions that keeps at least `min_keep` candidates.
fn builder(min_keep: usize) -> Builder {
    Chain::builder(0).settings(&settings(0, min_keep))
}

/// Keep a sampler that changes candidates, or does nothing unless `is_on`.
fn filter(name: &'static CStr, is_on: bool, chain: Builder) -> Result<SamplerRef, Error> {
    keep(name, if is_on { Role::Filter } else { Role::Inert }, None, chain)
}

/// Keep a sampler that uses random numbers of `seed`, or of a seed that each beginning draws.
fn drawing(
    name: &'static CStr,
    role: Role,
    seed: u32,
    make: impl FnOnce(u32) -> Builder,
) -> Result<SamplerRef, Error> {
    let is_seed_random = seed == RANDOM_SEED;
    let seed = if is_seed_random { random_seed() } else { seed };
    Ok(of(BuiltIn { name, role, seed: Some(seed), is_seed_random, chain: make(seed).build() }))
}

/// Keep a sampler that draws, with random numbers of `seed`.
fn choice(name: &'static CStr, seed: u32, add: impl FnOnce(Builder) -> Builder) -> Result<SamplerRef, Error> {
    drawing(name, Role::Choice, seed, |seed| add(Chain::builder(0).settings(&settings(seed, 0))))
}

/// Make a sampler of penalties.
///
/// # Errors
/// [`Error::Range`] for a vocabulary that is none.
pub fn penalties(
    n_vocab: i32,
    last_n: i32,
    repeat: f32,
    frequency: f32,
    presence: f32,
) -> Result<SamplerRef, Error> {
    if n_vocab < 0 {
        return Err(Error::Range { what: "n_vocab", found: n_vocab.into(), wanted: "a positive number" });
    }
    let is_on = last_n > 0 && (repeat != 1.0 || frequency != 0.0 || presence != 0.0);
    let n_vocab = if n_vocab > LARGEST { 1 << 20 } else { n_vocab };
    let chain = Chain::builder(n_vocab as usize).settings(&settings(0, 0));
    let chain = chain.last_n(last_n.clamp(0, LARGEST) as usize);
    filter(c"penalties", is_on, chain.with(Penalties { repeat, frequency, presence }))
}

/// Arguments of DRY, as C hands them over.
pub struct DryArguments {
    /// The penalty of a repetition one token longer than allowed.
    pub multiplier: f32,
    /// The factor for each further token.
    pub base: f32,
    /// The longest repetition that costs nothing.
    pub allowed_length: i32,
    /// The recent tokens that are searched; none if it is negative.
    pub last_n: i32,
    /// Texts that repetitions do not reach across.
    pub breakers: In<Text>,
    /// Their number.
    pub n_breakers: usize,
}

/// Make a DRY sampler; one that is turned off looks at nothing else.
///
/// # Errors
/// Those of the vocabulary's handle; [`Error::Text`] or [`Error::Range`] for a list of breakers
/// that cannot be read.
pub fn dry(vocab: Handle, arguments: &DryArguments) -> Result<SamplerRef, Error> {
    let params = DryParams {
        multiplier: arguments.multiplier,
        base: arguments.base,
        allowed_length: arguments.allowed_length.max(0) as usize,
        last_n: arguments.last_n.clamp(0, LARGEST) as usize,
    };
    let is_on = params.multiplier != 0.0 && params.base >= 1.0 && params.last_n > 0;
    if !is_on {
        return filter(c"dry", false, builder(0));
    }
    let model = of_vocab(vocab)?;
    let texts = texts(&arguments.breakers, arguments.n_breakers, "seq_breakers", Nulls::Skipped)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let dry = Dry::new(&params, &DryBreakers::of_texts(&model.vocab, &texts));
    filter(c"dry", true, Chain::builder(model.vocab.n_vocab()).settings(&settings(0, 0)).with(dry))
}

/// Ways to take null in the place of a list of texts, or of one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// No text.
    Skipped,
    /// An error.
    Refused,
}

/// Return the texts of a list.
fn texts(list: &In<Text>, n: usize, what: &'static str, nulls: Nulls) -> Result<Vec<String>, Error> {
    if n > MOST {
        return Err(Error::Range { what, found: n as i64, wanted: "at most 65536 texts" });
    }
    if list.is_null() && nulls == Nulls::Skipped {
        return Ok(Vec::new());
    }
    let list = list.slice(n, what)?.iter().filter(|text| !(text.is_null() && nulls == Nulls::Skipped));
    list.map(|text| text.str(what).map(str::to_owned)).collect()
}

/// Make a grammar sampler.
fn grammar(
    vocab: Handle,
    text: &Text,
    root: &Text,
    triggers: Option<Vec<Trigger>>,
) -> Result<SamplerRef, Error> {
    if text.is_null() || text.bytes("grammar_str")?.is_empty() {
        return filter(c"grammar", false, builder(0));
    }
    let model = of_vocab(vocab)?;
    let grammar = model.compiler()?.gbnf_from(text.str("grammar_str")?, root.str("grammar_root")?)?;
    let sampler = match triggers {
        None => GrammarSampler::new(&grammar, 0),
        Some(triggers) => GrammarSampler::lazy(&grammar, 0, Triggers::new(&triggers)?),
    };
    filter(c"grammar", true, Chain::builder(model.vocab.n_vocab()).settings(&settings(0, 0)).with(sampler))
}

/// Return the triggers of a lazy grammar.
fn triggers(
    texts: Vec<String>,
    of_text: fn(String) -> Trigger,
    tokens: &In<i32>,
    n_tokens: usize,
) -> Result<Vec<Trigger>, Error> {
    let mut all: Vec<Trigger> = texts.into_iter().map(of_text).collect();
    if n_tokens > MOST {
        return Err(Error::Range { what: "trigger_tokens", found: n_tokens as i64, wanted: "at most 65536" });
    }
    for &token in tokens.slice(n_tokens, "trigger_tokens")? {
        let wanted = "a token";
        let error = |_| Error::Range { what: "trigger_tokens", found: token.into(), wanted };
        all.push(Trigger::Token(Token(u32::try_from(token).map_err(error)?)));
    }
    Ok(all)
}

exports! {
    /// Return a sampler that chooses the token with the largest logit.
    fn llama_sampler_init_greedy() -> SamplerRef = [SamplerRef::NULL] {
        keep(c"greedy", Role::Choice, None, builder(0).with(Greedy))
    }

    /// Return a sampler that draws by the probabilities, with random numbers of `seed`.
    fn llama_sampler_init_dist(seed: u32) -> SamplerRef = [SamplerRef::NULL] {
        choice(c"dist", seed, |chain| chain)
    }

    /// Return a sampler that sorts and computes probabilities.
    fn llama_sampler_init_softmax() -> SamplerRef = [SamplerRef::NULL] {
        keep(c"softmax", Role::Softmax, None, builder(0).with(TopK(LARGEST as usize)))
    }

    /// Return a sampler that keeps the `k` best tokens; all if `k` is not positive.
    fn llama_sampler_init_top_k(k: i32) -> SamplerRef = [SamplerRef::NULL] {
        filter(c"top-k", k > 0, builder(0).with(TopK(k.max(1) as usize)))
    }

    /// Return a sampler that keeps the best tokens whose probabilities sum up to `p`.
    fn llama_sampler_init_top_p(p: f32, min_keep: usize) -> SamplerRef = [SamplerRef::NULL] {
        filter(c"top-p", p < 1.0, builder(min_keep).with(TopP(p)))
    }

    /// Return a sampler that keeps tokens at least `p` times as likely as the best one.
    fn llama_sampler_init_min_p(p: f32, min_keep: usize) -> SamplerRef = [SamplerRef::NULL] {
        filter(c"min-p", p > 0.0, builder(min_keep).with(MinP(p)))
    }

    /// Return a sampler that keeps tokens of typical information.
    fn llama_sampler_init_typical(p: f32, min_keep: usize) -> SamplerRef = [SamplerRef::NULL] {
        filter(c"typical", p < 1.0, builder(min_keep).with(Typical(p)))
    }

    /// Return a sampler that divides logits by a temperature.
    fn llama_sampler_init_temp(t: f32) -> SamplerRef = [SamplerRef::NULL] {
        let temperature = DynamicTemperature { temp: t, range: 0.0, exponent: 1.0 };
        filter(c"temp", t != 1.0, builder(0).with(temperature))
    }

    /// Return a sampler whose temperature follows from the entropy.
    fn llama_sampler_init_temp_ext(t: f32, delta: f32, exponent: f32) -> SamplerRef = [SamplerRef::NULL] {
        let temperature = DynamicTemperature { temp: t, range: delta, exponent };
        filter(c"temp-ext", t != 1.0 || delta > 0.0, builder(0).with(temperature))
    }

    /// Return a sampler that drops the likeliest tokens with probability `p`.
    fn llama_sampler_init_xtc(p: f32, t: f32, min_keep: usize, seed: u32) -> SamplerRef = [SamplerRef::NULL] {
        let role = if p > 0.0 && t <= 0.5 { Role::Filter } else { Role::Inert };
        drawing(c"xtc", role, seed, |seed| {
            let settings = settings(seed, min_keep).order(vec![Kind::Xtc]).xtc_probability(p).xtc_threshold(t);
            Chain::builder(0).settings(&settings)
        })
    }

    /// Return a sampler that keeps tokens within `n` standard deviations of the best.
    fn llama_sampler_init_top_n_sigma(n: f32) -> SamplerRef = [SamplerRef::NULL] {
        filter(c"top-n-sigma", n > 0.0, builder(0).with(TopNSigma(n)))
    }

    /// Return a sampler that draws by Mirostat.
    fn llama_sampler_init_mirostat(n_vocab: i32, seed: u32, tau: f32, eta: f32, m: i32)
        -> SamplerRef = [SamplerRef::NULL]
    {
        let n_vocab = n_vocab.clamp(1, LARGEST) as usize;
        let mirostat = Mirostat::new(MirostatVersion::One, tau, eta, n_vocab, Generator::Llama);
        let mirostat = mirostat.with_best(m.max(0) as usize);
        choice(c"mirostat", seed, |chain| chain.with(mirostat))
    }

    /// Return a sampler that draws by Mirostat 2.
    fn llama_sampler_init_mirostat_v2(seed: u32, tau: f32, eta: f32) -> SamplerRef = [SamplerRef::NULL] {
        let mirostat = Mirostat::new(MirostatVersion::Two, tau, eta, 1, Generator::Llama);
        choice(c"mirostat-v2", seed, |chain| chain.with(mirostat))
    }

    /// Return a sampler that draws near a target probability.
    fn llama_sampler_init_adaptive_p(target: f32, decay: f32, seed: u32) -> SamplerRef = [SamplerRef::NULL] {
        choice(c"adaptive-p", seed, |chain| chain.with(AdaptiveP::new(target, decay, 1, Generator::Llama)))
    }

    /// Return a sampler that only allows what a grammar in GBNF allows, or null. No text, or an
    /// empty one, allows everything.
    fn llama_sampler_init_grammar(vocab: Handle, text: Text, root: Text) -> SamplerRef = [SamplerRef::NULL] {
        grammar(vocab, &text, &root, None)
    }

    /// Return a grammar sampler that waits for a word or token.
    fn llama_sampler_init_grammar_lazy(
        vocab: Handle, text: Text, root: Text, words: In<Text>, n_words: usize, tokens: In<i32>, n_tokens: usize,
    ) -> SamplerRef = [SamplerRef::NULL] {
        let words = texts(&words, n_words, "trigger_words", Nulls::Refused)?;
        grammar(vocab, &text, &root, Some(triggers(words, Trigger::Word, &tokens, n_tokens)?))
    }

    /// Return a grammar sampler that waits for a pattern over the whole text, or a token.
    fn llama_sampler_init_grammar_lazy_patterns(
        vocab: Handle, text: Text, root: Text, patterns: In<Text>, n_patterns: usize, tokens: In<i32>,
        n_tokens: usize,
    ) -> SamplerRef = [SamplerRef::NULL] {
        let patterns = texts(&patterns, n_patterns, "trigger_patterns", Nulls::Refused)?;
        grammar(vocab, &text, &root, Some(triggers(patterns, Trigger::FullPattern, &tokens, n_tokens)?))
    }

    /// Return a sampler that adds numbers to the logits of some tokens.
    fn llama_sampler_init_logit_bias(n_vocab: i32, n_bias: i32, biases: In<CBias>)
        -> SamplerRef = [SamplerRef::NULL]
    {
        let n = usize::try_from(n_bias).unwrap_or(0);
        let in_vocab = |bias: &&CBias| (0..n_vocab).contains(&bias.token);
        let list = biases.slice(n, "logit_bias")?.iter().filter(in_vocab);
        let list: Vec<(Token, f32)> = list.map(|bias| (Token(bias.token as u32), bias.bias)).collect();
        filter(c"logit-bias", !list.is_empty(), builder(0).with(LogitBias(list)))
    }

    /// Return a sampler that ends fill-in-the-middle texts in time.
    fn llama_sampler_init_infill(vocab: Handle) -> SamplerRef = [SamplerRef::NULL] {
        let model = of_vocab(vocab)?;
        let chain = Chain::builder(model.vocab.n_vocab()).settings(&settings(0, 0));
        filter(c"infill", true, chain.with(Infill::new(&model.vocab)))
    }
}
