//! From sequences to sections.

use super::SaveOptions;
use super::saved::MAX_LISTS;
use super::sections::{
    ADAPTERS, LOGITS, MAX_TOKENS, METADATA, SAMPLER, SEQUENCES, TOKENS, TRAIL, VERSION, expect_at_most,
    sampler_room,
};
use crate::adapter::AdapterSet;
use crate::context::Context;
use crate::error::Error;
use crate::sampler::{Chain, Trail};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use backstitch_core::Pool;
use backstitch_kv::io::Write;
use backstitch_kv::storage::{
    self, Header, MAX_READ, Scope, StoredSnapshot, Writer, Written, write_snapshot_with,
};
use backstitch_kv::{Export, SeqId};

/// Content of a state, ready to be written; more than once, if that is what a file takes.
pub(super) struct Content<'a> {
    ids: Vec<u32>,
    sequences: Vec<SequenceContent<'a>>,
    metadata: &'a [u8],
    #[cfg(feature = "zstd")]
    compress: bool,
    snapshot: Export<'a>,
}

/// Content of a sequence beside the memory's.
struct SequenceContent<'a> {
    tokens: Vec<u8>,
    /// The identity and the description of its adapters, if it has some.
    adapters: Vec<u8>,
    logits: Option<&'a [f32]>,
    /// The state of its samplers, and their earlier ones.
    sampler: Option<[Vec<u8>; 2]>,
}

impl Content<'_> {
    /// Write the sections. A container that is continued keeps those that it has already.
    pub(super) fn write(&self, writer: &mut Writer<'_>, pool: &dyn Pool) -> Result<(), storage::Error> {
        writer.section(SEQUENCES, VERSION, true, 0, &[bytemuck::must_cast_slice(&self.ids)])?;
        for (index, SequenceContent { tokens, adapters, logits, .. }) in (0..).zip(&self.sequences) {
            writer.section(TOKENS, VERSION, true, index, &[tokens])?;
            if !adapters.is_empty() {
                writer.section(ADAPTERS, VERSION, true, index, &[adapters])?;
            }
            if let Some(logits) = logits {
                writer.section(LOGITS, VERSION, false, index, &[bytemuck::must_cast_slice(logits)])?;
            }
        }
        for (index, sequence) in (0..).zip(&self.sequences) {
            let Some([state, trail]) = &sequence.sampler else { continue };
            writer.section(SAMPLER, VERSION, false, index, &[state])?;
            if !trail.is_empty() {
                writer.section(TRAIL, VERSION, false, index, &[trail])?;
            }
        }
        // Not the lists: their contents must not outgrow the file, or a reader would refuse them.
        #[cfg(feature = "zstd")]
        if self.compress {
            writer.compress();
        }
        if !self.metadata.is_empty() {
            writer.section(METADATA, VERSION, false, 0, &[self.metadata])?;
        }
        // An old snapshot that cannot be read has nothing to be continued.
        let old = writer.old().and_then(|old| StoredSnapshot::open(old).ok());
        write_snapshot_with(writer, &self.snapshot, old.as_ref(), pool)
    }
}

/// Refuse more bytes of lists than a reader takes; those that are alike are stored once.
fn expect_lists<'a>(sequences: &'a [SequenceContent<'_>]) -> Result<(), storage::Error> {
    let of = |sequence: &'a SequenceContent<'_>| {
        let SequenceContent { tokens, adapters, logits, sampler } = sequence;
        let logits = bytemuck::must_cast_slice(logits.unwrap_or_default());
        let samplers = sampler.iter().flatten().map(Vec::as_slice);
        [&tokens[..], adapters, logits].into_iter().chain(samplers)
    };
    let distinct: BTreeSet<&[u8]> = sequences.iter().flat_map(of).collect();
    let value = distinct.iter().map(|list| list.len() as u64).sum();
    expect_at_most("bytes of all lists of tokens, logits and samplers", value, MAX_LISTS)
}

