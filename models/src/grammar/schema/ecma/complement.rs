//! Regular expressions for the texts that others do not match.

use alloc::{collections::BTreeMap, format, string::String, vec, vec::Vec};

use super::automaton::Automaton;
use super::class::Class;

/// The states of an automaton that is written as a regular expression.
const MAX_STATES: usize = 24;
/// The bytes of a regular expression.
const MAX_LENGTH: usize = 8000;
/// The texts that are told apart by their common beginnings, in characters, and how often these
/// may fork or end within one of them.
const MAX_CHARS: usize = 64;
const MAX_FORKS: usize = 20;
/// Any text.
const ANYTHING: &str = "(?s:.)*";

/// The texts in which a pattern is not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Others {
    /// It is found in all texts.
    None,
    /// The texts that match this regular expression.
    Matching(String),
}

/// Return the texts in which `pattern` is not found. The library has to follow the pattern. `None`
/// if no regular expression of a bounded size matches those texts.
pub(in super::super) fn without(pattern: &str) -> Option<Others> {
    let pattern = llguidance::regex_to_lark(pattern, "dw");
    let automaton = Automaton::of(&regex_syntax::parse(&pattern).ok()?)?;
    match Edges::of(&automaton)?.text()? {
        Some(text) => Some(Others::Matching(format!("^(?:{text})$"))),
        None => Some(Others::None),
    }
}

/// Return a pattern for all texts but these; `None` if it is too large.
pub(in super::super) fn except(texts: &[&str]) -> Option<String> {
    let mut tree = Tree::default();
    for text in texts {
        if text.chars().count() > MAX_CHARS {
            return None;
        }
        let mut place = &mut tree;
        for c in text.chars() {
            place = place.next.entry(c).or_default();
        }
        place.is_end = true;
    }
    let mut text = String::from("^(?:");
    tree.write_others(&mut text, 0)?;
    text.push_str(")$");
    Some(text)
}

/// Texts by their common beginnings.
#[derive(Default)]
struct Tree {
    next: BTreeMap<char, Tree>,
    is_end: bool,
}

impl Tree {
    /// Write options for what can stand behind this place, so that no whole text of the tree comes
    /// of it.
    fn write_others(&self, text: &mut String, n_forks: usize) -> Option<()> {
        let (mut place, mut way) = (self, String::new());
        loop {
            let mut taken = Class::default();
            place.next.keys().for_each(|c| taken.add_range(*c, *c));
            text.push_str(&format!("{way}{}{ANYTHING}", taken.negated().text()));
            if !place.is_end {
                text.push_str(&format!("|{way}"));
            }
            if text.len() > MAX_LENGTH || n_forks > MAX_FORKS {
                return None;
            }
            let mut next = place.next.iter();
            match (next.next(), next.next()) {
                (None, _) => return Some(()),
                // A way without forks is written out, so that groups are not deep.
                (Some((c, only)), None) if !only.is_end || only.next.is_empty() => {
                    way.push_str(&one(*c));
                    place = only;
                    text.push('|');
                }
                _ => break,
            }
        }
        for (c, next) in &place.next {
            text.push_str(&format!("|{way}{}(?:", one(*c)));
            next.write_others(text, n_forks + 1)?;
            text.push(')');
        }
        Some(())
    }
}

/// Return the expression of a character.
fn one(c: char) -> String {
    if c.is_ascii_alphanumeric() { c.into() } else { Class::of(c).text() }
}

/// A regular expression, and true if it is an alternation.
#[derive(Clone)]
struct Text(String, bool);

impl Text {
    fn or(self, other: Self) -> Self {
        if self.0 == other.0 { self } else { Self(format!("{}|{}", self.0, other.0), true) }
    }

    fn and(&self, other: &Self) -> Self {
        Self(format!("{}{}", self.grouped(), other.grouped()), false)
    }

    fn grouped(&self) -> String {
        if self.1 { format!("(?:{})", self.0) } else { self.0.clone() }
    }

    fn repeated(&self) -> Self {
        Self(if self.0.is_empty() { String::new() } else { format!("(?:{})*", self.0) }, false)
    }
}

/// Ways between the states of an automaton, which are states `1..=n`. State 0 is before all texts,
/// and state `n + 1` behind those that the automaton does not match.
struct Edges {
    n: usize,
    texts: BTreeMap<(usize, usize), Text>,
}

impl Edges {
    fn of(automaton: &Automaton) -> Option<Self> {
        let n = automaton.next.len();
        let mut edges = Self { n, texts: BTreeMap::new() };
        let empty = Text(String::new(), false);
        edges.texts.insert((0, 1), empty.clone());
        for (state, row) in automaton.next.iter().enumerate() {
            if !*automaton.matches.get(state)? {
                edges.texts.insert((state + 1, n + 1), empty.clone());
            }
            let mut classes = BTreeMap::<usize, Class>::new();
            for (i, (first, next)) in automaton.sets.iter().zip(row).enumerate() {
                let end = automaton.sets.get(i + 1).map_or(u32::from(char::MAX), |end| end - 1);
                // Halves of characters are none.
                let first = char::from_u32(*first).unwrap_or('\u{e000}');
                let last = char::from_u32(end).unwrap_or('\u{d7ff}');
                if first <= last {
                    classes.entry(*next).or_default().add_range(first, last);
                }
            }
            for (next, class) in classes {
                edges.texts.insert((state + 1, next + 1), Text(class.text(), false));
            }
        }
        edges.drop_lost();
        (edges.states().len() <= MAX_STATES).then_some(edges)
    }

