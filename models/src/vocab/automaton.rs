//! An automaton that finds, at every position of a text, the tokens that end there, in one walk.
//!
//! This is the automaton of Aho and Corasick, "Efficient string matching", 1975: a trie of all
//! tokens in which every node also links to the longest proper suffix of its text that is a node
//! too. For any tokens and any text, a walk takes a number of steps linear in the text, and
//! building takes time linear in the texts of the tokens. Tokens can be entered back to front;
//! walking a text backwards then finds the tokens that *start* at each position.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::iter::repeat;
use core::ops::Range;

use super::error::VocabError;
use super::reserve::{try_collect, try_reserve, try_with_capacity};
use super::strings::Strings;

/// The direction in which tokens are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Backwards,
}

/// The absence of a token.
const NONE: u32 = u32::MAX;

/// A state of the walk: a node of the trie. Zero is the root, where walks begin.
pub(super) type Node = u32;

/// The automaton. Nodes are numbered level by level, so the children of a node are neighbours.
#[derive(Clone, Debug)]
pub(super) struct Automaton {
    /// The first child of each node; its children end where those of the next node begin.
    children: Vec<u32>,
    /// The byte that leads to each node; ascending among the children of a node.
    bytes: Vec<u8>,
    /// The token with the text of each node, or [`NONE`].
    tokens: Vec<u32>,
    /// The longest proper suffix of each node.
    suffix: Vec<Node>,
    /// The longest proper suffix of each node that is a token; the root if there is none.
    shorter: Vec<Node>,
}

impl Automaton {
    /// Build the automaton of the tokens `ids`. Of tokens with the same text it finds the first.
    ///
    /// # Errors
    /// `TooLarge` beyond 2^32 nodes, `OutOfMemory`.
    pub(super) fn new(
        ids: impl Iterator<Item = u32>,
        texts: &Strings,
        direction: Direction,
    ) -> Result<Self, VocabError> {
        let mut sorted: Vec<u32> = try_with_capacity(texts.len())?;
        sorted.extend(ids.filter(|&id| !texts.at(id).is_empty()).take(texts.len()));
        sorted.sort_unstable_by(|&a, &b| compare(texts.at(a), texts.at(b), direction).then(a.cmp(&b)));
        let mut automaton = Self::trie(&sorted, texts, direction)?;
        automaton.link()?;
        Ok(automaton)
    }

    /// Build the trie of sorted tokens, breadth first. A node stands for a range of tokens with a
    /// common beginning.
    fn trie(sorted: &[u32], texts: &Strings, direction: Direction) -> Result<Self, VocabError> {
        // There are no more nodes than bytes of tokens, and the root. Reserving them all at once
        // avoids holding a list twice while it grows.
        let most = sorted.iter().map(|&id| texts.at(id).len()).sum::<usize>() + 1;
        let mut trie = Self {
            children: try_with_capacity(most + 1)?,
            bytes: try_with_capacity(most)?,
            tokens: try_with_capacity(most)?,
            suffix: Vec::new(),
            shorter: Vec::new(),
        };
        trie.bytes.push(0);
        let root = 0..sorted.len();
        let (mut level, mut depth) = (Vec::from([root]), 0);
        while !level.is_empty() {
            let mut next: Vec<Range<usize>> = Vec::new();
            for range in level {
                trie.children.push(trie.number()?);
                let of = |i: &usize| at(texts.at(sorted[*i]), depth, direction);
                let ended = range.clone().take_while(|i| of(i).is_none()).count();
                trie.tokens.push(if ended > 0 { sorted[range.start] } else { NONE });
                let mut start = range.start + ended;
                while let Some(byte) = Some(start).filter(|&start| start < range.end).and_then(|i| of(&i)) {
                    let n = (start..range.end).take_while(|i| of(i) == Some(byte)).count();
                    trie.bytes.push(byte);
                    try_reserve(&mut next, 1)?;
                    next.push(start..start + n);
                    start += n;
                }
            }
            (level, depth) = (next, depth + 1);
        }
        trie.children.push(trie.number()?);
        trie.children.shrink_to_fit();
        trie.bytes.shrink_to_fit();
        trie.tokens.shrink_to_fit();
        Ok(trie)
    }

    /// Return the number of the next node.
    fn number(&self) -> Result<u32, VocabError> {
        u32::try_from(self.bytes.len())
            .ok()
            .filter(|&n| n < NONE)
            .ok_or(VocabError::TooLarge { what: "the texts of tokens" })
    }

