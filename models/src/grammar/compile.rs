//! Compiling grammars against a vocabulary.

use alloc::{borrow::ToOwned, format, string::String, sync::Arc, vec::Vec};
use std::thread;

use backstitch_kv::Token;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie,
};
use llguidance::{Logger, ParserFactory};
use serde_json::Value;

use super::error::{GrammarError, Language, Place, regex_error, shortened};
use super::limits::{check_optional, check_pattern, check_schema, check_text};
use super::probe::{self, Probe};
use super::schema::Relaxation;
use super::{Matcher, gbnf, lark, references, schema, steps};
use crate::Cancel;
use crate::vocab::Vocab;

/// The longest token that can match text, in bytes. The index of the vocabulary cannot hold tokens
/// of more than 1024.
const MAX_TOKEN_LEN: usize = 1000;
/// The number of bytes that all tokens may have together, a limit of the index.
const MAX_VOCAB_BYTES: usize = 4_000_000;
/// The number of tokens with the same bytes that are told apart. The index searches them one by
/// one.
const MAX_ALIKE: usize = 16;
/// The stack on which grammars are compiled. Compiling recurses as deeply as rules are chained.
const STACK: usize = 128 << 20;

/// A vocabulary in the form that grammars need. It compiles grammars, and all requests of a model
/// share it: a clone is a reference.
///
/// Tokens match text by their bytes. Control tokens and the unknown token never match text, even
/// if a grammar spells their text out; GBNF and Lark can ask for them by name. Tokens that end a
/// generation are allowed exactly where the grammar accepts.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::Compiler;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let compiler = Compiler::new(model.vocab())?;
/// let grammar = compiler.regex("[0-9]{4}-[0-9]{2}")?;
/// assert!(grammar.accepts("2026-11"));
/// assert!(!grammar.accepts("2026-1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Compiler {
    inner: Arc<Inner>,
    cancel: Cancel,
}

struct Inner {
    factory: ParserFactory,
    vocab: Vocab,
}

/// A compiled grammar, bound to the vocabulary of its [`Compiler`]. It never changes, and a clone
/// is a reference.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::Compiler;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let grammar = Compiler::new(model.vocab())?.gbnf("root ::= \"yes\" | \"no\"")?;
/// assert!(grammar.accepts("no") && !grammar.accepts("maybe"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Grammar {
    compiler: Compiler,
    start: Arc<llguidance::Matcher>,
    source: Arc<Source>,
}

/// The source of a grammar.
struct Source {
    language: Language,
    grammar: TopLevelGrammar,
    /// The strings of a schema that may be too complex to follow.
    probes: Vec<Probe>,
    /// The parts of a schema that were left out.
    relaxed: Vec<Relaxation>,
}

