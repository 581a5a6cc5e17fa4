//! The state of one sequence in its grammar.

use alloc::{string::String, vec::Vec};

use backstitch_kv::Token;
use llguidance::toktrie::SimpleVob;

use super::Grammar;
use super::compile::first_line;
use super::error::GrammarError;

/// A set of tokens, one bit each.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::Compiler;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut matcher = Compiler::new(model.vocab())?.gbnf("root ::= \"a\"")?.matcher();
/// let allowed = matcher.mask()?;
/// assert!(allowed.iter().all(|token| model.vocab().piece(token) == b"a"));
/// assert!(allowed.len() >= 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TokenSet(SimpleVob);

impl TokenSet {
    /// Return true if the set has `token`.
    #[inline]
    pub fn contains(&self, token: Token) -> bool {
        let word = self.0.as_slice().get(token.0 as usize / 32);
        word.is_some_and(|word| word >> (token.0 % 32) & 1 == 1)
    }

    /// Return the number of tokens in the set.
    pub fn len(&self) -> usize {
        self.0.num_set()
    }

    /// Return true if the set has no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_zero()
    }

    /// Return the tokens in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Token> {
        self.0.iter().map(Token)
    }

    /// Return the bits, the lowest token in the lowest bit of the first word. Bits past the end of
    /// the vocabulary are zero.
    pub fn words(&self) -> &[u32] {
        self.0.as_slice()
    }
}

/// The position of one sequence in its grammar: the tokens that are allowed next, and rollback to
/// earlier positions.
///
/// A matcher begins before the first token of a text. [`accept`](Self::accept) moves it forward and
/// [`rollback`](Self::rollback) back; a clone is a fork that goes on by itself. Clones share the
/// automata that masks are computed with, so they wait for each other if they run on several
/// threads. Those of [`Grammar::matcher`] share nothing.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::Compiler;
/// use backstitch_models::vocab::{AddSpecial, ParseSpecial};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut matcher = Compiler::new(model.vocab())?.json_object()?.matcher();
/// let mut tokens = Vec::new();
/// model.vocab().tokenize_behind("{\"a\": [1, 2]}", ParseSpecial::No, &mut tokens);
/// for &token in &tokens {
///     assert!(matcher.mask()?.contains(token));
///     matcher.accept(token)?;
/// }
/// assert!(matcher.is_accepting());
/// matcher.rollback(1)?;
/// assert!(!matcher.is_accepting());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Matcher {
    grammar: Grammar,
    inner: llguidance::Matcher,
    /// The tokens accepted so far. If the last one ends the generation, `inner` does not know it.
    tokens: Vec<Token>,
    /// True if the last token ended the generation.
    has_ended: bool,
    mask: TokenSet,
    is_mask_current: bool,
}

impl Matcher {
    pub(super) fn new(grammar: Grammar) -> Self {
        let inner = grammar.start();
        let (tokens, mask) = (Vec::new(), TokenSet::default());
        Self { grammar, inner, tokens, has_ended: false, mask, is_mask_current: false }
    }

    /// Return the grammar.
    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    /// Return the tokens accepted so far.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Return the tokens that are allowed next. Those that end the generation are among them if the
    /// grammar accepts the text so far, and alone if nothing can follow. The set is empty behind
    /// such a token, and if nothing can follow and the vocabulary has none.
    ///
    /// The set is computed once for each position: a call on another thread, while the model runs,
    /// leaves nothing to do for the one that draws.
    ///
    /// # Errors
    /// [`GrammarError::Stuck`] if the grammar is too complex here, or does not accept the text so
    /// far and no token can continue it.
    pub fn mask(&mut self) -> Result<&TokenSet, GrammarError> {
        if !self.is_mask_current {
            self.mask.0 = self.compute_mask()?;
            self.is_mask_current = true;
        }
        Ok(&self.mask)
    }

