//! What operators do: the functions that `program.rs` calls in their place. Each pays before it looks or makes.

use alloc::format;
use alloc::vec::Vec;
use std::sync::Arc;

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use super::meter::Meter;
use super::program;

/// Registers everything.
pub(super) fn add_to(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    let paying = meter.clone();
    env.add_function(program::ADD, move |a: Value, b: Value| add(&paying, &a, &b));
    let paying = meter.clone();
    env.add_function(program::MULTIPLY, move |a: Value, b: Value| multiply(&paying, &a, &b));
    let paying = meter.clone();
    env.add_function(program::JOIN, move |a: Value, b: Value| paying.text(&[&a, &b]));
    let paying = meter.clone();
    env.add_function(program::ITEM, move |whole: Value, key: Value| item(&paying, &whole, &key));
    let paying = meter.clone();
    env.add_function(program::MAP, move |entries: Rest<Value>| map(&paying, &entries));
    add_comparisons(env, meter);
    add_payments(env, meter);
}

fn add_comparisons(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    type Compare = fn(&Value, &Value) -> bool;
    let comparisons: [(&str, Compare); 6] = [
        (program::EQUAL, |a, b| a == b),
        (program::UNEQUAL, |a, b| a != b),
        (program::LESS, |a, b| a < b),
        (program::AT_MOST, |a, b| a <= b),
        (program::MORE, |a, b| a > b),
        (program::AT_LEAST, |a, b| a >= b),
    ];
    for (name, compare) in comparisons {
        let paying = meter.clone();
        env.add_function(name, move |a: Value, b: Value| {
            paying.pay_to_compare(&a, &b).map(|()| compare(&a, &b))
        });
    }
    let paying = meter.clone();
    env.add_function(program::IN, move |item: Value, whole: Value| {
        contains(&paying, &item, &whole)?.ok_or_else(|| cannot("in", &item, &whole))
    });
}

/// Functions that pay for what the next step does.
fn add_payments(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    let paying = meter.clone();
    env.add_function(program::PAY, move |value: Value| settled(&paying, value));
    let paying = meter.clone();
    env.add_function(program::PAY_LOOP, move |value: Value| pay_for_text(&paying, &value).map(|()| value));
    let paying = meter.clone();
    env.add_function(program::PAY_PAIR, move |a: Value, b: Value| {
        paying.pay_to_compare(&a, &b)?;
        // Looking for one in the other can compare with each element and read the whole text.
        contains(&paying, &a, &b).map(|_| Value::from_iter([b, a]))
    });
    let paying = meter.clone();
    env.add_function(program::PAY_SLICE, move |whole: Value, from: Value, to: Value, by: Value| {
        pay_for_text(&paying, &whole)?;
        if is_list(&whole) {
            // Passing over elements is cheaper than making them.
            paying.pay(whole.len().unwrap_or(0) as u64 / 4)?;
        }
        Ok::<_, Error>(Value::from_iter([by, to, from, whole]))
    });
    let paying = meter.clone();
    env.add_function(program::PAY_SPREAD, move |lists: Rest<Value>| {
        lists.iter().try_for_each(|list| paying.pay_for_elements(list.len().unwrap_or(1)))?;
        Ok::<_, Error>(lists.iter().rev().cloned().collect::<Value>())
    });
}

fn pay_for_text(meter: &Meter, value: &Value) -> Result<(), Error> {
    value.as_str().map_or(Ok(()), |text| meter.pay(text.len() as u64))
}

/// Pays for `value`. What is made while it is read becomes a list, or views of views of views would be read many times.
fn settled(meter: &Meter, value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        return meter.pay_for(&value).map(|()| value);
    }
    let elements = value.try_iter()?.map(|element| meter.pay_for_elements(1).map(|()| element));
    elements.collect::<Result<Vec<_>, _>>().map(Value::from)
}

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

pub(super) fn is_container(value: &Value) -> bool {
    is_list(value) || value.kind() == ValueKind::Map
}

