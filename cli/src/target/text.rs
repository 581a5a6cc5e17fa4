//! Saved states are replaced only by a text that goes on with theirs.

use super::stamp::Stamp;
use super::{Found, Target, shown};
use crate::error::Error;
use crate::saved::Saved;
use backstitch_kv::state::{Fingerprint, StateFile};
use backstitch_models::Token;
use std::fs;
use std::io::Read;

/// A text of a model.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The model.
    pub model: &'a Fingerprint,
    /// The tokens.
    pub tokens: &'a [Token],
}

/// The knowledge there is of a text that will be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// All of it.
    All,
    /// Its beginning. The same command makes the same text, so what follows may be what the file holds.
    Again,
    /// Its beginning; nobody can tell how it goes on.
    Beginning,
    /// All of it, but without the checkpoints, logits and samplers that other engines do not have.
    Imported,
}

impl Target<'_> {
    /// Checks that the saved state at the path, if there is one, holds a beginning of `text`, so that nothing
    /// is lost when it is replaced.
    ///
    /// # Errors
    /// [`Error::Refused`] if it holds another text, or that cannot be told.
    pub fn expect_text(&self, text: Text<'_>, saving: Saving) -> Result<(), Error> {
        if !matches!(Found::at(self.path), Ok(Found::State)) {
            return Ok(());
        }
        let Some(why) = self.other_text(text, saving) else { return Ok(()) };
        Err(self.refused_for(&why))
    }

    fn refused_for(&self, why: &str) -> Error {
        let (name, option) = (shown(self.path), self.option);
        let restore =
            if option == "--save" { format!("--restore {name} goes on with it, ") } else { String::new() };
        Error::Refused(format!(
            "{name} {why}: it is not replaced; {restore}another file for {option} keeps both, --force replaces it"
        ))
    }

    /// Checks that the file of llama.cpp at the path, if there is one, lists a beginning of the tokens that
    /// `new` lists, or goes on with them.
    ///
    /// # Errors
    /// [`Error::Refused`] if it lists others.
    pub fn expect_llama_text(&self, new: &[u8]) -> Result<(), Error> {
        let Some(old) = fs::File::open(self.path).ok().and_then(|file| listed(&file)) else { return Ok(()) };
        let new = listed(new).unwrap_or_default();
        match old.chunks(4).zip(new.chunks(4)).position(|(old, new)| old != new) {
            None => Ok(()),
            Some(at) => {
                Err(self.refused_for(&format!("holds another text, which differs from token {at} on")))
            }
        }
    }

    /// Returns true if the file is the one that the command read, as it was then.
    fn is_what_was_read(&self) -> bool {
        self.input.is_some() && self.input == Stamp::of(self.path)
    }

    /// Why the state at the path is none of this text.
    fn other_text(&self, text: Text<'_>, saving: Saving) -> Option<String> {
        let unreadable = |error: backstitch_kv::state::Error| {
            Some(format!("is a saved state that cannot be read ({error})"))
        };
        let file = match StateFile::open(self.path) {
            Ok(file) => file,
            Err(error) => return unreadable(error),
        };
        let container = match file.container() {
            Ok(container) => container,
            Err(error) => return unreadable(error),
        };
        if container.fingerprint() != text.model {
            return Some("is a state of another model".into());
        }
        match Saved::read(&container) {
            Err(error) => unreadable(error),
            // What was read from there goes on, or ends earlier; unless somebody saved to it since.
            Ok(saved) if self.is_what_was_read() && saved.sequences.len() == 1 => None,
            Ok(saved) => difference(&saved, text.tokens, saving),
        }
    }
}

/// In what way a state holds another text than one that begins with `tokens`.
fn difference(saved: &Saved<'_>, tokens: &[Token], saving: Saving) -> Option<String> {
    let sequence = match saved.sequences.as_slice() {
        [] => return None,
        [sequence] => sequence,
        several => return Some(format!("holds {} sequences", several.len())),
    };
    if sequence.edited || sequence.start > 0 {
        return Some("holds a text that was edited".into());
    }
    let same = sequence.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
    let n_saved = sequence.tokens.len();
    if saving == Saving::Imported && !sequence.foreign {
        return Some("holds checkpoints, logits or samplers that other engines do not keep".into());
    }
    if same == n_saved || (same == tokens.len() && saving == Saving::Again) {
        return None;
    }
    Some(match tokens.len() - same {
        0 => format!("holds a text of {n_saved} tokens that begins with these {same}"),
        _ => format!("holds another text of {n_saved} tokens, which differs from token {same} on"),
    })
}

/// The bytes of the tokens that a session or sequence file of llama.cpp lists.
fn listed(mut file: impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 12];
    file.read_exact(&mut head).ok()?;
    let (_, n) = head.split_last_chunk::<4>()?;
    let mut tokens = Vec::new();
    file.take(4 * u64::from(u32::from_le_bytes(*n))).read_to_end(&mut tokens).ok()?;
    Some(tokens)
}
