//! Steps of numbers (`multipleOf`): how many states their automata have.
//!
//! The automaton of a step remembers the remainder of the digits so far, so it has as many states
//! as the step has units in its last digit. Where several schemas describe one value, the library
//! joins their steps into the least common multiple, or follows all of them at once, which takes as
//! many states. It joins the properties and items of such values as well, at any depth:
//! `meetings.rs` finds all that meet.

mod meetings;

use alloc::{format, string::String, vec::Vec};

use serde_json::{Map, Value};

use super::error::GrammarError;

/// The number of states of one step, or of those that meet. It takes some tens of milliseconds and
/// ten megabytes to compile so many.
const MAX_STATES: u64 = 10_000;
/// The digits behind the point. The library computes with powers of ten that fit into 32 bits.
const MAX_DIGITS: u32 = 8;
/// Keywords whose values are data.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords whose values have schemas by names, which can be those of keywords.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// A step: a number of units in its last digit, and the digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    n_units: u64,
    n_digits: u32,
}

impl Step {
    /// The step that all integers have.
    const ONE: Self = Self { n_units: 1, n_digits: 0 };
    /// A step that no automaton has.
    const TOO_LARGE: Self = Self { n_units: u64::MAX, n_digits: 0 };

    /// Return the step that a number means, as the library reads it.
    fn of(value: &Value) -> Self {
        let Some(mut step) = value.as_f64().map(f64::abs) else { return Self::TOO_LARGE };
        let mut n_digits = 0;
        while step.fract() != 0.0 && n_digits <= MAX_DIGITS {
            step *= 10.0;
            n_digits += 1;
        }
        let is_known = n_digits <= MAX_DIGITS && step >= 1.0 && step <= MAX_STATES as f64;
        if is_known { Self { n_units: step as u64, n_digits } } else { Self::TOO_LARGE }
    }

    /// Return the least common multiple.
    fn common(self, other: Self) -> Self {
        if self == Self::TOO_LARGE || other == Self::TOO_LARGE {
            return Self::TOO_LARGE;
        }
        let n_digits = self.n_digits.max(other.n_digits);
        // At most 10^4 units and 10^8 more for each digit: the product fits.
        let units = |step: Self| u128::from(step.n_units) * 10_u128.pow(n_digits - step.n_digits);
        let (a, b) = (units(self), units(other));
        let multiple = a / greatest_common_divisor(a, b).max(1) * b;
        let (mut n_units, mut n_digits) = (multiple, n_digits);
        while n_digits > 0 && n_units % 10 == 0 {
            n_units /= 10;
            n_digits -= 1;
        }
        match u64::try_from(n_units) {
            Ok(n_units) if n_units <= MAX_STATES => Self { n_units, n_digits },
            _ => Self::TOO_LARGE,
        }
    }