fn item(meter: &Meter, whole: &Value, key: &Value) -> Result<Value, Error> {
    pay_for_text(meter, whole)?;
    pay_for_text(meter, key)?;
    if whole.kind() == ValueKind::Iterable {
        meter.pay_for_elements(whole.len().unwrap_or(0))?;
    }
    if is_container(key) && !whole.is_undefined() {
        return Ok(Value::UNDEFINED);
    }
    whole.get_item(key)
}

/// A map. Lists and maps cannot be keys, as in Python: looking one up would compare all there is inside.
fn map(meter: &Meter, entries: &[Value]) -> Result<Value, Error> {
    meter.pay_for_elements(entries.len())?;
    let pairs = entries.as_chunks().0.iter().map(|[key, value]| {
        if is_container(key) {
            let detail = format!("a {} cannot be a key", key.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        pay_for_text(meter, key)?;
        Ok((key.clone(), value.clone()))
    });
    pairs.collect::<Result<Vec<_>, _>>().map(Value::from_pairs)
}

/// Whether `item` is in `whole`. None if that has no meaning.
pub(super) fn contains(meter: &Meter, item: &Value, whole: &Value) -> Result<Option<bool>, Error> {
    if let Some(text) = whole.as_str() {
        meter.pay(text.len() as u64)?;
        return match item.as_str() {
            Some(part) => Ok(Some(text.contains(part))),
            None => Ok(Some(text.contains(&meter.text(&[item])?))),
        };
    }
    if is_list(whole) {
        for element in whole.try_iter()? {
            meter.pay_to_compare(&element, item)?;
            if element == *item {
                return Ok(Some(true));
            }
        }
        return Ok(Some(false));
    }
    if whole.is_undefined() {
        return Ok(Some(false));
    }
    let Some(object) = whole.as_object() else { return Ok(None) };
    pay_for_text(meter, item)?;
    Ok(Some(whole.kind() == ValueKind::Map && !is_container(item) && object.get_value(item).is_some()))
}

fn cannot(operator: &str, a: &Value, b: &Value) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{} {operator} {} has no meaning", a.kind(), b.kind()))
}

fn add(meter: &Meter, a: &Value, b: &Value) -> Result<Value, Error> {
    if a.as_str().is_some() && b.as_str().is_some() {
        return meter.text(&[a, b]).map(Value::from);
    }
    if is_list(a) && is_list(b) {
        meter.pay_for(a)?;
        meter.pay_for(b)?;
        return Ok(a.try_iter()?.chain(b.try_iter()?).collect());
    }
    arithmetic("+", a, b, i128::checked_add, |a, b| a + b)
}

fn multiply(meter: &Meter, a: &Value, b: &Value) -> Result<Value, Error> {
    for (value, times) in [(a, b), (b, a)] {
        let Some(times) = times.as_i64().map(|times| usize::try_from(times).unwrap_or(0)) else { continue };
        if let Some(text) = value.as_str() {
            meter.pay((text.len() as u64).saturating_mul(times as u64))?;
            return Ok(text.repeat(times).into());
        }
        if is_list(value) {
            meter.pay_for(value)?;
            let elements: Vec<Value> = value.try_iter()?.collect();
            if elements.is_empty() {
                return Ok(elements.into());
            }
            meter.pay_for_elements(elements.len().saturating_mul(times))?;
            return Ok(core::iter::repeat_n(elements, times).flatten().collect());
        }
    }
    arithmetic("*", a, b, i128::checked_mul, |a, b| a * b)
}

fn arithmetic(
    operator: &str,
    a: &Value,
    b: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    real: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let number = |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    if !number(a) || !number(b) {
        return Err(cannot(operator, a, b));
    }
    let is_whole = |value: &Value| value.is_integer() || value.kind() == ValueKind::Bool;
    if is_whole(a) && is_whole(b) {
        let (a, b) = (i128::try_from(a.clone())?, i128::try_from(b.clone())?);
        return whole(a, b)
            .map(Value::from)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "number too large"));
    }
    Ok(real(f64::try_from(a.clone())?, f64::try_from(b.clone())?).into())
}
