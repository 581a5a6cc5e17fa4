//! Byte-pair encoding (Sennrich et al., "Neural machine translation of rare words with subword
//! units", 2016): words start as bytes, and the most important pair of neighbours is merged until
//! no pair is left.
//!
//! Some vocabularies write characters as themselves and start with those; a character that is not
//! a token then becomes the tokens `<0x0A>` of its bytes.
//!
//! A *symbol* is a text that merging can reach: a token, or an intermediate text that some merge
//! names although it is not a token (well-formed vocabularies have none of those). Short words are
//! merged by scanning for the best pair, long ones with a heap. Both give the same result.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use backstitch_kv::Token;

use super::alphabet;
use super::error::VocabError;
use super::merges::{Merge, Merges, NO_SYMBOL};
use super::pre::{Pre, Writing};
use super::reserve::try_with_capacity;
use super::spm;
use super::strings::Strings;

/// The sign for a space in vocabularies that write characters as themselves.
const BAR: char = '▁';

/// The longest word, in symbols, that is merged by scanning.
const SHORT: usize = 32;

/// A byte-pair tokeniser.
#[derive(Clone, Debug)]
pub(super) struct Bpe {
    pub(super) pre: Pre,
    n_vocab: u32,
    /// The symbol of each byte; [`NO_SYMBOL`] if neither a token nor a merge has it. In
    /// vocabularies that start with characters, the token of each byte.
    bytes: Vec<u32>,
    merges: Merges,
}

impl Bpe {
    /// Build the tokeniser from the tokens already in `texts`, and add the texts that only merges
    /// have.
    ///
    /// # Errors
    /// `Merge` for a merge that is not two texts with a space between; those of [`Strings::push`]
    /// and [`Merges::new`].
    pub(super) fn new(pre: Pre, texts: &mut Strings, merges: &[&str]) -> Result<Self, VocabError> {
        let n_vocab = texts.len() as u32;
        let mut ranked = try_with_capacity(merges.len())?;
        let mut merged = Vec::new();
        let mut next = 0;
        for (index, merge) in merges.iter().enumerate() {
            let (left, right) = halves(merge.as_bytes()).ok_or(VocabError::Merge { index })?;
            merged.clear();
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
            // Vocabularies list tokens in the order of the merges that make them.
            let symbol = texts.intern(&merged, next)?;
            next = symbol + 1;
            ranked.push((texts.intern(left, next)?, texts.intern(right, next)?, symbol));
        }
        let bytes = (0..=255).map(|byte| byte_symbol(pre.writing, byte, texts)).collect();
        Ok(Self { pre, n_vocab, bytes, merges: Merges::new(ranked)? })
    }

    /// Append the tokens of `text`. Bytes that the vocabulary lacks are left out.
    pub(super) fn tokenize(&self, text: &str, texts: &Strings, out: &mut Vec<Token>) {
        let mut work = Work::default();
        if self.pre.writing == Writing::Bars {
            let text = spm::escape(text, false);
            self.pre.split(&text, &mut |word| match self.pre.bars_start_words && !word.starts_with('\n') {
                true => self.line(word, texts, &mut work, out),
                false => self.word(word, texts, &mut work, out),
            });
        } else {
            self.pre.split(text, &mut |word| self.word(word, texts, &mut work, out));
        }
    }

    /// Append the tokens of a line, each of whose words starts with the only bar in it.
    fn line(&self, line: &str, texts: &Strings, work: &mut Work, out: &mut Vec<Token>) {
        let mut words = line.split(BAR);
        // In front of a bar at the start of the line there is no word.
        let first = words.next().filter(|word| !word.is_empty());
        let mut word = String::new();
        for rest in first.into_iter().chain(words) {
            word.clear();
            word.push(BAR);
            word.push_str(rest);
            self.word(&word, texts, work, out);
        }
    }

    /// Append the tokens of one word.
    fn word(&self, word: &str, texts: &Strings, work: &mut Work, out: &mut Vec<Token>) {
        if self.is_taken_whole(word)
            && let Some(id) = self.whole(word.as_bytes(), texts, work)
        {
            return out.push(Token(id));
        }
        self.start(word, texts, &mut work.start);
        if work.start.len() <= SHORT {
            self.merge_short(&work.start, &mut work.short);
            for &(symbol, _) in &work.short {
                self.emit(symbol, texts, out);
            }
        } else {
            self.merge_long(work);
            for link in work.links.iter().filter(|link| link.symbol != GONE) {
                self.emit(link.symbol, texts, out);
            }
        }
    }

