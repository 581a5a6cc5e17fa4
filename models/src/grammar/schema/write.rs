//! Writing a schema as the library needs it.

use alloc::{borrow::ToOwned, format, rc::Rc, string::String, vec::Vec};
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::keywords::{Keywords, is_in_place};
use super::kinds::Kinds;
use super::parts::{Named, Part, parts};
use super::path::Path;
use super::patterns::{self, Use};
use super::plain::plain;
use super::{MAX_VALUES, is_nothing, numbers, refs};
use crate::grammar::GrammarError;

/// The number of values that may be written, with each 64 bytes of a text as one of them. What is
/// referred to can be written several times.
const MAX_WRITTEN: usize = 2 * MAX_VALUES;

/// Writes one schema anew.
pub(super) struct Writer<'s> {
    pub(super) root: &'s Value,
    /// Keywords that are not supported are errors.
    refuses: bool,
    /// The values that may still be written.
    n_left: usize,
    /// The names in the new schema for what is referred to.
    targets: HashMap<Target, String>,
    /// Schemas that are yet to be written, with their keys in `$defs`.
    todo: Vec<(Target, &'s Value, String)>,
    /// The names of properties that are known, by JSON pointer.
    pub(super) named: HashMap<String, Rc<Named>>,
}

/// A schema that is referred to: its JSON pointer, and the way to write it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Target {
    pointer: String,
    is_part: bool,
    closes: bool,
}

/// The surroundings of a schema.
#[derive(Clone, Copy)]
struct Around<'n> {
    /// Other schemas describe the same value, and one of them closes the object.
    is_part: bool,
    /// Objects are closed and lists are complete that are not said to be open.
    closes: bool,
    /// The names that other schemas have for the properties of the object, which this one closes.
    outside: Option<&'n Named>,
}

/// The surroundings of a schema that alone describes a value.
const ALONE: Around<'static> = Around { is_part: false, closes: true, outside: None };

impl<'s> Writer<'s> {
    /// Begin to write the schema `root`. With `refuses`, keywords that are not supported are
    /// errors.
    pub(super) fn new(root: &'s Value, refuses: bool) -> Self {
        let whole = Target { pointer: String::new(), is_part: false, closes: true };
        let targets = HashMap::from([(whole, "#".to_owned())]);
        let (todo, named) = (Vec::new(), HashMap::new());
        Self { root, refuses, n_left: MAX_WRITTEN, targets, todo, named }
    }

    /// Write all of the schema.
    ///
    /// # Errors
    /// [`GrammarError::Schema`], [`GrammarError::TooLarge`].
    pub(super) fn write(mut self) -> Result<Value, GrammarError> {
        let mut written = self.schema(self.root, &Path::new(""), ALONE)?;
        let mut definitions = Map::new();
        while let Some((target, schema, key)) = self.todo.pop() {
            let around = Around { is_part: target.is_part, closes: target.closes, outside: None };
            definitions.insert(key, self.schema(schema, &Path::new(&target.pointer), around)?);
        }
        if let Value::Object(map) = &mut written
            && !definitions.is_empty()
        {
            map.insert("$defs".to_owned(), definitions.into());
        }
        Ok(written)
    }

    /// Count `n` values that are written.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`].
    pub(super) fn spend(&mut self, n: usize) -> Result<(), GrammarError> {
        let too_large = GrammarError::TooLarge { what: "values", found: MAX_WRITTEN + 1, limit: MAX_WRITTEN };
        self.n_left = self.n_left.checked_sub(n).ok_or(too_large)?;
        Ok(())
    }

    fn spend_text(&mut self, text: &str) -> Result<(), GrammarError> {
        self.spend(1 + text.len() / 64)
    }

    /// Copy a value that is no schema.
    fn copy(&mut self, value: &Value) -> Result<Value, GrammarError> {
        match value {
            Value::String(text) => self.spend_text(text)?,
            Value::Array(values) => {
                self.spend(1)?;
                return values.iter().map(|value| self.copy(value)).collect();
            }
            Value::Object(map) => {
                let mut copied = Map::new();
                for (name, value) in map {
                    self.spend_text(name)?;
                    copied.insert(name.clone(), self.copy(value)?);
                }
                return Ok(copied.into());
            }
            _ => self.spend(1)?,
        }
        Ok(value.clone())
    }

