//! Saved states: the content of sequences as bytes or files, and back.
//!
//! A state is a container (see [`backstitch_kv::storage`]) with the sections of the memory and some
//! of this crate: which sequences there are, their tokens, the logits after the last, and what the
//! caller wants beside them. Reading one takes two steps: everything is parsed, checked and put
//! into memory that nobody uses; then, without anything that could fail, it becomes visible.
//! Whatever is wrong with a state, live sequences stay as they were.

#[cfg(feature = "std")]
mod files;
mod llama;
mod read;
mod saved;
pub mod sections;
mod write;

pub use saved::{SavedAdapters, SavedContext, SavedSequence};

use super::Context;
use crate::adapter::AdapterSet;
use crate::error::Error;
use crate::sampler::{self, Chain};
use crate::setters::setters;
use alloc::vec::Vec;
use backstitch_kv::io::{Read, Write, read_to_end};
use backstitch_kv::storage::{Container, Scope, Written};
use backstitch_kv::{CostRange, Fit, Pos, SeqId};

/// Content of a state beside that of sequences.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SaveOptions<'a> {
    /// The samplers to go on with.
    pub sampler: Option<&'a Chain>,
    /// The states of the samplers of single sequences, in place of `sampler` for these.
    pub samplers: &'a [(SeqId, sampler::State)],
    /// Bytes of the caller's: a title, the conversation as text.
    pub metadata: &'a [u8],
    /// True to call a file saved only once it would survive a loss of power. Without, it still
    /// survives the end of the process.
    pub sync: bool,
    /// True to compress sections that become shorter so, which takes several times as long.
    #[cfg(feature = "zstd")]
    pub compress: bool,
}

impl Default for SaveOptions<'_> {
    /// Nothing beside; files are synchronised, nothing is compressed.
    fn default() -> Self {
        SaveOptions {
            sampler: None,
            samplers: &[],
            metadata: &[],
            sync: true,
            #[cfg(feature = "zstd")]
            compress: false,
        }
    }
}

setters!(SaveOptions<'a> {
    sampler: Option<&'a Chain>,
    samplers: &'a [(SeqId, sampler::State)],
    metadata: &'a [u8],
    sync: bool,
    #[cfg(feature = "zstd")]
    compress: bool,
});

/// Options of reading a state; by default, only into cells of the same type, and without adapters.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RestoreOptions<'a> {
    /// The sets of adapters that the saved sequences were evaluated with, in any order; beside
    /// these, the set of the sequence that is restored in place of another is known, or those of
    /// all sequences that are replaced.
    pub adapters: &'a [AdapterSet],
    /// True to convert cells of another element type than the context's; [`Restored::fit`]
    /// tells what that did to them. Without, they are an error.
    pub convert: bool,
}

setters!(RestoreOptions<'a> { adapters: &'a [AdapterSet], convert: bool });

/// Result of restoring a state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The sequences, each under the id that it has now.
    pub sequences: Vec<RestoredSequence>,
    /// Bytes of the caller's.
    pub metadata: Vec<u8>,
    /// Bytes of the state.
    pub n_bytes: u64,
    /// Losses because this context keeps less, and what converting cells did to
    /// them.
    pub fit: Fit,
}

/// A sequence that came back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestoredSequence {
    /// Its id.
    pub seq: SeqId,
    /// The position that its next token gets.
    pub end: Pos,
    /// The number of its tokens that are known: all, unless it was edited in its middle.
    pub n_tokens: usize,
    /// Which positions a rollback reaches in which way, as [`Context::positions`].
    pub positions: Vec<CostRange>,
    /// The state of its samplers, if that was saved; [`Chain::resume`] goes on from there.
    pub sampler: Option<sampler::State>,
}

impl Restored {
    /// Return the id of the sequence; of the first, if there are several.
    pub fn seq(&self) -> SeqId {
        self.sequences.first().map_or_else(SeqId::default, |sequence| sequence.seq)
    }

    /// Return the state of the samplers of the first sequence, if that was saved.
    pub fn sampler(&self) -> Option<&sampler::State> {
        self.sequences.first()?.sampler.as_ref()
    }
}

