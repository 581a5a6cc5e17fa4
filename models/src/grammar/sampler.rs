//! A grammar as a sampler of a chain.

use alloc::{sync::Arc, vec::Vec};
use std::sync::{Mutex, PoisonError};

use backstitch_kv::Token;

use super::error::GrammarError;
use super::{Grammar, Matcher, Triggers};
use crate::sampler::{Candidates, History, Sampler};

/// The most triggers that the grammar may refuse. Those behind are text: each is looked for, and
/// tried, from its beginning on.
const MAX_REFUSED: usize = 64;

/// A sampler that bans every token that its grammar does not allow.
///
/// Tokens that end the generation are banned until the grammar accepts, and all others once nothing
/// can follow. The sampler belongs before those that drop candidates: a token that an earlier
/// sampler dropped cannot come back. Unlike other samplers it allocates, as llguidance does for
/// each token: the set of the mask, and some twenty small pieces of its parser's tables. Nothing is
/// allocated beside that, and nothing at all while a lazy grammar waits.
///
/// The grammar applies to generated tokens only. The sampler therefore skips the first tokens that
/// it accepts, as many as [`GrammarSampler::new`] was told: those of the prompt, if the chain
/// accepts them, as it does in a [`Session`](crate::Session). Before these are accepted there is
/// nothing to draw, and every token is banned.
///
/// The state follows from the accepted tokens alone, so the sampler saves nothing: a chain that
/// goes back resets the sampler, and it accepts the tokens that are left again. Accepting a token
/// only takes note of it. The matcher follows when the next mask is needed: it goes back to where
/// its tokens and those of the sequence part, and on from there, so going back costs what the
/// difference costs. [`Chain::resume`](crate::sampler::Chain::resume), which has no tokens, cannot
/// rebuild it; [`Chain::resume_after`](crate::sampler::Chain::resume_after) can.
///
/// [`Chain::prepare`](crate::sampler::Chain::prepare) computes the next mask ahead, on any thread,
/// while the model runs. The next draw uses it; a token accepted in between, or going back, makes
/// it void.
///
/// A token that the grammar does not allow, but the sequence has, makes the sampler ban every token
/// until the sequence goes back. So does a grammar that gets too complex.
/// [`GrammarSampler::state`] says why no token was left.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::{Compiler, GrammarSampler};
/// use backstitch_models::sampler::{Chain, Settings};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let n_vocab = model.vocab().n_vocab();
/// let grammar = Compiler::new(model.vocab())?.regex("[0-9]{3}")?;
/// let sampler = GrammarSampler::new(&grammar, 2);
/// let mut chain =
///     Chain::builder(n_vocab).with(sampler).settings(&Settings::default().seed(1)).build();
/// chain.accept(model.vocab().find(b"<s>").unwrap_or_default()); // the prompt
/// chain.accept(model.vocab().find(b"a").unwrap_or_default());
/// let token = chain.sample(&vec![0.0; n_vocab]).ok_or("no token")?;
/// assert!(model.vocab().piece(token).iter().all(u8::is_ascii_digit));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GrammarSampler {
    /// The number of tokens before the generated ones.
    n_prompt: usize,
    /// The number of those that were accepted.
    n_skipped: usize,
    /// The generated tokens.
    tokens: Vec<Token>,
    follower: Follower,
    /// The number of first tokens that the follower is known to have too, so that a token costs the
    /// same however long the text is.
    n_known: usize,
    /// The follower is at the end of the tokens, and its mask is computed, if there is one.
    is_prepared: bool,
    state: GrammarState,
}

/// The last outcome of a [`GrammarSampler`], shared by the sampler in a chain, all its clones, and
/// the program that made it.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::{Compiler, GrammarSampler};
/// use backstitch_models::sampler::Chain;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let sampler = GrammarSampler::new(&Compiler::new(model.vocab())?.regex("a+")?, 1);
/// let state = sampler.state();
/// let mut chain = Chain::builder(model.vocab().n_vocab()).with(sampler).build();
/// let token = chain.sample(&vec![0.0; model.vocab().n_vocab()]);
/// assert_eq!(token, None); // not behind the prompt yet
/// assert!(state.error().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GrammarState(Arc<Mutex<Option<GrammarError>>>);

impl GrammarState {
    /// Return the error because of which the last draw had no token; `None` if it had one.
    pub fn error(&self) -> Option<GrammarError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, error: Option<GrammarError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

impl GrammarSampler {
    /// Make a sampler whose grammar applies behind the first `n_prompt` tokens that it accepts.
    pub fn new(grammar: &Grammar, n_prompt: usize) -> Self {
        Self::made(grammar, n_prompt, None)
    }