    /// Return true if `word` is taken without merging where it is a token.
    fn is_taken_whole(&self, word: &str) -> bool {
        self.pre.ignore_merges || self.pre.whole_line_feeds && word.starts_with('\n')
    }

    /// Return the token whose text is `word`.
    fn whole(&self, word: &[u8], texts: &Strings, work: &mut Work) -> Option<u32> {
        let found = if self.pre.writing == Writing::Alphabet {
            work.encoded.clear();
            word.iter().for_each(|&byte| alphabet::encode(byte, &mut work.encoded));
            texts.find(&work.encoded)
        } else {
            texts.find(word)
        };
        found.filter(|&id| id < self.n_vocab)
    }

    /// Put the symbols that `word` starts as into `symbols`.
    fn start(&self, word: &str, texts: &Strings, symbols: &mut Vec<u32>) {
        symbols.clear();
        if self.pre.writing == Writing::Alphabet {
            return symbols.extend(word.bytes().map(|byte| self.symbol(byte)));
        }
        let mut utf8 = [0; 4];
        for c in word.chars() {
            let text = c.encode_utf8(&mut utf8).as_bytes();
            match texts.find(text) {
                Some(symbol) => symbols.push(symbol),
                None => symbols.extend(text.iter().map(|&byte| RAW_BYTE + u32::from(byte))),
            }
        }
    }

    /// Append the token of a symbol, or those of its bytes if it is not a token.
    fn emit(&self, symbol: u32, texts: &Strings, out: &mut Vec<Token>) {
        if symbol < self.n_vocab {
            return out.push(Token(symbol));
        }
        let mut decoded = Vec::new();
        let bytes = match symbol {
            NO_SYMBOL => return,
            RAW_BYTE.. => {
                decoded.push((symbol - RAW_BYTE) as u8);
                decoded.as_slice()
            }
            _ if self.pre.writing != Writing::Alphabet => texts.at(symbol),
            _ if alphabet::decode(texts.at(symbol), &mut decoded) => decoded.as_slice(),
            _ => return,
        };
        let symbols = bytes.iter().map(|&byte| self.symbol(byte));
        out.extend(symbols.filter(|&symbol| symbol < self.n_vocab).map(Token));
    }

    fn symbol(&self, byte: u8) -> u32 {
        self.bytes.get(usize::from(byte)).copied().unwrap_or(NO_SYMBOL)
    }

    /// Merge a short word by scanning. This leaves in `symbols` the symbols that those of `start`
    /// become, each with its merge with the next one, which is `None` at the end.
    fn merge_short(&self, start: &[u32], symbols: &mut Vec<(u32, Option<Merge>)>) {
        symbols.clear();
        let following = start.iter().skip(1).copied().chain([NO_SYMBOL]);
        for (&symbol, next) in start.iter().zip(following) {
            symbols.push((symbol, self.merges.find(symbol, next)));
        }
        while let Some((i, merge)) = best(symbols) {
            symbols.remove(i + 1);
            let next = symbols.get(i + 1).map_or(NO_SYMBOL, |entry| entry.0);
            if let Some(entry) = symbols.get_mut(i) {
                *entry = (merge.symbol, self.merges.find(merge.symbol, next));
            }
            if let Some(before) = i.checked_sub(1).and_then(|i| symbols.get_mut(i)) {
                before.1 = self.merges.find(before.0, merge.symbol);
            }
        }
    }

    /// Merge the symbols of `work.start`, up to 2^32, in `O(n log n)`, with a linked list and a
    /// heap. This leaves the results in `work.links`.
    fn merge_long(&self, work: &mut Work) {
        let Work { start, links, heap, .. } = work;
        heap.clear();
        links.clear();
        links.extend(start.iter().enumerate().map(|(i, &symbol)| Link { symbol, before: i, after: i + 2 }));
        for left in 0..start.len() {
            self.propose(left, links, heap);
        }
        while let Some(Reverse(pair)) = heap.pop() {
            let (rank, index) = ((pair >> 32) as u32, pair as u32 as usize);
            let Some((left, right)) = neighbours(links, index) else { continue };
            let merge = self.merges.find(left, right).filter(|merge| merge.rank == rank);
            let Some(merge) = merge else { continue }; // one of the two has been merged with another symbol since
            join(links, index, merge.symbol);
            if let Some(before) = links.get(index).and_then(|link| link.before.checked_sub(1)) {
                self.propose(before, links, heap);
            }
            self.propose(index, links, heap);
        }
    }

    /// Put the symbol at `left` and the one after it on the heap if they merge.
    fn propose(&self, left: usize, links: &[Link], heap: &mut BinaryHeap<Reverse<u64>>) {
        if let Some((first, second)) = neighbours(links, left)
            && let Some(merge) = self.merges.find(first, second)
            && let Ok(index) = u32::try_from(left)
        {
            heap.push(Reverse(u64::from(merge.rank) << 32 | u64::from(index)));
        }
    }
}

