//! Files of states: llama.cpp's header and the program's tokens before a state and its seal.

use super::seal::{Content, Seal};
use super::{HEAD, behind_tokens, memory_in, number, read_sealed, seal_of, take, write};
use crate::border::Out;
use crate::context::{ContextEntry, Live};
use crate::error::Error;
use crate::replace::replace;
use backstitch_kv::file::Buffer;
use backstitch_kv::storage::disk::Readers;
use backstitch_models::SeqId;
use backstitch_models::llama_files::{SEQUENCE_VERSION, SESSION_VERSION};
use std::io::Write;
use std::path::Path;

/// Magic numbers of llama.cpp's session and sequence files.
const MAGIC: [u32; 2] = [0x6767_736e, 0x6767_7371];
/// The version in the header of files whose content is Backstitch's own, which llama.cpp refuses.
const OWN_VERSION: u32 = 0x7473_6200;

/// The place of the program for the tokens of a file.
pub struct TokenList {
    /// The list; null to count them.
    pub tokens: Out<i32>,
    /// The number that it has room for.
    pub capacity: usize,
    /// The place of their number.
    pub n_tokens: Out<usize>,
}

/// Return a file without a seal: head, tokens, memory.
pub fn file(seq: Option<SeqId>, content: Content, tokens: &[u32], memory: &[u8]) -> Vec<u8> {
    let (magic, theirs) = match seq {
        None => (MAGIC[0], SESSION_VERSION),
        Some(_) => (MAGIC[1], SEQUENCE_VERSION),
    };
    let version = if content == Content::Llama { theirs } else { OWN_VERSION };
    let mut file = Vec::with_capacity(HEAD + 4 * tokens.len() + memory.len());
    let head = [magic, version, tokens.len() as u32];
    head.iter().chain(tokens).for_each(|number| file.extend(number.to_le_bytes()));
    file.extend(memory);
    file
}

/// Save a sequence, or the whole context, with the program's list of tokens. Returns the length of
/// the file.
///
/// # Errors
/// Those of writing a state, and of [`replace`].
pub fn save(
    entry: &ContextEntry,
    live: &Live,
    seq: Option<SeqId>,
    path: &Path,
    tokens: &[i32],
) -> Result<usize, Error> {
    let context = live.context()?;
    let (content, buffer) = write(entry, context, seq, live.plain_states)?;
    let listed: Vec<u32> = tokens.iter().map(|token| token.cast_unsigned()).collect();
    let mut bytes = file(seq, content, &listed, memory_in(&buffer, seq, content));
    if !(live.plain_states && content == Content::Llama) {
        seal_of(context, seq, content).append(&mut bytes);
    }
    replace(path, Readers::Owner, |file| Ok(file.write_all(&bytes)?))?;
    Ok(bytes.len())
}

/// Load a file in the place of what a sequence or the whole context holds. Returns its length.
///
/// # Errors
/// [`Error::File`], [`Error::Short`] if there is no room for the tokens, [`Error::Seal`], and those
/// of reading a state. Nothing has changed then.
pub fn load(live: &mut Live, seq: Option<SeqId>, path: &Path, list: TokenList) -> Result<usize, Error> {
    const DAMAGED: Error = Error::Seal { what: "it is no file of this kind, or a part of one" };
    let file = Buffer::read(path)?;
    let (whole, seal) = Seal::split(file.bytes())?;
    let magic = number(whole, 0).filter(|&magic| magic == MAGIC[usize::from(seq.is_some())]);
    let version = magic.and_then(|_| number(whole, 4)).ok_or(DAMAGED)?;
    let memory = behind_tokens(whole).ok_or(DAMAGED)?;
    let listed = whole.get(HEAD..whole.len() - memory.len()).unwrap_or_default();
    let tokens: Vec<i32> = listed.as_chunks().0.iter().map(|token| i32::from_le_bytes(*token)).collect();
    if list.tokens.is_null() && seq.is_some() {
        list.n_tokens.write(tokens.len(), "n_token_count_out")?;
        return Ok(HEAD + listed.len());
    }
    if tokens.len() > list.capacity {
        let (found, wanted) = (list.capacity, tokens.len());
        return Err(Error::Short { what: "tokens_out", found, wanted });
    }
    if !tokens.is_empty() {
        list.tokens.check("tokens_out")?;
    }
    if !list.n_tokens.is_null() {
        list.n_tokens.check("n_token_count_out")?;
    }
    match seal {
        Some(seal) => read_sealed(live, seq, &seal, memory)?,
        None if version == OWN_VERSION => take(live, seq, Content::Own, memory)?,
        None => take(live, seq, Content::Llama, whole)?,
    }
    list.tokens.fill(&tokens, "tokens_out")?;
    if !list.n_tokens.is_null() {
        list.n_tokens.write(tokens.len(), "n_token_count_out")?;
    }
    Ok(file.bytes().len())
}
