//! Answers that other programs rely on: errors that are told apart, forms of inputs, fields that
//! typed clients want, and counts that agree.

use backstitch_models::gguf::Gguf;
use backstitch_models::{Model, Params, Pooling};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, Server, Stop};
use backstitch_server::params::ServerParams;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

/// A running server.
struct Running {
    addresses: Vec<SocketAddr>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(params: ServerParams, engine: EngineParams, gguf: Vec<u8>) -> Self {
        let load = move || {
            let model = Model::from_bytes(&gguf)?;
            let params = EngineParams { context: engine.context.n_threads(2), ..engine.clone() };
            let engine = Engine::start(&model, params)?;
            Ok(Loaded { engine, template: None, adapters: Adapters::default() })
        };
        let server = Server::bind(Host::new(ServerParams { port: 0, ..params }, load).unwrap()).unwrap();
        let (addresses, stop) = (server.addresses().unwrap(), server.stopper());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { addresses, stop, thread: Some(thread) }
    }

    fn demo() -> Self {
        let engine = EngineParams { n_ctx: 256, n_slots: 2, ..EngineParams::default() };
        Self::start(ServerParams::default(), engine, backstitch_demo::GGUF.to_vec())
    }

    fn embedding(n_ctx: u32, n_ubatch: u32) -> Self {
        let context = Params::default().pooling(Some(Pooling::Mean)).n_ubatch(n_ubatch);
        let engine = EngineParams { context, n_ctx, n_slots: 2, ..EngineParams::default() };
        let params = ServerParams { embedding: true, ..ServerParams::default() };
        Self::start(params, engine, golden("bert"))
    }