/// Buffers that are reused from word to word.
#[derive(Default)]
struct Work {
    encoded: Vec<u8>,
    /// The symbols of a word before merging.
    start: Vec<u32>,
    short: Vec<(u32, Option<Merge>)>,
    links: Vec<Link>,
    /// The pairs that merge, as they were when pushed: the rank in the upper half, the index of the
    /// left symbol in the lower.
    heap: BinaryHeap<Reverse<u64>>,
}

/// A symbol of a long word. Its index in the list is that of the first symbol it was merged from.
#[derive(Clone, Copy)]
struct Link {
    symbol: u32,
    /// One more than the index of the symbol before it; zero at the start of the word.
    before: usize,
    /// One more than the index of the symbol after it; past the end of the list at the end of the
    /// word.
    after: usize,
}

/// The mark of a symbol that was merged into the one before it. No symbol has this number:
/// [`Strings`] holds fewer.
const GONE: u32 = u32::MAX - 1;

/// The symbol of byte 0 of a character that is neither a token nor in a merge; the other bytes
/// follow. No text has these numbers, because the bounds on tokens and merges are far below.
const RAW_BYTE: u32 = u32::MAX - 512;

/// Return the symbol at index `left` and the one after it, if `left` still has one and is not the
/// last.
fn neighbours(links: &[Link], left: usize) -> Option<(u32, u32)> {
    let link = links.get(left).filter(|link| link.symbol != GONE)?;
    let next = links.get(link.after.checked_sub(1)?)?;
    Some((link.symbol, next.symbol))
}

/// Replace the symbol at `left` and the one after it by `symbol`.
fn join(links: &mut [Link], left: usize, symbol: u32) {
    let Some(right) = links.get(left).and_then(|link| link.after.checked_sub(1)) else { return };
    let Some(gone) = links.get_mut(right) else { return };
    gone.symbol = GONE;
    let after = gone.after;
    if let Some(link) = links.get_mut(left) {
        *link = Link { symbol, after, ..*link };
    }
    if let Some(next) = after.checked_sub(1).and_then(|i| links.get_mut(i)) {
        next.before = left + 1;
    }
}

/// Return the most important merge, the first of equals, and its index.
fn best(symbols: &[(u32, Option<Merge>)]) -> Option<(usize, Merge)> {
    let merges = symbols.iter().enumerate().filter_map(|(i, entry)| entry.1.map(|merge| (i, merge)));
    merges.min_by_key(|(_, merge)| merge.rank)
}

/// Return the two texts of a merge. The first may itself start with a space, as in llama.cpp.
fn halves(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = merge.iter().skip(1).position(|&byte| byte == b' ')? + 1;
    let (left, right) = merge.split_at_checked(space)?;
    let right = right.get(1..).filter(|right| !right.is_empty())?;
    Some((left, right))
}

