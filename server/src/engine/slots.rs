//! Slots: the engine's running requests as llama-server's clients see them, and files of their
//! sequences.

use super::report::SlotReport;
use super::request::Tenant;
use super::worker::{Worker, lacking};
use crate::error::Error;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::backstitch_kv::storage::disk::{Readers, replace};
use backstitch_models::llama_files::{Form, Options};
use backstitch_models::{RestoreOptions, SeqId};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The first bytes of llama.cpp's sequence files.
const LLAMA_MAGIC: [u8; 4] = 0x6767_7371_u32.to_le_bytes();

/// The layout of a saved sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotLayout {
    /// Backstitch's state file.
    #[default]
    Backstitch,
    /// llama.cpp's sequence file.
    Llama,
}

/// A sequence that was saved or restored.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlotFile {
    /// The number of tokens of the sequence.
    pub n_tokens: usize,
    /// The bytes of the file.
    pub n_bytes: u64,
    /// The time that it took.
    pub elapsed: Duration,
}

/// A slot as clients see it.
pub(super) struct SlotView {
    /// The sequence of the request in it, or of the last one.
    pub seq: Option<SeqId>,
    /// The time of the last use.
    pub used: Option<Instant>,
    pub report: SlotReport,
}

impl SlotView {
    pub fn new(id: usize) -> Self {
        SlotView { seq: None, used: None, report: SlotReport { id, ..SlotReport::default() } }
    }

    /// Show nothing instead of a sequence that is dropped.
    pub fn forget(&mut self, seq: SeqId) {
        self.seq.take_if(|shown| *shown == seq);
    }

    /// Show another sequence instead of one that is dropped.
    pub fn replace(&mut self, former: SeqId, seq: SeqId) {
        self.seq.iter_mut().filter(|shown| **shown == former).for_each(|shown| *shown = seq);
    }
}

impl Worker {
    /// Save the sequence of a slot, if it is one of `tenant`. A slot without one is saved as an
    /// empty sequence, as llama-server's clients expect.
    pub fn save_slot(
        &mut self,
        slot: usize,
        tenant: Tenant,
        path: &Path,
        layout: SlotLayout,
    ) -> Result<SlotFile, Error> {
        let began = Instant::now();
        let own = self.own_slot(slot, tenant)?;
        if path.symlink_metadata().is_ok() {
            expect_file(path)?;
        }
        if let Some(seq) = own {
            let n_tokens = self.ctx.tokens(seq)?.len();
            let n_bytes = self.save_sequence(seq, n_tokens, path, layout)?;
            return Ok(SlotFile { n_tokens, n_bytes, elapsed: began.elapsed() });
        }
        self.make_sequence_free(None)?;
        let empty = self.ctx.sequence()?;
        let saved = self.save_sequence(empty, 0, path, layout);
        self.ctx.release(empty)?;
        Ok(SlotFile { n_tokens: 0, n_bytes: saved?, elapsed: began.elapsed() })
    }

    /// Save a sequence of `n_tokens`, and return the bytes of its file.
    fn save_sequence(
        &self,
        seq: SeqId,
        n_tokens: usize,
        path: &Path,
        layout: SlotLayout,
    ) -> Result<u64, Error> {
        if layout == SlotLayout::Backstitch {
            return Ok(self.ctx.save(seq, path)?.container.bytes);
        }
        let bytes = self.ctx.llama_seq_state_write(seq, Form::Sequence, &Options::default())?;
        let bytes = with_server_list(bytes, n_tokens);
        let written = replace(path, Readers::Owner, |file| file.write_all(&bytes));
        written.map_err(|error| Error::file(path, &error))?;
        Ok(bytes.len() as u64)
    }

    /// Restore a saved sequence into a slot; `sets` are the adapters that it may have.
    pub fn restore_slot(
        &mut self,
        slot: usize,
        path: &Path,
        tenant: Tenant,
        sets: &[AdapterSet],
    ) -> Result<SlotFile, Error> {
        let began = Instant::now();
        self.idle_slot(slot)?;
        expect_file(path)?;
        let former = self.slots.get(slot).and_then(|slot| slot.seq);
        self.make_sequence_free(former)?;
        let llama = read_llama(path)?;
        let (seq, n_bytes) = loop {
            match self.read_sequence(path, llama.as_deref(), sets) {
                Ok(read) => break read,
                // What is larger than the whole cache makes nobody go.
                Err(error) if lacking(&error).is_some_and(|n| n > self.n_cells()) => return Err(error.into()),
                Err(error) if self.make_place(&error, former)? => {}
                Err(error) => return Err(error.into()),
            }
        };
        let n_tokens = self.ctx.tokens(seq)?.len();
        // There is nothing to hold of an empty sequence.
        let shown = (n_tokens > 0).then_some(seq);
        match shown {
            None => self.ctx.release(seq)?,
            Some(seq) => self.conversations.add(seq, tenant),
        }
        if let Some(held) = shown.and_then(|seq| self.conversations.get_mut(seq)) {
            held.is_busy = false;
        }
        if let Some(view) = self.slots.get_mut(slot) {
            view.seq = shown;
            view.used = Some(Instant::now());
            view.report = SlotReport { id: slot, ..SlotReport::default() };
        }
        Ok(SlotFile { n_tokens, n_bytes, elapsed: began.elapsed() })
    }

