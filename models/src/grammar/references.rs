//! References of JSON schemas: how deep the library recurses over them, and how much it copies.
//!
//! A reference that stands alone stays one. Where several schemas describe one value together, the
//! library copies what they refer to and merges it, so a schema of a few kilobytes can grow without
//! end. `Expansion` estimates the result from above.

use alloc::{string::String, vec, vec::Vec};
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::chains;
use super::error::GrammarError;

/// The levels of nested values that lead to each other by references. The library recurses over
/// them.
const MAX_CHAIN: usize = 8000;
/// The number of values that are looked at to find references. Those that several references lead
/// to count for each.
const MAX_VISITS: usize = 2_000_000;
/// The number of values that the library may make of a schema. They take some 100 MB, and more than
/// fits into a grammar.
const MAX_EXPANDED: u64 = 500_000;

/// Keywords beside a reference that allow everything, and those of Lark grammars.
const NOTES: [&str; 15] = [
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "readOnly",
    "writeOnly",
    "examples",
    "contentMediaType",
    "contentEncoding",
    "x-guidance",
];

/// Check that compiling `schema` neither recurses too deeply nor copies too much. This takes a
/// stack for the levels that it accepts.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    let References { targets, weights, edges } = References::of(schema)?;
    let (found, limit) = (chains::heaviest(&weights, &edges), MAX_CHAIN);
    if found > limit {
        return Err(GrammarError::TooLarge { what: "levels of nesting by references", found, limit });
    }
    let mut expansion = Expansion { root: schema, known: HashMap::new() };
    let sizes = targets.iter().map(|target| expansion.size(target, false).n_values);
    let found = sizes.fold(0, u64::saturating_add);
    if found > MAX_EXPANDED {
        let (found, limit) = (usize::try_from(found).unwrap_or(usize::MAX), MAX_EXPANDED as usize);
        let what = "values where references and choices are written out";
        return Err(GrammarError::TooLarge { what, found, limit });
    }
    Ok(())
}

/// Return the value that a reference leads to, as the library finds it.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    match reference.strip_prefix("#/") {
        Some("") => Some(root),
        None => (reference == "#").then_some(root),
        Some(path) => path.split('/').try_fold(root, |value, segment| match value {
            Value::Array(values) => values.get(segment.parse::<usize>().ok()?),
            _ => value.get(segment),
        }),
    }
}

/// The whole schema and what its references lead to: the values, their levels, and the references
/// in each.
struct References<'s> {
    targets: Vec<&'s Value>,
    weights: Vec<usize>,
    edges: Vec<Vec<usize>>,
}

impl<'s> References<'s> {
    fn of(root: &'s Value) -> Result<Self, GrammarError> {
        let mut all = Self { targets: vec![root], weights: Vec::new(), edges: Vec::new() };
        let mut known: HashMap<&str, Option<usize>> = HashMap::new();
        let mut n_visits = 0;
        while let Some(&value) = all.targets.get(all.weights.len()) {
            let (mut todo, mut height, mut edges) = (vec![(value, 1)], 0, Vec::new());
            while let Some((value, level)) = todo.pop() {
                n_visits += 1;
                height = height.max(level);
                match value {
                    Value::Array(values) => todo.extend(values.iter().map(|value| (value, level + 1))),
                    Value::Object(map) => todo.extend(map.values().map(|value| (value, level + 1))),
                    _ => {}
                }
                let Some(Value::String(reference)) = value.get("$ref") else { continue };
                edges.extend(*known.entry(reference).or_insert_with(|| {
                    all.targets.push(target(root, reference)?);
                    Some(all.targets.len() - 1)
                }));
            }
            if n_visits > MAX_VISITS {
                let (what, limit) = ("values behind references", MAX_VISITS);
                return Err(GrammarError::TooLarge { what, found: n_visits, limit });
            }
            all.weights.push(height);
            all.edges.push(edges);
        }
        Ok(all)
    }
}

/// The size of a compiled schema.
#[derive(Clone, Copy)]
struct Size {
    /// The number of its alternatives. Each is merged with what stands beside it.
    n_options: u64,
    /// The number of values in all of them.
    n_values: u64,
}

impl Size {
    const ONE: Self = Self { n_options: 1, n_values: 1 };

    /// Return the size of what describes the same value as `other`.
    fn and(self, other: Self) -> Self {
        let (own, beside) =
            (self.n_values.saturating_mul(other.n_options), other.n_values.saturating_mul(self.n_options));
        Self {
            n_options: self.n_options.saturating_mul(other.n_options),
            n_values: own.saturating_add(beside),
        }
    }