    /// Find the suffixes, level by level: that of a child extends one of its parent's.
    fn link(&mut self) -> Result<(), VocabError> {
        let n = self.bytes.len();
        (self.suffix, self.shorter) = (try_collect(n, repeat(0))?, try_collect(n, repeat(0))?);
        for parent in 0..n as Node {
            for child in self.children_of(parent) {
                let byte = self.bytes[child];
                let suffix = if parent == 0 { 0 } else { self.step(self.suffix[parent as usize], byte) };
                self.suffix[child] = suffix;
                let is_token = self.tokens[suffix as usize] != NONE;
                self.shorter[child] = if is_token { suffix } else { self.shorter[suffix as usize] };
            }
        }
        Ok(())
    }

    fn children_of(&self, node: Node) -> Range<usize> {
        let bound = |i: usize| self.children.get(i).map_or(0, |&child| child as usize);
        bound(node as usize)..bound(node as usize + 1)
    }

    fn child(&self, node: Node, byte: u8) -> Option<Node> {
        let range = self.children_of(node);
        let bytes = self.bytes.get(range.clone())?;
        bytes.binary_search(&byte).ok().map(|i| (range.start + i) as Node)
    }

    /// Return the state after reading `byte`: the longest suffix of the text read that a token
    /// starts with.
    pub(super) fn step(&self, mut node: Node, byte: u8) -> Node {
        debug_assert!((node as usize) < self.suffix.len(), "a node of this automaton");
        loop {
            match self.child(node, byte) {
                Some(child) => return child,
                None if node == 0 => return 0,
                None => node = self.suffix.get(node as usize).copied().unwrap_or(0),
            }
        }
    }

    /// Return the tokens that the text read ends with, the longest first.
    pub(super) fn ending(&self, node: Node) -> impl Iterator<Item = u32> + '_ {
        let token = |node: Node| self.tokens.get(node as usize).copied().filter(|&token| token != NONE);
        let shorter = |node: &Node| self.shorter.get(*node as usize).copied().filter(|&node| node != 0);
        core::iter::successors(Some(node), shorter).filter_map(token)
    }
}

/// Return byte `i` of `text`, read in that direction.
fn at(text: &[u8], i: usize, direction: Direction) -> Option<u8> {
    match direction {
        Direction::Forwards => text.get(i).copied(),
        Direction::Backwards => text.len().checked_sub(i + 1).and_then(|i| text.get(i)).copied(),
    }
}

fn compare(a: &[u8], b: &[u8], direction: Direction) -> Ordering {
    match direction {
        Direction::Forwards => a.cmp(b),
        Direction::Backwards => a.iter().rev().cmp(b.iter().rev()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(texts: &[&[u8]]) -> Strings {
        let mut strings = Strings::with_capacity(0, 0).unwrap();
        texts.iter().for_each(|text| drop(strings.push(text)));
        strings
    }

    proptest! {
        #[test]
        fn every_token_is_found_where_it_is_and_nowhere_else(
            tokens in prop::collection::vec("[ab]{0,5}", 0..12),
            text in "[abc]{0,40}",
        ) {
            let tokens: Vec<&[u8]> = tokens.iter().map(|token| token.as_bytes()).collect();
            let (texts, text) = (strings(&tokens), text.as_bytes());
            for direction in [Direction::Forwards, Direction::Backwards] {
                let automaton = Automaton::new(0..texts.len() as u32, &texts, direction)?;
                let mut node = 0;
                for read in 1..=text.len() {
                    let (byte, seen): (u8, &[u8]) = match direction {
                        Direction::Forwards => (text[read - 1], &text[..read]),
                        Direction::Backwards => (text[text.len() - read], &text[text.len() - read..]),
                    };
                    node = automaton.step(node, byte);
                    let found: Vec<u32> = automaton.ending(node).collect();
                    let here = |token: &[u8]| match direction {
                        Direction::Forwards => seen.ends_with(token),
                        Direction::Backwards => seen.starts_with(token),
                    };
                    let mut wanted: Vec<u32> = (0..texts.len() as u32)
                        .filter(|&id| !texts.at(id).is_empty() && here(texts.at(id)))
                        .filter(|&id| texts.find(texts.at(id)) == Some(id))
                        .collect();
                    wanted.sort_by_key(|&id| core::cmp::Reverse(texts.at(id).len()));
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }

    #[test]
    fn tokens_that_nest_and_a_text_that_always_almost_matches_take_linear_time() -> Result<(), VocabError> {
        let long = [b'a'; 50_000];
        let mut odd = long.to_vec();
        odd.push(b'b');
        let texts = strings(&[b"a", &odd]);
        let automaton = Automaton::new(0..2, &texts, Direction::Forwards)?;
        let mut node = 0;
        for _ in 0..20 {
            for &byte in &long {
                node = automaton.step(node, byte);
            }
            assert!(automaton.ending(node).eq([0]));
        }
        Ok(())
    }
}
