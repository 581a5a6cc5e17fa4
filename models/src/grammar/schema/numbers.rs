//! Bounds of numbers.

use alloc::vec::Vec;

use serde_json::{Number, Value};

use super::keywords::Keywords;
use super::kinds::OTHER_TYPES;
use crate::grammar::steps;

/// The last integer of `f64` with the 16 digits that llama.cpp accepts: the next one has 17.
const INTEGER_LAST: i64 = 9_999_999_999_999_998;
/// The largest integer that the library can take: the last of `f64` below the end of `i64`.
const INTEGER_MAX: i64 = i64::MAX - 1023;
/// The first number with as many digits as [`INTEGER_MAX`].
const LAST_DIGIT: f64 = 1e18;

/// The end of the integers that `f64` has all of.
pub(super) const EXACT_END: f64 = 9_007_199_254_740_992.0;
/// The multiples of one step that are listed instead of it.
const MAX_LISTED: f64 = 1000.0;

/// The keywords of one side: the inclusive and the exclusive bound, and the sign of the numbers
/// there.
const SIDES: [(&str, &str, f64); 2] =
    [("minimum", "exclusiveMinimum", -1.0), ("maximum", "exclusiveMaximum", 1.0)];

/// Put the numbers in `keywords` into a form that the library can take, which has only those of
/// `f64`. A bound that is none of them or far away becomes a nearer one, which allows no number
/// that is wrong. With `adds_ends`, integers get bounds where they have none.
///
/// Return the keywords that were removed because the library has no use for them.
pub(super) fn bound(keywords: &mut Keywords<'_>, adds_ends: bool) -> Vec<&'static str> {
    let has_integers = keywords.may_be("integer") && keywords.has("type") && !keywords.may_be("number");
    let is_listed = keywords.has("const") || keywords.has("enum");
    let mut removed = Vec::new();
    split_flags(keywords);
    for (inclusive, exclusive, sign) in SIDES {
        for keyword in [inclusive, exclusive] {
            let Some(bound) = keywords.get(keyword).and_then(Value::as_number) else { continue };
            match near(bound, sign) {
                Some(near) if near == *bound => {}
                Some(near) => keywords.set(keyword, near),
                None => {
                    keywords.remove(keyword);
                    removed.push(keyword);
                }
            }
        }
    }
    hold_far(keywords);
    let is_large = keywords.get("multipleOf").is_some_and(|step| !steps::is_small(step));
    let steps = (is_large && !list_multiples(keywords)).then_some("multipleOf");
    let values = ["const", "enum"];
    let values = values.into_iter().filter(|keyword| keywords.get(keyword).is_some_and(|it| !is_exact(it)));
    for keyword in values.chain(steps).collect::<Vec<_>>() {
        keywords.remove(keyword);
        removed.push(keyword);
    }
    if adds_ends && has_integers && !is_listed && !keywords.has("multipleOf") {
        add_ends(keywords);
    }
    removed
}

/// Return a bound that the library can take, at most as far to the side of `sign` as this one and
/// not beyond [`INTEGER_MAX`]. There is none if the bound leaves only numbers that the library
/// lacks.
fn near(bound: &Number, sign: f64) -> Option<Number> {
    let found = bound.as_f64()?;
    if sign * found > INTEGER_MAX as f64 {
        return Some((sign as i64 * INTEGER_MAX).into());
    }
    if sign * found < -(INTEGER_MAX as f64) {
        return None;
    }
    let is_farther = bound.as_i128().is_some_and(|exact| sign * (found as i128 - exact) as f64 > 0.0);
    match () {
        () if !is_farther => Some(bound.clone()),
        () if sign > 0.0 => Number::from_f64(found.next_down()),
        () => Number::from_f64(found.next_up()),
    }
}

/// Return true if the library has all numbers in a value that is spelled out.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i128().is_none_or(|exact| {
            let found = exact as f64;
            found as i128 == exact && found.abs() <= INTEGER_MAX as f64
        }),
        Value::Array(values) => values.iter().all(is_exact),
        Value::Object(map) => map.values().all(is_exact),
        _ => true,
    }
}