    /// Return the size of a choice.
    fn or(self, other: Self) -> Self {
        Self {
            n_options: self.n_options.saturating_add(other.n_options),
            n_values: self.n_values.saturating_add(other.n_values),
        }
    }
}

/// Estimates sizes.
struct Expansion<'s> {
    root: &'s Value,
    /// The sizes of lists and objects by their address, without and with what their references
    /// lead to. Within itself, each counts as one value.
    known: HashMap<(*const Value, bool), Size>,
}

impl<'s> Expansion<'s> {
    /// Return the size of a schema, or of another value; with what its references lead to if
    /// `follows`.
    fn size(&mut self, value: &'s Value, follows: bool) -> Size {
        let address = (core::ptr::from_ref(value), follows);
        if let Some(&known) = self.known.get(&address) {
            return known;
        }
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            self.known.insert(address, Size::ONE);
        }
        let size = match value {
            Value::Object(map) => self.object(map, follows),
            Value::Array(values) => self.choice(values.iter(), follows),
            _ => return Size::ONE,
        };
        self.known.insert(address, size);
        size
    }

    /// Return the size of a choice of `values`.
    fn choice(&mut self, values: impl Iterator<Item = &'s Value>, follows: bool) -> Size {
        let none = Size { n_options: 0, n_values: 1 };
        let all = values.fold(none, |all, value| all.or(self.size(value, follows)));
        Size { n_options: all.n_options.max(1), ..all }
    }

    fn object(&mut self, map: &'s Map<String, Value>, follows: bool) -> Size {
        let follows = follows || is_merged(map);
        let mut all = Size::ONE;
        for (keyword, value) in map.iter().filter(|(keyword, _)| !NOTES.contains(&keyword.as_str())) {
            all = all.and(match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    match target(self.root, reference).filter(|_| follows) {
                        Some(target) => self.size(target, true),
                        None => Size::ONE,
                    }
                }
                ("allOf", Value::Array(parts)) => {
                    parts.iter().fold(Size::ONE, |all, part| all.and(self.size(part, follows)))
                }
                ("anyOf" | "oneOf" | "enum", Value::Array(_)) => self.size(value, follows),
                // Names of properties are no keywords.
                ("properties" | "patternProperties", Value::Object(map)) => {
                    Size { n_options: 1, ..self.choice(map.values(), follows) }
                }
                _ => Size { n_options: 1, ..self.size(value, follows) },
            });
        }
        all
    }
}

