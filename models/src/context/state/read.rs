//! From sections to sequences.

use super::sections::{
    LOGITS, MAX_TOKENS, METADATA, SAMPLER, SEQUENCES, TOKENS, TRAIL, VERSION, sampler_room,
};
use super::{RestoreOptions, Restored, RestoredSequence};
use crate::cancel::{SourceError, Stoppable, StoppableSource};
use crate::context::history::Left;
use crate::context::params::MAX_SEQUENCES;
use crate::context::{Context, History};
use crate::error::Error;
use crate::sampler;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backstitch_kv::image::{self, Image, Sees};
use backstitch_kv::state::{self, Container, IMAGE_TAGS, MAX_READ, Scope, StoredImage, Tag};
use backstitch_kv::{Pos, SeqId, StageError};

/// What a state holds beside the memory's part of it, checked.
struct Parsed {
    ids: Vec<SeqId>,
    sequences: Vec<Sequence>,
    metadata: Vec<u8>,
}

/// One sequence.
struct Sequence {
    history: History,
    logits: Option<Arc<Vec<f32>>>,
    sampler: Option<sampler::State>,
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
        let own = [SEQUENCES, TOKENS, LOGITS, SAMPLER, TRAIL, METADATA].map(|tag| (tag, VERSION));
        let known: Vec<(Tag, u16)> = own.into_iter().chain(IMAGE_TAGS).collect();
        container.expect(&known)?;
        let ids = self.parse_ids(container, scope)?;
        self.expect_room(container, ids.len() as u64)?;
        let sequences = (0..ids.len() as u64).map(|index| self.parse_sequence(container, index));
        Ok(Parsed {
            sequences: sequences.collect::<Result<_, _>>()?,
            ids,
            metadata: section(container, METADATA, 0, MAX_READ)?.unwrap_or_default(),
        })
    }

    /// Reads which sequences there are, before anything is allocated for each of them.
    fn parse_ids(&self, container: &Container<'_>, scope: Scope) -> Result<Vec<SeqId>, Error> {
        // As many as any context can have, so that one with fewer says which it cannot.
        let bytes = container.read_at_most(container.require(SEQUENCES, 0)?, 4 * u64::from(MAX_SEQUENCES))?;
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

    /// Lists may be the same bytes of the file, and then take far more memory than these: no more than the
    /// file's bytes, and what sequences of this context take for theirs.
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
            if value > limit { Err(state::Error::TooLarge { what, value, limit }.into()) } else { Ok(()) }
        })
    }

    fn parse_sequence(&self, container: &Container<'_>, index: u64) -> Result<Sequence, Error> {
        let n_vocab = self.model.hparams().n_vocab;
        let tokens = container.read_at_most(container.require(TOKENS, index)?, MAX_TOKENS)?;
        let history = History::decode(&tokens, n_vocab, self.params.n_ctx)?;
        let logits = match section(container, LOGITS, index, 4 * n_vocab as u64)? {
            Some(bytes) => Some(Arc::new(numbers(&bytes, n_vocab)?)),
            None => None,
        };
        Ok(Sequence { history, logits, sampler: parse_sampler(container, index)? })
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
            check_cells(&sequence.history, image, held)?;
        }
        let work = Stoppable::new(&*self.pool, self.cancel.as_ref());
        let source = StoppableSource { source: &saved, work: &work };
        let staged = self.memory.stage_with(image, &source, seqs, options.convert, &*self.pool);
        let staged = staged.map_err(|error| match error {
            StageError::Memory(error) => Error::Memory(error),
            StageError::Source(SourceError::Cancelled) => Error::Cancelled,
            StageError::Source(SourceError::Source(error)) => Error::State(error),
        })?;
        let fit = staged.commit();
        let mut sequences = Vec::new();
        for (mut sequence, &seq) in parsed.sequences.into_iter().zip(seqs) {
            if fit.conversion.is_some() && self.left(seq) == Left::Something {
                sequence.history.make_foreign();
            }
            self.outputs.give(seq, sequence.logits);
            if let Some(slot) = self.sequences.get_mut(seq.index()) {
                *slot = Some(sequence.history);
            }
            sequences.push(RestoredSequence { sampler: sequence.sampler, ..self.restored(seq) });
        }
        let sampler = sequences.first().and_then(|first| first.sampler.clone());
        let metadata = parsed.metadata;
        Ok(Restored { sequences, sampler, metadata, n_bytes: container.committed_len(), fit })
    }

    /// What is to be said of a sequence that was restored. Cannot fail: nothing may once it is visible.
    pub(super) fn restored(&self, seq: SeqId) -> RestoredSequence {
        let n_tokens = self.tokens(seq).map_or(0, <[_]>::len);
        let positions = self.positions(seq).unwrap_or_default();
        RestoredSequence { seq, end: self.end(seq), n_tokens, positions, sampler: None }
    }
}

fn parse_sampler(container: &Container<'_>, index: u64) -> Result<Option<sampler::State>, Error> {
    let Some(bytes) = section(container, SAMPLER, index, MAX_TOKENS)? else { return Ok(None) };
    let mut state = sampler::State::decode(&bytes)?;
    if let Some(trail) = section(container, TRAIL, index, MAX_TOKENS)? {
        state.trail = sampler::Trail::decode(&trail)?;
    }
    Ok(Some(state))
}

/// The content of a section that there may be, of at most `limit` bytes; one of a version that is not known counts as none.
fn section(container: &Container<'_>, tag: Tag, index: u64, limit: u64) -> Result<Option<Vec<u8>>, Error> {
    let section = container.find(tag, index).filter(|section| section.version <= VERSION);
    let bytes = section.map(|section| container.read_at_most(section, limit)).transpose()?;
    Ok(bytes.map(|bytes| bytes.into_owned()))
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

/// Checks that every token of a list that some group of layers keeps cells of has one there: a list that goes on across a hole would be cut in the hole
/// by a rollback, and then end elsewhere than the cells.
fn check_cells(history: &History, image: &Image, held: &image::Sequence) -> Result<(), Error> {
    let (Some(end), start) = (history.end(), history.start()) else { return Ok(()) };
    let groups = image.shape.groups.iter().zip(&image.blocks).zip(&held.cells);
    for ((_, blocks), cells) in groups.filter(|((group, _), _)| group.sees != Sees::Text) {
        // Several cells may stand at one position.
        let mut wanted = start.max(cells.whole_from);
        for pos in cells.positions(blocks) {
            if pos == wanted {
                wanted = Pos(pos.0.saturating_add(1));
            }
        }
        if wanted < end {
            let (what, found) = ("the list of a sequence's tokens", wanted.0 as u64);
            return Err(Error::SavedValue {
                what,
                offset: 4,
                found,
                wanted: "tokens that cells are there for",
            });
        }
    }
    Ok(())
}
