//! Calls of tools on all interfaces: a call that was cut is none, and a call that comes back is
//! written as the model wrote it.

mod running;

use self::running::Running;
use serde_json::{Value, json};

/// Small templates of formats in which calls end in different ways.
const TEMPLATES: [(&str, &str); 5] = [
    ("hermes", "<tool_call>{{ c.function | tojson }}</tool_call>"),
    (
        "qwen3-coder",
        "<tool_call><function={{ c.function.name }}><parameter=path></parameter></function></tool_call>",
    ),
    ("glm-4.5", "<tool_call>{{ c.function.name }}<arg_key>path</arg_key><arg_value></arg_value></tool_call>"),
    ("gemma-4", "<|tool_call>call:{{ c.function.name }}{path:<|\"|><|\"|>}<tool_call|>"),
    ("mistral-nemo", "[TOOL_CALLS][{{ c.function | tojson }}]"),
];

/// Return a template that writes calls so.
fn template(call: &str) -> String {
    format!(
        "{{% for t in tools %}}{{{{ t | tojson }}}}{{% endfor %}}{{% for m in messages %}}\
         {{{{ m.content or '' }}}}{{% for c in m.tool_calls %}}{call}{{% endfor %}}{{% endfor %}}"
    )
}

/// Return the parameters of a tool that must not be called by half.
fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"path": {"type": "string", "enum": ["/a/long/path/to/something"]}, "recursive": {"type": "boolean"}},
        "required": ["path", "recursive"],
        "additionalProperties": false,
    })
}

