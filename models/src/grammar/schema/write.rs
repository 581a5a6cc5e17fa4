//! Writing a schema as the library needs it.

use alloc::{borrow::ToOwned, format, rc::Rc, string::String, vec::Vec};
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::distinct::Options;
use super::keywords::{self, Keywords, is_in_place};
use super::kinds::{Kinds, Looks, Told};
use super::lost::Lost;
use super::parts::{Named, Part, parts};
use super::path::Path;
use super::patterns::Patterns;
use super::plain::{self, Plain, plain};
use super::plan::{ALONE, Around, Plan};
use super::relaxation::{Relaxation, Relaxations};
use super::{MAX_DEPTH, MAX_VALUES, is_everything, is_nothing, numbers, refs};
use crate::Cancel;
use crate::grammar::compile::check_cancel;
use crate::grammar::{GrammarError, steps};

/// The number of values that may be written, with each 64 bytes of a text as one of them. What is
/// referred to can be written several times.
const MAX_WRITTEN: usize = 2 * MAX_VALUES;
/// The number of schemas that are looked at for the types of their values.
const MAX_LOOKS: usize = 10 * MAX_VALUES;
/// The depth to which schemas may be written inside of each other.
const MAX_LEVELS: usize = 3 * MAX_DEPTH;

/// Writes one schema anew.
pub(super) struct Writer<'s> {
    pub(super) root: &'s Value,
    /// Keywords that are not supported are errors.
    pub(super) refuses: bool,
    cancel: &'s Cancel,
    pub(super) relaxed: Relaxations,
    /// The values that may still be written.
    n_left: usize,
    /// The schemas that may still be looked at for the types of their values.
    pub(super) looks: Looks,
    /// The names in the new schema for what is referred to.
    targets: HashMap<Target, String>,
    /// The schemas inside of each other that are being written.
    depth: usize,
    /// The JSON pointers of those of them that describe one value, and stand in the place of
    /// references to them.
    inlined: Vec<String>,
    /// The number of those that stand in the place of references, whatever they describe.
    n_inlined: usize,
    /// Schemas that are yet to be written, with their keys in `$defs`.
    todo: Vec<(Target, &'s Value, String)>,
    /// The names of properties that are known, by JSON pointer.
    pub(super) named: HashMap<String, Rc<Named>>,
    pub(super) patterns: Patterns,
}

/// A schema that is referred to: its JSON pointer, and the way to write it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Target {
    pointer: String,
    closes: bool,
}

impl<'s> Writer<'s> {
    /// Begin to write the schema `root`. With `refuses`, keywords that are not supported are
    /// errors.
    pub(super) fn new(root: &'s Value, refuses: bool, cancel: &'s Cancel) -> Self {
        let whole = Target { pointer: String::new(), closes: true };
        let targets = HashMap::from([(whole, "#".to_owned())]);
        let (todo, inlined, named) = (Vec::new(), Vec::new(), HashMap::new());
        Self {
            root,
            refuses,
            cancel,
            relaxed: Relaxations::default(),
            n_left: MAX_WRITTEN,
            looks: Looks::new(MAX_LOOKS),
            targets,
            depth: 0,
            inlined,
            n_inlined: 0,
            todo,
            named,
            patterns: Patterns::new(MAX_WRITTEN),
        }
    }

    /// Write all of the schema, and list what was left out.
    ///
    /// # Errors
    /// [`GrammarError::Schema`], [`GrammarError::TooLarge`], [`GrammarError::Cancelled`].
    pub(super) fn write(mut self) -> Result<(Value, Vec<Relaxation>), GrammarError> {
        let mut written = self.schema(self.root, &Path::new(""), ALONE)?;
        let mut definitions = Map::new();
        while let Some((target, schema, key)) = self.todo.pop() {
            let around = Around { closes: target.closes, ..ALONE };
            definitions.insert(key, self.schema(schema, &Path::new(&target.pointer), around)?);
        }
        if let Value::Object(map) = &mut written
            && !definitions.is_empty()
        {
            map.insert("$defs".to_owned(), definitions.into());
        }
        match self.refuses {
            true => steps::check(&written)?,
            false => self.relax_steps(&mut written),
        }
        Ok((written, self.relaxed.into_vec()))
    }

    /// Leave steps out that are too large together.
    fn relax_steps(&mut self, written: &mut Value) {
        for pointer in steps::relax(written) {
            let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
            self.relaxed.add(format!("#{parent}"), "multipleOf");
        }
    }

