//! The regular expressions of pre-tokenisers, each as a scanner.
//!
//! A rule looks at one position of a piece of text. It either takes a word that starts there, or
//! returns an offset before which nothing matches. Apart from a bounded number, it never looks at
//! characters that it then leaves to a later step, so a whole piece takes linear time.

use super::cased::Cased;
use super::class::{Class, Look, look, run, run_of, run_up_to};
use super::{digits, scripts};

/// The result of a rule at a position.
pub(super) enum Step {
    /// A word that ends at this offset.
    Word(usize),
    /// No word starts before this offset.
    Between(usize),
    /// An empty word here, and no other before this offset.
    Cut(usize),
    /// Words up to this offset. Taking them one by one would look at all of them again each time.
    Words {
        /// The end of the last word.
        end: usize,
        /// The function that returns the end of the word at `at`, given the text, `at` and `end`.
        next: fn(&str, usize, usize) -> usize,
    },
}

/// One expression. In the comments, `S` is `[^\s\p{L}\p{N}]`, `W` is `\s+(?!\S)|\s+`, and `V` is
/// `\s*[\r\n]+|W`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?S+|W`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?S+[closing]*|V`
    Modern(Modern),
    /// Words that begin with upper case letters or consist of lower case ones
    Cased(Cased),
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}`
    /// `| ?S+[\r\n/]?|V`
    ExaoneMoe,
    /// `[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|V`
    DeepSeek3,
    /// `\p{N}{1,most}`
    Numbers {
        /// The longest number, in digits.
        most: usize,
    },
    /// `[0-9][0-9][0-9]`
    Triples,
    /// `[\p{P}$+<=>^~|]+`, with the grave accent in it or not
    AsciiSigns {
        /// True if the grave accent belongs to it.
        grave: bool,
    },
    /// ` ?[^(\s|.,!?…。，、।۔،)]+`
    Bloom,
    /// `[\r\n]`
    LineEnds,
    /// `\s?` and letters with case
    SpacedCased,
    /// `\s?` and punctuation of half and full width
    SpacedFullWidth,
    /// `\s?\p{L}+`
    SpacedLetters,
    /// `\s?\p{P}+`
    SpacedPunct,
    /// `\s+$`
    TrailingSpace,
    /// East Asian characters
    EastAsian,
    /// Han, Hiragana and Katakana
    HanKana,
    /// Ideographs, kana, Hangul, and scripts of South-East Asia
    Asian,
    /// Hangul, or wide punctuation, or Bopomofo, or Han and kana
    AsianRuns,
    /// `\p{N}{1,3}` from the right of each run of numbers
    NumbersFromRight,
    /// `\d{1,3}(?=(?:\d{3})*\b)`
    DigitsBeforeEnd,
    /// `(?=(\d{3})+(?!\d))`
    DigitGroups,
    /// `[^\n]+|\n+`
    Lines,
    /// `\S+`
    NotSpace,
    /// `<sentinel:[0-9]+>`
    Sentinel,
    /// `IMGIMG[A-I]{1,4}Z`
    ImageToken,
    /// `[\t\n]|    |  `
    TabsAndPairs,
    /// ``[\p{P}!-/:-@\[-`{-~]``
    LoneSign,
}

/// The parameters of [`Rule::Modern`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Modern {
    /// True if an English contraction is a word of its own.
    pub(super) contractions: bool,
    /// True if `\p{M}` belongs to letters and not to `S`.
    pub(super) marks_in_words: bool,
    /// The longest number, in digits.
    pub(super) digits: usize,
    /// The characters that belong to the signs before them.
    pub(super) closing: &'static str,
    /// True if white space without line ends is cut into words of 512, 256, ... down to 4
    /// characters and 1 or 2, instead of `W`.
    pub(super) space_by_powers: bool,
}

