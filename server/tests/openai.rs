//! OpenAI's and Anthropic's interfaces over sockets: shapes of answers and streams, reuse, errors.

mod running;

use self::running::Running;
use backstitch_models::gguf::Gguf;
use backstitch_server::params::ServerParams;
use serde_json::{Value, json};

/// A template whose answers may reason and call.
const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}\
    {% for t in tools %}{{ t.function.name }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

fn start() -> Running {
    Running::start(backstitch_demo::GGUF, None)
}

fn hello() -> Value {
    json!({
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "max_tokens": 6,
        "temperature": 0,
    })
}

#[test]
fn a_chat_in_one_piece_and_in_pieces() {
    let server = start();
    let whole = server.post("/v1/chat/completions", hello());
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(whole["system_fingerprint"].as_str().unwrap().starts_with('b'));
    let usage = &whole["usage"];
    assert_eq!(usage["completion_tokens"], 6);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(whole["backstitch"]["why"], "nothing_held");
    assert!(whole["backstitch"]["seq"].is_u64(), "{whole}");
    assert_eq!(whole["timings"]["predicted_n"], 6);

    let mut body = hello();
    body["stream_options"] = json!({"include_usage": true});
    let pieces = server.stream("/chat/completions", body);
    let (first, last) = (&pieces[0], pieces.last().unwrap());
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": null}));
    assert!(first.get("timings").is_none());
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(6)));
    // The same prompt again: all but its last token is reused.
    let n_prompt = usage["prompt_tokens"].as_u64().unwrap();
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], n_prompt - 1);
    assert_eq!(last["backstitch"]["why"], "complete");
    let text: String =
        pieces.iter().filter_map(|piece| piece["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    let ends: Vec<&Value> = pieces
        .iter()
        .map(|piece| &piece["choices"][0])
        .filter(|choice| choice["finish_reason"].is_string())
        .collect();
    assert_eq!(ends.len(), 1);
    assert_eq!((&ends[0]["delta"], &ends[0]["finish_reason"]), (&json!({}), &json!("length")));
}

#[test]
fn an_edited_conversation_reuses_what_comes_before() {
    let server = start();
    let mut body = hello();
    let long = "the girl went to the park and saw a big dog ".repeat(8);
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    body["messages"] = json!([message("system", &long), message("user", "One")]);
    let first = server.post("/v1/chat/completions", body.clone());
    body["messages"][1]["content"] = "Two and three".into();
    let edited = server.post("/v1/chat/completions", body.clone());
    let n_prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    let n_cached = edited["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(n_cached * 10 > n_prompt * 7, "{n_cached} of {n_prompt}");
    let told = &edited["backstitch"];
    assert_eq!((&told["reused"], &told["why"]), (&json!(n_cached), &json!("differs")));
    // Another salt is another tenant, with the same text and nothing reused.
    body["cache_salt"] = "other".into();
    let salted = server.post("/v1/chat/completions", body);
    assert_eq!(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(salted["choices"][0]["message"], edited["choices"][0]["message"]);
}

#[test]
fn several_answers_and_their_probabilities() {
    let server = start();
    let mut body = hello();
    (body["n"], body["logprobs"], body["top_logprobs"]) = (2.into(), true.into(), 3.into());
    let whole = server.post("/v1/chat/completions", body.clone());
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    for choice in choices {
        let tokens = choice["logprobs"]["content"].as_array().unwrap();
        let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
        assert_eq!(choice["message"]["content"], text);
        assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 3));
    }
    let pieces = server.stream("/v1/chat/completions", body);
    for index in [0, 1] {
        let of_choice = pieces.iter().filter(|piece| piece["choices"][0]["index"] == index);
        let n: usize = of_choice
            .filter_map(|piece| piece["choices"][0]["logprobs"]["content"].as_array())
            .map(Vec::len)
            .sum();
        assert_eq!(n, 6);
    }
}

#[test]
fn completions_echo_the_scores_of_their_prompt() {
    let server = start();
    let body = json!({
        "prompt": "Once upon a time", "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 2,
    });
    let whole = server.post("/v1/completions", body.clone());
    let choice = &whole["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with("Once upon a time"));
    let logprobs = &choice["logprobs"];
    let n = logprobs["tokens"].as_array().unwrap().len();
    assert_eq!(n as u64, whole["usage"]["total_tokens"].as_u64().unwrap());
    let scores = logprobs["token_logprobs"].as_array().unwrap();
    assert!(scores[0].is_null() && scores[1..].iter().all(|score| score.as_f64().unwrap() <= 0.0));
    let top = logprobs["top_logprobs"].as_array().unwrap();
    assert!(top[1..].iter().all(|top| (2..=3).contains(&top.as_object().unwrap().len())));
    // The scores are the same in pieces, behind a reused prefix, and for tokens.
    let pieces = server.stream("/v1/completions", body.clone());
    let mut streamed = Vec::new();
    for piece in &pieces {
        let scores = piece["choices"][0]["logprobs"]["token_logprobs"].as_array();
        streamed.extend(scores.into_iter().flatten().cloned());
    }
    assert_eq!(&streamed, scores);
    let tokens = server.post("/tokenize", json!({"content": "Once upon a time", "add_special": true}));
    let mut body = body;
    body["prompt"] = json!([tokens["tokens"], "The dog"]);
    let two = server.post("/v1/completions", body);
    assert_eq!(two["choices"][0]["logprobs"]["token_logprobs"], logprobs["token_logprobs"]);
    assert_eq!(two["choices"][1]["index"], 1);
}

#[test]
fn responses_grow_item_by_item() {
    let server = start();
    let body = json!({"input": "Once upon a time", "max_output_tokens": 6, "temperature": 0});
    let whole = server.post("/v1/responses", body.clone());
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    let text = &whole["output"][0]["content"][0]["text"];
    assert_eq!(whole["usage"]["output_tokens"], 6);
    let events = server.stream("/v1/responses", body.clone());
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        names[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
    );
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(&last["response"]["output"][0]["content"][0]["text"], text);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let streamed: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(text, &streamed);
    let counted = server.post("/v1/responses/input_tokens", body);
    assert_eq!(counted["input_tokens"], whole["usage"]["input_tokens"]);
}

#[test]
fn interfaces_of_one_answer_give_one() {
    let server = start();
    for (path, name, body) in [
        ("/v1/responses", "response.created", json!({"input": "Once upon a time", "max_output_tokens": 5})),
        ("/v1/messages", "message_start", json!({"messages": hello()["messages"], "max_tokens": 5})),
    ] {
        for n in ["n", "n_cmpl"] {
            let mut body = body.clone();
            body[n] = 2.into();
            let first = server.stream(path, body).iter().filter(|event| event["type"] == name).count();
            assert_eq!(first, 1, "{path} {n}");
        }
    }
}

#[test]
fn messages_have_blocks() {
    let server = start();
    let body = json!({
        "system": "Tell a story.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}],
        "max_tokens": 6, "temperature": 0,
    });
    let whole = server.post("/v1/messages", body.clone());
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(whole["stop_reason"], "max_tokens");
    let usage = &whole["usage"];
    let n_prompt = usage["input_tokens"].as_u64().unwrap();
    assert_eq!((&usage["output_tokens"], &usage["cache_read_input_tokens"]), (&json!(6), &json!(0)));
    let events = server.stream("/v1/messages", body.clone());
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let started = &events[0]["message"]["usage"];
    assert_eq!(
        (&started["input_tokens"], &started["cache_read_input_tokens"]),
        (&json!(1), &json!(n_prompt - 1))
    );
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(whole["content"][0]["text"], text);
    let counted = server.post("/v1/messages/count_tokens", body.clone());
    assert_eq!(counted, json!({"input_tokens": n_prompt}));
    let mut stopped = body;
    let word = text.trim().split(' ').nth(1).unwrap();
    stopped["stop_sequences"] = json!([word]);
    let whole = server.post("/v1/messages", stopped);
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("stop_sequence"), &json!(word)));
}

