//! The places in a prompt where messages end.
//!
//! They are hints: rolling back to them stays cheap, because people edit the last message or ask
//! for another answer. A place that is missed costs time, never correctness. So the search is
//! linear: the text of each message is looked for behind that of the one before, in the parts of
//! the prompt that came from messages.

use super::message::Message;
use backstitch_models::Token;
use backstitch_models::vocab::Vocab;
use core::ops::Range;

/// The number of messages whose text may be missing in the prompt before the search ends. Each
/// costs a look at all that is left.
const MAX_MISSING: usize = 16;

/// Return the byte offsets in `text` at which messages with these [`spans`] end, ascending: for the
/// last one the end of its text, for others the place where the text of the next one begins,
/// because what the template writes between them stays when the next one is edited.
pub(super) fn offsets(spans: &[(&Message, Range<usize>)]) -> Vec<usize> {
    // The first message has none before it.
    let starts = spans.iter().skip(1).map(|(_, span)| span.start);
    starts.chain(spans.last().map(|(_, span)| span.end)).collect()
}

/// Return the messages whose texts are found in `text`, with the byte range of the last text of
/// each. `ranges` are the parts of `text` that are not the template's own.
pub(super) fn spans<'m>(
    text: &str,
    ranges: &[Range<usize>],
    messages: &'m [Message],
) -> Vec<(&'m Message, Range<usize>)> {
    let (mut spans, mut n_missing) = (Vec::new(), 0);
    let mut ranges = ranges.iter().cloned();
    for message in messages {
        let Some(last) = message.content.texts().last().map(|last| last.trim()) else { continue };
        if last.is_empty() {
            continue;
        }
        // A message whose text the template does not write must not use up the ranges of others.
        let mut ahead = ranges.clone();
        let found = ahead.by_ref().find_map(|range| {
            let at = text.get(range.clone())?.find(last)?;
            Some(range.start + at)
        });
        match found {
            Some(start) => {
                spans.push((message, start..start + last.len()));
                ranges = ahead;
            }
            None => n_missing += 1,
        }
        if n_missing > MAX_MISSING {
            break;
        }
    }
    spans
}

/// Return the byte offsets in `text` at which its tokens begin, and the end of the last one, as far
/// as the tokens are the bytes of the text: a vocabulary may add tokens at the beginning and a
/// space before words.
pub(super) fn token_offsets(text: &str, tokens: &[Token], vocab: &Vocab) -> Vec<usize> {
    let mut offsets = Vec::with_capacity(tokens.len() + 1);
    let mut rest = text.as_bytes();
    for (i, &token) in tokens.iter().enumerate() {
        offsets.push(text.len() - rest.len());
        let piece = vocab.piece(token);
        let after = rest.strip_prefix(piece).or_else(|| {
            let without_space = piece.strip_prefix(b" ").and_then(|piece| rest.strip_prefix(piece));
            let is_added = (i == 0 && Some(token) == vocab.bos()).then_some(rest);
            without_space.or(is_added)
        });
        match after {
            Some(after) => rest = after,
            None => return offsets,
        }
    }
    offsets.push(text.len() - rest.len());
    offsets
}

/// Return the numbers of tokens that end at `offsets` of `text`, or before them if a token goes
/// beyond, with the control token behind a message that ends it. Where tokens are not the bytes of
/// the text any more, the remaining offsets are left out.
pub(super) fn token_counts(text: &str, tokens: &[Token], vocab: &Vocab, offsets: &[usize]) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut offsets = offsets.iter().copied().peekable();
    for ((i, &token), at) in tokens.iter().enumerate().zip(token_offsets(text, tokens, vocab)) {
        while offsets.next_if(|&offset| offset < at).is_some() {
            counts.push(i.saturating_sub(1));
        }
        if offsets.next_if_eq(&at).is_some() {
            let ends_turn = vocab.is_eog(token) || vocab.is_hidden(token);
            counts.push(if ends_turn { i + 1 } else { i });
        }
    }
    counts.dedup();
    counts.retain(|&count| count > 0 && count < tokens.len());
    counts
}
