//! What templates may call: the filters, tests and functions that chat templates in the wild use, and Python's methods of
//! texts and maps. Everything that writes text out pays before it grows.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::time::Duration;
use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters, functions, tests};
use minijinja_contrib::pycompat;

use super::date;
use super::meter::{Meter, Paid, Stop};
use super::operators;

/// Registers everything.
pub(super) fn fill(env: &mut Environment<'_>, meter: &Arc<Meter>, now: Duration) {
    operators::add_to(env, meter);
    add_functions(env, meter, now);
    add_text_filters(env, meter);
    add_list_filters(env, meter);
    add_tests(env, meter);
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

fn add_functions(env: &mut Environment<'_>, meter: &Arc<Meter>, now: Duration) {
    env.add_function("range", functions::range);
    env.add_function("namespace", functions::namespace);
    env.add_function("dict", functions::dict);
    let stopping = meter.clone();
    env.add_function("raise_exception", move |message: Value| -> Result<Value, Error> {
        let message = stopping.text(&[&message])?;
        Err(stopping.end(Stop::Raised(message.into())))
    });
    let paying = meter.clone();
    env.add_function("strftime_now", move |format: &str| {
        paying.pay(format.len() as u64).map(|()| date::written(now, format))
    });
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
        paying.pay_to_walk(&value)?;
        write_json(&value, indent.map(|indent| indent.min(16)), 0, &mut json)
            .map_err(|_| paying.end(Stop::Bytes))?;
        Ok(json.text)
    });
}

/// What a filter pays for before it looks at anything.
#[derive(Clone, Copy)]
enum Price {
    /// Nothing: it looks at nothing but whether there is a value.
    Nothing,
    /// The bytes of a text.
    Text,
    /// The elements of a list, the characters of a text as elements.
    Elements,
    /// Comparing everything inside, as often as sorting does.
    Order,
}

fn add_list_filters(env: &mut Environment<'_>, meter: &Arc<Meter>) {
    let filters: [(&str, Price, Value); 24] = [
        ("length", Price::Text, Value::from_function(filters::length)),
        ("count", Price::Text, Value::from_function(filters::length)),
        ("first", Price::Text, Value::from_function(filters::first)),
        ("last", Price::Text, Value::from_function(filters::last)),
        ("reverse", Price::Text, Value::from_function(filters::reverse)),
        ("abs", Price::Text, Value::from_function(filters::abs)),
        ("int", Price::Text, Value::from_function(filters::int)),
        ("float", Price::Text, Value::from_function(filters::float)),
        ("round", Price::Text, Value::from_function(filters::round)),
        ("bool", Price::Text, Value::from_function(filters::bool)),
        ("default", Price::Nothing, Value::from_function(filters::default)),
        ("d", Price::Nothing, Value::from_function(filters::default)),
        ("list", Price::Elements, Value::from_function(filters::list)),
        ("items", Price::Elements, Value::from_function(filters::items)),
        ("map", Price::Elements, Value::from_function(filters::map)),
        ("select", Price::Elements, Value::from_function(filters::select)),
        ("reject", Price::Elements, Value::from_function(filters::reject)),
        ("selectattr", Price::Elements, Value::from_function(filters::selectattr)),
        ("rejectattr", Price::Elements, Value::from_function(filters::rejectattr)),
        ("dictsort", Price::Order, Value::from_function(filters::dictsort)),
        ("sort", Price::Order, Value::from_function(filters::sort)),
        ("unique", Price::Order, Value::from_function(filters::unique)),
        ("min", Price::Order, Value::from_function(filters::min)),
        ("max", Price::Order, Value::from_function(filters::max)),
    ];
    for (name, price, filter) in filters {
        let paying = meter.clone();
        env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            pay_before(&paying, price, &args)?;
            filter.call(state, &args)
        });
    }
}