/// Return true if several keywords of a schema are merged, so that its references are followed.
fn is_merged(map: &Map<String, Value>) -> bool {
    let n = map.keys().filter(|keyword| !NOTES.contains(&keyword.as_str())).count();
    let has = |keyword: &str| map.contains_key(keyword);
    let n_parts = map.get("allOf").and_then(Value::as_array).map_or(0, Vec::len);
    n_parts > 1
        || (n > 1 && ["$ref", "anyOf", "oneOf", "allOf"].into_iter().any(has))
        || (has("properties") && has("patternProperties"))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use serde_json::json;

    use super::*;
    use crate::grammar::testing::compiler;

    fn compiled(schema: &Value) -> Result<(), GrammarError> {
        compiler().json_schema_value(schema).map(drop)
    }

    fn assert_too_large(schema: &Value) {
        let lark = compiler().lark(&format!("start: %json {schema}")).map(drop);
        for result in [check(schema), lark] {
            let is_refused =
                matches!(&result, Err(GrammarError::TooLarge { found, limit, .. }) if found > limit);
            assert!(
                is_refused,
                "{result:?}: {}",
                crate::grammar::error::shortened(&format!("{schema}"), 200)
            );
        }
    }

    /// Return a schema of `n` definitions that leads from the first to the last.
    fn definitions(n: usize, definition: impl Fn(&str) -> Value) -> Value {
        let definition = |i: usize| (format!("d{i}"), definition(&format!("#/$defs/d{}", i + 1)));
        let mut all: Map<String, Value> = (0..n).map(definition).collect();
        all.insert(format!("d{n}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": all})
    }

    /// The library would overflow its stack.
    #[test]
    fn chains_of_references_have_an_end() {
        assert!(compiled(&definitions(500, |next| json!({"$ref": next}))).is_ok());
        let list = definitions(500, |next| json!({"type": "object", "properties": {"a": {"$ref": next}}}));
        assert!(compiled(&list).is_ok());
        for n in [4000, 49_000] {
            let long = definitions(n, |next| json!({"$ref": next}));
            assert!(matches!(check(&long), Err(GrammarError::TooLarge { limit: MAX_CHAIN, .. })));
        }
        assert_too_large(&definitions(
            3000,
            |next| json!({"properties": {"a": {"anyOf": [{"$ref": next}]}}}),
        ));
        // Definitions that lead back are in one chain at most once each.
        let tree =
            |n: usize| json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": format!("#/$defs/{n}")}}});
        let defs: Map<String, Value> = (0..1200).map(|n| (format!("{n}"), tree((n + 7) % 1200))).collect();
        assert!(compiled(&json!({"$ref": "#/$defs/0", "$defs": defs})).is_ok());
        // Wide is not deep.
        let defs: Map<String, Value> = (0..6000).map(|n| (format!("{n}"), json!({"type": "null"}))).collect();
        let options: Vec<Value> = (0..6000).map(|n| json!({"$ref": format!("#/$defs/{n}")})).collect();
        assert!(check(&json!({"anyOf": options, "$defs": defs})).is_ok());
    }

    /// Each of these has few kilobytes, and would take terabytes.
    #[test]
    fn references_that_double_are_refused() {
        let twice = |value: Value| json!({"type": "object", "properties": {"a": value, "b": value}});
        let doubling: [&dyn Fn(&str) -> Value; 7] = [
            &|next| twice(json!({"type": "object", "$ref": next})),
            &|next| twice(json!({"allOf": [{"$ref": next}, {"minProperties": 0}]})),
            &|next| twice(json!({"type": "object", "anyOf": [{"$ref": next}]})),
            &|next| json!({"allOf": [twice(json!({"$ref": next})), twice(json!({"type": "object"}))]}),
            &|next| {
                let open = json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}}});
                json!({"type": "object", "properties": {"x": open}, "patternProperties": {"^x": twice(json!({"type": "object"}))}})
            },
            &|next| {
                json!({"type": "object", "title": {"allOf": [{"$ref": next}, {"$ref": next}]}, "properties": {
                    "title": {"allOf": [{"$ref": next}, {}]}, "default": {"$ref": next, "minProperties": 0},
                }})
            },
            &|next| json!({"type": "object", "properties": {"a": true}, "oneOf": [{"$ref": next}, {"$ref": next}]}),
        ];
        for definition in doubling {
            assert_too_large(&definitions(40, definition));
        }
        // Each option is merged with all that stands beside them.
        let names: Map<String, Value> =
            (0..2000).map(|n| (format!("p{n}"), json!({"type": "null"}))).collect();
        let options = vec![json!({"required": []}); 2000];
        assert_too_large(&json!({"properties": {"x": {"properties": names}}, "anyOf": options}));
    }

    #[test]
    fn references_that_stay_are_free() {
        let plain = definitions(40, |next| {
            let noted = json!({"$ref": next, "description": "The next one.", "default": null});
            json!({"type": "object", "properties": {"a": {"$ref": next}, "b": noted, "c": {"allOf": [{"$ref": next}]}}})
        });
        assert!(compiled(&plain).is_ok());
        // A tree of nodes of several kinds that share their base.
        let kinds = ["Sum", "Product", "Call"];
        let kind = |name: &str| {
            let own = json!({"properties": {"kind": {"const": name}, "parts": {"items": {"$ref": "#/$defs/Node"}}}});
            json!({"allOf": [{"$ref": "#/$defs/Base"}, own]})
        };
        let mut defs: Map<String, Value> =
            kinds.iter().map(|name| (String::from(*name), kind(name))).collect();
        let references: Vec<Value> =
            kinds.iter().map(|name| json!({"$ref": format!("#/$defs/{name}")})).collect();
        defs.insert("Node".into(), json!({"anyOf": references}));
        defs.insert(
            "Base".into(),
            json!({"properties": {"parent": {"$ref": "#/$defs/Node"}}, "required": []}),
        );
        assert!(compiled(&json!({"$ref": "#/$defs/Node", "$defs": defs})).is_ok());
    }

    #[test]
    fn references_lead_where_the_library_finds_them() {
        let root = json!({"a": {"b/c": 1}, "list": [2, {"x": 3}], "$ref": "#/a"});
        for (reference, expected) in [
            ("#", Some(&root)),
            ("#/", Some(&root)),
            ("#/a", root.pointer("/a")),
            ("#/a/b~1c", None),
            ("#/list/1/x", root.pointer("/list/1/x")),
            ("#/list/2", None),
            ("a", None),
            ("https://example.org/", None),
        ] {
            assert_eq!(target(&root, reference), expected, "{reference}");
        }
        // The same list by 3000 names.
        let names = (0..3000).map(|n| json!({"$ref": format!("#/prefixItems/{:0n$}/anyOf", 0)}));
        let list = json!({"prefixItems": [{"anyOf": names.collect::<Vec<_>>()}]});
        assert!(matches!(check(&list), Err(GrammarError::TooLarge { limit: MAX_VISITS, .. })));
    }
}
