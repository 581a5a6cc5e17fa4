//! Partition of a text at the special tokens that are written out in it.
//!
//! The longest special token wins wherever it occurs, then the first one. The text left between
//! them is plain. This is the result of llama.cpp's loop over all special tokens, without its cost:
//! the text is walked once, with an index of the special tokens sorted by text.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use backstitch_kv::Token;

use super::error::VocabError;
use super::reserve::try_with_capacity;
use super::special::{Attr, Specials};
use super::strings::Strings;

/// The longest text of a special token that is looked for. The walk takes up to this many steps
/// from each byte.
const LONGEST: usize = 256;

/// An index of special tokens.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    /// The tokens looked for, sorted by text.
    sorted: Vec<u32>,
    /// The range in `sorted` of the texts that start with each byte.
    starts: Vec<Range<u32>>,
}

/// A fragment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment<'t> {
    /// Plain text, not empty.
    Text(&'t str),
    /// A special token.
    Token(Token),
}

/// A special token found in a text: its length, its offset and its id. The order is that of
/// acceptance, the first one greatest.
type Found = (usize, Reverse<usize>, u32);

impl Partition {
    /// Build an index of the tokens of the kinds that are `wanted`.
    pub(super) fn new(
        specials: &Specials,
        wanted: impl Fn(Attr) -> bool,
        texts: &Strings,
    ) -> Result<Self, VocabError> {
        let ids = (0..).zip(&specials.attrs).filter(|(_, attr)| wanted(**attr)).map(|(id, _)| id);
        let usable = |id: &u32| {
            let text = texts.at(*id);
            (1..=LONGEST).contains(&text.len()) && texts.find(text) == Some(*id)
        };
        let mut sorted: Vec<u32> = try_with_capacity(specials.attrs.len())?;
        sorted.extend(ids.filter(usable));
        sorted.shrink_to_fit();
        sorted.sort_unstable_by_key(|&id| texts.at(id));
        let before = |byte: usize| {
            sorted.partition_point(|&id| texts.at(id).first().is_some_and(|&first| usize::from(first) < byte))
                as u32
        };
        let starts = (0..256).map(|byte| before(byte)..before(byte + 1)).collect();
        Ok(Self { sorted, starts })
    }

    /// Return the fragments of `text`, in order. Tokens that may steer the model are looked for in
    /// the ranges `trusted` alone, which ascend and do not overlap.
    pub(super) fn fragments<'t>(
        &self,
        text: &'t str,
        trusted: &[Range<usize>],
        specials: &Specials,
        texts: &Strings,
    ) -> Vec<Fragment<'t>> {
        let mut fragments = Vec::new();
        let mut at = 0;
        let mut trim_start = false;
        for (offset, id) in self.accepted(text, trusted, specials, texts) {
            let attr = specials.attr(id);
            let plain = trim(text, at..offset, trim_start, attr.any(Attr::LSTRIP));
            fragments.extend((!plain.is_empty()).then_some(Fragment::Text(plain)));
            fragments.push(Fragment::Token(Token(id)));
            at = offset + texts.at(id).len();
            trim_start = attr.any(Attr::RSTRIP);
        }
        let plain = trim(text, at..text.len(), trim_start, false);
        fragments.extend((!plain.is_empty()).then_some(Fragment::Text(plain)));
        fragments
    }

    /// Return the special tokens that `text` is cut at, with their offsets, in order.
    fn accepted(
        &self,
        text: &str,
        trusted: &[Range<usize>],
        specials: &Specials,
        texts: &Strings,
    ) -> Vec<(usize, u32)> {
        let bytes = text.as_bytes();
        let longest = |range: Range<usize>| {
            let trusted = trusted_from(trusted, range.start);
            self.longest(bytes.get(range).unwrap_or(&[]), trusted, specials, texts)
        };
        let mut heap: BinaryHeap<Found> = BinaryHeap::new();
        for (offset, byte) in bytes.iter().enumerate() {
            let starts = self.starts.get(usize::from(*byte)).is_some_and(|range| !range.is_empty());
            if starts && let Some(id) = longest(offset..bytes.len()) {
                heap.push((texts.at(id).len(), Reverse(offset), id));
            }
        }
        let mut taken = BTreeMap::new();
        while let Some((len, Reverse(offset), id)) = heap.pop() {
            let free = free_from(&taken, offset, bytes.len());
            if len <= free {
                taken.insert(offset, (len, id));
            } else if let Some(id) = longest(offset..offset + free) {
                heap.push((texts.at(id).len(), Reverse(offset), id));
            }
        }
        taken.into_iter().map(|(offset, (_, id))| (offset, id)).collect()
    }

    /// Return the longest special token that `text` starts with. It may stand in any text, or lies
    /// within the first `trusted` bytes.
    fn longest(&self, text: &[u8], trusted: usize, specials: &Specials, texts: &Strings) -> Option<u32> {
        let first = self.starts.get(usize::from(*text.first()?))?;
        let mut range = self.sorted.get(first.start as usize..first.end as usize)?;
        let mut longest = None;
        for (depth, &byte) in text.iter().enumerate() {
            let at = |id: &u32| texts.at(*id).get(depth).copied();
            let start = range.partition_point(|id| at(id) < Some(byte));
            let end = range.partition_point(|id| at(id) <= Some(byte));
            range = range.get(start..end).unwrap_or(&[]);
            // The list is sorted, so the text that ends here comes before those that continue.
            let Some(&candidate) = range.first() else { break };
            let may_be = depth < trusted || specials.attr(candidate).is_found_anywhere();
            if texts.at(candidate).len() == depth + 1 && may_be {
                longest = Some(candidate);
            }
        }
        longest
    }
}

