//! Things that programs of other people rely on: calls of tools that were asked for, formats,
//! salts, gaps.

#[allow(dead_code, reason = "other tests use the rest")]
mod running;

use self::running::Running;
use backstitch_server::params::ServerParams;
use serde_json::{Value, json};

/// Return a request that offers two tools.
fn with_tools(choice: &Value) -> Value {
    let tool = |name: &str, word: &str| {
        let properties = json!({"word": {"type": "string", "enum": [word, "other"]}});
        let parameters = json!({
            "type": "object", "properties": properties, "required": ["word"], "additionalProperties": false,
        });
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    json!({
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "tools": [tool("find", "dog"), tool("say", "cat")],
        "tool_choice": choice,
        // The story model would call and call.
        "parallel_tool_calls": false,
        "max_tokens": 300,
        "temperature": 0,
    })
}

#[test]
fn a_required_call_comes_whatever_the_template_knows() {
    let knows = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>\
                 {{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}\
                 {% for t in tools %}{{ t | tojson }}{% endfor %}";
    for template in [None, Some(knows)] {
        let server = Running::start(backstitch_demo::GGUF, template);
        for (choice, name) in [
            (json!("required"), None),
            (json!({"type": "function", "function": {"name": "say"}}), Some("say")),
        ] {
            let answer = server.post("/v1/chat/completions", with_tools(&choice));
            let calls = &answer["choices"][0]["message"]["tool_calls"];
            let function = &calls[0]["function"];
            assert!(function["name"].is_string(), "{template:?} {choice}: {answer}");
            assert!(name.is_none_or(|name| function["name"] == name), "{answer}");
            let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments["word"].is_string(), "{answer}");
            assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
        }
    }
}

/// The demo model has no template, and its vocabulary no token for the end of a message of ChatML.
#[test]
fn the_text_of_the_end_of_a_message_ends_the_answer() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let body = json!({
        "messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
        "grammar": "root ::= \"Yes.<|im_end|>\\n<|im_start|>user\"",
    });
    let answer = server.post("/v1/chat/completions", &body);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("Yes."), &json!("stop")));
    let mut body = body;
    body["max_tokens"] = 100.into();
    let answer = server.post("/v1/messages", &body);
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("end_turn"), &Value::Null));
}

#[test]
fn tools_reach_models_whose_template_drops_them() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let mut body = with_tools(&json!("auto"));
    let call = json!({"id": "a", "type": "function", "function": {"name": "say", "arguments": "{\"word\":\"cat\"}"}});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "meow"}));
    let prompt = server.post("/apply-template", &body)["prompt"].as_str().unwrap().to_owned();
    for part in [
        "<|im_start|>system\nYou can call",
        "\"name\":\"find\"",
        "<tool_call>\n{\"name\":\"say\",\"arguments\":{\"word\":\"cat\"}}\n</tool_call><|im_end|>",
        "<|im_start|>user\n<tool_response>\nmeow\n</tool_response>",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    // Tools that cannot be called are not told.
    body["tool_choice"] = "none".into();
    let silent = server.post("/apply-template", &body)["prompt"].as_str().unwrap().to_owned();
    assert!(!silent.contains("You can call") && silent.contains("meow"), "{silent}");
}

#[test]
fn media_are_refused_in_the_shape_of_the_interface() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let body = json!({"messages": [{"role": "user", "content": [part]}]});
    let (status, answer) = server.send("POST", "/v1/chat/completions", &body);
    assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request_error")));
    let part = json!({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}});
    let body = json!({"max_tokens": 5, "messages": [{"role": "user", "content": [part]}]});
    let (status, answer) = server.send("POST", "/v1/messages", &body);
    assert_eq!((status, &answer["type"]), (400, &json!("error")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("image input is not supported"));
}

