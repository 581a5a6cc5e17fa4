//! Values that a program passes to a chat template.

use alloc::string::String;
use alloc::vec::Vec;

use super::message::Message;

/// A JSON value: a message, a tool, a document, or any other variable of a chat template.
///
/// ```
/// use backstitch_models::chat::Value;
///
/// let message = Value::map([("role", "user".into()), ("content", Value::from("Hello"))]);
/// assert_eq!(message, Value::from_json(r#"{"role": "user", "content": "Hello"}"#)?);
/// assert_eq!(message.get("role"), Some(&"user".into()));
/// # Ok::<(), backstitch_models::chat::ChatError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Str(String),
    /// A list.
    List(Vec<Value>),
    /// Names with values, in this order. Of equal names the last one counts, at the position of the
    /// first.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// Make a map.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    ///
    /// let arguments = Value::map([("in", "Oslo".into())]);
    /// let call = Value::map([("name", "weather".into()), ("arguments", arguments)]);
    /// let place = call.get("arguments").and_then(|arguments| arguments.get("in"));
    /// assert_eq!(place, Some(&"Oslo".into()));
    /// ```
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Map(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// Return the value of `name`, if this is a map that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Map(entries) => {
                entries.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Return the text, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Return the items, if this is a list.
    ///
    /// # Example
    /// ```
    /// use backstitch_models::chat::Value;
    ///
    /// let value = Value::from(vec![1, 2]);
    /// assert_eq!(value.as_list(), Some(&[Value::Int(1), Value::Int(2)][..]));
    /// assert_eq!(value.as_str(), None);
    /// ```
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i32> for Value {
    fn from(n: i32) -> Self {
        Self::Int(n.into())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Self {
        Self::Float(x)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(items: Vec<T>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<Message<'_>> for Value {
    fn from(message: Message<'_>) -> Self {
        Self::map([("role", message.role.into()), ("content", message.content.into())])
    }
}

impl From<&Message<'_>> for Value {
    fn from(message: &Message<'_>) -> Self {
        (*message).into()
    }
}
