//! Classes of characters, as pre-tokenisers need them, and functions that walk over them.

use unicode_general_category::{GeneralCategory as Category, get_general_category};

/// A set of character classes. Every character is in exactly one of the single-bit classes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Class(u16);

impl Class {
    /// The empty set: the class of the end of the text.
    pub(super) const END: Self = Self(0);
    /// Upper and title case letters: Lu, Lt.
    pub(super) const UPPER: Self = Self(1);
    /// Lower case letters: Ll.
    pub(super) const LOWER: Self = Self(1 << 1);
    /// Letters without case: Lm, Lo.
    pub(super) const CASELESS: Self = Self(1 << 2);
    /// Numbers: N.
    pub(super) const NUMBER: Self = Self(1 << 3);
    /// Combining marks: M.
    pub(super) const MARK: Self = Self(1 << 4);
    /// Punctuation: P.
    pub(super) const PUNCT: Self = Self(1 << 5);
    /// Symbols: S.
    pub(super) const SYMBOL: Self = Self(1 << 6);
    /// White space, including control characters such as tabs and line feeds.
    pub(super) const SPACE: Self = Self(1 << 7);
    /// All other characters: control and format characters, private use, unassigned.
    pub(super) const OTHER: Self = Self(1 << 8);

    /// All letters: L.
    pub(super) const LETTER: Self = Self::UPPER.or(Self::LOWER).or(Self::CASELESS);
    /// Characters that are neither white space, letters nor numbers.
    pub(super) const SIGN: Self = Self::MARK.or(Self::PUNCT).or(Self::SYMBOL).or(Self::OTHER);

    /// Return the union of two sets.
    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Return the classes in `self` and not in `other`.
    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Return all classes of characters that are not in this set.
    pub(super) const fn others(self) -> Self {
        Self(0x1ff).without(self)
    }

    /// Return true if the sets share a class. Never true of [`Class::END`].
    pub(super) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Return the class of `c`.
    pub(super) fn of(c: char) -> Self {
        if c.is_whitespace() {
            return Self::SPACE;
        }
        match get_general_category(c) {
            Category::UppercaseLetter | Category::TitlecaseLetter => Self::UPPER,
            Category::LowercaseLetter => Self::LOWER,
            Category::ModifierLetter | Category::OtherLetter => Self::CASELESS,
            Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber => Self::NUMBER,
            Category::NonspacingMark | Category::SpacingMark | Category::EnclosingMark => Self::MARK,
            Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation => Self::PUNCT,
            Category::MathSymbol
            | Category::CurrencySymbol
            | Category::ModifierSymbol
            | Category::OtherSymbol => Self::SYMBOL,
            _ => Self::OTHER,
        }
    }
}

/// Return the class of an ASCII character.
const fn of_ascii(byte: u8) -> Class {
    match byte {
        b'A'..=b'Z' => Class::UPPER,
        b'a'..=b'z' => Class::LOWER,
        b'0'..=b'9' => Class::NUMBER,
        b'\t'..=b'\r' | b' ' => Class::SPACE,
        b'$' | b'+' | b'<'..=b'>' | b'^' | b'`' | b'|' | b'~' => Class::SYMBOL,
        b'!'..=b'~' => Class::PUNCT,
        _ => Class::OTHER,
    }
}

/// The classes of ASCII characters, which most text consists of.
const ASCII: [Class; 128] = {
    let mut table = [Class::END; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = of_ascii(byte as u8);
        byte += 1;
    }
    table
};

/// A character of a text, looked up by offset.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// The character; NUL at the end of the text.
    pub(super) char: char,
    /// The class; [`Class::END`] at the end of the text.
    pub(super) class: Class,
    /// The length in bytes; zero at the end of the text.
    pub(super) len: usize,
}

impl Look {
    /// Return true if the character is in one of the classes.
    pub(super) fn is(self, class: Class) -> bool {
        self.class.meets(class)
    }
}

/// Return the character of `text` that starts at byte `at`.
#[inline]
pub(super) fn look(text: &str, at: usize) -> Look {
    if let Some(&byte) = text.as_bytes().get(at)
        && let Some(&class) = ASCII.get(usize::from(byte))
    {
        return Look { char: char::from(byte), class, len: 1 };
    }
    look_beyond_ascii(text, at)
}

fn look_beyond_ascii(text: &str, at: usize) -> Look {
    match text.get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) => Look { char: c, class: Class::of(c), len: c.len_utf8() },
        None => Look { char: '\0', class: Class::END, len: 0 },
    }
}

/// Return the end of the characters of `class` that start at `at`.
#[inline]
pub(super) fn run(text: &str, mut at: usize, class: Class) -> usize {
    loop {
        let next = look(text, at);
        if !next.is(class) {
            return at;
        }
        at += next.len;
    }
}

/// Return the end of the characters from `at` on for which `wanted` is true.
pub(super) fn run_of(text: &str, mut at: usize, wanted: impl Fn(char) -> bool) -> usize {
    loop {
        let next = look(text, at);
        if next.len == 0 || !wanted(next.char) {
            return at;
        }
        at += next.len;
    }
}

/// Return the end of the characters of `class` that start at `at`, at most `most` of them.
pub(super) fn run_up_to(text: &str, mut at: usize, class: Class, most: usize) -> usize {
    for _ in 0..most {
        let next = look(text, at);
        if !next.is(class) {
            break;
        }
        at += next.len;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ascii_table_agrees_with_unicode() {
        for byte in 0..128u8 {
            assert!(of_ascii(byte) == Class::of(char::from(byte)), "{byte:#x}");
        }
    }

    #[test]
    fn every_character_has_exactly_one_class() {
        for c in '\0'..=char::MAX {
            assert_eq!(Class::of(c).0.count_ones(), 1, "{c:?}");
        }
    }

    #[test]
    fn classes_beyond_ascii() {
        let cases = [
            ('É', Class::UPPER),
            ('ß', Class::LOWER),
            ('中', Class::CASELESS),
            ('٣', Class::NUMBER),
            ('½', Class::NUMBER),
            ('\u{301}', Class::MARK),
            ('。', Class::PUNCT),
            ('€', Class::SYMBOL),
            ('\u{3000}', Class::SPACE),
            ('\u{85}', Class::SPACE),
            ('\u{200d}', Class::OTHER),
            ('\u{e000}', Class::OTHER),
        ];
        for (c, class) in cases {
            assert!(Class::of(c) == class, "{c:?}");
        }
    }
}