#[test]
fn the_cache_of_a_salt_is_seen_with_it_alone() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let body = json!({"prompt": "Once upon a time", "n_predict": 2, "cache_salt": "a"});
    server.post("/completion", &body);
    let seen = |path: &str| server.send("GET", path, &Value::Null).1["sequences"].as_array().unwrap().len();
    let counts =
        ["", "?cache_salt=a", "?cache_salt=b"].map(|query| seen(&format!("/backstitch/cache{query}")));
    assert_eq!(counts, [0, 1, 0]);
}

/// Return the demo model with the end of reasoning in place of a word that it writes often.
fn that_thinks() -> &'static [u8] {
    let mut gguf = backstitch_demo::GGUF.to_vec();
    let entry = [&8u64.to_le_bytes()[..], "Ġlittle".as_bytes()].concat();
    let at = gguf.windows(16).position(|at| at == entry).unwrap();
    gguf[at + 8..at + 16].copy_from_slice(b"</think>");
    gguf.leak()
}

#[test]
fn an_answer_in_a_format_comes_behind_the_reasoning() {
    let ends_open = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}";
    let schema = json!({"properties": {"a": {"const": "x"}}, "required": ["a"]});
    let format = json!({"type": "json_schema", "json_schema": {"schema": schema}});
    let messages = json!([{"role": "user", "content": ""}]);
    let body = json!({"messages": messages, "response_format": format, "max_tokens": 400, "temperature": 0});
    let server = Running::start(that_thinks(), Some(ends_open));
    let answer = server.post("/v1/chat/completions", &body);
    let message = &answer["choices"][0]["message"];
    let content: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
    assert_eq!(content, json!({"a": "x"}), "{answer}");
    assert!(!message["reasoning_content"].as_str().unwrap().contains('{'), "{answer}");
}

/// Return the demo model with the tokens that mark a gap in place of three words.
fn with_gaps() -> &'static [u8] {
    let mut gguf = backstitch_demo::GGUF.to_vec();
    let names = gguf.windows(21).position(|at| at == b"tokenizer.ggml.tokens").unwrap();
    for (word, mark) in [("Ġmom", "<PRE>"), ("Ġboy", "<SUF>"), ("Ġtwo", "<MID>")] {
        let entry = [&5u64.to_le_bytes()[..], word.as_bytes()].concat();
        let at = names + gguf[names..].windows(13).position(|at| at == entry).unwrap();
        gguf[at + 8..at + 13].copy_from_slice(mark.as_bytes());
    }
    gguf.leak()
}

#[test]
fn a_suffix_is_a_gap_where_the_model_knows_gaps() {
    let body = json!({
        "prompt": "Once upon", "suffix": "the end", "max_tokens": 3, "temperature": 0, "echo": true,
        "logprobs": 0,
    });
    let server = Running::start(backstitch_demo::GGUF, None);
    let answer = server.post("/v1/completions", &body);
    assert_eq!(answer["backstitch"]["ignored"], json!(["suffix"]));
    let n_plain = answer["usage"]["prompt_tokens"].as_u64().unwrap();

    let server = Running::start(with_gaps(), None);
    let answer = server.post("/v1/completions", &body);
    assert!(answer["backstitch"].get("ignored").is_none(), "{answer}");
    assert!(answer["choices"][0]["text"].as_str().unwrap().starts_with("Once upon"));
    assert_eq!(answer["choices"][0]["logprobs"]["tokens"].as_array().unwrap().len(), 3);
    let native =
        json!({"input_prefix": "Once upon", "input_suffix": "the end", "n_predict": 3, "temperature": 0.0});
    let native = server.post("/infill", &native);
    assert_eq!(answer["usage"]["prompt_tokens"], native["tokens_evaluated"]);
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > n_plain + 3);
    let echoed = format!("Once upon{}", native["content"].as_str().unwrap());
    assert_eq!(answer["choices"][0]["text"], echoed);
}