#[test]
fn templates_see_tools_and_prefill() {
    let server = Running::start(backstitch_demo::GGUF, Some(TEMPLATE));
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
    let body = json!({
        "messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "It "}],
        "tools": [tool],
    });
    let rendered = server.post("/apply-template", body);
    assert_eq!(rendered["prompt"], "<user>Rain?</user>weather<assistant>It ");
    let no_jinja = ServerParams { jinja: false, ..ServerParams::default() };
    let server = Running::start_with(no_jinja, backstitch_demo::GGUF, Some(TEMPLATE));
    let body = json!({"messages": [], "tools": [tool]});
    let (status, error) = server.send("POST", "/v1/chat/completions", body);
    assert_eq!(
        (status, error["error"]["message"].as_str()),
        (500, Some("tools param requires --jinja flag"))
    );
}

#[test]
fn errors_have_the_shape_of_their_interface() {
    let server = start();
    let (status, error) = server.send("POST", "/v1/chat/completions", json!({"messages": [{"role": 1}]}));
    assert_eq!(status, 400);
    assert_eq!(
        (&error["error"]["type"], &error["error"]["param"]),
        (&json!("invalid_request_error"), &json!("messages[0].role"),)
    );
    let (status, error) = server.send("POST", "/v1/messages", json!({"max_tokens": 3}));
    assert_eq!((status, &error["type"]), (400, &json!("error")));
    assert_eq!(error["error"]["type"], "invalid_request_error");
    // The model reads no images, and trying again does not help.
    let image = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]);
    let messages = json!([{"role": "user", "content": image}]);
    let (status, error) = server.send("POST", "/v1/chat/completions", json!({"messages": messages}));
    assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let messages = json!([{"role": "user", "content": [{"type": "image", "source": source}]}]);
    let (status, error) = server.send("POST", "/v1/messages", json!({"max_tokens": 3, "messages": messages}));
    assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
    let mut long = hello();
    long["messages"][0]["content"] = "the dog ".repeat(600).into();
    for stream in [false, true] {
        long["stream"] = stream.into();
        let (status, error) = server.send("POST", "/v1/chat/completions", long.clone());
        assert_eq!((status, &error["error"]["type"]), (400, &json!("exceed_context_size_error")));
        assert_eq!(error["error"]["n_ctx"], 1024);
        assert!(error["error"]["n_prompt_tokens"].as_u64().unwrap() > 1024);
        long["max_tokens"] = 3.into();
        let (status, error) = server.send("POST", "/v1/messages", long.clone());
        assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
        assert!(error["error"]["n_prompt_tokens"].as_u64().unwrap() > 1024, "{error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("prompt is too long: ") && message.ends_with(" > 1024 maximum"),
            "{error}"
        );
    }
    let mut named = hello();
    named["text"] = "no field of this interface".into();
    assert_eq!(server.post("/v1/chat/completions", named.clone())["object"], "chat.completion");
    named["response_format"] = json!({"type": 5});
    let (status, error) = server.send("POST", "/v1/chat/completions", named);
    assert_eq!((status, &error["error"]["param"]), (400, &json!("response_format.type")));
    let wrong = [
        ("/v1/chat/completions", json!({"messages": [], "response_format": {"type": "sound"}})),
        (
            "/v1/chat/completions",
            json!({"messages": [], "response_format": {"type": "json_object", "schema": 1}}),
        ),
        ("/v1/chat/completions", json!({"messages": [], "n": 100})),
        ("/v1/chat/completions", json!({"messages": [], "reasoning_format": "loud"})),
        ("/v1/completions", json!({"prompt": "a", "best_of": 4})),
        ("/v1/completions", json!({})),
        ("/v1/responses", json!({"input": "a", "previous_response_id": "resp_1"})),
    ];
    for (path, body) in wrong {
        let (status, error) = server.send("POST", path, body.clone());
        assert_eq!(status, 400, "{body}");
        assert!(error["error"]["message"].is_string());
    }
    assert_eq!(server.send("POST", "/v1/embeddings", json!({"input": "a"})).0, 501);
}

#[test]
fn the_model_is_listed_and_found() {
    let params =
        ServerParams { aliases: vec!["demo/story".into(), "other".into()], ..ServerParams::default() };
    let server = Running::start_with(params, backstitch_demo::GGUF, None);
    let get = |path: &str| server.send("GET", path, Value::Null);
    let (status, list) = get("/v1/models");
    assert_eq!((status, &list["object"]), (200, &json!("list")));
    assert_eq!(list["data"][0]["id"], "demo/story");
    let gguf = Gguf::parse(backstitch_demo::GGUF).unwrap();
    let n_params: usize = gguf.tensors().iter().map(|tensor| tensor.n_elements()).sum();
    assert_eq!(list["data"][0]["meta"]["n_params"], n_params);
    for id in ["demo/story", "other"] {
        for path in ["/v1/models", "/models"] {
            assert_eq!(get(&format!("{path}/{id}")), (200, list["data"][0].clone()));
        }
    }
    assert_eq!(get("/v1/models/none").0, 404);
}