/// Return the body of a request that has to call a tool, and its path.
fn request(interface: &str, limit: usize, stop: Option<&str>) -> (&'static str, Value) {
    let user = json!([{"role": "user", "content": "Once upon a time"}]);
    let stop = |name: &str, body: &mut Value| {
        if let Some(stop) = stop {
            body[name] = json!([stop]);
        }
    };
    match interface {
        "chat" => {
            let tool =
                json!({"type": "function", "function": {"name": "delete", "parameters": parameters()}});
            let mut body = json!({
                "messages": user, "tools": [tool], "tool_choice": "required", "max_tokens": limit,
                "temperature": 0, "parallel_tool_calls": false,
            });
            stop("stop", &mut body);
            ("/v1/chat/completions", body)
        }
        "anthropic" => {
            let mut body = json!({
                "messages": user, "tools": [{"name": "delete", "input_schema": parameters()}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "max_tokens": limit, "temperature": 0,
            });
            stop("stop_sequences", &mut body);
            ("/v1/messages", body)
        }
        _ => {
            let tool = json!({"type": "function", "name": "delete", "parameters": parameters()});
            let mut body = json!({
                "input": "Once upon a time", "tools": [tool], "tool_choice": "required",
                "max_output_tokens": limit, "temperature": 0, "parallel_tool_calls": false,
            });
            stop("stop", &mut body);
            ("/v1/responses", body)
        }
    }
}

/// Return the calls of an answer, and true if it says that it is whole.
fn calls(interface: &str, answer: &Value) -> (Vec<Value>, bool) {
    let parsed = |text: &Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match interface {
        "chat" => {
            let choice = &answer["choices"][0];
            let calls = list(&choice["message"]["tool_calls"]);
            let calls = calls.iter().map(|call| parsed(&call["function"]["arguments"]));
            (calls.collect(), choice["finish_reason"] == "tool_calls")
        }
        "anthropic" => {
            let blocks = list(&answer["content"]);
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
            (calls.map(|block| block["input"].clone()).collect(), answer["stop_reason"] == "tool_use")
        }
        _ => {
            let items = list(&answer["output"]);
            let calls = items.iter().filter(|item| item["type"] == "function_call");
            let is_whole = answer["status"] == "completed";
            (calls.map(|item| parsed(&item["arguments"])).collect(), is_whole)
        }
    }
}

#[test]
fn a_call_is_whole_or_no_call() {
    for (name, call) in TEMPLATES {
        let server = Running::start(backstitch_demo::GGUF, Some(&template(call)));
        for interface in ["chat", "anthropic", "responses"] {
            let ask = |limit: usize, stop: Option<&str>| {
                let (path, body) = request(interface, limit, stop);
                server.post(path, &body)
            };
            let whole = ask(400, None);
            let (found, is_whole) = calls(interface, &whole);
            assert!(found.len() == 1 && is_whole, "{name}: {whole}");
            for limit in (1..80).step_by(3) {
                let answer = ask(limit, None);
                let (cut, is_whole) = calls(interface, &answer);
                assert!(
                    cut.is_empty() && !is_whole || cut == found,
                    "{name}, {interface}, {limit}: {answer}"
                );
            }
            for stop in ["path", "long", "something", "recurs", "true", "false", "}", ">", "<"] {
                let answer = ask(400, Some(stop));
                let (cut, _) = calls(interface, &answer);
                assert!(cut.is_empty() || cut == found, "{name}, {interface}, {stop:?}: {answer}");
                assert!(!cut.is_empty() || !answer.to_string().contains("\"tool_use\""), "{answer}");
            }
        }
    }
}

#[test]
fn a_stream_says_that_its_call_was_cut() {
    for (name, call) in TEMPLATES {
        let server = Running::start(backstitch_demo::GGUF, Some(&template(call)));
        for interface in ["chat", "anthropic", "responses"] {
            // The second one is found before the name of the tool, the third one behind it.
            for stop in [None, Some("elet"), Some("something")] {
                let (path, body) = request(interface, 400, stop);
                let events = server.stream(path, body);
                let reason = end_of_stream(interface, &events);
                let wanted = match (stop, interface) {
                    (None, "chat") => "tool_calls",
                    (None, "anthropic") => "tool_use",
                    (None, _) => "completed",
                    (Some(_), "chat") => "length",
                    (Some(_), "anthropic") => "max_tokens",
                    (Some(_), _) => "incomplete",
                };
                assert_eq!(reason, wanted, "{name}, {interface}: {events:?}");
            }
        }
    }
}

#[test]
fn a_cut_call_is_in_no_response() {
    let server = Running::start(backstitch_demo::GGUF, Some(&template(TEMPLATES[0].1)));
    let (path, body) = request("responses", 20, None);
    let whole = server.post(path, &body);
    let events = server.stream(path, body);
    let told = |response: &Value| {
        let items = response["output"].as_array().unwrap();
        let item =
            |item: &Value| (item["type"].clone(), item["status"].clone(), item["content"][0]["text"].clone());
        (response["status"].clone(), items.iter().map(item).collect::<Vec<_>>())
    };
    let streamed = told(&events.last().unwrap()["response"]);
    assert_eq!(told(&whole), streamed);
    let (status, items) = streamed;
    assert_eq!((status, items.len()), (json!("incomplete"), 1));
    assert_eq!((&items[0].0, &items[0].1), (&json!("message"), &json!("incomplete")));
    assert!(events.iter().all(|event| event["type"] != "response.function_call_arguments.done"));
}

/// Return the reason that a stream gives for its end.
fn end_of_stream<'e>(interface: &str, events: &'e [Value]) -> &'e str {
    let mut reasons = events.iter().rev().filter_map(|event| match interface {
        "chat" => event["choices"][0]["finish_reason"].as_str(),
        "anthropic" => event["delta"]["stop_reason"].as_str(),
        _ => event["response"]["status"].as_str(),
    });
    reasons.next().unwrap_or_default()
}