/// Pays before a filter is called. What it is told beside the value is walked through: filters take lists for names and
/// write them out.
fn pay_before(meter: &Meter, price: Price, args: &[Value]) -> Result<(), Error> {
    let Some((value, told)) = args.split_first() else { return Ok(()) };
    let n = value.len().unwrap_or(0);
    let text = value.as_str().map(str::len);
    match price {
        Price::Nothing => return Ok(()),
        Price::Text => meter.pay(text.unwrap_or(0) as u64)?,
        Price::Elements | Price::Order if text.is_some() => meter.pay_for_elements(n)?,
        Price::Elements => meter.pay(n as u64)?,
        Price::Order => {
            for _ in 0..=n.checked_ilog2().unwrap_or(0) {
                meter.pay_to_walk(value)?;
            }
        }
    }
    told.iter().try_for_each(|value| meter.pay_to_walk(value))
}

fn add_tests(env: &mut Environment<'_>, meter: &Arc<Meter>) {
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
        let paying = meter.clone();
        env.add_test(name, move |a: Value, b: Value| paying.pay_to_compare(&a, &b).map(|()| a == b));
    }
    for name in ["ne", "!="] {
        let paying = meter.clone();
        env.add_test(name, move |a: Value, b: Value| paying.pay_to_compare(&a, &b).map(|()| a != b));
    }
    let paying = meter.clone();
    env.add_test("in", move |item: Value, whole: Value| {
        operators::contains(&paying, &item, &whole).map(|found| found.unwrap_or(false))
    });
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars.flat_map(char::to_lowercase)).collect()
}

fn join(meter: &Meter, list: &Value, between: Option<Value>) -> Result<String, Error> {
    meter.pay_to_walk(list)?;
    if let Some(between) = &between {
        meter.pay_to_walk(between)?;
    }
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
    let growth = (text.matches(old).count() as u64).saturating_mul(new.len() as u64);
    meter.pay(growth.saturating_add(text.len() as u64))?;
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
            write_json_text(&out.meter.text(&[&key]).map_err(|_| core::fmt::Error)?, out)?;
            out.write_str(": ")?;
            write_json(&value.get_item(&key).unwrap_or_default(), indent, depth + 1, out)
        }),
        _ => match value.as_str() {
            Some(text) => write_json_text(text, out),
            None => write_json_text(&out.meter.text(&[value]).map_err(|_| core::fmt::Error)?, out),
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
        Some(indent) => {
            out.write_char('\n')?;
            (0..indent.saturating_mul(depth)).try_for_each(|_| out.write_char(' '))
        }
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

/// Python's methods. They pay for what they look at and for what they are told; what they return is paid for later.
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
            return replace(meter, text, &old?, &new?).map(Value::from);
        }
        (Some(_), "join", [list]) => return join(meter, list, Some(value.clone())).map(Value::from),
        (Some(_), "format", _) => return Err(Error::from(ErrorKind::UnknownMethod)),
        (Some(text), "split" | "splitlines", _) => {
            meter.pay(text.len() as u64)?;
            meter.pay_for_elements(most_pieces(text, method, args))?;
        }
        (Some(_), "startswith" | "endswith", _) => {}
        (Some(text), ..) => meter.pay(text.len() as u64)?,
        (None, "get", [key, default @ ..]) if operators::is_container(key) => {
            return Ok(default.first().cloned().unwrap_or_else(|| Value::from(())));
        }
        (None, "get", _) => {}
        (None, "count", [wanted]) if operators::is_list(value) => {
            value.try_iter()?.try_for_each(|item| meter.pay_to_compare(&item, wanted))?;
        }
        (None, ..) => meter.pay_for_elements(value.len().unwrap_or(0))?,
    }
    let told = if method == "get" { args.get(..1).unwrap_or(args) } else { args };
    told.iter().try_for_each(|value| meter.pay_to_walk(value))?;
    pycompat::unknown_method_callback(state, value, method, args)
}

/// No way to split `text` gives more pieces.
fn most_pieces(text: &str, method: &str, args: &[Value]) -> usize {
    match args.first().and_then(Value::as_str) {
        _ if method == "splitlines" => 1 + text.matches(['\n', '\r']).count(),
        Some(between) => 1 + text.matches(between).count(),
        None => 1 + text.split_whitespace().count(),
    }
}
