//! Generation: tokens and the text that may be shown of them, chunk by chunk.

use super::branch::Branch;
use super::chunk::{Buffers, Chunk, TokenLogprobs};
use super::finish::Finish;
use super::{Session, keep_up, limit_of};
use crate::error::Error;
use crate::model::Model;
use crate::speculative::Choose;
use alloc::{string::String, vec::Vec};
use backstitch_kv::Token;
use core::ops::ControlFlow;

/// Options of a generation: its length, its stop strings, and log-probabilities.
///
/// ```
/// use backstitch_models::session::GenerateOptions;
///
/// let options = GenerateOptions::default().limit(64).stop("\n\n").stop("User:").logprobs(3);
/// assert_eq!(options.stops.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The most tokens; `None` generates until the model ends the text or the context is full.
    pub limit: Option<usize>,
    /// Stop strings: the text ends before the first that occurs. Empty ones are ignored.
    pub stops: Vec<String>,
    /// Continue behind an end-of-generation token, which is then part of the text.
    pub ignore_eos: bool,
    /// The number of likeliest tokens to report for each position, beside the log-probability of
    /// the token drawn; `None` reports neither.
    pub logprobs: Option<usize>,
    /// Control tokens whose texts are part of the text, such as the markers around reasoning.
    pub shown: Vec<Token>,
}

impl GenerateOptions {
    /// Generate at most `n` tokens.
    pub fn limit(self, n: usize) -> Self {
        Self { limit: Some(n), ..self }
    }

    /// Stop before `text` too.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stops.push(text.into());
        self
    }

    /// Continue behind an end-of-generation token.
    pub fn ignore_eos(self) -> Self {
        Self { ignore_eos: true, ..self }
    }

    /// Report the log-probability of each token, and those of the `n` likeliest at its position.
    pub fn logprobs(self, n: usize) -> Self {
        Self { logprobs: Some(n), ..self }
    }

    /// Make the texts of these control tokens part of the text.
    pub fn show(mut self, tokens: &[Token]) -> Self {
        self.shown.extend_from_slice(tokens);
        self
    }
}

/// A generation in progress: an iterator over its [`Chunk`]s.
///
/// It ends after the last chunk, and after an error. It may be dropped before its end: the branch
/// then holds exactly the tokens that were yielded. [`Generation::next_chunk`] lends chunks instead
/// of giving them away, and then nothing is allocated per token.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::GenerateOptions;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5)])?;
/// let mut generation = session.generate(GenerateOptions::default().limit(3));
/// let mut n_tokens = 0;
/// while let Some(chunk) = generation.next_chunk() {
///     n_tokens += chunk?.tokens.len();
/// }
/// assert_eq!(n_tokens, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Generation<'s> {
    pub(super) session: &'s mut Session,
    pub(super) rest: Rest,
}

/// The work that a generation still has to do.
#[derive(Debug)]
pub(super) struct Rest {
    options: GenerateOptions,
    model: Model,
    n_left: usize,
    is_over: bool,
}

impl Session {
    /// Generate behind the tokens of the current branch. Nothing is computed before the first chunk
    /// is asked for.
    ///
    /// The tokens of a chunk are part of the branch. Text is in a chunk as soon as no stop string
    /// can begin in it.
    ///
    /// # Errors
    /// A chunk is [`Error::NoLogits`] if the branch is empty, [`Error::NoToken`] if the samplers
    /// ban every token, or an error of [`Context::decode`](crate::Context::decode). A full context
    /// and a request to cancel are no errors but a [`Finish`], unless they shortened the branch: it
    /// then ends before tokens that were yielded ([`Session::pos`]).
    pub fn generate(&mut self, options: GenerateOptions) -> Generation<'_> {
        let n_left = options.limit.unwrap_or(usize::MAX);
        self.current.begin(n_left);
        self.buffers.begin(self.current.tokens.len());
        let model = self.ctx.model().clone();
        Generation { session: self, rest: Rest { options, model, n_left, is_over: false } }
    }
}

