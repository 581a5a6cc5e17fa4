//! Clients that read streams slowly, stop reading, or go away, several at once.
//!
//! The input is a program: requests begin, frames of one of them are read, time passes, and streams
//! are dropped in the middle. Afterwards the engine must be idle soon, no task may be left, and the
//! answer to a known prompt must be what it was at first.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use arbitrary::{Arbitrary, Unstructured};
use axum::body::Body;
use axum::http::Request;
use backstitch_fuzz::server::{SOON, Site, check_frames};
use backstitch_server::params::ServerParams;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// The most streams at once; more than the server has slots.
const MAX_STREAMS: usize = 5;
/// The most steps of a program.
const MAX_STEPS: usize = 40;

/// A step of a program.
#[derive(Arbitrary, Debug)]
enum Step {
    /// A client asks.
    Begin { api: u8, n: u8, n_tokens: u16, prompt: u8 },
    /// A client reads some frames.
    Read { stream: u8, n: u8 },
    /// A client goes away.
    Drop { stream: u8 },
    /// Nobody reads.
    Wait { ms: u8 },
    /// A client asks what the slots do.
    Look,
    /// The sequence of a slot is erased; a client does not wait long for a busy one.
    Erase { slot: u8 },
}

/// A stream under way.
struct Stream {
    path: &'static str,
    body: Body,
    read: Vec<u8>,
}

/// The server, and the known answer.
static SITE: LazyLock<(Site, String, tempfile::TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("the system has a folder for temporary files");
    let params = ServerParams { n_predict: None, ..Site::params(Some(folder.path().to_owned())) };
    // More tokens than events that may wait for a client, so that requests pause.
    let site = Site::new(400, params);
    let text = site.continuation();
    (site, text, folder)
});

fuzz_target!(|input: &[u8]| {
    let (site, text, _) = &*SITE;
    let mut u = Unstructured::new(input);
    let mut streams = Vec::new();
    for _ in 0..MAX_STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        take(site, step, &mut streams);
    }
    drop(streams);
    wait_until_idle(site);
    assert_eq!(site.continuation(), *text);
    assert_eq!(site.runtime.metrics().num_alive_tasks(), 0);
});

fn take(site: &Site, step: Step, streams: &mut Vec<Stream>) {
    match step {
        Step::Begin { api, n, n_tokens, prompt } if streams.len() < MAX_STREAMS => {
            streams.extend(begin(site, api, usize::from(n % 2) + 1, n_tokens, prompt));
        }
        Step::Begin { .. } => {}
        Step::Read { stream, n } => {
            let Some(index) = usize::from(stream).checked_rem(streams.len()) else { return };
            if !site.runtime.block_on(read(&mut streams[index], n)) {
                let ended = streams.swap_remove(index);
                check_frames(ended.path, core::str::from_utf8(&ended.read).expect("streams are UTF-8"));
            }
        }
        Step::Drop { stream } => {
            if let Some(index) = usize::from(stream).checked_rem(streams.len()) {
                drop(streams.swap_remove(index));
            }
        }
        Step::Wait { ms } => std::thread::sleep(Duration::from_millis(u64::from(ms % 32))),
        Step::Look => drop(slots(site)),
        Step::Erase { slot } => erase(site, slot % 3),
    }
}

/// Return the tokens to generate: often few, and now and then more than events that may wait.
fn limit(n_tokens: u16) -> u16 {
    if n_tokens % 16 == 0 { 390 } else { n_tokens % 24 }
}

/// Ask for a stream. None begins if the server refuses, for the queue is full.
fn begin(site: &Site, api: u8, n: usize, n_tokens: u16, prompt: u8) -> Option<Stream> {
    let text = ["Once upon a time", "Lily", "The dog ran", ""][usize::from(prompt % 4)];
    let messages = json!([{"role": "user", "content": text}]);
    let (path, mut body) = match api % 6 {
        0 => ("/completion", json!({"prompt": text, "n": n, "return_progress": true})),
        1 => ("/v1/completions", json!({"prompt": [text, "a"], "n": n, "logprobs": 2})),
        2 => ("/v1/chat/completions", json!({"messages": messages, "n": n})),
        3 => ("/v1/responses", json!({"input": text})),
        4 => ("/v1/messages", json!({"messages": messages})),
        _ => ("/completion", json!({"prompt": text, "json_schema": {"type": "array"}, "n_probs": 3})),
    };
    for name in ["max_tokens", "max_output_tokens", "stream", "ignore_eos"] {
        body[name] = match name {
            "stream" => true.into(),
            "ignore_eos" => (prompt & 4 != 0).into(),
            _ => limit(n_tokens).into(),
        };
    }
    let request = Request::post(path).body(Body::from(body.to_string())).expect("the path is a valid one");
    let answer = site.runtime.block_on(site.send(request));
    assert_ne!(answer.status(), 500, "{path} {body}");
    let is_stream = answer.status().is_success();
    is_stream.then(|| Stream { path, body: answer.into_body(), read: Vec::new() })
}

/// Read some frames, and return false if the last one was read. They are few, because a stream that
/// waits for a slot sends nothing but comments.
async fn read(stream: &mut Stream, n: u8) -> bool {
    for _ in 0..=n % 24 {
        let frame =
            tokio::time::timeout(SOON, stream.body.frame()).await.expect("a frame or a ping comes soon");
        let Some(frame) = frame else { return false };
        let frame = frame.expect("nothing breaks off in one process");
        stream.read.extend_from_slice(frame.data_ref().expect("there are no trailers"));
    }
    true
}

/// Erase the sequence of a slot, and go away soon.
fn erase(site: &Site, slot: u8) {
    let request = Request::post(format!("/slots/{slot}?action=erase")).body(Body::from("{}"));
    let answer = site.send(request.expect("the path is a valid one"));
    // Nobody reads the streams that keep the slot busy meanwhile.
    drop(site.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(20), answer).await }));
}

fn slots(site: &Site) -> Value {
    site.ask(Request::get("/slots").body(Body::empty()).expect("the path is a valid one")).json()
}

/// Wait until no slot is busy.
fn wait_until_idle(site: &Site) {
    let start = Instant::now();
    let is_busy = |slots: Value| {
        slots.as_array().is_some_and(|slots| slots.iter().any(|slot| slot["is_processing"] == true))
    };
    while is_busy(slots(site)) {
        assert!(start.elapsed() < SOON, "requests of clients that went away go on");
        std::thread::sleep(Duration::from_millis(2));
    }
}
