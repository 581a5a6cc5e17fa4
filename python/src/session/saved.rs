//! Sessions from saved states.

use super::{Sampling, Session, options};
use crate::engine::Engine;
use crate::errors::OrRaise;
use crate::model::Model;
use crate::sampling::{Settings, chain};
use crate::watch::Watch;
use backstitch_models::{self as models, Context, Error, RestoreOptions, Restored, SaveOptions, SeqId};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The place of a saved state.
pub enum Source<'a> {
    /// A file with one sequence.
    File(&'a Path),
    /// A file with all sequences of a session.
    All(&'a Path),
    /// The bytes of one sequence.
    Bytes(&'a [u8]),
}

/// The arguments of restoring beside the state.
pub struct Restoring<'a> {
    pub model: &'a Bound<'a, Model>,
    pub settings: Option<&'a Settings>,
    pub convert: bool,
    pub context: Option<&'a Bound<'a, PyDict>>,
}

impl Restoring<'_> {
    /// Restore a state into a context of its own. The result has an object for each sequence, the
    /// first one first.
    ///
    /// # Errors
    /// Those of [`models::Context::restore_with`] and [`models::Session::adopt`]; `TypeError` for
    /// unknown options.
    pub fn restore(self, source: Source<'_>) -> PyResult<Vec<Session>> {
        let py = self.model.py();
        let model = &self.model.get().inner;
        let params = options::params(model, self.context)?;
        let settings = self.settings.cloned().unwrap_or_default();
        let n_vocab = model.hparams().n_vocab;
        settings.check(n_vocab).or_raise(py)?;
        let options = RestoreOptions::default().convert(self.convert);
        let watch = Watch::new([None]);
        let restored = py.detach(|| {
            let mut ctx = Context::new(model, params)?;
            ctx.set_cancel(Some(watch.cancel()));
            let restored = match source {
                Source::File(path) => ctx.restore_with(path, &options),
                Source::All(path) => ctx.restore_all_with(path, &options),
                Source::Bytes(bytes) => ctx.seq_state_read_bytes(SeqId(0), bytes, &options),
            }?;
            let chain = chain(n_vocab, &settings.in_context(&ctx), None);
            Ok::<_, Error>((models::Session::adopt(ctx, &chain, &restored)?, restored))
        });
        let (session, restored) = watch.finish(restored)?.or_raise(py)?;
        Ok(self.sessions(session, &restored, settings))
    }

    fn sessions(&self, session: models::Session, restored: &Restored, settings: Settings) -> Vec<Session> {
        let engine = Arc::new(Engine::new(session));
        let session = |sequence: &models::RestoredSequence| Session {
            engine: engine.clone(),
            branch: Mutex::new(Some(sequence.seq)),
            model: self.model.clone().unbind(),
            sampling: Mutex::new(Sampling { settings: settings.clone(), has_grammar: false }),
            metadata: restored.metadata.clone(),
        };
        restored.sequences.iter().map(session).collect()
    }
}

/// Return the current branch of `session`, with its samplers, as bytes.
///
/// # Errors
/// Those of [`Context::seq_state_write`] and [`models::Session::states`].
pub fn to_bytes(session: &mut models::Session, metadata: &[u8]) -> Result<Vec<u8>, Error> {
    let states = session.states()?;
    let options = SaveOptions::default().samplers(&states).metadata(metadata);
    let (ctx, seq, mut bytes) = (session.context(), session.current(), Vec::new());
    ctx.seq_state_write(seq, &mut bytes, &options)?;
    Ok(bytes)
}
