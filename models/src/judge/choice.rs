//! Multiple choice: the ending of a text that a model finds the most probable.

use alloc::vec::Vec;

use libm::sqrt;

use crate::context::Context;
use crate::error::Error;
use crate::vocab::{AddSpecial, ParseSpecial};
use backstitch_kv::{SeqId, Token};

use super::score::{Row, evaluate, predict};

/// The logarithms of the probabilities of the endings of a question, in nats.
///
/// # Example
/// ```
/// use backstitch_models::judge::Answer;
///
/// let answer = Answer { totals: vec![-3.0, -4.0], means: vec![-3.0, -2.0] };
/// assert_eq!((answer.best(), answer.best_by_mean()), (Some(0), Some(1)));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// For each ending, that of all its tokens.
    pub totals: Vec<f64>,
    /// For each ending, the mean over its tokens, which does not favour short endings.
    pub means: Vec<f64>,
}

impl Answer {
    /// Return the index of the most probable ending, the first of equals.
    pub fn best(&self) -> Option<usize> {
        best(&self.totals)
    }

    /// Return the index of the ending with the best mean, the first of equals.
    pub fn best_by_mean(&self) -> Option<usize> {
        best(&self.means)
    }
}

fn best(values: &[f64]) -> Option<usize> {
    (0..values.len()).reduce(|best, i| match (values.get(best), values.get(i)) {
        (Some(old), Some(new)) if new > old => i,
        _ => best,
    })
}

/// Return how probable each of `endings` is after `context`.
///
/// A space stands between the two unless one of them has white space there. The tokens that all
/// endings share are evaluated once; the endings are then evaluated in forks of that sequence, so
/// the context needs two sequences, and as many tokens as the longest text.
///
/// # Errors
/// Those of [`Context::decode`] and [`Context::logits`], and [`Error::TooManySequences`] if fewer
/// than two sequences are free.
///
/// # Example
/// ```
/// use backstitch_models::judge::answer;
/// use backstitch_models::{Context, Model, Params};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(2))?;
/// let answer = answer(&mut ctx, "Once upon a", &["time", "giraffe computes"])?;
/// assert_eq!(answer.best(), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn answer(ctx: &mut Context, context: &str, endings: &[&str]) -> Result<Answer, Error> {
    let texts: Vec<Vec<Token>> = endings.iter().map(|ending| tokens(ctx, context, ending)).collect();
    let shortest = texts.iter().map(Vec::len).min().unwrap_or(0);
    let shared = |n: &usize| texts.windows(2).all(|pair| matches!(pair, [a, b] if a.get(*n) == b.get(*n)));
    // At least one token has to be predicted, and at least one has to be read.
    let n_shared = (0..shortest.saturating_sub(1)).take_while(shared).count().max(1);
    let seq = ctx.sequence()?;
    let result = of_texts(ctx, seq, &texts, n_shared);
    ctx.release(seq)?;
    result
}

/// Return the tokens of a context with an ending.
fn tokens(ctx: &Context, context: &str, ending: &str) -> Vec<Token> {
    let joined = context.is_empty()
        || context.ends_with(char::is_whitespace)
        || ending.starts_with(char::is_whitespace);
    let text = [context, if joined { "" } else { " " }, ending].concat();
    let mut tokens = Vec::new();
    ctx.model().vocab().tokenize(&text, AddSpecial::Start, ParseSpecial::No, &mut tokens);
    tokens
}

/// Return the probabilities of texts of which the first `n_shared` tokens are the same.
fn of_texts(ctx: &mut Context, seq: SeqId, texts: &[Vec<Token>], n_shared: usize) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let Some(first) = texts.first() else { return Ok(answer) };
    let shared = first.get(..n_shared).unwrap_or(first);
    let n_read = shared.len().saturating_sub(1);
    evaluate(ctx, seq, shared.get(..n_read).unwrap_or(&[]))?;
    for text in texts {
        let (mut total, mut n) = (0.0, 0u32);
        let mut add = |row: &Row<'_>| {
            total -= row.surprise();
            n += 1;
        };
        let fork = ctx.fork(seq)?;
        let result = predict(ctx, fork, text, n_read..text.len().saturating_sub(1).max(n_read), &mut add);
        ctx.release(fork)?;
        result?;
        answer.totals.push(total);
        answer.means.push(total / f64::from(n.max(1)));
    }
    Ok(answer)
}

