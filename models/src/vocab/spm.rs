//! SentencePiece's byte-pair tokeniser (Kudo and Richardson, "SentencePiece", 2018): text starts as
//! characters. Of all neighbours whose texts join to a token, the pair with the best score is
//! merged, until no such pair is left. Text that is not a token then falls back to byte tokens.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;

use backstitch_kv::Token;

use super::error::VocabError;
use super::reserve::try_collect;
use super::strings::Strings;

/// The form of a space in token texts: `▁`, U+2581.
pub(super) const SPACE: &str = "\u{2581}";

/// A SentencePiece tokeniser.
#[derive(Clone, Debug)]
pub(super) struct Spm {
    scores: Vec<f32>,
    /// The token of each byte, if there is one.
    bytes: Vec<Option<Token>>,
    unk: Option<Token>,
    /// The longest token in bytes; no longer text is looked up.
    longest: usize,
    /// True if no token has a space after another character, so that words can be merged one by
    /// one.
    by_words: bool,
}

impl Spm {
    /// Build the tokeniser for the tokens in `texts`. `scores` may be empty (all zero) or longer
    /// than there are tokens.
    ///
    /// # Errors
    /// `Score` for a score that is not a number, `OutOfMemory`.
    pub(super) fn new(texts: &Strings, scores: &[f32], unk: Option<Token>) -> Result<Self, VocabError> {
        let n_vocab = texts.len();
        if let Some(index) = scores.iter().take(n_vocab).position(|score| score.is_nan()) {
            return Err(VocabError::Score { index });
        }
        let scores = try_collect(n_vocab, scores.iter().copied().chain(core::iter::repeat(0.0)))?;
        let bytes = (0..=255).map(|byte| byte_token(byte, texts)).collect();
        let longest = (0..n_vocab as u32).map(|id| texts.at(id).len()).max().unwrap_or(0);
        let by_words = (0..n_vocab as u32).all(|id| next_word(texts.at(id), 0) == texts.at(id).len());
        Ok(Self { scores, bytes, unk, longest, by_words })
    }

    /// Append the tokens of `text`, with a space in front if `prefix`. Characters that neither a
    /// token nor byte tokens express become the unknown token.
    pub(super) fn tokenize(&self, text: &str, prefix: bool, texts: &Strings, out: &mut Vec<Token>) {
        let text = escape(text, prefix);
        let mut work = Work::default();
        let mut start = 0;
        while start < text.len() {
            let end = if self.by_words { next_word(text.as_bytes(), start) } else { text.len() };
            self.tokenize_word(text.get(start..end).unwrap_or(""), texts, &mut work, out);
            start = end;
        }
    }

    /// Append the tokens of a word, or of a whole text if it cannot be cut into words.
    fn tokenize_word(&self, word: &str, texts: &Strings, work: &mut Work, out: &mut Vec<Token>) {
        let Work { symbols, heap } = work;
        heap.clear();
        symbols.clear();
        symbols.extend((0..).zip(word.char_indices()).map(|(before, (start, c))| Symbol {
            start,
            len: c.len_utf8(),
            before,
            after: before + 2,
        }));
        for left in 0..symbols.len() {
            self.propose(left, word, symbols, texts, heap);
        }
        while let Some(pair) = heap.pop() {
            let left = pair.left();
            if pair_len(symbols, left) != Some(pair.len) {
                continue; // one of the two has been merged with another symbol since
            }
            join(symbols, left);
            if let Some(before) = symbols.get(left).and_then(|symbol| symbol.before.checked_sub(1)) {
                self.propose(before, word, symbols, texts, heap);
            }
            self.propose(left, word, symbols, texts, heap);
        }
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            self.emit(word.as_bytes().get(symbol.range()).unwrap_or(&[]), texts, out);
        }
    }

    /// Put the symbol at `left` and the one after it on the heap if their texts join to a token.
    fn propose(
        &self,
        left: usize,
        word: &str,
        symbols: &[Symbol],
        texts: &Strings,
        heap: &mut BinaryHeap<Pair>,
    ) {
        let Some(len) = pair_len(symbols, left).filter(|&len| len <= self.longest) else { return };
        let start = symbols.get(left).map_or(0, |symbol| symbol.start);
        let found = word.as_bytes().get(start..start + len).and_then(|text| texts.find(text));
        if let Some(&score) = found.and_then(|id| self.scores.get(id as usize)) {
            heap.extend(Pair::new(score, left, len));
        }
    }

    /// Append the token of a symbol, or else those of its bytes.
    fn emit(&self, symbol: &[u8], texts: &Strings, out: &mut Vec<Token>) {
        if let Some(id) = texts.find(symbol) {
            return out.push(Token(id));
        }
        let tokens = symbol.iter().map(|&byte| self.bytes.get(usize::from(byte)).copied().flatten());
        if tokens.clone().all(|token| token.is_some()) {
            out.extend(tokens.flatten());
        } else {
            out.extend(self.unk);
        }
    }
}

