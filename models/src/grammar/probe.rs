//! First masks, computed while a grammar is compiled.
//!
//! The library computes masks when they are needed, and may find only then that a grammar is too
//! complex. What can be known before is looked at here: the first mask of a grammar, and those
//! inside of the strings of a schema whose patterns count many repetitions.

use alloc::{borrow::ToOwned, collections::BTreeSet, format, string::String, vec::Vec};

use llguidance::ParserFactory;
use llguidance::api::TopLevelGrammar;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Map, Value};

use super::compile::{first_line, parsed};
use super::error::{GrammarError, Language};
use super::steps;

/// The number of repetitions, of a pattern and of the characters of its text, from which on its
/// masks are looked at. Half of it is always followed.
const MIN_REPETITIONS: usize = 5000;
/// The number of strings that are looked at.
const MAX_PROBES: usize = 32;
/// The texts behind which masks are looked at: the library follows each kind of character in its
/// own way.
const TEXTS: [&str; 5] = ["\"", "a", "a", " ", "1"];

/// The texts at the beginning of a grammar behind which masks are looked at, if it has them.
const FIRST: [&str; 3] = ["", "{", "["];

/// A string of a schema whose masks are looked at.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The JSON pointer of the pattern in the schema that was written.
    pointer: String,
    schema: Value,
}

impl Probe {
    /// Check that the library can compute the masks of the string.
    ///
    /// # Errors
    /// [`GrammarError::Schema`] with the place of the pattern.
    pub(super) fn check(&self, factory: &ParserFactory) -> Result<(), GrammarError> {
        let grammar = TopLevelGrammar::from_json_schema(self.schema.clone());
        // A string without any value may be an optional one, which is left out.
        let Ok(mut matcher) = parsed(factory, Language::JsonSchema, grammar) else { return Ok(()) };
        let trie = factory.tok_env().tok_trie();
        for text in TEXTS {
            let tokens = trie.greedy_tokenize(text.as_bytes());
            let is_allowed = matcher.try_consume_tokens(&tokens).is_ok_and(|n| n == tokens.len());
            if !is_allowed && !matcher.is_error() {
                continue;
            }
            if let Err(error) = matcher.compute_mask_or_eos() {
                let reason = first_line(&format!("{error}"));
                let problem = format!(
                    "the pattern and the lengths beside it are too complex together ({reason}); lower \
                     `maxLength` or the numbers of repetitions"
                );
                return Err(GrammarError::Schema { pointer: self.pointer.clone(), problem });
            }
        }
        Ok(())
    }
}

/// Check that the library can compute the first masks of a grammar.
///
/// # Errors
/// Return the reason.
pub(super) fn check_first(start: &llguidance::Matcher) -> Result<(), String> {
    let Ok(env) = start.tok_env() else { return Ok(()) };
    for text in FIRST {
        let mut matcher = start.deep_clone();
        let tokens = env.tok_trie().greedy_tokenize(text.as_bytes());
        let is_allowed = matcher.try_consume_tokens(&tokens).is_ok_and(|n| n == tokens.len());
        if (!is_allowed && !matcher.is_error()) || matcher.is_stopped() && !matcher.is_error() {
            continue;
        }
        matcher.compute_mask_or_eos().map_err(|error| {
            let reason = first_line(&format!("{error}"));
            format!("it is too complex, or no token of the vocabulary can continue it ({reason})")
        })?;
    }
    Ok(())
}

/// Return the strings of a schema that may be too complex, each once.
pub(super) fn strings(schema: &Value) -> Vec<Probe> {
    let (mut probes, mut known) = (Vec::new(), BTreeSet::new());
    // Each with the least length of text that schemas of the same value around it allow.
    let mut todo = Vec::from([(String::from("#"), schema, None, false)]);
    while let Some((pointer, value, max, has_names)) = todo.pop() {
        match value {
            Value::Object(map) => {
                let max = least(max, own_max(map));
                if let Some(schema) =
                    complex_string(map, max).filter(|schema| known.insert(format!("{schema}")))
                {
                    probes.push(Probe { pointer: format!("{pointer}/pattern"), schema });
                }
                let escaped = |key: &String| key.replace('~', "~0").replace('/', "~1");
                let inner = steps::schemas(map, has_names);
                let inner = inner.filter(|(_, value, _)| value.is_object() || value.is_array());
                let max = |key: &str| ["allOf", "anyOf", "oneOf"].contains(&key).then_some(max).flatten();
                for (key, value, has_names) in inner {
                    todo.push((format!("{pointer}/{}", escaped(key)), value, max(key), has_names));
                }
            }
            Value::Array(values) => {
                let items = values.iter().enumerate();
                todo.extend(items.map(|(i, value)| (format!("{pointer}/{i}"), value, max, false)));
            }
            _ => {}
        }
    }
    probes.truncate(MAX_PROBES);
    probes
}

/// Return the lesser of two lengths, if there are any.
fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// Return the length of texts that `map` allows, or a part that holds for all of them.
fn own_max(map: &Map<String, Value>) -> Option<u64> {
    let length = |schema: &Value| schema.get("maxLength").and_then(Value::as_u64);
    let parts = map.get("allOf").and_then(Value::as_array).into_iter().flatten();
    least(map.get("maxLength").and_then(Value::as_u64), parts.filter_map(length).min())
}

/// Return the schema of the strings of `map` alone, if its pattern counts many repetitions; with
/// the length `max`, if there is one.
fn complex_string(map: &Map<String, Value>, max: Option<u64>) -> Option<Value> {
    let pattern = map.get("pattern").and_then(Value::as_str)?;
    let min = map.get("minLength").and_then(Value::as_u64);
    let n_characters = max.or(min).map_or(1, |n| usize::try_from(n).unwrap_or(usize::MAX)).max(1);
    let n_repetitions = regex_syntax::parse(pattern).map_or(1, |hir| repetitions(&hir));
    if n_repetitions < 2 || n_repetitions.saturating_mul(n_characters) < MIN_REPETITIONS {
        return None;
    }
    let kept = ["pattern", "format", "minLength"];
    let kept = kept.into_iter().filter_map(|key| Some((key.to_owned(), map.get(key)?.clone())));
    let options = serde_json::json!({"lenient": true});
    let own = [("type".to_owned(), "string".into()), ("x-guidance".to_owned(), options)];
    let length = max.map(|max| ("maxLength".to_owned(), max.into()));
    Some(kept.chain(length).chain(own).collect::<Map<_, _>>().into())
}

/// Return the number of parts that an expression has once its repetitions are written out.
fn repetitions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Repetition(repetition) => {
            let n = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            n.saturating_mul(repetitions(&repetition.sub))
        }
        HirKind::Capture(capture) => repetitions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(repetitions).filter(|n| *n > 1).fold(0, usize::saturating_add).max(1)
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => 1,
    }
}
