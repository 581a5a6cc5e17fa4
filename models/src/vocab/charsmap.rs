//! The table by which SentencePiece models normalise characters (`precompiled_charsmap`).
//!
//! Four bytes hold the length of a double array, which is a trie of the texts to replace. Its units
//! have 32 bits: a label, the offset of the children, and a flag for a leaf among them. The value
//! of a leaf points into the replacements, texts that end with a zero byte, which fill the rest of
//! the table. This is the layout of darts-clone, <https://github.com/s-yata/darts-clone>.

use alloc::vec;
use alloc::vec::Vec;

use super::error::VocabError;
use super::reserve::try_collect;
use super::spm::SPACE;

/// The longest text that is replaced, and the longest replacement, in bytes. Real ones have a tenth
/// of it. The bound keeps any file from making normalisation slow, or its result large.
const LONGEST: usize = 256;

/// The most bytes that a byte of text may become, spaces counted as tokens write them. The bound
/// leaves room for U+FDFA, the compatibility form that grows most: it becomes 33 bytes with three
/// spaces, 13 for each of its own.
const MAX_GROWTH: usize = 16;

/// The replacements of a model; empty for models without.
#[derive(Clone, Debug, Default)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharsMap {
    /// Read the table from the bytes in a model file; no bytes make an empty table.
    ///
    /// # Errors
    /// `Charsmap` if lengths do not fit, replacements are not UTF-8, or one is out of proportion to
    /// the text that it replaces.
    pub(super) fn new(bytes: &[u8]) -> Result<Self, VocabError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let cut = || {
            let (len, rest) = bytes.split_first_chunk::<4>()?;
            rest.split_at_checked(u32::from_le_bytes(*len) as usize)
        };
        let wrong = |what| VocabError::Charsmap { what };
        let (units, replacements) = cut().ok_or(wrong("is shorter than it says"))?;
        let (units, ragged) = units.as_chunks::<4>();
        if units.is_empty() || !ragged.is_empty() {
            return Err(wrong("has no whole units"));
        }
        let texts =
            core::str::from_utf8(replacements).map_err(|_| wrong("has replacements that are not UTF-8"))?;
        if texts.split('\0').any(|text| text.len() > LONGEST) {
            return Err(wrong("has a replacement of more than 256 bytes"));
        }
        let units = try_collect(units.len(), units.iter().map(|&unit| u32::from_le_bytes(unit)))?;
        let map = Self { units, replacements: replacements.into() };
        if map.grows_beyond_bound() {
            return Err(wrong("replaces a text by one of more than 16 times its bytes"));
        }
        Ok(map)
    }

    /// Return true if a replacement exceeds [`MAX_GROWTH`].
    ///
    /// Units are visited in the order of the shortest text that leads to each, which is the text
    /// for which a replacement weighs most. So every unit is visited once, although texts may share
    /// ends.
    fn grows_beyond_bound(&self) -> bool {
        let unit = |at: u32| self.units.get(at as usize).copied().map(Unit);
        let mut visited = vec![false; self.units.len()];
        let mut level: Vec<u32> = unit(0).map(|root| root.children(0)).into_iter().collect();
        for len in 1..=LONGEST {
            let mut next = Vec::new();
            for (base, byte) in level.iter().flat_map(|base| (0..=255).map(move |byte| (base, byte))) {
                let at = base ^ byte;
                let Some(node) = unit(at).filter(|unit| unit.label() == byte) else { continue };
                if core::mem::replace(&mut visited[at as usize], true) {
                    continue;
                }
                let children = node.children(at);
                let leaf = unit(children).filter(|_| node.has_leaf());
                let replacement = leaf.and_then(|leaf| self.replacement(leaf.value()));
                if replacement.is_some_and(|text| written_len(text) > MAX_GROWTH * len) {
                    return true;
                }
                next.push(children);
            }
            level = next;
        }
        false
    }

    /// Return the longest start of `text` that is replaced: its length, never 0, and its
    /// replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let unit = |at: u32| self.units.get(at as usize).copied().map(Unit);
        let mut at = unit(0)?.children(0);
        let mut longest = None;
        for (&byte, len) in text.as_bytes().iter().take(LONGEST).zip(1..) {
            at ^= u32::from(byte);
            let Some(node) = unit(at).filter(|unit| unit.label() == u32::from(byte)) else { break };
            at = node.children(at);
            if node.has_leaf() && text.is_char_boundary(len) {
                let replacement = unit(at).and_then(|leaf| self.replacement(leaf.value()));
                longest = replacement.map(|text| (len, text)).or(longest);
            }
        }
        longest
    }

    fn replacement(&self, start: u32) -> Option<&str> {
        let rest = self.replacements.get(start as usize..)?;
        let text = rest.split(|&byte| byte == 0).next()?;
        core::str::from_utf8(text).ok()
    }
}

