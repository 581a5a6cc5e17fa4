//! Regular expressions in schemas.

use std::panic::AssertUnwindSafe;

use llguidance::{derivre::RegexBuilder, panic_utils, regex_to_lark};
use regex_syntax::ast::ErrorKind;

/// The use that can be made of a regular expression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The library can follow it.
    Followed,
    /// It may mean something, but not to the library: look-around, word boundaries, references.
    Ignored,
    /// It is no regular expression in any dialect.
    Broken,
}

/// Return the use that can be made of `pattern`.
pub(super) fn usable(pattern: &str) -> Use {
    // As the library reads it.
    let text = regex_to_lark(pattern, "dw");
    let parse = || RegexBuilder::new().mk_regex_for_serach(&text);
    if panic_utils::catch_unwind(AssertUnwindSafe(parse)).is_ok() {
        return Use::Followed;
    }
    match regex_syntax::Parser::new().parse(pattern) {
        Err(regex_syntax::Error::Parse(error)) if is_mistake(error.kind()) => Use::Broken,
        _ => Use::Ignored,
    }
}

fn is_mistake(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::GroupUnclosed
            | ErrorKind::GroupUnopened
            | ErrorKind::RepetitionMissing
            | ErrorKind::RepetitionCountInvalid
            | ErrorKind::ClassRangeInvalid
            | ErrorKind::EscapeUnexpectedEof
    )
}
