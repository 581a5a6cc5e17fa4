//! What a chat template is given, and how it becomes values of the interpreter.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::budget::Budget;
use super::error::{ChatError, Fault};
use super::heap::Val;
use super::machine::{Eval, Machine};
use super::text::{Origin, Str};
use super::walk::MAX_DEPTH;
use super::{GenerationPrompt, Value};
use crate::Cancel;
use crate::vocab::Vocab;

/// Roles that templates make control tokens of, as in `<|` + role + `|>`. Any other role is a text that the
/// template was given.
const ROLES: [&str; 12] = [
    "assistant",
    "context",
    "developer",
    "document",
    "environment",
    "function",
    "ipython",
    "model",
    "observation",
    "system",
    "tool",
    "user",
];

/// A conversation and all else that a chat template may ask for.
///
/// Templates see `messages`, `tools`, `documents` (none if not given, as with the transformers library),
/// `bos_token`, `eos_token`, `add_generation_prompt`, and the variables that [`set`](Self::set) adds.
/// Messages are maps with at least a `role` and usually a `content`, which is a text or a list of parts;
/// assistants' messages may have `tool_calls` and `reasoning_content`.
///
/// ```
/// use backstitch_models::chat::{ChatTemplate, Conversation, Message, Value};
///
/// let template = ChatTemplate::from_source(
///     "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}\
///      {{ tools | tojson }}{{ thinking }}",
/// )?;
/// let conversation = Conversation::new([Message { role: "user", content: "Is it raining?" }])
///     .tools([Value::from_json(r#"{"name": "weather"}"#)?])
///     .set("thinking", false)
///     .tokens("<s>", "</s>");
/// let rendered = template.render(&conversation)?;
/// assert_eq!(rendered.as_str(), "<s>[user] Is it raining?\n[{\"name\": \"weather\"}]False");
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Conversation {
    messages: Vec<Value>,
    tools: Value,
    documents: Value,
    variables: Vec<(String, Value)>,
    prompt: GenerationPrompt,
    bos: String,
    eos: String,
    now: Option<Duration>,
    cancel: Option<Cancel>,
}

impl Conversation {
    /// Take messages, oldest first: [`Message`](super::Message)s or [`Value`]s. The text will end where the
    /// assistant is to speak.
    pub fn new<M: Into<Value>>(messages: impl IntoIterator<Item = M>) -> Self {
        Self {
            messages: messages.into_iter().map(Into::into).collect(),
            tools: Value::Null,
            documents: Value::Null,
            variables: Vec::new(),
            prompt: GenerationPrompt::Yes,
            bos: String::new(),
            eos: String::new(),
            now: None,
            cancel: None,
        }
    }

