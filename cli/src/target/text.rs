//! The rule about texts: a saved state is replaced only by a state whose text continues its own.
//!
//! The file is opened and its tokens are compared with those that will be saved. At that time a
//! command often knows only the beginning of its text, so [`Saving`] says how much it knows.

use super::stamp::Stamp;
use super::{Found, Kind, Target, shown};
use crate::error::Error;
use backstitch_kv::storage::{Fingerprint, StateFile};
use backstitch_models::{SavedContext, Token};
use std::fmt::Display;
use std::fs;
use std::io::Read;

/// The text of a state to be saved: tokens, and the model that they belong to.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Fingerprint of the model.
    pub model: &'a Fingerprint,
    /// Tokens of the text, as far as they are known.
    pub tokens: &'a [Token],
    /// The part of the text that they are.
    pub saving: Saving,
}

/// The part of a text that is known before it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// All tokens are known.
    All,
    /// The beginning is known, and the same command always generates the same rest, so the rest may
    /// be the one that the file holds.
    Again,
    /// The beginning is known, and the rest will be new.
    Beginning,
    /// All tokens are known, of one sequence of several that are saved together.
    Chat,
    /// All tokens are known, but the state lacks checkpoints, logits and samplers, because it comes
    /// from an engine that does not keep them.
    Imported,
}

impl Target<'_> {
    /// Check that the saved state at the path, if there is one, holds a prefix of `text`, so that
    /// nothing is lost when it is replaced.
    ///
    /// # Errors
    /// [`Error::Refused`] if it holds another text, or cannot be read.
    pub fn expect_text(&self, text: Text<'_>) -> Result<(), Error> {
        if !matches!(Found::at(self.path), Ok(Found::Is(Kind::State))) {
            return Ok(());
        }
        self.expect_continued(text).map_err(|why| self.refused_for(&why))
    }

    /// Make the error about a state that is not replaced. `why` says what it holds.
    fn refused_for(&self, why: &str) -> Error {
        let (name, option) = (shown(self.path), self.option);
        let restore =
            if option == "--save" { format!("--restore {name} continues it, ") } else { String::new() };
        let force = if option.starts_with('/') { "" } else { ", --force replaces it" };
        Error::Refused(format!(
            "{name} {why}: it is not replaced; {restore}another file for {option} keeps both{force}"
        ))
    }

    /// Check that the file of llama.cpp at the path, if there is one, lists a prefix of the tokens
    /// that `new` lists, or that those are a prefix of its own.
    ///
    /// # Errors
    /// [`Error::Refused`] if it lists other tokens, or `new` lists none.
    pub fn expect_llama_text(&self, new: &[u8]) -> Result<(), Error> {
        let Some(old) = fs::File::open(self.path).ok().and_then(|file| listed(&file)) else { return Ok(()) };
        let Some(new) = listed(new) else { return Err(self.refused_for("lists tokens, the new file none")) };
        match old.chunks(4).zip(new.chunks(4)).position(|(old, new)| old != new) {
            None => Ok(()),
            Some(at) => {
                Err(self.refused_for(&format!("holds another text, which differs from token {at} on")))
            }
        }
    }

    /// Return true if the file at the path is the command's input, unchanged since it was read.
    fn is_what_was_read(&self) -> bool {
        self.input.is_some() && self.input == Stamp::of(self.path)
    }

    /// Check that this text may replace the saved state at the path. The error says what that
    /// holds.
    fn expect_continued(&self, text: Text<'_>) -> Result<(), String> {
        let file = StateFile::open(self.path).map_err(unreadable)?;
        let container = file.container().map_err(unreadable)?;
        if container.fingerprint() != text.model {
            return Err("is a state of another model".into());
        }
        let saved = SavedContext::parse(&container).map_err(unreadable)?;
        // The command continues or shortens its own input, and nobody saved to it since.
        if self.is_what_was_read() && (saved.sequences.len() == 1 || text.saving == Saving::Chat) {
            return Ok(());
        }
        expect_prefix(&saved, text)
    }
}

/// Describe a state that cannot be read.
fn unreadable(error: impl Display) -> String {
    format!("is a saved state that cannot be read ({error})")
}

/// Check that the text of a state is a prefix of the one to be saved. The error says what it is
/// instead.
fn expect_prefix(saved: &SavedContext<'_>, Text { tokens, saving, .. }: Text<'_>) -> Result<(), String> {
    let sequence = match saved.sequences.as_slice() {
        [] => return Ok(()),
        [sequence] => sequence,
        several => return Err(format!("holds {} sequences", several.len())),
    };
    if sequence.edited || sequence.start.0 > 0 {
        return Err("holds a text that was edited".into());
    }
    let same = sequence.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
    let n_saved = sequence.tokens.len();
    if saving == Saving::Imported && !sequence.foreign {
        return Err("holds checkpoints, logits or samplers that other engines do not keep".into());
    }
    if same == n_saved || (same == tokens.len() && saving == Saving::Again) {
        return Ok(());
    }
    Err(match tokens.len() - same {
        0 => format!("holds a text of {n_saved} tokens that begins with these {same}"),
        _ => format!("holds another text of {n_saved} tokens, which differs from token {same} on"),
    })
}

/// Return the bytes of the tokens that a session or sequence file of llama.cpp lists: their number
/// stands after a magic number and a version.
fn listed(mut file: impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 12];
    file.read_exact(&mut head).ok()?;
    let (_, n) = head.split_last_chunk::<4>()?;
    let mut tokens = Vec::new();
    file.take(4 * u64::from(u32::from_le_bytes(*n))).read_to_end(&mut tokens).ok()?;
    Some(tokens)
}
