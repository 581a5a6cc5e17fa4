//! Tokens that are evaluated without being generated: prompts, further text, and text to be scored.

use super::Session;
use super::chunk::TokenLogprobs;
use crate::error::Error;
use crate::vocab::{AddSpecial, ParseSpecial};
use alloc::vec::Vec;
use backstitch_kv::{Batch, Pos, Token, Wanted};

impl Session {
    /// Return the tokens of a text at the beginning of a prompt, with the special tokens that the
    /// vocabulary adds there. The result is empty if the text is empty and nothing is added.
    ///
    /// [`ParseSpecial::Yes`] turns control tokens that are written out in the text into those
    /// tokens, which steer the model. Use it only for text whose every byte is trusted, and never
    /// for text that users type: they could end their turn and speak as the system. For
    /// conversations there is [`Vocab::tokenize_trusted`](crate::vocab::Vocab::tokenize_trusted).
    pub fn tokenize(&self, text: &str, parse: ParseSpecial) -> Vec<Token> {
        let mut tokens = Vec::new();
        let model = self.ctx.model();
        model.vocab().tokenize(text, model.prompt_special(), parse, &mut tokens);
        tokens
    }

    /// Return the tokens of a text that continues the current branch.
    ///
    /// Fed to the branch, they add exactly this text, without a space that neither has. If the
    /// branch is empty, this is [`Session::tokenize`], whose warning applies here too.
    pub fn tokenize_behind(&self, text: &str, parse: ParseSpecial) -> Vec<Token> {
        self.tokenize_at(self.pos(), text, parse)
    }

    /// Return the tokens of a text that continues the current branch from `pos` on, as
    /// [`Session::tokenize_behind`] does from its end: those to give to [`Session::edit`].
    pub fn tokenize_at(&self, pos: Pos, text: &str, parse: ParseSpecial) -> Vec<Token> {
        let (vocab, mut tokens) = (self.ctx.model().vocab(), Vec::new());
        if pos <= Pos::ZERO {
            return self.tokenize(text, parse);
        }
        match self.current.token_before(pos) {
            Some(last) if vocab.is_special(last) => {
                vocab.tokenize(text, AddSpecial::No, parse, &mut tokens);
            }
            _ => vocab.tokenize_behind(text, parse, &mut tokens),
        }
        tokens
    }

    /// Evaluate `tokens` behind those of the current branch.
    ///
    /// # Errors
    /// Those of [`Context::append`](crate::Context::append); nothing has changed then. On
    /// [`Error::Cancelled`] the branch keeps the tokens that were evaluated before the request;
    /// [`Session::pos`] is their end.
    pub fn feed(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.feed_with(tokens, |_| {})
    }

    /// Evaluate `tokens`, as [`Session::feed`]. After every
    /// [`Params::n_ubatch`](crate::Params::n_ubatch) tokens, `progress` is called with the number
    /// of tokens evaluated.
    ///
    /// # Errors
    /// Those of [`Session::feed`].
    pub fn feed_with(&mut self, tokens: &[Token], progress: impl FnMut(usize)) -> Result<(), Error> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.evaluate_pending()?;
        let seq = self.current();
        let n_done = self.ctx.append_partly(seq, tokens, progress)?;
        debug_assert!(n_done <= tokens.len(), "a prefix of the tokens");
        self.note(tokens.get(..n_done).unwrap_or(tokens));
        if n_done < tokens.len() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Add tokens that were evaluated, if there are any.
    pub(super) fn note(&mut self, tokens: &[Token]) {
        if tokens.is_empty() {
            return;
        }
        self.current.checkpoint();
        self.current.generated.iter_mut().for_each(|generated| generated.stop = None);
        tokens.iter().for_each(|&token| self.current.push(token));
    }

    /// Evaluate a prompt behind the tokens of the current branch.
    ///
    /// For an encoder-decoder the prompt is the input of the encoder. The branch must be empty
    /// then, and the answer begins with the decoder's start token.
    ///
    /// # Errors
    /// Those of [`Session::feed`]. For an encoder-decoder also [`Error::NoDecoderStart`], and those
    /// of [`Context::encode`](crate::Context::encode).
    pub fn prompt(&mut self, tokens: &[Token]) -> Result<(), Error> {
        self.prompt_with(tokens, |_| {})
    }

    /// Evaluate a prompt, as [`Session::prompt`]. `progress` is called as by
    /// [`Session::feed_with`].
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
        self.evaluate_pending()?;
        let seq = self.current();
        self.ctx.encode(seq, tokens)?;
        self.feed(&[start])
    }

    /// Evaluate `tokens` behind those of the current branch, as [`Session::feed`], and call
    /// `scored` with the log-probability of each token, and of the `n` likeliest at its position.
    /// Rows of logits are held for one ubatch at a time.
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
        self.evaluate_pending()?;
        self.check_fit(self.pos(), tokens)?;
        let (start, seq, mut best) = (self.pos(), self.current(), Vec::new());
        let Some(&first) = tokens.first() else { return Ok(()) };
        scored(match self.tokens() {
            [] => TokenLogprobs::unpredicted(first),
            _ => TokenLogprobs::of(self.logits()?, first, n, &mut best),
        });
        let (mut batch, mut n_done) = (Batch::new(), 0);
        for step in tokens.chunks(self.ctx.params().n_ubatch as usize) {
            batch.clear();
            let filled = batch.extend(seq, self.pos(), step, Wanted::All).map(|_| ());
            if let Err(error) = filled.map_err(Error::from).and_then(|()| self.ctx.decode(&batch)) {
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
                scored(TokenLogprobs::of(logits, token, n, &mut best));
            }
        }
        Ok(())
    }
}