impl Generation<'_> {
    /// Return the next chunk, which the one after it overwrites. Apart from log-probabilities,
    /// nothing is allocated.
    ///
    /// # Errors
    /// Those of [`Session::generate`].
    pub fn next_chunk(&mut self) -> Option<Result<&Chunk, Error>> {
        let chunk = &mut self.session.buffers.chunk;
        chunk.text.clear();
        chunk.tokens.clear();
        chunk.logprobs.clear();
        if self.rest.is_over {
            return None;
        }
        let finish = match self.step() {
            Ok(finish) => finish,
            Err(error) => {
                self.rest.is_over = true;
                // A generation that failed before its first token cannot be repeated.
                let end = self.session.current.end();
                self.session.current.generated.take_if(|generated| generated.start == end);
                return Some(Err(error));
            }
        };
        let Buffers { text, chunk, .. } = &mut self.session.buffers;
        match finish {
            None => text.show(&self.rest.options.stops, &mut chunk.text),
            Some(finish) => {
                text.show_all(&mut chunk.text);
                self.rest.is_over = true;
                let generated = self.session.current.generated.as_mut();
                generated.into_iter().for_each(|generated| generated.finish = Some(finish));
            }
        }
        let chunk = &self.session.buffers.chunk;
        let is_empty = chunk.tokens.is_empty() && chunk.text.is_empty();
        (!is_empty).then_some(Ok(chunk))
    }

    /// Return the reason that the generation ended; `None` if it has not ended, or ended with an
    /// error.
    pub fn finish(&self) -> Option<Finish> {
        self.session.finish()
    }

    /// Choose the next tokens. Return the reason that the generation ends with them, if it does.
    fn step(&mut self) -> Result<Option<Finish>, Error> {
        let n = match self.n_next() {
            Ok(n) => n,
            Err(finish) => return Ok(Some(finish)),
        };
        let ends = |token| self.rest.model.vocab().is_eog(token) && !self.rest.options.ignore_eos;
        let Session { ctx, current: branch, speculative, buffers, .. } = &mut *self.session;
        speculative.follow(branch.seq, branch.pending);
        let mut chooser = Chooser {
            branch,
            buffers,
            options: &self.rest.options,
            model: &self.rest.model,
            stopped_by: None,
        };
        let step = speculative.step_with(ctx, &mut chooser, n, ends).map(|step| step.end);
        let stopped_by = chooser.stopped_by;
        branch.pending = speculative.pending();
        let (end, step) = (branch.end(), keep_up(ctx, branch, step));
        let is_shorter = branch.end() < end;
        let chunk = &mut buffers.chunk;
        // An end-of-generation token is drawn, but is not part of the text.
        chunk.logprobs.truncate(chunk.tokens.len());
        self.rest.n_left = self.rest.n_left.saturating_sub(chunk.tokens.len());
        match step {
            Ok(_) if stopped_by.is_some() => Ok(stopped_by.map(|index| Finish::Stop { index })),
            Ok(Some(end)) => Ok(Some(Finish::End(end))),
            Ok(None) => Ok((self.rest.n_left == 0).then_some(Finish::Limit)),
            Err(error) if is_shorter => Err(error),
            Err(Error::Cancelled) => Ok(Some(Finish::Cancelled)),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => Ok(Some(Finish::ContextFull)),
            Err(error) => Err(error),
        }
    }

    /// Return the most tokens that the next step may choose, or the reason that it may choose none.
    fn n_next(&self) -> Result<usize, Finish> {
        let held = self.session.pos().0.unsigned_abs() as usize;
        let room = limit_of(&self.session.ctx).map_or(usize::MAX, |limit| limit.saturating_sub(held));
        match self.rest.n_left.min(room) {
            0 if self.rest.n_left == 0 => Err(Finish::Limit),
            0 => Err(Finish::ContextFull),
            _ if self.session.is_cancelled() => Err(Finish::Cancelled),
            n => Ok(n),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_chunk()? {
            Ok(_) => Some(Ok(core::mem::take(&mut self.session.buffers.chunk))),
            Err(error) => Some(Err(error)),
        }
    }
}

impl core::iter::FusedIterator for Generation<'_> {}

/// The chooser of a generation: it draws with the branch's chain, and collects tokens, text and
/// log-probabilities.
struct Chooser<'a> {
    branch: &'a mut Branch,
    buffers: &'a mut Buffers,
    options: &'a GenerateOptions,
    model: &'a Model,
    /// The index of the stop string that was found.
    stopped_by: Option<usize>,
}

impl Choose for Chooser<'_> {
    fn draw(&mut self, logits: &[f32]) -> Option<Token> {
        let token = self.branch.draw(logits)?;
        let Buffers { chunk, best, .. } = &mut *self.buffers;
        if let Some(n) = self.options.logprobs {
            chunk.logprobs.push(TokenLogprobs::of(logits, token, n, best));
        }
        Some(token)
    }

    fn take(&mut self, token: Token) -> ControlFlow<()> {
        self.branch.push(token);
        let Buffers { text, chunk, .. } = &mut *self.buffers;
        chunk.tokens.push(token);
        let vocab = self.model.vocab();
        let is_left_out = vocab.is_hidden(token) && !self.options.shown.contains(&token);
        let bytes = if is_left_out { &[] } else { vocab.piece(token) };
        let Some(found) = text.push(bytes, self.branch.tokens.len(), &self.options.stops) else {
            return ControlFlow::Continue(());
        };
        let pos = self.branch.pos_of(found.n_tokens);
        let generated = self.branch.generated.as_mut();
        generated.into_iter().for_each(|generated| generated.stop = Some((pos, found.rest.clone())));
        self.stopped_by = Some(found.index);
        ControlFlow::Break(())
    }
}
