//! From sequences to sections.

use super::SaveOptions;
use super::sections::{LOGITS, METADATA, SAMPLER, SEQUENCES, TOKENS, VERSION};
use crate::context::Context;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_core::Pool;
use backstitch_kv::io::Write;
use backstitch_kv::state::{self, Header, Scope, StoredImage, Writer, Written, write_image_with};
use backstitch_kv::{SeqId, Snapshot};

/// What a state holds, ready to be written; more than once, if that is what a file takes.
pub(super) struct Content<'a> {
    ids: Vec<[u8; 4]>,
    tokens: Vec<Vec<u8>>,
    logits: Vec<Option<&'a [f32]>>,
    sampler: Option<Vec<u8>>,
    metadata: &'a [u8],
    #[cfg(feature = "zstd")]
    compress: bool,
    snapshot: Snapshot<'a>,
}

impl Content<'_> {
    /// Writes the sections. A container that is continued keeps those that it has already.
    pub(super) fn write(&self, writer: &mut Writer<'_>, pool: &dyn Pool) -> Result<(), state::Error> {
        #[cfg(feature = "zstd")]
        if self.compress {
            writer.compress();
        }
        writer.section(SEQUENCES, VERSION, true, 0, &[self.ids.as_flattened()])?;
        for (index, (tokens, logits)) in (0..).zip(self.tokens.iter().zip(&self.logits)) {
            writer.section(TOKENS, VERSION, true, index, &[tokens])?;
            if let Some(logits) = logits {
                let bytes: Vec<[u8; 4]> = logits.iter().map(|x| x.to_le_bytes()).collect();
                writer.section(LOGITS, VERSION, false, index, &[bytes.as_flattened()])?;
            }
        }
        if let Some(sampler) = &self.sampler {
            writer.section(SAMPLER, VERSION, false, 0, &[sampler])?;
        }
        if !self.metadata.is_empty() {
            writer.section(METADATA, VERSION, false, 0, &[self.metadata])?;
        }
        // An old image that cannot be read has nothing to be continued.
        let old = writer.old().and_then(|old| StoredImage::open(old).ok());
        write_image_with(writer, &self.snapshot, old.as_ref(), pool)
    }
}

impl Context {
    /// The sequences that exist.
    pub(super) fn live(&self) -> Vec<SeqId> {
        let ids = (0..self.params.n_seq_max).map(SeqId);
        ids.filter(|seq| self.history(*seq).is_ok()).collect()
    }

    /// What a state of this model says of itself.
    pub(super) fn state_header(&self, scope: Scope) -> Header {
        Header { fingerprint: self.model.fingerprint(), scope }
    }

    /// What a state of `seqs` holds.
    pub(super) fn content<'a>(
        &'a self,
        seqs: &[SeqId],
        options: &SaveOptions<'a>,
    ) -> Result<Content<'a>, Error> {
        let tokens = seqs.iter().map(|seq| Ok(self.history(*seq)?.encode()));
        Ok(Content {
            ids: seqs.iter().map(|seq| seq.0.to_le_bytes()).collect(),
            tokens: tokens.collect::<Result<_, Error>>()?,
            logits: seqs.iter().map(|seq| self.logits(*seq)).collect(),
            sampler: options.sampler.map(|chain| chain.state().encode()),
            metadata: options.metadata,
            #[cfg(feature = "zstd")]
            compress: options.compress,
            snapshot: self.memory.snapshot(seqs)?,
        })
    }

    /// Writes a state of `seqs` in one pass.
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
