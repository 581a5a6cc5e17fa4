//! The keywords of one schema.

use alloc::{borrow::Cow, string::String, vec::Vec};

use serde_json::{Map, Value};

/// The keywords that say something about values. Those that the library ignores and that are not
/// here break nothing but counts: `uniqueItems`, and the bounds of the number of properties where
/// some are optional. The library would take others, such as `deprecated`, for one that leaves all
/// types open, and copy what a reference beside it leads to.
const KNOWN: [&str; 38] = [
    "type",
    "const",
    "enum",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
/// Keywords whose schemas describe the same value.
const IN_PLACE: [&str; 8] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "dependencies", "dependentRequired", "dependentSchemas"];
/// Keywords that say which values are meant without a `type`.
const DECIDED: [&str; 7] = ["type", "$ref", "anyOf", "oneOf", "allOf", "const", "enum"];

/// The formats that the library follows. Others mean nothing.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// The drafts in which a reference hides the keywords beside it.
const OLD_DRAFTS: [&str; 4] = ["draft-03", "draft-04", "draft-06", "draft-07"];

/// The keywords of one schema that say something about values, in its order.
pub(super) struct Keywords<'m>(Vec<(&'m str, Cow<'m, Value>)>);

impl<'m> Keywords<'m> {
    /// Return the keywords of `map`, a schema in the schema `root`.
    pub(super) fn of(map: &'m Map<String, Value>, root: &Value) -> Self {
        let hides = hides_others(map, root);
        let known = map.iter().filter(|(key, _)| match hides {
            true => *key == "$ref",
            false => KNOWN.contains(&key.as_str()),
        });
        Self(known.map(|(key, value)| (key.as_str(), Cow::Borrowed(value))).collect())
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| *key == keyword).map(|(_, value)| value.as_ref())
    }

    pub(super) fn has(&self, keyword: &str) -> bool {
        self.get(keyword).is_some()
    }

    /// Return the index of a keyword in their order.
    pub(super) fn position(&self, keyword: &str) -> Option<usize> {
        self.0.iter().position(|(key, _)| *key == keyword)
    }

    pub(super) fn remove(&mut self, keyword: &str) -> Option<Cow<'m, Value>> {
        self.position(keyword).map(|i| self.0.remove(i).1)
    }

    /// Give a keyword a value, at its place or else behind all others.
    pub(super) fn set(&mut self, keyword: &'static str, value: impl Into<Value>) {
        let value = Cow::Owned(value.into());
        match self.position(keyword).and_then(|i| self.0.get_mut(i)) {
            Some((_, old)) => *old = value,
            None => self.0.push((keyword, value)),
        }
    }

    /// Return true if a keyword has another value than in the schema.
    pub(super) fn is_rewritten(&self, keyword: &str) -> bool {
        self.0.iter().any(|(key, value)| *key == keyword && matches!(value, Cow::Owned(_)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (*key, value.as_ref()))
    }

    /// Return true if other schemas describe the same value.
    pub(super) fn has_parts(&self) -> bool {
        self.0.iter().any(|(key, _)| is_in_place(key))
    }

    /// Return true if other schemas tell more of the same value than a `not`, which takes nothing
    /// for granted.
    pub(super) fn has_telling_parts(&self) -> bool {
        self.0.iter().any(|(key, _)| is_in_place(key) && *key != "not")
    }

    /// Return the keywords that are no parts.
    pub(super) fn without_parts(&self) -> Keywords<'_> {
        let own = self.0.iter().filter(|(key, _)| !is_in_place(key));
        Keywords(own.map(|(key, value)| (*key, Cow::Borrowed(value.as_ref()))).collect())
    }

    /// Return the type of the values that are meant, where it follows from other keywords than
    /// `type`.
    pub(super) fn inferred_type(&self) -> Option<&'static str> {
        if DECIDED.iter().any(|keyword| self.has(keyword)) {
            return None;
        }
        let is_open = self.get("additionalProperties").is_none_or(|value| *value == Value::Bool(true));
        match () {
            () if self.has("properties") || self.has("patternProperties") || !is_open => Some("object"),
            () if self.has("items") || self.has("prefixItems") => Some("array"),
            () if self.has("pattern") || self.has_format() => Some("string"),
            () => None,
        }
    }

    /// Return true for a format that means something.
    fn has_format(&self) -> bool {
        self.get("format").and_then(Value::as_str).is_some_and(is_format)
    }

    /// Return true if the values may have a type by what `type` says.
    pub(super) fn may_be(&self, kind: &str) -> bool {
        match self.get("type") {
            None => true,
            Some(Value::Array(kinds)) => kinds.iter().any(|other| other == kind),
            Some(other) => other == kind,
        }
    }
}

/// Return true if a reference hides the keywords beside it.
pub(super) fn hides_others(map: &Map<String, Value>, root: &Value) -> bool {
    map.get("$ref").is_some_and(Value::is_string) && is_old(root)
}

/// Return true for a schema of a draft in which a reference hides the keywords beside it.
fn is_old(root: &Value) -> bool {
    let draft = root.get("$schema").and_then(Value::as_str);
    draft.is_some_and(|draft| OLD_DRAFTS.iter().any(|old| draft.contains(old)))
}

/// Return true for the name of a format that is followed.
pub(super) fn is_format(name: &str) -> bool {
    FORMATS.contains(&name)
}

/// Return the cost of reading the keywords of `map`, in values.
pub(super) fn weight(map: &Map<String, Value>) -> usize {
    let length = |keyword| match map.get(keyword) {
        Some(Value::Array(values)) => values.len(),
        Some(Value::String(text)) => text.len() / 4,
        _ => 0,
    };
    let n_listed: usize = ["$ref", "type", "enum", "required"].into_iter().map(length).sum();
    (map.len() + n_listed) / 16
}

/// Return true for a keyword whose schemas describe the same value.
pub(super) fn is_in_place(keyword: &str) -> bool {
    IN_PLACE.contains(&keyword)
}
