//! The making of an engine: the sizes of its context follow from its parameters.

use super::super::params::EngineParams;
use super::super::slots::SlotView;
use super::{Command, Queue, Worker};
use crate::engine::conversations::Conversations;
use crate::engine::drafts::Drafters;
use crate::engine::report::{Counters, Ledger};
use crate::error::Error;
use backstitch_models::backstitch_kv::{AttentionSpec, LayerSpec};
use backstitch_models::graph::Head;
use backstitch_models::{Batch, Budget, Context, Model, Params, RollbackParams};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// The most inputs that an encoder evaluates together, if there are fewer slots.
const MOST_INPUTS: usize = 32;

/// The most tokens that a context can hold.
const MAX_CELLS: u64 = 1 << 30;

/// Return true if a layer does not keep all that a rollback needs.
fn forgets(layer: &LayerSpec) -> bool {
    let is_windowed = matches!(&layer.attention, AttentionSpec::Cached(cached) if cached.window.is_some());
    is_windowed || !layer.recurrent.is_empty()
}

/// Return `params` with all defaults filled in, and the parameters of the context.
fn settled(model: &Model, params: &EngineParams) -> (EngineParams, Params) {
    let hparams = model.hparams();
    let n_ctx = match params.n_ctx {
        0 => hparams.n_ctx_train,
        n_ctx => n_ctx,
    };
    let n_slots = params.n_slots.max(1);
    if model.graph().head() == Head::Embeddings {
        // An encoder holds no sequences. All tokens of an input are in one batch.
        let context = params.context.n_ctx(n_ctx).n_ctx_seq(n_ctx).n_seq_max(n_slots.max(MOST_INPUTS) as u32);
        return (EngineParams { n_ctx, n_slots, ..params.clone() }, context);
    }
    // Checkpoints have a budget of their own.
    let cells_alone = params.context.rollback(RollbackParams::OFF);
    let bytes = |n_ctx| Budget::new(hparams, model.graph(), &cells_alone.n_ctx(n_ctx)).caches;
    // Caches grow in blocks, so the bytes of a cell follow from many; a window that is as wide as
    // the context would be counted as if it grew.
    let n_cells = 1 << 20;
    let per_cell = (bytes(2 * n_cells).saturating_sub(bytes(n_cells)) / u64::from(n_cells)).max(1);
    let held = (params.held_bytes / per_cell).min(params.n_held as u64 * u64::from(n_ctx));
    let cells = (n_slots as u64 * u64::from(n_ctx)).saturating_add(held).min(MAX_CELLS);
    // One sequence more than slots and held ones: the fork that replaces a held one.
    let n_seq = n_slots + n_slots + params.n_held + 1;
    let context = params.context.n_ctx(cells as u32).n_ctx_seq(n_ctx).n_seq_max(n_seq as u32);
    (EngineParams { n_ctx, n_slots, ..params.clone() }, context)
}

impl Worker {
    /// Make the context and everything around it.
    ///
    /// # Errors
    /// Those of [`Context::new`] and of opening the prompt cache.
    pub fn new(
        model: &Model,
        params: &EngineParams,
        inbox: Receiver<Command>,
        queue: Arc<Queue>,
    ) -> Result<Self, Error> {
        let (mut params, context) = settled(model, params);
        let ctx = Context::new(model, context)?;
        params.context = *ctx.params();
        let slots = (0..params.n_slots).map(SlotView::new).collect();
        let state = params.state.as_deref().map(|folder| super::StateFolder::new(folder, &params));
        let drafters = params.drafts.clone().map(|drafts| Drafters::new(drafts, model, params.n_ctx));
        Ok(Worker {
            is_forgetful: model.graph().layers().iter().any(forgets),
            ctx,
            model: model.clone(),
            inbox,
            queue,
            waiting: Vec::new(),
            deferred: Vec::new(),
            running: Vec::new(),
            conversations: Conversations::default(),
            slots,
            state,
            drafters: drafters.transpose()?,
            batch: Batch::new(),
            pace: super::Pace::default(),
            counters: Counters::default(),
            ledger: Ledger::default(),
            recorded: Instant::now(),
            n_steps: 0,
            begun: HashMap::new(),
            n_begun: 0,
            n_tasks: 0,
            is_finishing: false,
            is_crowded: false,
            is_without_drafts: false,
            params,
        })
    }
}
