//! From sections to sequences.

use super::sections::{LOGITS, METADATA, SAMPLER, SEQUENCES, TOKENS, VERSION};
use super::{RestoreOptions, Restored, RestoredSequence};
use crate::context::history::Left;
use crate::context::{Context, History};
use crate::error::Error;
use crate::sampler;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::state::{Container, IMAGE_TAGS, Scope, StoredImage, Tag};
use backstitch_kv::{Pos, SeqId, StageError};

/// What a state holds beside the memory's part of it, checked.
struct Parsed {
    ids: Vec<SeqId>,
    sequences: Vec<Sequence>,
    sampler: Option<sampler::State>,
    metadata: Vec<u8>,
}

/// One sequence.
struct Sequence {
    history: History,
    logits: Option<Arc<Vec<f32>>>,
}

impl Context {
    /// Takes one sequence from a state of one.
    pub(super) fn take_one(
        &mut self,
        container: &Container<'_>,
        seq: SeqId,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        if seq.0 >= self.params.n_seq_max {
            return Err(Error::Sequence { seq: seq.0 });
        }
        let parsed = self.parse(container, Scope::Sequence)?;
        self.take(container, parsed, &[seq], options)
    }

    /// Takes all sequences from a state of a whole context, in place of those that there are.
    pub(super) fn take_all(
        &mut self,
        container: &Container<'_>,
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let parsed = self.parse(container, Scope::Context)?;
        let seqs = parsed.ids.clone();
        let others: Vec<SeqId> = self.live().into_iter().filter(|seq| !seqs.contains(seq)).collect();
        let restored = self.take(container, parsed, &seqs, options)?;
        for seq in others {
            let released = self.release(seq);
            debug_assert!(released.is_ok(), "{released:?}");
        }
        Ok(restored)
    }

    /// Reads and checks all but the memory's sections. The fingerprint comes first: numbers of another model mean nothing.
    fn parse(&self, container: &Container<'_>, scope: Scope) -> Result<Parsed, Error> {
        container.expect_fingerprint(&self.model.fingerprint())?;
        container.expect_scope(scope)?;
        let own = [SEQUENCES, TOKENS, LOGITS, SAMPLER, METADATA].map(|tag| (tag, VERSION));
        let known: Vec<(Tag, u16)> = own.into_iter().chain(IMAGE_TAGS).collect();
        container.expect(&known)?;
        let ids = self.parse_ids(container, scope)?;
        let sequences = (0..ids.len() as u64).map(|index| self.parse_sequence(container, index));
        Ok(Parsed {
            sequences: sequences.collect::<Result<_, _>>()?,
            ids,
            sampler: self.parse_sampler(container)?,
            metadata: section(container, METADATA, 0)?.unwrap_or_default(),
        })
    }

    /// Reads which sequences there are, before anything is allocated for each of them.
    fn parse_ids(&self, container: &Container<'_>, scope: Scope) -> Result<Vec<SeqId>, Error> {
        let bytes = container.read(container.require(SEQUENCES, 0)?)?;
        let what = "the list of sequences";
        let (ids, []) = bytes.as_chunks::<4>() else {
            let found = bytes.len() as u64;
            return Err(Error::SavedLength { what, found, wanted: found / 4 * 4 });
        };
        if scope == Scope::Sequence && ids.len() != 1 {
            let found = ids.len() as u64;
            return Err(Error::SavedValue { what, offset: 0, found, wanted: "one sequence" });
        }
        let ids: Vec<SeqId> = ids.iter().map(|id| SeqId(u32::from_le_bytes(*id))).collect();
        if scope == Scope::Context {
            if let Some(seq) = ids.iter().find(|seq| seq.0 >= self.params.n_seq_max) {
                return Err(Error::Sequence { seq: seq.0 });
            }
            if let Some(i) = ids.windows(2).position(|pair| matches!(pair, [a, b] if a >= b)) {
                let (offset, found) = (4 * (i as u64 + 1), u64::from(ids.get(i + 1).map_or(0, |seq| seq.0)));
                return Err(Error::SavedValue {
                    what,
                    offset,
                    found,
                    wanted: "a larger id than the one before",
                });
            }
        }
        Ok(ids)
    }

