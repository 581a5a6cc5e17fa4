//! A session of the library with everything that a program adds: options, progress lines, signals,
//! and times for `-v`.
//!
//! `run` and `chat` use it; `branches` holds what only `chat` needs. It decides nothing about text;
//! prompts, sampling, rollbacks and saving are those of [`backstitch_models::session`].

mod branches;

use crate::args::{ContextArgs, Generator, SamplingArgs};
use crate::error::Error;
use crate::interrupt;
use crate::output::{bytes, counted, note};
use crate::progress::Progress;
use crate::saved::restore_one;
use crate::{adapters, memory, model, terminal};
use backstitch_kv::Error as MemoryError;
use backstitch_kv::storage::prompt_cache::{EvaluatedPrefix, PromptCache};
use backstitch_kv::storage::{Saved, Watch};
use backstitch_models::graph::Head;
use backstitch_models::sampler::{Chain, DryBreakers, DryParams, Infill, Kind, Settings};
use backstitch_models::session::{self, Chunk, Finish, GenerateOptions};
use backstitch_models::speculative::{self, Drafter};
use backstitch_models::vocab::{ParseSpecial, Vocab};
use backstitch_models::{Context, Error as EngineError, Model, Recalled, SaveOptions, Token};
use std::path::Path;
use std::time::{Duration, Instant};

/// A session with one sequence.
///
/// Every method that evaluates tokens shows a progress line, counts into [`Session::stats`], and
/// stops at a signal.
pub struct Session {
    inner: session::Session,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Counts and times so far.
    pub stats: Stats,
}

/// Counts and times of a session, for `-v` and `--json`.
#[derive(Debug, Default, Clone, Copy)]
pub struct Stats {
    /// Tokens of prompts that were evaluated.
    pub n_prompt: usize,
    /// Time in which they were evaluated.
    pub prompt_time: Duration,
    /// Tokens that were generated.
    pub n_generated: usize,
    /// Time in which they were sampled and evaluated.
    pub generation_time: Duration,
    /// Counts of draft tokens, of speculative decoding.
    pub drafts: speculative::Stats,
}

/// The end of a generation.
#[derive(Debug, Clone)]
pub struct Until {
    /// Most tokens to generate; `None` is no limit.
    pub limit: Option<u64>,
    /// True to continue after the model has ended the text.
    pub ignore_eos: bool,
    /// Texts before which the generation ends.
    pub stops: Vec<String>,
    /// Control tokens whose texts are part of the text.
    pub shown: Vec<Token>,
}

impl Until {
    /// Stop after `n` tokens, the value of `-n`; a negative number is no limit.
    pub fn tokens(n: i64) -> Self {
        Self { limit: u64::try_from(n).ok(), ignore_eos: false, stops: Vec::new(), shown: Vec::new() }
    }
}

impl Session {
    /// Make an empty session.
    ///
    /// # Errors
    /// - [`Error::Refused`] if the model generates no text, or the memory is too small for the
    ///   context.
    /// - [`Error::Engine`] if the context cannot be made.
    pub fn new(model: &Model, context: &ContextArgs, sampling: &SamplingArgs) -> Result<Self, Error> {
        let (ctx, settings) = begin(model, context, sampling, 1)?;
        Ok(Self::of(session::Session::new(ctx, &settings)?))
    }

    /// Restore the session in a file; `sequence` chooses one if the file holds several. The
    /// samplers continue from their saved state, unless a seed was given.
    ///
    /// # Errors
    /// The errors of [`Session::new`], and:
    /// - [`Error::State`] if the file is damaged, belongs to another model, or does not fit the
    ///   context.
    /// - [`Error::Refused`] if it is no saved state, or has no such sequence.
    pub fn restore(
        model: &Model,
        context: &ContextArgs,
        sampling: &SamplingArgs,
        path: &Path,
        sequence: Option<u32>,
    ) -> Result<Self, Error> {
        let (mut ctx, settings) = begin(model, context, sampling, 1)?;
        let progress = Progress::endless("restoring");
        let mut restored = restore_one(&mut ctx, path, sequence)?;
        drop(progress);
        if sampling.seed >= 0 {
            restored.sequences.iter_mut().for_each(|sequence| sequence.sampler = None);
        }
        let chain = Chain::new(model.hparams().n_vocab, &settings.suppress(model.vocab()));
        Ok(Self::of(session::Session::adopt(ctx, &chain, &restored)?))
    }

