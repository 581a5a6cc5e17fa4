//! Calls as JSON objects: `{"name": "f", "arguments": {…}}`, alone or in a list.
//!
//! Models mix the keys of their formats, therefore all known ones are accepted everywhere:
//! `name`, `tool_name` or `function` (also as an object around name and arguments), `arguments`,
//! `parameters` or `args`, and `id`, `tool_call_id` or `call_id`. The name may also be the key of
//! the arguments. An object with any other key is no call.

use alloc::format;
use alloc::string::{String, ToString};
use core::mem::take;

use super::cursor::{Cursor, Step};
use super::output::Output;
use super::scanner::Scanner;
use super::syntax::{CallSyntax, Keys};
use super::tools::{Context, Tools};
use crate::chat::Value;

/// The reader of an object or of a list of objects.
#[derive(Debug)]
pub(super) struct JsonCalls {
    /// True within a list.
    is_list: bool,
    /// True if an identifier may stand behind the arguments, so that they have to wait for it.
    late_id: bool,
    /// True if a key that is the name of a tool means nothing else.
    names_are_keys: bool,
    /// The position in the list.
    phase: Phase,
    /// The object that is read.
    object: Object,
    /// The offset behind the last call that is complete.
    pub(super) complete: usize,
}

/// A position in a list of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the list or the only object.
    Start,
    /// Before an object.
    Item,
    /// In an object.
    Object,
    /// Behind an object.
    AfterItem,
}

/// A position in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// Before the first key or the end.
    FirstKey,
    /// Before a key.
    BeforeKey,
    /// In a key.
    Key,
    /// Before the colon.
    Colon,
    /// Before a value.
    BeforeValue,
    /// In a value.
    Value,
    /// In arguments that are passed on as they come.
    Arguments,
    /// Behind a value.
    AfterValue,
}

/// The reader of one object.
#[derive(Debug)]
struct Object {
    /// The position.
    member: Member,
    /// True if a key that is the name of a tool means nothing else.
    names_are_keys: bool,
    /// True within the object of a key `function`.
    is_inner: bool,
    /// The key of the value that is read.
    key: String,
    /// The JSON text that is read.
    text: String,
    /// The checker of the JSON text that is read.
    scanner: Scanner,
    /// The name of a tool.
    name: Option<String>,
    /// The identifier of the call.
    id: Option<String>,
    /// The arguments as JSON text.
    arguments: Option<String>,
    /// True if the call was begun in the output.
    has_begun: bool,
}

impl Object {
    /// Make a reader of an object.
    fn new(names_are_keys: bool) -> Self {
        Self {
            names_are_keys,
            member: Member::FirstKey,
            is_inner: false,
            key: String::new(),
            text: String::new(),
            scanner: Scanner::new(),
            name: None,
            id: None,
            arguments: None,
            has_begun: false,
        }
    }
}

impl JsonCalls {
    /// Make a reader that begins before the object or list.
    pub(super) fn new(syntax: &CallSyntax) -> Self {
        let late_id = syntax.has_late_id();
        let names_are_keys = matches!(syntax.keys, Keys::NameIsKey);
        Self {
            is_list: false,
            late_id,
            names_are_keys,
            phase: Phase::Start,
            object: Object::new(names_are_keys),
            complete: 0,
        }
    }

    /// Return true if there is a call, or one was begun.
    pub(super) fn is_calling(&self) -> bool {
        self.object.name.is_some() || self.complete > 0
    }

    /// Read as far as there is text.
    pub(super) fn advance(
        &mut self,
        cursor: &mut Cursor<'_>,
        context: Context<'_>,
        output: &mut Output,
    ) -> Step {
        loop {
            if self.phase == Phase::Object {
                match self.object.advance(cursor, context.tools, self.late_id, output) {
                    Step::Done => {
                        output.complete_call();
                        self.complete = cursor.at;
                        if !self.is_list {
                            return Step::Done;
                        }
                        self.phase = Phase::AfterItem;
                    }
                    step => return step,
                }
            }
            cursor.skip_space();
            let Some(c) = cursor.peek() else {
                return cursor.more();
            };
            match (self.phase, c) {
                (Phase::Start, '[') => (self.is_list, self.phase) = (true, Phase::Item),
                (Phase::Start | Phase::Item, '{') => {
                    (self.object, self.phase) = (Object::new(self.names_are_keys), Phase::Object);
                }
                (Phase::AfterItem, ',') if context.parallel => self.phase = Phase::Item,
                (Phase::AfterItem, ']') => {
                    cursor.skip();
                    return Step::Done;
                }
                _ => return Step::Failed,
            }
            cursor.skip();
        }
    }
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The name of a tool.
    Name,
    /// The arguments.
    Arguments,
    /// The identifier.
    Id,
    /// The name, or an object around name and arguments.
    Function,
    /// The word `function`.
    Type,
    /// The name of a tool as key of its arguments.
    Tool,
}

impl Object {
    /// Read behind the opening brace as far as there is text.
    fn advance(
        &mut self,
        cursor: &mut Cursor<'_>,
        tools: &Tools,
        late_id: bool,
        output: &mut Output,
    ) -> Step {
        loop {
            let step = match self.member {
                Member::Key => self.scanner.advance(cursor, &mut self.text),
                Member::Value => self.scanner.advance(cursor, &mut self.text),
                Member::Arguments => {
                    self.text.clear();
                    let step = self.scanner.advance(cursor, &mut self.text);
                    output.arguments(&self.text);
                    step
                }
                _ => {
                    cursor.skip_space();
                    if cursor.peek().is_some() { Step::Done } else { cursor.more() }
                }
            };
            if step != Step::Done {
                return step;
            }
            let fits = match self.member {
                Member::Key => self.end_key(tools),
                Member::Value => self.end_value(tools),
                Member::Arguments => {
                    self.member = Member::AfterValue;
                    true
                }
                Member::BeforeValue => self.begin_value(cursor, tools, late_id, output),
                Member::FirstKey | Member::AfterValue if cursor.peek() == Some('}') && !self.is_inner => {
                    cursor.skip();
                    return self.end(output);
                }
                _ => self.punctuation(cursor),
            };
            if !fits {
                return Step::Failed;
            }
        }
    }