#[test]
fn a_call_that_comes_back_is_not_evaluated_again() {
    // These write calls in another way than the model is likely to.
    let spaced = [
        (
            "hermes",
            "<tool_call>\n\n{\"name\":  \"{{ c.function.name }}\", \"arguments\":   {{ c.function.arguments | tojson }} }\n\n</tool_call>",
        ),
        (
            "qwen3-coder",
            "<tool_call>\n\n<function={{ c.function.name }}>\n\n{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n\n{% endfor %}</function>\n\n</tool_call>",
        ),
    ];
    let spaced = spaced.map(|(name, call)| (name, template(call)));
    // One that has no calls: they are written into the texts of the assistant.
    let plain = "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n{% endfor %}\
        {% if add_generation_prompt %}assistant:\n{% endif %}";
    for (name, template) in spaced.into_iter().chain([("without calls", plain.to_owned())]) {
        let server = Running::start(backstitch_demo::GGUF, Some(&template));
        let (path, mut body) = request("chat", 400, None);
        let answer = server.post(path, &body);
        let message = answer["choices"][0]["message"].clone();
        let n_first = answer["usage"]["total_tokens"].as_u64().unwrap();
        let id = message["tool_calls"][0]["id"].clone();
        let result = json!({"role": "tool", "tool_call_id": id, "content": "done"});
        let messages = body["messages"].as_array_mut().unwrap();
        messages.extend([message, result]);
        let again = server.post(path, &body);
        let reused = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!(reused + 2 >= n_first, "{name}: {reused} of {n_first}: {answer} {again}");
        // A call that the client changed is written as the template writes it.
        body["messages"][1]["tool_calls"][0]["function"]["arguments"] = "{\"path\":\"/\"}".into();
        let changed = server.post(path, &body);
        let reused = changed["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!(reused < n_first, "{name}: {reused}");
    }
}

#[test]
fn names_that_calls_cannot_have_are_refused() {
    for (name, call) in TEMPLATES {
        let server = Running::start(backstitch_demo::GGUF, Some(&template(call)));
        for tool in ["", "a b", "x@y", "[z]", "\"q\"", "🙂"] {
            let (path, mut body) = request("chat", 400, None);
            body["tools"][0]["function"]["name"] = tool.into();
            let (status, answer) = server.send("POST", path, &body);
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            let is_json = ["hermes", "mistral-nemo"].contains(&name) && !tool.is_empty();
            if !is_json {
                assert_eq!(status, 400, "{name}, {tool:?}: {answer}");
                assert!(message.contains("tools[0].function.name"), "{answer}");
            } else {
                let (found, _) = calls("chat", &answer);
                assert_eq!((status, found.len()), (200, 1), "{name}, {tool:?}: {answer}");
            }
        }
    }
}

#[test]
fn names_that_are_refused_are_told_by_their_path_on_every_interface() {
    let call = TEMPLATES.iter().find(|(name, _)| *name == "qwen3-coder").unwrap().1;
    let server = Running::start(backstitch_demo::GGUF, Some(&template(call)));
    for (interface, function, schema) in [
        ("chat", ".function", "parameters"),
        ("anthropic", "", "input_schema"),
        ("responses", "", "parameters"),
    ] {
        let error = |change: &dyn Fn(&mut Value)| {
            let (path, mut body) = request(interface, 40, None);
            let function = format!("/tools/0{}", function.replace('.', "/"));
            change(body.pointer_mut(&function).unwrap());
            let (status, answer) = server.send("POST", path, body);
            assert_eq!(status, 400, "{answer}");
            (answer["error"]["message"].as_str().unwrap().to_owned(), answer["error"]["param"].clone())
        };
        let name = error(&|tool| tool["name"] = "a b".into());
        let long = "p".repeat(1000);
        let parameter =
            error(&|tool| tool[schema] = json!({"type": "object", "properties": {long.as_str(): {}}}));
        for ((message, param), field) in [(name, "name"), (parameter, schema)] {
            let path = format!("tools[0]{function}.{field}");
            assert!(message.contains(&format!("\"{path}\" must be ")), "{interface}: {message}");
            assert!(param.is_null() || param == path, "{interface}: {param}");
        }
    }
}
