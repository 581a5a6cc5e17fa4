//! The session of the library with what a program adds: arguments, progress, signals, times.

use crate::args::{ContextArgs, SamplingArgs};
use crate::error::Error;
use crate::interrupt;
use crate::progress::Progress;
use crate::saved::restore_one;
use crate::{memory, model};
use backstitch_kv::state::{Saved, Watch};
use backstitch_kv::store::{Entry, Store};
use backstitch_models::graph::Head;
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::session::{self, Finish, GenerateOptions, Piece};
use backstitch_models::speculative::{self, Drafter};
use backstitch_models::vocab::ParseSpecial;
use backstitch_models::{Context, Error as EngineError, Model, Recalled, SaveOptions, Token};
use std::path::Path;
use std::time::{Duration, Instant};

/// A session with one branch.
pub struct Session {
    inner: session::Session,
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
        let (ctx, settings) = begin(model, context, sampling)?;
        Ok(Self::of(session::Session::new(ctx, &settings)?))
    }

    /// The session in a file, of the sequence that is wanted if it holds several. Unless a seed was given,
    /// the samplers go on from where they stood.
    ///
    /// # Errors
    /// As [`Session::new`], and if the file is none of this model, or damaged, or does not fit.
    pub fn restore(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
        path: &Path,
        sequence: Option<u32>,
    ) -> Result<Self, Error> {
        let (mut ctx, settings) = begin(model, context, sampling)?;
        let progress = Progress::endless("restoring");
        let mut restored = restore_one(&mut ctx, path, sequence)?;
        drop(progress);
        if sampling.seed >= 0 {
            restored.sequences.iter_mut().for_each(|sequence| sequence.sampler = None);
        }
        let chain = Chain::new(model.hparams().n_vocab, &settings);
        Ok(Self::of(session::Session::adopt(ctx, &chain, &restored)?))
    }

    fn of(inner: session::Session) -> Self {
        let seed = inner.chain().seed();
        Self { inner, seed, stats: Stats::default() }
    }

    /// Saves the session, with its samplers, to a file.
    ///
    /// # Errors
    /// If the disk refuses, or `watch`; the file then holds what it held.
    pub fn save(&mut self, path: &Path, watch: &dyn Watch) -> Result<Saved, EngineError> {
        self.inner.save_watched(path, &SaveOptions::default(), watch)
    }

    /// Guesses at most `n` tokens at once with `drafter` from now on.
    pub fn guess_with(&mut self, drafter: Box<dyn Drafter + Send>, n: usize) {
        self.inner.set_drafter(Some(drafter), n);
    }

    /// Tokens the context holds.
    pub fn n_ctx(&self) -> usize {
        self.inner.context().params().n_ctx as usize
    }

    /// What it runs on, in lines, for `wanted` threads.
    pub fn machine(&self, wanted: Option<u32>) -> Vec<String> {
        let ctx = self.inner.context();
        let mut lines = vec![memory::line(ctx.model(), ctx.params())];
        lines.extend(crate::machine::lines(ctx.kernels().name(), wanted, ctx.params().n_threads));
        lines
    }

    /// The tokens that it holds.
    pub fn tokens(&self) -> &[Token] {
        self.inner.tokens()
    }

    /// The tokens of a text that goes on where the session ends.
    pub fn tokenize_behind(&self, text: &str) -> Vec<Token> {
        self.inner.tokenize_behind(text, ParseSpecial::Yes)
    }

    /// Takes the longest beginning of a prompt that `store` has, in an empty session; the rest is left to
    /// [`Session::prompt`].
    ///
    /// # Errors
    /// If the prompt does not fit, or there is no room; the session is empty then.
    pub fn recall(&mut self, store: &Store, tokens: &[Token]) -> Result<Recalled, Error> {
        self.expect_room(tokens.len())?;
        Ok(self.inner.recall(store, tokens)?)
    }

    /// What `store` lacks of what the session holds.
    ///
    /// # Errors
    /// If a state cannot be written.
    pub fn remember(&mut self, store: &Store) -> Result<Option<Entry<'_>>, Error> {
        Ok(self.inner.remember(store)?)
    }

    /// Evaluates a prompt in an empty session, or behind what is there. For an encoder-decoder it is the
    /// text to encode, and the decoder starts from its own token.
    ///
    /// # Errors
    /// If it does not fit: nothing is evaluated then. [`Error::Interrupted`] after a signal: the session
    /// keeps what was evaluated before.
    pub fn prompt(&mut self, tokens: &[Token]) -> Result<(), Error> {
        // What an encoder reads takes no room among what its decoder holds.
        if self.inner.context().model().graph().encoder().is_none() {
            self.expect_room(self.tokens().len() + tokens.len())?;
        }
        self.evaluate(tokens.len(), |inner, progress| inner.prompt_with(tokens, progress))
    }

    /// Makes `tokens` what the session holds, evaluating only what differs from what it held.
    ///
    /// # Errors
    /// As [`Session::prompt`].
    pub fn become_tokens(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.expect_room(tokens.len())?;
        let new = tokens.len() - self.tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.evaluate(new, |inner, progress| inner.hold_with(tokens, progress).map(drop))
    }

    fn expect_room(&self, n: usize) -> Result<(), Error> {
        if n > self.n_ctx() { Err(too_long(n, self.n_ctx())) } else { Ok(()) }
    }

    /// Evaluates `n` tokens, with a line that tells how far it is. A signal stops it.
    fn evaluate(
        &mut self,
        n: usize,
        feed: impl FnOnce(&mut session::Session, &mut dyn FnMut(usize)) -> Result<(), EngineError>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let progress = Progress::counted("evaluating", "tokens");
        progress.set(0, n as u64);
        let mut n_done = 0;
        self.inner.set_cancel(Some(interrupt::cancel()));
        let result = feed(&mut self.inner, &mut |done| {
            n_done = done;
            progress.set(done as u64, n as u64);
        });
        self.inner.set_cancel(None);
        self.stats.n_prompt += if result.is_ok() { n } else { n_done };
        self.stats.prompt_time += start.elapsed();
        Ok(result?)
    }

    /// Draws other random numbers from here on than were drawn here before, as if those had been used up.
    pub fn draw_anew(&mut self, used: u64) {
        self.inner.reseed(used);
    }

    /// Where the random numbers stand.
    pub fn random(&self) -> u64 {
        self.inner.chain().rng().state()
    }

    /// Generates tokens behind what is there and shows their text as it comes. The session holds all of them
    /// afterwards, but a token that ends the text.
    ///
    /// # Errors
    /// If evaluation or `show` fails.
    pub fn generate(
        &mut self,
        until: Until,
        mut show: impl FnMut(&Piece) -> Result<(), Error>,
    ) -> Result<Finish, Error> {
        let start = Instant::now();
        // Models without attention would go on for ever.
        let room = self.n_ctx().saturating_sub(self.tokens().len());
        let limit = until.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let options = GenerateOptions::default().limit(limit.min(room));
        let options = if until.ignore_eos { options.ignore_eos() } else { options };
        self.inner.set_cancel(Some(interrupt::cancel()));
        let (mut n, mut generation) = (0, self.inner.generate(options));
        let told = core::iter::from_fn(|| {
            let piece = generation.next_piece()?;
            Some(piece.map_err(Error::from).and_then(|piece| {
                n += piece.tokens.len();
                show(piece)
            }))
        });
        let told = told.collect::<Result<(), Error>>();
        let finish = generation.finish();
        self.inner.set_cancel(None);
        if finish != Some(Finish::Cancelled) {
            self.inner.settle()?;
        }
        self.stats.n_generated += n;
        self.stats.generation_time += start.elapsed();
        self.stats.guesses = self.inner.guesses();
        told?;
        match finish {
            Some(Finish::Limit) | None if room < limit => Ok(Finish::ContextFull),
            finish => Ok(finish.unwrap_or(Finish::Limit)),
        }
    }
}