#[test]
fn a_grammar_holds_what_a_decoder_with_an_encoder_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/t5.gguf");
    let server = Running::start(std::fs::read(path).unwrap().leak(), None);
    let body = json!({"prompt": "a text of several tokens", "n_predict": 40, "regex": "[a-z]{3}"});
    let content = server.post("/completion", &body)["content"].clone();
    let text = content.as_str().unwrap();
    assert!(text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_lowercase()), "{text:?}");
}

#[test]
fn errors_have_the_names_that_the_client_gave() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let chat = |field: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
        body[field] = value;
        body
    };
    let cases = [
        (
            "/v1/chat/completions",
            chat("stream_options", json!({"include_usage": 1})),
            "stream_options.include_usage",
        ),
        ("/v1/chat/completions", chat("model", json!(5)), "model"),
        ("/v1/messages", chat("stop_sequences", json!(5)), "stop_sequences"),
        ("/v1/responses", json!({"input": "a", "max_output_tokens": "5"}), "max_output_tokens"),
        ("/v1/responses", json!({"input": "a", "text": {"format": "json"}}), "text.format"),
        ("/tokenize", json!({"prompt": 5}), "prompt"),
        ("/completion", json!({"prompt": "a", "logit_bias": {"a": "b"}}), "logit_bias.a"),
        ("/completion", json!({"prompt": "a", "logit_bias": {"99999999": 1}}), "logit_bias.99999999"),
        ("/completion", json!({"prompt": "a", "logit_bias": [[1, 1], [1, "x"]]}), "logit_bias[1][1]"),
        ("/completion", json!({"prompt": "a", "logit_bias": [[-1, 1]]}), "logit_bias[0][0]"),
        ("/completion", json!({"prompt": "a", "logit_bias": [5]}), "logit_bias[0]"),
        ("/v1/chat/completions", chat("thinking_budget_tokens", json!("x")), "thinking_budget_tokens"),
        (
            "/v1/messages",
            chat("thinking", json!({"type": "enabled", "budget_tokens": "x"})),
            "thinking.budget_tokens",
        ),
        ("/v1/messages", chat("output_config", json!(5)), "output_config"),
        ("/v1/responses", json!({"input": "a", "text": 5}), "text"),
        ("/completion", json!({"prompt": "a", "stop": ["b", 5]}), "stop[1]"),
        ("/v1/messages", chat("stop_sequences", json!([5])), "stop_sequences[0]"),
        ("/detokenize", json!({"tokens": [0, -1]}), "tokens[1]"),
        ("/completion", json!({"prompt": "a", "samplers": ["x"]}), "samplers"),
        ("/completion", json!({"prompt": "a", "json_schema": refused()}), "json_schema"),
        ("/completion", json!({"prompt": "a", "grammar": "root ::= ("}), "grammar"),
        (
            "/v1/completions",
            json!({"prompt": "a", "response_format": format(&refused())}),
            "response_format.json_schema.schema",
        ),
        (
            "/v1/chat/completions",
            chat("response_format", format(&refused())),
            "response_format.json_schema.schema",
        ),
        (
            "/v1/responses",
            json!({"input": "a", "text": {"format": {"type": "json_schema", "schema": refused()}}}),
            "text.format.schema",
        ),
        (
            "/v1/messages",
            chat("output_config", json!({"format": {"type": "json_schema", "schema": refused()}})),
            "output_config.format.schema",
        ),
    ];
    for (path, body, name) in cases {
        let (status, answer) = server.send("POST", path, &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status, message.split('"').nth(1)), (400, Some(name)), "{path} {body}: {answer}");
        let param = &answer["error"]["param"];
        assert!(path == "/v1/messages" || param == name, "{answer}");
    }
}

