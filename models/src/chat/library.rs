//! What templates may call: the filters, tests and functions that chat templates in the wild use, and Python's methods of
//! texts and maps. Everything that writes text out pays before it grows.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;
use std::sync::Arc;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters, functions, tests};
use minijinja_contrib::pycompat;

use super::date;
use super::meter::{Meter, Paid, Stop};
use super::program;

/// Registers everything.
pub(super) fn fill(env: &mut Environment<'_>, meter: &Arc<Meter>, now: Duration) {
    add_operators(env, meter);
    add_functions(env, meter, now);
    add_text_filters(env, meter);
    add_list_filters(env);
    add_tests(env);
    let paying = meter.clone();
    env.set_unknown_method_callback(move |state, value, method, args| {
        call_method(&paying, state, value, method, args)
    });
    let paying = meter.clone();
    env.set_formatter(move |out, _, value| {
        let text = paying.text(&[value])?;
        out.write_str(&text).map_err(Error::from)
    });
}

fn add_operators(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    let paying = meter.clone();
    env.add_function(program::ADD, move |a: Value, b: Value| add(&paying, &a, &b));
    let paying = meter.clone();
    env.add_function(program::MULTIPLY, move |a: Value, b: Value| multiply(&paying, &a, &b));
    let paying = meter.clone();
    env.add_function(program::JOIN, move |a: Value, b: Value| paying.text(&[&a, &b]));
    let paying = meter.clone();
    env.add_function(program::PAY, move |value: Value| paying.pay_for(&value).map(|()| value));
}

fn add_functions(env: &mut Environment<'_>, meter: &Arc<Meter>, now: Duration) {
    env.add_function("range", functions::range);
    env.add_function("namespace", functions::namespace);
    env.add_function("dict", functions::dict);
    let stopping = meter.clone();
    env.add_function("raise_exception", move |message: Value| -> Result<Value, Error> {
        let message = stopping.text(&[&message])?;
        Err(stopping.end(Stop::Raised(message.into())))
    });
    env.add_function("strftime_now", move |format: &str| date::written(now, format));
}

/// Filters that write text out.
fn add_text_filters(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    type OfText = fn(&str) -> String;
    let simple: [(&str, OfText); 5] = [
        ("upper", str::to_uppercase),
        ("lower", str::to_lowercase),
        ("capitalize", capitalize),
        ("string", str::to_string),
        ("safe", str::to_string),
    ];
    for (name, make) in simple {
        let paying = meter.clone();
        env.add_filter(name, move |value: Value| paying.text(&[&value]).map(|text| make(&text)));
    }
    let paying = meter.clone();
    env.add_filter("trim", move |value: Value| paying.text(&[&value]).map(|text| text.trim().to_string()));
    let paying = meter.clone();
    env.add_filter("join", move |list: Value, between: Option<Value>| join(&paying, &list, between));
    let paying = meter.clone();
    env.add_filter("replace", move |value: Value, old: Value, new: Value| {
        let [text, old, new] = [&value, &old, &new].map(|value| paying.text(&[value]));
        replace(&paying, &text?, &old?, &new?)
    });
    let paying = meter.clone();
    env.add_filter(
        "indent",
        move |value: Value, width: Option<usize>, first: Option<bool>, named: Kwargs| {
            let width = width.or(named.get("width")?).unwrap_or(4);
            let first = first.or(named.get("first")?).unwrap_or(false);
            indent(&paying, &paying.text(&[&value])?, width, first)
        },
    );
    let paying = meter.clone();
    env.add_filter("tojson", move |value: Value, options: Kwargs| {
        let mut json = Paid { meter: &paying, text: String::new() };
        let indent: Option<usize> = options.get("indent")?;
        write_json(&value, indent.map(|indent| indent.min(16)), 0, &mut json)
            .map_err(|_| paying.end(Stop::Bytes))?;
        Ok(json.text)
    });
}

fn add_list_filters(env: &mut Environment<'_>) {
    env.add_filter("length", filters::length);
    env.add_filter("count", filters::length);
    env.add_filter("first", filters::first);
    env.add_filter("last", filters::last);
    env.add_filter("list", filters::list);
    env.add_filter("items", filters::items);
    env.add_filter("dictsort", filters::dictsort);
    env.add_filter("default", filters::default);
    env.add_filter("d", filters::default);
    env.add_filter("map", filters::map);
    env.add_filter("select", filters::select);
    env.add_filter("reject", filters::reject);
    env.add_filter("selectattr", filters::selectattr);
    env.add_filter("rejectattr", filters::rejectattr);
    env.add_filter("reverse", filters::reverse);
    env.add_filter("sort", filters::sort);
    env.add_filter("unique", filters::unique);
    env.add_filter("min", filters::min);
    env.add_filter("max", filters::max);
    env.add_filter("abs", filters::abs);
    env.add_filter("int", filters::int);
    env.add_filter("float", filters::float);
    env.add_filter("round", filters::round);
    env.add_filter("bool", filters::bool);
}

