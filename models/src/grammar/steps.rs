//! Steps of numbers (`multipleOf`): how many states their automata have.
//!
//! The automaton of a step remembers the remainder of the digits so far, so it has as many states
//! as the step has units in its last digit. Where several schemas describe one value, the library
//! joins their steps into the least common multiple, or follows all of them at once, which takes as
//! many states.

use alloc::{format, string::String, vec::Vec};
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::GrammarError;
use super::references;

/// The number of states of one step, or of those that meet. It takes some tens of milliseconds and
/// ten megabytes to compile so many.
const MAX_STATES: u64 = 10_000;
/// The digits behind the point. The library computes with powers of ten that fit into 32 bits.
const MAX_DIGITS: u32 = 8;
/// Keywords whose values are data.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

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
    let mut all = Meetings { root: schema, known: HashMap::new() };
    let mut todo = Vec::from([schema]);
    while let Some(value) = todo.pop() {
        if !all.step(value).is_small() {
            let (what, limit) = ("states for the common multiple of `multipleOf`", MAX_STATES as usize);
            return Err(GrammarError::TooLarge { what, found: limit + 1, limit });
        }
        match value {
            Value::Object(map) => todo.extend(schemas(map).map(|(_, value)| value)),
            Value::Array(values) => todo.extend(values),
            _ => {}
        }
    }
    Ok(())
}

/// Remove the steps of a schema whose common multiple is too large, and return their JSON pointers.
pub(super) fn relax(schema: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    // Where steps meet by references alone, none is near enough, and all are removed.
    for takes_all in [false, true] {
        if check(schema).is_ok() {
            break;
        }
        let pointers = steps(schema, takes_all);
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

/// Return the JSON pointers of the steps that are too large together with others of the same value,
/// or of all steps.
fn steps(schema: &Value, takes_all: bool) -> Vec<String> {
    let mut all = Meetings { root: schema, known: HashMap::new() };
    let mut found = Vec::new();
    let mut todo = Vec::from([(String::new(), schema, takes_all)]);
    while let Some((pointer, value, is_found)) = todo.pop() {
        match value {
            Value::Object(map) => {
                let is_found = is_found || !all.step(value).is_small();
                if is_found && map.get("multipleOf").is_some_and(Value::is_number) {
                    found.push(format!("{pointer}/multipleOf"));
                }
                for (key, value) in schemas(map) {
                    let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                    todo.push((pointer, value, takes_all || is_found && is_in_place(key)));
                }
            }
            Value::Array(values) => {
                let items = values.iter().enumerate();
                todo.extend(items.map(|(i, value)| (format!("{pointer}/{i}"), value, is_found)));
            }
            _ => {}
        }
    }
    found
}

/// Return the keywords that can have schemas inside of them.
fn schemas(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    map.iter().filter(|(key, _)| !DATA.contains(&key.as_str()))
}

/// Return true for a keyword whose schemas describe the same value.
fn is_in_place(keyword: &str) -> bool {
    ["allOf", "anyOf", "oneOf"].contains(&keyword)
}

/// Finds the steps that meet in each schema.
struct Meetings<'s> {
    root: &'s Value,
    /// The common multiples by the address of the schema. A schema that leads to itself adds
    /// nothing.
    known: HashMap<*const Value, Step>,
}

impl<'s> Meetings<'s> {
    fn step(&mut self, value: &'s Value) -> Step {
        let Value::Object(map) = value else { return Step::ONE };
        let address = core::ptr::from_ref(value);
        if let Some(&known) = self.known.get(&address) {
            return known;
        }
        self.known.insert(address, Step::ONE);
        let step = self.object(map);
        self.known.insert(address, step);
        step
    }

    fn object(&mut self, map: &'s Map<String, Value>) -> Step {
        let mut step = match map.get("multipleOf") {
            Some(own @ Value::Number(_)) => Step::of(own),
            _ => Step::ONE,
        };
        for (_, value) in map.iter().filter(|(key, _)| is_in_place(key)) {
            for schema in value.as_array().into_iter().flatten() {
                step = step.common(self.step(schema));
            }
        }
        let target = map.get("$ref").and_then(Value::as_str);
        match target.and_then(|reference| references::target(self.root, reference)) {
            Some(target) => step.common(self.step(target)),
            None => step,
        }
    }
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
        fn numbers_are_within_the_bound(parts in prop::collection::vec(number(), 1..4), joins in any::<bool>()) {
            let schema = if joins { json!({"allOf": parts}) } else { json!({"anyOf": parts}) };
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
