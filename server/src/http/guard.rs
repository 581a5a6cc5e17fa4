//! The guard that every request passes: origins, keys, sizes, the log.

use super::app::Host;
use super::body::too_large;
use super::client::{Address, Client};
use super::error::{ApiError, ErrorKind};
use crate::params::ServerParams;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, CONTENT_LENGTH, HOST, HeaderName, ORIGIN, SERVER,
    VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Paths that need no key: they tell nothing about what clients ask.
const PUBLIC: [&str; 7] =
    ["/", "/health", "/v1/health", "/models", "/v1/models", "/index.html", "/favicon.ico"];
/// Folders of the page's files, and names that llama-server's page has.
const PUBLIC_PAGE: [&str; 4] = ["/page/", "/_app/", "/sw.js", "/manifest.webmanifest"];
/// The path below which errors have Anthropic's shape.
const ANTHROPIC: &str = "/v1/messages";

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
/// Ends of names that cannot be had outside a machine or its network.
const PRIVATE_NAMES: [&str; 4] = [".localhost", ".internal", ".local", ".home.arpa"];
const ANY: HeaderValue = HeaderValue::from_static("*");
/// The seconds for which a browser need not ask again what a page may send.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
const YES: HeaderValue = HeaderValue::from_static("true");
const NOSNIFF: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));

/// Let a request through to its handler, or refuse it.
pub(super) async fn guard(State(host): State<Arc<Host>>, mut request: Request, next: Next) -> Response {
    let since = Instant::now();
    let params = host.params();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(ORIGIN).cloned();
    let is_allowed = origin.as_ref().is_some_and(|origin| allows(params, origin));
    let mut response = match admit(params, &method, &path, request.headers(), is_allowed) {
        Err(error) => error.into_response(),
        Ok(_) if method == Method::OPTIONS => StatusCode::OK.into_response(),
        Ok(client) => {
            let address = request.extensions().get::<Address>().copied();
            request.extensions_mut().insert(client.at(address));
            next.run(request).await
        }
    };
    let error = response.extensions_mut().remove::<ApiError>();
    let reason = error.as_ref().map(|error| error.message().to_owned());
    if path.starts_with(ANTHROPIC)
        && let Some(error) = error
    {
        response = error.into_anthropic();
    }
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("backstitch"));
    headers.insert(NOSNIFF.0, NOSNIFF.1);
    if let (Some(origin), true) = (origin, is_allowed) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, YES);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ANY);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    log(&method, &path, response.status(), since, reason.as_deref());
    response
}

/// Find the client of a request.
///
/// # Errors
/// [`ErrorKind::Permission`] for pages of origins that are not allowed,
/// [`ErrorKind::Authentication`] without a valid key, [`ErrorKind::TooLarge`].
fn admit(
    params: &ServerParams,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    is_allowed: bool,
) -> Result<Client, ApiError> {
    // A page of another origin could otherwise make the browser ask for work here, although it
    // could not read the answer.
    if method != Method::OPTIONS && is_foreign(headers) && !is_allowed {
        let text = "pages of other origins may not use this server (--cors-origins allows them)";
        return Err(ApiError::new(ErrorKind::Permission, text));
    }
    if !is_own_name(params, headers) {
        let text = "this server does not have the name that was asked for (--cors-origins gives it names)";
        return Err(ApiError::new(ErrorKind::Permission, text));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > params.max_body_bytes as u64) {
        return Err(too_large(params.max_body_bytes));
    }
    let is_public = (method == Method::GET || method == Method::HEAD)
        && (PUBLIC.contains(&path) || PUBLIC_PAGE.iter().any(|start| path.starts_with(start)));
    match Client::of(headers, &params.api_keys) {
        Err(_) if is_public || method == Method::OPTIONS => Ok(Client::default()),
        client => client,
    }
}

/// Return true if a request comes from a page of another origin than this server.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()) else { return false };
    let own = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    !authority.eq_ignore_ascii_case(own)
}

/// Return true unless a page may have given its own name to this machine, to count as a page of
/// this server: a server for this machine alone that needs no key answers to addresses, names that
/// are nobody's outside (`localhost`, `host.docker.internal`) and those of allowed origins only.
fn is_own_name(params: &ServerParams, headers: &HeaderMap) -> bool {
    let is_loopback = |name: &str| name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let is_local_server = params.hosts.iter().all(|host| host == "localhost" || is_loopback(host));
    if !params.api_keys.is_empty() || !is_local_server {
        return true;
    }
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(name) = host.to_str().map(|host| name_of(host).trim_end_matches('.').to_lowercase()) else {
        return false;
    };
    let is_allowed = |origin: &String| origin == "*" || name_of(origin).eq_ignore_ascii_case(&name);
    !name.contains('.')
        || PRIVATE_NAMES.iter().any(|end| name.ends_with(end))
        || name.parse::<IpAddr>().is_ok()
        || params.cors_origins.iter().any(is_allowed)
}

