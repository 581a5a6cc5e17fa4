//! States: what a context or a sequence holds, as bytes and files.
//!
//! The bytes are llama.cpp's, for the architectures whose layout is known, and Backstitch's own
//! container for others and for what llama.cpp's layout cannot hold. Behind them stands a *seal*
//! (`seal.rs`): a checksum, the fingerprint of the model and the tokens, so that a damaged state,
//! or one of another model, is refused, and a sequence that came back can be rolled back anywhere.
//! Before the state of a whole context stands its length (`frame.rs`), for the function that gets
//! none.
//! Files are replaced as a whole or not at all.

mod files;
mod frame;
mod seal;

use crate::border::{Flag, In, Out, Text, exports};
use crate::context::{ContextEntry, Live, context};
use crate::error::Error;
use crate::handles::Handle;
use backstitch_models::llama_files::{Form, Options};
use backstitch_models::{Context, Error as ModelError, RestoreOptions, SaveOptions, SeqId, Token};
use seal::{Content, Seal};

/// The bytes of llama.cpp's header of files: magic number, version and number of tokens.
const HEAD: usize = 12;
/// The bytes before the memory in a buffer of one sequence: magic number and sequence.
const BUFFER_HEAD: usize = 8;

/// Return the options of llama.cpp's layout for a context.
fn layout(entry: &ContextEntry, seq: Option<SeqId>, plain: bool) -> Options {
    let n_stream = if entry.options.is_unified { 1 } else { entry.options.n_seq_max };
    let sequence = seq.map_or(0, |seq| seq.0);
    // llama.cpp reads sealed states of single sequences, and plain ones.
    Options { n_stream, v_trans: entry.options.v_trans, sequence, margin: seq.is_none() && !plain }
}

/// Return the number at `at` of a header.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Return the bytes behind the header and the tokens of a file of llama.cpp.
fn behind_tokens(bytes: &[u8]) -> Option<&[u8]> {
    let n_tokens = number(bytes, HEAD - 4)? as usize;
    bytes.get(HEAD.checked_add(n_tokens.checked_mul(4)?)?..)
}

/// Return the memory in a buffer: all of it, but for the head of llama.cpp's buffers of one
/// sequence.
fn memory_in(buffer: &[u8], seq: Option<SeqId>, content: Content) -> &[u8] {
    let has_head = seq.is_some() && content == Content::Llama;
    buffer.get(if has_head { BUFFER_HEAD } else { 0 }..).unwrap_or_default()
}

/// Return true if a sequence was changed in its middle. Its cells lie in other slots after a way
/// through llama.cpp's layout, which rounds sums otherwise.
fn was_edited(context: &Context, seq: SeqId) -> bool {
    context.seq_range(seq).is_some() && context.tokens(seq).is_ok_and(<[_]>::is_empty)
}

