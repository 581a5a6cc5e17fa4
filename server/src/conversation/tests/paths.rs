//! Errors name the field by its path in the client's body, whatever the interface.

use super::awkward::{refusing, said};
use super::*;

/// Reads a body of an interface.
type Read = fn(&serde_json::Map<String, Value>) -> Result<Request, ConversationError>;

/// The interfaces, with the field of messages, the path from a tool to its function, and the field
/// of its schema.
const INTERFACES: [(Read, &str, &str, &str); 3] = [
    (Request::from_chat, "messages", ".function", "parameters"),
    (Request::from_anthropic, "messages", "", "input_schema"),
    (Request::from_responses, "input", "", "parameters"),
];

/// Refuses the word, the mood, and the tool `bad`.
const BAD: &str = "{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('no such word') }}{% endif %}\
     {{ m.content }}{% endfor %}{% if mood == 'grim' %}{{ raise_exception('no such mood') }}{% endif %}\
     {% if reasoning_effort == 'grim' %}{{ raise_exception('no such effort') }}{% endif %}\
     {% for t in tools or [] %}{% if t.function.name == 'bad' %}{{ 1 + 'a' }}{% endif %}{% endfor %}";

fn refused(source: &str, request: &Request) -> String {
    let template = Template::new(source).unwrap();
    template.prompt(request, model().vocab(), Thinking::Auto).unwrap_err().to_string()
}

/// Return a tool as an interface describes it.
fn tool(function: &str, schema: &str, name: Value, parameters: Value) -> Value {
    let described = json!({"name": name, schema: parameters});
    match function.is_empty() {
        true => {
            let mut tool = described;
            // Anthropic's tools need no type.
            if schema == "parameters" {
                tool["type"] = "function".into();
            }
            tool
        }
        false => json!({"type": "function", "function": described}),
    }
}

#[test]
fn fields_of_tools_are_named_on_every_interface() {
    for (read, messages, function, schema) in INTERFACES {
        let error = |name: Value, parameters: Value| {
            let tools =
                [tool(function, schema, "good".into(), json!({})), tool(function, schema, name, parameters)];
            let body = json!({messages: [said("user", "u".into())], "tools": tools});
            read(body.as_object().unwrap()).unwrap_err().to_string()
        };
        let path = format!("tools[1]{function}");
        assert_eq!(error(Value::Null, json!({})), format!("'{path}.name' is required"));
        assert_eq!(error(5.into(), json!({})), format!("'{path}.name' must be a string"));
        assert_eq!(error("a".into(), json!([])), format!("'{path}.{schema}' must be an object"));
        for kind in [json!("string"), json!(["array", "null"])] {
            let wanted = format!("'{path}.{schema}.type' must be \"object\": arguments are an object");
            assert_eq!(error("a".into(), json!({"type": kind})), wanted);
        }
    }
}

/// Tools that are left out keep their numbers.
#[test]
fn tools_that_a_template_refuses_are_counted_as_the_client_counts() {
    for (read, messages, function, schema) in INTERFACES {
        let tools = ["left", "good", "bad"].map(|name| tool(function, schema, name.into(), json!({})));
        let mut body = json!({messages: [said("user", "u".into())], "tools": tools});
        match schema {
            "input_schema" => body["tools"][0] = json!({"type": "web_search_1", "name": "left"}),
            _ if function.is_empty() => body["tools"][0] = json!({"type": "web_search"}),
            _ => {
                let allowed =
                    ["good", "bad"].map(|name| json!({"type": "function", "function": {"name": name}}));
                body["tool_choice"] =
                    json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}});
            }
        }
        let request = read(body.as_object().unwrap()).unwrap();
        assert_eq!(request.tools.len(), 2);
        let error = refused(BAD, &request);
        assert!(error.starts_with("'tools[2]' cannot be written in the model's format: "), "{error}");
    }
}

#[test]
fn messages_and_variables_are_named_on_every_interface() {
    let talk = ["u", "a", "bad", "a", "u"];
    let talk = talk.iter().zip(["user", "assistant"].into_iter().cycle());
    let talk: Vec<Value> = talk.map(|(text, role)| said(role, (*text).into())).collect();
    for (read, messages, ..) in INTERFACES {
        let read = |body: Value| read(body.as_object().unwrap()).unwrap();
        let reason = "cannot be written in the model's format: the chat template refuses these messages: ";
        let error = refused(BAD, &read(json!({ messages: talk })));
        assert_eq!(error, format!("'{messages}[2]' {reason}no such word"));
        let hello = [said("user", "u".into())];
        let mooded = json!({messages: hello, "chat_template_kwargs": {"mood": "grim", "other": 1}});
        assert_eq!(refused(BAD, &read(mooded)), format!("'chat_template_kwargs.mood' {reason}no such mood"));
        let tried = json!({messages: hello, "reasoning_effort": "grim"});
        assert_eq!(refused(BAD, &read(tried)), format!("'reasoning_effort' {reason}no such effort"));
        let roles = refusing("m.role not in ['system', 'user', 'assistant', 'tool']");
        let critic = read(json!({messages: [said("user", "u".into()), said("critic", "c".into())]}));
        let error = refused(&roles, &critic);
        assert!(error.starts_with(&format!("'{messages}[1].role' must be \"system\"")), "{error}");
    }
    let read = |body: Value| Request::from_responses(body.as_object().unwrap()).unwrap();
    let error = refused(BAD, &read(json!({"instructions": "bad", "input": talk})));
    assert!(error.starts_with("'instructions' "), "{error}");
    let error = refused(BAD, &read(json!({"input": "u", "reasoning": {"effort": "grim"}})));
    assert!(error.starts_with("'reasoning.effort' "), "{error}");
    let system = json!({"system": "bad", "messages": talk});
    let error = refused(BAD, &Request::from_anthropic(system.as_object().unwrap()).unwrap());
    assert!(error.starts_with("'system' "), "{error}");
    let error = refused("{{ 1 + 'a' }}", &read(json!({ "input": talk })));
    assert_eq!(error, "the chat template fails: line 1: an integer + a string has no meaning");
}

#[test]
fn a_message_that_cannot_be_continued_is_named() {
    let call = json!({"role": "assistant", "content": "c",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    for (last, wanted) in [
        (said("user", "v".into()), "'messages[1].role' must be \"assistant\": it is the message to continue"),
        (call, "'messages[1]' must be an answer without calls: it is the one to continue"),
    ] {
        let messages = [said("user", "u".into()), last];
        let body =
            json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
        assert_eq!(refused(CHATML, &chat(body).unwrap()), wanted);
    }
}