/// A context, and how to choose tokens.
fn begin(
    model: &Model,
    context: &ContextArgs,
    sampling: &SamplingArgs,
) -> Result<(Context, Settings), Error> {
    if model.graph().head() == Head::Embeddings {
        let text = "this model makes embeddings, not text; take one that generates";
        return Err(Error::Refused(text.into()));
    }
    let params = model::params(context, model);
    memory::check(model, &params)?;
    let ctx = Context::new(model, params)?;
    model::warn_beyond_training(params.n_ctx, model);
    let settings = settings(sampling, ctx.params().n_ctx);
    Ok((ctx, settings))
}

/// The refusal of more tokens than a context holds.
pub fn too_long(n: usize, n_ctx: usize) -> Error {
    Error::Refused(format!("{n} tokens do not fit a context of {n_ctx}; raise -c or shorten the text"))
}

fn settings(args: &SamplingArgs, n_ctx: u32) -> Settings {
    Settings::default()
        .seed(u64::try_from(args.seed).unwrap_or_else(|_| any_seed()))
        .temp(args.temp)
        .top_k(args.top_k as usize)
        .top_p(args.top_p)
        .min_p(args.min_p)
        .typical_p(args.typical_p)
        .repeat_last_n(usize::try_from(args.repeat_last_n).unwrap_or(n_ctx as usize).min(n_ctx as usize))
        .repeat_penalty(args.repeat_penalty)
        .frequency_penalty(args.frequency_penalty)
        .presence_penalty(args.presence_penalty)
        .logit_bias(args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect())
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
