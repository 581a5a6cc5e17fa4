//! The page at `/`: a chat in the browser, with a picture of the model's memory beside it.
//!
//! The files below `page/` are plain HTML, CSS and JavaScript modules. They are embedded as they
//! are: there is no build step. The page fetches nothing from other hosts, which its content
//! security policy enforces, and works without a network beyond this server. `docs/page.md`
//! describes it.

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of the page.
#[derive(Clone, Copy)]
struct PageFile {
    /// The path in the URL.
    path: &'static str,
    /// The contents.
    text: &'static str,
}

/// Embed files of the folder `page/` that are served at `/page/`.
macro_rules! page_files {
    ($($name:literal),* $(,)?) => {
        &[$(PageFile {
            path: concat!("/page/", $name),
            text: include_str!(concat!("page/", $name)),
        }),*]
    };
}

const INDEX: &str = include_str!("page/index.html");

const FILES: &[PageFile] = page_files![
    "announce.js",
    "api.js",
    "app.js",
    "attach.js",
    "chat.js",
    "clipboard.js",
    "composer.js",
    "conversations.js",
    "cost.js",
    "dom.js",
    "drawers.js",
    "icon.svg",
    "inline.js",
    "keys.js",
    "layout.css",
    "markdown.js",
    "memory-view.js",
    "memory.js",
    "message.js",
    "numbers.js",
    "settings.js",
    "sse.js",
    "store.js",
    "style.css",
    "theme.js",
    "toast.js",
    "transfer.js",
    "tree.js",
    "turn.js",
];

/// Everything comes from this server; text that a model wrote cannot become markup or a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const CORP: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Return the routes of the page: `/`, `/index.html` and the files at `/page/`.
///
/// They need no API key: the page itself asks for one, and sends it with its requests.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let index = ["/", "/index.html"].map(|path| PageFile { path, text: INDEX });
    let mut router = Router::new();
    for &PageFile { path, text } in index.iter().chain(FILES) {
        let tag = entity_tag(text);
        let answer = move |request: HeaderMap| async move { respond(path_type(path), text, tag, &request) };
        router = router.route(path, get(answer));
    }
    router
}

/// Return the content type of a file by the end of its name.
fn path_type(path: &str) -> HeaderValue {
    HeaderValue::from_static(match path.rsplit_once('.').map(|(_, end)| end) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/html; charset=utf-8",
    })
}

/// Return the entity tag of a file: a hash, so that browsers fetch the files of a new version.
fn entity_tag(text: &str) -> HeaderValue {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let tag = format!("\"{}\"", &hash.as_str()[..32]);
    HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Answer a request for a file, with 304 and no body if the client has this version.
fn respond(kind: HeaderValue, text: &'static str, tag: HeaderValue, request: &HeaderMap) -> Response {
    let known = request.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| {
        tags.split(',').any(|known| known.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes())
    });
    let headers = [
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CORP, HeaderValue::from_static("same-origin")),
        // Browsers keep a copy, and ask each time if it is current.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ETAG, tag),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, [(CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

#[cfg(test)]
mod tests;
