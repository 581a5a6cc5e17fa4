//! SentencePiece: text starts as characters, and of all neighbours that make a token the pair with the best score is merged
//! until none is left. What is no token then falls back to byte tokens.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;

use backstitch_kv::Token;

use super::error::VocabError;
use super::room::listed;
use super::strings::Strings;

/// How a space is written in token texts: `▁`, U+2581.
pub(super) const SPACE: &str = "\u{2581}";

/// A SentencePiece tokeniser.
#[derive(Clone, Debug)]
pub(super) struct Spm {
    scores: Vec<f32>,
    /// The token of each byte, if there is one.
    bytes: Vec<Option<Token>>,
    unk: Option<Token>,
    /// The longest token in bytes: no longer text needs to be looked up.
    longest: usize,
    /// No token goes on with a space after another character, so words can be merged one by one.
    by_words: bool,
}

impl Spm {
    /// Builds for the tokens in `texts`. `scores` may be empty (all zero) or longer than there are tokens.
    ///
    /// # Errors
    /// `Score` for one that is not a number.
    pub(super) fn new(texts: &Strings, scores: &[f32], unk: Option<Token>) -> Result<Self, VocabError> {
        let n_vocab = texts.len();
        if let Some(index) = scores.iter().take(n_vocab).position(|score| score.is_nan()) {
            return Err(VocabError::Score { index });
        }
        let scores = listed(n_vocab, scores.iter().copied().chain(core::iter::repeat(0.0)))?;
        let bytes = (0..=255).map(|byte| byte_token(byte, texts)).collect();
        let longest = (0..n_vocab as u32).map(|id| texts.at(id).len()).max().unwrap_or(0);
        let by_words = (0..n_vocab as u32).all(|id| next_word(texts.at(id), 0) == texts.at(id).len());
        Ok(Self { scores, bytes, unk, longest, by_words })
    }

    /// Appends the tokens of `text`, with a space in front if `prefix`. Characters that neither a token nor byte tokens express
    /// become the unknown token.
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

    /// Appends the tokens of a word, or of a whole text where words do not matter.
    fn tokenize_word(&self, word: &str, texts: &Strings, work: &mut Work, out: &mut Vec<Token>) {
        let Work { parts, heap } = work;
        heap.clear();
        parts.clear();
        parts.extend((0..).zip(word.char_indices()).map(|(before, (start, c))| Part {
            start,
            len: c.len_utf8(),
            before,
            after: before + 2,
        }));
        for left in 0..parts.len() {
            self.propose(left, word, parts, texts, heap);
        }
        while let Some(pair) = heap.pop() {
            let left = pair.left();
            if pair_len(parts, left) != Some(pair.len) {
                continue; // one of the two has been merged with another part since
            }
            join(parts, left);
            if let Some(before) = parts.get(left).and_then(|part| part.before.checked_sub(1)) {
                self.propose(before, word, parts, texts, heap);
            }
            self.propose(left, word, parts, texts, heap);
        }
        for part in parts.iter().filter(|part| part.len > 0) {
            self.emit(word.as_bytes().get(part.range()).unwrap_or(&[]), texts, out);
        }
    }

    /// Puts the part at `left` and the one after it on the heap if they make a token together.
    fn propose(&self, left: usize, word: &str, parts: &[Part], texts: &Strings, heap: &mut BinaryHeap<Pair>) {
        let Some(len) = pair_len(parts, left).filter(|&len| len <= self.longest) else { return };
        let start = parts.get(left).map_or(0, |part| part.start);
        let found = word.as_bytes().get(start..start + len).and_then(|text| texts.find(text));
        if let Some(&score) = found.and_then(|id| self.scores.get(id as usize)) {
            heap.extend(Pair::new(score, left, len));
        }
    }

    /// Appends the token of a part, or else those of its bytes.
    fn emit(&self, part: &[u8], texts: &Strings, out: &mut Vec<Token>) {
        if let Some(id) = texts.find(part) {
            return out.push(Token(id));
        }
        let tokens = part.iter().map(|&byte| self.bytes.get(usize::from(byte)).copied().flatten());
        if tokens.clone().all(|token| token.is_some()) {
            out.extend(tokens.flatten());
        } else {
            out.extend(self.unk);
        }
    }
}

/// A run of characters that may be merged with its neighbours.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    /// Zero once merged into the part before it.
    len: usize,
    /// One more than the place of the part before it in the list; zero for the first.
    before: usize,
    /// One more than the place of the part after it; past the end of the list for the last.
    after: usize,
}

impl Part {
    fn range(self) -> core::ops::Range<usize> {
        self.start..self.start + self.len
    }
}

/// Buffers kept from word to word.
#[derive(Default)]
struct Work {
    parts: Vec<Part>,
    heap: BinaryHeap<Pair>,
}

/// Two neighbours that make a token, as they were when this was put on the heap. The best score is the greatest, of equal
/// scores the first place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    /// The score, as bits that order as scores do, in the upper half; the place, counted down, in the lower.
    key: u64,
    /// Length of the two together: changes when either is merged with another part.
    len: usize,
}

impl Pair {
    /// None beyond 2^32 characters.
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

/// The length of the part at `left` and the one after it together, if `left` still is one and is not the last.
fn pair_len(parts: &[Part], left: usize) -> Option<usize> {
    let part = parts.get(left).filter(|part| part.len > 0)?;
    let next = parts.get(part.after.checked_sub(1)?)?;
    Some(part.len + next.len)
}

/// Merges the part after `left` into it.
fn join(parts: &mut [Part], left: usize) {
    let Some(right) = parts.get(left).and_then(|part| part.after.checked_sub(1)) else { return };
    let Some(gone) = parts.get_mut(right) else { return };
    let Part { len, after, .. } = *gone;
    gone.len = 0;
    if let Some(part) = parts.get_mut(left) {
        part.len += len;
        part.after = after;
    }
    if let Some(next) = after.checked_sub(1).and_then(|i| parts.get_mut(i)) {
        next.before = left + 1;
    }
}

/// `text` with [`SPACE`] for every space, and one in front if `prefix`.
fn escape(text: &str, prefix: bool) -> String {
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

/// Where the word that starts at `start` ends: before the next [`SPACE`] that follows another character.
fn next_word(text: &[u8], start: usize) -> usize {
    let space = SPACE.as_bytes();
    let rest = text.get(start..).unwrap_or(&[]);
    let spaces = rest.chunks(space.len()).take_while(|chunk| *chunk == space).count() * space.len();
    let word = rest.get(spaces..).unwrap_or(&[]);
    let length = word.windows(space.len()).position(|window| window == space).unwrap_or(word.len());
    start + spaces + length
}

/// The token of a byte: `<0x0A>` and the like, or the byte itself.
fn byte_token(byte: u8, texts: &Strings) -> Option<Token> {
    texts.find(alloc::format!("<0x{byte:02X}>").as_bytes()).or_else(|| texts.find(&[byte])).map(Token)
}

/// Appends `text` with spaces for [`SPACE`].
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

    /// A token such as `a▁` makes it necessary to look across words.
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
