//! Regular expressions in schemas.

use std::panic::AssertUnwindSafe;

use llguidance::api::ParserLimits;
use llguidance::derivre::RegexBuilder;
use llguidance::{GrammarBuilder, JsonCompileOptions, panic_utils, regex_to_lark};
use regex_syntax::ast::ErrorKind;
use serde_json::{Value, json};

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

/// Return true if the library finds a text that matches a pattern and has a format. There can be
/// none: a time without a zone has no place in the format `time`, but zod writes it so.
pub(super) fn fits(pattern: &Value, format: &Value) -> bool {
    let schema = json!({"type": "string", "pattern": pattern, "format": format});
    let options = JsonCompileOptions { lenient: true, ..JsonCompileOptions::default() };
    let builder = GrammarBuilder::new(None, ParserLimits::default());
    panic_utils::catch_unwind(AssertUnwindSafe(|| options.json_to_llg(builder, schema))).is_ok()
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