    /// Return the number of cells of the context.
    fn n_cells(&self) -> u64 {
        self.ctx.params().n_ctx.into()
    }

    /// Read a sequence of llama.cpp's bytes, or without them of the file. Return its bytes, too.
    fn read_sequence(
        &mut self,
        path: &Path,
        llama: Option<&[u8]>,
        sets: &[AdapterSet],
    ) -> Result<(SeqId, u64), backstitch_models::Error> {
        let Some(bytes) = llama else {
            let restored = self.ctx.restore_with(path, &RestoreOptions::default().adapters(sets))?;
            return Ok((restored.seq(), restored.n_bytes));
        };
        let seq = self.ctx.sequence()?;
        if let Err(error) = self.ctx.llama_seq_state_read(seq, bytes, &RestoreOptions::default()) {
            self.ctx.release(seq)?;
            return Err(error);
        }
        Ok((seq, bytes.len() as u64))
    }

    /// Drop the sequence of a slot, and return the number of its tokens.
    pub fn erase_slot(&mut self, slot: usize, tenant: Tenant) -> Result<usize, Error> {
        let Some(seq) = self.own_slot(slot, tenant)? else { return Ok(0) };
        let n_tokens = self.ctx.tokens(seq)?.len();
        self.release(seq)?;
        if let Some(view) = self.slots.get_mut(slot) {
            *view = SlotView::new(slot);
        }
        Ok(n_tokens)
    }

    /// Return the sequence of a slot in which nothing is evaluated, if it is one of `tenant`.
    fn own_slot(&self, slot: usize, tenant: Tenant) -> Result<Option<SeqId>, Error> {
        let is_own = |seq: &SeqId| self.conversations.get(*seq).is_some_and(|held| held.tenant == tenant);
        Ok(self.idle_slot(slot)?.filter(is_own))
    }

    /// Return the sequence of a slot in which nothing is evaluated.
    fn idle_slot(&self, slot: usize) -> Result<Option<SeqId>, Error> {
        let n_slots = self.slots.len();
        let view = self.slots.get(slot).ok_or(Error::Slot { slot, n_slots })?;
        match self.running.iter().any(|running| running.slot == slot) {
            true => Err(Error::BusySlot { slot }),
            false => Ok(view.seq),
        }
    }
}

/// Refuse what is no file. A pipe would hold the engine until somebody writes to it, and a link
/// could lead out of the folder.
fn expect_file(path: &Path) -> Result<(), Error> {
    // A folder is refused by the system when it is read, in its own words.
    match path.symlink_metadata() {
        Ok(found) if found.is_file() || found.is_dir() => Ok(()),
        Ok(_) => Err(Error::NoFile { name: path.file_name().unwrap_or_default().to_string_lossy().into() }),
        Err(error) => Err(Error::file(path, &error)),
    }
}

/// Return a sequence file with its list of `n_tokens` tokens in the form that llama-server gives
/// it: -1, a version, the number of tokens, the tokens, and the number of pictures, which is 0.
fn with_server_list(mut bytes: Vec<u8>, n_tokens: usize) -> Vec<u8> {
    /// The end of the magic number, the version and the length of the list.
    const LIST: usize = 12;
    let n = u32::try_from(n_tokens).unwrap_or(u32::MAX);
    let end = LIST + 4 * n_tokens;
    bytes.splice(end..end, [0; 4]);
    let head = [u32::MAX, 1, n];
    bytes.splice(
        LIST - 4..LIST,
        (n + 4).to_le_bytes().into_iter().chain(head.into_iter().flat_map(u32::to_le_bytes)),
    );
    bytes
}

/// Return the bytes of a file of llama.cpp's; `None` if the file is of another kind.
fn read_llama(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let read = || {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        (&mut file).take(LLAMA_MAGIC.len() as u64).read_to_end(&mut bytes)?;
        if bytes != LLAMA_MAGIC {
            return Ok(None);
        }
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    };
    read().map_err(|error: io::Error| Error::file(path, &error))
}
