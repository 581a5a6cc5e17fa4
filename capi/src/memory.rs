//! The memory of a context: what its sequences hold.
//!
//! All functions have llama.h's meaning on every kind of model. The tail of a sequence can always
//! be removed, also of recurrent and windowed ones: what their caches do not hold any more is
//! replayed or re-evaluated.

use crate::border::{Flag, exports};
use crate::context::{ContextEntry, Live, context, of_memory};
use crate::error::Error;
use crate::handles::{Handle, Kind, sibling};
use backstitch_models::{Context, Error as ModelError, Pos, SeqId};
use std::ops::Range;

/// Return the positions from `p0` to before `p1`; negative ones stand for the beginning and the
/// end.
fn positions(p0: i32, p1: i32) -> Range<Pos> {
    Pos(p0.max(0))..if p1 < 0 { Pos::MAX } else { Pos(p1) }
}

/// Return the sequence of a number, or all for a negative one.
fn sequences(entry: &ContextEntry, seq: i32) -> Result<Range<u32>, Error> {
    match seq {
        ..0 => Ok(0..entry.options.n_seq_max),
        _ => entry.seq(seq).map(|seq| seq.0..seq.0 + 1),
    }
}

/// Remove positions from one sequence. A range that begins behind its end removes nothing.
fn remove(context: &mut Context, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
    match context.seq_rm(seq, range) {
        // A sequence that does not begin at 0 has nothing before its first position.
        Err(ModelError::FuturePosition { .. }) => {
            context.seq_rm(seq, Pos::ZERO..Pos::MAX)?;
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Empty the context, as one that was just made.
fn clear(live: &mut Live) -> Result<(), Error> {
    live.change()?.clear();
    live.make_sequences();
    Ok(())
}

/// Change the sequence `seq`, or all if it is negative, by `change`.
fn each(
    handle: Handle,
    seq: i32,
    mut change: impl FnMut(&mut Context, SeqId) -> Result<(), Error>,
) -> Result<(), Error> {
    let entry = of_memory(handle)?;
    let seqs = sequences(&entry, seq)?;
    let mut live = entry.live()?;
    let context = live.change()?;
    seqs.map(SeqId).try_for_each(|seq| change(context, seq))
}

exports! {
    /// Remove all tokens of all sequences.
    fn llama_memory_clear(handle: Handle, data: Flag) {
        // The content of freed cells is never read, so there is nothing more to clear.
        let _ = data;
        clear(&mut *of_memory(handle)?.live()?)
    }

    /// Remove the tokens from position `p0` to before `p1` of a sequence, or of all if `seq_id` is
    /// negative. Recurrent layers keep what is removed from the middle. False if the end of a
    /// sequence would have to be re-evaluated and cannot be; that sequence, and those behind it if
    /// all were meant, are as they were then.
    fn llama_memory_seq_rm(handle: Handle, seq_id: i32, p0: i32, p1: i32) -> bool = [false] {
        let range = positions(p0, p1);
        each(handle, seq_id, |context, seq| match range.is_empty() || range.start >= context.pos(seq)? {
            true => Ok(()),
            false => remove(context, seq, range.clone()),
        })?;
        Ok(true)
    }

    /// Share the tokens from position `p0` to before `p1` of one sequence with another, whose own
    /// tokens are removed before, all of them, also if the copy is refused.
    fn llama_memory_seq_cp(handle: Handle, src: i32, dst: i32, p0: i32, p1: i32) {
        let entry = of_memory(handle)?;
        let (src, dst, range) = (entry.seq(src)?, entry.seq(dst)?, positions(p0, p1));
        let mut live = entry.live()?;
        let context = live.change()?;
        if src == dst || range.is_empty() {
            return Ok(());
        }
        remove(context, dst, Pos::ZERO..Pos::MAX)?;
        Ok(context.seq_cp(src, dst, range)?)
    }

    /// Remove the tokens of all sequences but one.
    fn llama_memory_seq_keep(handle: Handle, seq_id: i32) {
        let entry = of_memory(handle)?;
        let (seq, mut live) = (entry.seq(seq_id)?, entry.live()?);
        live.change()?.seq_keep(seq)?;
        live.make_sequences();
        Ok(())
    }

    /// Move the tokens from position `p0` to before `p1` by `delta` positions.
    fn llama_memory_seq_add(handle: Handle, seq_id: i32, p0: i32, p1: i32, delta: i32) {
        each(handle, seq_id, |context, seq| Ok(context.seq_add(seq, positions(p0, p1), delta)?))
    }

    /// Divide the positions from `p0` to before `p1`.
    fn llama_memory_seq_div(handle: Handle, seq_id: i32, p0: i32, p1: i32, d: i32) {
        if d == 0 {
            return Err(Error::Range { what: "d", found: 0, wanted: "a divisor" });
        }
        each(handle, seq_id, |context, seq| Ok(context.seq_div(seq, positions(p0, p1), d)?))
    }

    /// Return the first position of a sequence; -1 if it is empty.
    fn llama_memory_seq_pos_min(handle: Handle, seq_id: i32) -> i32 = [-1] {
        let entry = of_memory(handle)?;
        let (seq, live) = (entry.seq(seq_id)?, entry.live()?);
        Ok(live.context()?.seq_range(seq).map_or(-1, |(first, _)| first.0))
    }

    /// Return the last position of a sequence; -1 if it is empty.
    fn llama_memory_seq_pos_max(handle: Handle, seq_id: i32) -> i32 = [-1] {
        let entry = of_memory(handle)?;
        let (seq, live) = (entry.seq(seq_id)?, entry.live()?);
        Ok(live.context()?.seq_range(seq).map_or(-1, |(_, last)| last.0))
    }

    /// Return true: positions can be moved, at once, wherever a model has positions.
    fn llama_memory_can_shift(handle: Handle) -> bool = [false] {
        of_memory(handle).map(|_| true)
    }

    /// Return the context's memory, which had this name once.
    fn llama_get_kv_self(handle: Handle) -> Handle = [Handle::NULL] {
        context(handle)?;
        Ok(sibling(handle, Kind::Memory))
    }

    /// Return the number of tokens of all sequences, each counted where it is shared.
    fn llama_kv_self_n_tokens(handle: Handle) -> i32 = [0] {
        let entry = context(handle)?;
        let live = entry.live()?;
        let context = live.context()?;
        let lengths = (0..entry.options.n_seq_max).filter_map(|seq| context.seq_range(SeqId(seq)));
        Ok(lengths.map(|(first, last)| last.0 - first.0 + 1).sum())
    }

    /// Return the number of cells in use, by the count of [`llama_kv_self_n_tokens`].
    fn llama_kv_self_used_cells(handle: Handle) -> i32 = [0] {
        Ok(llama_kv_self_n_tokens(handle))
    }

    /// Remove all tokens of all sequences.
    fn llama_kv_self_clear(handle: Handle) {
        clear(&mut *context(handle)?.live()?)
    }

    /// Remove tokens, as [`llama_memory_seq_rm`].
    fn llama_kv_self_seq_rm(handle: Handle, seq_id: i32, p0: i32, p1: i32) -> bool = [false] {
        Ok(llama_memory_seq_rm(handle, seq_id, p0, p1))
    }

    /// Share tokens, as [`llama_memory_seq_cp`].
    fn llama_kv_self_seq_cp(handle: Handle, src: i32, dst: i32, p0: i32, p1: i32) {
        llama_memory_seq_cp(handle, src, dst, p0, p1);
        Ok(())
    }

    /// Remove other sequences, as [`llama_memory_seq_keep`].
    fn llama_kv_self_seq_keep(handle: Handle, seq_id: i32) {
        llama_memory_seq_keep(handle, seq_id);
        Ok(())
    }

    /// Move tokens, as [`llama_memory_seq_add`].
    fn llama_kv_self_seq_add(handle: Handle, seq_id: i32, p0: i32, p1: i32, delta: i32) {
        llama_memory_seq_add(handle, seq_id, p0, p1, delta);
        Ok(())
    }

    /// Divide positions, as [`llama_memory_seq_div`].
    fn llama_kv_self_seq_div(handle: Handle, seq_id: i32, p0: i32, p1: i32, d: i32) {
        llama_memory_seq_div(handle, seq_id, p0, p1, d);
        Ok(())
    }

    /// Return the first position, as [`llama_memory_seq_pos_min`].
    fn llama_kv_self_seq_pos_min(handle: Handle, seq_id: i32) -> i32 = [-1] {
        Ok(llama_memory_seq_pos_min(handle, seq_id))
    }

    /// Return the last position, as [`llama_memory_seq_pos_max`].
    fn llama_kv_self_seq_pos_max(handle: Handle, seq_id: i32) -> i32 = [-1] {
        Ok(llama_memory_seq_pos_max(handle, seq_id))
    }

    /// Return true, as [`llama_memory_can_shift`].
    fn llama_kv_self_can_shift(handle: Handle) -> bool = [false] {
        Ok(llama_memory_can_shift(handle))
    }

    /// Do nothing: blocks of cells need no defragmentation.
    fn llama_kv_self_defrag(handle: Handle) {
        context(handle).map(drop)
    }

    /// Do nothing: changes apply at once.
    fn llama_kv_self_update(handle: Handle) {
        context(handle).map(drop)
    }
}
