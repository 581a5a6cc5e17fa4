//! Lark grammars: checks before the library reads them, and its errors.

use alloc::{format, string::String};

use super::compile::first_line;
use super::error::{GrammarError, Language, Place};

/// The number of rules and brackets of a grammar. The library recurses over both, so they bound
/// the stack that it needs.
const MAX_NODES: usize = 4000;

/// Check that compiling `text` cannot recurse too deeply.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check(text: &str) -> Result<(), GrammarError> {
    // Those in strings count too, because a string can only be told from code by parsing it all.
    let found = text.bytes().filter(|byte| b"([{:".contains(byte)).count();
    if found > MAX_NODES {
        return Err(GrammarError::TooLarge { what: "rules and brackets", found, limit: MAX_NODES });
    }
    Ok(())
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
