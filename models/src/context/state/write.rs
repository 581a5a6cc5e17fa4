//! From sequences to sections.

use super::{LOGITS, METADATA, SAMPLER, SEQUENCES, SaveOptions, TOKENS, VERSION};
use crate::context::Context;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::SeqId;
use backstitch_kv::io::Write;
use backstitch_kv::state::{Header, Scope, StoredImage, Writer, Written, write_image};

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

    /// Writes a state of `seqs`, which exist, in one pass.
    pub(super) fn write_state(
        &self,
        out: &mut dyn Write,
        seqs: &[SeqId],
        scope: Scope,
        options: &SaveOptions<'_>,
    ) -> Result<Written, Error> {
        let mut writer = Writer::new(out, self.state_header(scope))?;
        self.write_sections(&mut writer, seqs, None, options)?;
        Ok(writer.finish()?)
    }

    /// Writes the sections of a state of `seqs`, which exist; `old` is the image in the container that is continued.
    pub(super) fn write_sections(
        &self,
        writer: &mut Writer<'_>,
        seqs: &[SeqId],
        old: Option<&StoredImage<'_>>,
        options: &SaveOptions<'_>,
    ) -> Result<(), Error> {
        let ids: Vec<[u8; 4]> = seqs.iter().map(|seq| seq.0.to_le_bytes()).collect();
        writer.section(SEQUENCES, VERSION, true, 0, &[ids.as_flattened()])?;
        for (index, &seq) in (0..).zip(seqs) {
            writer.section(TOKENS, VERSION, true, index, &[&self.history(seq)?.encode()])?;
            if let Some(logits) = self.logits(seq) {
                let bytes: Vec<[u8; 4]> = logits.iter().map(|x| x.to_le_bytes()).collect();
                writer.section(LOGITS, VERSION, false, index, &[bytes.as_flattened()])?;
            }
        }
        if let Some(chain) = options.sampler {
            writer.section(SAMPLER, VERSION, false, 0, &[&chain.state().encode()])?;
        }
        if !options.metadata.is_empty() {
            writer.section(METADATA, VERSION, false, 0, &[options.metadata])?;
        }
        Ok(write_image(writer, &self.memory.snapshot(seqs)?, old)?)
    }
}
