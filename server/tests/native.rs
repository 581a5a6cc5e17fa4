//! llama-server's interface over sockets: shapes, limits, keys, slots, and clients that misbehave.

use backstitch_models::{Model, Params};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, Server, Stop};
use backstitch_server::params::ServerParams;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running server.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(params: ServerParams) -> Self {
        let load = || {
            let model = Model::from_bytes(backstitch_demo::GGUF)?;
            let context = Params::default().n_threads(2);
            let params =
                EngineParams { context, n_ctx: 256, n_slots: 2, n_held: 8, ..EngineParams::default() };
            Ok(Loaded {
                engine: Engine::start(&model, params)?,
                template: None,
                adapters: Adapters::default(),
            })
        };
        let server = Server::bind(Host::new(ServerParams { port: 0, ..params }, load).unwrap()).unwrap();
        let (address, stop) = (server.address().unwrap(), server.stopper());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { address, stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Send a request with further header lines, and return the status, the head and the body.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
        let mut stream = self.connect();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.send("POST", path, "", &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, "", "");
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Complete a prompt greedily, and return the answer.
    fn complete(&self, prompt: &str, n_predict: usize) -> Value {
        let body = json!({"prompt": prompt, "n_predict": n_predict, "temperature": 0.0});
        let (status, answer) = self.post("/completion", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[test]
fn completions_have_llama_servers_shape() {
    let server = Running::start(ServerParams::default());
    let answer = server.complete("Once upon a time", 5);
    assert_eq!(answer["content"], ", there was a little");
    assert_eq!((answer["stop"].clone(), answer["stop_type"].clone()), (json!(true), json!("limit")));
    let (timings, n_prompt) = (&answer["timings"], answer["tokens_evaluated"].as_u64().unwrap());
    assert_eq!(timings["prompt_n"], n_prompt);
    assert_eq!((timings["predicted_n"].clone(), timings["cache_n"].clone()), (json!(5), json!(0)));
    assert_eq!(answer["generation_settings"]["n_predict"], 5);
    // The same prompt again: only its last token is evaluated.
    let again = server.complete("Once upon a time", 5);
    assert_eq!(again["content"], answer["content"]);
    assert_eq!(again["timings"]["prompt_n"], 1);
    assert_eq!(again["backstitch"]["reused"], n_prompt - 1);
}

#[test]
fn streams_say_the_same_as_answers_in_one_piece() {
    let server = Running::start(ServerParams::default());
    let whole = server.complete("Once upon a time", 8);
    let body = json!({"prompt": "Once upon a time", "n_predict": 8, "temperature": 0.0, "stream": true});
    let (status, head, body) = server.send("POST", "/completion", "", &body.to_string());
    assert!(status == 200 && head.contains("text/event-stream"));
    assert!(head.contains("x-accel-buffering: no"));
    let parts: Vec<Value> = body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let text: String = parts.iter().map(|part| part["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["content"].as_str().unwrap());
    let last = parts.last().unwrap();
    assert_eq!((last["stop"].clone(), last["timings"]["predicted_n"].clone()), (json!(true), json!(8)));
}

#[test]
fn tokens_and_texts_are_inverse() {
    let server = Running::start(ServerParams::default());
    let tokens = server.post("/tokenize", &json!({"content": "Lily ran home."})).1["tokens"].clone();
    let text = server.post("/detokenize", &json!({"tokens": tokens})).1;
    assert_eq!(text["content"].as_str().unwrap().trim(), "Lily ran home.");
    let pieces = server.post("/tokenize", &json!({"content": "Lily", "with_pieces": true})).1;
    assert!(pieces["tokens"][0]["piece"].is_string());
    let long = json!({"content": " a".repeat((1 << 20) + 1), "with_pieces": true});
    let (status, refused) = server.post("/tokenize", &long);
    assert!(status == 400 && refused.to_string().contains("longer than 1048576"), "{refused}");
}

#[test]
fn the_first_piece_tells_the_time_of_the_prompt() {
    let server = Running::start(ServerParams::default());
    let body = json!({"prompt": "Once upon", "n_predict": 2, "stream": true, "timings_per_token": true});
    let (_, _, body) = server.send("POST", "/completion", "", &body.to_string());
    let first = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let first: Value = serde_json::from_str(first).unwrap();
    assert!(first["timings"]["prompt_ms"].as_f64().unwrap() > 0.0, "{first}");
}

#[test]
fn probabilities_end_where_the_text_does() {
    let server = Running::start(ServerParams::default());
    let body = json!({
        "prompt": "Once upon a time", "n_predict": 50, "temperature": 0.0, "n_probs": 1, "stop": [" girl"],
    });
    let text = |answer: &Value| {
        let tokens = answer["completion_probabilities"].as_array().into_iter().flatten();
        tokens.map(|token| token["token"].as_str().unwrap()).collect::<String>()
    };
    let whole = server.post("/completion", &body).1;
    assert_eq!(
        (whole["stop_type"].as_str(), whole["content"].as_str()),
        (Some("word"), Some(&*text(&whole)))
    );
    let mut body = body;
    body["stream"] = true.into();
    let (_, _, pieces) = server.send("POST", "/completion", "", &body.to_string());
    let pieces = pieces.lines().filter_map(|line| line.strip_prefix("data: "));
    let told: String = pieces.map(|piece| text(&serde_json::from_str(piece).unwrap())).collect();
    assert_eq!(whole["content"], told);
}

#[test]
fn lists_of_probabilities_are_bounded_together() {
    let server = Running::start(ServerParams::default());
    let ask = |path: &str, body: Value| server.post(path, &body).0;
    assert_eq!(ask("/completion", json!({"prompt": "Once", "n_predict": 2, "n_probs": 1000})), 200);
    let many = json!({"prompt": vec!["Once"; 8], "n_predict": 200, "n_probs": 1000});
    assert_eq!(ask("/completion", many), 400);
    let echoed = |n: usize| json!({"prompt": vec!["word ".repeat(100); n], "max_tokens": 0, "echo": true, "logprobs": 1000});
    assert_eq!((ask("/v1/completions", echoed(1)), ask("/v1/completions", echoed(8))), (200, 400));
    // Without a length, the answer ends where the list does.
    let mut open = json!({"prompt": vec!["Once"; 16], "n_probs": 1000, "ignore_eos": true});
    let answers = server.post("/completion", &open).1;
    assert_eq!(answers[0]["tokens_predicted"], (1 << 18) / 1000 / 16);
    open["stream"] = true.into();
    open["n_predict"] = 20.into();
    assert_eq!(ask("/completion", open), 200);
    // Chats list them too where `n_probs` asks for them.
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let chat = json!({"messages": messages, "n_probs": 1000, "max_tokens": 1000, "n": 2});
    assert_eq!(ask("/v1/chat/completions", chat), 400);
}

#[test]
fn samplers_that_are_no_more_are_skipped() {
    let server = Running::start(ServerParams::default());
    let samplers = json!(["top_k", "tfs_z", "typical_p", "temperature"]);
    let body = json!({"prompt": "Once", "n_predict": 1, "samplers": samplers});
    let settings = server.post("/completion", &body).1["generation_settings"].clone();
    assert_eq!(settings["samplers"], json!(["top_k", "typ_p", "temperature"]));
}

#[test]
fn biases_of_texts_that_look_like_numbers() {
    let server = Running::start(ServerParams::default());
    let biased = |bias: Value| {
        let body = json!({"prompt": "Once", "n_predict": 1, "logit_bias": bias});
        let settings = server.post("/completion", &body).1["generation_settings"].clone();
        let biases = settings["logit_bias"].as_array().unwrap();
        biases.iter().map(|bias| bias["token"].clone()).collect::<Vec<_>>()
    };
    let text = server.post("/tokenize", &json!({"content": "42"})).1["tokens"].clone();
    assert_eq!(json!(biased(json!([["42", 1.0]]))), text);
    assert_eq!(biased(json!({"42": 1.0})), [json!(42)]);
    assert_eq!(biased(json!([[42, 1.0]])), [json!(42)]);
}

#[test]
fn a_shift_keeps_the_token_that_begins_the_sequence() {
    let server = Running::start(ServerParams { context_shift: true, ..ServerParams::default() });
    let n_keep = |n: i64| {
        let body = json!({"prompt": "Once", "n_predict": 1, "n_keep": n});
        let answer = server.post("/completion", &body).1;
        (
            answer["generation_settings"]["n_keep"].as_u64().unwrap(),
            answer["tokens_evaluated"].as_u64().unwrap(),
        )
    };
    assert_eq!((n_keep(0).0, n_keep(3).0), (1, 4));
    let (whole, n_prompt) = n_keep(-1);
    assert_eq!(whole, n_prompt);
}

#[test]
fn a_line_with_little_indentation_ends_the_text() {
    let server = Running::start(ServerParams::default());
    let body = json!({
        "prompt": "Once", "n_predict": 40, "regex": "f:\\n  a\\n  b\\nc\\n  d", "n_indent": 2,
    });
    let answer = server.post("/completion", &body).1;
    assert_eq!((&answer["content"], &answer["stop_type"]), (&json!("f:\n  a\n  b\n"), &json!("limit")));
}

#[test]
fn bad_input_gets_an_error_that_names_the_field() {
    let server = Running::start(ServerParams { max_body_bytes: 1 << 16, ..ServerParams::default() });
    let wrong = [
        ("prompt", json!({})),
        ("prompt", json!([])),
        ("prompt", json!([1, 99_999_999])),
        ("n_predict", json!("5")),
        ("n_predict", json!(-7)),
        ("temperature", json!([0])),
        ("stop", json!([1])),
        ("id_slot", json!(7)),
        ("n_probs", json!(1_000_000)),
        ("samplers", json!(["no such"])),
        ("logit_bias", json!(3)),
        ("dry_sequence_breakers", json!(["x".repeat(5000)])),
        ("grammar", json!("root ::= (")),
        ("json_schema", json!({"type": 5})),
        ("regex", json!("(")),
        ("stream", json!(1)),
        ("cache_prompt", json!("yes")),
    ];
    for (name, value) in wrong {
        let mut body = json!({"prompt": "Once", "n_predict": 1});
        body[name] = value.clone();
        let (status, answer) = server.post("/completion", &body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(name), "{name} {value}: {status} {answer}");
    }
    for body in ["", "{", "[]", "\"x\"", "{\"prompt\": \"\u{fffd}\"", "nul"] {
        assert_eq!(server.send("POST", "/completion", "", body).0, 400, "{body}");
    }
    assert_eq!(server.send("POST", "/completion", "", &" ".repeat(1 << 17)).0, 413);
    let (status, long) = server.post("/completion", &json!({"prompt": "word ".repeat(600)}));
    assert_eq!((status, long["error"]["n_ctx"].clone()), (400, json!(256)));
    assert!(long["error"]["n_prompt_tokens"].as_u64().unwrap() > 256);
    assert_eq!((server.get("/no/such/path").0, server.get("/completion").0), (404, 405));
    // Paths that are not UTF-8 get an error of the usual shape too.
    for (method, path) in [("POST", "/slots/%ff?action=erase"), ("GET", "/v1/models/%ff")] {
        let (status, _, body) = server.send(method, path, "", "");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["error"]["type"].clone()), (400, json!("invalid_request_error")), "{path}");
    }
    // The server is as well as before.
    assert_eq!(server.complete("Once upon a time", 2)["timings"]["predicted_n"], 2);
}

#[test]
fn keys_keep_clients_out_and_apart() {
    let api_keys = vec!["alice".to_owned(), "bob".to_owned()];
    let server = Running::start(ServerParams { api_keys, ..ServerParams::default() });
    let body = json!({"prompt": "The secret of the garden is", "n_predict": 1}).to_string();
    let ask = |headers: &str| server.send("POST", "/completion", headers, &body);
    assert_eq!((ask("").0, ask("Authorization: Bearer eve\r\n").0), (401, 401));
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.send("HEAD", "/health", "", "").0, 200);
    assert_eq!(server.get("/slots").0, 401);
    let reused = |headers: &str| {
        let (status, _, body) = ask(headers);
        assert_eq!(status, 200);
        serde_json::from_str::<Value>(&body).unwrap()["timings"]["cache_n"].as_u64().unwrap()
    };
    assert_eq!(reused("Authorization: Bearer alice\r\n"), 0);
    assert!(reused("X-Api-Key: alice\r\n") > 0);
    assert_eq!(reused("X-Api-Key: bob\r\n"), 0, "what one client asked must not be reused for another");
    let held = server.send("GET", "/backstitch/cache", "X-Api-Key: bob\r\n", "").2;
    let held: Value = serde_json::from_str(&held).unwrap();
    assert_eq!(held["sequences"].as_array().unwrap().len(), 1, "{held}");
    assert!(held.get("counters").is_none() && held["budget"]["sequences"] == 8, "{held}");
}

#[test]
fn pages_of_other_origins_are_refused_unless_allowed() {
    let closed = Running::start(ServerParams::default());
    let origin = "Origin: https://example.org\r\n";
    let body = json!({"prompt": "Once", "n_predict": 1}).to_string();
    let (status, head, _) = closed.send("POST", "/completion", origin, &body);
    assert!(status == 403 && !head.contains("access-control-allow-origin"));
    let cors_origins = vec!["https://example.org".to_owned()];
    let open = Running::start(ServerParams { cors_origins, ..ServerParams::default() });
    let (status, head, _) = open.send("POST", "/completion", origin, &body);
    assert!(status == 200 && head.contains("access-control-allow-origin: https://example.org"));
    let (status, head, _) = open.send("OPTIONS", "/completion", origin, "");
    assert!(status == 200 && head.contains("access-control-max-age: "), "{head}");
}

#[test]
fn slots_are_saved_in_their_folder_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slots");
    let server =
        Running::start(ServerParams { slot_save_path: Some(path.clone()), ..ServerParams::default() });
    let slot = server.complete("Once upon a time there was a fox", 3)["id_slot"].as_u64().unwrap();
    for name in ["../x", "/etc/x", "a/b", "", "..", "x\u{0}"] {
        let (status, answer) = server.post(&format!("/slots/{slot}?action=save"), &json!({"filename": name}));
        assert_eq!((status, answer["error"]["message"].clone()), (400, json!("Invalid filename")), "{name}");
    }
    let (status, saved) = server.post(&format!("/slots/{slot}?action=save"), &json!({"filename": "fox.bst"}));
    assert_eq!(status, 200, "{saved}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("fox.bst"))), (0o700, 0o600));
    }
    let (_, erased) = server.post(&format!("/slots/{slot}?action=erase"), &json!({}));
    assert_eq!(erased["n_erased"], saved["n_saved"]);
    let (status, restored) = server.post("/slots/1?action=restore", &json!({"filename": "fox.bst"}));
    assert_eq!((status, restored["n_restored"].clone()), (200, saved["n_saved"].clone()), "{restored}");
    let again = server.complete("Once upon a time there was a fox", 3);
    assert_eq!(again["timings"]["prompt_n"], 1);
    for (path, status) in
        [("/slots/9?action=erase", 400), ("/slots/x?action=erase", 400), ("/slots/0?action=melt", 400)]
    {
        assert_eq!(server.post(path, &json!({})).0, status, "{path}");
    }
    assert_eq!(server.post("/slots/0?action=restore", &json!({"filename": "none.bst"})).0, 400);
    #[cfg(unix)]
    {
        let outside = folder.path().join("outside");
        std::fs::write(&outside, b"kept").unwrap();
        std::os::unix::fs::symlink(&outside, path.join("link.bst")).unwrap();
        let saved = server
            .post(&format!("/slots/{}?action=save", again["id_slot"]), &json!({"filename": "link.bst"}));
        assert!(saved.0 == 400 && std::fs::read(&outside).unwrap() == b"kept", "{}", saved.1);
    }
    std::fs::write(path.join("bad.bst"), b"not a state").unwrap();
    assert_eq!(server.post("/slots/0?action=restore", &json!({"filename": "bad.bst"})).0, 400);
}

#[test]
fn clients_that_go_away_keep_nothing_busy() {
    let server = Running::start(ServerParams::default());
    for stream in [false, true] {
        let mut client = server.connect();
        let body =
            json!({"prompt": "Once upon a time", "n_predict": -1, "ignore_eos": true, "stream": stream});
        let body = body.to_string();
        write!(
            client,
            "POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut first = [0; 1];
        if stream {
            client.read_exact(&mut first).unwrap();
        }
        drop(client);
    }
    let since = Instant::now();
    loop {
        let slots = server.get("/slots").1;
        if slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false) {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{slots}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn answers_with_large_settings_are_few() {
    let server = Running::start(ServerParams::default());
    let stops: Vec<String> = (0..256).map(|i| format!("{i:04096}")).collect();
    let ask = |n_prompts: usize| {
        let prompts = vec!["Once"; n_prompts];
        server.post("/completion", &json!({"prompt": prompts, "n_predict": 1, "stop": stops}))
    };
    let (status, answer) = ask(2);
    assert_eq!((status, answer.as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(answer[1]["generation_settings"]["stop"].as_array().unwrap().len(), 256);
    let (status, refused) = ask(100);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("100 answers"), "{message}");
}

#[test]
fn bodies_that_never_end_are_cut_off() {
    let body_timeout = Duration::from_millis(300);
    let server = Running::start(ServerParams { body_timeout, ..ServerParams::default() });
    for path in ["/completion", "/lora-adapters"] {
        let mut client = server.connect();
        write!(
            client,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n["
        )
        .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("too long to arrive"), "{path}: {answer}");
    }
}

#[test]
fn headers_that_never_end_are_cut_off() {
    let header_timeout = Duration::from_secs(2);
    let server = Running::start(ServerParams { header_timeout, ..ServerParams::default() });
    let mut client = server.connect();
    write!(client, "GET /health HTTP/1.1\r\nHost:").unwrap();
    let since = Instant::now();
    let mut rest = Vec::new();
    // Either the connection ends in order, or it is reset.
    let _ = client.read_to_end(&mut rest);
    assert!(since.elapsed() < Duration::from_secs(30));
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn half_a_header_keeps_nobody_out() {
    let server = Running::start(ServerParams { max_connections: 4, ..ServerParams::default() });
    let since = Instant::now();
    let mut halves: Vec<TcpStream> = (0..12).map(|_| server.connect()).collect();
    halves.iter_mut().for_each(|half| drop(half.write_all(b"GET / HTTP/1.1\r\nHost: loc")));
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.complete("Once upon a time", 5)["content"], ", there was a little");
    assert!(since.elapsed() < ServerParams::default().header_timeout / 2);
}

#[test]
fn what_is_far_too_large_is_refused_early() {
    let server = Running::start(ServerParams::default());
    let text = json!({"prompt": "a".repeat(8 << 20)});
    let (status, refused) = server.post("/completion", &text);
    let error = &refused["error"];
    assert!(status == 400 && error["type"] == "exceed_context_size_error", "{refused}");
    assert!(error["n_prompt_tokens"].as_u64().unwrap() > 256 && error["n_ctx"] == 256);
    let messages = json!([{"role": "user", "content": "a".repeat(8 << 20)}]);
    let (status, refused) = server.post("/v1/chat/completions", &json!({"messages": messages}));
    assert!(status == 400 && refused["error"]["n_ctx"] == 256, "{refused}");
    let tokens = json!({"prompt": vec![1; 1000]});
    assert_eq!(server.post("/completion", &tokens).1["error"]["type"], "exceed_context_size_error");
    for (field, piece) in [("messages", "{\"role\":\"user\",\"content\":\"a\"}"), ("prompt", "[1]")] {
        let list = vec![piece; (4 << 20) / piece.len()].join(",");
        let body = format!("{{\"{field}\":[{list}]}}");
        let (status, _, answer) = server.send("POST", "/v1/chat/completions", "", &body);
        assert!(status == 400 && answer.contains(&format!("\\\"{field}\\\" must be smaller")), "{answer}");
        let ignored = format!("{{\"prompt\":\"Once\",\"n_predict\":1,\"ignored\":[{list}]}}");
        assert_eq!(server.send("POST", "/completion", "", &ignored).0, 200);
    }
}

#[test]
fn an_idle_model_sleeps_and_wakes() {
    let sleep_after = Some(Duration::from_millis(100));
    let server = Running::start(ServerParams { sleep_after, metrics: true, ..ServerParams::default() });
    let sleep = || {
        let since = Instant::now();
        while server.get("/props").1["is_sleeping"] != true {
            assert!(since.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    for n_answers in 1..=2 {
        sleep();
        assert_eq!(server.get("/health").0, 200);
        assert_eq!(server.complete("Once upon a time", 5)["content"], ", there was a little");
        sleep();
        let (_, metrics) = server.get("/metrics");
        let line = format!("llamacpp:tokens_predicted_total {}\n", 5 * n_answers);
        assert!(metrics.as_str().unwrap().contains(&line), "{metrics}");
        let cache = server.get("/backstitch/cache").1;
        assert_eq!(
            (&cache["counters"]["n_generated"], &cache["budget"]["sequences"]),
            (&json!(5 * n_answers), &json!(8))
        );
        assert_eq!(server.get("/lora-adapters"), (200, json!([])));
        assert_eq!(server.get("/props").1["is_sleeping"], true, "a look at the server wakes nobody");
    }
}

#[test]
fn counters_and_settings_are_told_when_asked_for() {
    let server = Running::start(ServerParams { metrics: true, slots: false, ..ServerParams::default() });
    let n_prompt = server.complete("Once upon a time", 4)["timings"]["prompt_n"].as_u64().unwrap();
    let (status, metrics) = server.get("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert!(status == 200 && metrics.contains(&format!("llamacpp:prompt_tokens_total {n_prompt}\n")));
    assert!(metrics.contains("llamacpp:tokens_predicted_total 4\n"));
    assert_eq!(server.get("/slots").0, 501);
    let props = server.get("/props").1;
    assert_eq!(
        (props["total_slots"].clone(), props["default_generation_settings"]["n_ctx"].clone()),
        (json!(2), json!(256))
    );
    let unlisted = Running::start(ServerParams::default());
    assert_eq!(unlisted.get("/metrics").0, 501);
    assert_eq!(unlisted.post("/embedding", &json!({"content": "x"})).0, 501);
}

#[test]
fn grammars_hold_the_text() {
    let server = Running::start(ServerParams::default());
    let ask = |name: &str, value: Value| {
        let mut body = json!({"prompt": "Once", "n_predict": 12, "seed": 3});
        body[name] = value;
        let (status, answer) = server.post("/completion", &body);
        assert_eq!(status, 200, "{answer}");
        answer["content"].as_str().unwrap().to_owned()
    };
    assert!(ask("regex", json!("[0-9]{3}")).chars().all(|letter| letter.is_ascii_digit()));
    assert!(["yes", "no"].contains(&ask("grammar", json!("root ::= \"yes\" | \"no\"")).as_str()));
    let text = ask("json_schema", json!({"enum": [true, false]}));
    assert!(["true", "false"].contains(&text.trim()), "{text}");
}