/// Return the name or address in an origin or authority.
fn name_of(origin: &str) -> &str {
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    name.unwrap_or_default()
}

/// Return true if pages of `origin` may use the server.
fn allows(params: &ServerParams, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    params.cors_origins.iter().any(|allowed| match allowed.as_str() {
        "*" => true,
        "localhost" => is_local(origin),
        allowed => allowed.eq_ignore_ascii_case(origin),
    })
}

/// Return true for an origin on this machine.
fn is_local(origin: &str) -> bool {
    matches!(name_of(origin), "localhost" | "127.0.0.1" | "::1")
}

/// Write a line about a request. Prompts and keys are never logged.
fn log(method: &Method, path: &str, status: StatusCode, since: Instant, reason: Option<&str>) {
    let (status, ms) = (status.as_u16(), since.elapsed().as_millis() as u64);
    match reason {
        Some(reason) if status >= 500 => tracing::warn!(%method, path, status, ms, reason, "request"),
        Some(reason) => tracing::info!(%method, path, status, ms, reason, "request"),
        None => tracing::info!(%method, path, status, ms, "request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn pages_of_other_origins_are_foreign() {
        let own = headers(&[("origin", "http://localhost:8080"), ("host", "localhost:8080")]);
        let other = headers(&[("origin", "https://example.org"), ("host", "localhost:8080")]);
        let file = headers(&[("origin", "null"), ("host", "localhost:8080")]);
        assert!(!is_foreign(&own) && is_foreign(&other) && is_foreign(&file));
        assert!(!is_foreign(&headers(&[("host", "localhost:8080")])));
    }

    #[test]
    fn origins_are_allowed_by_name() {
        let allowed = |origins: &[&str], origin: &'static str| {
            let cors_origins = origins.iter().map(|&origin| origin.to_owned()).collect();
            let params = ServerParams { cors_origins, ..ServerParams::default() };
            allows(&params, &HeaderValue::from_static(origin))
        };
        assert!(!allowed(&[], "http://localhost"));
        assert!(allowed(&["*"], "https://example.org"));
        assert!(allowed(&["https://a.b"], "https://a.b") && !allowed(&["https://a.b"], "https://a.bc"));
        for local in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:5"] {
            assert!(allowed(&["localhost"], local), "{local}");
        }
        assert!(!allowed(&["localhost"], "http://localhost.example.org"));
    }

    #[test]
    fn names_that_pages_could_take_are_refused_without_a_key() {
        let own = |params: &ServerParams, host: &str| is_own_name(params, &headers(&[("host", host)]));
        let local = ServerParams::default();
        for host in ["localhost:8080", "LOCALHOST.", "127.0.0.1", "[::1]:8080", "192.168.0.7:80"] {
            assert!(own(&local, host), "{host}");
        }
        for host in ["a.localhost", "mybox:80", "mybox.local", "host.docker.internal:8080"] {
            assert!(own(&local, host), "{host}");
        }
        for host in ["example.org", "example.org:8080", "localhost.example.org", "127.0.0.1.example.org"] {
            assert!(!own(&local, host), "{host}");
        }
        let cors_origins = vec!["https://example.org".to_owned()];
        assert!(own(&ServerParams { cors_origins, ..local.clone() }, "example.org:8080"));
        assert!(own(&ServerParams { api_keys: vec!["key".into()], ..local.clone() }, "example.org"));
        assert!(own(
            &ServerParams { hosts: vec!["127.0.0.1".into(), "0.0.0.0".into()], ..local.clone() },
            "example.org"
        ));
        assert!(is_own_name(&local, &HeaderMap::new()));
    }

    #[test]
    fn large_bodies_are_refused_before_they_come() {
        let params = ServerParams { max_body_bytes: 10, ..ServerParams::default() };
        let admit = |length: &str| {
            admit(&params, &Method::POST, "/completion", &headers(&[("content-length", length)]), false)
        };
        assert!(admit("10").is_ok());
        assert_eq!(admit("11").unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn only_public_paths_need_no_key() {
        let params = ServerParams { api_keys: vec!["secret".into()], ..ServerParams::default() };
        let admit = |method, path| admit(&params, &method, path, &HeaderMap::new(), false);
        assert!(admit(Method::GET, "/health").is_ok() && admit(Method::OPTIONS, "/completion").is_ok());
        assert!(admit(Method::HEAD, "/health").is_ok() && admit(Method::HEAD, "/slots").is_err());
        for (method, path) in
            [(Method::POST, "/completion"), (Method::POST, "/health"), (Method::GET, "/slots")]
        {
            assert!(admit(method, path).is_err(), "{path}");
        }
    }
}
