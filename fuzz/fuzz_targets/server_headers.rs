//! Untrusted heads of requests: paths, queries, keys, origins, types, and names of saved slots.
//!
//! Input that starts with a byte below 0x80 is a request written out, so that libFuzzer can make
//! any path and any header. Any other is a recipe: valid and wrong keys, types of bodies, and names
//! of files. No request without a key may learn anything but what is public. No file may be made or
//! read outside of the folder of saved slots.
#![no_main]

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use backstitch_fuzz::request::{ENDPOINTS, written};
use backstitch_fuzz::server::Site;
use backstitch_server::params::ServerParams;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Keys that admit.
const KEYS: [&str; 2] = ["first-key", "second-key"];
/// Paths that need no key.
const PUBLIC: [&str; 9] = [
    "/",
    "/health",
    "/v1/health",
    "/models",
    "/v1/models",
    "/index.html",
    "/favicon.ico",
    "/sw.js",
    "/manifest.webmanifest",
];
const PUBLIC_FOLDERS: [&str; 2] = ["/page/", "/_app/"];
/// Names of files: fine ones, and ways out of the folder.
const NAMES: [&str; 20] = [
    "a.bin",
    "b",
    "../a.bin",
    "..",
    ".",
    "/tmp/a",
    "a/../b",
    "a\\b",
    "C:\\a",
    "a\0b",
    "",
    "con",
    "nul.bin",
    " a",
    "a.",
    "slots",
    "../outside",
    "..%2foutside",
    "%2e%2e/outside",
    "é",
];

/// A server with keys, and the folder around that of its saved slots.
struct Guarded {
    site: Site,
    around: tempfile::TempDir,
}

static GUARDED: LazyLock<Guarded> = LazyLock::new(|| {
    let around = tempfile::tempdir().expect("the system has a folder for temporary files");
    let params = ServerParams {
        api_keys: KEYS.map(str::to_owned).to_vec(),
        cors_origins: vec!["https://example.org".into(), "localhost".into()],
        max_body_bytes: 4096,
        ..Site::params(Some(slots(around.path())))
    };
    let site = Site::new(64, params);
    // A file that could be restored, beside the folder.
    let body = json!({"prompt": "Once upon a time", "n_predict": 1, "id_slot": 0});
    assert_eq!(post(&site, "/completion", &body), StatusCode::OK);
    assert_eq!(post(&site, "/slots/0?action=save", &json!({"filename": "outside"})), StatusCode::OK);
    let saved = files(around.path()).pop().expect("a slot was saved");
    std::fs::rename(saved, around.path().join("outside")).expect("it is the same file system");
    Guarded { site, around }
});

fuzz_target!(|input: &[u8]| {
    let request = match input.first() {
        Some(0x80..) => recipe(&mut Unstructured::new(&input[1..])).ok().flatten(),
        _ => written(input),
    };
    let Some(request) = request else { return };
    let Guarded { site, around } = &*GUARDED;
    let (method, path, headers) =
        (request.method().clone(), request.uri().path().to_owned(), request.headers().clone());
    let answer = site.ask(request);
    if answer.status.is_success() && !is_public(&method, &path) {
        assert!(has_key(&headers), "{method} {path} {headers:?}: {answer:?}");
    }
    if answer.status.is_success() && method == Method::POST && path.starts_with("/slots/") {
        check_name(&answer.json());
    }
    check_files(around.path());
});

fn slots(around: &Path) -> PathBuf {
    around.join("slots")
}

fn post(site: &Site, path: &str, body: &Value) -> StatusCode {
    let request = Request::post(path).header("x-api-key", KEYS[0]).body(Body::from(body.to_string()));
    site.ask(request.expect("the path is a valid one")).status
}

fn is_public(method: &Method, path: &str) -> bool {
    let is_page = PUBLIC_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let reads = [Method::GET, Method::HEAD].contains(method);
    method == Method::OPTIONS || reads && (is_page || PUBLIC.contains(&path))
}

fn has_key(headers: &HeaderMap) -> bool {
    let named = ["authorization", "x-api-key"].map(|name| headers.get_all(name));
    let ends = |value: &[u8]| KEYS.iter().any(|key| value.ends_with(key.as_bytes()));
    named.iter().any(|values| values.iter().any(|value| ends(value.as_bytes())))
}

