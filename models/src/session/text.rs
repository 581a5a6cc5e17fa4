//! The text of a generation that may be shown: no half characters, and no beginning of a stop
//! string.

use crate::vocab::TextStream;
use alloc::{string::String, vec::Vec};

/// A point in the text at which a token ends and no character is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    /// The bytes of text before it.
    at: usize,
    /// The tokens before it.
    n_tokens: usize,
}

/// The text of a generation: whole characters, with any beginning of a stop string held back until
/// it is known not to become one.
///
/// [`Session::generate`](super::Session::generate) uses it. Programs that evaluate several
/// sequences in one batch keep one for each.
///
/// # Example
/// ```
/// use backstitch_models::session::OutputText;
///
/// let (mut text, mut shown) = (OutputText::default(), String::new());
/// let stops = ["<end>".to_string()];
/// text.begin(0);
/// assert_eq!(text.push(b"one <", 1, &stops), None);
/// text.show(&stops, &mut shown);
/// assert_eq!(shown, "one ");
/// let stop = text.push(b"end> two", 2, &stops).unwrap();
/// assert_eq!((stop.index, stop.rest.as_str()), (0, "one "));
/// ```
#[derive(Debug, Default)]
pub struct OutputText {
    stream: TextStream,
    /// The text since the first boundary.
    text: String,
    /// The number of its bytes that were shown.
    n_shown: usize,
    /// The boundaries, ascending; the first is at 0.
    boundaries: Vec<Boundary>,
}

/// A stop string that was found in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopMatch {
    /// The index of the stop string.
    pub index: usize,
    /// The number of tokens whose text lies entirely before it.
    pub n_tokens: usize,
    /// The text between the last of those tokens and the stop string.
    pub rest: String,
}

/// The initial capacity in bytes of text: more than a token usually has.
pub(super) const CAPACITY: usize = 256;

impl OutputText {
    /// Start a new text behind `n_tokens` tokens. Buffers keep their capacity.
    pub fn begin(&mut self, n_tokens: usize) {
        self.stream.begin(CAPACITY);
        self.text.clear();
        self.text.reserve(CAPACITY);
        self.n_shown = 0;
        self.boundaries.clear();
        self.boundaries.reserve(CAPACITY);
        self.boundaries.push(Boundary { at: 0, n_tokens });
    }

    /// Add the text of a token, after which there are `n_tokens`. Return the first of `stops` that
    /// it completes; the text then ends before that stop string.
    pub fn push(&mut self, piece: &[u8], n_tokens: usize, stops: &[String]) -> Option<StopMatch> {
        let n_before = self.text.len();
        self.stream.push(piece, &mut self.text);
        if let Some(found) = self.find(n_before, stops) {
            return Some(found);
        }
        if self.stream.is_empty() {
            self.boundaries.push(Boundary { at: self.text.len(), n_tokens });
        }
        None
    }