impl Compiler {
    /// Index a vocabulary. This takes some ten milliseconds for 50,000 tokens.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] if it is too large for the index.
    pub fn new(vocab: &Vocab) -> Result<Self, GrammarError> {
        let failed = |reason: String| GrammarError::Vocabulary { reason };
        let words = words(vocab);
        let n_bytes: usize = words.iter().map(Vec::len).sum();
        if n_bytes > MAX_VOCAB_BYTES {
            return Err(failed(format!("its tokens have {n_bytes} bytes; at most {MAX_VOCAB_BYTES} fit")));
        }
        let n_vocab = u32::try_from(words.len())
            .ok()
            .filter(|&n| n > 0 && n < 1 << 24)
            .ok_or_else(|| failed(format!("it has {} tokens; from 1 to 2^24 are supported", words.len())))?;
        let eog: Vec<u32> = vocab.eog().iter().map(|token| token.0).collect();
        let build = || {
            let trie = TokTrie::from(&TokRxInfo::new(n_vocab, INVALID_TOKEN), &words);
            let trie = if eog.is_empty() { trie } else { trie.with_eos_tokens(&eog) };
            let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let slices = SlicedBiasComputer::general_slices();
            let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)?;
            factory.quiet();
            Ok(factory)
        };
        let factory = llguidance::panic_utils::catch_unwind(std::panic::AssertUnwindSafe(build));
        let factory = factory.map_err(|error| failed(first_line(&format!("{error}"))))?;
        let inner = Arc::new(Inner { factory, vocab: vocab.clone() });
        Ok(Self { inner, cancel: Cancel::new() })
    }

    /// Return a compiler with the same index whose work `cancel` ends: all that it compiles, and
    /// [`Grammar::within`] of its grammars, return [`GrammarError::Cancelled`] soon after the
    /// request. It is checked between the phases of compiling. The longest of them, in the library,
    /// has limits that it reaches within about a second.
    ///
    /// # Example
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use backstitch_models::grammar::{Compiler, GrammarError};
    /// use backstitch_models::{Cancel, Model};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let deadline = Instant::now() + Duration::from_secs(10);
    /// let cancel = Cancel::from_fn(move || Instant::now() >= deadline);
    /// let compiler = Compiler::new(model.vocab())?.with_cancel(cancel.clone());
    /// assert!(compiler.regex("[0-9]+").is_ok());
    /// cancel.cancel();
    /// assert_eq!(compiler.regex("[0-9]+").map(drop), Err(GrammarError::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_cancel(&self, cancel: Cancel) -> Self {
        Self { inner: Arc::clone(&self.inner), cancel }
    }

    /// Return the vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.inner.vocab
    }

    /// Compile a JSON schema.
    ///
    /// The meaning that JSON schemas leave open is llama.cpp's: properties come in the order of the
    /// schema, an object with `properties` has no others unless it lists none or
    /// `additionalProperties` says so, integers have at most 16 digits, and a schema without `type`
    /// takes it from its other keywords. White space between values is at most 40 characters long.
    /// `oneOf` means `anyOf` unless its options only ask for properties; `uniqueItems` and unknown
    /// formats are ignored, and bounds of the number of properties where some are optional.
    /// [`Grammar::relaxed`] lists what is not followed.
    ///
    /// Strings and names that the schema leaves open may have any character escaped (`\u00e9`). In
    /// those that it spells out (`const`, `enum`, `pattern` and names of properties), characters
    /// are escaped only where JSON demands it.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] if the text is not JSON; [`GrammarError::Schema`] for keywords that
    /// are not supported, such as `contains` and `if`, for a `not` that no grammar can follow, and
    /// at a place where visibly no value can match; [`GrammarError::TooLarge`];
    /// [`GrammarError::Compile`] if no value can match for another reason or the schema is too
    /// complex.
    pub fn json_schema(&self, text: &str) -> Result<Grammar, GrammarError> {
        check_text(text)?;
        let schema: Value = serde_json::from_str(text).map_err(|error| GrammarError::Syntax {
            language: Language::JsonSchema,
            place: Place { line: error.line().max(1), column: error.column().max(1) },
            found: line_at(text, error.line()),
            wanted: format!("JSON ({error})"),
        })?;
        self.json_schema_value(&schema)
    }

    /// Compile a JSON schema that was parsed already, as [`Compiler::json_schema`] does.
    ///
    /// # Errors
    /// Those of [`Compiler::json_schema`], except [`GrammarError::Syntax`].
    pub fn json_schema_value(&self, schema: &Value) -> Result<Grammar, GrammarError> {
        check_schema(schema)?;
        let (schema, relaxed) = schema::adapted(schema, &self.cancel)?;
        let probes = probe::strings(&schema);
        let grammar = TopLevelGrammar::from_json_schema(schema);
        self.compile(Source { language: Language::JsonSchema, grammar, probes, relaxed })
    }

    /// Compile the grammar of all JSON objects.
    ///
    /// # Errors
    /// [`GrammarError::Compile`] if the system gives no thread to compile on.
    pub fn json_object(&self) -> Result<Grammar, GrammarError> {
        self.json_schema("{\"type\": \"object\"}")
    }

    /// Compile a regular expression, which the whole output has to match. Its syntax is that of the
    /// crate `regex`, without word boundaries and with `^` and `$` only at its ends.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`], [`GrammarError::TooLarge`]; [`GrammarError::Compile`] if it needs
    /// something that is not supported or is too complex.
    pub fn regex(&self, text: &str) -> Result<Grammar, GrammarError> {
        check_pattern(text)?;
        let parsed = regex_syntax::ParserBuilder::new().nest_limit(100).build().parse(text);
        parsed.map_err(|error| {
            let reason = first_line(&format!("{error}"));
            regex_error(text, &error).unwrap_or(GrammarError::Compile { language: Language::Regex, reason })
        })?;
        // The whole output has to match anyway.
        let text = text.strip_prefix('^').unwrap_or(text);
        let is_escaped = |text: &str| text.chars().rev().take_while(|&c| c == '\\').count() % 2 == 1;
        let text = text.strip_suffix('$').filter(|rest| !is_escaped(rest)).unwrap_or(text);
        let grammar = TopLevelGrammar::from_regex(text);
        self.compile(Source::new(Language::Regex, grammar))
    }

    /// Compile a Lark grammar, with the extensions and limits of llguidance. Its terminals are
    /// greedy.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`] with the place, [`GrammarError::TooLarge`];
    /// [`GrammarError::Compile`] if it is too complex.
    pub fn lark(&self, text: &str) -> Result<Grammar, GrammarError> {
        check_text(text)?;
        lark::check(text)?;
        let probes = lark_probes(text)?;
        let grammar = TopLevelGrammar::from_lark(text.to_owned());
        self.compile(Source { probes, ..Source::new(Language::Lark, grammar) })
    }

    /// Compile a GBNF grammar, with the syntax and the meaning that llama.cpp gives it. The output
    /// has to match the rule `root`.
    ///
    /// # Errors
    /// [`GrammarError::Syntax`], [`GrammarError::UnknownRule`], [`GrammarError::UnknownToken`] and
    /// [`GrammarError::LeftRecursion`] with the place; [`GrammarError::TooLarge`];
    /// [`GrammarError::Compile`] if it is too complex.
    pub fn gbnf(&self, text: &str) -> Result<Grammar, GrammarError> {
        self.gbnf_from(text, "root")
    }

    /// Compile a GBNF grammar as [`Compiler::gbnf`] does; the output has to match the rule `root`.
    ///
    /// # Errors
    /// Those of [`Compiler::gbnf`].
    pub fn gbnf_from(&self, text: &str, root: &str) -> Result<Grammar, GrammarError> {
        check_text(text)?;
        let lark = gbnf::to_lark(text, root, &self.inner.vocab)?;
        self.compile(Source::new(Language::Gbnf, TopLevelGrammar::from_lark(lark)))
    }

    /// Compile a grammar on a thread with a stack of its own, and look at its first masks: one that
    /// no token can follow is refused here, before anything is evaluated.
    fn compile(&self, source: Source) -> Result<Grammar, GrammarError> {
        let (inner, cancel) = (Arc::clone(&self.inner), self.cancel.clone());
        let (language, source) = (source.language, Arc::new(source));
        let failed = move |reason: String| GrammarError::Compile { language, reason };
        let given = Arc::clone(&source);
        let work = move || {
            check_cancel(&cancel)?;
            check_schemas(&given.grammar)?;
            given.probes.iter().try_for_each(|probe| {
                check_cancel(&cancel)?;
                probe.check(&inner.factory)
            })?;
            let start = parsed(&inner.factory, language, given.grammar.clone())?;
            check_cancel(&cancel)?;
            probe::check_first(&start).map_err(failed)?;
            check_cancel(&cancel)?;
            Ok(start)
        };
        let worker = thread::Builder::new().name("grammar".to_owned()).stack_size(STACK).spawn(work);
        let worker = worker.map_err(|error| failed(format!("no thread to compile on: {error}")))?;
        let start = worker.join().unwrap_or_else(|_| Err(failed("the compiler panicked".to_owned())))?;
        Ok(Grammar { compiler: self.clone(), start: Arc::new(start), source })
    }
}