/// A stretch of characters that may be merged with its neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    /// The length in bytes; zero once merged into the symbol before it.
    len: usize,
    /// One more than the index of the symbol before it in the list; zero for the first.
    before: usize,
    /// One more than the index of the symbol after it; past the end of the list for the last.
    after: usize,
}

impl Symbol {
    fn range(self) -> core::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// Buffers that are reused from word to word.
#[derive(Default)]
struct Work {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Pair>,
}

/// Two neighbours that join to a token, as they were when pushed on the heap. The pair with the
/// best score is the greatest, of equal scores the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// The score in the upper half, as bits in the order of scores; the index of the left symbol,
    /// inverted, in the lower half.
    key: u64,
    /// The length of the two together, which changes when either is merged with another symbol.
    len: usize,
}

impl Pair {
    /// Make a pair; `None` beyond 2^32 characters.
    fn new(score: f32, left: usize, len: usize) -> Option<Self> {
        let bits = (score + 0.0).to_bits(); // no negative zero
        let ordered = if score < 0.0 { !bits } else { bits | 1 << 31 };
        let left = u32::try_from(left).ok()?;
        Some(Self { key: u64::from(ordered) << 32 | u64::from(!left), len })
    }

    fn left(self) -> usize {
        !(self.key as u32) as usize
    }
}

/// Return the length of the symbol at `left` and the one after it together, if `left` still is one
/// and is not the last.
fn pair_len(symbols: &[Symbol], left: usize) -> Option<usize> {
    let symbol = symbols.get(left).filter(|symbol| symbol.len > 0)?;
    let next = symbols.get(symbol.after.checked_sub(1)?)?;
    Some(symbol.len + next.len)
}

/// Merge the symbol after `left` into it.
fn join(symbols: &mut [Symbol], left: usize) {
    let Some(right) = symbols.get(left).and_then(|symbol| symbol.after.checked_sub(1)) else { return };
    let Some(gone) = symbols.get_mut(right) else { return };
    let Symbol { len, after, .. } = *gone;
    gone.len = 0;
    if let Some(symbol) = symbols.get_mut(left) {
        symbol.len += len;
        symbol.after = after;
    }
    if let Some(next) = after.checked_sub(1).and_then(|i| symbols.get_mut(i)) {
        next.before = left + 1;
    }
}

/// Return `text` with [`SPACE`] for every space, and one in front if `prefix`.
pub(super) fn escape(text: &str, prefix: bool) -> String {
    let spaces = text.bytes().filter(|&byte| byte == b' ').count() + 1;
    let mut escaped = String::with_capacity(text.len() + 2 * spaces + 1);
    if prefix {
        escaped.push_str(SPACE);
    }
    for c in text.chars() {
        escaped.push(if c == ' ' { '\u{2581}' } else { c });
    }
    escaped
}

/// Return the end of the word that starts at `start`: before the next [`SPACE`] that follows
/// another character.
fn next_word(text: &[u8], start: usize) -> usize {
    let space = SPACE.as_bytes();
    let rest = text.get(start..).unwrap_or(&[]);
    let spaces = rest.chunks(space.len()).take_while(|chunk| *chunk == space).count() * space.len();
    let word = rest.get(spaces..).unwrap_or(&[]);
    let length = word.windows(space.len()).position(|window| window == space).unwrap_or(word.len());
    start + spaces + length
}