    /// Look for a stop string that ends behind `n_before`, and cut the text before it.
    fn find(&mut self, n_before: usize, stops: &[String]) -> Option<StopMatch> {
        let found =
            stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty()).filter_map(|(index, stop)| {
                let from =
                    self.text.floor_char_boundary(n_before.saturating_sub(stop.len() - 1).max(self.n_shown));
                let at = from + self.text.get(from..)?.find(stop.as_str())?;
                Some((at, index))
            });
        let (at, index) = found.min()?;
        self.text.truncate(at);
        let boundary = self.boundaries.iter().rev().find(|boundary| boundary.at <= at)?;
        debug_assert!(self.text.is_char_boundary(boundary.at), "whole characters");
        let rest = self.text.get(boundary.at..).unwrap_or_default().into();
        Some(StopMatch { index, n_tokens: boundary.n_tokens, rest })
    }

    /// Append to `out` the text that cannot become part of one of `stops` any more.
    pub fn show(&mut self, stops: &[String], out: &mut String) {
        let kept = stops.iter().map(|stop| self.overlap(stop)).max().unwrap_or(0);
        let end = self.text.len() - kept;
        self.show_to(end, out);
    }

    /// Append to `out` all text left, except an incomplete character.
    pub fn show_all(&mut self, out: &mut String) {
        self.show_to(self.text.len(), out);
    }

    /// Return the length of the longest end of the unshown text that `stop` begins with.
    fn overlap(&self, stop: &str) -> usize {
        let text = self.text.as_bytes().get(self.n_shown..).unwrap_or_default();
        let is_overlap = |n: &usize| stop.as_bytes().get(..*n).is_some_and(|start| text.ends_with(start));
        (1..stop.len().min(text.len() + 1)).rev().find(is_overlap).unwrap_or(0)
    }

    fn show_to(&mut self, end: usize, out: &mut String) {
        debug_assert!(self.text.get(self.n_shown.min(end)..end).is_some(), "whole characters");
        out.push_str(self.text.get(self.n_shown..end).unwrap_or_default());
        self.n_shown = self.n_shown.max(end);
        let n_past = self.boundaries.iter().take_while(|boundary| boundary.at <= self.n_shown).count();
        self.boundaries.drain(..n_past.saturating_sub(1));
        let Some(first) = self.boundaries.first().map(|first| first.at) else { return };
        self.text.drain(..first);
        self.n_shown -= first;
        self.boundaries.iter_mut().for_each(|boundary| boundary.at -= first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use proptest::prelude::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.into()).collect()
    }

    /// Return the text shown after each piece, and the stop string found.
    fn shown(pieces: &[&[u8]], stops: &[&str]) -> (Vec<String>, Option<StopMatch>) {
        let (mut text, stops, mut all) = (OutputText::default(), strings(stops), vec![]);
        text.begin(10);
        for (i, piece) in pieces.iter().enumerate() {
            let found = text.push(piece, 11 + i, &stops);
            let mut out = String::new();
            if found.is_some() {
                text.show_all(&mut out);
                all.push(out);
                return (all, found);
            }
            text.show(&stops, &mut out);
            all.push(out);
        }
        let mut out = String::new();
        text.show_all(&mut out);
        all.push(out);
        (all, None)
    }

    #[test]
    fn a_beginning_of_a_stop_string_is_held_back() {
        let (all, found) = shown(&[b"one <", b"|e", b"nd of", b" it"], &["<|end|>"]);
        assert_eq!((all, found), (strings(&["one ", "", "<|end of", " it", ""]), None));
    }

    #[test]
    fn text_ends_before_a_stop_string() {
        let (all, found) = shown(&[b"one ", b"two <", b"|end|> three"], &["###", "<|end|>"]);
        assert_eq!(all, ["one ", "two ", ""]);
        assert_eq!(found, Some(StopMatch { index: 1, n_tokens: 11, rest: "two ".into() }));
        let (all, found) = shown(&[b"a", b"b\n", b"\nc"], &["\n\n"]);
        assert_eq!((all.concat(), found.unwrap().n_tokens), ("ab".into(), 11));
    }

    #[test]
    fn the_stop_string_that_begins_first_counts() {
        let (all, found) = shown(&[b"abcd"], &["cd", "bc"]);
        assert_eq!((all.concat(), found.unwrap().index), ("a".into(), 1));
    }

    #[test]
    fn characters_are_shown_whole() {
        let (all, _) = shown(&[b"caf\xc3", b"\xa9 \xe2", b"\x82", b"\xac", b"\xf0\x9f"], &[]);
        assert_eq!(all, ["caf", "é ", "", "€", "", ""]);
        let (all, found) = shown(&[b"\xe2\x82", b"\xacx"], &["€x"]);
        assert_eq!((all.concat(), found.unwrap().n_tokens), (String::new(), 10));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_the_text_before_the_first_stop_string(
            pieces in prop::collection::vec("[abé]{0,4}", 0..12),
            stops in prop::collection::vec("[abé]{0,4}", 0..3),
        ) {
            let bytes: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let names: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (all, found) = shown(&bytes, &names);
            // The first token that completes one, and the one of those that begins first.
            let mut so_far = String::new();
            let mut expected = None;
            for piece in &pieces {
                so_far.push_str(piece);
                expected = names.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| so_far.find(stop)).min();
                if expected.is_some() {
                    break;
                }
            }
            prop_assert_eq!(all.concat(), &so_far[..expected.unwrap_or(so_far.len())]);
            if let Some(StopMatch { n_tokens, rest, .. }) = found {
                prop_assert_eq!(pieces[..n_tokens - 10].concat() + &rest, all.concat());
            }
        }
    }
}
