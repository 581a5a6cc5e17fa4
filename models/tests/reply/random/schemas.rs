//! Random tools, and whether arguments match their schemas.

use backstitch_models::chat::Value;
use backstitch_models::chat::reply::{Format, UnwritableName};

/// Random numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Return a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n as u64) as usize
    }

    fn one<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// Names of parameters, most of them odd.
const NAMES: [&str; 18] = [
    "a",
    "city",
    "days",
    "$filter",
    "a b",
    "x:y",
    "@id",
    "a\"b",
    "é",
    "🙂",
    "a.b",
    "item",
    "name",
    "arguments",
    "parameters",
    "a>b",
    "path",
    "ab",
];
/// Schemas of single values.
const SCHEMAS: [&str; 34] = [
    r#"{"type":"string"}"#,
    r#"{"type":"integer"}"#,
    r#"{"type":"number"}"#,
    r#"{"type":"boolean"}"#,
    r#"{"type":"null"}"#,
    r#"{}"#,
    r#"{"enum":["a","b c","null","5",""]}"#,
    r#"{"enum":["a",1,null,true]}"#,
    r#"{"const":"x"}"#,
    r#"{"const":7}"#,
    r#"{"type":["string","null"]}"#,
    r#"{"type":["string","integer"],"minimum":10,"maxLength":5}"#,
    r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
    r#"{"anyOf":[{"const":"one"},{"const":"two"},{"enum":["three"]}]}"#,
    r#"{"oneOf":[{"type":"integer","minimum":3},{"type":"string","minLength":2}]}"#,
    r#"{"type":"string","pattern":"^[a-z]{2,4}$"}"#,
    r#"{"type":"string","pattern":"[0-9]"}"#,
    r#"{"type":"string","minLength":1,"maxLength":6}"#,
    r#"{"type":"string","format":"date"}"#,
    r#"{"type":"string","format":"uuid"}"#,
    r#"{"type":["string","null"],"pattern":"^n[a-z]*$"}"#,
    r#"{"type":"array","items":{"type":"string"}}"#,
    r#"{"type":"array","items":{"enum":["x","y"]},"minItems":1,"maxItems":3}"#,
    r#"{"type":"array","items":{"type":["string","null"]},"maxItems":2}"#,
    r#"{"type":"array"}"#,
    r#"{"type":"object","properties":{"k":{"type":"string"},"a b":{"type":"integer"}},"required":["k"]}"#,
    r#"{"type":"object","properties":{"o":{"type":"object","properties":{"@x":{"type":"string","maxLength":3}}}},"required":["o"]}"#,
    r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
    r#"{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}"#,
    r#"{"anyOf":[{"type":"object","properties":{"q":{"type":"boolean"}},"required":["q"]},{"type":"string"}]}"#,
    r#"{"allOf":[{"type":"string"},{"maxLength":4}]}"#,
    r#"{"type":"integer","minimum":0,"maximum":20}"#,
    r#"{"enum":[1.5,2,"three"]}"#,
    r#"{"type":["boolean","string"],"enum":["yes",false]}"#,
];

/// Return the description of a tool.
fn tool(name: &str, random: &mut Random) -> Value {
    if random.below(12) == 0 {
        return Value::map([("name", Value::from(name))]);
    }
    let n = if random.below(20) == 0 { 40 } else { random.below(6) };
    let (mut properties, mut required) = (Vec::new(), Vec::new());
    for i in 0..n {
        let name = if n == 40 { format!("p{i}") } else { random.one(&NAMES).to_string() };
        if properties.iter().any(|(other, _)| *other == name) {
            continue;
        }
        let schema = Value::from_json(random.one(&SCHEMAS)).unwrap();
        if random.below(2) == 0 {
            required.push(Value::from(name.as_str()));
        }
        properties.push((name, schema));
    }
    let mut entries = vec![
        ("type", Value::from("object")),
        ("properties", Value::Map(properties)),
        ("required", Value::List(required)),
    ];
    match random.below(4) {
        0 => entries.push(("additionalProperties", Value::Bool(false))),
        1 => entries.push(("additionalProperties", Value::from_json(random.one(&SCHEMAS)).unwrap())),
        _ => {}
    }
    Value::map([("name", Value::from(name)), ("parameters", Value::map(entries))])
}

/// Return one or two tools.
pub fn random_tools(random: &mut Random) -> Vec<Value> {
    let names = ["weather", "f", "find-it", "a.b", "name", "x_1"];
    let first = random.below(names.len());
    let mut tools = vec![tool(names[first], random)];
    if random.below(3) == 0 {
        tools.push(tool(names[(first + 1) % names.len()], random));
    }
    tools
}