impl Rule {
    /// Apply this rule at byte `at` of `text`, which is inside of it and starts a character.
    pub(super) fn step(&self, text: &str, at: usize) -> Step {
        match *self {
            Self::Gpt2 => gpt2(text, at),
            Self::Modern(modern) => modern.step(text, at),
            Self::Cased(cased) => cased.step(text, at),
            Self::ExaoneMoe => exaone_moe(text, at),
            Self::DeepSeek3 => deepseek3(text, at),
            Self::Numbers { most } => word_or_next(text, at, run_up_to(text, at, Class::NUMBER, most)),
            Self::Triples => triple(text, at),
            Self::AsciiSigns { grave } => {
                let wanted = |c: char| "$+<=>^~|".contains(c) || grave && c == '`' || is_punct(c);
                word_or_next(text, at, run_of(text, at, wanted))
            }
            Self::Bloom => {
                let start = at + usize::from(look(text, at).char == ' ');
                word_or_next(
                    text,
                    at,
                    after(start, run_of(text, start, |c| !scripts::ends_bloom_word(c)), at),
                )
            }
            Self::LineEnds => word_or_next(text, at, at + usize::from(is_line_end(look(text, at)))),
            Self::SpacedCased => spaced(text, at, scripts::is_cased),
            Self::SpacedFullWidth => spaced(text, at, scripts::is_full_or_half_width_sign),
            Self::SpacedLetters => spaced(text, at, is_letter),
            Self::SpacedPunct => spaced(text, at, is_punct),
            Self::TrailingSpace => trailing_space(text, at),
            Self::EastAsian => word_or_next(text, at, run_of(text, at, scripts::is_east_asian)),
            Self::HanKana => word_or_next(text, at, run_of(text, at, scripts::is_han_or_kana)),
            Self::Asian => word_or_next(text, at, run_of(text, at, scripts::is_asian)),
            Self::AsianRuns => word_or_next(text, at, asian_run(text, at)),
            Self::NumbersFromRight => digits::numbers_from_right(text, at),
            Self::DigitsBeforeEnd => digits::digits_before_end(text, at),
            Self::DigitGroups => digits::digit_groups(text, at),
            Self::Lines => Step::Word(line_or_ends(text, at)),
            Self::NotSpace => word_or_next(text, at, run(text, at, Class::SPACE.others())),
            Self::Sentinel => word_or_next(text, at, sentinel(text, at).unwrap_or(at)),
            Self::ImageToken => word_or_next(text, at, image_token(text, at).unwrap_or(at)),
            Self::TabsAndPairs => word_or_next(text, at, tab_or_pair(text, at)),
            Self::LoneSign => word_or_next(text, at, lone_sign(text, at)),
        }
    }
}

impl Modern {
    fn step(self, text: &str, at: usize) -> Step {
        let (letters, signs) = if self.marks_in_words {
            (Class::LETTER.or(Class::MARK), Class::SIGN.without(Class::MARK))
        } else {
            (Class::LETTER, Class::SIGN)
        };
        let first = look(text, at);
        if let Some(end) = contraction(text, at, first, true).filter(|_| self.contractions) {
            return Step::Word(end);
        }
        if first.is(letters) {
            return Step::Word(run(text, at, letters));
        }
        if may_lead(first) && look(text, at + first.len).is(letters) {
            return Step::Word(run(text, at + first.len, letters));
        }
        if first.is(Class::NUMBER) {
            return Step::Word(run_up_to(text, at, Class::NUMBER, self.digits));
        }
        match signs_then(text, at, first, signs, self.closing) {
            Some(end) => Step::Word(end),
            None if self.space_by_powers => lines_or_powers(text, at),
            None => lines_or_space(text, at),
        }
    }
}

fn gpt2(text: &str, at: usize) -> Step {
    let first = look(text, at);
    if let Some(end) = contraction(text, at, first, false) {
        return Step::Word(end);
    }
    let start = at + usize::from(first.char == ' ');
    let next = look(text, start);
    for class in [Class::LETTER, Class::NUMBER, Class::SIGN] {
        if next.is(class) {
            return Step::Word(run(text, start, class));
        }
    }
    Step::Word(space(text, at))
}

fn exaone_moe(text: &str, at: usize) -> Step {
    let first = look(text, at);
    if let Some(end) = contraction(text, at, first, true) {
        return Step::Word(end);
    }
    let led = if first.is(Class::LETTER) || !may_lead(first) { at } else { at + first.len };
    let words_end = spaced_words(text, led);
    if words_end > led {
        return Step::Word(words_end);
    }
    if first.is(Class::NUMBER) {
        return Step::Word(at + first.len);
    }
    match signs_then(text, at, first, Class::SIGN, "") {
        Some(end) => {
            let next = look(text, end);
            let closes = matches!(next.char, '\r' | '\n' | '/');
            Step::Word(if closes { end + next.len } else { end })
        }
        None => lines_or_space(text, at),
    }
}

