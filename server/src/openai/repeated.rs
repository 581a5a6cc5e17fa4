//! The settings that a response tells again: those of its request, and what holds without them.

use crate::params::Fields;
use serde_json::{Map, Value, json};

/// The name of a field, and the value that stands for its absence.
type Repeated = (&'static str, fn() -> Value);

/// Fields of the request that the answer repeats as they are. Typed clients want every one, also
/// those about what there is not here.
const REPEATED: [Repeated; 14] = [
    ("background", || false.into()),
    ("instructions", || Value::Null),
    ("max_output_tokens", || Value::Null),
    ("max_tool_calls", || Value::Null),
    ("metadata", || json!({})),
    ("parallel_tool_calls", || true.into()),
    ("prompt_cache_key", || Value::Null),
    ("reasoning", || json!({})),
    ("safety_identifier", || Value::Null),
    ("service_tier", || "default".into()),
    ("text", || json!({})),
    ("tool_choice", || "auto".into()),
    ("tools", || json!([])),
    ("top_logprobs", || 0.into()),
];

/// Settings of samplers that the answer repeats, in effect also where the request is silent.
const SAMPLED: [&str; 4] = ["frequency_penalty", "presence_penalty", "temperature", "top_p"];

/// Return the fields of a response that repeat its request, whose `settings` are in effect.
pub(super) fn repeated(body: &Map<String, Value>, settings: &Value) -> Map<String, Value> {
    let fields = Fields::new(body);
    let given = REPEATED
        .iter()
        .map(|(name, default)| ((*name).to_owned(), fields.get(name).cloned().unwrap_or_else(default)));
    let mut repeated: Map<String, Value> = given.collect();
    for name in SAMPLED {
        let value = fields.get(name).or_else(|| settings.get(name));
        repeated.insert(name.into(), value.cloned().unwrap_or_default());
    }
    // Nothing is ever left out of an input to make it fit.
    repeated.insert("truncation".into(), "disabled".into());
    complete(repeated.get_mut("reasoning"), &[("effort", || Value::Null), ("summary", || Value::Null)]);
    complete(repeated.get_mut("text"), &[("format", || json!({"type": "text"}))]);
    let tools = repeated.get_mut("tools").and_then(Value::as_array_mut);
    let of_tool: [Repeated; 3] =
        [("description", || Value::Null), ("parameters", || Value::Null), ("strict", || Value::Null)];
    tools.into_iter().flatten().for_each(|tool| complete(Some(tool), &of_tool));
    repeated
}

/// Add what is missing in an object.
fn complete(object: Option<&mut Value>, defaults: &[Repeated]) {
    let Some(object) = object.and_then(Value::as_object_mut) else { return };
    for (name, default) in defaults {
        object.entry(*name).or_insert_with(default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_settings_are_those_in_effect() {
        let body = json!({
            "top_p": 0.5, "reasoning": {"effort": "low"}, "tools": [{"type": "function", "name": "f"}],
        });
        let told = repeated(body.as_object().unwrap(), &json!({"temperature": 0.8, "top_p": 0.9}));
        assert_eq!((&told["temperature"], &told["top_p"]), (&json!(0.8), &json!(0.5)));
        assert_eq!(told["reasoning"], json!({"effort": "low", "summary": null}));
        assert_eq!(told["text"], json!({"format": {"type": "text"}}));
        assert!(told["tools"][0]["strict"].is_null() && told["tools"][0]["name"] == "f");
        assert_eq!(told["truncation"], "disabled");
    }
}