    /// Make a sampler whose grammar applies only once one of `triggers` appears in the text behind
    /// the first `n_prompt` tokens. Until then every token is allowed. The grammar then begins with
    /// the trigger; one with which it cannot begin is text like any other. Control tokens count as
    /// their texts.
    pub fn lazy(grammar: &Grammar, n_prompt: usize, triggers: Triggers) -> Self {
        Self::made(grammar, n_prompt, Some(Arc::new(triggers)))
    }

    fn made(grammar: &Grammar, n_prompt: usize, triggers: Option<Arc<Triggers>>) -> Self {
        let follower = Follower {
            matcher: grammar.matcher(),
            triggers,
            tokens: Vec::new(),
            text: Vec::new(),
            ends: Vec::new(),
            refused: Vec::new(),
            begin: None,
        };
        Self {
            n_prompt,
            n_skipped: 0,
            tokens: Vec::new(),
            follower,
            n_known: 0,
            is_prepared: false,
            state: GrammarState::default(),
        }
    }

    /// Return the state that the sampler reports its errors to.
    pub fn state(&self) -> GrammarState {
        self.state.clone()
    }

    /// Return true if the grammar accepts the generated text as a whole, or does not apply to it
    /// yet.
    pub fn is_accepting(&mut self) -> bool {
        self.follow().is_ok() && (self.follower.is_free() || self.follower.matcher.is_accepting())
    }

    /// Return true if nothing can follow the generated text.
    pub fn is_stopped(&mut self) -> bool {
        self.follow().is_err() || !self.follower.is_free() && self.follower.matcher.is_stopped()
    }

    /// Bring the matcher to the end of the generated tokens.
    fn follow(&mut self) -> Result<(), GrammarError> {
        if self.n_skipped < self.n_prompt {
            let reason = alloc::format!(
                "the grammar applies behind {} tokens, and {} were accepted",
                self.n_prompt,
                self.n_skipped
            );
            return Err(GrammarError::Stuck { reason });
        }
        self.follower.follow(&self.tokens, &mut self.n_known)
    }

    /// Compute the next mask.
    fn compute_mask(&mut self) -> Result<(), GrammarError> {
        self.follow()?;
        if !self.follower.is_free() {
            self.follower.matcher.mask()?;
        }
        Ok(())
    }

    fn ban(&mut self, candidates: &mut Candidates) -> Result<(), GrammarError> {
        self.follow()?;
        if self.follower.is_free() {
            return Ok(());
        }
        let matcher = &mut self.follower.matcher;
        if matcher.has_ended() {
            // For programs that draw on, the end follows the end.
            let vocab = matcher.grammar().compiler().vocab();
            candidates.map(|c| if vocab.is_eog(c.id) { c.logit } else { f32::NEG_INFINITY });
            return Ok(());
        }
        let allowed = matcher.mask()?;
        candidates.map(|c| if allowed.contains(c.id) { c.logit } else { f32::NEG_INFINITY });
        Ok(())
    }
}

impl Sampler for GrammarSampler {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        let result = self.ban(candidates);
        if result.is_err() {
            candidates.map(|_| f32::NEG_INFINITY);
        }
        self.is_prepared = true;
        self.state.set(result.err());
    }

    fn prepare(&mut self) {
        // An error is found again by the draw, which reports it.
        if !self.is_prepared() {
            let _ = self.compute_mask();
            self.is_prepared = true;
        }
    }

    fn is_prepared(&self) -> bool {
        self.is_prepared || self.n_skipped < self.n_prompt
    }

    fn failure(&self) -> Option<String> {
        self.state.error().map(|error| alloc::format!("{error}"))
    }

    fn accept(&mut self, token: Token) {
        self.is_prepared = false;
        if self.n_skipped < self.n_prompt {
            self.n_skipped += 1;
        } else {
            self.tokens.push(token);
        }
    }

    fn reset(&mut self) {
        self.is_prepared = false;
        (self.n_skipped, self.n_known) = (0, 0);
        self.tokens.clear();
    }
}

/// A matcher that follows the tokens of a sequence, wherever they go.
#[derive(Clone, Debug)]
struct Follower {
    matcher: Matcher,
    /// The triggers, if the grammar waits for one.
    triggers: Option<Arc<Triggers>>,
    /// The tokens that it has followed.
    tokens: Vec<Token>,
    /// The text of those before the trigger, with control tokens written out, and its length behind
    /// each of them.
    text: Vec<u8>,
    ends: Vec<usize>,
    /// The triggers that the grammar refused: the number of tokens behind each of them, and the
    /// byte from which on the next one may begin.
    refused: Vec<(usize, usize)>,
    /// The number of tokens up to the trigger, and the number that the matcher has accepted for
    /// these.
    begin: Option<(usize, usize)>,
}

