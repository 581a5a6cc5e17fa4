//! Tests of readers and renderings.

mod awkward;
mod continued;
mod forms;
mod paths;
mod replay;
mod results;

use super::paths::Paths;
use super::*;
use backstitch_models::Model;
use backstitch_models::vocab::WriteSpecial;
use serde_json::{Value, json};

const TYPED: &str =
    "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";

fn model() -> Model {
    Model::from_bytes(backstitch_demo::GGUF).unwrap()
}

fn chat(body: Value) -> Result<Request, ConversationError> {
    let mut request = Request::from_chat(body.as_object().unwrap())?;
    request.continue_assistant();
    Ok(request)
}

fn text(template: &str, request: &Request) -> String {
    Template::new(template).unwrap().prompt(request, model().vocab(), Thinking::Auto).unwrap().text
}

fn user(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[test]
fn parts_become_what_the_template_takes() {
    let parts = json!([{"type": "text", "text": "What is"}, {"type": "text", "text": "this"}]);
    let request = chat(user(parts)).unwrap();
    assert_eq!(text(CHATML, &request), "<|im_start|>user\nWhat is\nthis<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(text(TYPED, &request), "[user]What isthis");
    assert_eq!(text(TYPED, &chat(user(json!("What"))).unwrap()), "[user]What");
}

#[test]
fn the_last_message_of_the_assistant_is_continued() {
    let parts = json!([{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]);
    let mut body = user(json!("Hey"));
    body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": parts}));
    let end = "<|im_start|>user\nHey<|im_end|>\n<|im_start|>assistant\nWh\n\nill";
    assert_eq!(text(CHATML, &chat(body.clone()).unwrap()), end);
    body["continue_final_message"] = true.into();
    assert!(matches!(
        chat(body.clone()),
        Err(ConversationError::Conflict { field: "continue_final_message", .. })
    ));
    body["add_generation_prompt"] = false.into();
    assert_eq!(text(CHATML, &chat(body.clone()).unwrap()), end);
    body["continue_final_message"] = Value::Null;
    body["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": "!"}));
    let end =
        "<|im_start|>user\nHey<|im_end|>\n<|im_start|>assistant\nWh\nill<|im_end|>\n<|im_start|>assistant\n!";
    assert_eq!(text(CHATML, &chat(body).unwrap()), end);
}

#[test]
fn a_system_text_joins_the_user_where_the_template_has_no_role_for_it() {
    let template = "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}{% endif %}{% endfor %}";
    let messages = vec![Message::new("developer", "Be brief."), Message::new("user", "Hey")];
    assert_eq!(text(template, &Request::new(messages.clone())), "U:Be brief.\nHey");
    assert!(text(CHATML, &Request::new(messages)).starts_with("<|im_start|>system\nBe brief."));
}

#[test]
fn thinking_is_closed_where_it_is_off() {
    let open = "{{ messages[0].content }}{% if add_generation_prompt %}<A><think>\n{% endif %}";
    let request = chat(json!({
        "messages": [{"role": "user", "content": "Hey"}],
        "chat_template_kwargs": {"enable_thinking": false},
    }))
    .unwrap();
    assert_eq!(text(open, &request), "Hey<A><think>\n</think>");
    let knows = "{{ messages[0].content }}{% if not enable_thinking %}<think></think>{% endif %}";
    assert_eq!(text(knows, &request), "Hey<think></think>");
    assert_eq!(text(CHATML, &request), text(CHATML, &chat(user(json!("Hey"))).unwrap()));
}

#[test]
fn capabilities_are_found_by_rendering() {
    let calls = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}\
                 {{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools }}";
    let capabilities = *Template::new(calls).unwrap().capabilities();
    assert!(capabilities.object_arguments && capabilities.parallel_tool_calls && capabilities.tools);
    assert!(!capabilities.thinking && !capabilities.reasoning_effort && !capabilities.preserved_reasoning);
    let reasons = "{% for m in messages %}{% if preserve_thinking or loop.last %}{{ m.reasoning_content }}\
                   {% endif %}{{ m.content }}{% endfor %}{{ reasoning_effort }}";
    let reasons = *Template::new(reasons).unwrap().capabilities();
    assert!(reasons.preserved_reasoning && reasons.reasoning_effort);
    let chatml = *Template::new(CHATML).unwrap().capabilities();
    assert!(chatml.string_content && chatml.system_role && !chatml.typed_content);
    assert!(!chatml.tool_calls && !chatml.tools && !chatml.developer_role);
}