#[test]
fn combinations_that_make_no_sense_name_what_was_sent() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let chat = |more: Value| {
        let mut body = with_tools(&Value::Null);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let named = json!({"type": "function", "function": {"name": "no"}});
    let cases = [
        (chat(json!({"tools": [], "tool_choice": "required"})), "tool_choice"),
        (chat(json!({"tool_choice": named})), "tool_choice.function.name"),
        (chat(json!({"tool_choice": "required", "grammar": "root ::= \"a\""})), "grammar"),
        (chat(json!({"tool_choice": "required", "json_schema": {}})), "json_schema"),
        (chat(json!({"tool_choice": "required", "response_format": format(&json!({}))})), "response_format"),
        (chat(json!({"top_logprobs": 2})), "top_logprobs"),
        (chat(json!({"continue_final_message": true})), "continue_final_message"),
        (
            chat(json!({"continue_final_message": true, "add_generation_prompt": true})),
            "add_generation_prompt",
        ),
    ];
    let responses = [
        (json!({"input": "a", "previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"input": "a", "conversation": "conv_1"}), "conversation"),
        (json!({"input": "a", "tool_choice": {"type": "function", "name": "no"}}), "tool_choice.name"),
    ];
    let cases = cases.into_iter().map(|case| ("/v1/chat/completions", case));
    for (path, (body, name)) in cases.chain(responses.into_iter().map(|case| ("/v1/responses", case))) {
        let (status, answer) = server.send("POST", path, &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{answer}");
    }
}

#[test]
fn tools_that_run_elsewhere_are_listed_and_cannot_be_chosen() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let mut body = json!({
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    });
    let told = server.post("/v1/messages", &body);
    assert_eq!(told["backstitch"]["ignored"], json!(["tools[0]"]), "{told}");
    body["tool_choice"] = json!({"type": "tool", "name": "web_search"});
    let (status, answer) = server.send("POST", "/v1/messages", &body);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        status == 400 && message.contains("\"tool_choice.name\"") && message.contains("run here"),
        "{answer}"
    );
    let body = json!({"input": "Hi", "max_output_tokens": 2, "tools": [{"type": "web_search"}]});
    assert_eq!(server.post("/v1/responses", body)["backstitch"]["ignored"], json!(["tools[0]"]));
}

/// Return a schema that no grammar can follow.
fn refused() -> Value {
    json!({"type": "array", "contains": {"const": 1}})
}

/// Return the format of chat completions with this schema.
fn format(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"schema": schema}})
}

#[test]
fn every_interface_follows_formats_and_lists_what_it_ignores() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let schema = json!({"type": "string", "format": "iban", "maxLength": 3});
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let other = json!({"format": {"type": "json_schema", "schema": schema}});
    for (path, body) in [
        ("/completion", json!({"prompt": "a", "n_predict": 20, "json_schema": schema})),
        ("/v1/completions", json!({"prompt": "a", "max_tokens": 20, "json_schema": schema})),
        ("/v1/completions", json!({"prompt": "a", "max_tokens": 20, "response_format": format(&schema)})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "model": "a", "response_format": format(&schema)}),
        ),
        ("/v1/responses", json!({"input": "a", "text": other})),
        ("/v1/messages", json!({"messages": messages, "output_config": other})),
    ] {
        let whole = server.post(path, &body);
        assert_eq!(whole["backstitch"]["ignored"], json!(["#/format"]), "{path}: {whole}");
        let text = [
            "/content",
            "/choices/0/text",
            "/choices/0/message/content",
            "/output/0/content/0/text",
            "/content/0/text",
        ]
        .iter()
        .find_map(|at| whole.pointer(at)?.as_str())
        .unwrap();
        assert!(serde_json::from_str::<String>(text).is_ok(), "{path}: {text}");
        let events = server.stream(path, body);
        let found = events.iter().any(|event| {
            let told =
                [&event["backstitch"], &event["response"]["backstitch"], &event["message"]["backstitch"]];
            told.iter().any(|told| told["ignored"] == json!(["#/format"]))
        });
        assert!(found, "{path}: {events:?}");
    }
}

