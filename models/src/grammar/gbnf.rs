//! GBNF, the grammars of llama.cpp.
//!
//! A grammar is parsed, checked and translated into llguidance's Lark dialect, in these steps:
//!
//! - `parse.rs` reads the text into rules (`Rule`, `Expr`) and reports errors with their places.
//! - `check.rs` refuses rules that can begin with themselves, as llama.cpp does, and long chains of
//!   rules, and finds the rules that are regular.
//! - `merge.rs` chooses the terminals.
//! - `emit.rs` writes the Lark grammar.
//!
//! The two languages differ in one point that matters. GBNF has characters only, and all ways to
//! read a text count. Lark has terminals, and its lexer takes the longest match of all terminals
//! that are possible at a place, so `"a"* "ab"` would refuse "aab". A terminal that is one
//! character is always right, but costs a step of the parser for each character of each token.
//! Longer ones are used only where the longest match is the only one; `merge.rs` says when.
//!
//! One difference is left. Where a token match and characters are possible at the same place, and
//! one token could be read as both, it counts as the token match alone. Outputs match the grammar
//! even so.

mod alphabet;
mod automaton;
mod charset;
mod check;
mod contexts;
mod emit;
mod merge;
mod parse;

use alloc::{boxed::Box, string::String, vec::Vec};

use self::charset::CharSet;
use super::error::GrammarError;
use crate::vocab::Vocab;

/// A rule of a grammar.
#[derive(Clone, Debug)]
struct Rule {
    name: String,
    /// The byte offset of the definition.
    offset: usize,
    expr: Expr,
}

/// The right side of a rule, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Expr {
    /// One character of a set.
    Chars(CharSet),
    /// The characters of a string of at least one character.
    Literal(Vec<char>),
    /// One token of a set, by its index among those of the grammar.
    Token(usize),
    /// The rule with an index.
    Rule(usize),
    /// All of a list, one after the other; nothing if it is empty.
    Sequence(Vec<Expr>),
    /// One of a list.
    Choice(Vec<Expr>),
    /// The expression at least so many times, and at most so many if there is a limit above 0.
    Repeat(Box<Expr>, u32, Option<u32>),
    /// A regular expression that becomes one terminal. Only `merge.rs` makes it.
    Terminal(Box<Expr>),
}

/// The rules of a grammar, and the sets of tokens that they mention.
#[derive(Clone, Debug)]
struct Rules {
    rules: Vec<Rule>,
    /// The index of the rule to begin with.
    root: usize,
    /// Sets of tokens, each as ranges of ids in ascending order.
    tokens: Vec<Vec<(u32, u32)>>,
}

impl Expr {
    /// Return the parts of the expression.
    fn children(&self) -> &[Expr] {
        match self {
            Self::Sequence(items) | Self::Choice(items) => items,
            Self::Repeat(inner, ..) | Self::Terminal(inner) => core::slice::from_ref(inner),
            Self::Chars(_) | Self::Literal(_) | Self::Token(_) | Self::Rule(_) => &[],
        }
    }

    /// Call `visit` for the expression and everything in it.
    fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        self.children().iter().for_each(|child| child.walk(visit));
    }
}

/// Translate a GBNF grammar that begins with the rule `root` into a Lark grammar that accepts the
/// same texts.
///
/// # Errors
/// Those of [`Compiler::gbnf`](super::Compiler::gbnf), except `Compile`.
pub(super) fn to_lark(text: &str, root: &str, vocab: &Vocab) -> Result<String, GrammarError> {
    let mut rules = parse::parse(text, root, vocab)?;
    check::refuse_left_recursion(&rules, text)?;
    check::refuse_long_chains(&rules)?;
    merge::choose_terminals(&mut rules);
    Ok(emit::lark(&rules))
}

#[cfg(test)]
mod tests;
