//! Schemas for all values but some types or constants.

use alloc::{vec, vec::Vec};

use serde_json::{Number, Value, json};

use super::copies::Copies;
use super::kinds::{Kinds, OTHER_TYPES};
use super::numbers::EXACT_END;
use super::{ecma, negation};

/// The constants that are told apart from others.
const MAX_VALUES: usize = 500;
/// The numbers among them, each of which parts what is left.
const MAX_NUMBERS: usize = 24;

/// Return a schema for the values of `kinds` that are of none of the types that the keyword `type`
/// names; `None` if that cannot be said.
pub(super) fn types(named: &Value, kinds: Kinds) -> Option<Value> {
    let named = match named {
        Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?,
        name => vec![name.as_str()?],
    };
    let named = named.into_iter().map(Kinds::named).fold(Kinds::NONE, |all, kinds| all | kinds);
    of_kinds(kinds.without(named))
}

/// Return a schema for the values of some types.
fn of_kinds(kinds: Kinds) -> Option<Value> {
    let has = |name: &&&str| Kinds::named(name).meet(kinds);
    let mut names: Vec<&str> = OTHER_TYPES.iter().filter(has).copied().collect();
    match (kinds.meet(Kinds::INTEGER), kinds.meet(Kinds::FRACTION)) {
        (true, true) => names.push("number"),
        (true, false) => names.push("integer"),
        // No grammar has numbers without the integers among them.
        (false, true) => return None,
        (false, false) => {}
    }
    Some(match names.as_slice() {
        [] => false.into(),
        _ if kinds == Kinds::ALL => true.into(),
        [name] => json!({"type": name}),
        names => json!({"type": names}),
    })
}

/// Return a schema for the values of `kinds` that are none of `values`; `None` if that cannot be
/// said, or only by more values than `copies` has left.
pub(super) fn values(values: &[Value], kinds: Kinds, copies: &mut Copies) -> Option<Value> {
    if values.len() > MAX_VALUES {
        return None;
    }
    let values = values.iter().filter(|value| Kinds::of_value(value).meet(kinds));
    let values: Vec<&Value> = values.collect();
    let told = values.iter().fold(Kinds::NONE, |all, value| all | whole_kind(value));
    let mut options = vec![of_kinds(kinds.without(told))?];
    if told.meet(Kinds::named("boolean")) {
        let left = [true, false].into_iter().filter(|flag| !values.contains(&&Value::Bool(*flag)));
        options.extend(left.map(|flag| json!({"const": flag})));
    }
    if told.meet(Kinds::named("number")) {
        options.extend(between(&values)?);
    }
    if told.meet(Kinds::named("string")) {
        let texts: Vec<&str> = values.iter().filter_map(|value| value.as_str()).collect();
        options.push(json!({"type": "string", "pattern": ecma::except(&texts)?}));
    }
    if told.meet(Kinds::named("array")) {
        let lists = values.iter().filter_map(|value| value.as_array());
        let others: Option<Vec<Value>> = lists.map(|list| other_lists(list, copies)).collect();
        options.push(negation::every(others?));
    }
    if told.meet(Kinds::OBJECT) {
        // No schema says that an object differs from one with properties.
        let is_empty = |value: &&&Value| value.as_object().is_none_or(serde_json::Map::is_empty);
        if !values.iter().all(|value| is_empty(&value)) {
            return None;
        }
        options.push(json!({"type": "object", "minProperties": 1}));
    }
    Some(negation::any(options))
}

/// Return the type of a value, with all numbers if it is one.
fn whole_kind(value: &Value) -> Kinds {
    if value.is_number() { Kinds::named("number") } else { Kinds::of_value(value) }
}

/// Return the schemas of the numbers between, below and above those in `values`.
fn between(values: &[&Value]) -> Option<Vec<Value>> {
    let numbers = values.iter().filter_map(|value| value.as_number());
    let exact = numbers.map(|number| number.as_f64().filter(|it| it.abs() < EXACT_END));
    let mut bounds: Vec<f64> = exact.collect::<Option<_>>()?;
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    if bounds.len() > MAX_NUMBERS {
        return None;
    }
    let ends: Vec<Option<f64>> =
        [None].into_iter().chain(bounds.into_iter().map(Some)).chain([None]).collect();
    let ranges = ends.windows(2).map(|ends| {
        let mut schema = json!({"type": "number"});
        for (keyword, end) in ["exclusiveMinimum", "exclusiveMaximum"].into_iter().zip(ends) {
            if let Some(number) = end.and_then(plain_number) {
                schema[keyword] = number.into();
            }
        }
        schema
    });
    Some(ranges.collect())
}

/// Return a number, as an integer if it is one.
fn plain_number(number: f64) -> Option<Number> {
    if number.fract() == 0.0 { Some((number as i64).into()) } else { Number::from_f64(number) }
}

/// Return a schema for all lists but one; `None` if that cannot be said.
fn other_lists(list: &[Value], copies: &mut Copies) -> Option<Value> {
    let mut options = vec![json!({"type": "array", "minItems": list.len() + 1})];
    if let Some(most) = list.len().checked_sub(1) {
        options.push(json!({"type": "array", "maxItems": most}));
    }
    for (i, value) in list.iter().enumerate() {
        let other = values(core::slice::from_ref(value), Kinds::ALL, copies)?;
        options.push(copies.with_item(i, other)?);
    }
    Some(json!({"anyOf": options}))
}