    /// Note a keyword that was left out although it forbids values.
    ///
    /// # Errors
    /// [`GrammarError::Schema`] if such keywords are refused.
    fn lose(&self, keyword: Option<&str>, at: &Path<'_>) -> Result<(), GrammarError> {
        match keyword {
            Some(keyword) if self.refuses => {
                let problem =
                    format!("`{keyword}` is not supported here; remove it or express it in another way");
                Err(GrammarError::Schema { pointer: format!("{}", at.key(keyword)), problem })
            }
            _ => Ok(()),
        }
    }

    fn schema(&mut self, schema: &Value, at: &Path<'_>, around: Around<'_>) -> Result<Value, GrammarError> {
        self.spend(1)?;
        match schema {
            schema if is_nothing(schema) => Ok(false.into()),
            Value::Bool(_) => Ok(schema.clone()),
            Value::Object(map) => self.map(map, at, around).map(Value::Object),
            other => {
                let problem = format!("found {}; a schema is an object, `true` or `false`", kind(other));
                Err(GrammarError::Schema { pointer: format!("{at}"), problem })
            }
        }
    }

    fn map(
        &mut self,
        map: &Map<String, Value>,
        at: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Map<String, Value>, GrammarError> {
        let keywords = self.keywords(map, at, around)?;
        let parts = parts(&keywords);
        let plan = self.plan(&keywords, &parts, around)?;
        let is_part = |(keyword, _): (&str, &Value)| is_in_place(keyword);
        let base_is_first = match (keywords.position("properties"), keywords.iter().position(is_part)) {
            (Some(properties), Some(part)) => properties < part,
            (properties, part) => properties.is_some() || part.is_none(),
        };
        // Properties come in the order in which the library meets them.
        let mut written = Map::new();
        if base_is_first {
            self.base(&keywords, at, &plan, &mut written)?;
        }
        for (i, part) in parts.iter().enumerate() {
            let outside = plan.outside(i, part, around);
            self.spend(outside.as_ref().map_or(0, |outside| outside.names.len()))?;
            let inside = Around {
                is_part: plan.inside.is_part || !plan.is_alone && outside.is_none(),
                closes: plan.inside.closes,
                outside: outside.as_ref(),
            };
            self.part(part, at, inside, &mut written)?;
        }
        if !base_is_first {
            self.base(&keywords, at, &plan, &mut written)?;
        }
        Ok(written)
    }

    /// Return the keywords of a schema that can be written, with the type that follows from them.
    fn keywords<'m>(
        &self,
        map: &'m Map<String, Value>,
        at: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Keywords<'m>, GrammarError> {
        let (mut keywords, lost) = plain(map, self.root);
        self.lose(lost, at)?;
        let reference = keywords.get("$ref").and_then(Value::as_str);
        if reference.is_some_and(|reference| refs::target(self.root, reference).is_none()) {
            self.lose(Some("$ref"), at)?;
            keywords.remove("$ref");
        }
        if let Some(kind) = keywords.inferred_type() {
            keywords.set("type", kind);
        }
        let is_whole = !keywords.has_parts() && !around.is_part;
        self.lose(numbers::bound(&mut keywords, is_whole).err(), at)?;
        self.lose(drop_pattern(&mut keywords).err(), at)?;
        if keywords.has_parts() {
            drop_type(&mut keywords, self.root);
        }
        Ok(keywords)
    }

