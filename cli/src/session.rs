//! One sequence that grows: the prompt goes in, tokens come out. What `run` and `chat` share.

use crate::args::{ContextArgs, SamplingArgs};
use crate::error::Error;
use crate::{interrupt, model};
use backstitch_kv::state::Saved;
use backstitch_kv::store::{Entry, Store};
use backstitch_kv::{Pos, SeqId};
use backstitch_models::graph::Head;
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::speculative::{self, Drafter, Speculative};
use backstitch_models::vocab::TextStream;
use backstitch_models::{Context, Model, Recalled, SaveOptions, Token};
use std::path::Path;
use std::time::{Duration, Instant};

/// A context with one sequence and the sampler that continues it.
pub struct Session {
    ctx: Context,
    seq: SeqId,
    chain: Chain,
    speculative: Speculative<Option<Box<dyn Drafter>>>,
    n_batch: usize,
    /// Where the random numbers started.
    pub seed: u64,
    /// What was done so far.
    pub stats: Stats,
}

/// What a session has done, and how long it took.
#[derive(Debug, Default, Clone, Copy)]
pub struct Stats {
    /// Tokens of prompts.
    pub n_prompt: usize,
    /// Time to evaluate them.
    pub prompt_time: Duration,
    /// Tokens generated.
    pub n_generated: usize,
    /// Time to choose and evaluate them.
    pub generation_time: Duration,
    /// Guesses, and how many of them were right.
    pub guesses: speculative::Stats,
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model ended the text.
    End,
    /// As many tokens as wanted.
    Limit,
    /// No room for another token.
    ContextFull,
    /// Ctrl-C.
    Interrupted,
}

/// How far to generate.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// At most this many tokens; `None` is no limit.
    pub limit: Option<u64>,
    /// Whether to go on where the model ends the text.
    pub ignore_eos: bool,
}

impl Until {
    /// From a number of tokens in which -1 means no limit.
    pub fn tokens(n: i64) -> Self {
        Self { limit: u64::try_from(n).ok(), ignore_eos: false }
    }
}

impl Session {
    /// An empty session.
    ///
    /// # Errors
    /// If the context cannot be made, or the model generates nothing.
    pub fn new(model: &Model, context: &ContextArgs, sampling: &SamplingArgs) -> Result<Self, Error> {
        Self::begin(model, context, sampling, |ctx| Ok(ctx.sequence()?))
    }

    /// The session in a file. Unless a seed was given, the samplers go on from where they stood.
    ///
    /// # Errors
    /// As [`Session::new`], and if the file is none of this model, or damaged, or does not fit.
    pub fn restore(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
        path: &Path,
    ) -> Result<Self, Error> {
        let mut sampler = None;
        let mut session = Self::begin(model, context, sampling, |ctx| {
            let restored = ctx.restore(path)?;
            let seq = restored.seq();
            sampler = restored.sampler;
            Ok(seq)
        })?;
        match sampler.filter(|_| sampling.seed < 0) {
            Some(state) => {
                session.chain.resume(&state);
                session.seed = state.seed;
            }
            None => {
                let known = session.ctx.tokens(session.seq)?;
                known.iter().for_each(|&token| session.chain.accept(token));
            }
        }
        session.make_logits()?;
        Ok(session)
    }

    /// Evaluates the last token again if its logits are not at hand.
    fn make_logits(&mut self) -> Result<(), Error> {
        let last = self.tokens()?.last().copied();
        let Some(last) = last.filter(|_| self.ctx.logits(self.seq).is_none()) else { return Ok(()) };
        let end = self.ctx.pos(self.seq);
        self.ctx.rollback(self.seq, Pos(end.0 - 1))?;
        Ok(self.ctx.append(self.seq, &[last])?)
    }

    /// Saves the session, with its samplers, to a file.
    ///
    /// # Errors
    /// If the disk refuses; the file then holds what it held.
    pub fn save(&self, path: &Path) -> Result<Saved, Error> {
        let options = SaveOptions { sampler: Some(&self.chain), ..SaveOptions::default() };
        Ok(self.ctx.save_with(self.seq, path, &options)?)
    }

