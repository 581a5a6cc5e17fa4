//! Triggers: what has to appear in a text before its grammar applies.

use alloc::{string::String, vec::Vec};

use backstitch_kv::Token;
use regex_automata::Input;
use regex_automata::meta::{Config, Regex};
use regex_automata::util::captures::Captures;

use super::error::{GrammarError, Language, regex_error};
use super::limits::{check_pattern, check_texts};

/// The memory that the automata of one pattern may take.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The number of triggers of one sampler.
const MAX_TRIGGERS: usize = 4096;
/// The memory that all compiled patterns of one sampler may take.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// Something in a generated text from which on a grammar applies.
///
/// # Example
/// ```
/// use backstitch_models::grammar::{Trigger, Triggers};
///
/// let triggers = [Trigger::Word("<tool_call>".into()), Trigger::Pattern(r"\w+(\{)".into())];
/// assert!(Triggers::new(&triggers).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A token. The grammar applies from this token on.
    Token(Token),
    /// A text. The grammar applies from its beginning on, also in the middle of a token.
    Word(String),
    /// A text as the beginning of the whole.
    Start(String),
    /// A regular expression that matches some part of the text. The grammar applies from its first
    /// group that matched something, or from the match if no group did.
    Pattern(String),
    /// A regular expression that matches the whole text so far.
    FullPattern(String),
}

/// Compiled triggers.
///
/// # Example
/// ```
/// use backstitch_models::grammar::{GrammarError, Trigger, Triggers};
///
/// let error = Triggers::new(&[Trigger::Pattern("(a".into())]).unwrap_err();
/// assert!(matches!(error, GrammarError::Syntax { .. }));
/// ```
#[derive(Clone, Debug)]
pub struct Triggers {
    tokens: Vec<Token>,
    words: Vec<Vec<u8>>,
    starts: Vec<Vec<u8>>,
    patterns: Vec<Regex>,
}

impl Trigger {
    /// Return the text; none for a token.
    fn text(&self) -> &str {
        match self {
            Self::Token(_) => "",
            Self::Word(text) | Self::Start(text) | Self::Pattern(text) | Self::FullPattern(text) => text,
        }
    }
}

impl Triggers {
    /// Compile `triggers`. The first that applies counts.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] if a pattern is no regular expression; [`GrammarError::Compile`] if
    /// one is too large; [`GrammarError::TooLarge`] if there are too many or their texts are too
    /// long.
    pub fn new(triggers: &[Trigger]) -> Result<Self, GrammarError> {
        check("triggers", triggers.len(), MAX_TRIGGERS)?;
        check_texts(triggers.iter().map(Trigger::text))?;
        let mut all =
            Self { tokens: Vec::new(), words: Vec::new(), starts: Vec::new(), patterns: Vec::new() };
        for trigger in triggers {
            match trigger {
                Trigger::Token(token) => all.tokens.push(*token),
                Trigger::Word(word) => all.words.push(word.as_bytes().to_vec()),
                Trigger::Start(start) => all.starts.push(start.as_bytes().to_vec()),
                Trigger::Pattern(pattern) => all.add(compiled(pattern)?)?,
                Trigger::FullPattern(pattern) => {
                    compiled(pattern)?;
                    all.add(compiled(&alloc::format!(r"\A(?:{pattern})\z"))?)?;
                }
            }
        }
        Ok(all)
    }

    fn add(&mut self, pattern: Regex) -> Result<(), GrammarError> {
        self.patterns.push(pattern);
        let n_bytes = self.patterns.iter().map(Regex::memory_usage).sum();
        check("bytes in the patterns of triggers", n_bytes, MAX_COMPILED_BYTES)
    }

    /// Return true if `token` is a trigger.
    pub(super) fn has_token(&self, token: Token) -> bool {
        self.tokens.contains(&token)
    }

    /// Return the byte of `text` from `from` on at which the grammar begins, if one of the triggers
    /// is there. The bytes before `known` have no word from `from` on.
    pub(super) fn find(&self, text: &[u8], known: usize, from: usize) -> Option<usize> {
        let words = self.words.iter().filter_map(|word| {
            let from = known.saturating_sub(word.len().saturating_sub(1)).max(from);
            let found = text.get(from..)?.windows(word.len().max(1)).position(|part| part == word)?;
            Some(from + found)
        });
        if from == 0 && self.starts.iter().any(|start| text.starts_with(start)) {
            return Some(0);
        }
        words.min().or_else(|| self.patterns.iter().find_map(|pattern| begin(pattern, text, from)))
    }
}

/// Return the beginning of the first group that matched something, or of the match, which begins at
/// `from` or later.
fn begin(pattern: &Regex, text: &[u8], from: usize) -> Option<usize> {
    let mut captures: Captures = pattern.create_captures();
    pattern.search_captures(&Input::new(text).range(from.min(text.len())..), &mut captures);
    let whole = captures.get_match()?;
    let mut groups = captures.iter().skip(1).flatten();
    Some(groups.find(|group| !group.is_empty()).map_or(whole.start(), |group| group.start))
}

fn check(what: &'static str, found: usize, limit: usize) -> Result<(), GrammarError> {
    if found > limit {
        return Err(GrammarError::TooLarge { what, found, limit });
    }
    Ok(())
}

fn compiled(pattern: &str) -> Result<Regex, GrammarError> {
    check_pattern(pattern)?;
    let config = Config::new()
        .nfa_size_limit(Some(MAX_PATTERN_BYTES))
        .hybrid_cache_capacity(MAX_PATTERN_BYTES)
        .utf8_empty(false);
    let syntax = regex_automata::util::syntax::Config::new().nest_limit(100).utf8(false);
    let built = Regex::builder().configure(config).syntax(syntax).build(pattern);
    built.map_err(|error| {
        let syntax = error.syntax_error().and_then(|syntax| regex_error(pattern, syntax));
        syntax.unwrap_or_else(|| GrammarError::Compile {
            language: Language::Regex,
            reason: alloc::format!("trigger pattern: {error}"),
        })
    })
}