/// The number of right answers, with a confidence interval.
///
/// # Example
/// ```
/// use backstitch_models::judge::Accuracy;
///
/// let mut accuracy = Accuracy::default();
/// (0..10).for_each(|i| accuracy.add(i < 8));
/// assert_eq!(accuracy.value(), 0.8);
/// let (low, high) = accuracy.interval();
/// assert!((low - 0.490).abs() < 1e-3 && (high - 0.943).abs() < 1e-3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    n: u64,
    n_right: u64,
}

impl Accuracy {
    /// Add an answer.
    pub fn add(&mut self, is_right: bool) {
        self.n += 1;
        self.n_right += u64::from(is_right);
    }

    /// Return the number of answers.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Return the part of right answers; 0 of none.
    pub fn value(&self) -> f64 {
        self.n_right as f64 / self.n.max(1) as f64
    }

    /// Return the interval that holds the true part with a probability of 95 % (Wilson, 1927).
    pub fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.959_963_984_540_054;
        if self.n == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.n as f64, self.value());
        let scale = 1.0 + Z * Z / n;
        let middle = (p + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * sqrt(p * (1.0 - p) / n + Z * Z / (4.0 * n * n));
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Params};

    fn context() -> Context {
        let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
        Context::new(&model, Params::default().n_ctx(128).n_seq_max(2)).unwrap()
    }

    /// Return the logarithm of the probability of all tokens of a text behind the first `n`.
    fn alone(ctx: &mut Context, text: &[Token], n: usize) -> f64 {
        let seq = ctx.sequence().unwrap();
        let mut total = 0.0;
        for (i, &token) in text.iter().enumerate() {
            if i >= n {
                total -= Row::new(ctx.logits(seq).unwrap(), token).surprise();
            }
            ctx.append(seq, &[token]).unwrap();
        }
        ctx.release(seq).unwrap();
        total
    }

    #[test]
    fn an_ending_is_as_probable_as_alone() {
        let mut ctx = context();
        let (start, endings) = ("The girl had a", ["red ball", "red", "dog and a cat"]);
        let found = answer(&mut ctx, start, &endings).unwrap();
        let before = tokens(&ctx, "", start);
        for (i, ending) in endings.iter().enumerate() {
            let text = tokens(&ctx, start, ending);
            assert_eq!(text[..before.len()], before[..]);
            assert_eq!(found.totals[i], alone(&mut ctx, &text, before.len()), "{ending}");
            let n = (text.len() - before.len()) as f64;
            assert!((found.means[i] - found.totals[i] / n).abs() < 1e-12);
        }
    }

    #[test]
    fn questions_without_endings_or_texts_have_no_best_answer_or_the_first() {
        let mut ctx = context();
        assert_eq!(answer(&mut ctx, "a", &[]).unwrap().best(), None);
        assert_eq!(answer(&mut ctx, "", &["", ""]).unwrap().best(), Some(0));
        let same = answer(&mut ctx, "a", &["cat", "cat"]).unwrap();
        assert_eq!((same.best(), same.totals[0]), (Some(0), same.totals[1]));
        // The sequences were released.
        assert!(ctx.sequence().is_ok() && ctx.sequence().is_ok());
    }

    #[test]
    fn few_answers_say_little() {
        assert_eq!(Accuracy::default().interval(), (0.0, 1.0));
        let mut accuracy = Accuracy::default();
        accuracy.add(true);
        let (low, high) = accuracy.interval();
        assert!(low > 0.2 && low < 0.21 && high == 1.0);
    }
}