/// Let the library compile a grammar.
///
/// # Errors
/// [`GrammarError::Syntax`] for a Lark grammar, [`GrammarError::Compile`].
pub(super) fn parsed(
    factory: &ParserFactory,
    language: Language,
    grammar: TopLevelGrammar,
) -> Result<llguidance::Matcher, GrammarError> {
    let (init, caps) = (GrammarInit::Serialized(grammar), InferenceCapabilities::default());
    let failed = |reason: &str| GrammarError::Compile { language, reason: first_line(reason) };
    let parser = factory.create_parser_from_init_ext(init, Logger::new(0, 0), caps, limits());
    let parser = parser.map_err(|error| match (language, format!("{error:#}")) {
        (Language::Lark, reason) => lark::error(&reason),
        (_, reason) => failed(&reason),
    })?;
    let start = llguidance::Matcher::new(Ok(parser));
    match start.get_error() {
        Some(reason) => Err(failed(&reason)),
        None => Ok(start),
    }
}

/// Return an error if `cancel` was made.
pub(super) fn check_cancel(cancel: &Cancel) -> Result<(), GrammarError> {
    if cancel.is_cancelled() { Err(GrammarError::Cancelled) } else { Ok(()) }
}

impl Source {
    fn new(language: Language, grammar: TopLevelGrammar) -> Self {
        Self { language, grammar, probes: Vec::new(), relaxed: Vec::new() }
    }
}