fn add_tests(env: &mut Environment<'_>) {
    env.add_test("defined", tests::is_defined);
    env.add_test("undefined", tests::is_undefined);
    env.add_test("none", tests::is_none);
    env.add_test("true", tests::is_true);
    env.add_test("false", tests::is_false);
    env.add_test("boolean", tests::is_boolean);
    env.add_test("string", tests::is_string);
    env.add_test("number", tests::is_number);
    env.add_test("integer", tests::is_integer);
    env.add_test("float", tests::is_float);
    env.add_test("mapping", tests::is_mapping);
    env.add_test("iterable", tests::is_iterable);
    env.add_test("sequence", tests::is_sequence);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("divisibleby", tests::is_divisibleby);
    for name in ["eq", "equalto", "=="] {
        env.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        env.add_test(name, tests::is_ne);
    }
    env.add_test("in", tests::is_in);
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
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
            let elements: Vec<Value> = value.try_iter()?.collect();
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

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars.flat_map(char::to_lowercase)).collect()
}

fn join(meter: &Meter, list: &Value, between: Option<Value>) -> Result<String, Error> {
    let mut joined = Paid { meter, text: String::new() };
    let between = between.filter(|between| !between.is_undefined() && !between.is_none());
    for (i, item) in list.try_iter()?.enumerate() {
        let gap = between.as_ref().filter(|_| i > 0);
        let written =
            gap.map_or(Ok(()), |gap| write!(joined, "{gap}")).and_then(|()| write!(joined, "{item}"));
        written.map_err(|_| meter.end(Stop::Bytes))?;
    }
    Ok(joined.text)
}

fn replace(meter: &Meter, text: &str, old: &str, new: &str) -> Result<String, Error> {
    let growth = text.matches(old).count().saturating_mul(new.len());
    meter.pay((growth + text.len()) as u64)?;
    Ok(text.replace(old, new))
}

/// `text` with `width` spaces before each line that is not empty, before the first one only if asked.
fn indent(meter: &Meter, text: &str, width: usize, first: bool) -> Result<String, Error> {
    let lines = text.split('\n').count();
    meter.pay((width as u64).saturating_mul(lines as u64).saturating_add(text.len() as u64))?;
    let space = " ".repeat(width);
    let indented = text.split('\n').enumerate().map(|(i, line)| {
        let space = if line.is_empty() || i == 0 && !first { "" } else { &space };
        format!("{space}{line}")
    });
    Ok(indented.collect::<Vec<_>>().join("\n"))
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False, indent=indent)` writes it.
fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut Paid<'_>) -> core::fmt::Result {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.write_str("null"),
        ValueKind::Bool => out.write_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write!(out, "{value}"),
        ValueKind::Seq | ValueKind::Iterable => {
            write_json_items(value, ['[', ']'], indent, depth, out, |item, out| {
                write_json(&item, indent, depth + 1, out)
            })
        }
        ValueKind::Map => write_json_items(value, ['{', '}'], indent, depth, out, |key, out| {
            write_json_text(&key.to_string(), out)?;
            out.write_str(": ")?;
            write_json(&value.get_item(&key).unwrap_or_default(), indent, depth + 1, out)
        }),
        _ => match value.as_str() {
            Some(text) => write_json_text(text, out),
            None => write_json_text(&value.to_string(), out),
        },
    }
}

fn write_json_items(
    value: &Value,
    [open, close]: [char; 2],
    indent: Option<usize>,
    depth: usize,
    out: &mut Paid<'_>,
    mut item: impl FnMut(Value, &mut Paid<'_>) -> core::fmt::Result,
) -> core::fmt::Result {
    let new_line = |depth: usize, out: &mut Paid<'_>| match indent {
        Some(indent) => write!(out, "\n{:1$}", "", indent * depth),
        None => Ok(()),
    };
    out.write_char(open)?;
    let mut n = 0;
    for element in value.try_iter().map_err(|_| core::fmt::Error)? {
        if n > 0 {
            out.write_str(if indent.is_some() { "," } else { ", " })?;
        }
        new_line(depth + 1, out)?;
        item(element, out)?;
        n += 1;
    }
    if n > 0 {
        new_line(depth, out)?;
    }
    out.write_char(close)
}

fn write_json_text(text: &str, out: &mut Paid<'_>) -> core::fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\u{8}' => out.write_str("\\b")?,
            '\u{c}' => out.write_str("\\f")?,
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32)?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

/// Python's methods. Those that can make more than they are given pay here, for the others what they return is paid for.
fn call_method(
    meter: &Meter,
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), method, args) {
        (Some(text), "replace", [old, new]) => {
            let [old, new] = [old, new].map(|value| meter.text(&[value]));
            replace(meter, text, &old?, &new?).map(Value::from)
        }
        (Some(_), "join", [list]) => join(meter, list, Some(value.clone())).map(Value::from),
        (Some(text), "split" | "splitlines", _) => {
            meter.pay_for_elements(text.len())?;
            pycompat::unknown_method_callback(state, value, method, args)
        }
        (Some(_), "format", _) => Err(Error::from(ErrorKind::UnknownMethod)),
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}