    /// Return true if the automaton of the step is small enough.
    fn is_small(self) -> bool {
        self.n_units.saturating_mul(u64::from(self.n_digits) + 1) <= MAX_STATES
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Return true for a step whose automaton is small enough.
pub(super) fn is_small(step: &Value) -> bool {
    Step::of(step).is_small()
}

/// Check the steps that meet in a schema, as the library gets it.
///
/// # Errors
/// [`GrammarError::TooLarge`].
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    if meetings::too_large(schema).is_empty() {
        return Ok(());
    }
    let (what, limit) = ("states for the common multiple of `multipleOf`", MAX_STATES as usize);
    Err(GrammarError::TooLarge { what, found: limit + 1, limit })
}

/// Remove the steps of a schema whose common multiple is too large, and return their JSON pointers.
pub(super) fn relax(schema: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    // What is left of other meetings could be larger than before; then all are removed.
    for takes_all in [false, true] {
        let found = meetings::too_large(schema);
        if found.is_empty() {
            break;
        }
        let pointers = steps(schema, |value| takes_all || found.contains(&core::ptr::from_ref(value)));
        for pointer in &pointers {
            let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
            if let Some(Value::Object(map)) = schema.pointer_mut(parent) {
                map.remove("multipleOf");
            }
        }
        removed.extend(pointers);
    }
    removed
}

/// Return the JSON pointers of the steps of the schemas that are `taken`.
fn steps(schema: &Value, taken: impl Fn(&Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = Vec::from([(String::new(), schema, false)]);
    while let Some((pointer, value, has_names)) = todo.pop() {
        match value {
            Value::Object(map) => {
                if map.get("multipleOf").is_some_and(Value::is_number) && taken(value) {
                    found.push(format!("{pointer}/multipleOf"));
                }
                for (key, value, has_names) in schemas(map, has_names) {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    todo.push((format!("{pointer}/{key}"), value, has_names));
                }
            }
            Value::Array(values) => {
                let items = values.iter().enumerate();
                todo.extend(items.map(|(i, value)| (format!("{pointer}/{i}"), value, false)));
            }
            _ => {}
        }
    }
    found
}

/// Return the keywords of a schema that can have schemas inside of them, each with true if it has
/// them by their names; or the schemas of a map that `has_names`.
pub(super) fn schemas(
    map: &Map<String, Value>,
    has_names: bool,
) -> impl Iterator<Item = (&String, &Value, bool)> {
    let inner = map.iter().filter(move |(key, _)| has_names || !DATA.contains(&key.as_str()));
    inner.map(move |(key, value)| (key, value, !has_names && NAMED.contains(&key.as_str())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::grammar::testing::compiler;
    use crate::grammar::{explicit_schema, relaxed_schema};

    #[test]
    fn steps_are_counted_in_their_last_digit() {
        for (step, n_units, n_digits) in
            [(json!(5), 5, 0), (json!(0.01), 1, 2), (json!(2.5), 25, 1), (json!(1.0), 1, 0)]
        {
            assert_eq!(Step::of(&step), Step { n_units, n_digits }, "{step}");
        }
        for step in [json!(10_001), json!(223_092_870), json!(4_294_967_291_u32), json!(1e-9), json!(1e300)] {
            assert!(!is_small(&step), "{step}");
        }
    }

    /// Each of these has few bytes, and would take seconds to days.
    #[test]
    fn steps_that_meet_have_a_bound() {
        let primes = [2, 3, 5, 7, 11, 13, 17, 19, 23].map(|prime| json!({"multipleOf": prime}));
        let large = json!({"type": "integer", "multipleOf": 223_092_870});
        let schemas = [
            large.clone(),
            json!({"type": "integer", "allOf": primes}),
            json!({"type": "number", "anyOf": primes}),
            json!({"type": "object", "properties": {"a": {"allOf": primes}}}),
            json!({"type": "integer", "multipleOf": 9973, "$ref": "#/$defs/a", "$defs": {"a": {"multipleOf": 9967}}}),
            json!({"type": "number", "allOf": [{"multipleOf": 97.5}, {"multipleOf": 13.1}]}),
        ];
        let [a, b] = [9973, 9967].map(|step| json!({"type": "integer", "multipleOf": step}));
        let both = |first: Value, second: Value| json!({"allOf": [first, second]});
        let inner = |value: &Value| json!({"properties": {"x": {"type": "array", "items": value}}});
        let met = [
            both(json!({"type": "object", "properties": {"x": a}}), json!({"properties": {"x": b}})),
            both(json!({"type": "object", "properties": {"x": a}}), json!({"additionalProperties": b})),
            both(json!({"type": "object", "properties": {"x": a}}), json!({"patternProperties": {"^x": b}})),
            both(json!({"type": "array", "items": a}), json!({"type": "array", "items": b})),
            both(json!({"type": "array", "prefixItems": [a]}), json!({"type": "array", "prefixItems": [b]})),
            both(json!({"type": "array", "prefixItems": [a]}), json!({"type": "array", "items": b})),
            both(inner(&a), inner(&b)),
            json!({"properties": {"y": both(inner(&a), inner(&b))}}),
            json!({"$defs": {"a": inner(&a), "b": inner(&b)},
                "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}),
            json!({"$defs": {"a": inner(&a)}, "$ref": "#/$defs/a", "properties": {"x": {"items": b}}}),
        ];
        let named = json!({"properties": {"default": both(a, b)}});
        let schemas = schemas.into_iter().chain(met).chain([named]);
        for schema in schemas {
            let error = compiler().json_schema_value(&schema).map(drop).unwrap_err();
            assert!(format!("{error}").contains("multipleOf"), "{schema}: {error}");
            let relaxed = relaxed_schema(&schema).unwrap();
            assert!(!format!("{relaxed}").contains("multipleOf"), "{relaxed}");
            assert!(compiler().json_schema_value(&relaxed).is_ok(), "{relaxed}");
        }
        // Raw schemas of Lark grammars have the same bound.
        assert!(compiler().lark(&format!("start: %json {large}")).is_err());
    }

    /// Few values are listed, however large their step is.
    #[test]
    fn large_steps_between_near_bounds_are_followed() {
        let schema =
            json!({"type": "integer", "minimum": 0, "exclusiveMaximum": 3_000_000, "multipleOf": 1_000_000});
        let grammar = compiler().json_schema_value(&schema).unwrap();
        for (text, is_accepted) in [
            ("0", true),
            ("1000000", true),
            ("2000000", true),
            ("3000000", false),
            ("1000001", false),
            ("-1000000", false),
        ] {
            assert_eq!(grammar.accepts(text), is_accepted, "{text}");
        }
    }

    /// Steps of different values do not meet.
    #[test]
    fn steps_apart_have_no_bound_together() {
        let [a, b] = [9973, 9967].map(|step| json!({"type": "integer", "multipleOf": step}));
        for schema in [
            json!({"properties": {"a": a, "b": b}, "required": ["a", "b"]}),
            json!({"allOf": [{"properties": {"a": a}}, {"properties": {"b": b}}]}),
            json!({"type": "array", "prefixItems": [a, b]}),
            json!({"const": {"multipleOf": 99_400_891}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    /// Return a schema in which schemas of one value stand inside of a property or an item.
    fn nested(parts: Vec<Value>, levels: &[bool]) -> Value {
        let wrap = |value: Value, is_list: &bool| match is_list {
            true => json!({"type": "array", "items": value}),
            false => json!({"type": "object", "properties": {"a": value}}),
        };
        let parts = parts.into_iter().map(|part| levels.iter().fold(part, wrap));
        json!({"allOf": parts.collect::<Vec<_>>()})
    }

    fn number() -> impl Strategy<Value = Value> {
        let step = prop_oneof![
            (1_u32..60).prop_map(|step| json!(step)),
            (1_u32..3000).prop_map(|step| json!(f64::from(step) / 100.0)),
            any::<u32>().prop_map(|step| json!(step)),
        ];
        (step, prop::option::of(-500_i32..500), prop::option::of(0_i32..5000), any::<bool>()).prop_map(
            |(step, min, max, is_integer)| {
                let mut schema =
                    json!({"multipleOf": step, "type": if is_integer { "integer" } else { "number" }});
                min.into_iter().for_each(|min| schema["minimum"] = min.into());
                max.into_iter().for_each(|max| schema["maximum"] = max.into());
                schema
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Numbers that are compiled stay within the bound; others are refused by the name of it.
        #[test]
        fn numbers_are_within_the_bound(parts in prop::collection::vec(number(), 1..4), joins in any::<bool>(), levels in prop::collection::vec(any::<bool>(), 0..3)) {
            let schema = if joins { nested(parts, &levels) } else { json!({"anyOf": parts}) };
            match explicit_schema(&schema) {
                Ok(written) => match check(&written) {
                    Ok(()) => match compiler().json_schema_value(&schema) {
                        Ok(_) => {}
                        Err(error) => prop_assert!(format!("{error}").contains("nsatisfiable"), "{schema}: {error}"),
                    },
                    Err(error) => prop_assert!(format!("{error}").contains("multipleOf"), "{schema}: {error}"),
                },
                Err(error) => prop_assert!(format!("{error}").contains("multipleOf"), "{schema}: {error}"),
            }
            prop_assert!(check(&relaxed_schema(&schema).unwrap()).is_ok(), "{schema}");
        }
    }
}
