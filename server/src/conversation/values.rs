//! JSON as values of templates, and a reader of JSON objects that names the field at fault.

use super::error::ConversationError;
use backstitch_models::chat::Value as TemplateValue;
use serde_json::{Map, Value};

/// Return JSON as a value of templates. Keys keep their order, which reaches the model.
pub(super) fn template_value(value: &Value) -> TemplateValue {
    match value {
        Value::Null => TemplateValue::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(n) => n.into(),
            None => number.as_f64().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => TemplateValue::List(items.iter().map(template_value).collect()),
        Value::Object(entries) => {
            TemplateValue::map(entries.iter().map(|(name, value)| (name.as_str(), template_value(value))))
        }
    }
}

/// A JSON object somewhere in a body, with its path. Null counts as absent.
#[derive(Clone)]
pub(super) struct Object<'a> {
    /// The path of the object; empty for the body.
    path: String,
    entries: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// Return the body.
    pub fn body(entries: &'a Map<String, Value>) -> Self {
        Object { path: String::new(), entries }
    }

    /// Return the object that `value` at `path` is.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if it is not an object.
    pub fn at(path: String, value: &'a Value) -> Result<Self, ConversationError> {
        match value {
            Value::Object(entries) => Ok(Object { path, entries }),
            _ => Err(ConversationError::wrong(path, "an object")),
        }
    }

    /// Return the error that the object is a part of a kind that the model cannot see.
    pub fn media(&self, kind: &'static str) -> ConversationError {
        ConversationError::Media { kind, field: self.path.clone() }
    }

    /// Return the path of a field.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    /// Return a field, `None` if it is absent or null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.entries.get(name).filter(|value| !value.is_null())
    }

    /// Return a text.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if the field is something else.
    pub fn str(&self, name: &str) -> Result<Option<&'a str>, ConversationError> {
        self.take(name, "a string", Value::as_str)
    }

    /// Return a text that has to be there.
    ///
    /// # Errors
    /// [`ConversationError::Missing`]; [`ConversationError::Wrong`] if the field is something else.
    pub fn need_str(&self, name: &str) -> Result<&'a str, ConversationError> {
        self.str(name)?.ok_or_else(|| ConversationError::missing(self.path(name)))
    }

    /// Return a truth value.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if the field is something else.
    pub fn bool(&self, name: &str) -> Result<Option<bool>, ConversationError> {
        self.take(name, "true or false", Value::as_bool)
    }

    /// Return a number, which has to be a whole one.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if the field is something else.
    pub fn whole(&self, name: &str) -> Result<Option<f64>, ConversationError> {
        self.take(name, "a whole number", |value| value.as_f64().filter(|number| number.fract() == 0.0))
    }

    /// Return an object.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if the field is something else.
    pub fn object(&self, name: &str) -> Result<Option<Object<'a>>, ConversationError> {
        self.get(name).map(|value| Object::at(self.path(name), value)).transpose()
    }

    /// Return the items of a list with their paths; nothing if the field is absent.
    ///
    /// # Errors
    /// [`ConversationError::Wrong`] if the field is something else.
    pub fn list(&self, name: &str) -> Result<Vec<(String, &'a Value)>, ConversationError> {
        let items = self.take(name, "an array", Value::as_array)?;
        let path = self.path(name);
        let items = items.into_iter().flatten().enumerate();
        Ok(items.map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
    }

    /// Return the entries.
    pub fn entries(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.entries.iter()
    }

    /// Return a field as `read` sees it.
    fn take<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConversationError> {
        let wrong = || ConversationError::wrong(self.path(name), expected);
        self.get(name).map(|value| read(value).ok_or_else(wrong)).transpose()
    }
}
