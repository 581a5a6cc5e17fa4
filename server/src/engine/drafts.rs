//! Drafts: tokens that may come next, evaluated together with the last token of a text.
//!
//! The samplers draw from the model's own logits at each position, so that drafts change the speed
//! of an answer and nothing else ([`backstitch_models::speculative`]).

use super::task::Task;
use backstitch_models::speculative::{DraftModel, Drafter, Lookup};
use backstitch_models::{Error, Model, Params};

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

    /// Replace the draft of the task in `slot` by at most `n` tokens that may come after its own.
    /// There are none if the drafter fails, which only costs time, or if the client goes away.
    pub fn draft(&mut self, slot: usize, task: &mut Task, n: usize) {
        task.draft.clear();
        if n == 0 {
            return;
        }
        while self.slots.len() <= slot {
            let drafter = self.make().ok();
            self.slots.push(drafter);
        }
        let Some(Some(drafter)) = self.slots.get_mut(slot) else { return };
        let Some((&last, before)) = task.tokens.split_last() else { return };
        // The first draft of a slot evaluates its whole text.
        drafter.set_cancel(Some(task.cancel()));
        if drafter.draft(before, last, n, &mut task.draft).is_err() {
            task.draft.clear();
        }
        drafter.set_cancel(None);
        let n_vocab = self.target.hparams().n_vocab;
        let known = task.draft.iter().take(n).take_while(|token| (token.0 as usize) < n_vocab).count();
        task.draft.truncate(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Generate;
    use backstitch_models::Token;
    use backstitch_models::sampler::{Chain, Settings};
    use std::time::Instant;
    use tokio::sync::mpsc::channel;

    #[test]
    fn a_client_that_goes_away_ends_the_draft_of_its_text() {
        let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
        let source = DraftSource::Model { model: model.clone(), params: Params::default() };
        let mut drafters = Drafters::new(Drafts { source, n_max: 4 }, &model, 64).unwrap();
        let chain = Chain::new(model.hparams().n_vocab, &Settings::default());
        let request = Generate::new([5, 6, 7].map(Token).to_vec(), chain);
        let (events, client) = channel(8);
        let mut task = Task::new(1, request, events, Instant::now());
        drafters.draft(0, &mut task, 4);
        assert_eq!(task.draft.len(), 4);
        drop(client);
        drafters.draft(0, &mut task, 4);
        assert!(task.draft.is_empty());
    }
}
