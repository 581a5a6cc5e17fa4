//! Generating: tokens, and the text that may be shown of them, piece by piece.

use super::branch::Branch;
use super::text::{self, Text};
use super::{Session, limit_of};
use crate::error::Error;
use crate::model::Model;
use crate::sampler::{Logprob, Logprobs};
use crate::speculative::Choose;
use alloc::{string::String, vec::Vec};
use backstitch_kv::Token;
use core::ops::ControlFlow;

/// The length of a generation, its stop strings, and what it tells beside text.
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
    /// The most tokens; `None`: until the text ends or the context is full.
    pub limit: Option<usize>,
    /// Texts before which to stop. Empty ones are ignored.
    pub stops: Vec<String>,
    /// Go on where the model ends the text; the token that ends it is then part of it.
    pub ignore_eos: bool,
    /// Tell the log-probability of each token, and of so many of the likeliest at its place.
    pub logprobs: Option<usize>,
}

impl GenerateOptions {
    /// Generate at most `n` tokens.
    pub fn limit(self, n: usize) -> Self {
        Self { limit: Some(n), ..self }
    }

    /// Stop before `text` as well.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stops.push(text.into());
        self
    }

    /// Go on where the model ends the text.
    pub fn ignore_eos(self) -> Self {
        Self { ignore_eos: true, ..self }
    }

    /// Tell the log-probability of each token, and of the `n` likeliest at its place.
    pub fn logprobs(self, n: usize) -> Self {
        Self { logprobs: Some(n), ..self }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model ended the text with this token, which is not part of it.
    End(Token),
    /// A stop string came; the text ends before it. The tokens that make it up are part of the branch until
    /// [`Session::cut_stop`].
    Stop {
        /// Its place in [`GenerateOptions::stops`].
        index: usize,
    },
    /// All tokens that were wanted came: [`GenerateOptions::limit`].
    Limit,
    /// There is no room for another token.
    ContextFull,
    /// A request to stop: [`Session::set_cancel`].
    Cancelled,
}

/// A token, its log-probability under the model, and the likeliest tokens at its place. Samplers have no
/// part in it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprobs {
    /// The token.
    pub token: Token,
    /// Its log-probability; `None` for the first token of a text, before which there is nothing.
    pub logprob: Option<f64>,
    /// The likeliest tokens, likeliest first.
    pub top: Vec<Logprob>,
}

/// The yield of one step of a generation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Piece {
    /// The text that is certain now: whole characters, and no beginning of a stop string. May be empty.
    pub text: String,
    /// The tokens of the step: one, or several if guesses were right; none if only text that was held back
    /// is left.
    pub tokens: Vec<Token>,
    /// For each of the tokens, if [`GenerateOptions::logprobs`] asks for them.
    pub logprobs: Vec<TokenLogprobs>,
}

/// Buffers that a generation reuses from step to step and from one generation to the next.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    text: Text,
    piece: Piece,
    best: Vec<Logprob>,
}

impl Buffers {
    /// Starts a generation behind `n_tokens` tokens.
    fn begin(&mut self, n_tokens: usize) {
        self.text.begin(n_tokens);
        self.piece.text.reserve(text::ROOM);
        self.piece.tokens.reserve(16);
    }
}

/// A generation: an iterator over its [`Piece`]s.
///
/// It ends after the last piece, and after an error. Dropping it before its end is fine: the branch then
/// holds exactly the tokens that were yielded. [`Generation::next_piece`] lends pieces instead of giving
/// them away, and then nothing is allocated for a token.
#[derive(Debug)]
pub struct Generation<'s> {
    session: &'s mut Session,
    options: GenerateOptions,
    model: Model,
    n_left: usize,
    is_over: bool,
}

impl Session {
    /// Generate behind what the current branch holds. Nothing happens before the first piece is asked for.
    ///
    /// A piece is what one step chose: its tokens are part of the branch. Text comes as soon as it is
    /// certain that no stop string begins with it.
    ///
    /// # Errors
    /// Pieces are [`Error::NoLogits`] if the branch is empty, [`Error::NoToken`] if the samplers ban every
    /// token, and what [`Context::decode`](crate::Context::decode) returns, but for a full context and a
    /// request to stop, which are a [`Finish`].
    pub fn generate(&mut self, options: GenerateOptions) -> Generation<'_> {
        let n_left = options.limit.unwrap_or(usize::MAX);
        self.here.begin(n_left);
        self.buffers.begin(self.here.tokens.len());
        let model = self.ctx.model().clone();
        Generation { session: self, options, model, n_left, is_over: false }
    }
}