/// Return the number of trusted bytes from `offset` on.
fn trusted_from(trusted: &[Range<usize>], offset: usize) -> usize {
    let next = trusted.partition_point(|range| range.end <= offset);
    trusted.get(next).filter(|range| range.start <= offset).map_or(0, |range| range.end - offset)
}

/// Return the number of bytes from `offset` on that are not taken yet.
fn free_from(taken: &BTreeMap<usize, (usize, u32)>, offset: usize, end: usize) -> usize {
    let before = taken.range(..=offset).next_back();
    if before.is_some_and(|(&start, &(len, _))| start + len > offset) {
        return 0;
    }
    let next = taken.range(offset..).next().map_or(end, |(&start, _)| start);
    next - offset
}

/// Return `text[range]`, without ASCII white space at the ends asked for.
fn trim(text: &str, range: Range<usize>, start: bool, end: bool) -> &str {
    let is_space = |c: char| matches!(c, ' ' | '\t'..='\r');
    let mut plain = text.get(range).unwrap_or("");
    if start {
        plain = plain.trim_start_matches(is_space);
    }
    if end {
        plain = plain.trim_end_matches(is_space);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::source::{Roles, VocabSource};
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    fn specials(tokens: &[&str], types: &[i32]) -> (Specials, Strings) {
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        for text in tokens {
            assert!(texts.push(text.as_bytes()).is_ok());
        }
        let source = VocabSource { tokens, types: types.to_vec(), ..VocabSource::default() };
        (Specials::new(&source, Roles::default(), &texts).unwrap(), texts)
    }

    fn index(tokens: &[&str]) -> (Partition, Specials, Strings) {
        let (specials, texts) = specials(tokens, &alloc::vec![4; tokens.len()]);
        (Partition::new(&specials, Attr::is_found_anywhere, &texts).unwrap(), specials, texts)
    }

    /// Files type tokens as user-defined that steer the model; gpt-oss writes some of them out.
    #[test]
    fn tokens_that_steer_the_model_are_found_in_trusted_text_only() {
        let steering =
            [("<s>", 3), ("<|start|>", 3), ("<|start|>", 4), ("<|im_end|>", 4), ("<|fim_prefix|>", 4)];
        for ((token, ty), is_anywhere) in
            steering.map(|case| (case, false)).into_iter().chain([(("<added>", 4), true)])
        {
            let (specials, texts) = specials(&[token], &[ty]);
            let found = Fragment::Token(Token(0));
            for wanted in [Attr::is_found_anywhere, |_| true] {
                let partition = Partition::new(&specials, wanted, &texts).unwrap();
                let here = partition.fragments(token, &[], &specials, &texts);
                assert_eq!(here == [found], is_anywhere, "{token} {ty}");
            }
            let all = Partition::new(&specials, |_| true, &texts).unwrap();
            let whole = 0..token.len();
            let trusted = all.fragments(token, core::slice::from_ref(&whole), &specials, &texts);
            assert_eq!(trusted, [found], "{token} {ty}");
        }
    }

    /// Return tokens by number, plain text quoted.
    fn show(tokens: &[&str], text: &str) -> String {
        let (partition, specials, texts) = index(tokens);
        let fragments = partition.fragments(text, &[], &specials, &texts);
        let shown = fragments.iter().map(|piece| match piece {
            Fragment::Text(text) => alloc::format!("{text:?}"),
            Fragment::Token(token) => alloc::format!("{}", token.0),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_longest_special_token_wins_then_the_first() {
        let cases: &[(&[&str], &str, &str)] = &[
            (&["<s>", "<sep>"], "a<s> <sep><s", "\"a\" 0 \" \" 1 \"<s\""),
            (&["abc", "cdef"], "abcdef", "\"ab\" 1"),
            (&["aa", "aaa", "a"], "aaaaaa", "1 1"),
            (&["aa", "aaa"], "aaaaa", "1 0"),
            (&["ab", "ba"], "aba", "0 \"a\""),
            (&["abcd", "ab", "cdefgh"], "abcdefgh", "1 2"),
            (&["é", "x"], "aéx", "\"a\" 0 1"),
            (&[""], "", ""),
            (&["a"], "", ""),
        ];
        for (tokens, text, wanted) in cases {
            assert_eq!(show(tokens, text), *wanted, "{tokens:?} {text:?}");
        }
    }

    /// Partition at one special token after the other, the longest first, as the plain description
    /// says.
    fn by_the_book(tokens: &[String], text: &str) -> Vec<(usize, usize)> {
        let mut taken: Vec<(usize, usize)> = Vec::new();
        let mut lengths: Vec<usize> = tokens.iter().map(String::len).collect();
        lengths.sort_unstable();
        for len in lengths.into_iter().rev() {
            for offset in 0..text.len() {
                let free = taken.iter().all(|&(start, end)| end <= offset || offset + len <= start);
                let here = text.as_bytes().get(offset..offset + len);
                if free && here.is_some_and(|here| tokens.iter().any(|token| token.as_bytes() == here)) {
                    taken.push((offset, offset + len));
                }
            }
        }
        taken.sort_unstable();
        taken
    }

    proptest! {
        #[test]
        fn pieces_are_those_of_looking_for_one_token_after_the_other(
            tokens in proptest::collection::vec("[ab]{1,5}", 1..8),
            text in "[ab]{0,40}",
        ) {
            let borrowed: Vec<&str> = tokens.iter().map(String::as_str).collect();
            let (partition, specials, texts) = index(&borrowed);
            let found = partition.accepted(&text, &[], &specials, &texts).into_iter();
            let found: Vec<_> = found.map(|(offset, id)| (offset, offset + texts.at(id).len())).collect();
            prop_assert_eq!(found, by_the_book(&tokens, &text));
        }
    }
}
