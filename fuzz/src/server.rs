//! A server in this process, and what must hold of its answers.
//!
//! The engine is a real one over the demo model, with a small context. It runs in a thread of its
//! own, and templates and grammars run in threads of the runtime. libFuzzer's panic hook aborts the
//! process for a panic on any thread, so none is lost, even if the server would catch it.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use backstitch_models::{Model, Params};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, router};
use backstitch_server::params::ServerParams;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// The time within which a request must be answered, with some for a slow machine.
pub const SOON: Duration = Duration::from_secs(40);

/// The path below which errors have Anthropic's shape.
const ANTHROPIC: &str = "/v1/messages";

static MODEL: LazyLock<Model> =
    LazyLock::new(|| Model::from_bytes(backstitch_demo::GGUF).expect("the demo model is well-formed"));

/// A router over an engine, and the runtime that polls it.
pub struct Site {
    /// The runtime; it has one thread for requests.
    pub runtime: Runtime,
    router: Router,
}

/// An answer that came to its end.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
}

impl Site {
    /// Start an engine with `n_ctx` tokens for each request, and a router over it.
    pub fn new(n_ctx: u32, params: ServerParams) -> Self {
        let load = move || {
            let context = Params::default().n_threads(1).n_ubatch(64).n_batch(64);
            let params = EngineParams {
                context,
                n_ctx,
                n_slots: 2,
                n_held: 4,
                held_bytes: 1 << 20,
                max_waiting: 16,
                ..EngineParams::default()
            };
            Ok(Loaded {
                engine: Engine::start(&MODEL, params)?,
                template: None,
                adapters: Adapters::default(),
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let host = Arc::new(Host::new(params, load).expect("the demo model is small"));
        Site { runtime: runtime.expect("the system has threads"), router: router(&host) }
    }

    /// Return settings of a server on which everything is turned on, and costs little.
    pub fn params(save: Option<PathBuf>) -> ServerParams {
        ServerParams {
            n_predict: Some(4),
            max_body_bytes: 1 << 16,
            slot_save_path: save,
            metrics: true,
            props: true,
            timeout: SOON / 2,
            ping: Duration::from_millis(20),
            ..ServerParams::default()
        }
    }

    /// Send a request, and return the answer whose body has not been read.
    pub async fn send(&self, request: Request<Body>) -> axum::response::Response {
        let answer = tokio::time::timeout(SOON, self.router.clone().oneshot(request)).await;
        let answer = answer.expect("the server answers soon");
        answer.expect("a router has no errors of its own")
    }

    /// Send a request, check the answer, and return it.
    pub fn ask(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.runtime.block_on(async {
            let (head, body) = self.send(request).await.into_parts();
            let body = tokio::time::timeout(SOON, body.collect()).await.expect("the answer ends soon");
            let body = body.expect("nothing breaks off in one process").to_bytes().to_vec();
            Answer { status: head.status, headers: head.headers, body }
        });
        check(&method, &path, &answer);
        answer
    }

    /// Post a JSON object, and return the answer.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let request = Request::post(path).body(Body::from(body.to_string()));
        self.ask(request.expect("the path is a valid one"))
    }

    /// Return the text with which the model continues some words.
    pub fn continuation(&self) -> String {
        let body = json!({"prompt": "Once upon a time", "n_predict": 3, "temperature": 0.0});
        let answer = self.post("/completion", &body);
        assert_eq!(answer.status, StatusCode::OK);
        answer.json()["content"].as_str().expect("completions have a text").to_owned()
    }
}

impl Answer {
    /// Return the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    fn has_type(&self, wanted: &str) -> bool {
        let found = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        found.is_some_and(|found| found.starts_with(wanted))
    }
}

/// Check that an answer is one that the API knows.
fn check(method: &Method, path: &str, answer: &Answer) {
    let is_internal = answer.status == StatusCode::INTERNAL_SERVER_ERROR;
    assert!(!is_internal || is_media(path, answer), "{path}: {answer:?}");
    if method == Method::HEAD {
        return; // it has no body
    }
    if answer.status.is_client_error() || answer.status.is_server_error() {
        check_error(path, answer.status.as_u16(), &answer.json());
    } else if answer.has_type("text/event-stream") {
        let text = core::str::from_utf8(&answer.body).expect("streams are UTF-8");
        check_frames(path, text);
    } else if answer.has_type("application/json") {
        answer.json();
    }
}

/// Return true if the answer refuses a picture with the status that llama-server has for it.
fn is_media(path: &str, answer: &Answer) -> bool {
    let message = answer.json()["error"]["message"].to_string();
    path.starts_with(ANTHROPIC) && message.contains("the model takes text alone")
}

/// Check the body of an error.
fn check_error(path: &str, status: u16, body: &Value) {
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{path}: {body}");
    assert!(error["type"].is_string(), "{path}: {body}");
    if path.starts_with(ANTHROPIC) {
        assert_eq!(body["type"], "error", "{path}: {body}");
        assert!(error.get("code").is_none(), "{path}: {body}");
    } else {
        assert_eq!(error["code"], status, "{path}: {body}");
    }
}

/// Check the frames of a stream that came to its end.
pub fn check_frames(path: &str, text: &str) {
    assert!(text.ends_with("\n\n"), "{path}: {text:?}");
    for frame in text.split_terminator("\n\n") {
        let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
        let Some(data) = data else {
            assert!(frame == ":" || frame.starts_with("event: "), "{path}: {frame:?}");
            continue;
        };
        if data == "[DONE]" {
            continue;
        }
        let value: Value =
            serde_json::from_str(data).unwrap_or_else(|error| panic!("{path}: {error}: {frame:?}"));
        // The events of responses have a field of this name that means something else.
        if value["error"].is_object() && !path.contains("/responses") {
            let status = value["error"]["code"].as_u64().unwrap_or_default();
            assert_ne!(status, 500, "{path}: {frame:?}");
            check_error(path, status as u16, &value);
        }
    }
}
