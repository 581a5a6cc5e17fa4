//! Writing a grammar as llguidance's Lark.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};
use core::fmt::Write as _;
use std::collections::HashMap;

use super::check::{is_nullable, nullable};
use super::{CharSet, Expr, Rules};

/// Write a grammar whose characters are in terminals.
pub(super) fn lark(rules: &Rules) -> String {
    let nullable = nullable(rules);
    let mut writer = Writer {
        rules,
        nullable: &nullable,
        atoms: token_atoms(&rules.tokens),
        out: String::new(),
        parts: HashMap::new(),
        todo: Vec::new(),
        nonempty: BTreeSet::new(),
    };
    writer.definitions(rules);
    writer.out
}

/// The language in which an expression is written: rules consist of terminals, and terminals of
/// characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Level {
    Rule,
    Terminal,
}

struct Writer<'a> {
    rules: &'a Rules,
    /// For each rule, true if it matches the empty text.
    nullable: &'a [bool],
    /// The tokens that each set consists of, as Lark writes them.
    atoms: Vec<Vec<String>>,
    out: String,
    /// The names of expressions that are definitions of their own. The library limits the nesting
    /// within one.
    parts: HashMap<(Level, &'a Expr), String>,
    todo: Vec<(Level, &'a Expr, String)>,
    /// The terminals that can be empty and have a second definition without the empty text.
    nonempty: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn definitions(&mut self, rules: &'a Rules) {
        self.line("start", &format!("r{}", rules.root));
        for (index, rule) in rules.rules.iter().enumerate() {
            let text = self.body(Level::Rule, &rule.expr);
            self.line(&format!("r{index}"), &text);
        }
        while let Some((level, expr, name)) = self.todo.pop() {
            let text = self.body(level, expr);
            self.line(&name, &text);
        }
    }

    fn line(&mut self, name: &str, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{name}: {text}");
    }

    /// Return the right side of a definition.
    fn body(&mut self, level: Level, expr: &'a Expr) -> String {
        match expr {
            Expr::Sequence(items) if !items.is_empty() => {
                items.iter().map(|item| self.atom(level, item)).collect::<Vec<_>>().join(" ")
            }
            Expr::Choice(items) => {
                items.iter().map(|item| self.atom(level, item)).collect::<Vec<_>>().join(" | ")
            }
            Expr::Repeat(inner, min, max) => {
                let inner = self.atom(level, inner);
                match (min, max) {
                    (0, None) => format!("{inner}*"),
                    (1, None) => format!("{inner}+"),
                    (0, Some(1)) => format!("{inner}?"),
                    (min, None) => format!("{inner}{{{min},}}"),
                    (min, Some(max)) => format!("{inner}{{{min},{max}}}"),
                }
            }
            _ => self.atom(level, expr),
        }
    }

    /// Return an expression without structure, or the name of its definition.
    fn atom(&mut self, level: Level, expr: &'a Expr) -> String {
        match (level, expr) {
            (_, Expr::Chars(set)) => regex([set]),
            (_, Expr::Literal(chars)) => {
                let sets: Vec<CharSet> = chars.iter().map(|&c| CharSet::single(c)).collect();
                regex(&sets)
            }
            (_, Expr::Sequence(items)) if items.is_empty() => String::from("\"\""),
            (_, Expr::Token(index)) => match self.atoms.get(*index).map(Vec::as_slice) {
                Some([only]) => only.clone(),
                atoms => format!("({})", atoms.unwrap_or_default().join(" | ")),
            },
            (Level::Rule, Expr::Rule(index)) => format!("r{index}"),
            (Level::Rule, Expr::Terminal(inner)) if is_nullable(inner, self.nullable) => {
                // A lexer has no empty terminals, so the empty text is an alternative.
                let name = self.part(Level::Terminal, inner);
                if self.nonempty.insert(name.clone()) {
                    self.line(&format!("N{name}"), &format!("{name} & /(?s:.)+/"));
                }
                format!("(N{name} | \"\")")
            }
            (Level::Rule, Expr::Terminal(inner)) => self.part(Level::Terminal, inner),
            (Level::Terminal, Expr::Terminal(inner)) => self.atom(level, inner),
            (Level::Terminal, Expr::Rule(index)) => match self.rules.rules.get(*index) {
                Some(rule) => self.atom(level, &rule.expr),
                None => String::from("\"\""),
            },
            _ => self.part(level, expr),
        }
    }

    /// Return the name of the definition of `expr`, which is written later.
    fn part(&mut self, level: Level, expr: &'a Expr) -> String {
        if let Some(name) = self.parts.get(&(level, expr)) {
            return name.clone();
        }
        let name = match level {
            Level::Rule => format!("g{}", self.parts.len()),
            Level::Terminal => format!("T{}", self.parts.len()),
        };
        self.parts.insert((level, expr), name.clone());
        self.todo.push((level, expr, name.clone()));
        name
    }
}

/// Return the sets as a regular expression of one character of each.
fn regex<'a>(sets: impl IntoIterator<Item = &'a CharSet>) -> String {
    let mut out = String::from("/");
    sets.into_iter().for_each(|set| set.write_regex(&mut out));
    out.push('/');
    out
}

/// Return each set of tokens as a choice of disjoint ones. The library takes the first of several
/// sets that have a token, so sets that overlap would hide each other.
fn token_atoms(sets: &[Vec<(u32, u32)>]) -> Vec<Vec<String>> {
    let mut starts: Vec<u32> = sets.iter().flatten().flat_map(|&(first, last)| [first, last + 1]).collect();
    starts.sort_unstable();
    starts.dedup();
    let has = |set: &Vec<(u32, u32)>, id: u32| {
        let i = set.partition_point(|range| range.1 < id);
        set.get(i).is_some_and(|range| range.0 <= id)
    };
    let mut ranges: BTreeMap<Vec<bool>, Vec<String>> = BTreeMap::new();
    for (first, end) in starts.iter().zip(starts.iter().skip(1)) {
        let signature: Vec<bool> = sets.iter().map(|set| has(set, *first)).collect();
        if signature.contains(&true) {
            ranges.entry(signature).or_default().push(format!("{first}-{}", end - 1));
        }
    }
    let atoms = |index: usize| {
        let own = ranges.iter().filter(|(signature, _)| signature.get(index) == Some(&true));
        own.map(|(_, ranges)| format!("<[{}]>", ranges.join(","))).collect()
    };
    (0..sets.len()).map(atoms).collect()
}