    /// Wrap a session of the library.
    fn of(inner: session::Session) -> Self {
        let seed = inner.chain().seed();
        Self { inner, seed, stats: Stats::default() }
    }

    /// Save the session, with the state of its samplers, to a file.
    ///
    /// # Errors
    /// The errors of the disk, and of `watch`; the file then has its old content.
    pub fn save(&mut self, path: &Path, watch: &dyn Watch) -> Result<Saved, EngineError> {
        self.inner.save_watched(path, &SaveOptions::default(), watch)
    }

    /// Use speculative decoding from now on, with at most `n` tokens drafted at once.
    pub fn draft_with(&mut self, drafter: Box<dyn Drafter + Send>, n: usize) {
        self.inner.set_drafter(Some(drafter), n);
    }

    /// Return the context size, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.inner.context().params().n_ctx as usize
    }

    /// Return the lines of `-v` about memory and the machine; `wanted` threads were asked for.
    pub fn machine(&self, wanted: Option<u32>) -> Vec<String> {
        let ctx = self.inner.context();
        let mut lines = vec![memory::line(ctx)];
        lines.extend(crate::machine::lines(ctx.kernels().name(), wanted, ctx.params().n_threads));
        lines
    }

    /// Report speed and memory on standard error: in the lines of `-v`, or, if `is_wanted` and a
    /// person reads the output, in one line.
    pub fn report(&self, verbose: bool, is_wanted: bool) {
        if verbose {
            self.stats.lines().iter().for_each(|line| note("note", line));
        } else if is_wanted && terminal::is_there() && self.stats.n_generated > 0 {
            let ctx = self.inner.context();
            let memory = bytes(ctx.budget().total());
            note("note", format_args!("{}, {memory} of memory", self.stats.short()));
        }
    }

    /// Return the fingerprint that states of the session bear.
    pub fn fingerprint(&self) -> backstitch_kv::storage::Fingerprint {
        self.inner.context().fingerprint()
    }

    /// Return the tokens of the session's sequence.
    pub fn tokens(&self) -> &[Token] {
        self.inner.tokens()
    }

    /// Tokenize a text that continues the session's.
    pub fn tokenize_behind(&self, text: &str) -> Vec<Token> {
        self.inner.tokenize_behind(text, ParseSpecial::Yes)
    }

    /// Take the longest prefix of a prompt that a prompt cache has, in an empty session. The rest
    /// is left to [`Session::prompt`].
    ///
    /// # Errors
    /// - [`Error::Refused`] if the prompt does not fit the context.
    /// - [`Error::Engine`] if the cache has no free blocks. The session is empty then.
    pub fn recall(&mut self, cache: &PromptCache, tokens: &[Token]) -> Result<Recalled, Error> {
        self.expect_room(tokens.len())?;
        Ok(self.inner.recall(cache, tokens)?)
    }

    /// Return the entry that a prompt cache lacks of this session, or none if it has everything.
    ///
    /// # Errors
    /// [`Error::Engine`] if the state cannot be exported.
    pub fn remember(&mut self, cache: &PromptCache) -> Result<Option<EvaluatedPrefix<'_>>, Error> {
        Ok(self.inner.remember(cache)?)
    }

    /// Evaluate a prompt after the session's tokens. For an encoder-decoder the prompt is the text
    /// to encode, and the decoder starts from a token of its own.
    ///
    /// # Errors
    /// - [`Error::Refused`] if the prompt does not fit; nothing is evaluated then.
    /// - [`Error::Interrupted`] after a signal; the session keeps the tokens that were evaluated.
    /// - [`Error::Engine`] if the model cannot be evaluated.
    pub fn prompt(&mut self, tokens: &[Token]) -> Result<(), Error> {
        // The tokens of an encoder take no cells of the decoder's cache.
        if self.inner.context().model().graph().encoder().is_none() {
            self.expect_room(self.tokens().len() + tokens.len())?;
        }
        self.evaluate(tokens.len(), |inner, progress| inner.prompt_with(tokens, progress))
    }

    /// Make the session hold exactly `tokens`: roll back to the first token that differs, and
    /// evaluate the rest.
    ///
    /// # Errors
    /// The errors of [`Session::prompt`].
    pub fn become_tokens(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.expect_room(tokens.len())?;
        let new = tokens.len() - self.tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.evaluate(new, |inner, progress| inner.set_tokens_with(tokens, progress).map(drop))
    }

    /// Check that `n` tokens fit the context.
    fn expect_room(&self, n: usize) -> Result<(), Error> {
        if n > self.n_ctx() { Err(too_long(n, self.n_ctx())) } else { Ok(()) }
    }

    /// Evaluate `n` tokens with `feed`, which reports how many are done. Shows a progress line; a
    /// signal stops the evaluation.
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

    /// Continue with the random numbers that follow the state `used`, so that another generation
    /// from here differs from the one that used them.
    pub fn draw_anew(&mut self, used: u64) {
        self.inner.reseed(used);
    }

    /// Return the state of the random numbers.
    pub fn random(&self) -> u64 {
        self.inner.chain().rng().state()
    }

    /// Generate tokens after the session's, and `show` their text as it comes. The session holds
    /// all of them afterwards, except a token that ends the text, and a stop string.
    ///
    /// # Errors
    /// [`Error::Engine`] if the model cannot be evaluated, and the errors of `show`.
    pub fn generate(
        &mut self,
        until: Until,
        mut show: impl FnMut(&Chunk) -> Result<(), Error>,
    ) -> Result<Finish, Error> {
        let start = Instant::now();
        // The limit of the context holds for models without attention, too, which have no cells to
        // fill.
        let room = self.n_ctx().saturating_sub(self.tokens().len());
        let limit = until.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let options = GenerateOptions::default().limit(limit.min(room));
        let options = until.stops.into_iter().fold(options, GenerateOptions::stop).show(&until.shown);
        let options = if until.ignore_eos { options.ignore_eos() } else { options };
        self.inner.set_cancel(Some(interrupt::cancel()));
        let (mut n, mut generation) = (0, self.inner.generate(options));
        let chunks = core::iter::from_fn(|| {
            let piece = generation.next_chunk()?;
            Some(piece.map_err(Error::from).and_then(|piece| {
                n += piece.tokens.len();
                show(piece)
            }))
        });
        let shown = chunks.collect::<Result<(), Error>>();
        let finish = generation.finish();
        self.inner.set_cancel(None);
        if finish != Some(Finish::Cancelled) {
            match self.inner.evaluate_pending() {
                // The last token waits until other branches have made room for it.
                Err(EngineError::Memory(MemoryError::Full { .. })) => {}
                result => result?,
            }
        }
        self.inner.cut_stop()?;
        self.stats.n_generated += n;
        self.stats.generation_time += start.elapsed();
        self.stats.drafts = self.inner.draft_stats();
        shown?;
        match finish {
            Some(Finish::Limit) | None if room < limit => Ok(Finish::ContextFull),
            finish => Ok(finish.unwrap_or(Finish::Limit)),
        }
    }
}

