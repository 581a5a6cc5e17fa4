//! Untrusted requests to every endpoint, over a real engine.
//!
//! Input that starts with a byte below 0x80 is a request written out. Any other is a recipe: a
//! valid request with mutations of its JSON. The server must answer soon, never with an internal
//! error, and errors must have the shape of the API that was asked.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Unstructured;
use axum::body::Body;
use axum::http::Request;
use backstitch_fuzz::request::{mutated, written};
use backstitch_fuzz::server::Site;
use libfuzzer_sys::fuzz_target;

/// The folder of saved slots lives as long as the process.
static SITE: LazyLock<(Site, tempfile::TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("the system has a folder for temporary files");
    (Site::new(128, Site::params(Some(folder.path().to_owned()))), folder)
});

fuzz_target!(|input: &[u8]| {
    let request = match input.first() {
        Some(0x80..) => recipe(&input[1..]),
        _ => written(input),
    };
    if let Some(request) = request {
        SITE.0.ask(request);
    }
});

fn recipe(input: &[u8]) -> Option<Request<Body>> {
    let (method, path, body) = mutated(&mut Unstructured::new(input)).ok()?;
    Request::builder().method(method).uri(path).body(Body::from(body)).ok()
}