/// Return the end of `(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+` from `at` on: words with single spaces
/// between.
fn spaced_words(text: &str, at: usize) -> usize {
    let mut end = at;
    loop {
        let next = look(text, end);
        let letter = if next.char == ' ' && end > at { end + next.len } else { end };
        let first = look(text, letter);
        if !first.is(Class::LETTER) {
            return end;
        }
        end = run(text, letter + first.len, Class::MARK);
    }
}

fn deepseek3(text: &str, at: usize) -> Step {
    const LETTERS: Class = Class::LETTER.or(Class::MARK);
    const SIGNS: Class = Class::PUNCT.or(Class::SYMBOL);
    let first = look(text, at);
    let second = look(text, at + first.len);
    if first.char.is_ascii_punctuation() && second.char.is_ascii_alphabetic() {
        return Step::Word(run_of(text, at + first.len, |c| c.is_ascii_alphabetic()));
    }
    if first.is(LETTERS) {
        return Step::Word(run(text, at, LETTERS));
    }
    if !first.is(SIGNS) && !is_line_end(first) && second.is(LETTERS) {
        return Step::Word(run(text, at + first.len, LETTERS));
    }
    match signs_then(text, at, first, SIGNS, "\r\n") {
        Some(end) => Step::Word(end),
        None if first.is(Class::SPACE) => lines_or_space(text, at),
        None => Step::Between(at + first.len),
    }
}

/// Return the end of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d`, if one starts at `at`; with
/// `any_case`, in any ASCII case.
pub(super) fn contraction(text: &str, at: usize, first: Look, any_case: bool) -> Option<usize> {
    if first.char != '\'' {
        return None;
    }
    let letter = |i: usize| {
        let byte = text.as_bytes().get(at + i).copied().unwrap_or(0);
        if any_case { byte.to_ascii_lowercase() } else { byte }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(at + 3),
        _ => None,
    }
}

/// Return the end of ` ?signs+` and the `closing` characters after it, if there are signs at `at`.
pub(super) fn signs_then(text: &str, at: usize, first: Look, signs: Class, closing: &str) -> Option<usize> {
    let start = at + usize::from(first.char == ' ');
    let end = run(text, start, signs);
    (end > start).then(|| run_of(text, end, |c| closing.contains(c)))
}

/// Match `V`: white space up to its last line end, or else as [`space`].
pub(super) fn lines_or_space(text: &str, at: usize) -> Step {
    Step::Word(lines(text, at).unwrap_or_else(|| space(text, at)))
}

/// Match `\s*[\r\n]+`, or else cut the white space by powers of two, apart from a last character
/// that text follows.
fn lines_or_powers(text: &str, at: usize) -> Step {
    if let Some(end) = lines(text, at) {
        return Step::Word(end);
    }
    let end = run(text, at, Class::SPACE);
    let last = text.get(at..end).and_then(|spaces| spaces.chars().next_back()).map_or(0, char::len_utf8);
    if end == text.len() || at + last == end {
        Step::Words { end, next: power_of_space }
    } else {
        Step::Words { end: end - last, next: power_of_space }
    }
}

/// Return the end of the word of [`Modern::space_by_powers`] at `at`, in white space up to `end`.
fn power_of_space(text: &str, at: usize, end: usize) -> usize {
    let spaces = text.get(at..end).unwrap_or("").chars().take(512).map(char::len_utf8);
    let n_left = spaces.clone().count();
    let size = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|&size| size <= n_left);
    at + spaces.take(size.unwrap_or(1)).sum::<usize>()
}

/// Return the end of `\s*[\r\n]+` at `at`, if there is a line end in the white space there.
fn lines(text: &str, at: usize) -> Option<usize> {
    let (mut end, mut last_line_end) = (at, None);
    loop {
        let next = look(text, end);
        if !next.is(Class::SPACE) {
            return last_line_end;
        }
        end += next.len;
        if is_line_end(next) {
            last_line_end = Some(end);
        }
    }
}