    fn begin(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
        sequence: impl FnOnce(&mut Context) -> Result<SeqId, Error>,
    ) -> Result<Self, Error> {
        if model.graph().head() == Head::Embeddings {
            let text = "this model makes embeddings, not text; take one that generates";
            return Err(Error::Refused(text.into()));
        }
        let params = model::params(context, model);
        let mut ctx = Context::new(model, params)?;
        model::warn_beyond_training(params.n_ctx, model);
        let seq = sequence(&mut ctx)?;
        let settings = settings(sampling, ctx.params().n_ctx);
        let chain = Chain::new(model.hparams().n_vocab, &settings);
        let speculative = Speculative::new(None, seq, 0);
        let n_batch = context.n_batch as usize;
        Ok(Self { ctx, seq, chain, speculative, n_batch, seed: settings.seed, stats: Stats::default() })
    }

    /// Guesses at most `n` tokens at once with `drafter` from now on.
    pub fn guess_with(&mut self, drafter: Box<dyn Drafter>, n: usize) {
        self.speculative = Speculative::new(Some(drafter), self.seq, n);
    }

    /// Tokens the context holds.
    pub fn n_ctx(&self) -> usize {
        self.ctx.params().n_ctx as usize
    }

    /// What it runs on, in lines, for `wanted` threads.
    pub fn machine(&self, wanted: Option<u32>) -> Vec<String> {
        crate::machine::lines(self.ctx.kernels().name(), wanted, self.ctx.params().n_threads)
    }

    /// The tokens evaluated so far.
    ///
    /// # Errors
    /// None that the session can cause.
    pub fn tokens(&self) -> Result<&[Token], Error> {
        Ok(self.ctx.tokens(self.seq)?)
    }

    /// Evaluates `tokens` behind what is there, batch by batch. Ctrl-C stops between batches.
    ///
    /// # Errors
    /// If they do not fit: nothing is evaluated then. [`Error::Interrupted`].
    pub fn feed(&mut self, tokens: &[Token]) -> Result<(), Error> {
        let held = self.tokens()?.len();
        if tokens.len() > self.n_ctx() - held.min(self.n_ctx()) {
            return Err(too_long(held + tokens.len(), self.n_ctx()));
        }
        let start = Instant::now();
        for batch in tokens.chunks(self.n_batch) {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            self.ctx.append(self.seq, batch)?;
        }
        tokens.iter().for_each(|&token| self.chain.accept(token));
        self.stats.n_prompt += tokens.len();
        self.stats.prompt_time += start.elapsed();
        Ok(())
    }

    /// Takes the longest beginning of a prompt that `store` has, in an empty session; the rest is left to
    /// [`Session::prompt`].
    ///
    /// # Errors
    /// If the prompt does not fit, or there is no room; the session is empty then.
    pub fn recall(&mut self, store: &Store, tokens: &[Token]) -> Result<Recalled, Error> {
        if tokens.len() > self.n_ctx() {
            return Err(too_long(tokens.len(), self.n_ctx()));
        }
        let recalled = self.ctx.recall(self.seq, store, tokens)?;
        let known = tokens.get(..recalled.n_tokens).unwrap_or_default();
        known.iter().for_each(|&token| self.chain.accept(token));
        Ok(recalled)
    }