/// Check that a slot was saved or restored by a name alone.
fn check_name(answer: &Value) {
    let Some(name) = answer["filename"].as_str() else { return };
    let mut parts = Path::new(name).components();
    assert!(matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)), "{answer}");
    assert!(!name.contains(['/', '\\', '\0', ':']), "{answer}");
}

/// Check that there is one file around the folder of saved slots, and that within it there are a
/// folder for each key and salt, with files alone. Files are removed again when there are many.
fn check_files(around: &Path) {
    let all = files(around);
    let beside: Vec<&PathBuf> = all.iter().filter(|path| !path.starts_with(slots(around))).collect();
    assert_eq!(beside, [&around.join("outside")]);
    let depth = |path: &Path| path.strip_prefix(slots(around)).map_or(0, |path| path.components().count());
    let strange = all.iter().find(|path| path.starts_with(slots(around)) && depth(path) != 2);
    assert_eq!(strange, None);
    if all.len() > 64 {
        all.iter().filter(|path| depth(path) == 2).for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Return all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut todo, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => todo.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

fn recipe(u: &mut Unstructured<'_>) -> Result<Option<Request<Body>>> {
    let (method, path, body) = *u.choose(&ENDPOINTS)?;
    let (mut path, mut body) = (path.to_owned(), body.as_bytes().to_vec());
    match u.int_in_range(0..=5)? {
        0..=2 => {
            let name =
                if bool::arbitrary(u)? { String::arbitrary(u)? } else { (*u.choose(&NAMES)?).to_owned() };
            let action = *u.choose(&["save", "restore", "erase"])?;
            path = format!("/slots/{}?action={action}", u.choose(&["0", "1", "2", "-1", "%30"])?);
            let salt = u.choose(&[None, Some("a"), Some("../.."), Some("")]).copied()?;
            body = json!({"filename": name, "cache_salt": salt}).to_string().into_bytes();
        }
        3 => path += &format!("?{}", query(u)?),
        4 => body = multipart(u)?,
        _ => {}
    }
    let mut request = Request::builder().method(method).uri(path);
    for _ in 0..u.int_in_range(0..=4)? {
        let (name, value) = header(u)?;
        request = request.header(name, value);
    }
    Ok(request.body(Body::from(body)).ok())
}

/// Return a query; bytes that no URI can have are left to those that are written out.
fn query(u: &mut Unstructured<'_>) -> Result<String> {
    let piece = |u: &mut Unstructured<'_>| {
        let pieces =
            ["action", "=", "save", "&", "%", "%ff", "%2e", "fail_on_no_slot", "1", "+", "filename", "?"];
        Ok(*u.choose(&pieces)?)
    };
    (0..u.int_in_range(0..=8)?).map(|_| piece(u)).collect()
}

fn header(u: &mut Unstructured<'_>) -> Result<(&'static str, Vec<u8>)> {
    const NAMES: [&str; 10] = [
        "authorization",
        "x-api-key",
        "content-type",
        "content-length",
        "origin",
        "host",
        "priority",
        "if-none-match",
        "accept-encoding",
        "expect",
    ];
    const VALUES: [&str; 18] = [
        "Bearer first-key",
        "second-key",
        "Bearer",
        "bearer first-key",
        "Basic Zmlyc3Qta2V5",
        "first-ke",
        "Bearer  x",
        "application/json",
        "multipart/form-data; boundary=b",
        "text/plain; charset=utf-16",
        "99999999999999999999",
        "-1",
        "0",
        "https://example.org",
        "http://localhost",
        "null",
        "u=1, i",
        "100-continue",
    ];
    let value = match u.ratio(1, 4)? {
        true => Vec::arbitrary(u)?,
        false => u.choose(&VALUES)?.as_bytes().to_vec(),
    };
    Ok((*u.choose(&NAMES)?, value))
}

/// Return a form with a part that looks like a file.
fn multipart(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let name = *u.choose(&NAMES)?;
    let content: Vec<u8> = Vec::arbitrary(u)?;
    let head = format!("--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n");
    Ok([head.as_bytes(), &content, b"\r\n--b--\r\n"].concat())
}
