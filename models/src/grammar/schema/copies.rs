//! The values that are copied to say what a schema leaves.

use alloc::vec::Vec;

use serde_json::{Value, json};

/// The values that may still be copied or made, with each 64 bytes of a text as one.
pub(super) struct Copies(usize);

impl Copies {
    /// Begin with `limit` values.
    pub(super) fn new(limit: usize) -> Self {
        Self(limit)
    }

    /// Return the values that are left.
    pub(super) fn n_left(&self) -> usize {
        self.0
    }

    /// Count `n` values; `None` if they are too many.
    pub(super) fn take(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.checked_sub(n)?;
        Some(())
    }

    /// Return a copy of `value`; `None` if it is too large.
    pub(super) fn copied(&mut self, value: &Value) -> Option<Value> {
        self.take_all(value)?;
        Some(value.clone())
    }

    /// Count the values in `value`, itself included. Nothing is looked at beyond the limit.
    fn take_all(&mut self, value: &Value) -> Option<()> {
        self.take(1)?;
        match value {
            Value::Object(map) => map.iter().try_for_each(|(name, value)| {
                self.take(name.len() / 64)?;
                self.take_all(value)
            }),
            Value::Array(values) => values.iter().try_for_each(|value| self.take_all(value)),
            Value::String(text) => self.take(text.len() / 64),
            _ => Some(()),
        }
    }

    /// Return the schema of lists whose item `i` matches `schema`; `None` if it is too large, since
    /// each item before it is one more value.
    pub(super) fn with_item(&mut self, i: usize, schema: Value) -> Option<Value> {
        self.take(i + 1)?;
        let others = core::iter::repeat_n(Value::Bool(true), i);
        let items: Vec<Value> = others.chain([schema]).collect();
        Some(json!({"type": "array", "prefixItems": items, "minItems": i + 1}))
    }
}
