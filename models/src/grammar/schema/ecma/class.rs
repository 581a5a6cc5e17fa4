//! Sets of characters.

use alloc::{format, string::String, vec::Vec};

use regex_syntax::hir::{self, ClassUnicode, ClassUnicodeRange, HirKind};

/// A set of characters.
#[derive(Clone, Debug)]
pub(super) struct Class(ClassUnicode);

impl Default for Class {
    fn default() -> Self {
        Self(ClassUnicode::empty())
    }
}

impl Class {
    fn ranges(ranges: &[(char, char)]) -> Self {
        Self(ClassUnicode::new(ranges.iter().map(|&(first, last)| ClassUnicodeRange::new(first, last))))
    }

    /// Return the set of one character.
    pub(super) fn of(c: char) -> Self {
        Self::ranges(&[(c, c)])
    }

    /// Return the characters that end lines.
    pub(super) fn line_ends() -> Self {
        Self::ranges(&[('\n', '\n'), ('\r', '\r'), ('\u{2028}', '\u{2029}')])
    }

    /// Return the characters of `\d`.
    pub(super) fn digits() -> Self {
        Self::ranges(&[('0', '9')])
    }

    /// Return the characters of `\w`.
    pub(super) fn word() -> Self {
        Self::ranges(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')])
    }

    /// Return the characters of `\s`: white space and line ends of ECMA-262.
    pub(super) fn space() -> Self {
        Self::ranges(&[
            ('\t', '\r'),
            (' ', ' '),
            ('\u{a0}', '\u{a0}'),
            ('\u{1680}', '\u{1680}'),
            ('\u{2000}', '\u{200a}'),
            ('\u{2028}', '\u{2029}'),
            ('\u{202f}', '\u{202f}'),
            ('\u{205f}', '\u{205f}'),
            ('\u{3000}', '\u{3000}'),
            ('\u{feff}', '\u{feff}'),
        ])
    }

    /// Return the characters with a property; `None` if there is no such property.
    pub(super) fn property(name: &str) -> Option<Self> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | ' ' | '-');
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        match regex_syntax::parse(&format!("\\p{{{name}}}")).ok()?.into_kind() {
            HirKind::Class(hir::Class::Unicode(class)) => Some(Self(class)),
            _ => None,
        }
    }

    /// Return the set with the other cases of its characters.
    pub(super) fn folded(mut self) -> Self {
        // It fails only without the tables of cases; then the set stays.
        _ = self.0.try_case_fold_simple();
        self
    }

    /// Return all other characters.
    pub(super) fn negated(mut self) -> Self {
        self.0.negate();
        self
    }

    /// Add the characters of another set.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.union(&other.0);
    }

    /// Add the characters from `first` to `last`.
    pub(super) fn add_range(&mut self, first: char, last: char) {
        self.0.push(ClassUnicodeRange::new(first, last));
    }

    /// Return the character if there is only one.
    pub(super) fn single(&self) -> Option<char> {
        match self.0.ranges() {
            [range] if range.start() == range.end() => Some(range.start()),
            _ => None,
        }
    }

    /// Return the set in a way that all dialects read alike.
    pub(super) fn text(&self) -> String {
        let ranges = self.0.ranges();
        if ranges.is_empty() {
            return "[^\\u0000-\\u{10FFFF}]".into();
        }
        // Whichever is shorter.
        let mut others = self.0.clone();
        others.negate();
        let (sign, ranges) = match others.ranges() {
            [] => ("", ranges),
            others if others.len() < ranges.len() => ("^", others),
            _ => ("", ranges),
        };
        let ranges: Vec<String> = ranges.iter().map(range).collect();
        format!("[{sign}{}]", ranges.concat())
    }
}

fn range(range: &ClassUnicodeRange) -> String {
    match (range.start(), range.end()) {
        (first, last) if first == last => bound(first),
        (first, last) => format!("{}-{}", bound(first), bound(last)),
    }
}

fn bound(c: char) -> String {
    match u32::from(c) {
        _ if c.is_ascii_alphanumeric() || c == '_' || c == ' ' => c.into(),
        code @ 0..=0x7f => format!("\\x{code:02X}"),
        code @ 0x80..=0xffff => format!("\\u{code:04X}"),
        code => format!("\\u{{{code:X}}}"),
    }
}
