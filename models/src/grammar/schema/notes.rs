//! Notes of what the grammar does not follow, or errors where that is not wanted.

use alloc::{borrow::ToOwned, format};

use serde_json::{Map, Value};

use super::keywords::{self, Keywords};
use super::lost::Lost;
use super::path::Path;
use super::patterns::{Patterns, Use};
use super::plan::Around;
use super::write::Writer;
use super::{is_nothing, relaxation};
use crate::grammar::GrammarError;

impl Writer<'_> {
    /// Note a keyword that was left out although it forbids values.
    ///
    /// # Errors
    /// [`GrammarError::Schema`] if such keywords are refused.
    pub(super) fn lose(&mut self, lost: Lost, at: &Path<'_>) -> Result<(), GrammarError> {
        if self.refuses {
            let pointer = format!("{}", at.key(lost.keyword));
            return Err(GrammarError::Schema { pointer, problem: lost.problem() });
        }
        self.note(at, lost.keyword);
        Ok(())
    }

    /// Note a value that is no schema in the place of one, and return the schema of any value.
    ///
    /// # Errors
    /// [`GrammarError::Schema`] if that is refused, or there is nothing around it.
    pub(super) fn lose_schema(&mut self, found: &Value, at: &Path<'_>) -> Result<Value, GrammarError> {
        let place = format!("{at}");
        match place.rsplit_once('/') {
            Some((outer, key)) if !self.refuses => {
                self.relaxed.add(outer.to_owned(), key);
                Ok(true.into())
            }
            _ => {
                let problem = format!("found {}; a schema is an object, `true` or `false`", kind(found));
                Err(GrammarError::Schema { pointer: place, problem })
            }
        }
    }

    /// Note a keyword that is not followed.
    pub(super) fn note<'p>(&mut self, at: &Path<'p>, keyword: &'p str) {
        let (pointer, keyword) = at.told(keyword);
        self.relaxed.add(pointer, keyword);
    }

    /// Note the keywords of a schema that the library ignores, and those with patterns that it
    /// cannot follow.
    pub(super) fn note_ignored(&mut self, map: &Map<String, Value>, is_exclusive: bool, at: &Path<'_>) {
        if keywords::hides_others(map, self.root) {
            return;
        }
        let patterns = map.get("patternProperties").and_then(Value::as_object);
        let mut patterns = patterns.into_iter().flat_map(Map::keys);
        let names = map.get("propertyNames").and_then(|names| names.get("pattern")).and_then(Value::as_str);
        let is_ignored = |known: &mut Patterns, pattern| known.usable(pattern) == Use::Ignored;
        let by_names = names.is_some_and(|pattern| is_ignored(&mut self.patterns, pattern));
        let by_patterns = patterns.any(|pattern| is_ignored(&mut self.patterns, pattern));
        let noted = [(by_names, "propertyNames"), (by_patterns, "patternProperties")];
        let noted = noted.into_iter().filter_map(|(is_noted, keyword)| is_noted.then_some(keyword));
        for keyword in relaxation::ignored(map, is_exclusive).into_iter().chain(noted) {
            self.note(at, keyword);
        }
    }

    /// Note the bounds of the number of properties where others can name properties that are
    /// optional.
    pub(super) fn note_counts(&mut self, keywords: &Keywords<'_>, at: &Path<'_>, around: Around<'_>) {
        if around.is_part || around.is_joined || keywords.has_parts() {
            for keyword in ["minProperties", "maxProperties"].into_iter().filter(|it| keywords.has(it)) {
                self.note(at, keyword);
            }
        }
    }

    /// Note properties that are forbidden, but not by the grammar. With `is_loose` they are
    /// described under a condition. If the object `is_open`, the library takes a name with escaped
    /// characters for another.
    pub(super) fn note_names(
        &mut self,
        keywords: &Keywords<'_>,
        is_loose: bool,
        is_open: bool,
        at: &Path<'_>,
    ) {
        if is_loose {
            self.note(at, "unevaluatedProperties");
        }
        let mut listed = keywords.get("properties").and_then(Value::as_object).into_iter().flatten();
        let is_closed = keywords.get("additionalProperties").is_some_and(is_nothing);
        if is_open && !is_closed && keywords.may_be("object") && listed.any(|(_, schema)| is_nothing(schema))
        {
            self.note(at, "properties");
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
