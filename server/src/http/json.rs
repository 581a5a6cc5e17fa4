//! JSON objects within a budget of memory.
//!
//! A value of JSON takes up to a hundred times the memory of its text: `[0,` is three bytes, the
//! list and the number take 144. So values are paid from a budget before they are made.

use backstitch_models::Cancel;
use core::cell::Cell;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The bytes that an allocator adds to each allocation, at most.
const OVERHEAD: usize = 32;
/// The bytes of a value.
const PER_VALUE: usize = size_of::<Value>();
/// The bytes of an entry of an object: its name, its value, its hash, its place in the table, which
/// is at most seven sixteenths full.
const PER_ENTRY: usize = size_of::<(String, Value)>() + 8 + 3 * (size_of::<usize>() + 1);
/// The most fields of an object that is read with [`read_object`].
const MOST_FIELDS: usize = 1024;
/// The number of values between two looks at the request to cancel: less than a millisecond.
const LOOK_EVERY: u32 = 4096;
/// The most bytes of a field that is not [bulky](BULKY).
const MOST_OF_FIELD: usize = 64 << 10;

/// The fields of requests that may be large: texts, tokens, messages, tools, schemas, lists. Any
/// other field is a number, a word or a short list.
const BULKY: [&str; 30] = [
    "cache_salt",
    "chat_template_kwargs",
    "content",
    "documents",
    "dry_sequence_breakers",
    "grammar",
    "grammar_triggers",
    "input",
    "input_extra",
    "input_prefix",
    "input_suffix",
    "instructions",
    "json_schema",
    "lark",
    "logit_bias",
    "lora",
    "messages",
    "output_config",
    "output_format",
    "prompt",
    "query",
    "regex",
    "response_format",
    "stop",
    "suffix",
    "system",
    "text",
    "texts",
    "tokens",
    "tools",
];

/// The reason why a text is not read.
#[derive(Debug)]
pub(super) enum JsonError {
    /// It is not JSON.
    Syntax(serde_json::Error),
    /// The request to cancel was made.
    Cancelled,
    /// It is JSON, but no object.
    NoObject,
    /// The object has more than [`MOST_FIELDS`] fields.
    Fields,
    /// Its values take too much memory. The budget was used up within this field.
    Memory {
        /// The name of the field.
        field: String,
    },
}

/// Read a JSON object whose values take at most about `most` bytes of memory, unless `cancel` is
/// made. Return it, and the bytes that its values take.
///
/// A field that is not known to be large, and yet takes much memory, is read over: its value
/// becomes a text that says so, which is none of the numbers, truth values and lists that such
/// fields have.
///
/// # Errors
/// [`JsonError`].
pub(super) fn read_object(
    bytes: &[u8],
    most: usize,
    cancel: &Cancel,
) -> Result<(Map<String, Value>, usize), JsonError> {
    let (left, failure, n_values) = (Cell::new(most), Cell::new(None), Cell::new(0));
    let budget = Budget { left, failure, n_values, cancel };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = deserializer.deserialize_map(Fields(&budget));
    let read = read.and_then(|fields| deserializer.end().map(|()| fields));
    match read {
        Ok(fields) => Ok((fields, most - budget.left.get())),
        Err(error) => Err(match budget.failure.take() {
            Some(failure) => failure,
            None if error.is_data() => JsonError::NoObject,
            None => JsonError::Syntax(error),
        }),
    }
}

/// The memory that is left for values.
struct Budget<'c> {
    left: Cell<usize>,
    failure: Cell<Option<JsonError>>,
    /// The number of values so far.
    n_values: Cell<u32>,
    cancel: &'c Cancel,
}

impl Budget<'_> {
    /// Count a value.
    ///
    /// # Errors
    /// If the request to cancel was made.
    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        let n_values = self.n_values.get().wrapping_add(1);
        self.n_values.set(n_values);
        if n_values.is_multiple_of(LOOK_EVERY) && self.cancel.is_cancelled() {
            self.failure.set(Some(JsonError::Cancelled));
            return Err(E::custom("cancelled"));
        }
        Ok(())
    }
}

/// The budget of one value.
#[derive(Clone, Copy)]
struct Purse<'b> {
    all: &'b Budget<'b>,
    left: &'b Cell<usize>,
    /// The value is read over if the purse is empty, and is an error otherwise.
    is_skipped: bool,
    is_empty: &'b Cell<bool>,
}

