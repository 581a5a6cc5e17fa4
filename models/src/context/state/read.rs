//! From a saved state to sequences of a context.

use super::saved::{MAX_LISTS, SavedContext, SavedSequence};
use super::sections::{MAX_TOKENS, SAMPLER, TOKENS, TRAIL, expect_at_most, sampler_room};
use super::{RestoreOptions, Restored, RestoredSequence};
use crate::adapter::{AdapterError, AdapterSet};
use crate::cancel::{SourceError, Stoppable, StoppableSource};
use crate::context::history::{Left, SavedTokens};
use crate::context::{Context, History};
use crate::error::Error;
use crate::runner::outputs::Logits;
use crate::sampler;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_kv::snapshot::{Snapshot, Source};
use backstitch_kv::storage::{Container, Scope, Tag};
use backstitch_kv::{Fit, ImportError, SeqId};

impl Context {
    /// Take the sequence of a state of one as `seq`; for `None` all sequences from a state of a
    /// whole context, in place of those that there are.
    pub(super) fn take(
        &mut self,
        container: &Container<'_>,
        seq: Option<SeqId>,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        // Numbers of another model mean nothing.
        container.expect_fingerprint(&self.fingerprint())?;
        container.expect_scope(if seq.is_some() { Scope::Sequence } else { Scope::Context })?;
        let expect = |ids: &[u32]| self.expect_sequences(container, seq, ids);
        let SavedContext { memory, sequences: saved, metadata, .. } =
            SavedContext::parse_if(container, expect)?;
        let (seqs, others) = match seq {
            Some(seq) => (vec![seq], Vec::new()),
            None => {
                let seqs: Vec<SeqId> = saved.iter().map(|sequence| SeqId(sequence.id)).collect();
                let others = self.live().into_iter().filter(|seq| !seqs.contains(seq)).collect();
                (seqs, others)
            }
        };
        let sets = self.restored_adapters(&saved, seq, options)?;
        let contents = saved.iter().map(|saved| Ok((self.restored_history(saved)?, saved.logits.clone())));
        let contents = contents.collect::<Result<_, Error>>()?;
        let fit = self.adopt(memory.snapshot(), &memory, &seqs, contents, options)?;
        seqs.iter().zip(sets).for_each(|(seq, set)| self.runner.adapters.assign(*seq, set));
        others.into_iter().for_each(|seq| self.release_live(seq));
        let with_sampler = |(saved, &seq): (SavedSequence, &SeqId)| {
            let trail = saved.trail.map(Arc::unwrap_or_clone).unwrap_or_default();
            let sampler = saved.sampler.map(Arc::unwrap_or_clone);
            let sampler = sampler.map(|state| sampler::State { trail, ..state });
            RestoredSequence { sampler, ..self.restored(seq) }
        };
        let sequences = saved.into_iter().zip(&seqs).map(with_sampler).collect();
        Ok(Restored { sequences, metadata, n_bytes: container.committed_len(), fit })
    }

    /// Check that a state has one sequence, if it is to be taken as `seq`, else that this context
    /// can have all of its sequences, and that it has room for their lists.
    fn expect_sequences(
        &self,
        container: &Container<'_>,
        seq: Option<SeqId>,
        ids: &[u32],
    ) -> Result<(), Error> {
        let found = ids.len() as u64;
        if seq.is_some() && found != 1 {
            let (what, wanted) = ("the list of sequences", "one sequence");
            return Err(Error::SavedValue { what, offset: 0, found, wanted });
        }
        // Ids ascend.
        match seq.map(|seq| seq.0).or(ids.last().copied()).filter(|seq| *seq >= self.params.n_seq_max) {
            Some(seq) => Err(Error::Sequence { seq }),
            None => self.expect_room(container, found),
        }
    }

    /// Return the set of each saved sequence, from those that the caller gave or that the sequences
    /// of this context have. A sequence without adapters takes the place of one with a set, or is
    /// restored where the context's default is one, if the caller gave the empty set.
    fn restored_adapters(
        &mut self,
        saved: &[SavedSequence],
        seq: Option<SeqId>,
        options: &RestoreOptions<'_>,
    ) -> Result<Vec<AdapterSet>, Error> {
        let mut given = options.adapters.to_vec();
        let place = match seq.filter(|seq| self.history(*seq).is_ok()) {
            Some(seq) => self.runner.adapters.of(seq).clone(),
            None => self.runner.adapters.default.clone(),
        };
        let own = place.id();
        given.insert(0, place);
        if seq.is_none() {
            given.extend(self.live().iter().map(|seq| self.runner.adapters.of(*seq).clone()));
        }
        let set_of = |saved: &SavedSequence| match &saved.adapters {
            None if own.is_some() && options.adapters.iter().all(|set| set.id().is_some()) => {
                let wanted = given.first().map(AdapterSet::description).unwrap_or_default();
                Err(AdapterError::OtherSet { found: "no adapters".into(), wanted }.into())
            }
            None => Ok(AdapterSet::EMPTY),
            Some(adapters) => self.find_adapters(adapters.id, &adapters.description, &given),
        };
        saved.iter().map(set_of).collect()
    }

