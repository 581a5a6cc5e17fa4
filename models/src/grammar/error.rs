//! Errors of compiling grammars and of following them.

use alloc::string::String;
use core::fmt;

use backstitch_kv::Token;

/// A language in which grammars are written.
///
/// # Example
/// ```
/// use backstitch_models::grammar::Language;
///
/// assert_eq!(Language::Gbnf.to_string(), "GBNF grammar");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// llama.cpp's grammars.
    Gbnf,
    /// A JSON schema.
    JsonSchema,
    /// Lark, as llguidance extends it.
    Lark,
    /// A regular expression.
    Regex,
}

/// A place in the text of a grammar.
///
/// # Example
/// ```
/// use backstitch_models::grammar::Place;
///
/// assert_eq!(Place { line: 3, column: 7 }.to_string(), "line 3, column 7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// Anything that can go wrong with a grammar.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::{Compiler, GrammarError};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let error = Compiler::new(model.vocab())?.gbnf("root ::= \"a\"\n  | [b").unwrap_err();
/// assert!(matches!(&error, GrammarError::Syntax { place, .. } if place.line == 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// The text breaks the rules of its language.
    #[error("{language}, {place}: {}; expected {wanted}", found_or_end(.found))]
    Syntax {
        /// The language of the text.
        language: Language,
        /// The place of the first thing that is wrong.
        place: Place,
        /// The text there, shortened.
        found: String,
        /// The thing that would be right.
        wanted: String,
    },
    /// A GBNF rule names one that the grammar does not define.
    #[error("GBNF grammar, {place}: rule {name:?} is not defined; add `{name} ::= ...`")]
    UnknownRule {
        /// The place of the name.
        place: Place,
        /// The name.
        name: String,
    },
    /// A GBNF rule can begin with itself, before any character.
    #[error(
        "GBNF grammar, {place}: rule {name:?} can begin with itself; write repetition as `x*` or put the \
         recursion behind a character"
    )]
    LeftRecursion {
        /// The place of the rule's definition.
        place: Place,
        /// The name of the rule.
        name: String,
    },
    /// A GBNF rule names a token that the vocabulary does not have.
    #[error("GBNF grammar, {place}: {text:?} is not one token of this vocabulary")]
    UnknownToken {
        /// The place of the token.
        place: Place,
        /// The token as the grammar writes it.
        text: String,
    },
    /// A JSON schema asks for something that is not supported.
    #[error("JSON schema, at {pointer:?}: {problem}")]
    Schema {
        /// The place of the keyword, as a JSON pointer.
        pointer: String,
        /// The fault, and the thing that would be right.
        problem: String,
    },
    /// Something is larger than a grammar may be.
    #[error("the grammar has {found} {what}; at most {limit} are accepted")]
    TooLarge {
        /// The thing that is too large, with its unit.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The largest size.
        limit: usize,
    },
    /// The grammar cannot be compiled for a reason that its text does not show.
    #[error("the {language} cannot be compiled: {reason}")]
    Compile {
        /// The language of the text.
        language: Language,
        /// The reason.
        reason: String,
    },
    /// The [`Cancel`](crate::Cancel) of the compiler was made before the grammar was compiled.
    #[error("compiling the grammar was cancelled")]
    Cancelled,
    /// The vocabulary cannot be indexed.
    #[error("the vocabulary cannot be used with grammars: {reason}")]
    Vocabulary {
        /// The reason.
        reason: String,
    },
    /// A token is not one of those that the grammar allows now. The matcher has not changed.
    #[error("token {} is not allowed here by the grammar", .token.0)]
    Token {
        /// The token.
        token: Token,
    },
    /// More tokens should be taken back than were accepted. The matcher has not changed.
    #[error("cannot take back {found} tokens: the grammar has accepted {limit}")]
    Rollback {
        /// The number of tokens to take back.
        found: usize,
        /// The number of tokens accepted.
        limit: usize,
    },
    /// The grammar became too complex at this point of the text, or no token of the vocabulary can
    /// continue it. A rollback to an earlier point makes the matcher usable again.
    #[error("the grammar allows no token here: {reason}")]
    Stuck {
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gbnf => "GBNF grammar",
            Self::JsonSchema => "JSON schema",
            Self::Lark => "Lark grammar",
            Self::Regex => "regular expression",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Return the text that was found, or that it ends.
fn found_or_end(found: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| match found {
        "" => f.write_str("the text ends"),
        found => write!(f, "found {found:?}"),
    })
}

/// Return `text` up to about `limit` bytes, for messages.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|&end| end <= limit).last() {
        Some(end) if end < text.len() => alloc::format!("{}...", text.get(..end).unwrap_or_default()),
        _ => String::from(text),
    }
}

/// Return the place of the byte `offset` of `text`.
pub(super) fn place_of(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    }
}

/// Return the error for a regular expression that is none, if its place is known.
pub(super) fn regex_error(text: &str, error: &regex_syntax::Error) -> Option<GrammarError> {
    let (span, reason) = match error {
        regex_syntax::Error::Parse(error) => (*error.span(), alloc::format!("{}", error.kind())),
        regex_syntax::Error::Translate(error) => (*error.span(), alloc::format!("{}", error.kind())),
        _ => return None,
    };
    Some(GrammarError::Syntax {
        language: Language::Regex,
        place: Place { line: span.start.line, column: span.start.column },
        found: shortened(text.get(span.start.offset..).unwrap_or_default(), 40),
        wanted: alloc::format!("a regular expression ({reason})"),
    })
}