impl Grammar {
    /// Return the compiler of the grammar.
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Compile a Lark grammar that refers to this one as `@body`. Text can stand around that of
    /// this grammar so, as reasoning does before an answer.
    ///
    /// # Errors
    /// Those of [`Compiler::lark`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_models::grammar::Compiler;
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let year = Compiler::new(model.vocab())?.regex("[0-9]{4}")?;
    /// let sentence = year.within("start: \"It is \" @body \".\"")?;
    /// assert!(sentence.accepts("It is 2026."));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn within(&self, lark: &str) -> Result<Self, GrammarError> {
        check_text(lark)?;
        lark::check(lark)?;
        let mut grammar = TopLevelGrammar::from_lark(lark.to_owned());
        let mut inner = self.source.grammar.grammars.clone();
        inner.iter_mut().take(1).for_each(|body| body.name = Some("body".to_owned()));
        grammar.grammars.append(&mut inner);
        let relaxed = self.source.relaxed.clone();
        self.compiler.compile(Source { relaxed, ..Source::new(Language::Lark, grammar) })
    }

    /// Return true if the grammar is a JSON schema.
    pub fn is_json_schema(&self) -> bool {
        self.source.language == Language::JsonSchema
    }

    /// Return the parts of the JSON schema that were left out, so that outputs may break them. A
    /// schema without any is followed to the letter.
    pub fn relaxed(&self) -> &[Relaxation] {
        &self.source.relaxed
    }

    /// Make a matcher at the beginning of a text.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.clone())
    }

    /// Return the library's matcher at the beginning of a text, with caches of its own.
    pub(super) fn start(&self) -> llguidance::Matcher {
        self.start.deep_clone()
    }

    /// Return true if `text` matches the grammar, character by character.
    ///
    /// The result is also false if the vocabulary lacks tokens for single bytes of the text.
    pub fn accepts(&self, text: &str) -> bool {
        let mut tokens = Vec::new();
        let mut matcher = self.matcher();
        text.bytes().all(|byte| {
            tokens.clear();
            self.spell(&[byte], &mut tokens) && tokens.iter().all(|&token| matcher.accept(token).is_ok())
        }) && matcher.is_accepting()
    }

    /// Append tokens whose bytes are `bytes` to `out`. Return false if the vocabulary has none.
    pub(super) fn spell(&self, bytes: &[u8], out: &mut Vec<Token>) -> bool {
        let trie = self.compiler.inner.factory.tok_env().tok_trie();
        let tokens = trie.greedy_tokenize(bytes);
        out.extend(tokens.iter().copied().map(Token));
        tokens.iter().map(|&token| trie.token(token).len()).sum::<usize>() == bytes.len()
    }
}

impl core::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Compiler").field("n_vocab", &self.inner.vocab.n_vocab()).finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Grammar {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Grammar").field("compiler", &self.compiler).finish_non_exhaustive()
    }
}

/// Return the bytes by which each token matches text; none for those that never do. Hidden tokens
/// are their text behind a byte that no text has.
fn words(vocab: &Vocab) -> Vec<Vec<u8>> {
    let mut n_alike = std::collections::HashMap::<&[u8], usize>::new();
    let tokens = (0..vocab.n_vocab() as u32).map(Token);
    tokens
        .map(|token| {
            let piece = vocab.piece(token);
            let is_hidden = vocab.is_hidden(token) || vocab.is_eog(token);
            let is_marked = piece.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER);
            let n = n_alike.entry(piece).or_default();
            *n += 1;
            match piece {
                _ if piece.len() > MAX_TOKEN_LEN || is_marked || *n > MAX_ALIKE => Vec::new(),
                [] => Vec::new(),
                _ if is_hidden => [&[TokTrie::SPECIAL_TOKEN_MARKER], piece].concat(),
                _ => piece.to_vec(),
            }
        })
        .collect()
}

/// Return limits that a hostile grammar reaches within a fraction of a second. Items cost little:
/// an object has some for each of its optional properties at one place, and a GBNF grammar some for
/// each character of each token.
fn limits() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 100_000,
        max_lexer_states: 50_000,
        max_items_in_row: 50_000,
        step_max_items: 4_000_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Check the references, the steps and the optional properties of all schemas in a grammar.
///
/// # Errors
/// [`GrammarError::TooLarge`].
fn check_schemas(grammar: &TopLevelGrammar) -> Result<(), GrammarError> {
    let check = |schema: &Value| {
        check_optional(schema)?;
        references::check(schema)?;
        steps::check(schema)
    };
    for part in &grammar.grammars {
        part.json_schema.iter().try_for_each(check)?;
        if let Some(text) = &part.lark_grammar {
            lark::schemas(text)?.iter().try_for_each(check)?;
        }
    }
    Ok(())
}

/// Return the strings of the schemas in a Lark grammar that may be too complex to follow.
///
/// # Errors
/// [`GrammarError::Syntax`] for a `%json` without a value.
fn lark_probes(text: &str) -> Result<Vec<Probe>, GrammarError> {
    Ok(lark::schemas(text)?.iter().flat_map(probe::strings).collect())
}

/// Return the first line of a message of the library, which can go on with a dump of its state.
pub(super) fn first_line(message: &str) -> String {
    shortened(message.lines().next().unwrap_or_default(), 300)
}

/// Return the line of `text` with a number from 1, shortened.
fn line_at(text: &str, line: usize) -> String {
    shortened(text.lines().nth(line.saturating_sub(1)).unwrap_or_default(), 60)
}