    /// Offer tools, each a description as JSON has it: `{"type": "function", "function": {"name": …,
    /// "parameters": …}}`.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Value>) -> Self {
        self.tools = Value::List(tools.into_iter().collect());
        self
    }

    /// Give documents to answer from.
    #[must_use]
    pub fn documents(mut self, documents: impl IntoIterator<Item = Value>) -> Self {
        self.documents = Value::List(documents.into_iter().collect());
        self
    }

    /// Set a further variable, such as `enable_thinking`; the last one of a name counts, also over those that
    /// this type sets.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Say whether the text ends with the beginning of the assistant's next message.
    #[must_use]
    pub fn prompt(mut self, prompt: GenerationPrompt) -> Self {
        self.prompt = prompt;
        self
    }

    /// Set the texts of the tokens at the beginning and end of a sequence, `bos_token` and `eos_token`.
    #[must_use]
    pub fn tokens(mut self, bos: &str, eos: &str) -> Self {
        (self.bos, self.eos) = (bos.into(), eos.into());
        self
    }

    /// Set the texts of the tokens at the beginning and end of a sequence to those of a vocabulary; empty
    /// where it has none.
    #[must_use]
    pub fn tokens_of(self, vocab: &Vocab) -> Self {
        let text = |token: Option<crate::Token>| {
            token.map_or(String::new(), |token| String::from_utf8_lossy(vocab.piece(token)).into_owned())
        };
        self.tokens(&text(vocab.bos()), &text(vocab.eos()))
    }

    /// Set the time since 1970-01-01 in UTC, for templates that write the date. Otherwise it is the system's;
    /// without one, 0.
    #[must_use]
    pub fn at(mut self, since_1970: Duration) -> Self {
        self.now = Some(since_1970);
        self
    }

    /// Let `cancel` end rendering, with [`ChatError::Cancelled`].
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }

    pub(super) fn asked_to_stop(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    pub(super) fn now(&self) -> Duration {
        self.now.unwrap_or_else(super::clock::now)
    }

    /// The bytes and the number of all values.
    pub(super) fn size(&self) -> Result<(usize, usize), ChatError> {
        let (mut n_bytes, mut n_values) = (self.bos.len() + self.eos.len(), 0);
        let given = self.messages.iter().chain([&self.tools, &self.documents]);
        let mut open: Vec<(&Value, u32)> =
            given.chain(self.variables.iter().map(|(_, value)| value)).map(|value| (value, 1)).collect();
        while let Some((value, depth)) = open.pop() {
            n_values += 1;
            if depth > MAX_DEPTH {
                return Err(Fault::failed("messages or variables nest too deep").at(0));
            }
            match value {
                Value::Str(text) => n_bytes += text.len(),
                Value::List(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Map(entries) => {
                    n_bytes += entries.iter().map(|(name, _)| name.len()).sum::<usize>();
                    open.extend(entries.iter().map(|(_, value)| (value, depth + 1)));
                }
                _ => {}
            }
        }
        Ok((n_bytes, n_values))
    }

    /// Makes everything known to `machine`.
    pub(super) fn give(&self, machine: &mut Machine<'_, '_>) -> Eval<()> {
        let mut messages = Vec::with_capacity(self.messages.len());
        for message in &self.messages {
            messages.push(value(machine, message, true)?);
        }
        let messages = machine.new_list(messages)?;
        machine.set_global("messages", messages);
        for (name, given) in [("tools", &self.tools), ("documents", &self.documents)] {
            let given = value(machine, given, false)?;
            machine.set_global(name, given);
        }
        for (name, text) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            let text = machine.new_text(text)?;
            machine.set_global(name, text);
        }
        machine.set_global("add_generation_prompt", Val::Bool(self.prompt == GenerationPrompt::Yes));
        for (name, given) in &self.variables {
            let given = value(machine, given, false)?;
            machine.set_global(name, given);
        }
        Ok(())
    }

    /// What rendering may cost.
    pub(super) fn budget<'i>(
        &self,
        interrupt: &'i dyn Fn() -> Option<Fault>,
        (n_bytes, n_values): (usize, usize),
    ) -> Budget<'i> {
        Budget::new(n_bytes, n_values, interrupt)
    }
}

/// A value on the heap. The role of a message counts as the template's text if it is a known one.
fn value(machine: &mut Machine<'_, '_>, given: &Value, is_message: bool) -> Eval<Val> {
    Ok(match given {
        Value::Null => Val::None,
        Value::Bool(truth) => Val::Bool(*truth),
        Value::Int(n) => Val::Int(*n),
        Value::Float(x) => Val::Float(*x),
        Value::Str(text) => {
            machine.budget.bytes(text.len() + 64)?;
            Val::Str(Str::new(text.to_string(), Origin::Value))
        }
        Value::List(items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.push(value(machine, item, false)?);
            }
            machine.new_list(values)?
        }
        Value::Map(entries) => {
            let dict = machine.new_dict()?;
            for (name, given) in entries {
                let is_role = is_message && name == "role";
                let given = match given {
                    Value::Str(role) if is_role && ROLES.contains(&role.as_str()) => {
                        Val::Str(Str::template(role))
                    }
                    other => value(machine, other, false)?,
                };
                machine.budget.bytes(name.len() + 64)?;
                machine.put(dict, Val::Str(Str::new(name.as_str(), Origin::Value)), given)?;
            }
            Val::Dict(dict)
        }
    })
}