    fn parse_sequence(&self, container: &Container<'_>, index: u64) -> Result<Sequence, Error> {
        let n_vocab = self.model.hparams().n_vocab;
        let tokens = container.read(container.require(TOKENS, index)?)?;
        let history = History::decode(&tokens, n_vocab, self.params.n_ctx)?;
        let logits = match section(container, LOGITS, index)? {
            Some(bytes) => Some(Arc::new(numbers(&bytes, n_vocab)?)),
            None => None,
        };
        Ok(Sequence { history, logits })
    }

    fn parse_sampler(&self, container: &Container<'_>) -> Result<Option<sampler::State>, Error> {
        let Some(bytes) = section(container, SAMPLER, 0)? else { return Ok(None) };
        sampler::State::decode(&bytes).map(Some)
    }

    /// Stages the memory's part, then makes everything visible.
    fn take(
        &mut self,
        container: &Container<'_>,
        parsed: Parsed,
        seqs: &[SeqId],
        options: &RestoreOptions,
    ) -> Result<Restored, Error> {
        let saved = StoredImage::open(container)?;
        let image = saved.image();
        for (sequence, held) in parsed.sequences.iter().zip(&image.sequences) {
            check_end(&sequence.history, image.end_of(held))?;
        }
        let staged = self.memory.stage_with(image, &saved, seqs, options.convert, &*self.pool);
        let staged = staged.map_err(|error| match error {
            StageError::Memory(error) => Error::Memory(error),
            StageError::Source(error) => Error::State(error),
        })?;
        let fit = staged.commit();
        for (mut sequence, &seq) in parsed.sequences.into_iter().zip(seqs) {
            if fit.conversion.is_some() && self.left(seq) == Left::Something {
                sequence.history.make_foreign();
            }
            self.outputs.restore(seq, sequence.logits);
            if let Some(slot) = self.sequences.get_mut(seq.index()) {
                *slot = Some(sequence.history);
            }
        }
        let sequences = seqs.iter().map(|seq| self.restored(*seq)).collect::<Result<_, _>>()?;
        let (sampler, metadata) = (parsed.sampler, parsed.metadata);
        Ok(Restored { sequences, sampler, metadata, n_bytes: container.committed_len(), fit })
    }

    pub(super) fn restored(&self, seq: SeqId) -> Result<RestoredSequence, Error> {
        let (n_tokens, positions) = (self.history(seq)?.tokens().len(), self.positions(seq)?);
        Ok(RestoredSequence { seq, end: self.pos(seq), n_tokens, positions })
    }
}

/// The content of a section that there may be; one of a version that is not known counts as none.
fn section(container: &Container<'_>, tag: Tag, index: u64) -> Result<Option<Vec<u8>>, Error> {
    let section = container.find(tag, index).filter(|section| section.version <= VERSION);
    Ok(section.map(|section| container.read(section)).transpose()?.map(|bytes| bytes.into_owned()))
}

/// `n` numbers.
fn numbers(bytes: &[u8], n: usize) -> Result<Vec<f32>, Error> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || numbers.len() != n {
        let (what, found, wanted) = ("the list of logits", bytes.len() as u64, 4 * n as u64);
        return Err(Error::SavedLength { what, found, wanted });
    }
    let mut all = Vec::new();
    let refused = Error::OutOfMemory { what: "logits", n_bytes: bytes.len() as u64 };
    all.try_reserve_exact(n).map_err(|_| refused)?;
    all.extend(numbers.iter().map(|x| f32::from_le_bytes(*x)));
    Ok(all)
}

/// Checks that a list of tokens ends where the memory's sequence does.
fn check_end(history: &History, end: Pos) -> Result<(), Error> {
    match history.end() {
        Some(own) if own != end => {
            let (what, found) = ("the list of a sequence's tokens", own.0 as u64);
            Err(Error::SavedValue { what, offset: 4, found, wanted: "the end of the sequence" })
        }
        _ => Ok(()),
    }
}