/// Return the bytes of a text when its spaces are written as tokens write them.
fn written_len(text: &str) -> usize {
    text.bytes().map(|byte| if byte == b' ' { SPACE.len() } else { 1 }).sum()
}

/// A unit of the double array.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// Return the byte that leads here; above 255 for a leaf.
    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xff)
    }

    /// Return true if a text ends here.
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Return the base from which the children of this unit, which is at `at`, are counted.
    fn children(self, at: u32) -> u32 {
        at ^ (self.0 >> 10) << ((self.0 & 1 << 9) >> 6)
    }

    /// Return the value of a leaf.
    fn value(self) -> u32 {
        self.0 & !(1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// Return a table for one replaced text of ASCII letters. Its units form a chain, 256 apart.
    fn table(from: &[(&str, u32)], replacements: &str) -> Vec<u8> {
        let mut units = vec![0u32; 256 * 16];
        // The children of node n are counted from 256 (n + 1).
        let offset = |at: u32, base: u32| (at ^ base) << 10;
        let mut nodes: Vec<&str> = vec![""];
        units[0] = offset(0, 256);
        for (text, value) in from {
            let mut at = 0u32;
            for len in 1..=text.len() {
                let parent = nodes.iter().position(|node| *node == &text[..len - 1]).unwrap() as u32;
                let byte = u32::from(text.as_bytes()[len - 1]);
                at = (256 * (parent + 1)) ^ byte;
                if !nodes.contains(&&text[..len]) {
                    nodes.push(&text[..len]);
                    units[at as usize] = byte | offset(at, 256 * nodes.len() as u32);
                }
            }
            units[at as usize] |= 1 << 8;
            let node = nodes.iter().position(|node| node == text).unwrap() as u32;
            units[256 * (node as usize + 1)] = 1 << 31 | value;
        }
        let mut bytes = (4 * units.len() as u32).to_le_bytes().to_vec();
        units.iter().for_each(|unit| bytes.extend(unit.to_le_bytes()));
        bytes.extend(replacements.as_bytes());
        bytes
    }

    #[test]
    fn the_longest_start_is_replaced() -> Result<(), VocabError> {
        let map = CharsMap::new(&table(&[("a", 0), ("abc", 2), ("d", 6)], "x\0yyy\0e\0"))?;
        assert_eq!(map.longest("ab"), Some((1, "x")));
        assert_eq!(map.longest("abcd"), Some((3, "yyy")));
        assert_eq!(map.longest("da"), Some((1, "e")));
        assert_eq!(map.longest("ba"), None);
        assert_eq!(map.longest(""), None);
        assert_eq!(CharsMap::new(&[])?.longest("a"), None);
        Ok(())
    }

    #[test]
    fn damaged_tables_are_refused() {
        let good = table(&[("a", 0)], "x\0");
        let long = alloc::format!("{}\0", "x".repeat(257));
        let mut not_text = good.clone();
        not_text.push(0xff);
        let cases = [vec![1], vec![9, 0, 0, 0, 1], vec![0; 4], vec![3, 0, 0, 0, 1, 2, 3], not_text];
        for bytes in cases.into_iter().chain([table(&[], &long)]) {
            let refused = CharsMap::new(&bytes).map(|_| ());
            assert!(matches!(refused, Err(VocabError::Charsmap { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_replacement_out_of_proportion_is_refused_and_the_longest_of_unicode_is_not() {
        let map =
            |from: &str, to: &str| CharsMap::new(&table(&[(from, 0)], &alloc::format!("{to}\0"))).map(drop);
        assert!(map("a", &"x".repeat(16)).is_ok());
        assert!(map("ab", &"x".repeat(32)).is_ok());
        for to in ["x".repeat(17), " ".repeat(6)] {
            assert!(matches!(map("a", &to), Err(VocabError::Charsmap { .. })), "{to:?}");
        }
        // The text that U+FDFA becomes, for as many bytes as it has.
        assert!(map("abc", "صلى الله عليه وسلم").is_ok());
    }

    proptest! {
        #[test]
        fn any_units_can_be_walked(units in prop::collection::vec(any::<u32>(), 1..600), text in ".*") {
            let mut bytes = (4 * units.len() as u32).to_le_bytes().to_vec();
            units.iter().for_each(|unit| bytes.extend(unit.to_le_bytes()));
            bytes.extend(b"a\0bc\0");
            let Ok(found) = CharsMap::new(&bytes) else { return Ok(()) };
            let found = found.longest(&text);
            prop_assert!(found.is_none_or(|(len, _)| len > 0 && text.is_char_boundary(len)));
        }
    }
}