#[test]
fn messages_end_behind_their_control_tokens() {
    let model = model();
    let template =
        Template::new("{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}A:").unwrap();
    let messages =
        ["Once upon a time", "there was a girl", "who sang"].map(|text| Message::new("user", text));
    let request = Request::new(messages.to_vec());
    let prompt = template.prompt(&request, model.vocab(), Thinking::Auto).unwrap();
    assert_eq!(prompt.message_ends.len(), 3);
    for (i, &end) in prompt.message_ends.iter().enumerate() {
        let bytes = model.vocab().detokenize(&prompt.tokens[..end], WriteSpecial::Yes);
        let text = String::from_utf8(bytes).unwrap();
        let wanted: String = ["Once upon a time", "there was a girl", "who sang"][..=i]
            .iter()
            .map(|text| format!("{text}<|endoftext|>"))
            .collect();
        assert_eq!(text.trim_start_matches("<|endoftext|>"), wanted);
    }
}

#[test]
fn messages_end_where_the_next_one_begins() {
    let model = model();
    let template =
        Template::new("{% for m in messages %}<{{ m.role }}>\n{{ m.content }}\n{% endfor %}<assistant>\n")
            .unwrap();
    let roles = [("user", "Once upon a time"), ("assistant", "there was a girl"), ("user", "who sang")];
    let messages = roles.map(|(role, text)| Message::new(role, text));
    let prompt = template.prompt(&Request::new(messages.to_vec()), model.vocab(), Thinking::Auto).unwrap();
    let texts = prompt.message_ends.iter().map(|&end| {
        let bytes = model.vocab().detokenize(&prompt.tokens[..end], WriteSpecial::No);
        String::from_utf8(bytes).unwrap()
    });
    let texts: Vec<String> = texts.collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0].ends_with("time\n<assistant>\n"), "{texts:?}");
    assert!(texts[1].ends_with("girl\n<user>\n"), "{texts:?}");
    assert!(texts[2].ends_with("who sang"), "{texts:?}");
}

#[test]
fn three_interfaces_say_the_same() {
    let parameters = json!({"type": "object", "properties": {"in": {"type": "string"}}});
    let tool = json!({"name": "weather", "description": "Tell it.", "parameters": parameters});
    let call = json!({"name": "weather", "arguments": "{\"in\":\"Oslo\"}"});
    let from_chat = chat(json!({
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": "", "reasoning_content": "Hm.",
             "tool_calls": [{"id": "a", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "a", "content": "yes"},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ],
        "tools": [{"type": "function", "function": tool}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }))
    .unwrap();
    let anthropic = json!({
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"in": "Oslo"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "yes"}]},
                {"type": "text", "text": "And now?"},
            ]},
        ],
        "tools": [{"name": "weather", "description": "Tell it.", "input_schema": parameters}],
        "tool_choice": {"type": "tool", "name": "weather"},
    });
    let without_paths = |request: Request| Request { paths: Paths::default(), ..request };
    let from_chat = without_paths(from_chat);
    let anthropic = Request::from_anthropic(anthropic.as_object().unwrap()).unwrap();
    assert_eq!(without_paths(anthropic), from_chat);
    let responses = json!({
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "Rain?"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": ""},
            {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{\"in\":\"Oslo\"}"},
            {"type": "function_call_output", "call_id": "a", "output": "yes"},
            {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
        ],
        "tools": [{"type": "function", "name": "weather", "description": "Tell it.", "parameters": parameters}],
        "tool_choice": {"type": "function", "name": "weather"},
    });
    let responses = Request::from_responses(responses.as_object().unwrap()).unwrap();
    assert_eq!(without_paths(responses), from_chat);
}

