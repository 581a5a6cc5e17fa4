//! Tokens that are evaluated without being generated: prompts, more text, and text whose likelihood is asked for.

use super::Session;
use super::generate::{TokenLogprobs, logprobs};
use crate::error::Error;
use crate::vocab::{AddSpecial, ParseSpecial};
use alloc::vec::Vec;
use backstitch_kv::{Batch, Pos, SeqId, Token};

impl Session {
    /// Return the tokens of a text as a prompt begins: with what the vocabulary adds. Empty if the text is and
    /// nothing is added.
    ///
    /// [`ParseSpecial::Yes`] turns control tokens written out in the text into those tokens, which steer the
    /// model. It is for text whose every byte is trusted, never for what users type: these could end their
    /// turn and speak as the system. For conversations there is
    /// [`Vocab::tokenize_trusted`](crate::vocab::Vocab::tokenize_trusted).
    pub fn tokenize(&self, text: &str, parse: ParseSpecial) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.ctx.model().vocab().tokenize(text, AddSpecial::Yes, parse, &mut tokens);
        tokens
    }

    /// Return the tokens of a text that goes on where the current branch ends: fed to it, the branch holds the
    /// text that it held and this one, with no space between them that is in neither. As
    /// [`Session::tokenize`] if the branch is empty, and with its warning.
    pub fn tokenize_behind(&self, text: &str, parse: ParseSpecial) -> Vec<Token> {
        let (vocab, mut tokens) = (self.ctx.model().vocab(), Vec::new());
        if self.pos() == Pos::ZERO {
            return self.tokenize(text, parse);
        }
        match self.tokens().last() {
            Some(&last) if vocab.is_special(last) => {
                vocab.tokenize(text, AddSpecial::No, parse, &mut tokens);
            }
            _ => vocab.tokenize_behind(text, parse, &mut tokens),
        }
        tokens
    }

    /// Evaluate `tokens` behind what the current branch holds.
    ///
    /// # Errors
    /// Those of [`Context::append`](crate::Context::append); nothing has changed then. [`Error::Cancelled`]: the
    /// branch keeps the tokens that were evaluated before the request, which [`Session::pos`] tells.
    pub fn feed(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.feed_with(tokens, |_| {})
    }

    /// Evaluate `tokens`, as [`Session::feed`]; `progress` hears after every
    /// [`Params::n_ubatch`](crate::Params::n_ubatch) tokens how many are done.
    ///
    /// # Errors
    /// Those of [`Session::feed`].
    pub fn feed_with(&mut self, tokens: &[Token], progress: impl FnMut(usize)) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.settle()?;
        let seq = self.current();
        let n_done = self.ctx.append_partly(seq, tokens, progress)?;
        self.note(tokens.get(..n_done).unwrap_or(tokens));
        if n_done < tokens.len() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Adds tokens that were evaluated.
    pub(super) fn note(&mut self, tokens: &[Token]) {
        self.here.mark();
        self.here.generated.iter_mut().for_each(|generated| generated.stop = None);
        tokens.iter().for_each(|&token| self.here.push(token));
    }

    /// Evaluate a prompt behind what the current branch holds. For an encoder-decoder it is the text to
    /// encode, and the answer begins with the token that the model names for that; the branch is empty
    /// then.
    ///
    /// # Errors
    /// Those of [`Session::feed`]. For an encoder-decoder [`Error::NoDecoderStart`], and those of
    /// [`Context::encode`](crate::Context::encode).
    pub fn prompt(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.prompt_with(tokens, |_| {})
    }

    /// Evaluate a prompt, as [`Session::prompt`]; `progress` is called as by [`Session::feed_with`].
    ///
    /// # Errors
    /// Those of [`Session::prompt`].
    pub fn prompt_with(&mut self, tokens: &[Token], progress: impl FnMut(usize)) -> Result<(), Error> {
        let model = self.ctx.model();
        if model.graph().encoder().is_none() {
            return self.feed_with(tokens, progress);
        }
        let start = model.hparams().decoder_start.map(Token).or(model.vocab().bos());
        let start = start.ok_or(Error::NoDecoderStart)?;
        self.settle()?;
        let seq = self.current();
        self.ctx.encode(seq, tokens)?;
        self.feed(&[start])
    }

    /// Evaluate `tokens` behind what the current branch holds, as [`Session::feed`], and tell `scored` the
    /// log-probability of each, and of the `n` likeliest tokens at its place. Rows of logits are kept for
    /// one ubatch at a time.
    ///
    /// # Errors
    /// Those of [`Session::feed`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::sampler::Settings;
    /// use backstitch_models::session::Session;
    /// use backstitch_models::vocab::ParseSpecial;
    /// use backstitch_models::{Context, Model, Params};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
    /// let mut session = Session::new(ctx, &Settings::default())?;
    /// let (mut sum, mut n) = (0.0, 0);
    /// let text = session.tokenize("Once upon a time, there was a little girl", ParseSpecial::No);
    /// session.score(&text, 0, |token| {
    ///     token.logprob.into_iter().for_each(|logprob| (sum, n) = (sum + logprob, n + 1));
    /// })?;
    /// assert!((-sum / f64::from(n)).exp() < 10.0, "perplexity");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn score(
        &mut self,
        tokens: &[Token],
        n: usize,
        mut scored: impl FnMut(TokenLogprobs),
    ) -> Result<(), Error> {
        self.settle()?;
        self.check_fit(self.pos(), tokens)?;
        let (start, seq, mut best) = (self.pos(), self.current(), Vec::new());
        let Some(&first) = tokens.first() else { return Ok(()) };
        scored(match self.tokens() {
            [] => TokenLogprobs { token: first, logprob: None, top: Vec::new() },
            _ => logprobs(self.logits()?, first, n, &mut best),
        });
        let (mut batch, mut n_done) = (Batch::new(), 0);
        for step in tokens.chunks(self.ctx.params().n_ubatch as usize) {
            fill(&mut batch, seq, self.pos(), step);
            if let Err(error) = self.ctx.decode(&batch) {
                if !matches!(error, Error::Cancelled) {
                    self.rollback(start)?;
                }
                return Err(error);
            }
            self.note(step);
            n_done += step.len();
            let next = tokens.get(n_done + 1 - step.len()..).unwrap_or_default();
            for (i, &token) in next.iter().take(step.len()).enumerate() {
                let logits = self.ctx.output(i).ok_or(Error::NoLogits { seq: seq.0 })?;
                scored(logprobs(logits, token, n, &mut best));
            }
        }
        Ok(())
    }
}

/// Tokens of `seq` from `start` on, with the output of each.
fn fill(batch: &mut Batch, seq: SeqId, start: Pos, tokens: &[Token]) {
    batch.clear();
    for (pos, &token) in (start.0..).zip(tokens) {
        batch.push(token, Pos(pos), &[seq], true);
    }
}
