//! The windows of a text: stretches that are evaluated on their own.

use backstitch_kv::Token;

/// A window: tokens that a model evaluates, and the first of them that it has to predict.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::judge::Window;
///
/// let window = Window { tokens: &[Token(5), Token(6), Token(7)], first: 2 };
/// assert_eq!(window.n_scored(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'t> {
    /// The tokens, at most as many as the context takes.
    pub tokens: &'t [Token],
    /// The index of the first token that is scored, at least 1. Those before it are only read.
    pub first: usize,
}

impl Window<'_> {
    /// Return the number of tokens that are scored.
    pub fn n_scored(&self) -> usize {
        self.tokens.len().saturating_sub(self.first.max(1))
    }
}

/// The windows of a text, each of `n_ctx` tokens.
///
/// Without a stride they do not overlap, and the second half of each is scored, apart from the
/// token in its middle. With one, a window begins `stride` tokens after the one before it, and its
/// last `stride` tokens are scored. Tokens that do not fill a window are left out.
///
/// # Example
/// ```
/// use backstitch_models::Token;
/// use backstitch_models::judge::Windows;
///
/// let tokens: Vec<Token> = (0..70).map(Token).collect();
/// let mut windows = Windows::new(&tokens, 32, None).unwrap();
/// assert_eq!(windows.len(), 2);
/// let window = windows.next().unwrap();
/// assert_eq!((window.tokens.len(), window.first, window.n_scored()), (32, 17, 15));
/// ```
#[derive(Clone, Debug)]
pub struct Windows<'t> {
    tokens: &'t [Token],
    n_ctx: usize,
    step: usize,
    first: usize,
    /// The windows to come.
    left: core::ops::Range<usize>,
}

impl<'t> Windows<'t> {
    /// Divide `tokens`. Return `None` if a window has fewer than 4 tokens, or if `stride` is 0 or
    /// not less than `n_ctx`.
    pub fn new(tokens: &'t [Token], n_ctx: usize, stride: Option<usize>) -> Option<Self> {
        if n_ctx < 4 || stride.is_some_and(|stride| stride == 0 || stride >= n_ctx) {
            return None;
        }
        let step = stride.unwrap_or(n_ctx);
        let first = stride.map_or(n_ctx / 2 + 1, |stride| n_ctx - stride);
        let n = tokens.len().checked_sub(n_ctx).map_or(0, |rest| rest / step + 1);
        Some(Self { tokens, n_ctx, step, first, left: 0..n })
    }

    /// Keep only the first `n` windows.
    #[must_use]
    pub fn at_most(mut self, n: usize) -> Self {
        self.left.end = self.left.end.min(self.left.start.saturating_add(n));
        self
    }
}

impl<'t> Iterator for Windows<'t> {
    type Item = Window<'t>;

    fn next(&mut self) -> Option<Window<'t>> {
        let start = self.left.next()? * self.step;
        Some(Window { tokens: self.tokens.get(start..start + self.n_ctx)?, first: self.first })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for Windows<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn windows_do_not_overlap_without_a_stride() {
        let tokens: Vec<Token> = (0..20).map(Token).collect();
        let windows: Vec<_> = Windows::new(&tokens, 8, None).unwrap().collect();
        assert_eq!(windows.iter().map(|window| window.tokens[0].0).collect::<Vec<_>>(), [0, 8]);
        assert!(windows.iter().all(|window| window.first == 5 && window.n_scored() == 3));
        assert_eq!(Windows::new(&tokens, 8, None).unwrap().at_most(1).len(), 1);
        assert_eq!(Windows::new(&tokens, 21, None).unwrap().len(), 0);
    }

    #[test]
    fn with_a_stride_every_token_after_the_first_window_is_scored_once() {
        let tokens: Vec<Token> = (0..20).map(Token).collect();
        let scored = Windows::new(&tokens, 8, Some(3)).unwrap();
        let scored: Vec<u32> = scored.flat_map(|w| w.tokens[w.first..].iter().map(|t| t.0)).collect();
        assert_eq!(scored, (5..20).collect::<Vec<_>>());
    }

    #[test]
    fn sizes_that_leave_nothing_to_score_are_refused() {
        assert!(Windows::new(&[], 3, None).is_none());
        assert!(Windows::new(&[], 8, Some(0)).is_none());
        assert!(Windows::new(&[], 8, Some(8)).is_none());
        assert_eq!(Windows::new(&[], 8, None).unwrap().len(), 0);
    }
}