impl Purse<'_> {
    /// Pay for `bytes`. Return false if they cannot be paid.
    fn pay(self, bytes: usize) -> bool {
        match self.left.get().checked_sub(bytes) {
            Some(left) if !self.is_empty.get() => {
                self.left.set(left);
                true
            }
            _ => {
                self.is_empty.set(true);
                false
            }
        }
    }

    /// Take back what was paid.
    fn refund(self, bytes: usize) {
        self.left.set(self.left.get().saturating_add(bytes));
    }

    /// Pay for room for another item of `list`, and make it. Return false if it cannot be paid.
    fn make_room<T>(self, list: &mut Vec<T>) -> bool {
        let former = list.capacity();
        if list.len() < former {
            return true;
        }
        // The items are in both places while they move.
        let room = former.saturating_mul(2).max(1);
        if !self.pay(room.saturating_mul(size_of::<T>())) {
            return false;
        }
        list.reserve_exact(room - list.len());
        self.refund(former * size_of::<T>());
        true
    }

    /// Return what becomes of a value that cannot be paid.
    fn unpaid<E: serde::de::Error>(self) -> Result<Value, E> {
        if self.is_skipped { Ok(Value::Null) } else { Err(E::custom("too large")) }
    }
}

/// Reads the fields of an object.
struct Fields<'b>(&'b Budget<'b>);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut n_fields) = (Map::new(), 0);
        while let Some(name) = access.next_key::<String>()? {
            // One that comes again is one more to read.
            n_fields += 1;
            if n_fields > MOST_FIELDS {
                self.0.failure.set(Some(JsonError::Fields));
                return Err(A::Error::custom("too many fields"));
            }
            let value = self.field(&name, &mut access)?;
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

impl Fields<'_> {
    /// Read the value of a field.
    fn field<'de, A: MapAccess<'de>>(&self, name: &str, access: &mut A) -> Result<Value, A::Error> {
        let is_bulky = BULKY.contains(&name);
        let most = if is_bulky { usize::MAX } else { MOST_OF_FIELD };
        let before = self.0.left.get();
        let (left, is_empty) = (Cell::new(before.min(most)), Cell::new(false));
        let had = left.get();
        let purse = Purse { all: self.0, left: &left, is_skipped: !is_bulky, is_empty: &is_empty };
        let paid = name.len() + OVERHEAD + PER_ENTRY;
        let value = match purse.pay(paid) {
            true => access.next_value_seed(purse),
            false => access.next_value_seed(Skip(self.0)).and_then(|()| purse.unpaid()),
        };
        let is_too_large = is_empty.get();
        if is_too_large && is_bulky {
            self.0.failure.set(Some(JsonError::Memory { field: name.to_owned() }));
        }
        let value = value?;
        match is_too_large {
            true => Ok(format!("(a value that takes more than {MOST_OF_FIELD} bytes)").into()),
            false => {
                self.0.left.set(before - (had - left.get()));
                Ok(value)
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Purse<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.all.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Purse<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        if self.pay(text.len() + OVERHEAD) { Ok(text.into()) } else { self.unpaid() }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        if !self.pay(OVERHEAD) {
            return skip_list(self, access);
        }
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            if !self.make_room(&mut items) {
                drop((item, items));
                return skip_list(self, access);
            }
            items.push(item);
        }
        self.refund((items.capacity() - items.len()) * PER_VALUE);
        items.shrink_to_fit();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        if !self.pay(3 * OVERHEAD) {
            return skip_map(self, access);
        }
        let mut entries: Vec<(String, Value)> = Vec::new();
        while let Some(name) = access.next_key::<String>()? {
            if !self.pay(name.len() + OVERHEAD) || !self.make_room(&mut entries) {
                drop(entries);
                access.next_value_seed(Skip(self.all))?;
                return skip_map(self, access);
            }
            let value = access.next_value_seed(self)?;
            entries.push((name, value));
        }
        if !self.pay(entries.len() * PER_ENTRY) {
            return self.unpaid();
        }
        // A table that grows by itself has room for three entries at least, and is never full.
        let (mut map, room) = (Map::with_capacity(entries.len()), entries.capacity());
        map.extend(entries);
        self.refund(room * size_of::<(String, Value)>());
        Ok(Value::Object(map))
    }
}

/// Reads over a value.
#[derive(Clone, Copy)]
struct Skip<'b>(&'b Budget<'b>);

impl<'de> DeserializeSeed<'de> for Skip<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_key_seed(self)?.is_some() {
            access.next_value_seed(self)?;
        }
        Ok(())
    }
}

/// Read over the rest of a list that cannot be paid.
fn skip_list<'de, A: SeqAccess<'de>>(purse: Purse<'_>, access: A) -> Result<Value, A::Error> {
    let value = purse.unpaid()?;
    Skip(purse.all).visit_seq(access)?;
    Ok(value)
}

/// Read over the rest of an object that cannot be paid.
fn skip_map<'de, A: MapAccess<'de>>(purse: Purse<'_>, access: A) -> Result<Value, A::Error> {
    let value = purse.unpaid()?;
    Skip(purse.all).visit_map(access)?;
    Ok(value)
}

#[cfg(test)]
mod tests;