    /// Find out how to write a schema and its parts.
    fn plan(
        &mut self,
        keywords: &Keywords<'_>,
        parts: &[Part<'_>],
        around: Around<'_>,
    ) -> Result<Plan, GrammarError> {
        let base = Named::by(keywords, self.root);
        let mut each = Vec::new();
        // A part that is alone needs no look into it.
        if parts.len() > 1 || !base.is_empty() || around.outside.is_some() {
            for part in parts {
                each.push(self.named_by_part(part, 0)?);
            }
        }
        let n_named = each.iter().chain([&base]).filter(|named| !named.is_empty()).count();
        let is_alone = n_named <= 1 && around.outside.is_none();
        let (mut total, mut overlaps) = (base.clone(), false);
        for named in each.iter().filter(|_| !is_alone) {
            overlaps |= total.add(named);
        }
        let has_properties = total.has_properties;
        overlaps |= around.outside.is_some_and(|outside| total.add(outside));
        let is_listed = has_properties && around.closes && !total.is_open;
        let closes = keywords.may_be("object") && !around.is_part && (total.is_closed || is_listed);
        let inside = Around { is_part: around.is_part, closes: around.closes && !overlaps, outside: None };
        let is_object = Kinds::of_keywords(keywords, self.root).are_among(Kinds::OBJECT);
        Ok(Plan { base, each, total, is_alone, closes, inside, is_object, is_whole: parts.is_empty() })
    }

    /// Write a part.
    fn part(
        &mut self,
        part: &Part<'_>,
        at: &Path<'_>,
        around: Around<'_>,
        written: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        match part {
            Part::Reference(reference) => {
                if let Some((pointer, schema)) = refs::target(self.root, reference) {
                    written.insert("$ref".to_owned(), self.reference(pointer, schema, around)?.into());
                }
            }
            Part::All(i, schema) => {
                let schema = self.schema(schema, &at.key("allOf").index(*i), around)?;
                append(written, "allOf", schema);
            }
            Part::Options(keyword, schemas) => {
                let schemas = self.list(schemas, &at.key(keyword), around)?;
                written.insert((*keyword).to_owned(), schemas);
            }
            Part::Dependent { keyword, name, needs } => {
                self.spend_text(name)?;
                let needs = match needs {
                    Value::Array(_) => json!({"required": self.copy(needs)?}),
                    schema => self.schema(schema, &at.key(keyword).key(name), around)?,
                };
                let lacks = Map::from_iter([((*name).to_owned(), false.into())]);
                append(written, "allOf", json!({"anyOf": [{"properties": lacks}, needs]}));
            }
        }
        Ok(())
    }

    /// Return the reference to a schema in the new `$defs`.
    fn reference(
        &mut self,
        pointer: String,
        schema: &'s Value,
        around: Around<'_>,
    ) -> Result<String, GrammarError> {
        let target = Target { pointer, is_part: around.is_part, closes: around.closes };
        if let Some(known) = self.targets.get(&target) {
            return Ok(known.clone());
        }
        self.spend_text(&target.pointer)?;
        let key = format!("{}", self.targets.len());
        let reference = format!("#/$defs/{key}");
        self.targets.insert(target.clone(), reference.clone());
        self.todo.push((target, schema, key));
        Ok(reference)
    }

    /// Write the keywords that are no parts, and close the object.
    fn base(
        &mut self,
        keywords: &Keywords<'_>,
        at: &Path<'_>,
        plan: &Plan,
        written: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let around = Around { closes: plan.inside.closes, ..ALONE };
        for (keyword, value) in keywords.iter().filter(|(keyword, _)| !is_in_place(keyword)) {
            let value = match (keyword, value) {
                ("properties" | "patternProperties", Value::Object(schemas)) => {
                    self.named_schemas(schemas, &at.key(keyword), around)?
                }
                // The object as a whole is closed.
                ("additionalProperties", schema) if is_nothing(schema) && plan.inside.is_part => continue,
                ("additionalProperties", schema) => self.schema(schema, &at.key(keyword), around)?,
                ("items" | "prefixItems" | "additionalItems", _) => continue,
                _ => self.copy(value)?,
            };
            written.insert(keyword.to_owned(), value);
        }
        self.items(keywords, at, plan, written)?;
        if plan.closes {
            self.close(plan, written)?;
        }
        Ok(())
    }

    /// Write the schemas of items. A list whose first items are told has these and no others, as
    /// for llama.cpp, unless another keyword counts on more.
    fn items(
        &mut self,
        keywords: &Keywords<'_>,
        at: &Path<'_>,
        plan: &Plan,
        written: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let around = Around { closes: plan.inside.closes, ..ALONE };
        let is_old = keywords.get("items").is_some_and(Value::is_array);
        let (first, others) = if is_old { ("items", "additionalItems") } else { ("prefixItems", "items") };
        let listed = keywords.get(first).and_then(Value::as_array);
        // llama.cpp takes a single schema for all items from `prefixItems` too.
        let other = [others, first]
            .into_iter()
            .find(|keyword| keywords.get(keyword).is_some_and(|it| !it.is_array()));
        if let Some(listed) = listed {
            let schemas = self.list(listed, &at.key(first), around)?;
            written.insert("prefixItems".to_owned(), schemas);
        }
        if let Some((keyword, schema)) = other.and_then(|keyword| Some((keyword, keywords.get(keyword)?))) {
            let schema = self.schema(schema, &at.key(keyword), around)?;
            written.insert("items".to_owned(), schema);
        } else if let Some(listed) = listed
            && plan.is_whole
            && !plan.inside.is_part
            && plan.inside.closes
        {
            let count = |keyword| keywords.get(keyword).and_then(Value::as_u64);
            let (min, max, n) = (count("minItems"), count("maxItems"), listed.len() as u64);
            if min.max(max).is_none_or(|count| count <= n) {
                written.insert("items".to_owned(), false.into());
                written.entry("minItems").or_insert_with(|| max.unwrap_or(n).into());
            }
        }
        Ok(())
    }

    /// Close an object over the names of all its parts.
    fn close(&mut self, plan: &Plan, written: &mut Map<String, Value>) -> Result<(), GrammarError> {
        let mut apart = Map::new();
        // What the keywords say about other names holds for those of the parts.
        let closed = if plan.base.is_open { &mut apart } else { &mut *written };
        for (keyword, names) in
            [("properties", &plan.total.names), ("patternProperties", &plan.total.patterns)]
        {
            if names.is_empty() {
                continue;
            }
            if let Value::Object(schemas) = closed.entry(keyword).or_insert_with(|| Map::new().into()) {
                for name in names.keys().filter(|name| !schemas.contains_key(*name)).collect::<Vec<_>>() {
                    self.spend_text(name)?;
                    schemas.insert(name.clone(), true.into());
                }
            }
        }
        closed.insert("additionalProperties".to_owned(), false.into());
        if plan.is_object {
            closed.entry("type").or_insert("object".into());
        }
        if !apart.is_empty() {
            append(written, "allOf", apart.into());
        }
        Ok(())
    }

    fn list(&mut self, schemas: &[Value], at: &Path<'_>, around: Around<'_>) -> Result<Value, GrammarError> {
        let schemas = schemas.iter().enumerate();
        schemas.map(|(i, schema)| self.schema(schema, &at.index(i), around)).collect()
    }

    fn named_schemas(
        &mut self,
        schemas: &Map<String, Value>,
        at: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Value, GrammarError> {
        let mut written = Map::new();
        for (name, schema) in schemas {
            self.spend_text(name)?;
            written.insert(name.clone(), self.schema(schema, &at.key(name), around)?);
        }
        Ok(written.into())
    }
}

/// The way to write a schema and its parts.
struct Plan {
    /// The names in the keywords beside the parts, in each part, and in all of them together with
    /// those outside.
    base: Named,
    each: Vec<Named>,
    total: Named,
    /// At most one of them says something about properties, and nothing outside does.
    is_alone: bool,
    /// The object is closed here.
    closes: bool,
    /// The surroundings of the parts, as far as they are those of the schema.
    inside: Around<'static>,
    /// Only objects match.
    is_object: bool,
    /// There are no parts.
    is_whole: bool,
}

impl Plan {
    /// Return the names that are outside of each option of a part, if the options are to be closed:
    /// one does not have the properties of another.
    fn outside(&self, i: usize, part: &Part<'_>, around: Around<'_>) -> Option<Named> {
        if !self.closes || self.is_alone || !matches!(part, Part::Options(..)) {
            return None;
        }
        let mut outside = self.base.clone();
        for (_, named) in self.each.iter().enumerate().filter(|(j, _)| *j != i) {
            outside.add(named);
        }
        if let Some(named) = around.outside {
            outside.add(named);
        }
        Some(outside)
    }
}

/// Remove a pattern that the library cannot follow.
///
/// # Errors
/// Return the keyword if nobody could follow the pattern.
fn drop_pattern(keywords: &mut Keywords<'_>) -> Result<(), &'static str> {
    let usable = match keywords.get("pattern") {
        None => Use::Followed,
        Some(Value::String(pattern)) => patterns::usable(pattern),
        Some(_) => Use::Broken,
    };
    match usable {
        Use::Followed => return Ok(()),
        Use::Ignored | Use::Broken => keywords.remove("pattern"),
    };
    if usable == Use::Broken { Err("pattern") } else { Ok(()) }
}

/// Remove a type that the parts have anyway. The library would copy what a reference beside it
/// leads to, and could not follow one that leads back.
fn drop_type(keywords: &mut Keywords<'_>, root: &Value) {
    let Some(kind) = keywords.get("type").and_then(Value::as_str).map(Kinds::named) else { return };
    let Some(written) = keywords.remove("type") else { return };
    if !Kinds::of_keywords(keywords, root).are_among(kind) {
        keywords.set("type", written.into_owned());
    }
}

/// Append a schema to a list of them.
fn append(written: &mut Map<String, Value>, keyword: &str, schema: Value) {
    let list = written.entry(keyword).or_insert_with(|| Vec::<Value>::new().into());
    if let Value::Array(schemas) = list {
        schemas.push(schema);
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
