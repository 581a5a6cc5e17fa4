//! Adapters over sockets: scale 0 is the base, scale 1 differs, requests side by side get what they
//! get alone, and no prefix crosses from one set to another.

use backstitch_models::adapter::Adapter;
use backstitch_models::backstitch_core::DType;
use backstitch_models::gguf::Writer;
use backstitch_models::{Model, Params};
use backstitch_server::engine::{Engine, EngineParams};
use backstitch_server::http::{Adapters, Host, Loaded, LoadedAdapter, Server, Stop};
use backstitch_server::params::ServerParams;
use backstitch_testing::Random;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PROMPT: &str = "Once upon a time there was a little girl who lived in a house";

/// Return an adapter of the networks of the demo model.
fn adapter(model: &Model, seed: u64) -> Adapter {
    let mut random = Random::new(seed);
    let mut tensors = Vec::new();
    for info in model.graph().weights().iter().filter(|info| info.tensor.contains("ffn_down.weight")) {
        let (n_out, n_in) = (info.dims[0], info.dims[1]);
        for (half, shape) in [("lora_a", [4, n_in]), ("lora_b", [n_out, 4])] {
            let numbers = random.floats(shape[0] * shape[1]).into_iter();
            let data: Vec<u8> = numbers.flat_map(|x| (0.2 * x).to_le_bytes()).collect();
            tensors.push((format!("{}.{half}", info.tensor), shape, data));
        }
    }
    let mut writer = Writer::new();
    writer.set("general.type", "adapter").unwrap();
    writer.set("general.architecture", model.hparams().architecture.as_str()).unwrap();
    writer.set("adapter.type", "lora").unwrap();
    for (name, shape, data) in &tensors {
        writer.tensor(name, shape, DType::F32, data).unwrap();
    }
    Adapter::from_bytes(&writer.to_bytes(), model).unwrap()
}