/// Make a context of `n_seqs` sequences and the settings of the samplers, after the checks that
/// need no evaluation.
fn begin(
    model: &Model,
    context: &ContextArgs,
    sampling: &SamplingArgs,
    n_seqs: u32,
) -> Result<(Context, Settings), Error> {
    if model.graph().head() == Head::Embeddings {
        let text = "this model makes embeddings, not text; name one that generates text with -m";
        return Err(Error::Refused(text.into()));
    }
    let params = model::params(context, model).n_seq_max(n_seqs);
    let wanted = params.n_ctx;
    let params = params.n_ctx(model::within_positions(wanted, model));
    memory::check(model, &params)?;
    let mut ctx = Context::new(model, params)?;
    adapters::apply(&context.adapters, &mut ctx)?;
    model::warn_beyond_training(wanted, model);
    let settings = settings(sampling, ctx.params().n_ctx, model.vocab());
    Ok((ctx, settings))
}

/// Make the error about more tokens than the context holds.
pub fn too_long(n: usize, n_ctx: usize) -> Error {
    Error::Refused(format!("{n} tokens do not fit a context of {n_ctx}; raise -c or shorten the text"))
}

/// Return the settings of the samplers. -1 tokens to look back are the whole context.
fn settings(args: &SamplingArgs, n_ctx: u32, vocab: &Vocab) -> Settings {
    let look_back = |n: i64| usize::try_from(n).unwrap_or(n_ctx as usize).min(n_ctx as usize);
    let dry = DryParams {
        multiplier: args.dry_multiplier,
        base: args.dry_base,
        allowed_length: args.dry_allowed_length as usize,
        last_n: look_back(args.dry_penalty_last_n),
    };
    let order = args.order();
    let infill = order.contains(&Kind::Infill).then(|| Infill::new(vocab));
    Settings::default()
        .order(order)
        .infill(infill)
        .generator(args.generator.map_or_else(Default::default, Generator::of_library))
        .mirostat(args.mirostat())
        .mirostat_tau(args.mirostat_ent)
        .mirostat_eta(args.mirostat_lr)
        .adaptive_target(args.adaptive_target)
        .adaptive_decay(args.adaptive_decay)
        .seed(u64::try_from(args.seed).unwrap_or_else(|_| any_seed()))
        .temp(args.temp)
        .top_k(args.top_k as usize)
        .top_p(args.top_p)
        .min_p(args.min_p)
        .typical_p(args.typical_p)
        .repeat_last_n(look_back(args.repeat_last_n))
        .repeat_penalty(args.repeat_penalty)
        .frequency_penalty(args.frequency_penalty)
        .presence_penalty(args.presence_penalty)
        .dry(dry)
        .dry_breakers(breakers(args, vocab))
        .top_n_sigma(args.top_n_sigma)
        .xtc_probability(args.xtc_probability)
        .xtc_threshold(args.xtc_threshold)
        .dynamic_temp_range(args.dynatemp_range)
        .dynamic_temp_exponent(args.dynatemp_exp)
        .logit_bias(args.logit_bias.iter().map(|&(token, bias)| (Token(token), bias)).collect())
}