/// Return the token of a byte: `<0x0A>` and the like, or the byte itself.
fn byte_token(byte: u8, texts: &Strings) -> Option<Token> {
    texts.find(alloc::format!("<0x{byte:02X}>").as_bytes()).or_else(|| texts.find(&[byte])).map(Token)
}

/// Append `text` with spaces for [`SPACE`].
pub(super) fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(SPACE.as_bytes()) {
            out.push(b' ');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    fn cut(tokens: &[(&str, f32)], text: &str, prefix: bool) -> Result<String, VocabError> {
        let mut texts = Strings::with_capacity(0, 0).unwrap();
        for (text, _) in tokens {
            texts.push(text.as_bytes())?;
        }
        let scores: Vec<f32> = tokens.iter().map(|token| token.1).collect();
        let mut out = Vec::new();
        Spm::new(&texts, &scores, Some(Token(0)))?.tokenize(text, prefix, &texts, &mut out);
        let shown: Vec<_> =
            out.iter().map(|token| String::from_utf8_lossy(texts.at(token.0)).to_string()).collect();
        Ok(shown.join("|"))
    }

    #[test]
    fn the_best_score_is_merged_first_and_the_first_of_equals() {
        let tokens =
            [("?", 0.0), ("a", 0.0), ("b", 0.0), ("ab", -2.0), ("ba", -1.0), ("aba", -9.0), ("aa", -1.0)];
        for (text, wanted) in
            [("ab", "ab"), ("bab", "ba|b"), ("aba", "aba"), ("aaa", "aa|a"), ("aaba", "aa|ba")]
        {
            assert_eq!(cut(&tokens, text, false).as_deref(), Ok(wanted), "{text:?}");
        }
    }

    #[test]
    fn spaces_are_written_as_bars_and_one_may_be_put_in_front() {
        let tokens = [("?", 0.0), ("▁", -5.0), ("a", -5.0), ("▁a", -1.0)];
        assert_eq!(cut(&tokens, "a a", true).as_deref(), Ok("▁a|▁a"));
        assert_eq!(cut(&tokens, "a  a", false).as_deref(), Ok("a|▁|▁a"));
        assert_eq!(cut(&tokens, "", true).as_deref(), Ok("▁"));
    }

    #[test]
    fn what_is_no_token_falls_back_to_bytes_and_then_to_the_unknown_token() {
        let tokens = [("?", 0.0), ("<0xC3>", 0.0), ("<0xA9>", 0.0), ("a", 0.0)];
        assert_eq!(cut(&tokens, "éaè", false).as_deref(), Ok("<0xC3>|<0xA9>|a|?"));
    }

    /// A token such as `a▁` requires merging across words.
    #[test]
    fn words_are_merged_one_by_one_only_where_no_token_crosses_them() {
        let words = [("?", 0.0), ("▁", -9.0), ("▁▁", -1.0), ("a", -9.0), ("▁a", -2.0), ("▁▁a", -3.0)];
        assert_eq!(cut(&words, "a   a a", true).as_deref(), Ok("▁a|▁▁|▁a|▁a"));
        let across = [("?", 0.0), ("▁", -9.0), ("a", -9.0), ("▁a", -2.0), ("a▁", -1.0)];
        assert_eq!(cut(&across, "a a a", true).as_deref(), Ok("▁|a▁|a▁|a"));
    }

    #[test]
    fn scores_have_to_be_numbers() {
        assert_eq!(
            cut(&[("a", 0.0), ("b", f32::NAN)], "", false).err(),
            Some(VocabError::Score { index: 1 })
        );
        assert_eq!(
            cut(&[("?", 0.0), ("a", f32::INFINITY), ("aa", f32::NEG_INFINITY)], "aa", false).as_deref(),
            Ok("aa")
        );
    }

    /// Quadratic merging would take minutes here.
    #[test]
    fn half_a_megabyte_without_a_space_is_merged_in_moments() -> Result<(), VocabError> {
        let tokens: Vec<String> = (0..12).map(|i| "a".repeat(1 << i)).collect();
        let tokens: Vec<(&str, f32)> = tokens.iter().map(|text| (text.as_str(), text.len() as f32)).collect();
        assert_eq!(cut(&tokens, &"a".repeat(1 << 19), false)?.split('|').count(), 256);
        Ok(())
    }
}
