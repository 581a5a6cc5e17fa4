//! From a saved state to sequences of a context.

use super::saved::{SavedContext, SavedSequence};
use super::sections::{MAX_TOKENS, SAMPLER, TOKENS, TRAIL, sampler_room};
use super::{RestoreOptions, Restored, RestoredSequence};
use crate::cancel::{SourceError, Stoppable, StoppableSource};
use crate::context::history::{Left, SavedTokens};
use crate::context::{Context, History};
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::storage::{self, Container, Scope, Tag};
use backstitch_kv::{ImportError, SeqId};

impl Context {
    /// Take one sequence from a state of one.
    pub(super) fn take_one(
        &mut self,
        container: &Container<'_>,
        seq: SeqId,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        if seq.0 >= self.params.n_seq_max {
            return Err(Error::Sequence { seq: seq.0 });
        }
        let saved = self.parse(container, Scope::Sequence)?;
        self.take(saved, &[seq], options)
    }

    /// Take all sequences from a state of a whole context, in place of those that there are.
    pub(super) fn take_all(
        &mut self,
        container: &Container<'_>,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let saved = self.parse(container, Scope::Context)?;
        let seqs = saved.ids();
        let others: Vec<SeqId> = self.live().into_iter().filter(|seq| !seqs.contains(seq)).collect();
        let restored = self.take(saved, &seqs, options)?;
        for seq in others {
            let released = self.release(seq);
            debug_assert!(released.is_ok(), "{released:?}");
        }
        Ok(restored)
    }

    /// Parse a state and check that it can be one of this context. The fingerprint comes first:
    /// numbers of another model mean nothing.
    fn parse<'a>(&self, container: &'a Container<'a>, scope: Scope) -> Result<SavedContext<'a>, Error> {
        container.expect_fingerprint(&self.fingerprint())?;
        container.expect_scope(scope)?;
        let saved = SavedContext::parse(container)?;
        let n = saved.sequences.len() as u64;
        if scope == Scope::Sequence && n != 1 {
            let (what, wanted) = ("the list of sequences", "one sequence");
            return Err(Error::SavedValue { what, offset: 0, found: n, wanted });
        }
        if scope == Scope::Context
            && let Some(seq) = saved.ids().into_iter().find(|seq| seq.0 >= self.params.n_seq_max)
        {
            return Err(Error::Sequence { seq: seq.0 });
        }
        self.expect_room(container, n)?;
        Ok(saved)
    }

    /// Check that the lists of a state take no more memory than the file has bytes and sequences of
    /// this context take for theirs. Several lists may be the same bytes of the file.
    fn expect_room(&self, container: &Container<'_>, n_sequences: u64) -> Result<(), Error> {
        let n_ctx = self.params.n_ctx;
        let tokens = "bytes of lists of tokens, which a larger context has more room for";
        let samplers = "bytes of samplers' states, which a larger context has more room for";
        let lists: [(_, &[Tag], u64); 2] =
            [(tokens, &[TOKENS], 4 * u64::from(n_ctx)), (samplers, &[SAMPLER, TRAIL], sampler_room(n_ctx))];
        lists.into_iter().try_for_each(|(what, tags, own)| {
            let sections = tags.iter().flat_map(|tag| container.of(*tag));
            let value = sections.filter(|section| section.index < n_sequences);
            let value = value.map(|section| section.raw_len).fold(0, u64::saturating_add);
            let limit = n_sequences.saturating_mul(own).saturating_add(container.committed_len());
            let limit = limit.saturating_add(MAX_TOKENS);
            if value > limit { Err(storage::Error::TooLarge { what, value, limit }.into()) } else { Ok(()) }
        })
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

    /// Stage the memory's part, then make everything visible.
    fn take(
        &mut self,
        saved: SavedContext<'_>,
        seqs: &[SeqId],
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let SavedContext { container, memory, sequences: saved, metadata } = saved;
        let histories = saved.iter().map(|sequence| self.restored_history(sequence));
        let histories: Vec<History> = histories.collect::<Result<_, _>>()?;
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        let source = StoppableSource { source: &memory, work: &work };
        let staged = self.memory.import_with(memory.snapshot(), &source, seqs, options.convert, &*self.pool);
        let staged = staged.map_err(|error| match error {
            ImportError::Memory(error) => Error::Memory(error),
            ImportError::Source(SourceError::Cancelled) => Error::Cancelled,
            ImportError::Source(SourceError::Source(error)) => Error::State(error),
        })?;
        let fit = staged.commit();
        let mut sequences = Vec::new();
        for ((saved, mut history), &seq) in saved.into_iter().zip(histories).zip(seqs) {
            if fit.conversion.is_some() && self.left(seq) == Left::Something {
                history.make_foreign();
            }
            self.outputs.give(seq, saved.logits);
            if let Some(slot) = self.sequences.get_mut(seq.index()) {
                *slot = Some(history);
            }
            let sampler = saved.sampler.map(|sampler| (*sampler).clone());
            sequences.push(RestoredSequence { sampler, ..self.restored(seq) });
        }
        let sampler = sequences.first().and_then(|first| first.sampler.clone());
        Ok(Restored { sequences, sampler, metadata, n_bytes: container.committed_len(), fit })
    }

    /// Describe a sequence that was restored. Cannot fail: nothing may once it is
    /// visible.
    pub(super) fn restored(&self, seq: SeqId) -> RestoredSequence {
        let n_tokens = self.tokens(seq).map_or(0, <[_]>::len);
        let positions = self.positions(seq).unwrap_or_default();
        RestoredSequence { seq, end: self.end(seq), n_tokens, positions, sampler: None }
    }
}