    /// Count `n` values that are written.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`].
    pub(super) fn spend(&mut self, n: usize) -> Result<(), GrammarError> {
        let what = "values once references are followed and patterns are read";
        let too_large = GrammarError::TooLarge { what, found: MAX_WRITTEN + 1, limit: MAX_WRITTEN };
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

    fn schema(&mut self, schema: &Value, at: &Path<'_>, around: Around<'_>) -> Result<Value, GrammarError> {
        self.spend(1)?;
        match schema {
            schema if is_nothing(schema) => Ok(false.into()),
            // The object is closed in it, as in the options beside it.
            Value::Bool(_) if around.outside.is_some() => Ok(self.map(&Map::new(), at, around)?.into()),
            Value::Bool(_) => Ok(schema.clone()),
            Value::Object(_) if self.depth == MAX_LEVELS => {
                let (what, found) = ("levels of nesting", MAX_LEVELS + 1);
                Err(GrammarError::TooLarge { what, found, limit: MAX_LEVELS })
            }
            Value::Object(map) => {
                self.depth += 1;
                let written = self.map(map, at, around)?;
                self.depth -= 1;
                Ok(written.into())
            }
            other => self.lose_schema(other, at),
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
        let is_open = around.is_open && !plan.closes;
        self.note_names(&keywords, plan.is_loose, is_open, at);
        let is_part = |(keyword, _): (&str, &Value)| is_in_place(keyword);
        let n_base =
            usize::from(plan.closes && !plan.leaves || keywords.iter().any(|keyword| !is_part(keyword)));
        let is_joined = around.is_joined || n_base + parts.len() > 1;
        let base_is_first = plan.is_base_first(&keywords, &parts);
        let told = self.told(&keywords, &parts);
        let mut written = Map::new();
        if base_is_first {
            self.base(&keywords, at, &plan, &mut written)?;
        }
        for (i, part) in parts.iter().enumerate() {
            let outside = plan.outside(i, part, around);
            self.spend(outside.as_ref().map_or(0, Named::weight))?;
            let inside = Around {
                is_part: plan.inside.is_part || !plan.is_alone && outside.is_none(),
                merges: plan.inside.merges,
                is_joined,
                is_open,
                closes: plan.inside.closes,
                outside: outside.as_ref(),
                beside: Told::beside(&told, i).and(around.beside),
            };
            self.part(part, at, &place(part, &keywords, at), inside, &mut written)?;
        }
        if !base_is_first {
            self.base(&keywords, at, &plan, &mut written)?;
        }
        let is_alone = !around.is_part && around.outside.is_none();
        // No other schema counts on the object being open then.
        if is_alone && written.len() == 1 && written.get("additionalProperties").is_some_and(is_everything) {
            written.clear();
        }
        Ok(written)
    }

    /// Return the keywords of a schema that can be written, with the type that follows from them.
    fn keywords<'m>(
        &mut self,
        map: &'m Map<String, Value>,
        at: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Keywords<'m>, GrammarError> {
        let Plain { mut keywords, lost, is_exclusive } = self.plain(map)?;
        lost.into_iter().try_for_each(|lost| self.lose(lost, at))?;
        let is_exclusive = is_exclusive || self.has_distinct_options(map)?;
        self.note_ignored(map, is_exclusive, at);
        self.note_counts(&keywords, at, around);
        if let Some(kind) = keywords.inferred_type().filter(|kind| around.beside.leaves(kind)) {
            keywords.set("type", kind);
        }
        let is_whole = !keywords.has_telling_parts() && !around.is_part;
        for keyword in numbers::bound(&mut keywords, is_whole) {
            self.lose(Lost::unsupported(keyword), at)?;
        }
        let checked = self.patterns.check(&mut keywords);
        self.spend_patterns()?;
        match checked {
            Ok(removed) => removed.into_iter().for_each(|keyword| self.note(at, keyword)),
            Err(lost) => self.lose(lost, at)?,
        }
        if keywords.has_parts() {
            self.drop_type(&mut keywords);
        }
        Ok(keywords)
    }

    /// Return the keywords of a schema as [`plain`] does.
    ///
    /// # Errors
    /// [`GrammarError::TooLarge`], [`GrammarError::Cancelled`].
    pub(super) fn plain<'m>(&mut self, map: &'m Map<String, Value>) -> Result<Plain<'m>, GrammarError> {
        check_cancel(self.cancel)?;
        self.spend(plain::weight(map, self.root))?;
        let plain = plain(map, self.root, &mut self.patterns, &mut self.looks);
        self.spend_patterns()?;
        Ok(plain)
    }

    /// Return true if a value visibly matches one option of `oneOf` at most.
    fn has_distinct_options(&mut self, map: &Map<String, Value>) -> Result<bool, GrammarError> {
        let mut options = Options::new(self.root);
        let are_distinct = options.are_distinct(map, &mut self.looks);
        self.spend(options.cost())?;
        Ok(are_distinct)
    }

    fn spend_patterns(&mut self) -> Result<(), GrammarError> {
        let cost = self.patterns.take_cost();
        self.spend(cost)
    }

    /// Return the names of properties in keywords without their parts.
    pub(super) fn named_by_keywords(&mut self, keywords: &Keywords<'_>) -> Named {
        Named::by(keywords, self.root, &mut self.looks)
    }

    /// Remove a type that the parts have anyway: what a reference beside it leads to would have to
    /// be joined with it.
    fn drop_type(&mut self, keywords: &mut Keywords<'_>) {
        let Some(kind) = keywords.get("type").and_then(Value::as_str).map(Kinds::named) else { return };
        let Some(written) = keywords.remove("type") else { return };
        let told = Told::by_keywords(keywords, self.root, &mut self.looks);
        if keywords.inferred_type().is_some() || !told.kinds().are_among(kind) {
            keywords.set("type", written.into_owned());
        }
    }

    /// Return the types that the keywords beside the parts tell, and each part.
    fn told(&mut self, keywords: &Keywords<'_>, parts: &[Part<'_>]) -> Vec<Told> {
        if parts.is_empty() {
            return Vec::new();
        }
        let base = Told::by_keywords(&keywords.without_parts(), self.root, &mut self.looks);
        let each = parts.iter().map(|part| Told::by_part(part, self.root, &mut self.looks));
        [base].into_iter().chain(each).collect()
    }

    /// Write a part, whose keyword is at `place`.
    fn part(
        &mut self,
        part: &Part<'_>,
        at: &Path<'_>,
        place: &Path<'_>,
        around: Around<'_>,
        written: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        match part {
            Part::Reference(reference) => match refs::target(self.root, reference) {
                Some((pointer, schema)) if around.is_joined => {
                    append(written, "allOf", self.inline(pointer, schema, at, around)?);
                }
                Some((pointer, schema)) => {
                    let reference = self.reference(pointer, schema, around.closes)?;
                    written.insert("$ref".to_owned(), reference.into());
                }
                None => {}
            },
            Part::All(i, schema) => {
                let schema = self.schema(schema, &place.index(*i), around)?;
                append(written, "allOf", schema);
            }
            Part::Negated(schema) => {
                append(written, "allOf", self.negated(schema, place, around)?);
            }
            Part::Options(keyword, schemas) => {
                let options = schemas.iter().enumerate();
                let options: Result<Value, _> =
                    options.map(|(i, schema)| self.schema(schema, &place.index(i), around)).collect();
                written.insert((*keyword).to_owned(), options?);
            }
            Part::Dependent { keyword, name, needs } => {
                if around.is_open {
                    self.note(at, keyword);
                }
                append(written, "allOf", self.dependent(name, needs, place, around)?);
            }
        }
        Ok(())
    }

    /// Write what objects with the property `name` need.
    fn dependent(
        &mut self,
        name: &str,
        needs: &Value,
        place: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Value, GrammarError> {
        self.spend_text(name)?;
        let needs = match needs {
            Value::Array(_) => json!({"required": self.copy(needs)?}),
            schema => self.schema(schema, &place.key(name), around)?,
        };
        let lacks = Map::from_iter([(name.to_owned(), false.into())]);
        Ok(json!({"anyOf": [{"properties": lacks}, needs]}))
    }

    /// Write what a `not` leaves. It holds to the letter, whatever the properties in it.
    fn negated(
        &mut self,
        schema: &Value,
        place: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Value, GrammarError> {
        let Around { is_joined, is_open, .. } = around;
        let beside = around.beside.to_the_letter();
        let around = Around { is_part: true, is_joined, is_open, closes: false, beside, ..ALONE };
        self.schema(schema, place, around)
    }

    /// Return the reference to a schema in the new `$defs`.
    fn reference(
        &mut self,
        pointer: String,
        schema: &'s Value,
        closes: bool,
    ) -> Result<String, GrammarError> {
        let target = Target { pointer, closes };
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

    /// Write a schema in the place of a reference to it. The library would copy it there, which it
    /// cannot yet where it came from inside of the schema.
    fn inline(
        &mut self,
        pointer: String,
        schema: &Value,
        at: &Path<'_>,
        around: Around<'_>,
    ) -> Result<Value, GrammarError> {
        if self.inlined.contains(&pointer) {
            self.lose(Lost::circular(), at)?;
            return Ok(true.into());
        }
        self.inlined.push(pointer.clone());
        self.n_inlined += 1;
        let written = self.schema(schema, &Path::new(&pointer), around)?;
        self.n_inlined -= 1;
        self.inlined.pop();
        Ok(written)
    }

    /// Write the schema of a value inside of another.
    fn value(&mut self, schema: &Value, at: &Path<'_>, closes: bool) -> Result<Value, GrammarError> {
        if let Some((pointer, schema)) = self.shared(schema, at)? {
            return Ok(json!({"$ref": self.reference(pointer, schema, closes)?}));
        }
        let outer = core::mem::take(&mut self.inlined);
        let written = self.schema(schema, at, Around { closes, ..ALONE });
        self.inlined = outer;
        written
    }

    /// Return the JSON pointer of a schema that is referred to instead of written once more: one
    /// that may have a schema in its parts that is written in the place of a reference now.
    fn shared(&mut self, schema: &Value, at: &Path<'_>) -> Result<Option<(String, &'s Value)>, GrammarError> {
        let Some(map) = schema.as_object().filter(|_| self.n_inlined > 0) else { return Ok(None) };
        self.spend(keywords::weight(map))?;
        let keywords = Keywords::of(map, self.root);
        let is_reference = keywords.has("$ref") && keywords.iter().count() == 1;
        if is_reference || !keywords.has_parts() {
            return Ok(None);
        }
        let place = format!("{at}");
        self.spend_text(&place)?;
        let target = refs::target(self.root, &place);
        Ok(target.filter(|(_, found)| core::ptr::eq(*found, schema)))
    }

    /// Write the keywords that are no parts, and close the object.
    fn base(
        &mut self,
        keywords: &Keywords<'_>,
        at: &Path<'_>,
        plan: &Plan,
        written: &mut Map<String, Value>,
    ) -> Result<(), GrammarError> {
        let closes = plan.inside.closes;
        for (keyword, value) in keywords.iter().filter(|(keyword, _)| !is_in_place(keyword)) {
            let value = match (keyword, value) {
                ("properties" | "patternProperties", Value::Object(schemas)) => {
                    self.values(schemas, &at.key(keyword), closes)?
                }
                // The object as a whole is closed.
                ("additionalProperties", schema) if is_nothing(schema) && plan.is_closed_elsewhere() => {
                    continue;
                }
                ("additionalProperties", schema) => self.value(schema, &at.key(keyword), closes)?,
                ("propertyNames" | "unevaluatedProperties", _) => continue,
                ("items" | "prefixItems" | "additionalItems", _) => continue,
                _ => self.copy(value)?,
            };
            written.insert(keyword.to_owned(), value);
        }
        self.items(keywords, at, plan, written)?;
        if plan.closes && !plan.leaves {
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
        let closes = plan.inside.closes;
        let is_old = keywords.get("items").is_some_and(Value::is_array);
        let (first, others) = if is_old { ("items", "additionalItems") } else { ("prefixItems", "items") };
        let listed = keywords.get(first).and_then(Value::as_array);
        // llama.cpp takes a single schema for all items from `prefixItems` too.
        let other = [others, first]
            .into_iter()
            .find(|keyword| keywords.get(keyword).is_some_and(|it| !it.is_array()));
        if let Some(listed) = listed {
            let at = at.key(first);
            let items = listed.iter().enumerate();
            let items: Result<Value, _> =
                items.map(|(i, schema)| self.value(schema, &at.index(i), closes)).collect();
            written.insert("prefixItems".to_owned(), items?);
        }
        if let Some((keyword, schema)) = other.and_then(|keyword| Some((keyword, keywords.get(keyword)?))) {
            let schema = self.value(schema, &at.key(keyword), closes)?;
            written.insert("items".to_owned(), schema);
        } else if let Some(listed) = listed
            && plan.is_whole
            && !plan.inside.is_part
            && closes
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

    /// Close an object over the names of all its parts, or over its own if it forbids the others.
    fn close(&mut self, plan: &Plan, written: &mut Map<String, Value>) -> Result<(), GrammarError> {
        let mut apart = Map::new();
        // What the keywords say about other names holds for those of the parts.
        let closed = if plan.base.is_open { &mut apart } else { &mut *written };
        let over = plan.closed_over();
        for (keyword, names) in [("properties", &over.names), ("patternProperties", &over.patterns)] {
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

    fn values(
        &mut self,
        schemas: &Map<String, Value>,
        at: &Path<'_>,
        closes: bool,
    ) -> Result<Value, GrammarError> {
        let mut written = Map::new();
        for (name, schema) in schemas {
            self.spend_text(name)?;
            written.insert(name.clone(), self.value(schema, &at.key(name), closes)?);
        }
        Ok(written.into())
    }
}

/// Return the place of the keyword of a part, for all that is inside of it if that was written for
/// what stands there.
fn place<'p>(part: &Part<'p>, keywords: &Keywords<'_>, at: &'p Path<'p>) -> Path<'p> {
    let place = at.key(part.keyword());
    if keywords.is_rewritten(part.keyword()) { place.sealed() } else { place }
}

/// Append a schema to a list of them.
fn append(written: &mut Map<String, Value>, keyword: &str, schema: Value) {
    let list = written.entry(keyword).or_insert_with(|| Vec::<Value>::new().into());
    if let Value::Array(schemas) = list {
        schemas.push(schema);
    }
}