    /// What `store` lacks of what the session holds.
    ///
    /// # Errors
    /// If a state cannot be written.
    pub fn remember(&self, store: &Store) -> Result<Option<Entry<'_>>, Error> {
        Ok(self.ctx.remember(self.seq, store)?)
    }

    /// Evaluates a prompt in an empty session, or behind what is there. For an encoder-decoder it is the text to encode, and the
    /// decoder starts from its own token.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn prompt(&mut self, tokens: &[Token]) -> Result<(), Error> {
        let model = self.ctx.model().clone();
        if model.graph().encoder().is_none() {
            return self.feed(tokens);
        }
        let start = model.hparams().decoder_start.map(Token).or(model.vocab().bos());
        let start = start.ok_or_else(|| {
            Error::Refused("this model names no token for its decoder to start from; convert it again".into())
        })?;
        let clock = Instant::now();
        self.ctx.encode(self.seq, tokens)?;
        self.stats.n_prompt += tokens.len();
        self.stats.prompt_time += clock.elapsed();
        self.feed(&[start])
    }

    /// Makes `tokens` what the session holds, evaluating only what differs from what it held, and at least the last.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn become_tokens(&mut self, tokens: &[Token]) -> Result<(), Error> {
        if tokens.len() > self.n_ctx() {
            return Err(too_long(tokens.len(), self.n_ctx()));
        }
        let held = self.tokens()?;
        let same = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let same = same.min(tokens.len().saturating_sub(1));
        self.ctx.rollback(self.seq, Pos(same as i32))?;
        self.chain.forget();
        let (known, new) = tokens.split_at(same);
        known.iter().for_each(|&token| self.chain.accept(token));
        self.feed(new)
    }

    /// Generates tokens behind what is there and shows their text as it comes. The session holds all of them
    /// afterwards, but a token that ends the text.
    ///
    /// # Errors
    /// If evaluation or `show` fails.
    pub fn generate(
        &mut self,
        until: Until,
        mut show: impl FnMut(Token, &str) -> Result<(), Error>,
    ) -> Result<Stop, Error> {
        let start = Instant::now();
        let model = self.ctx.model().clone();
        let mut stream = TextStream::default();
        let mut text = String::new();
        let ends = |token| model.vocab().is_eog(token) && !until.ignore_eos;
        let mut n = 0;
        let stop = loop {
            if self.speculative.next().is_some() && self.ctx.pos(self.seq).0 as usize >= self.n_ctx() {
                // The last token was shown, but there is no room to evaluate it.
                self.speculative.reset();
                break Stop::ContextFull;
            }
            let left = until.limit.map_or(u64::MAX, |limit| limit.saturating_sub(n));
            if left == 0 {
                break Stop::Limit;
            }
            if interrupt::requested() {
                break Stop::Interrupted;
            }
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let step = self.speculative.step(&mut self.ctx, &mut self.chain, left, ends)?;
            for &token in step.tokens {
                n += 1;
                text.clear();
                if !model.vocab().is_hidden(token) {
                    stream.push(model.vocab().piece(token), &mut text);
                }
                show(token, &text)?;
            }
            if step.end.is_some() {
                break Stop::End;
            }
        };
        self.speculative.flush(&mut self.ctx)?;
        self.stats.n_generated += n as usize;
        self.stats.generation_time += start.elapsed();
        self.stats.guesses = self.speculative.stats();
        Ok(stop)
    }
}

/// The refusal of more tokens than a context holds.
pub fn too_long(n: usize, n_ctx: usize) -> Error {
    Error::Refused(format!("{n} tokens do not fit a context of {n_ctx}; raise -c or shorten the text"))
}

fn settings(args: &SamplingArgs, n_ctx: u32) -> Settings {
    Settings {
        seed: u64::try_from(args.seed).unwrap_or_else(|_| any_seed()),
        temp: args.temp,
        top_k: args.top_k as usize,
        top_p: args.top_p,
        min_p: args.min_p,
        typical_p: args.typical_p,
        repeat_last_n: usize::try_from(args.repeat_last_n).unwrap_or(n_ctx as usize).min(n_ctx as usize),
        repeat_penalty: args.repeat_penalty,
        frequency_penalty: args.frequency_penalty,
        presence_penalty: args.presence_penalty,
        logit_bias: args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect(),
    }
}

/// A seed that nobody chose, short enough to be typed again.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 32
}

impl Stats {
    /// The lines that `-v` prints.
    pub fn lines(&self) -> [String; 2] {
        let line = |what: &str, n: usize, time: Duration| {
            let seconds = time.as_secs_f64();
            let rate = if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
            format!("{what}: {n} tokens in {seconds:.2} s, {rate:.1} tokens/s")
        };
        let generation = line("generation", self.n_generated, self.generation_time);
        [line("prompt", self.n_prompt, self.prompt_time), generation + &self.guesses()]
    }

    /// How good the guesses were; nothing where there was none.
    fn guesses(&self) -> String {
        let speculative::Stats { n_drafted, n_accepted, n_decodes, .. } = self.guesses;
        if n_drafted == 0 {
            return String::new();
        }
        let share = 100.0 * n_accepted as f64 / n_drafted as f64;
        format!(", {n_accepted} of {n_drafted} guesses right ({share:.0} %), {n_decodes} batches")
    }
}
