//! A running server of a small model, for tests of what clients see.

use backstitch_models::{Model, Params, Pooling};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, Server, Stop};
use backstitch_server::params::ServerParams;
use serde_json::Value;
use std::borrow::Borrow;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;

/// A running server. Dropping it stops the server.
pub struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Start a server of a model with its own template or another.
    pub fn start(gguf: &'static [u8], template: Option<&str>) -> Self {
        Self::start_with(ServerParams::default(), gguf, template)
    }

    /// Start a server with these settings.
    pub fn start_with(params: ServerParams, gguf: &'static [u8], template: Option<&str>) -> Self {
        let template = template.map(str::to_owned);
        let pooling = params.reranking.then_some(Pooling::Mean);
        let load = move || {
            let model = Model::from_bytes(gguf)?;
            let context = Params::default().n_threads(2).pooling(pooling);
            let params = EngineParams { context, n_ctx: 1024, n_slots: 2, ..EngineParams::default() };
            Ok(Loaded {
                engine: Engine::start(&model, params)?,
                template: template.clone(),
                adapters: Adapters::default(),
            })
        };
        let params = ServerParams { port: 0, ..params };
        let server = Server::bind(Host::new(params, load).unwrap()).unwrap();
        let (address, stop) = (server.address().unwrap(), server.stopper());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { address, stop, thread: Some(thread) }
    }

    /// Send a request, and return the status and the body of the answer.
    pub fn send_text(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}"
        );
        write!(stream, "{head}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    /// Send a request, and return the status and the JSON of the answer.
    pub fn send(&self, method: &str, path: &str, body: impl Borrow<Value>) -> (u16, Value) {
        let (status, body) = self.send_text(method, path, body.borrow());
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Send a request that has to succeed, and return the JSON of the answer.
    pub fn post(&self, path: &str, body: impl Borrow<Value>) -> Value {
        let (status, answer) = self.send("POST", path, body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Send a request for a stream that has to succeed, and return its data.
    pub fn stream(&self, path: &str, mut body: Value) -> Vec<Value> {
        body["stream"] = true.into();
        let (status, body) = self.send_text("POST", path, &body);
        assert_eq!(status, 200, "{body}");
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

/// Return a body without the lengths of its pieces.
fn unchunked(mut body: &str) -> String {
    let mut all = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        all += &rest[..length];
        body = rest[length..].trim_start_matches("\r\n");
    }
    all
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        drop(self.thread.take().map(JoinHandle::join));
    }
}