    fn text(&self, address: SocketAddr, path: &str, body: &Value) -> (u16, String) {
        let (mut stream, body) = (TcpStream::connect(address).unwrap(), body.to_string());
        let length = body.len();
        let head = "Host: localhost\r\nConnection: close";
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn send(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.text(self.addresses[0], path, body);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(path, body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let text = self.text(self.addresses[0], path, body).1;
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Return a model that computes NaN behind one token, and only there.
fn failing_at(name: &str, token: usize) -> Vec<u8> {
    let mut bytes = golden(name);
    let gguf = Gguf::parse(&bytes).unwrap();
    let table = gguf.tensor("token_embd.weight").unwrap();
    let at = table.range().start + 4 * table.shape().last().unwrap() * token;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes
}

#[test]
fn a_model_that_computes_nan_is_the_servers_fault_and_harms_nobody_else() {
    let bad = 200;
    let engine = EngineParams { n_ctx: 256, n_slots: 4, ..EngineParams::default() };
    let server = Running::start(ServerParams::default(), engine, failing_at("llama", bad));
    let ask = |prompt: Value, n: usize| json!({"prompt": prompt, "n_predict": n, "temperature": 0});
    let good = ask(json!([5, 6, 7]), 40);
    let alone = server.post("/completion", &good)["content"].clone();
    std::thread::scope(|scope| {
        let together: Vec<_> =
            (0..3).map(|_| scope.spawn(|| server.post("/completion", &good)["content"].clone())).collect();
        let (status, answer) = server.send("/completion", &ask(json!([5, bad]), 4));
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!((status, &answer["error"]["type"]), (500, &json!("server_error")), "{message}");
        assert!(message.contains("NaN") && message.contains("token_embd.weight"), "{message}");
        for other in together {
            assert_eq!(other.join().unwrap(), alone);
        }
    });
    // A stream has begun by then, and ends with the error.
    let pieces = server.stream("/v1/completions", &json!({"prompt": [bad], "stream": true}));
    assert_eq!(pieces.last().unwrap()["error"]["code"], 500, "{pieces:?}");
    // A banned vocabulary is the client's fault.
    let none: Vec<Value> = (0..288).map(|token| json!([token, false])).collect();
    let mut banned = ask(json!([5]), 4);
    banned["logit_bias"] = none.into();
    assert_eq!(server.send("/completion", &banned).0, 400);
}

#[test]
fn embeddings_that_are_nan_are_an_error() {
    let engine = EngineParams { n_ctx: 64, n_slots: 1, ..EngineParams::default() };
    let params = ServerParams { embedding: true, ..ServerParams::default() };
    let server = Running::start(params, engine, failing_at("bert", 40));
    for path in ["/v1/embeddings", "/embedding"] {
        assert_eq!(server.send(path, &json!({"input": [[40, 41]]})).0, 500, "{path}");
        assert_eq!(server.send(path, &json!({"input": [[41, 42]]})).0, 200, "{path}");
    }
}

#[test]
fn an_input_that_an_encoder_cannot_take_is_refused_with_the_limit_that_it_exceeds() {
    let long = json!({"input": vec![41; 100]});
    for (server, limit, option) in [
        (Running::embedding(128, 32), "32", "--ubatch-size"),
        (Running::embedding(64, 512), "64", "--ctx-size"),
    ] {
        for path in ["/v1/embeddings", "/embedding"] {
            let (status, answer) = server.send(path, &long);
            let message = answer["error"]["message"].as_str().unwrap();
            assert_eq!(status, 400, "{message}");
            for part in ["100", limit, option, "too large"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}

#[test]
fn inputs_have_many_forms() {
    let server = Running::embedding(64, 64);
    let vector = |input: Value| server.post("/v1/embeddings", &json!({"input": input}))["data"].clone();
    let plain = vector(json!("a cat"));
    let parts = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "cat"}]);
    for input in
        [json!({"prompt_string": "a cat"}), json!({"content": parts}), json!({"prompt_string": ["a cat"]})]
    {
        assert_eq!(vector(input.clone()), plain, "{input}");
    }
    let several = vector(json!(["a dog", {"prompt_string": "a cat"}, {"content": parts}]));
    for i in [1, 2] {
        assert_eq!(several[i]["embedding"], plain[0]["embedding"]);
    }
    let image =
        json!({"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]});
    for (input, status) in [
        (json!([]), 400),
        (json!({"content": "a cat"}), 400),
        (json!({"content": []}), 400),
        (json!({"content": [{"type": "text"}]}), 400),
        (json!({"content": [{"text": "a"}]}), 400),
        (json!({"prompt_string": 5}), 400),
        (image, 501),
    ] {
        assert_eq!(server.send("/v1/embeddings", &json!({"input": input})).0, status, "{input}");
    }
}

#[test]
fn probabilities_are_as_many_as_the_tokens_that_count() {
    let server = Running::demo();
    // The end is made likely, so that the text stops there.
    let end = server.post("/tokenize", &json!({"content": "<|endoftext|>"}))["tokens"][0].clone();
    let body = json!({
        "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0, "logprobs": 1,
        "logit_bias": [[end, 12.0]],
    });
    let whole = server.post("/v1/completions", &body);
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{whole}");
    let tokens: Vec<&str> = choice["logprobs"]["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_str().unwrap())
        .collect();
    assert_eq!(whole["usage"]["completion_tokens"], tokens.len());
    assert_eq!((choice["text"].as_str(), tokens.last()), (Some(&*tokens.concat()), Some(&"")));
    let mut body = body;
    (body["n_probs"], body["n_predict"]) = (1.into(), 20.into());
    let native = server.post("/completion", &body);
    let told = native["completion_probabilities"].as_array().unwrap().len();
    assert_eq!(native["tokens_predicted"], told);
    body["stream"] = true.into();
    let pieces = server.stream("/completion", &body);
    let told: usize =
        pieces.iter().filter_map(|piece| Some(piece["completion_probabilities"].as_array()?.len())).sum();
    assert_eq!(pieces.last().unwrap()["tokens_predicted"], told);
}

#[test]
fn streams_tell_usage_once() {
    let server = Running::demo();
    for (include, prompts) in [(true, json!("Once")), (false, json!("Once")), (true, json!(["Once", "The"]))]
    {
        let body = json!({
            "prompt": prompts, "max_tokens": 3, "stream": true, "stream_options": {"include_usage": include},
        });
        let pieces = server.stream("/v1/completions", &body);
        let told = pieces.iter().filter(|piece| piece["usage"].is_object()).count();
        assert_eq!(told, 1, "{body}");
        assert_eq!(pieces.last().unwrap()["choices"].as_array().unwrap().is_empty(), include);
    }
}

#[test]
fn adaptive_p_acts_where_the_samplers_name_it() {
    let server = Running::demo();
    let ask = |more: Value| {
        let mut body = json!({"prompt": "Once", "n_predict": 8, "seed": 3, "temperature": 1.5});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/completion", &body)["content"].clone()
    };
    let plain = ask(json!({}));
    assert_eq!(ask(json!({"adaptive_target": 0.05})), plain);
    let named = json!(["temperature", "adaptive_p"]);
    assert_ne!(ask(json!({"adaptive_target": 0.05, "samplers": named})), ask(json!({"samplers": named})));
}

#[test]
fn typed_clients_find_every_field() {
    let server = Running::demo();
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let has = |answer: &Value, pointers: &[&str]| {
        pointers.iter().for_each(|pointer| assert!(answer.pointer(pointer).is_some(), "{pointer}: {answer}"));
    };
    let chat =
        server.post("/v1/chat/completions", &json!({"model": "m", "messages": messages, "max_tokens": 2}));
    has(&chat, &["/choices/0/logprobs", "/choices/0/message/refusal", "/usage/total_tokens"]);
    let message = server.post("/v1/messages", &json!({"model": "m", "messages": messages, "max_tokens": 2}));
    has(&message, &["/content/0/citations", "/stop_details", "/container", "/usage/service_tier"]);
    has(&message, &["/usage/cache_creation/ephemeral_5m_input_tokens", "/usage/server_tool_use"]);
    let response =
        server.post("/v1/responses", &json!({"model": "m", "input": "Hi", "max_output_tokens": 2}));
    has(
        &response,
        &["/completed_at", "/reasoning/effort", "/service_tier", "/safety_identifier", "/background"],
    );
    assert!(response["temperature"].is_number() && response["top_p"].is_number(), "{response}");
    assert_eq!(response["truncation"], "disabled");
    // OpenAI's path asks for a model; llama-server's does not, nor with any setting.
    let bare = json!({"messages": messages});
    let (status, refused) = server.send("/v1/chat/completions", &bare);
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("model")));
    let set = json!({"messages": messages, "max_tokens": 2});
    assert_eq!(server.send("/v1/chat/completions", &set).0, 200);
}

#[test]
fn a_server_has_several_addresses_with_one_port() {
    let hosts = vec!["127.0.0.1".to_owned(), "[::1]".to_owned()];
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let engine = EngineParams { n_ctx: 64, n_slots: 1, ..EngineParams::default() };
    let params = ServerParams { hosts, ..ServerParams::default() };
    let server = Running::start(params, engine, backstitch_demo::GGUF.to_vec());
    let [v4, v6] = server.addresses[..] else { panic!("{:?}", server.addresses) };
    assert!(v4.is_ipv4() && v6.is_ipv6() && v4.port() == v6.port());
    for address in [v4, v6, v4] {
        let (status, answer) =
            server.text(address, "/completion", &json!({"prompt": "Once", "n_predict": 1}));
        assert_eq!(status, 200, "{answer}");
    }
}

#[test]
fn prompts_do_not_end_with_the_token_that_ends_texts() {
    // The vocabulary adds the other token without being asked, so its key becomes this one.
    let (former, key) = (b"tokenizer.ggml.add_bos_token", b"tokenizer.ggml.add_eos_token");
    let mut bytes = golden("llama");
    let at = bytes.windows(former.len()).position(|window| window == former).unwrap();
    bytes[at..at + key.len()].copy_from_slice(key);
    assert!(Model::from_bytes(&bytes).unwrap().vocab().adds_eos());
    let engine = EngineParams { n_ctx: 64, n_slots: 1, ..EngineParams::default() };
    let with = Running::start(ServerParams::default(), engine.clone(), bytes);
    let without = Running::start(ServerParams::default(), engine, golden("llama"));
    for path in ["/completion", "/v1/completions"] {
        let body = json!({"prompt": "a b c", "max_tokens": 6, "n_predict": 6, "temperature": 0});
        let answers = [&with, &without].map(|server| server.post(path, &body));
        for pointer in ["/content", "/choices/0/text", "/tokens_evaluated", "/usage/prompt_tokens"] {
            assert_eq!(answers[0].pointer(pointer), answers[1].pointer(pointer), "{path} {pointer}");
        }
    }
    let tokens = with.post("/tokenize", &json!({"content": "a", "add_special": true}));
    assert!(tokens["tokens"].as_array().unwrap().len() > 1, "{tokens}");
}