fn byte_symbol(writing: Writing, byte: u8, texts: &Strings) -> u32 {
    let mut encoded = Vec::new();
    match writing {
        Writing::Alphabet => alphabet::encode(byte, &mut encoded),
        Writing::Plain | Writing::Bars => encoded.extend(alloc::format!("<0x{byte:02X}>").into_bytes()),
    }
    texts.find(&encoded).unwrap_or(NO_SYMBOL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    /// Return the tokeniser of `tokens` and `merges`, cutting words as GPT-2 does.
    fn bpe(tokens: &[&str], merges: &[&str]) -> Result<(Bpe, Strings), VocabError> {
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        for text in tokens {
            texts.push(text.as_bytes())?;
        }
        let pre = Pre::named("gpt-2").ok_or(VocabError::Missing { key: "gpt-2" })?;
        let bpe = Bpe::new(pre, &mut texts, merges)?;
        Ok((bpe, texts))
    }

    /// Return the token texts of `text`, with bars between.
    fn cut(tokens: &[&str], merges: &[&str], text: &str) -> Result<String, VocabError> {
        let (bpe, texts) = bpe(tokens, merges)?;
        let mut out = Vec::new();
        bpe.tokenize(text, &texts, &mut out);
        let shown: Vec<_> =
            out.iter().map(|token| String::from_utf8_lossy(texts.at(token.0)).to_string()).collect();
        Ok(shown.join("|"))
    }

    #[test]
    fn the_most_important_pair_is_merged_first_and_the_first_of_equals() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "aa", "aaa"];
        let cases = [
            (&["a b", "b c"][..], "abc", "ab|c"),
            (&["b c", "a b"], "abc", "a|bc"),
            (&["b c", "a bc"], "abcabc", "abc|abc"),
            (&["a a"], "aaaaa", "aa|aa|a"),
            (&["a a", "aa a"], "aaaaa", "aa|aaa"),
            (&[], "abc", "a|b|c"),
        ];
        for (merges, text, wanted) in cases {
            assert_eq!(cut(&tokens, merges, text).as_deref(), Ok(wanted), "{merges:?} {text:?}");
        }
    }

    #[test]
    fn texts_that_only_merges_have_fall_back_to_bytes() {
        // `ab` is no token: merging reaches it, and goes on to `abc` or falls apart again.
        assert_eq!(cut(&["a", "b", "c", "abc"], &["a b", "ab c"], "abcab").as_deref(), Ok("abc|a|b"));
        // Neither `b` nor what it merges to is one: it is left out.
        assert_eq!(cut(&["a"], &["a b"], "xaba").as_deref(), Ok("a|a"));
    }

    #[test]
    fn merges_that_are_not_two_texts_are_refused() {
        for merge in ["", "a", " ", "a ", " b", "  "] {
            assert_eq!(
                cut(&["a"], &["a b", merge], "").err(),
                Some(VocabError::Merge { index: 1 }),
                "{merge:?}"
            );
        }
    }

    #[test]
    fn spaces_and_other_bytes_are_written_in_the_alphabet() {
        assert_eq!(cut(&["Ġ", "h", "i", "Ġh", "Ġhi"], &["Ġ h", "Ġh i"], " hi h").as_deref(), Ok("Ġhi|Ġh"));
        assert_eq!(cut(&["Ã", "©", "Ã©"], &["Ã ©"], "éé").as_deref(), Ok("Ã©|Ã©"));
    }

    #[test]
    fn bars_start_words_in_the_vocabulary_of_mmbert() {
        let tokens = ["▁", "a", "b", "▁a", "a▁", "▁b", "\n", "\n\n", "<0x78>"];
        let merges = ["a ▁", "▁ a", "▁ b"];
        let cut = |pre, text| {
            let mut texts = Strings::with_capacity(0, 0).unwrap();
            tokens.iter().for_each(|text| texts.push(text.as_bytes()).map(drop).unwrap());
            let bpe = Bpe::new(Pre::named(pre).unwrap(), &mut texts, &merges).unwrap();
            let mut out = Vec::new();
            bpe.tokenize(text, &texts, &mut out);
            out.iter().map(|token| tokens[token.0 as usize]).collect::<Vec<_>>().join("|")
        };
        let cases = [
            ("a b", "▁a|▁b"),
            (" a", "▁a"),
            ("  a  ", "▁|▁a|▁|▁"),
            ("a\n\nb\n a", "▁a|\n\n|▁b|\n|▁a"),
            ("xa", "▁|<0x78>|a"),
            ("", ""),
        ];
        for (text, wanted) in cases {
            assert_eq!(cut("mmbert", text), wanted, "{text:?}");
        }
        assert_eq!(cut("gemma4", "a b"), "a▁|b");
    }

    /// Quadratic merging would take minutes here.
    #[test]
    fn a_word_of_a_megabyte_is_merged_in_moments() -> Result<(), VocabError> {
        let powers: Vec<String> = (0..20).map(|i| "a".repeat(1 << i)).collect();
        let tokens: Vec<&str> = powers.iter().map(String::as_str).collect();
        let merges: Vec<String> =
            powers.iter().take(19).map(|half| alloc::format!("{half} {half}")).collect();
        let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
        let (bpe, texts) = bpe(&tokens, &merges)?;
        let mut out = Vec::new();
        bpe.tokenize(&"a".repeat((1 << 20) + 3), &texts, &mut out);
        assert_eq!(out, [19, 19, 1, 0].map(Token));
        Ok(())
    }

    proptest! {
        #[test]
        fn both_ways_of_merging_agree(word in "[abc]{0,40}", merges in proptest::collection::vec("[abc]{1,3} [abc]{1,3}", 0..12)) {
            let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
            let (bpe, texts) = bpe(&["a", "b", "c"], &merges)?;
            let mut work = Work::default();
            bpe.start(&word, &texts, &mut work.start);
            bpe.merge_short(&work.start, &mut work.short);
            bpe.merge_long(&mut work);
            let short: Vec<u32> = work.short.iter().map(|entry| entry.0).collect();
            let long: Vec<u32> = work.links.iter().map(|link| link.symbol).filter(|&symbol| symbol != GONE).collect();
            prop_assert_eq!(short, long);
        }
    }
}