/// Match `\s+(?!\S)|\s+`: all white space, except that its last character goes with the text that
/// follows, unless it is the only one.
fn space(text: &str, at: usize) -> usize {
    let (mut end, mut last) = (at, at);
    loop {
        let next = look(text, end);
        if !next.is(Class::SPACE) {
            let follows = next.len > 0 && last > at;
            return if follows { last } else { end };
        }
        last = end;
        end += next.len;
    }
}

/// Match `\s?` and at least one character for which `wanted` is true.
fn spaced(text: &str, at: usize, wanted: impl Fn(char) -> bool) -> Step {
    let first = look(text, at);
    let start = if first.is(Class::SPACE) { at + first.len } else { at };
    let mut end = after(start, run_of(text, start, &wanted), at);
    if end == at {
        // A character can be both: the ideographic space counts as punctuation in one expression.
        end = run_of(text, at, &wanted);
    }
    word_or_next(text, at, end)
}

/// Match `\s+$`. White space elsewhere is skipped at once, so that it is not scanned from each of
/// its characters.
fn trailing_space(text: &str, at: usize) -> Step {
    let end = run(text, at, Class::SPACE);
    if end > at && end == text.len() {
        Step::Word(end)
    } else {
        Step::Between(end.max(at + look(text, at).len))
    }
}

/// Return the end of the first of [`Rule::AsianRuns`] that is at `at`.
fn asian_run(text: &str, at: usize) -> usize {
    let scripts =
        [scripts::is_hangul, scripts::is_wide_punctuation, scripts::is_bopomofo, scripts::is_han_or_kana];
    scripts.into_iter().map(|script| run_of(text, at, script)).max().unwrap_or(at)
}

/// Return the end of a line without its line feeds, or of line feeds.
fn line_or_ends(text: &str, at: usize) -> usize {
    let feeds = look(text, at).char == '\n';
    run_of(text, at, |c| (c == '\n') == feeds)
}

fn sentinel(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?.strip_prefix("<sentinel:")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let closed = rest.as_bytes().get(digits) == Some(&b'>');
    (digits > 0 && closed).then_some(at + "<sentinel:".len() + digits + 1)
}

fn image_token(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?.strip_prefix("IMGIMG")?;
    let letters = rest.bytes().take(4).take_while(|byte| (b'A'..=b'I').contains(byte)).count();
    let closed = rest.as_bytes().get(letters) == Some(&b'Z');
    (letters > 0 && closed).then_some(at + "IMGIMG".len() + letters + 1)
}

/// Return the end of a tab, a line feed, or four or two spaces at `at`.
fn tab_or_pair(text: &str, at: usize) -> usize {
    match text.as_bytes().get(at..).unwrap_or(&[]) {
        [b'\t' | b'\n', ..] => at + 1,
        [b' ', b' ', b' ', b' ', ..] => at + 4,
        [b' ', b' ', ..] => at + 2,
        _ => at,
    }
}

/// Return the end of one character of punctuation at `at`, or of an ASCII symbol.
fn lone_sign(text: &str, at: usize) -> usize {
    let first = look(text, at);
    let is_sign = first.is(Class::PUNCT) || first.char.is_ascii_punctuation();
    if is_sign { at + first.len } else { at }
}

fn triple(text: &str, at: usize) -> Step {
    let end = at + 3;
    let digits = text.as_bytes().get(at..end).is_some_and(|three| three.iter().all(u8::is_ascii_digit));
    word_or_next(text, at, if digits { end } else { at })
}

/// Return a word from `at` to `end` if that is not empty.
pub(super) fn word_or_next(text: &str, at: usize, end: usize) -> Step {
    if end > at { Step::Word(end) } else { Step::Between(at + look(text, at).len) }
}

/// Return `end` if it lies after `start`, else `nothing`.
fn after(start: usize, end: usize, nothing: usize) -> usize {
    if end > start { end } else { nothing }
}

/// Return true for `[^\r\n\p{L}\p{N}]`, the characters that may precede a word's letters.
pub(super) fn may_lead(first: Look) -> bool {
    first.len > 0 && !is_line_end(first) && !first.is(Class::LETTER.or(Class::NUMBER))
}

fn is_line_end(look: Look) -> bool {
    matches!(look.char, '\r' | '\n')
}

fn is_letter(c: char) -> bool {
    Class::of(c).meets(Class::LETTER)
}

fn is_punct(c: char) -> bool {
    Class::of(c).meets(Class::PUNCT)
}
