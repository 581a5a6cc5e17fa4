//! Constraints on the output of a request: a grammar or a JSON schema.

use super::fields::Fields;
use crate::http::{ApiError, App, Client, ErrorKind};
use backstitch_models::Token;
use backstitch_models::grammar::{Compiler, Grammar, GrammarError, GrammarSampler, Trigger, Triggers};
use serde_json::{Map, Value};

/// The names of the fields that constrain the output. A request may have one of them.
const NAMES: [&str; 4] = ["grammar", "json_schema", "regex", "lark"];
/// The line with which llama-server's clients begin a grammar in Lark.
const LARK: &str = "%llguidance";

/// A constraint on the output of a request. Clones share the grammar.
#[derive(Clone, Debug)]
pub struct Constraint {
    grammar: Grammar,
    /// The field that it was read from; empty for a grammar of calls.
    name: &'static str,
    /// Texts from which on the grammar applies; from the beginning if there are none.
    triggers: Option<Triggers>,
}

impl Constraint {
    /// Read the constraint of a request: a `grammar` in GBNF, or in Lark if it begins with
    /// `%llguidance`; a `json_schema`, a `regex`, or a grammar in `lark`. With `grammar_lazy` it
    /// applies from one of the `grammar_triggers` on.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a text that is no grammar, and for two constraints.
    pub fn read(fields: Fields<'_>, app: &App, client: &Client) -> Result<Option<Self>, ApiError> {
        let is_there = |name: &&str| fields.get(name).is_some_and(|value| value.as_str() != Some(""));
        let mut names = NAMES.iter().copied().filter(is_there);
        let Some(name) = names.next() else { return Ok(None) };
        if let Some(other) = names.next() {
            let text = format!("\"{name}\" and \"{other}\" cannot be used together");
            return Err(ApiError::invalid(text).about(other));
        }
        let compiler = app.compiler(client)?;
        let text = || fields.str(name).map(Option::unwrap_or_default);
        let grammar = match name {
            "json_schema" => compiler.json_schema_value(fields.get(name).unwrap_or(&Value::Null)),
            "regex" => compiler.regex(text()?),
            "lark" => compiler.lark(text()?),
            _ => match text()? {
                lark if lark.starts_with(LARK) => compiler.lark(lark),
                gbnf => compiler.gbnf(gbnf),
            },
        };
        let wrong = |error| ApiError::invalid(format!("\"{name}\": {error}")).about(name);
        let grammar = grammar.map_err(wrong)?;
        let is_lazy = fields.bool("grammar_lazy")?.unwrap_or(false);
        let triggers = if is_lazy { Some(read_triggers(fields)?) } else { None };
        Ok(Some(Constraint { grammar, name, triggers }))
    }

    /// Make a constraint of a grammar in Lark, which applies from one of `triggers` on; from the
    /// beginning if there are none.
    ///
    /// # Errors
    /// Those of [`Compiler::lark`] and [`Triggers::new`].
    pub(crate) fn of_lark(
        compiler: &Compiler,
        lark: &str,
        triggers: &[Trigger],
    ) -> Result<Self, GrammarError> {
        let grammar = compiler.lark(lark)?;
        let triggers = if triggers.is_empty() { None } else { Some(Triggers::new(triggers)?) };
        Ok(Constraint { grammar, name: "", triggers })
    }

    /// Return the name of the field that it was read from.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Return true if the constraint is a JSON schema.
    pub(crate) fn is_schema(&self) -> bool {
        self.grammar.is_json_schema()
    }

    /// Return the places of what a JSON schema says that the constraint does not follow.
    pub(crate) fn relaxed(&self) -> impl Iterator<Item = String> {
        self.grammar.relaxed().iter().map(ToString::to_string)
    }

    /// Return true if the constraint applies from the beginning.
    pub(crate) fn is_eager(&self) -> bool {
        self.triggers.is_none()
    }

    /// Return the constraint within a grammar in Lark, which refers to it as `@body`.
    ///
    /// # Errors
    /// Those of [`Grammar::within`].
    pub(crate) fn within(&self, lark: &str) -> Result<Self, GrammarError> {
        Ok(Constraint { grammar: self.grammar.within(lark)?, triggers: None, ..self.clone() })
    }

    /// Return a sampler for a text behind `n_prompt` tokens.
    pub fn sampler(&self, n_prompt: usize) -> GrammarSampler {
        match &self.triggers {
            Some(triggers) => GrammarSampler::lazy(&self.grammar, n_prompt, triggers.clone()),
            None => GrammarSampler::new(&self.grammar, n_prompt),
        }
    }
}

/// Read triggers: objects with llama.cpp's number of a kind, and a value or a token.
fn read_triggers(fields: Fields<'_>) -> Result<Triggers, ApiError> {
    let wanted = "an array of objects {\"type\": 0 to 3, \"value\": string, \"token\": number}";
    let wrong = || ApiError::field("grammar_triggers", wanted);
    let read = |trigger: &Map<String, Value>| {
        let trigger = Fields::new(trigger);
        let value = || trigger.str("value").ok().flatten().map(str::to_owned);
        match trigger.u64("type").ok()?? {
            0 => Some(Trigger::Token(Token(u32::try_from(trigger.u64("token").ok()??).ok()?))),
            1 => value().map(Trigger::Word),
            2 => value().map(Trigger::Pattern),
            3 => value().map(Trigger::FullPattern),
            _ => None,
        }
    };
    let triggers = fields.array("grammar_triggers")?.unwrap_or_default();
    let triggers: Option<Vec<Trigger>> = triggers.iter().map(|trigger| read(trigger.as_object()?)).collect();
    let triggers = triggers.filter(|triggers| !triggers.is_empty()).ok_or_else(wrong)?;
    Ok(Triggers::new(&triggers)?)
}

impl From<GrammarError> for ApiError {
    fn from(error: GrammarError) -> Self {
        let kind = match &error {
            GrammarError::Vocabulary { .. } => ErrorKind::NotSupported,
            GrammarError::Cancelled => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        ApiError::new(kind, error.to_string())
    }
}
