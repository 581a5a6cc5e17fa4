//! Files of states: llama.cpp's header and the program's tokens before a state and its seal.

use super::seal::{Content, Seal};
use super::{BUFFER_HEAD, HEAD, behind_tokens, number, read, read_llama, seal_of, write};
use crate::border::Out;
use crate::context::{ContextEntry, Live};
use crate::error::Error;
use crate::replace::replace;
use backstitch_kv::file::Buffer;
use backstitch_models::llama_files::{BUFFER_MAGIC, SEQUENCE_VERSION, SESSION_VERSION};
use backstitch_models::{Context, SeqId};
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

/// Return magic number and version of a file with a container.
pub fn own_head(is_sequence: bool) -> Vec<u8> {
    let magic = MAGIC[usize::from(is_sequence)];
    [magic.to_le_bytes(), OWN_VERSION.to_le_bytes()].concat()
}

/// Return a file of llama.cpp: head, tokens, memory.
fn file(head: &[u8], tokens: &[u32], memory: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEAD + 4 * tokens.len() + memory.len());
    file.extend(head);
    file.extend((tokens.len() as u32).to_le_bytes());
    tokens.iter().for_each(|token| file.extend(token.to_le_bytes()));
    file.extend(memory);
    file
}

/// Return the session that a buffer of a whole context stands for.
pub fn llama_session(tokens: &[u32], memory: &[u8]) -> Vec<u8> {
    file(&[MAGIC[0].to_le_bytes(), SESSION_VERSION.to_le_bytes()].concat(), tokens, memory)
}

/// Return the sequence file that the memory in a buffer of a sequence stands for.
pub fn llama_sequence(tokens: &[u32], memory: &[u8]) -> Vec<u8> {
    file(&[MAGIC[1].to_le_bytes(), SEQUENCE_VERSION.to_le_bytes()].concat(), tokens, memory)
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
    let written = write(entry, context, seq, live.plain_states)?;
    let listed: Vec<u32> = tokens.iter().map(|token| token.cast_unsigned()).collect();
    let body = match (seq, written.content) {
        (Some(_), Content::Llama) => written.bytes.get(BUFFER_HEAD..).unwrap_or_default(),
        _ => &written.bytes,
    };
    let mut bytes = file(&written.head, &listed, body);
    if !(live.plain_states && written.content == Content::Llama) {
        seal_of(context, seq, written.content).append(&mut bytes);
    }
    replace(path, |mut file| Ok(file.write_all(&bytes)?))?;
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
    let tokens = listed.chunks_exact(4).filter_map(|b| Some(i32::from_le_bytes(b.try_into().ok()?)));
    let tokens: Vec<i32> = tokens.collect();
    if list.tokens.is_null() && seq.is_some() {
        list.n_tokens.write(tokens.len(), "n_token_count_out")?;
        return Ok(HEAD + listed.len());
    }
    if tokens.len() > list.capacity {
        let (found, wanted) = (list.capacity, tokens.len());
        return Err(Error::Short { what: "tokens_out", found, wanted });
    }
    match seal {
        None if version != OWN_VERSION => read_llama(live, seq, whole)?,
        _ => read(live, seq, &rebuilt(live.context()?, seq, (version, memory, &tokens), seal)?)?,
    }
    list.tokens.fill(&tokens, "tokens_out")?;
    if !list.n_tokens.is_null() {
        list.n_tokens.write(tokens.len(), "n_token_count_out")?;
    }
    Ok(file.bytes().len())
}

/// Return the buffer that a file with a seal, or with a container, stands for.
fn rebuilt(
    context: &Context,
    seq: Option<SeqId>,
    (version, memory, tokens): (u32, &[u8], &[i32]),
    seal: Option<Seal>,
) -> Result<Vec<u8>, Error> {
    let mut buffer = Vec::with_capacity(memory.len() + 4 * tokens.len() + 64);
    if let (Some(seq), false) = (seq, version == OWN_VERSION) {
        buffer.extend(BUFFER_MAGIC.to_le_bytes());
        buffer.extend(seq.0.to_le_bytes());
    }
    buffer.extend(memory);
    let seal = seal.unwrap_or_else(|| Seal {
        content: Content::Own,
        fingerprint: context.fingerprint().0,
        tokens: tokens.iter().map(|token| token.cast_unsigned()).collect(),
    });
    seal.append(&mut buffer);
    Ok(buffer)
}
