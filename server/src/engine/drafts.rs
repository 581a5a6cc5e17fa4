//! Drafts: tokens that may come next, evaluated together with the last token of a text.
//!
//! The samplers draw from the model's own logits at each position, so that drafts change the speed
//! of an answer and nothing else ([`backstitch_models::speculative`]).

use backstitch_models::speculative::{DraftModel, Drafter, Lookup};
use backstitch_models::{Error, Model, Params, Token};

/// The most tokens of drafts, and of texts before them, in a step. With many texts there is
/// nothing to gain: a batch that long takes as much time as its tokens one after the other.
const MOST_ROWS: usize = 32;

/// The source of drafts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DraftSource {
    /// The text itself: what came after the same tokens before.
    Lookup,
    /// A smaller model with the same vocabulary, in a context of these parameters for each slot.
    Model {
        /// The model.
        model: Model,
        /// The parameters of its contexts. Their length is that of the engine's sequences.
        params: Params,
    },
}

/// The drafts of an engine.
///
/// # Example
/// ```
/// use backstitch_server::engine::{DraftSource, Drafts, EngineParams};
///
/// let drafts = Drafts { source: DraftSource::Lookup, n_max: 8 };
/// let params = EngineParams { drafts: Some(drafts), ..EngineParams::default() };
/// assert!(params.drafts.is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Drafts {
    /// The source.
    pub source: DraftSource,
    /// The most tokens drafted for a text in a step.
    pub n_max: usize,
}

/// The drafters of the slots.
pub(super) struct Drafters {
    drafts: Drafts,
    target: Model,
    n_ctx: u32,
    /// The drafter of each slot that has had a text; `None` inside if there is no memory for it.
    slots: Vec<Option<Box<dyn Drafter + Send>>>,
}

impl Drafters {
    /// Make the drafter of the first slot, so that a draft model that does not fit is refused.
    ///
    /// # Errors
    /// Those of [`DraftModel::new`].
    pub fn new(drafts: Drafts, target: &Model, n_ctx: u32) -> Result<Self, Error> {
        let mut drafters = Drafters { drafts, target: target.clone(), n_ctx, slots: Vec::new() };
        let first = drafters.make()?;
        drafters.slots.push(Some(first));
        Ok(drafters)
    }

    fn make(&self) -> Result<Box<dyn Drafter + Send>, Error> {
        Ok(match &self.drafts.source {
            DraftSource::Lookup => Box::new(Lookup::default()),
            DraftSource::Model { model, params } => {
                Box::new(DraftModel::new(&self.target, model, params.n_ctx(self.n_ctx))?)
            }
        })
    }

    /// Return the most tokens to draft for each of `n_texts` texts.
    pub fn n_most(&self, n_texts: usize) -> usize {
        let share = (MOST_ROWS / n_texts.max(1)).saturating_sub(1);
        self.drafts.n_max.min(share)
    }

    /// Append at most `n` tokens that may come after `tokens` and then `last` to the empty `draft`.
    /// There are none if the drafter fails, which only costs time.
    pub fn draft(&mut self, slot: usize, tokens: &[Token], last: Token, n: usize, draft: &mut Vec<Token>) {
        while self.slots.len() <= slot {
            let drafter = self.make().ok();
            self.slots.push(drafter);
        }
        let Some(Some(drafter)) = self.slots.get_mut(slot) else { return };
        if n == 0 || drafter.draft(tokens, last, n, draft).is_err() {
            draft.clear();
        }
        let n_vocab = self.target.hparams().n_vocab;
        let known = draft.iter().take(n).take_while(|token| (token.0 as usize) < n_vocab).count();
        draft.truncate(known);
    }
}
