//! Clients: API keys, and the tenants that they make.

use super::app::Host;
use super::error::{ApiError, ErrorKind};
use crate::engine::Tenant;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use std::sync::Arc;

/// The one who asks.
///
/// Every API key is a tenant of its own: what was computed for one key is never reused for another.
/// A request can narrow that further with a `cache_salt`.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The API key, if the server has keys.
    key: Option<String>,
}

impl Client {
    /// Return the tenant of requests with this salt.
    ///
    /// # Example
    /// ```
    /// use backstitch_server::engine::Tenant;
    /// use backstitch_server::http::Client;
    ///
    /// let client = Client::default();
    /// assert_eq!(client.tenant(None), Tenant::default());
    /// assert_ne!(client.tenant(Some("a")), client.tenant(Some("b")));
    /// ```
    pub fn tenant(&self, salt: Option<&str>) -> Tenant {
        let key: Vec<&str> = self.key.iter().flat_map(|key| ["key", key]).collect();
        match salt {
            None => Tenant::of(&key),
            Some(salt) => Tenant::salted(&key, salt),
        }
    }

    /// Find the client of a request among those that `keys` admit; anyone if there are no keys.
    ///
    /// # Errors
    /// [`ErrorKind::Authentication`] without a key, or with a wrong one.
    pub(super) fn of(headers: &HeaderMap, keys: &[String]) -> Result<Self, ApiError> {
        if keys.is_empty() {
            return Ok(Client::default());
        }
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.map(|value| without_scheme(value).unwrap_or(value));
        let plain = headers.get("x-api-key").and_then(|value| value.to_str().ok());
        let given = bearer.or(plain).unwrap_or_default();
        // All keys are compared, so that the time does not tell which one was nearly right.
        let known = keys.iter().filter(|key| is_same(key, given)).count() > 0;
        match known {
            true => Ok(Client { key: Some(given.to_owned()) }),
            false => Err(ApiError::new(ErrorKind::Authentication, "Invalid API Key")),
        }
    }
}

/// Return the key behind the name of the scheme, whose letters may be of either case.
fn without_scheme(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

/// Compare two secrets in a time that depends on neither of them: their hashes are compared whole.
fn is_same(secret: &str, given: &str) -> bool {
    blake3::hash(secret.as_bytes()) == blake3::hash(given.as_bytes())
}

impl FromRequestParts<Arc<Host>> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, host: &Arc<Host>) -> Result<Self, ApiError> {
        match parts.extensions.get::<Client>() {
            Some(client) => Ok(client.clone()),
            None => Client::of(&parts.headers, &host.params().api_keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(axum::http::HeaderName::from_static(name), value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn keys_come_in_either_header() {
        let keys = ["one".to_owned(), "two".to_owned()];
        let right = ["Bearer two", "bearer two", "BEARER  two", "two"].map(|value| ("authorization", value));
        for (name, value) in right.into_iter().chain([("x-api-key", "one")]) {
            assert!(Client::of(&headers(name, value), &keys).is_ok(), "{value}");
        }
        for (name, value) in [
            ("authorization", "Bearer tw"),
            ("authorization", "Basic two"),
            ("x-api-key", ""),
            ("cookie", "one"),
        ] {
            let error = Client::of(&headers(name, value), &keys).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Authentication, "{value}");
        }
        assert!(Client::of(&HeaderMap::new(), &[]).is_ok());
    }

    #[test]
    fn every_key_is_a_tenant() {
        let keys = ["one".to_owned(), "two".to_owned()];
        let one = Client::of(&headers("x-api-key", "one"), &keys).unwrap();
        let two = Client::of(&headers("x-api-key", "two"), &keys).unwrap();
        assert_ne!(one.tenant(None), two.tenant(None));
        assert_ne!(one.tenant(Some("x")), two.tenant(Some("x")));
    }
}