#[test]
fn errors_name_the_field() {
    let cases = [
        (json!({}), "'messages' is required"),
        (json!({"messages": null}), "'messages' is required"),
        (json!({"messages": "text"}), "'messages' must be an array"),
        (json!({"messages": [1]}), "'messages[0]' must be an object"),
        (json!({"messages": [{}]}), "'messages[0].role' is required"),
        (json!({"messages": [{"role": 1}]}), "'messages[0].role' must be a string"),
        (
            json!({"messages": [{"role": "assistant", "function_call": {}}]}),
            "'messages[0].function_call.name' is required",
        ),
        (
            user(json!([{"type": "image_url"}])),
            "image input is not supported: 'messages[0].content[0]' must be text, which is all that the model takes",
        ),
        (user(json!([{"type": "smell"}])), "'messages[0].content[0].type' must be \"text\""),
        (json!({"messages": [], "tools": [{"type": "function"}]}), "'tools[0].function' is required"),
        (
            json!({"messages": [], "tool_choice": "perhaps"}),
            "'tool_choice' must be \"auto\", \"none\", \"required\" or a function",
        ),
        (
            json!({"messages": [], "chat_template_kwargs": {"enable_thinking": "no"}}),
            "'chat_template_kwargs.enable_thinking' must be true or false",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(chat(body.clone()).unwrap_err().to_string(), message, "{body}");
    }
}

#[test]
fn no_content_is_an_empty_text() {
    let readers = [
        (Request::from_chat as fn(&_) -> _, "messages"),
        (Request::from_anthropic, "messages"),
        (Request::from_responses, "input"),
    ];
    for (read, field) in readers {
        for role in ["user", "assistant"] {
            let texts = [json!({}), json!({"content": null}), json!({"content": ""})].map(|mut message| {
                message["role"] = role.into();
                let body = json!({field: [{"role": "user", "content": "Hi"}, message]});
                let request: Request = read(body.as_object().unwrap()).unwrap();
                text(CHATML, &request)
            });
            assert!(texts.iter().all(|text| *text == texts[2]), "{field} {role}: {texts:?}");
        }
    }
}

#[test]
fn former_calls_and_results_are_those_of_today() {
    let arguments = "{\"in\":\"Oslo\"}";
    let call = json!({"name": "weather", "arguments": arguments});
    let talk = |call: Value, result: &str| json!({"messages": [{"role": "user", "content": "Rain?"}, call, {"role": result, "name": "weather", "content": "yes"}]});
    let former = talk(json!({"role": "assistant", "content": null, "function_call": call}), "function");
    let calls = json!([{"type": "function", "function": call}]);
    let today = talk(json!({"role": "assistant", "content": null, "tool_calls": calls}), "tool");
    let roles = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}\
                 {{ c.function.name }}{{ c.function.arguments }}{% endfor %}{% endfor %}";
    for template in [CHATML, roles] {
        let former = text(template, &chat(former.clone()).unwrap());
        assert_eq!(former, text(template, &chat(today.clone()).unwrap()));
        assert!(former.contains("weather") && !former.contains("function\nyes"), "{former}");
    }
}

#[test]
fn a_stamp_that_changes_with_every_request_is_steadied() {
    let system = "x-anthropic-billing-header: cc_version=2; cch=a5145;You are Claude Code.";
    let body = json!({"system": system, "messages": []});
    let request = Request::from_anthropic(body.as_object().unwrap()).unwrap();
    let wanted = "x-anthropic-billing-header: cc_version=2; cch=fffff;You are Claude Code.";
    assert_eq!(request.messages, [Message::new("system", wanted)]);
}

#[test]
fn builtin_templates_render() {
    let request = Request::new(vec![Message::new("system", "Book"), Message::new("user", "Hi")]);
    for name in builtin_names() {
        let text = text(&builtin_template(name).unwrap(), &request);
        assert!(text.contains("Book") && text.contains("Hi"), "{name}: {text}");
    }
    let llama3 = "<|start_header_id|>system<|end_header_id|>\n\nBook<|eot_id|>\
                  <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
                  <|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(text(&builtin_template("llama3").unwrap(), &request), llama3);
}