#[test]
fn damaged_and_unwritable_slots_are_told_without_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let params = ServerParams { slot_save_path: Some(folder.path().into()), ..ServerParams::default() };
    let server = Running::start_with(params, backstitch_demo::GGUF, None);
    let body = json!({"prompt": "Once upon a time", "n_predict": 2, "id_slot": 0});
    server.post("/completion", &body);
    std::fs::write(folder.path().join("bad"), b"no state").unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let mut refused =
        vec![("restore", "bad"), ("restore", "folder"), ("restore", "none"), ("save", "folder")];
    #[cfg(unix)]
    {
        // Opening a pipe waits for a writer; the bytes behind a link are nobody's business.
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
        assert!(made.unwrap().success());
        std::fs::write(folder.path().join("outside"), b"secrets of others").unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside"), folder.path().join("link")).unwrap();
        refused.extend([("restore", "pipe"), ("restore", "link")]);
    }
    for (action, name) in refused {
        let path = format!("/slots/0?action={action}");
        let (status, answer) = server.send("POST", &path, json!({"filename": name}));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!((400..=500).contains(&status) && message.contains(name), "{answer}");
        assert!(!message.contains(&*folder.path().to_string_lossy()), "{answer}");
        assert_eq!(message.contains("not a file"), ["pipe", "link"].contains(&name), "{answer}");
        assert!(!message.contains("secrets"), "{answer}");
    }
    // The conversation is as it was.
    assert_eq!(server.post("/completion", &body)["timings"]["prompt_n"], 1);
}

#[test]
fn clients_of_vllm_find_the_vocabulary() {
    let server = Running::start(backstitch_demo::GGUF, None);
    let (status, info) = server.send("GET", "/tokenizer_info", &Value::Null);
    assert!(status == 200 && info["eos_token"].is_string(), "{info}");
    let native = server.post("/tokenize", json!({"content": "Once upon a time"}));
    let prompt = json!({"prompt": "Once upon a time", "add_special_tokens": false});
    let tokens = server.post("/tokenize", &prompt);
    assert_eq!((&tokens["tokens"], &tokens["count"]), (&native["tokens"], &native["count"]));
    let chat = json!({"messages": [{"role": "user", "content": "Hello"}]});
    let counted = server.post("/v1/chat/completions/input_tokens", &chat)["input_tokens"].clone();
    assert_eq!(server.post("/tokenize", &chat)["count"], counted);
    let text = server.post("/detokenize", json!({"tokens": tokens["tokens"]}));
    assert_eq!((&text["prompt"], &text["content"]), (&json!("Once upon a time"), &json!("Once upon a time")));
}

#[test]
fn documents_are_texts_or_objects_with_one() {
    let params = ServerParams { reranking: true, ..ServerParams::default() };
    let server = Running::start_with(params, backstitch_demo::GGUF, None);
    let ask = |documents: Value| {
        let body = json!({"query": "a dog", "documents": documents, "return_documents": true});
        server.post("/v1/rerank", &body)["results"].clone()
    };
    let texts = ask(json!(["a cat", "a dog"]));
    assert_eq!(texts, ask(json!([{"text": "a cat"}, {"text": "a dog"}])));
    assert_eq!((&texts[0]["index"], &texts[0]["document"]["text"]), (&json!(1), &json!("a dog")));
    let plain = server.post("/v1/rerank", json!({"query": "a", "documents": ["b"]}));
    assert!(plain["results"][0].get("document").is_none());
    assert_eq!(server.send("POST", "/v1/rerank", json!({"query": "a", "documents": [{}]})).0, 400);
}

/// The vocabulary has no token that begins a sequence.
#[test]
fn nothing_comes_behind_a_prompt_of_nothing() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/gpt2.gguf");
    let server = Running::start(std::fs::read(path).unwrap().leak(), None);
    let answer = server.post("/completion", json!({"prompt": "", "n_predict": 4}));
    assert_eq!((&answer["content"], &answer["tokens_predicted"]), (&json!(""), &json!(0)));
    let answer = server.post("/v1/completions", json!({"prompt": "", "max_tokens": 4}));
    assert_eq!(answer["choices"][0]["text"], "");
}
