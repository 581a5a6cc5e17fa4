//! The regular expressions of pre-tokenisers, each as a scanner.
//!
//! A rule looks at one position of a piece of text. It either takes a word that starts there, or
//! returns an offset before which nothing matches. Apart from a bounded number, it never looks at
//! characters that it then leaves to a later step, so a whole piece takes linear time.

use super::class::{Class, Look, look, run, run_of, run_up_to};
use super::scripts;

/// The result of a rule at a position.
pub(super) enum Step {
    /// A word that ends at this offset.
    Word(usize),
    /// No word starts before this offset.
    Between(usize),
}

/// One expression. In the comments, `S` is `[^\s\p{L}\p{N}]`, `W` is `\s+(?!\S)|\s+`, and `V` is
/// `\s*[\r\n]+|W`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?S+|W`
    Gpt2,
    /// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?S+[\r\n]*|V`
    Modern(Modern),
    /// `P?U*L+C?|P?U+L*C?|\p{N}{1,digits}| ?S+[\r\n/]*|V`, in which P is
    /// `[^\r\n\p{L}\p{N}]`, U `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, L `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and
    /// C a contraction in any case.
    Cased {
        /// True if there is a `C?`.
        contractions: bool,
        /// The longest number, in digits.
        digits: usize,
    },
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
}

/// The parameters of [`Rule::Modern`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Modern {
    /// True if `\p{M}` belongs to letters and not to `S`.
    pub(super) marks_in_words: bool,
    /// The longest number, in digits.
    pub(super) digits: usize,
}

impl Rule {
    /// Apply this rule at byte `at` of `text`, which is inside of it and starts a character.
    pub(super) fn step(&self, text: &str, at: usize) -> Step {
        match *self {
            Self::Gpt2 => gpt2(text, at),
            Self::Modern(modern) => modern.step(text, at),
            Self::Cased { contractions, digits } => cased(text, at, contractions, digits),
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
        if let Some(end) = contraction(text, at, first, true) {
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
        match signs_then(text, at, first, signs, "\r\n") {
            Some(end) => Step::Word(end),
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

fn cased(text: &str, at: usize, contractions: bool, digits: usize) -> Step {
    let first = look(text, at);
    if let Some(end) = cased_word(text, at, first) {
        let contracted = if contractions { contraction(text, end, look(text, end), true) } else { None };
        return Step::Word(contracted.unwrap_or(end));
    }
    if first.is(Class::NUMBER) {
        return Step::Word(run_up_to(text, at, Class::NUMBER, digits));
    }
    match signs_then(text, at, first, Class::SIGN, "\r\n/") {
        Some(end) => Step::Word(end),
        None => lines_or_space(text, at),
    }
}

/// Match `P?U*L+|P?U+L*`: the first of the four readings that matches.
fn cased_word(text: &str, at: usize, first: Look) -> Option<usize> {
    let led = if may_lead(first) { at + first.len } else { at };
    lower_end(text, led)
        .or_else(|| lower_end(text, at))
        .or_else(|| upper_end(text, led))
        .or_else(|| upper_end(text, at))
}

/// The characters `U` of [`Rule::Cased`].
const UPPERS: Class = Class::UPPER.or(Class::CASELESS).or(Class::MARK);
/// The characters `L` of [`Rule::Cased`].
const LOWERS: Class = Class::LOWER.or(Class::CASELESS).or(Class::MARK);

/// Return the end of `U*L+` from `at` on. If no `L` follows the longest `U*`, the match ends after
/// the last character that is both.
fn lower_end(text: &str, at: usize) -> Option<usize> {
    let (mut uppers, mut last_both) = (at, None);
    loop {
        let next = look(text, uppers);
        if !next.is(UPPERS) {
            break;
        }
        uppers += next.len;
        if next.is(LOWERS) {
            last_both = Some(uppers);
        }
    }
    let end = run(text, uppers, LOWERS);
    if end > uppers { Some(end) } else { last_both }
}

/// Return the end of `U+L*` from `at` on, if [`lower_end`] found nothing.
fn upper_end(text: &str, at: usize) -> Option<usize> {
    let end = run(text, at, UPPERS);
    (end > at).then_some(end)
}

/// Return the end of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d`, if one starts at `at`; with
/// `any_case`, in any ASCII case.
fn contraction(text: &str, at: usize, first: Look, any_case: bool) -> Option<usize> {
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
fn signs_then(text: &str, at: usize, first: Look, signs: Class, closing: &str) -> Option<usize> {
    let start = at + usize::from(first.char == ' ');
    let end = run(text, start, signs);
    (end > start).then(|| run_of(text, end, |c| closing.contains(c)))
}

/// Match `V`: white space up to its last line end, or else as [`space`].
fn lines_or_space(text: &str, at: usize) -> Step {
    let (mut end, mut last_line_end) = (at, None);
    loop {
        let next = look(text, end);
        if !next.is(Class::SPACE) {
            break;
        }
        end += next.len;
        if is_line_end(next) {
            last_line_end = Some(end);
        }
    }
    Step::Word(last_line_end.unwrap_or_else(|| space(text, at)))
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

fn triple(text: &str, at: usize) -> Step {
    let end = at + 3;
    let digits = text.as_bytes().get(at..end).is_some_and(|three| three.iter().all(u8::is_ascii_digit));
    word_or_next(text, at, if digits { end } else { at })
}

/// Return a word from `at` to `end` if that is not empty.
fn word_or_next(text: &str, at: usize, end: usize) -> Step {
    if end > at { Step::Word(end) } else { Step::Between(at + look(text, at).len) }
}

/// Return `end` if it lies after `start`, else `nothing`.
fn after(start: usize, end: usize, nothing: usize) -> usize {
    if end > start { end } else { nothing }
}

/// Return true for `[^\r\n\p{L}\p{N}]`, the characters that may precede a word's letters.
fn may_lead(first: Look) -> bool {
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
