//! The input of a chat template, and its conversion to values of the interpreter.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::budget::Budget;
use super::error::{ChatError, Eval, Fault};
use super::heap::Val;
use super::machine::Machine;
use super::message::GenerationPrompt;
use super::text::{Origin, Str};
use super::value::Value;
use super::walk::MAX_DEPTH;

use crate::Cancel;
use crate::vocab::Vocab;

/// The roles that templates make control tokens of, as in `<|` + role + `|>`. They count as the
/// template's own text; any other role is input.
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

/// A conversation, with all other input of a chat template.
///
/// Templates see `messages`, `tools`, `documents` (none if not given, as with the transformers
/// library), `bos_token`, `eos_token`, `add_generation_prompt`, and the variables that
/// [`set`](Self::set) adds. A message is a map with at least a `role` and usually a `content`,
/// which is a text or a list of parts. An assistant's message may have `tool_calls` and
/// `reasoning_content`.
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
    /// The messages, oldest first.
    messages: Vec<Value>,
    /// A list of tools, or null.
    tools: Value,
    /// A list of documents, or null.
    documents: Value,
    /// Further variables, in the order in which they were set.
    variables: Vec<(String, Value)>,
    /// The end of the text.
    prompt: GenerationPrompt,
    /// The text of the beginning-of-sequence token.
    bos: String,
    /// The text of the end-of-sequence token.
    eos: String,
    /// The time since 1970 that the template sees; `None` asks the system.
    now: Option<Duration>,
    /// The request to cancel that ends rendering.
    cancel: Option<Cancel>,
}

impl Conversation {
    /// Make a conversation of messages, oldest first: [`Message`](super::Message)s or [`Value`]s.
    /// Its text will end at the beginning of the assistant's next message.
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

    /// Offer tools, each a description in JSON: `{"type": "function", "function": {"name": …,
    /// "parameters": …}}`.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatTemplate, Conversation, Message, Value};
    ///
    /// let template = ChatTemplate::from_source("{{ tools[0].function.name }}")?;
    /// let tool = Value::from_json(r#"{"type": "function", "function": {"name": "weather"}}"#)?;
    /// let conversation = Conversation::new([] as [Message; 0]).tools([tool]);
    /// assert_eq!(template.render(&conversation)?.as_str(), "weather");
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Value>) -> Self {
        self.tools = Value::List(tools.into_iter().collect());
        self
    }

    /// Add documents to answer from. Templates for retrieval see them as `documents`.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatTemplate, Conversation, Message, Value};
    ///
    /// let source = "{{ documents | map(attribute='title') | join }}";
    /// let template = ChatTemplate::from_source(source)?;
    /// let document = Value::map([("title", "Almanac".into()), ("text", "It rains.".into())]);
    /// let conversation = Conversation::new([] as [Message; 0]).documents([document]);
    /// assert_eq!(template.render(&conversation)?.as_str(), "Almanac");
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    #[must_use]
    pub fn documents(mut self, documents: impl IntoIterator<Item = Value>) -> Self {
        self.documents = Value::List(documents.into_iter().collect());
        self
    }

    /// Set a further variable, such as `enable_thinking`. The last value of a name counts, even
    /// over the variables that this type sets.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatTemplate, Conversation, Message};
    ///
    /// let template = ChatTemplate::from_source("{% if enable_thinking %}<think>{% endif %}")?;
    /// let conversation = Conversation::new([] as [Message; 0]).set("enable_thinking", true);
    /// assert_eq!(template.render(&conversation)?.as_str(), "<think>");
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Set the end of the text; see [`GenerationPrompt`].
    #[must_use]
    pub fn prompt(mut self, prompt: GenerationPrompt) -> Self {
        self.prompt = prompt;
        self
    }

    /// Set the texts of the tokens at the beginning and the end of a sequence, `bos_token` and
    /// `eos_token`.
    #[must_use]
    pub fn tokens(mut self, bos: &str, eos: &str) -> Self {
        (self.bos, self.eos) = (bos.into(), eos.into());
        self
    }

    /// Set the texts of the tokens at the beginning and the end of a sequence to those of a
    /// vocabulary; empty for tokens that it does not have.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Model;
    /// use backstitch_models::chat::{ChatTemplate, Conversation, Message};
    ///
    /// let model = Model::from_bytes(backstitch_demo::GGUF)?;
    /// let template = ChatTemplate::from_source("{{ bos_token }}")?;
    /// let conversation = Conversation::new([] as [Message; 0]).tokens_of(model.vocab());
    /// assert_eq!(template.render(&conversation)?.as_str(), "<|endoftext|>");
    /// # Ok::<(), backstitch_models::Error>(())
    /// ```
    #[must_use]
    pub fn tokens_of(self, vocab: &Vocab) -> Self {
        let text = |token: Option<crate::Token>| {
            token.map_or(String::new(), |token| String::from_utf8_lossy(vocab.piece(token)).into_owned())
        };
        self.tokens(&text(vocab.bos()), &text(vocab.eos()))
    }

    /// Set the time since 1970-01-01 in UTC, for templates that write the date. The default is the
    /// system's clock, or 0 without one.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::{ChatTemplate, Conversation, Message};
    /// use core::time::Duration;
    ///
    /// let template = ChatTemplate::from_source("{{ strftime_now('%d %B %Y') }}")?;
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let conversation = Conversation::new([] as [Message; 0]).at(31 * day);
    /// assert_eq!(template.render(&conversation)?.as_str(), "01 February 1970");
    /// # Ok::<(), backstitch_models::chat::ChatError>(())
    /// ```
    #[must_use]
    pub fn at(mut self, since_1970: Duration) -> Self {
        self.now = Some(since_1970);
        self
    }

    /// Let `cancel` end rendering, with [`ChatError::Cancelled`].
    ///
    /// # Example
    /// ```
    /// use backstitch_models::Cancel;
    /// use backstitch_models::chat::{ChatError, ChatTemplate, Conversation, Message};
    ///
    /// let template = ChatTemplate::from_source("{{ messages }}")?;
    /// let cancel = Cancel::new();
    /// cancel.cancel();
    /// let conversation = Conversation::new([] as [Message; 0]).cancel(cancel);
    /// assert_eq!(template.render(&conversation).unwrap_err(), ChatError::Cancelled);
    /// # Ok::<(), ChatError>(())
    /// ```
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Return true if the request to cancel was made.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Return the time since 1970-01-01.
    pub(super) fn now(&self) -> Duration {
        self.now.unwrap_or_else(super::clock::now)
    }

    /// Return the number of bytes and the number of values of the input.
    ///
    /// # Errors
    /// [`ChatError::Failed`] if values nest too deep.
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

    /// Define all variables in `machine`.
    ///
    /// # Errors
    /// [`Fault::Work`] if the input exceeds the budget.
    pub(super) fn bind_to(&self, machine: &mut Machine<'_, '_>) -> Eval<()> {
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

    /// Return the budget of rendering an input of this size.
    pub(super) fn budget<'i>(
        &self,
        interrupt: &'i dyn Fn() -> Option<Fault>,
        (n_bytes, n_values): (usize, usize),
    ) -> Budget<'i> {
        Budget::new(n_bytes, n_values, interrupt)
    }
}

/// Make a value on the heap. The role of a message counts as the template's text if it is one of
/// [`ROLES`].
pub(super) fn value(machine: &mut Machine<'_, '_>, given: &Value, is_message: bool) -> Eval<Val> {
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