    fn compute_mask(&mut self) -> Result<SimpleVob, GrammarError> {
        if self.has_ended {
            return Ok(self.no_tokens());
        }
        let can_only_end = self.inner.is_stopped() && !self.inner.is_error();
        let has_eog = !self.grammar.compiler().vocab().eog().is_empty();
        let is_accepting = !can_only_end && !has_eog && self.is_accepting();
        if can_only_end {
            return Ok(self.eog_set());
        }
        match self.inner.compute_mask() {
            Ok(mask) => Ok(mask),
            // Without a token that ends the generation, a complete text has no next token at all,
            // which the library takes for an error that lasts.
            Err(_) if is_accepting => {
                self.replay(self.tokens.len())?;
                Ok(self.eog_set())
            }
            Err(error) => Err(stuck(&error)),
        }
    }

    fn no_tokens(&self) -> SimpleVob {
        let n_vocab = self.grammar.compiler().vocab().n_vocab();
        SimpleVob::alloc_with_capacity(n_vocab, n_vocab + 1)
    }

    fn eog_set(&self) -> SimpleVob {
        let (vocab, mut set) = (self.grammar.compiler().vocab(), self.no_tokens());
        vocab.eog().iter().for_each(|token| set.allow_token(token.0));
        set
    }

    /// Move on by one token. A token that ends the generation is accepted where the grammar
    /// accepts.
    ///
    /// # Errors
    /// [`GrammarError::Token`] if the grammar does not allow the token here, and the matcher has
    /// not changed; [`GrammarError::Stuck`] if the grammar is too complex here.
    pub fn accept(&mut self, token: Token) -> Result<(), GrammarError> {
        let refused = Err(GrammarError::Token { token });
        let vocab = self.grammar.compiler().vocab();
        if self.has_ended || token.0 as usize >= vocab.n_vocab() {
            return refused;
        }
        if vocab.is_eog(token) {
            if !self.is_accepting() {
                return refused;
            }
            self.has_ended = true;
        } else if self.inner.try_consume_tokens(&[token.0]).map_err(|error| stuck(&error))? == 0 {
            return refused;
        }
        self.tokens.push(token);
        self.is_mask_current = false;
        Ok(())
    }

    /// Return true if the grammar accepts the text so far as a whole.
    pub fn is_accepting(&mut self) -> bool {
        self.has_ended || self.inner.is_accepting().unwrap_or(false)
    }

    /// Return true if the text is complete and nothing can follow it, or the matcher is stuck.
    pub fn is_stopped(&self) -> bool {
        self.has_ended || self.inner.is_stopped()
    }

    /// Return true if the next [`Matcher::mask`] has nothing to compute.
    pub fn has_mask(&self) -> bool {
        self.is_mask_current
    }

    /// Return true if the last token ended the generation.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Take back the last `n` tokens.
    ///
    /// A matcher that is stuck accepts the tokens left again, from the beginning.
    ///
    /// # Errors
    /// [`GrammarError::Rollback`] if fewer were accepted; [`GrammarError::Stuck`] if the matcher
    /// was stuck and becomes so again.
    pub fn rollback(&mut self, n: usize) -> Result<(), GrammarError> {
        let limit = self.tokens.len();
        let left = limit.checked_sub(n).ok_or(GrammarError::Rollback { found: n, limit })?;
        if n == 0 && !self.inner.is_error() {
            return Ok(());
        }
        self.is_mask_current = false;
        let n_inner = n - usize::from(core::mem::take(&mut self.has_ended) && n > 0);
        if self.inner.is_error() || self.inner.rollback(n_inner).is_err() {
            return self.replay(left);
        }
        self.tokens.truncate(left);
        Ok(())
    }

    /// Begin anew, with the first `n` of the tokens accepted.
    fn replay(&mut self, n: usize) -> Result<(), GrammarError> {
        let tokens = core::mem::take(&mut self.tokens);
        self.inner = self.grammar.start();
        tokens.into_iter().take(n).try_for_each(|token| self.accept(token))
    }

    /// Return to the beginning of the text.
    ///
    /// # Errors
    /// Those of [`Matcher::rollback`].
    pub fn reset(&mut self) -> Result<(), GrammarError> {
        self.rollback(self.tokens.len())
    }
}

impl core::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Matcher")
            .field("tokens", &self.tokens.len())
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

fn stuck(error: &impl core::fmt::Display) -> GrammarError {
    let reason: String = first_line(&alloc::format!("{error}"));
    GrammarError::Stuck { reason }
}