/// Remove the parameters that a format has no text for.
pub fn writable(mut tools: Vec<Value>, format: &Format) -> Vec<Value> {
    while let Some(UnwritableName { tool, parameter: Some(name) }) = format.unwritable_name(&tools) {
        let Value::Map(tool) = &mut tools[tool] else { break };
        for (_, parameters) in tool.iter_mut().filter(|(key, _)| key == "parameters") {
            let Value::Map(keywords) = parameters else { continue };
            for (key, value) in keywords {
                match value {
                    Value::Map(entries) if key == "properties" => entries.retain(|(other, _)| *other != name),
                    Value::List(names) if key == "required" => {
                        names.retain(|other| other.as_str() != Some(&name))
                    }
                    _ => {}
                }
            }
        }
    }
    tools
}

/// Return true if `value` matches a schema of the kinds above.
pub fn matches(value: &Value, schema: &Value) -> bool {
    let Value::Map(keywords) = schema else { return *schema != Value::Bool(false) };
    let further =
        |name: &str| schema.get("properties").is_none_or(|properties| properties.get(name).is_none());
    keywords.iter().all(|(key, limit)| match (key.as_str(), limit, value) {
        ("type", limit, value) => match limit.as_list() {
            Some(kinds) => kinds.iter().any(|kind| is_kind(value, kind)),
            None => is_kind(value, limit),
        },
        ("enum", Value::List(list), value) => list.iter().any(|one| equal(one, value)),
        ("const", one, value) => equal(one, value),
        ("anyOf" | "oneOf", Value::List(list), value) => list.iter().any(|one| matches(value, one)),
        ("allOf", Value::List(list), value) => list.iter().all(|one| matches(value, one)),
        ("minimum", limit, Value::Int(_) | Value::Float(_)) => number(value) >= number(limit),
        ("maximum", limit, Value::Int(_) | Value::Float(_)) => number(value) <= number(limit),
        ("minLength", Value::Int(n), Value::Str(text)) => text.chars().count() as i64 >= *n,
        ("maxLength", Value::Int(n), Value::Str(text)) => text.chars().count() as i64 <= *n,
        ("pattern", Value::Str(pattern), Value::Str(text)) => fits(pattern, text),
        ("format", Value::Str(format), Value::Str(text)) => match format.as_str() {
            "date" => text.len() == 10 && text.split('-').map(str::len).eq([4, 2, 2]),
            "uuid" => text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]),
            _ => true,
        },
        ("items", items, Value::List(list)) => list.iter().all(|one| matches(one, items)),
        ("minItems", Value::Int(n), Value::List(list)) => list.len() as i64 >= *n,
        ("maxItems", Value::Int(n), Value::List(list)) => list.len() as i64 <= *n,
        ("required", Value::List(names), value @ Value::Map(_)) => {
            names.iter().all(|name| value.get(name.as_str().unwrap()).is_some())
        }
        ("properties", properties, Value::Map(entries)) => entries
            .iter()
            .all(|(name, value)| properties.get(name).is_none_or(|schema| matches(value, schema))),
        ("additionalProperties", limit, Value::Map(entries)) => {
            entries.iter().all(|(name, value)| !further(name) || matches(value, limit))
        }
        _ => true,
    })
}

/// Return true if a text matches one of the patterns above.
fn fits(pattern: &str, text: &str) -> bool {
    let is_lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    match pattern {
        "^[a-z]{2,4}$" => (2..=4).contains(&text.len()) && is_lower(text),
        "[0-9]" => text.contains(|c: char| c.is_ascii_digit()),
        "^n[a-z]*$" => text.starts_with('n') && is_lower(text),
        _ => panic!("{pattern}"),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(n) => *n as f64,
        Value::Float(x) => *x,
        _ => f64::NAN,
    }
}

fn is_kind(value: &Value, kind: &Value) -> bool {
    match (value, kind.as_str().unwrap_or_default()) {
        (Value::Null, "null") | (Value::Bool(_), "boolean") | (Value::Str(_), "string") => true,
        (Value::Int(_), "integer" | "number") | (Value::Float(_), "number") => true,
        (Value::Float(x), "integer") => x.fract() == 0.0,
        (Value::List(_), "array") | (Value::Map(_), "object") => true,
        _ => false,
    }
}

fn equal(one: &Value, other: &Value) -> bool {
    one == other || number(one) == number(other)
}
