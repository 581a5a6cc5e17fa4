//! Lark grammars: checks before the library reads them, and its errors.

mod scan;

use alloc::{format, string::String, vec::Vec};
use std::collections::HashMap;

use serde_json::Value;

use self::scan::{Piece, pieces};
use super::compile::first_line;
use super::error::{GrammarError, Language, Place};
use super::{chains, limits};

/// The number of rules, terminals and brackets that lead to each other. The library recurses over
/// them, so they bound the stack that it needs.
const MAX_CHAIN: usize = 4000;

/// Check that compiling `text` cannot recurse too deeply, and the sizes of what is in it.
///
/// # Errors
/// [`GrammarError::TooLarge`]; [`GrammarError::Syntax`] for a `%json` without a value.
pub(super) fn check(text: &str) -> Result<(), GrammarError> {
    let mut items = Items::default();
    for piece in pieces(text) {
        match piece? {
            Piece::Pattern(pattern) => limits::check_pattern(pattern)?,
            Piece::Json(schema) => limits::check_schema(&schema)?,
            Piece::Name(name) => items.name(name),
            Piece::Open => items.open(),
            Piece::Bar => items.is_begun = true,
            Piece::Line => items.is_begun = false,
            Piece::Other => {}
        }
    }
    let (found, limit) = (chains::heaviest(&items.weights, &items.uses), MAX_CHAIN);
    if found > limit {
        let what = "rules and brackets that lead to each other";
        return Err(GrammarError::TooLarge { what, found, limit });
    }
    Ok(())
}

/// Return the values in JSON that `text` has.
///
/// # Errors
/// [`GrammarError::Syntax`] for a `%json` without a value.
pub(super) fn schemas(text: &str) -> Result<Vec<Value>, GrammarError> {
    let schema = |piece| match piece {
        Ok(Piece::Json(schema)) => Some(Ok(schema)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    };
    pieces(text).filter_map(schema).collect()
}

/// The rules, terminals and statements of a grammar, which are lines and those behind them that
/// begin with `|`.
#[derive(Default)]
struct Items<'t> {
    indices: HashMap<&'t str, usize>,
    /// The number of colons and brackets of each item.
    weights: Vec<usize>,
    /// The items that each one mentions.
    uses: Vec<Vec<usize>>,
    current: usize,
    /// True if the line belongs to the current item.
    is_begun: bool,
}

impl<'t> Items<'t> {
    fn add(&mut self) -> usize {
        self.weights.push(0);
        self.uses.push(Vec::new());
        self.weights.len() - 1
    }

    fn name(&mut self, name: &'t str) {
        let index = match self.indices.get(name) {
            Some(&known) => known,
            None => {
                let index = self.add();
                self.indices.insert(name, index);
                index
            }
        };
        if core::mem::replace(&mut self.is_begun, true) {
            self.uses.get_mut(self.current).into_iter().for_each(|uses| uses.push(index));
        } else {
            self.current = index;
        }
    }

    fn open(&mut self) {
        if !core::mem::replace(&mut self.is_begun, true) {
            self.current = self.add();
        }
        self.weights.get_mut(self.current).into_iter().for_each(|weight| *weight += 1);
    }
}

/// Return the error for a message of the library, which begins with `LINE(COLUMN): ` or
/// `at LINE(COLUMN): ` where it knows the place.
pub(super) fn error(message: &str) -> GrammarError {
    let reason = first_line(message);
    match place(&reason) {
        Some((place, rest)) => GrammarError::Syntax {
            language: Language::Lark,
            place,
            found: String::from(message.lines().nth(1).unwrap_or_default().trim()),
            wanted: format!("a Lark grammar ({rest})"),
        },
        None => GrammarError::Compile { language: Language::Lark, reason },
    }
}

fn place(reason: &str) -> Option<(Place, &str)> {
    let (line, rest) = reason.strip_prefix("at ").unwrap_or(reason).split_once('(')?;
    let (column, rest) = rest.split_once("): ")?;
    Some((Place { line: line.parse().ok()?, column: column.parse().ok()? }, rest))
}
