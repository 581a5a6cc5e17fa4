//! Evaluating a window: the logits before each scored token.

use alloc::vec::Vec;

use backstitch_kv::{Batch, Pos, SeqId, Token, Wanted};
use libm::{expf, log};

use crate::context::Context;
use crate::error::Error;

use super::windows::Window;

/// The tokens that are evaluated at once for their logits, which bounds the memory of those.
const PIECE: usize = 128;

/// The prediction of one token.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::judge::Row;
///
/// let row = Row::new(&[0.0, 0.0], Token(1));
/// assert!((row.surprise() - 2f64.ln()).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Row<'l> {
    /// The logits `[n_vocab]` that the model predicted the token with.
    pub logits: &'l [f32],
    /// The token that the text has there.
    pub token: Token,
    /// The largest logit.
    pub(super) max: f32,
    /// The logarithm of the sum of exponentials of the logits, less the largest.
    pub(super) log_sum: f64,
}

impl<'l> Row<'l> {
    /// Make a row of logits, and of the token that follows.
    pub fn new(logits: &'l [f32], token: Token) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(expf(logit - max))).sum();
        Self { logits, token, max, log_sum: log(sum) }
    }

    /// Return the negative natural logarithm of the token's probability.
    pub fn surprise(&self) -> f64 {
        self.log_sum - f64::from(self.logit() - self.max)
    }

    /// Return the logit of the token.
    fn logit(&self) -> f32 {
        self.logits.get(self.token.0 as usize).copied().unwrap_or(f32::NEG_INFINITY)
    }

    /// Return the most probable token, the first of equals.
    pub fn top(&self) -> Token {
        let top = self.logits.iter().position(|&logit| logit == self.max);
        Token(top.unwrap_or(0) as u32)
    }
}

/// Evaluate a window in a sequence of its own and call `found` with the prediction of each scored
/// token. If the vocabulary wants a beginning-of-sequence token before every text, it takes the
/// place of the first token. The context is afterwards as it was before.
///
/// # Errors
/// Those of [`Context::decode`], and [`Error::TooManySequences`] if no sequence is free.
pub fn score(ctx: &mut Context, window: &Window<'_>, found: &mut dyn FnMut(&Row<'_>)) -> Result<(), Error> {
    let mut tokens = Vec::new();
    tokens.extend_from_slice(window.tokens);
    let vocab = ctx.model().vocab();
    if let (Some(bos), Some(first)) = (vocab.bos().filter(|_| vocab.adds_bos()), tokens.first_mut()) {
        *first = bos;
    }
    let seq = ctx.sequence()?;
    // The predictions before `first` are not asked for, and those of the last token predict nothing.
    let n_read = window.first.max(1) - 1;
    let scored = window.tokens.len().saturating_sub(1);
    let result = evaluate(ctx, seq, tokens.get(..n_read.min(scored)).unwrap_or(&[]))
        .and_then(|()| predict(ctx, seq, &tokens, n_read..scored, found));
    ctx.release(seq)?;
    result
}

/// Evaluate tokens at the end of `seq` without logits.
pub(super) fn evaluate(ctx: &mut Context, seq: SeqId, tokens: &[Token]) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.extend(seq, ctx.pos(seq)?, tokens, Wanted::None)?;
    ctx.decode(&batch)
}

/// Evaluate the tokens in `range`, which starts at the end of `seq`, and call `found` with the
/// prediction of the token behind each of them.
pub(super) fn predict(
    ctx: &mut Context,
    seq: SeqId,
    tokens: &[Token],
    range: core::ops::Range<usize>,
    found: &mut dyn FnMut(&Row<'_>),
) -> Result<(), Error> {
    let mut batch = Batch::new();
    let mut pos = ctx.pos(seq)?;
    for start in range.clone().step_by(PIECE) {
        let end = range.end.min(start + PIECE);
        batch.clear();
        batch.extend(seq, pos, tokens.get(start..end).unwrap_or(&[]), Wanted::All)?;
        ctx.decode(&batch)?;
        pos = Pos(pos.0 + (end - start) as i32);
        for i in start..end {
            if let (Some(logits), Some(&next)) = (ctx.output(i - start), tokens.get(i + 1)) {
                found(&Row::new(logits, next));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Params};

    fn context() -> Context {
        let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
        Context::new(&model, Params::default().n_ctx(64).n_ubatch(16)).unwrap()
    }

    #[test]
    fn a_row_knows_the_probability_of_its_token() {
        let row = Row::new(&[1.0, 3.0, 3.0, f32::NEG_INFINITY], Token(0));
        let p = (1f64 - 3.0).exp() / ((1f64 - 3.0).exp() + 2.0);
        assert!((row.surprise() + p.ln()).abs() < 1e-6);
        assert_eq!(row.top(), Token(1));
        assert_eq!(Row::new(&[1.0], Token(7)).surprise(), f64::INFINITY);
    }

    /// The predictions are those of evaluating the tokens one by one.
    #[test]
    fn windows_are_predicted_as_token_by_token() {
        let mut ctx = context();
        let tokens: Vec<Token> = (10..50).map(Token).collect();
        let window = Window { tokens: &tokens, first: 21 };
        let mut found = Vec::new();
        score(&mut ctx, &window, &mut |row| found.push((row.token, row.logits.to_vec()))).unwrap();
        assert_eq!(found.len(), window.n_scored());

        let seq = ctx.sequence().unwrap();
        let bos = ctx.model().vocab().bos().filter(|_| ctx.model().vocab().adds_bos());
        for (i, &token) in tokens.iter().enumerate() {
            if let Some((next, logits)) = i.checked_sub(21).and_then(|i| found.get(i)) {
                assert_eq!((*next, ctx.logits(seq).unwrap()), (token, &logits[..]));
            }
            let token = bos.filter(|_| i == 0).unwrap_or(token);
            ctx.append(seq, &[token]).unwrap();
        }
    }

    #[test]
    fn a_window_that_does_not_fit_is_an_error_and_leaves_no_sequence() {
        let mut ctx = context();
        let tokens = [Token(10); 100];
        for _ in 0..3 {
            assert!(score(&mut ctx, &Window { tokens: &tokens, first: 51 }, &mut |_| ()).is_err());
        }
        let (tokens, mut n) = (&tokens[..1], 0);
        score(&mut ctx, &Window { tokens, first: 1 }, &mut |_| n += 1).unwrap();
        score(&mut ctx, &Window { tokens: &[], first: 0 }, &mut |_| n += 1).unwrap();
        assert_eq!(n, 0);
    }
}