    /// Drop the ways to states from which no text ends.
    fn drop_lost(&mut self) {
        let mut ends = vec![false; self.n + 2];
        ends.iter_mut().skip(self.n + 1).for_each(|end| *end = true);
        loop {
            let found = self
                .texts
                .keys()
                .find(|(from, to)| ends.get(*from) == Some(&false) && ends.get(*to) == Some(&true));
            match found.and_then(|(from, _)| ends.get_mut(*from)) {
                Some(end) => *end = true,
                None => break,
            }
        }
        self.texts.retain(|(_, to), _| ends.get(*to) == Some(&true));
    }

    /// Return the states between the first and the last that are left.
    fn states(&self) -> Vec<usize> {
        (1..=self.n)
            .filter(|state| self.texts.keys().any(|(from, to)| from == state || to == state))
            .collect()
    }

    /// Return the way from the first state to the last, if there is any; `None` if it is too long.
    fn text(mut self) -> Option<Option<Text>> {
        loop {
            let n_ways = |state: &usize| {
                let n_in = self.texts.keys().filter(|(from, to)| to == state && from != state).count();
                let n_out = self.texts.keys().filter(|(from, to)| from == state && to != state).count();
                n_in * n_out
            };
            let Some(state) = self.states().into_iter().min_by_key(n_ways) else { break };
            self.eliminate(state)?;
        }
        Some(self.texts.remove(&(0, self.n + 1)))
    }

    /// Write the ways through a state without it.
    fn eliminate(&mut self, state: usize) -> Option<()> {
        let ways = core::mem::take(&mut self.texts);
        let (through, kept): (Vec<_>, Vec<_>) =
            ways.into_iter().partition(|((from, to), _)| *from == state || *to == state);
        self.texts = kept.into_iter().collect();
        let again = through.iter().find(|((from, to), _)| from == to);
        let again = again.map_or(Text(String::new(), false), |(_, text)| text.repeated());
        let mut n_bytes = 0;
        for ((from, _), before) in through.iter().filter(|((from, _), _)| *from != state) {
            for ((_, to), after) in through.iter().filter(|((_, to), _)| *to != state) {
                let text = before.and(&again).and(after);
                n_bytes += text.0.len();
                let text = match self.texts.remove(&(*from, *to)) {
                    Some(other) => other.or(text),
                    None => text,
                };
                self.texts.insert((*from, *to), text);
            }
        }
        (n_bytes <= MAX_LENGTH).then_some(())
    }
}

impl core::fmt::Display for Text {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::{Others, except, without};
    use crate::grammar::schema::ecma::translated;

    fn is_found(pattern: &str, text: &str) -> bool {
        regex_automata::meta::Regex::new(&llguidance::regex_to_lark(pattern, "dw")).unwrap().is_match(text)
    }

    /// Return true if the other texts are exactly those without the pattern.
    fn is_other(pattern: &str, text: &str) -> bool {
        let pattern = translated(pattern).unwrap();
        let found = match without(&pattern).unwrap_or_else(|| panic!("{pattern}")) {
            Others::None => false,
            Others::Matching(others) => is_found(&translated(&others).unwrap(), text),
        };
        found != is_found(&pattern, text)
    }

    #[test]
    fn other_texts_are_those_without_the_pattern() {
        let texts =
            ["", "a", "b", "ab", "ba", "aab", "abc", "a b", "\n", "1", "12", "é", "\u{1f600}x", "-1.5"];
        let patterns = [
            "",
            "a",
            "^a",
            "a$",
            "^a$",
            "^$",
            "a|b",
            "^(ab|ba)+$",
            "[^a-c]",
            r"^\d{1,2}$",
            "^[a-z]*$",
            "(a.b)?c",
            "a?$^a?$^a?",
        ];
        for pattern in patterns {
            for text in texts {
                assert!(is_other(pattern, text), "{pattern} {text:?}");
            }
        }
        assert_eq!(without(""), Some(Others::None));
        assert_eq!(without(r"\bword"), None);
        assert_eq!(without("a{1,9999}"), None);
    }

    proptest! {
        #[test]
        fn patterns_and_their_complements_share_no_text(
            parts in prop::collection::vec("\\^?(a|b|\\[\\^a\\]|\\(a\\|bc\\)|\\.)[*+?]?\\$?", 1..4),
            texts in prop::collection::vec("[abc]{0,5}", 8),
        ) {
            let pattern = parts.concat();
            let followed = translated(&pattern).ok();
            for text in texts.iter().filter(|_| followed.as_ref().is_some_and(|it| without(it).is_some())) {
                prop_assert!(is_other(&pattern, text), "{pattern} {text:?}");
            }
        }

        #[test]
        fn listed_texts_are_left_out(
            texts in prop::collection::vec("[ab^é.]{0,4}", 0..6),
            others in prop::collection::vec("[ab^é.]{0,5}", 8),
        ) {
            let listed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let pattern = except(&listed).unwrap();
            for text in texts.iter().chain(&others) {
                let is_listed = texts.contains(text);
                prop_assert_eq!(is_found(&translated(&pattern).unwrap(), text), !is_listed, "{} {}", pattern, text);
            }
        }
    }

    #[test]
    fn long_texts_are_told_apart() {
        let long = "x".repeat(64);
        assert!(
            except(&[&long]).is_some_and(|pattern| !is_found(&pattern, &long) && is_found(&pattern, "x"))
        );
        assert_eq!(except(&[&format!("{long}x")]), None);
    }
}