    /// Pass the character between keys and values, and return true if it fits.
    fn punctuation(&mut self, cursor: &mut Cursor<'_>) -> bool {
        match (self.member, cursor.peek()) {
            (Member::FirstKey | Member::BeforeKey, Some('"')) => {
                self.begin_text(Member::Key);
                return true;
            }
            (Member::FirstKey | Member::AfterValue, Some('}')) => {
                (self.is_inner, self.member) = (false, Member::AfterValue);
            }
            (Member::Colon, Some(':')) => self.member = Member::BeforeValue,
            (Member::AfterValue, Some(',')) => self.member = Member::BeforeKey,
            _ => return false,
        }
        cursor.skip();
        true
    }

    /// Begin a JSON text at the position.
    fn begin_text(&mut self, member: Member) {
        self.member = member;
        self.scanner = Scanner::new();
        self.text.clear();
    }

    /// Return the meaning of the last key, unless it has none here.
    fn role(&self, tools: &Tools) -> Option<Role> {
        let role = match self.key.as_str() {
            key if self.names_are_keys && tools.get(key).is_some() => Role::Tool,
            "name" | "tool_name" => Role::Name,
            "arguments" | "parameters" | "args" => Role::Arguments,
            "id" | "tool_call_id" | "call_id" => Role::Id,
            "function" => Role::Function,
            "type" => Role::Type,
            key if tools.get(key).is_some() => Role::Tool,
            _ => return None,
        };
        let has_name = self.name.is_some();
        let has_arguments = self.has_begun || self.arguments.is_some();
        let is_new = match role {
            Role::Name => !has_name,
            Role::Arguments => !has_arguments,
            Role::Id => self.id.is_none(),
            Role::Function => !has_name && !self.is_inner,
            Role::Type => true,
            Role::Tool => !has_name && !has_arguments,
        };
        is_new.then_some(role)
    }

    /// Take a key, and return true if it is one of a call.
    fn end_key(&mut self, tools: &Tools) -> bool {
        let key = Value::from_json(&self.text).unwrap_or_default();
        self.key = key.as_str().unwrap_or("").to_string();
        self.member = Member::Colon;
        self.role(tools).is_some()
    }

    /// Decide how a value is read by its first character, and return true if the value fits.
    fn begin_value(
        &mut self,
        cursor: &mut Cursor<'_>,
        tools: &Tools,
        late_id: bool,
        output: &mut Output,
    ) -> bool {
        let is_map = cursor.peek() == Some('{');
        match self.role(tools) {
            Some(Role::Function) if is_map => {
                cursor.skip();
                (self.is_inner, self.member) = (true, Member::FirstKey);
                return true;
            }
            Some(Role::Tool) if !is_map => return false,
            Some(Role::Tool) => self.name = Some(self.key.clone()),
            _ => {}
        }
        let is_arguments =
            matches!(self.role(tools), Some(Role::Arguments)) || self.name.as_ref() == Some(&self.key);
        match &self.name {
            Some(name) if is_arguments && is_map && !late_id => {
                output.begin_call(name, self.id.clone());
                self.has_begun = true;
                self.begin_text(Member::Arguments);
            }
            _ => self.begin_text(Member::Value),
        }
        true
    }

    /// Take a value, and return true if it fits.
    fn end_value(&mut self, tools: &Tools) -> bool {
        self.member = Member::AfterValue;
        let Ok(value) = Value::from_json(&self.text) else {
            return false;
        };
        let name = value.as_str().filter(|name| tools.get(name).is_some());
        match (self.role(tools), value.as_str()) {
            (Some(Role::Type), Some("function")) => true,
            (Some(Role::Name | Role::Function), _) => {
                self.name = name.map(ToString::to_string);
                self.name.is_some()
            }
            (Some(Role::Id), id) => {
                self.id = id.map(ToString::to_string).or_else(|| match value {
                    Value::Int(n) => Some(format!("{n}")),
                    _ => None,
                });
                true
            }
            // The arguments of a name that was the key.
            (Some(Role::Arguments) | None, _) => {
                self.arguments = object_text(&value, &mut self.text);
                self.arguments.is_some()
            }
            _ => false,
        }
    }

    /// Make the call behind the closing brace, unless it was begun.
    fn end(&mut self, output: &mut Output) -> Step {
        let Some(name) = &self.name else {
            return Step::Failed;
        };
        if !self.has_begun {
            output.begin_call(name, self.id.take());
            output.arguments(self.arguments.as_deref().unwrap_or("{}"));
        }
        Step::Done
    }
}

/// Return the JSON text of arguments: `text` if `value`, which it stands for, is an object, or the
/// text within if it is a string that has an object as JSON text.
fn object_text(value: &Value, text: &mut String) -> Option<String> {
    match value {
        Value::Map(_) => Some(take(text)),
        Value::Null => Some("{}".to_string()),
        Value::Str(inner) if matches!(Value::from_json(inner), Ok(Value::Map(_))) => Some(inner.clone()),
        _ => None,
    }
}