/// A running server of the demo model with two adapters.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(scales: [f32; 2], state: Option<&Path>) -> Self {
        Self::start_with(scales, state, None)
    }

    fn start_with(scales: [f32; 2], state: Option<&Path>, sleep_after: Option<Duration>) -> Self {
        let folder = state.map(Path::to_path_buf);
        let load = move || {
            let model = Model::from_bytes(backstitch_demo::GGUF)?;
            let params = EngineParams {
                context: Params::default().n_threads(2),
                n_ctx: 256,
                n_slots: 4,
                n_held: 16,
                state: folder.clone(),
                ..EngineParams::default()
            };
            let list = [1, 2].into_iter().zip(scales).map(|(seed, scale)| LoadedAdapter {
                path: format!("adapter {seed}.gguf").into(),
                adapter: adapter(&model, seed),
                scale,
            });
            let adapters = Adapters { list: list.collect(), ..Adapters::default() };
            Ok(Loaded { engine: Engine::start(&model, params)?, template: None, adapters })
        };
        let params = ServerParams { port: 0, sleep_after, ..ServerParams::default() };
        let server = Server::bind(Host::new(params, load).unwrap()).unwrap();
        let (address, stop) = (server.address().unwrap(), server.stopper());
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { address, stop, thread: Some(thread) }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, &body.to_string())
    }

    /// Complete the prompt with `lora`, and return the text and the number of tokens reused.
    fn complete(&self, lora: Option<Value>) -> (String, u64) {
        let mut body = json!({"prompt": PROMPT, "n_predict": 16, "temperature": 0.0});
        if let Some(lora) = lora {
            body["lora"] = lora;
        }
        let (status, answer) = self.post("/completion", &body);
        assert_eq!(status, 200, "{answer}");
        (answer["content"].as_str().unwrap().into(), answer["timings"]["cache_n"].as_u64().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn at(id: usize, scale: f32) -> Option<Value> {
    Some(json!([{"id": id, "scale": scale}]))
}

#[test]
fn scales_outlive_a_sleep() {
    let server = Running::start_with([0.0, 0.0], None, Some(Duration::from_millis(100)));
    assert_eq!(server.post("/lora-adapters", &json!([{"id": 1, "scale": 0.25}])).0, 200);
    let since = Instant::now();
    while server.send("GET", "/props", "").1["is_sleeping"] != true {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.send("GET", "/lora-adapters", "").1[1]["scale"], json!(0.25));
}

#[test]
fn scales_of_the_server_and_of_requests() {
    let server = Running::start([0.0, 0.0], None);
    let (status, list) = server.send("GET", "/lora-adapters", "");
    assert_eq!((status, list.as_array().unwrap().len()), (200, 2));
    assert_eq!(list[1]["path"], "adapter 2.gguf");
    assert_eq!((&list[0]["id"], &list[0]["scale"]), (&json!(0), &json!(0.0)));
    let base = server.complete(None).0;
    let one = server.complete(at(0, 1.0)).0;
    assert_ne!(base, one);
    // Scale 0 is the base, and goes on from what the base has evaluated.
    let (text, reused) = server.complete(at(0, 0.0));
    assert!(text == base && reused > 0, "{text}, {reused} reused");
    let (status, answer) = server.post("/lora-adapters", &json!([{"id": 0, "scale": 1.0}]));
    assert_eq!((status, answer), (200, json!({"success": true})));
    assert_eq!(server.complete(None).0, one);
    assert_eq!(server.complete(at(1, 0.0)).0, base);
    // An adapter that is not named gets the scale 0.
    assert_eq!(server.post("/lora-adapters", &json!([])).0, 200);
    assert_eq!(server.complete(None).0, base);
    assert_eq!(server.send("GET", "/lora-adapters", "").1[0]["scale"], json!(0.0));
}

#[test]
fn nothing_held_crosses_from_one_set_to_another() {
    let server = Running::start([0.0, 0.0], None);
    let sets = [None, at(0, 1.0), at(1, 1.0), at(0, 0.5)];
    let first: Vec<_> = sets.iter().map(|lora| server.complete(lora.clone())).collect();
    assert!(first.iter().all(|(_, reused)| *reused == 0), "{first:?}");
    for (lora, (text, _)) in sets.iter().zip(&first) {
        let (again, reused) = server.complete(lora.clone());
        assert!(&again == text && reused > 0, "{lora:?}: {reused} reused");
    }
}

#[test]
fn requests_side_by_side_get_what_they_get_alone() {
    let scales = [0.0, 0.0, 0.3, 0.7, 1.0, 1.0];
    let alone: Vec<String> = {
        let server = Running::start([1.0, 0.0], None);
        scales.iter().map(|&scale| server.complete(at(0, scale)).0).collect()
    };
    let server = Running::start([1.0, 0.0], None);
    let together: Vec<String> = std::thread::scope(|scope| {
        let threads = scales.map(|scale| {
            let server = &server;
            scope.spawn(move || server.complete(at(0, scale)).0)
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn nothing_on_disk_crosses_from_one_set_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{PROMPT} {PROMPT} {PROMPT} {PROMPT} {PROMPT}");
    let complete = |server: &Running, lora: &Value| {
        let body = json!({"prompt": long, "n_predict": 4, "temperature": 0.0, "lora": lora});
        let (status, answer) = server.post("/completion", &body);
        assert_eq!(status, 200, "{answer}");
        (answer["content"].clone(), answer["timings"]["cache_n"].as_u64().unwrap())
    };
    let sets = [json!([{"id": 0, "scale": 0.0}]), json!([{"id": 0, "scale": 1.0}])];
    let first: Vec<_> = {
        let server = Running::start([0.0, 0.0], Some(folder.path()));
        sets.iter().map(|lora| complete(&server, lora)).collect()
    };
    assert!(first.iter().all(|(_, reused)| *reused == 0), "{first:?}");
    let server = Running::start([0.0, 0.0], Some(folder.path()));
    for (lora, (text, _)) in sets.iter().zip(&first) {
        let (again, reused) = complete(&server, lora);
        assert!(&again == text && reused > 32, "{lora}: {reused} reused");
    }
    assert_eq!(complete(&server, &json!([{"id": 1, "scale": 1.0}])).1, 0);
}

#[test]
fn adapters_that_there_are_not_are_refused() {
    let server = Running::start([0.0, 0.0], None);
    for lora in [json!([{"id": 2, "scale": 1.0}]), json!([{"scale": 1.0}]), json!([1]), json!("x")] {
        let (status, answer) = server.post("/completion", &json!({"prompt": "x", "lora": lora}));
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("lora"), "{answer}");
        assert_eq!(server.post("/lora-adapters", &lora).0, 400);
    }
}
