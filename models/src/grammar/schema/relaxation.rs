//! Parts of schemas that are left out, so that outputs may break them.

use alloc::{string::String, vec::Vec};
use core::fmt;

use serde_json::{Map, Value};

use super::keywords::is_format;
use super::{is_everything, is_nothing};

/// Keywords that nothing follows. References to where a schema is used from allow anything.
const NOT_FOLLOWED: [&str; 2] = ["$dynamicRef", "$recursiveRef"];
/// The most parts that are listed.
const MAX_LISTED: usize = 200;

/// A part of a JSON schema that the grammar does not follow. A value may break it, although the
/// grammar accepts it; nothing that matches the schema is refused because of it.
///
/// # Example
/// ```
/// use backstitch_models::Model;
/// use backstitch_models::grammar::Compiler;
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let schema = r#"{"type": "array", "items": {"type": "null"}, "uniqueItems": true}"#;
/// let grammar = Compiler::new(model.vocab())?.json_schema(schema)?;
/// assert_eq!(grammar.relaxed()[0].to_string(), "#/uniqueItems");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Relaxation {
    /// The place of the schema that has the keyword, as a JSON pointer.
    pub pointer: String,
    /// The keyword.
    pub keyword: String,
}

impl fmt::Display for Relaxation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pointer, self.keyword)
    }
}

/// The relaxations of one schema, each once.
#[derive(Default)]
pub(super) struct Relaxations(Vec<Relaxation>);

impl Relaxations {
    /// Add the keyword of the schema at `pointer`.
    pub(super) fn add(&mut self, pointer: String, keyword: &str) {
        let relaxation = Relaxation { pointer, keyword: keyword.into() };
        if self.0.len() < MAX_LISTED && !self.0.contains(&relaxation) {
            self.0.push(relaxation);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Relaxation> {
        self.0
    }
}

/// Return the keywords of a schema that the library ignores, or reads as weaker ones. With
/// `is_exclusive`, the options of `oneOf` exclude each other.
pub(super) fn ignored(map: &Map<String, Value>, is_exclusive: bool) -> Vec<&'static str> {
    let mut found: Vec<&'static str> =
        NOT_FOLLOWED.into_iter().filter(|keyword| map.contains_key(*keyword)).collect();
    if map.get("uniqueItems") == Some(&Value::Bool(true)) {
        found.push("uniqueItems");
    }
    let options = map.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    if options.filter(|option| !is_nothing(option)).count() > 1 && !is_exclusive {
        found.push("oneOf");
    }
    let format = map.get("format").and_then(Value::as_str);
    if format.is_some_and(|format| !is_format(format)) {
        found.push("format");
    }
    let names = map.get("propertyNames").and_then(Value::as_object);
    if names.is_some_and(|names| names.contains_key("format")) {
        found.push("propertyNames");
    }
    // Counts of properties are followed where none is optional.
    let required = map.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    let is_optional = |(name, schema): (&String, &Value)| !is_required(name) && !is_nothing(schema);
    let properties = map.get("properties").and_then(Value::as_object);
    let has_others = map.get("patternProperties").is_some_and(|it| !is_everything(it));
    if has_others || properties.is_some_and(|properties| properties.iter().any(is_optional)) {
        let counts = ["minProperties", "maxProperties"];
        found.extend(counts.into_iter().filter(|keyword| map.contains_key(*keyword)));
    }
    found
}