/// Refuse states of samplers that are the same bytes of the file so often that a reader would not
/// take them.
fn expect_shared_room(sequences: &[SequenceContent<'_>], own: u64) -> Result<(), storage::Error> {
    let (mut stored, mut value, mut limit) = (BTreeSet::new(), 0, MAX_TOKENS);
    for list in sequences.iter().filter_map(|sequence| sequence.sampler.as_ref()).flatten() {
        let n_bytes = list.len() as u64;
        value += n_bytes;
        limit += if stored.insert(list) { n_bytes } else { 0 };
    }
    let limit = limit + own.saturating_mul(sequences.len() as u64);
    expect_at_most("bytes of samplers' states, many of them alike", value, limit)
}

/// Return the state of the samplers of a sequence, and of their earlier ones, if that is to be
/// saved.
fn sampler_of(
    options: &SaveOptions<'_>,
    index: usize,
    seq: SeqId,
) -> Result<Option<[Vec<u8>; 2]>, storage::Error> {
    let own = options.samplers.iter().find(|(of, _)| *of == seq).map(|(_, state)| state.clone());
    let shared = options.sampler.filter(|_| index == 0).map(Chain::state);
    let Some(state) = own.or(shared) else { return Ok(None) };
    let trail = if state.trail == Trail::default() { Vec::new() } else { state.trail.encode() };
    let state = state.encode();
    expect_at_most("bytes of a sampler's state", state.len().max(trail.len()) as u64, MAX_TOKENS)?;
    Ok(Some([state, trail]))
}

/// Return the section that names a set of adapters; nothing for the empty set.
fn encode_adapters(set: &AdapterSet) -> Vec<u8> {
    let Some(id) = set.id() else { return Vec::new() };
    let mut bytes = id.0.to_vec();
    bytes.extend(set.description().bytes());
    bytes
}

impl Context {
    /// Return the sequences that exist.
    pub(super) fn live(&self) -> Vec<SeqId> {
        let ids = (0..self.params.n_seq_max).map(SeqId);
        ids.filter(|seq| self.history(*seq).is_ok()).collect()
    }

    /// Return the header of a state of this model.
    pub(super) fn state_header(&self, scope: Scope) -> Header {
        Header { fingerprint: self.fingerprint(), scope }
    }

    /// Return the content of a state of `seqs`.
    pub(super) fn content<'a>(
        &'a self,
        seqs: &[SeqId],
        options: &SaveOptions<'a>,
    ) -> Result<Content<'a>, Error> {
        expect_at_most("bytes of metadata", options.metadata.len() as u64, MAX_READ)?;
        let sequence = |(index, &seq): (usize, &SeqId)| {
            let tokens = self.history(seq)?.encode();
            expect_at_most("bytes of a list of tokens", tokens.len() as u64, MAX_TOKENS)?;
            let (logits, sampler) = (self.logits_at_hand(seq), sampler_of(options, index, seq)?);
            let adapters = encode_adapters(self.adapters(seq)?);
            Ok(SequenceContent { tokens, adapters, logits, sampler })
        };
        let sequences: Vec<_> = seqs.iter().enumerate().map(sequence).collect::<Result<_, Error>>()?;
        expect_lists(&sequences)?;
        expect_shared_room(&sequences, sampler_room(self.params.n_ctx))?;
        Ok(Content {
            ids: seqs.iter().map(|seq| seq.0).collect(),
            sequences,
            metadata: options.metadata,
            #[cfg(feature = "zstd")]
            compress: options.compress,
            snapshot: self.memory.export(seqs)?,
        })
    }

    /// Write a state of `seqs` in one pass.
    pub(super) fn write_state(
        &self,
        out: &mut dyn Write,
        seqs: &[SeqId],
        scope: Scope,
        options: &SaveOptions<'_>,
    ) -> Result<Written, Error> {
        let content = self.content(seqs, options)?;
        let mut writer = Writer::new(out, self.state_header(scope))?;
        content.write(&mut writer, &*self.pool)?;
        Ok(writer.finish()?)
    }
}