/// Write the state of a sequence, or of all, as a buffer; as llama.cpp has it, unless that cannot
/// hold it exactly and `plain` is false.
fn write(
    entry: &ContextEntry,
    context: &Context,
    seq: Option<SeqId>,
    plain: bool,
) -> Result<(Content, Vec<u8>), Error> {
    let mut seqs = seq.map_or(0..entry.options.n_seq_max, |seq| seq.0..seq.0 + 1).map(SeqId);
    if plain || !seqs.any(|seq| was_edited(context, seq)) {
        let options = layout(entry, seq, plain);
        let theirs = match seq {
            None => context
                .llama_state_write(&options)
                .map(|file| behind_tokens(&file).unwrap_or_default().to_vec()),
            Some(seq) => context.llama_seq_state_write(seq, Form::Buffer, &options),
        };
        match theirs {
            Ok(bytes) => return Ok((Content::Llama, bytes)),
            Err(ModelError::LlamaState { .. } | ModelError::Llama(_) | ModelError::Adapter(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (mut bytes, options) = (Vec::new(), SaveOptions::default());
    match seq {
        None => context.state_write(&mut bytes, &options)?,
        Some(seq) => context.seq_state_write(seq, &mut bytes, &options)?,
    };
    Ok((Content::Own, bytes))
}

/// Return the seal for what a context holds.
fn seal_of(context: &Context, seq: Option<SeqId>, content: Content) -> Seal {
    // The tokens of a whole context are only of use if it holds one sequence.
    let live = (0..context.params().n_seq_max).map(SeqId).filter(|&seq| context.seq_range(seq).is_some());
    let live: Vec<SeqId> = live.take(2).collect();
    let of = seq.or(if let [only] = live[..] { Some(only) } else { None });
    let tokens = of.and_then(|seq| context.tokens(seq).ok()).unwrap_or_default();
    Seal {
        content,
        fingerprint: context.fingerprint().0,
        tokens: tokens.iter().map(|token| token.0).collect(),
    }
}

/// Return the state as a buffer, which is written once for its size and its bytes.
fn buffer<'a>(entry: &ContextEntry, live: &'a mut Live, seq: Option<SeqId>) -> Result<&'a [u8], Error> {
    let is_there = live.written.as_ref().is_some_and(|(of, _)| *of == seq);
    if !is_there {
        let context = live.context()?;
        let (content, mut bytes) = write(entry, context, seq, live.plain_states)?;
        if !(live.plain_states && content == Content::Llama) {
            seal_of(context, seq, content).append(&mut bytes);
            if seq.is_none() {
                frame::add(&mut bytes);
            }
        }
        live.written = Some((seq, bytes));
    }
    Ok(live.written.as_ref().map_or(&[], |(_, bytes)| bytes))
}

/// Read a state in the place of what the context or one sequence holds. `bytes` is a buffer.
fn read(live: &mut Live, seq: Option<SeqId>, bytes: &[u8]) -> Result<(), Error> {
    let bytes = if seq.is_none() { frame::strip(bytes)? } else { bytes };
    match Seal::split(bytes)? {
        (body, Some(seal)) => read_sealed(live, seq, &seal, memory_in(body, seq, seal.content)),
        (body, None) if seal::is_container(body) => take(live, seq, Content::Own, body),
        (body, None) if seq.is_some() => take(live, seq, Content::Llama, body),
        (body, None) => take_behind(live, seq, &[], body),
    }
}

/// Read the memory of a state that had a seal, as [`read`].
fn read_sealed(live: &mut Live, seq: Option<SeqId>, seal: &Seal, memory: &[u8]) -> Result<(), Error> {
    let context = live.context()?;
    seal.check(&context.fingerprint().0)?;
    match seal.content {
        Content::Own => take(live, seq, Content::Own, memory),
        // What adapters made is never saved so.
        Content::Llama if !context.default_adapters().is_empty() => {
            Err(Error::Seal { what: "no adapters made it, and the context has some" })
        }
        Content::Llama => take_behind(live, seq, &seal.tokens, memory),
    }
}

/// Read a container, or a file or buffer of llama.cpp, without a seal, as [`read`].
fn take(live: &mut Live, seq: Option<SeqId>, content: Content, bytes: &[u8]) -> Result<(), Error> {
    let (context, options) = (live.change()?, RestoreOptions::default());
    match (content, seq) {
        (Content::Own, None) => context.state_read_bytes(bytes, &options)?,
        (Content::Own, Some(seq)) => context.seq_state_read_bytes(seq, bytes, &options)?,
        (Content::Llama, None) => context.llama_state_read(bytes, &options)?,
        (Content::Llama, Some(seq)) => context.llama_seq_state_read(seq, bytes, &options)?,
    };
    settle(live, seq);
    Ok(())
}

/// Read what stands behind the tokens of a file of llama.cpp, as [`read`].
fn take_behind(live: &mut Live, seq: Option<SeqId>, tokens: &[u32], bytes: &[u8]) -> Result<(), Error> {
    let tokens = tokens.iter().map(|&token| Token(token)).collect();
    live.change()?.llama_read_behind(seq, tokens, bytes, &RestoreOptions::default())?;
    settle(live, seq);
    Ok(())
}

/// Drop the outputs of a context that was replaced as a whole, and make every sequence exist.
fn settle(live: &mut Live, seq: Option<SeqId>) {
    if seq.is_none() {
        live.outputs.clear();
    }
    live.make_sequences();
}

/// Return the sequence of a number, with the context.
fn of_seq(handle: Handle, seq: i32) -> Result<(std::sync::Arc<ContextEntry>, SeqId), Error> {
    let entry = context(handle)?;
    let seq = entry.seq(seq)?;
    Ok((entry, seq))
}

/// Write a state to C's buffer, and return its length. It is not kept any longer then.
fn get(entry: &ContextEntry, seq: Option<SeqId>, dst: Out<u8>, size: usize) -> Result<usize, Error> {
    let mut live = entry.live()?;
    let bytes = buffer(entry, &mut live, seq)?;
    if bytes.len() > size {
        return Err(Error::Short { what: "dst", found: size, wanted: bytes.len() });
    }
    dst.fill(bytes, "dst")?;
    let n_bytes = bytes.len();
    live.written = None;
    Ok(n_bytes)
}

exports! {
    /// Return the bytes that the state of the context takes; 0 if it cannot be written.
    fn llama_state_get_size(handle: Handle) -> usize = [0] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        Ok(buffer(&entry, &mut live, None)?.len())
    }

    /// Write the state of the context, and return its length; 0 if `size` is too small.
    fn llama_state_get_data(handle: Handle, dst: Out<u8>, size: usize) -> usize = [0] {
        get(&*context(handle)?, None, dst, size)
    }

    /// Write the state of the context to a buffer that is large enough.
    fn llama_copy_state_data(handle: Handle, dst: Out<u8>) -> usize = [0] {
        get(&*context(handle)?, None, dst, usize::MAX)
    }

    /// Read a state in the place of all that the context holds, and return the number of bytes; 0
    /// if it cannot be used, and nothing has changed then.
    fn llama_state_set_data(handle: Handle, src: In<u8>, size: usize) -> usize = [0] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        read(&mut live, None, src.slice(size, "src")?)?;
        Ok(size)
    }

    /// Read a state that tells its length, as all do that the functions above wrote, unless they
    /// were told to write llama.cpp's bytes alone; see `llama_state_set_data`.
    fn llama_set_state_data(handle: Handle, src: In<u8>) -> usize = [0] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        let n_bytes = frame::length(src.slice(frame::LEN, "src")?)
            .and_then(|length| length.checked_add(frame::LEN))
            .ok_or(Error::Seal { what: "it does not tell its length; llama_state_set_data is told one" })?;
        read(&mut live, None, src.slice(n_bytes, "src")?)?;
        Ok(n_bytes)
    }

    /// Return the bytes that the state of a sequence takes; 0 if it cannot be written.
    fn llama_state_seq_get_size(handle: Handle, seq_id: i32) -> usize = [0] {
        let (entry, seq) = of_seq(handle, seq_id)?;
        let mut live = entry.live()?;
        Ok(buffer(&entry, &mut live, Some(seq))?.len())
    }

    /// Write the state of a sequence, and return its length; 0 if `size` is too small.
    fn llama_state_seq_get_data(handle: Handle, dst: Out<u8>, size: usize, seq_id: i32) -> usize = [0] {
        let (entry, seq) = of_seq(handle, seq_id)?;
        get(&entry, Some(seq), dst, size)
    }

    /// Read a state in the place of what a sequence holds, and return the number of bytes; 0 if it
    /// cannot be used, and nothing has changed then.
    fn llama_state_seq_set_data(handle: Handle, src: In<u8>, size: usize, seq_id: i32) -> usize = [0] {
        let (entry, seq) = of_seq(handle, seq_id)?;
        let mut live = entry.live()?;
        read(&mut live, Some(seq), src.slice(size, "src")?)?;
        Ok(size)
    }

    /// Return a size, as `llama_state_seq_get_size`. Whatever the flags, the whole state is
    /// written: a part could not be checked.
    fn llama_state_seq_get_size_ext(handle: Handle, seq_id: i32, flags: u32) -> usize = [0] {
        let _ = flags;
        Ok(llama_state_seq_get_size(handle, seq_id))
    }

    /// Write a state, as `llama_state_seq_get_data`.
    fn llama_state_seq_get_data_ext(handle: Handle, dst: Out<u8>, size: usize, seq_id: i32, flags: u32)
        -> usize = [0]
    {
        let _ = flags;
        Ok(llama_state_seq_get_data(handle, dst, size, seq_id))
    }

    /// Read a state, as `llama_state_seq_set_data`.
    fn llama_state_seq_set_data_ext(handle: Handle, src: In<u8>, size: usize, seq_id: i32, flags: u32)
        -> usize = [0]
    {
        let _ = flags;
        Ok(llama_state_seq_set_data(handle, src, size, seq_id))
    }

    /// Save the context and a list of tokens to a file, which is replaced as a whole or not at all.
    fn llama_state_save_file(handle: Handle, path: Text, tokens: In<i32>, n_tokens: usize) -> bool = [false] {
        let entry = context(handle)?;
        let live = entry.live()?;
        files::save(&entry, &live, None, &path.path("path_session")?, tokens.slice(n_tokens, "tokens")?)?;
        Ok(true)
    }

    /// Load a file in the place of all that the context holds, and its tokens; if it cannot be
    /// used, nothing has changed.
    fn llama_state_load_file(
        handle: Handle, path: Text, tokens: Out<i32>, capacity: usize, n_tokens: Out<usize>,
    ) -> bool = [false] {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        files::load(&mut live, None, &path.path("path_session")?, files::TokenList { tokens, capacity, n_tokens })?;
        Ok(true)
    }

    /// Save a sequence and a list of tokens to a file, and return the bytes of it; 0 if that fails,
    /// and the file is as it was then, or the new one if only making it durable failed.
    fn llama_state_seq_save_file(handle: Handle, path: Text, seq_id: i32, tokens: In<i32>, n_tokens: usize)
        -> usize = [0]
    {
        let (entry, seq) = of_seq(handle, seq_id)?;
        let live = entry.live()?;
        files::save(&entry, &live, Some(seq), &path.path("filepath")?, tokens.slice(n_tokens, "tokens")?)
    }

    /// Load a file in the place of what a sequence holds, and return the bytes of it; 0 if it
    /// cannot be used, and nothing has changed then. With no list of tokens, only count them.
    fn llama_state_seq_load_file(
        handle: Handle, path: Text, seq_id: i32, tokens: Out<i32>, capacity: usize, n_tokens: Out<usize>,
    ) -> usize = [0] {
        let (entry, seq) = of_seq(handle, seq_id)?;
        let mut live = entry.live()?;
        let path = path.path("filepath")?;
        files::load(&mut live, Some(seq), &path, files::TokenList { tokens, capacity, n_tokens })
    }

    /// Write states as llama.cpp does from now on, without a seal, so that it can read whole
    /// sessions; or with one again. Its files of single sequences may have a seal.
    fn bst_plain_states(handle: Handle, plain: Flag) {
        let entry = context(handle)?;
        let mut live = entry.live()?;
        (live.plain_states, live.written) = (plain != 0, None);
        Ok(())
    }
}