impl Context {
    /// Return the number of bytes that [`Context::state_write`] would write, in the time that this
    /// takes without a receiver.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn state_size(&self, options: &SaveOptions<'_>) -> Result<u64, Error> {
        Ok(self.state_write(&mut Nowhere, options)?.bytes)
    }

    /// Write all sequences, with what they share once; fastest, and on all threads, into a
    /// [`Space`](backstitch_kv::io::Space).
    ///
    /// # Errors
    /// The error of `out`.
    pub fn state_write(&self, out: &mut dyn Write, options: &SaveOptions<'_>) -> Result<Written, Error> {
        self.write_state(out, &self.live(), Scope::Context, options)
    }

    /// Read what [`Context::state_write`] wrote, in place of all that the context holds. Sequences
    /// have the ids again under which they were saved.
    ///
    /// Needs room for the new sequences beside the old; [`Context::clear`] makes some.
    ///
    /// # Errors
    /// [`Error::State`] for damage, and states of another model or another kind; [`Error::Memory`]
    /// if the cache is another or has no room; [`Error::SavedLength`], [`Error::SavedValue`];
    /// [`Error::Sequence`] for sequences that this context cannot have; [`Error::Cancelled`].
    /// Nothing has changed then.
    pub fn state_read(
        &mut self,
        input: &mut dyn Read,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        self.state_read_bytes(&read_all(input)?, options)
    }

    /// As [`Context::state_read`], from bytes that are there already.
    ///
    /// # Errors
    /// As [`Context::state_read`].
    pub fn state_read_bytes(
        &mut self,
        bytes: &[u8],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        self.take(&Container::parse(bytes)?, None, options)
    }

    /// Return the number of bytes that [`Context::seq_state_write`] would write.
    ///
    /// # Errors
    /// [`Error::Sequence`], [`Error::OutOfMemory`].
    pub fn seq_state_size(&self, seq: SeqId, options: &SaveOptions<'_>) -> Result<u64, Error> {
        Ok(self.seq_state_write(seq, &mut Nowhere, options)?.bytes)
    }

    /// Write what `seq` holds: with it, another context of the same model goes on with the same
    /// bits, and goes back to the same positions at once.
    ///
    /// # Errors
    /// [`Error::Sequence`]; what `out` says.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::{Context, Model, Params, RestoreOptions, SaveOptions, Token};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let mut ctx = Context::new(&model, Params::default().n_ctx(128))?;
    /// let a = ctx.sequence()?;
    /// ctx.append(a, &[Token(5), Token(6), Token(7)])?;
    /// let mut state = Vec::new();
    /// ctx.seq_state_write(a, &mut state, &SaveOptions::default())?;
    ///
    /// let mut other = Context::new(&model, Params::default().n_ctx(512).n_threads(2))?;
    /// let b = other.sequence()?;
    /// other.seq_state_read(b, &mut state.as_slice(), &RestoreOptions::default())?;
    /// assert_eq!(other.logits(b)?, ctx.logits(a)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seq_state_write(
        &self,
        seq: SeqId,
        out: &mut dyn Write,
        options: &SaveOptions<'_>,
    ) -> Result<Written, Error> {
        self.write_state(out, &[seq], Scope::Sequence, options)
    }

    /// Read what [`Context::seq_state_write`] wrote, in place of what `seq` holds; a `seq` below
    /// `n_seq_max` that does not exist is made.
    ///
    /// Needs room for the new beside the old; [`Context::release`] makes some.
    ///
    /// # Errors
    /// As [`Context::state_read`].
    pub fn seq_state_read(
        &mut self,
        seq: SeqId,
        input: &mut dyn Read,
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        self.seq_state_read_bytes(seq, &read_all(input)?, options)
    }

    /// As [`Context::seq_state_read`], from bytes that are there already.
    ///
    /// # Errors
    /// As [`Context::state_read`].
    pub fn seq_state_read_bytes(
        &mut self,
        seq: SeqId,
        bytes: &[u8],
        options: &RestoreOptions<'_>,
    ) -> Result<Restored, Error> {
        self.take(&Container::parse(bytes)?, Some(seq), options)
    }
}

fn read_all(input: &mut dyn Read) -> Result<Vec<u8>, Error> {
    read_to_end(input).map_err(|error| Error::State(error.into()))
}

/// A receiver that only counts bytes.
pub(super) struct Nowhere;

impl Write for Nowhere {
    fn write_all(&mut self, _bytes: &[u8]) -> Result<(), backstitch_kv::io::Error> {
        Ok(())
    }
}