impl Follower {
    /// Return true if the grammar does not apply yet.
    fn is_free(&self) -> bool {
        self.triggers.is_some() && self.begin.is_none()
    }

    /// Follow `tokens`, of which the first `n_known` are those that were followed before. After an
    /// error, the tokens up to the one that failed are followed. `n_known` is kept up to date.
    fn follow(&mut self, tokens: &[Token], n_known: &mut usize) -> Result<(), GrammarError> {
        let new = tokens.iter().skip(*n_known);
        *n_known += self.tokens.iter().skip(*n_known).zip(new).take_while(|(a, b)| a == b).count();
        self.go_back(*n_known)?;
        for &token in tokens.get(*n_known..).unwrap_or_default() {
            self.advance(token)?;
            *n_known += 1;
        }
        Ok(())
    }

    /// Go back to where the first `n` tokens were followed.
    fn go_back(&mut self, n: usize) -> Result<(), GrammarError> {
        let n_matched = match self.begin {
            Some((n_before, n_first)) if n >= n_before => n_first + n - n_before,
            None if self.triggers.is_none() => n,
            _ => 0,
        };
        self.matcher.rollback(self.matcher.tokens().len() - n_matched)?;
        self.begin = self.begin.filter(|(n_before, _)| n >= *n_before);
        self.tokens.truncate(n);
        self.ends.truncate(n);
        self.refused.retain(|(n_before, _)| *n_before <= n);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
        Ok(())
    }

    fn advance(&mut self, token: Token) -> Result<(), GrammarError> {
        match self.triggers.clone() {
            Some(triggers) if self.begin.is_none() => self.wait(token, &triggers)?,
            _ => self.matcher.accept(token)?,
        }
        self.tokens.push(token);
        Ok(())
    }

    /// Take note of a token before the trigger, and begin the grammar if it completes one. A
    /// trigger with which the grammar cannot begin is text like any other.
    fn wait(&mut self, token: Token, triggers: &Triggers) -> Result<(), GrammarError> {
        let n_before = self.tokens.len() + 1;
        let known = self.text.len();
        let vocab = self.matcher.grammar().compiler().vocab();
        self.text.extend_from_slice(vocab.piece(token));
        let from = self.refused.last().map_or(0, |(_, from)| *from);
        let found = match triggers.has_token(token) {
            true => Some(known),
            false => triggers.find(&self.text, known, from),
        };
        if let Some(begin) = found.filter(|_| self.refused.len() < MAX_REFUSED) {
            if self.start(begin, token)? {
                self.begin = Some((n_before, self.matcher.tokens().len()));
                self.text.truncate(known);
                return Ok(());
            }
            self.refused.push((n_before, begin + 1));
        }
        self.ends.push(self.text.len());
        Ok(())
    }

    /// Let the matcher accept the text from the byte `begin` on, which the sequence has already.
    /// Return false if the grammar does not allow it.
    fn start(&mut self, begin: usize, last: Token) -> Result<bool, GrammarError> {
        let first = self.ends.partition_point(|end| *end <= begin);
        let before = first.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        let mut tokens = Vec::new();
        let mut whole = self.tokens.iter().skip(first).copied().chain([last]);
        let mut is_spelled = true;
        if before < begin {
            // The trigger begins within a token.
            let end = self.ends.get(first).copied().unwrap_or(self.text.len());
            let part = self.text.get(begin..end).unwrap_or_default();
            is_spelled = self.matcher.grammar().spell(part, &mut tokens);
            whole.next();
        }
        tokens.extend(whole);
        if is_spelled && self.replay(&tokens)? {
            return Ok(true);
        }
        // Some grammars spell control tokens out.
        tokens.clear();
        let text = self.text.get(begin..).unwrap_or_default();
        Ok(self.matcher.grammar().spell(text, &mut tokens) && self.replay(&tokens)?)
    }

    /// Let the matcher accept `tokens` from its beginning on, or return false and leave it there.
    fn replay(&mut self, tokens: &[Token]) -> Result<bool, GrammarError> {
        let is_allowed = tokens.iter().all(|token| self.matcher.accept(*token).is_ok());
        if !is_allowed {
            self.matcher.reset()?;
        }
        Ok(is_allowed)
    }
}

#[cfg(test)]
mod tests;
