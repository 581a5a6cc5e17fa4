//! Clients: API keys, and the tenants that they make.

use super::app::Host;
use super::error::{ApiError, ErrorKind};
use super::work::WorkTime;
use crate::engine::Tenant;
use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use backstitch_models::Cancel;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The one who asks.
///
/// Every API key is a tenant of its own: what was computed for one key is never reused for another.
/// A request can narrow that further with a `cache_salt`.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The API key, if the server has keys.
    key: Option<String>,
    /// The address of the connection, if it came through a socket of [`Server`](super::Server).
    address: Option<Address>,
    /// Ends work for the client: it has gone away, or its work takes too long.
    cancel: Cancel,
    /// The time of work for the client.
    work_time: WorkTime,
}

/// The address of a client as far as shares of connections and of work go: an IPv4 address, or the
/// 64 bits of an IPv6 address that a network of one subscriber has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address(IpAddr);

impl Address {
    /// Return the address of a peer.
    pub fn new(peer: IpAddr) -> Self {
        Address(match peer.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                let network = u128::from(v6) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        })
    }

    /// Return true for an address of this machine, at which a proxy for many clients may stand.
    pub fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

/// The one whose share of work, memory and connections a request takes: an API key, or where there
/// are none, an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The tenant of an API key.
    Key(Tenant),
    /// Clients of one address; `None` without a socket.
    Address(Option<Address>),
}

impl Client {
    /// Return the client with the address of its connection.
    pub(super) fn at(mut self, address: Option<Address>) -> Self {
        self.address = address;
        self
    }

    /// Return the client with a request to cancel that ends its work, and the time of that work.
    pub(super) fn with_work(self, cancel: Cancel, work_time: WorkTime) -> Self {
        Self { cancel, work_time, ..self }
    }

    /// Return the request to cancel that ends work for this client. Whatever is made for a client
    /// and may take long heeds it; looking at it also lets the work of others go first.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Return the time of the work that is done for the client.
    pub(super) fn work_time(&self) -> &WorkTime {
        &self.work_time
    }

    /// Return the one whose share of work and memory the client takes.
    pub(super) fn owner(&self) -> Owner {
        match self.key {
            Some(_) => Owner::Key(self.tenant(None)),
            None => Owner::Address(self.address),
        }
    }

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

    /// Return the client that the guard found for a request; one found now, if it passed none.
    ///
    /// # Errors
    /// Those of [`Client::of`].
    pub(super) fn of_request(
        extensions: &Extensions,
        headers: &HeaderMap,
        host: &Host,
    ) -> Result<Self, ApiError> {
        match extensions.get::<Client>() {
            Some(client) => Ok(client.clone()),
            None => Client::of(headers, &host.params().api_keys),
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
            true => Ok(Client { key: Some(given.to_owned()), ..Client::default() }),
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
        Client::of_request(&parts.extensions, &parts.headers, host)
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
    fn shares_are_by_key_or_by_address() {
        let keys = ["one".to_owned(), "two".to_owned()];
        let [here, there] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|bytes| Address::new(bytes.into()));
        let client = |key: &str| Client::of(&headers("x-api-key", key), &keys).unwrap();
        assert_eq!(client("one").at(Some(here)).owner(), client("one").at(Some(there)).owner());
        assert_ne!(client("one").at(Some(here)).owner(), client("two").at(Some(here)).owner());
        let nobody = Client::default();
        assert_ne!(nobody.clone().at(Some(here)).owner(), nobody.at(Some(there)).owner());
    }

    #[test]
    fn a_network_of_one_subscriber_is_one_address() {
        let address = |text: &str| Address::new(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("10.0.0.1"), address("10.0.0.2"));
        assert!(address("::1").is_loopback() && address("127.0.0.1").is_loopback());
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