/// Return the breakers of DRY; none if it is off, because looking through a vocabulary takes time.
fn breakers(args: &SamplingArgs, vocab: &Vocab) -> DryBreakers {
    let texts: Vec<&str> = args.dry_sequence_breaker.iter().map(String::as_str).collect();
    match texts.as_slice() {
        _ if args.dry_multiplier == 0.0 => DryBreakers::default(),
        ["none"] => DryBreakers::default(),
        texts => DryBreakers::of_texts(vocab, texts),
    }
}

/// Return a random seed, short enough to be typed again.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) >> 32
}

impl Stats {
    /// Return the lines of `-v` about speed.
    pub fn lines(&self) -> [String; 2] {
        let line = |what: &str, n: usize, time: Duration| {
            let seconds = time.as_secs_f64();
            let rate = if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
            format!("{what}: {} in {seconds:.2} s, {rate:.1} tokens/s", counted(n, "token"))
        };
        let generation = line("generation", self.n_generated, self.generation_time);
        [line("prompt", self.n_prompt, self.prompt_time), generation + &self.drafts()]
    }

    /// Return counts and speeds in a few words.
    fn short(&self) -> String {
        let rate = |n: usize, time: Duration| n as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let Self { n_prompt, prompt_time, n_generated, generation_time, .. } = *self;
        let prompt = match n_prompt {
            0 => String::new(),
            n => format!("prompt {} at {:.1}/s, ", counted(n, "token"), rate(n, prompt_time)),
        };
        let generated = counted(n_generated, "token");
        format!("{prompt}generated {generated} at {:.1}/s", rate(n_generated, generation_time))
    }

    /// Return the end of the line about generation: the share of draft tokens that were accepted.
    /// Empty without speculative decoding.
    fn drafts(&self) -> String {
        let speculative::Stats { n_drafted, n_accepted, n_decodes, .. } = self.drafts;
        if n_drafted == 0 {
            return String::new();
        }
        let share = 100.0 * n_accepted as f64 / n_drafted as f64;
        let (drafted, batches) =
            (counted(n_drafted as usize, "draft token"), counted(n_decodes as usize, "decode"));
        format!(", {n_accepted} of {drafted} accepted ({share:.0} %), {batches}")
    }
}