impl Generation<'_> {
    /// Return the next piece; it is overwritten by the one after it. Allocates nothing for a token, but
    /// log-probabilities.
    ///
    /// # Errors
    /// Those of [`Session::generate`].
    pub fn next_piece(&mut self) -> Option<Result<&Piece, Error>> {
        let piece = &mut self.session.buffers.piece;
        piece.text.clear();
        piece.tokens.clear();
        piece.logprobs.clear();
        if self.is_over {
            return None;
        }
        let finish = match self.step() {
            Ok(finish) => finish,
            Err(error) => {
                self.is_over = true;
                // What failed before its first token is nothing to have again.
                let end = self.session.here.end();
                self.session.here.generated.take_if(|generated| generated.start == end);
                return Some(Err(error));
            }
        };
        let Buffers { text, piece, .. } = &mut self.session.buffers;
        match finish {
            None => text.show(&self.options.stops, &mut piece.text),
            Some(finish) => {
                text.show_all(&mut piece.text);
                self.is_over = true;
                let generated = self.session.here.generated.as_mut();
                generated.into_iter().for_each(|generated| generated.finish = Some(finish));
            }
        }
        let piece = &self.session.buffers.piece;
        let is_empty = piece.tokens.is_empty() && piece.text.is_empty();
        (!is_empty).then_some(Ok(piece))
    }

    /// Return why the generation ended; `None` if it did not yet, or with an error.
    pub fn finish(&self) -> Option<Finish> {
        self.session.finish()
    }

    /// Chooses the next tokens. Returns why they are the last, if they are.
    fn step(&mut self) -> Result<Option<Finish>, Error> {
        let n = match self.n_next() {
            Ok(n) => n,
            Err(finish) => return Ok(Some(finish)),
        };
        let ends = |token| self.model.vocab().is_eog(token) && !self.options.ignore_eos;
        let Session { ctx, here: branch, speculative, buffers, .. } = &mut *self.session;
        speculative.follow(branch.seq, branch.unsettled);
        let mut chooser =
            Chooser { branch, buffers, options: &self.options, model: &self.model, is_met: None };
        let step = speculative.step_with(ctx, &mut chooser, n, ends).map(|step| step.end);
        let is_met = chooser.is_met;
        branch.unsettled = speculative.unsettled();
        let piece = &mut buffers.piece;
        // A token that ends the text is drawn, but no part of it.
        piece.logprobs.truncate(piece.tokens.len());
        self.n_left = self.n_left.saturating_sub(piece.tokens.len());
        match step {
            Ok(_) if is_met.is_some() => Ok(is_met.map(|index| Finish::Stop { index })),
            Ok(Some(end)) => Ok(Some(Finish::End(end))),
            Ok(None) => Ok((self.n_left == 0).then_some(Finish::Limit)),
            Err(Error::Cancelled) => Ok(Some(Finish::Cancelled)),
            Err(Error::Memory(backstitch_kv::Error::Full { .. })) => Ok(Some(Finish::ContextFull)),
            Err(error) => Err(error),
        }
    }

    /// The most tokens that the next step may choose, or why there is none.
    fn n_next(&self) -> Result<usize, Finish> {
        let held = self.session.pos().0.unsigned_abs() as usize;
        let room = limit_of(&self.session.ctx).map_or(usize::MAX, |limit| limit.saturating_sub(held));
        match self.n_left.min(room) {
            0 if self.n_left == 0 => Err(Finish::Limit),
            0 => Err(Finish::ContextFull),
            _ if self.session.is_cancelled() => Err(Finish::Cancelled),
            n => Ok(n),
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_piece()? {
            Ok(_) => Some(Ok(core::mem::take(&mut self.session.buffers.piece))),
            Err(error) => Some(Err(error)),
        }
    }
}

impl core::iter::FusedIterator for Generation<'_> {}

/// Draws with the branch's chain, and notes tokens, their text and probabilities.
struct Chooser<'a> {
    branch: &'a mut Branch,
    buffers: &'a mut Buffers,
    options: &'a GenerateOptions,
    model: &'a Model,
    /// The stop string that was met.
    is_met: Option<usize>,
}

impl Choose for Chooser<'_> {
    fn draw(&mut self, logits: &[f32]) -> Option<Token> {
        let token = self.branch.draw(logits)?;
        let Buffers { piece, best, .. } = &mut *self.buffers;
        if let Some(n) = self.options.logprobs {
            piece.logprobs.push(logprobs(logits, token, n, best));
        }
        Some(token)
    }

    fn take(&mut self, token: Token) -> ControlFlow<()> {
        self.branch.push(token);
        let Buffers { text, piece, .. } = &mut *self.buffers;
        piece.tokens.push(token);
        let vocab = self.model.vocab();
        let bytes = if vocab.is_hidden(token) { &[] } else { vocab.piece(token) };
        let Some(met) = text.push(bytes, self.branch.tokens.len(), &self.options.stops) else {
            return ControlFlow::Continue(());
        };
        let pos = self.branch.pos_of(met.n_tokens);
        let generated = self.branch.generated.as_mut();
        generated.into_iter().for_each(|generated| generated.stop = Some((pos, met.rest.clone())));
        self.is_met = Some(met.index);
        ControlFlow::Break(())
    }
}

/// The log-probability of `token`, and those of the `n` likeliest.
pub(super) fn logprobs(logits: &[f32], token: Token, n: usize, best: &mut Vec<Logprob>) -> TokenLogprobs {
    let all = Logprobs::of(logits);
    if n > 0 {
        all.top(n, best);
    } else {
        best.clear();
    }
    TokenLogprobs { token, logprob: all.get(token), top: best.clone() }
}