/// Replace exclusive bounds of draft 4, which only say that the inclusive ones are exclusive.
pub(super) fn split_flags(keywords: &mut Keywords<'_>) {
    for (inclusive, exclusive, _) in SIDES {
        if let Some(&Value::Bool(is_exclusive)) = keywords.get(exclusive) {
            keywords.remove(exclusive);
            if is_exclusive && let Some(bound) = keywords.remove(inclusive) {
                keywords.set(exclusive, bound.into_owned());
            }
        }
    }
}

/// Give numbers a second bound if the first has as many digits as the library can take: it would
/// count on one digit more.
fn hold_far(keywords: &mut Keywords<'_>) {
    for ((inclusive, exclusive, sign), (lower, upper, _)) in SIDES.into_iter().zip(SIDES.into_iter().rev()) {
        let mut bounds = [lower, upper].into_iter().filter_map(|keyword| keywords.get(keyword)?.as_f64());
        let is_far = bounds.any(|bound| sign * bound >= LAST_DIGIT);
        if is_far && !keywords.has(inclusive) && !keywords.has(exclusive) {
            keywords.set(inclusive, sign as i64 * INTEGER_MAX);
        }
    }
}

/// Add the bounds of integers that are missing: those of llama.cpp, or those of the library if the
/// other bound lies beyond them.
fn add_ends(keywords: &mut Keywords<'_>) {
    let stated = |(inclusive, exclusive, _): (&str, &str, f64)| {
        [inclusive, exclusive].into_iter().find_map(|keyword| keywords.get(keyword)).map(Value::as_f64)
    };
    let [lower, upper] = SIDES.map(stated);
    for ((inclusive, _, sign), (own, other)) in SIDES.into_iter().zip([(lower, upper), (upper, lower)]) {
        let is_beyond = other.flatten().is_some_and(|other| sign * other >= INTEGER_LAST as f64);
        match own {
            Some(_) => {}
            None if is_beyond => keywords.set(inclusive, sign as i64 * INTEGER_MAX),
            None => keywords.set(inclusive, sign as i64 * INTEGER_LAST),
        }
    }
}

/// Replace a step with a large automaton by the list of its multiples, if they are few. Return
/// false if they are not.
fn list_multiples(keywords: &mut Keywords<'_>) -> bool {
    let Some(step) = keywords.get("multipleOf").and_then(Value::as_f64) else { return true };
    let bound = |keyword| keywords.get(keyword).and_then(Value::as_f64);
    let first = larger(
        bound("minimum").map(|min| (min / step).ceil()),
        bound("exclusiveMinimum").map(|min| (min / step).floor() + 1.0),
    );
    let last = larger(
        bound("maximum").map(|max| -(max / step).floor()),
        bound("exclusiveMaximum").map(|max| 1.0 - (max / step).ceil()),
    );
    let is_plain = step.fract() == 0.0 && !keywords.has("const") && !keywords.has("enum");
    let is_number = keywords.has("type") && !OTHER_TYPES.iter().any(|kind| keywords.may_be(kind));
    let (Some(first), Some(last)) = (first, last.map(|last| -last)) else { return false };
    let is_exact = (first * step).abs().max((last * step).abs()) < EXACT_END;
    if !is_plain || !is_number || !is_exact || last - first >= MAX_LISTED {
        return false;
    }
    let n = (last - first + 1.0).max(0.0) as usize;
    let multiples: Vec<Value> = (0..n).map(|i| (((first + i as f64) * step) as i64).into()).collect();
    for keyword in ["multipleOf", "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
        keywords.remove(keyword);
    }
    keywords.set("enum", multiples);
    true
}

/// Return the larger of two bounds, either of which may be missing.
fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}