    /// Check that the lists of a state take no more memory than the file has bytes and sequences of
    /// this context take for theirs. Several lists may be the same bytes of the file.
    fn expect_room(&self, container: &Container<'_>, n_sequences: u64) -> Result<(), Error> {
        let n_ctx = self.params.n_ctx;
        let tokens = "bytes of lists of tokens, which a larger context has more room for";
        let samplers = "bytes of samplers' states, which a larger context has more room for";
        let lists: [(_, &[Tag], u64); 2] =
            [(tokens, &[TOKENS], 4 * u64::from(n_ctx)), (samplers, &[SAMPLER, TRAIL], sampler_room(n_ctx))];
        for (what, tags, own) in lists {
            let sections = tags.iter().flat_map(|tag| container.of(*tag));
            let value = sections.filter(|section| section.index < n_sequences);
            let value = value.map(|section| section.raw_len).fold(0, u64::saturating_add);
            let limit = n_sequences.saturating_mul(own).saturating_add(MAX_TOKENS);
            expect_at_most(what, value, limit.saturating_add(container.committed_len().min(MAX_LISTS)))?;
        }
        Ok(())
    }

    /// Make the history of a saved sequence, and check its logits.
    fn restored_history(&self, saved: &SavedSequence) -> Result<History, Error> {
        let n_vocab = self.model.hparams().n_vocab;
        if let Some(logits) = saved.logits.as_ref().filter(|logits| logits.len() != n_vocab) {
            let (what, found, wanted) = ("the list of logits", 4 * logits.len() as u64, 4 * n_vocab as u64);
            return Err(Error::SavedLength { what, found, wanted });
        }
        let SavedSequence { edited, foreign, start, .. } = *saved;
        let tokens = SavedTokens { edited, foreign, start, tokens: saved.tokens.clone() };
        History::restore(&tokens, n_vocab, self.params.n_ctx)
    }

    /// Stage the sequences of a snapshot as `seqs`, then make them visible, with the history and
    /// the logits of each.
    pub(in crate::context) fn adopt<S: Source<Error: Into<Error> + Send> + Sync>(
        &mut self,
        snapshot: &Snapshot,
        source: &S,
        seqs: &[SeqId],
        contents: Vec<(History, Option<Logits>)>,
        options: &RestoreOptions<'_>,
    ) -> Result<Fit, Error> {
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        let source = StoppableSource { source, work: &work };
        let staged = self.memory.import_with(snapshot, &source, seqs, options.convert, &*self.pool);
        let staged = staged.map_err(|error| match error {
            ImportError::Memory(error) => Error::Memory(error),
            ImportError::Source(SourceError::Cancelled) => Error::Cancelled,
            ImportError::Source(SourceError::Source(error)) => error.into(),
        })?;
        let fit = staged.commit();
        for ((mut history, logits), &seq) in contents.into_iter().zip(seqs) {
            if fit.conversion.is_some() && self.left(seq) == Left::Something {
                history.make_foreign();
            }
            self.outputs.forget(seq);
            self.outputs.give(seq, logits);
            if let Some(slot) = self.sequences.get_mut(seq.index()) {
                *slot = Some(history);
            }
        }
        Ok(fit)
    }

    /// Release a sequence that exists.
    pub(super) fn release_live(&mut self, seq: SeqId) {
        let released = self.release(seq);
        debug_assert!(released.is_ok(), "{released:?}");
    }

    /// Describe a sequence that was restored. Cannot fail: nothing may once it is
    /// visible.
    pub(super) fn restored(&self, seq: SeqId) -> RestoredSequence {
        let (tokens, positions) = (self.tokens(seq), self.positions(seq));
        debug_assert!(tokens.is_ok() && positions.is_ok(), "a sequence that exists");
        let (n_tokens, positions) = (tokens.map_or(0, <[_]>::len), positions.unwrap_or_default());
        RestoredSequence { seq, end: self.end(seq), n_tokens, positions, sampler: None }
    }
}
