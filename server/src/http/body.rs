//! JSON bodies, and the memory that all of them use.

use super::app::{Host, blocking};
use super::error::{ApiError, ErrorKind};
use axum::extract::{FromRequest, Request};
use core::ops::{Deref, DerefMut};
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of memory for all bodies together, before and after they are parsed. A body that
/// is alone may use more.
const MOST_MEMORY: u64 = 1 << 30;
/// The length in bytes from which a body is parsed beside the thread that serves all clients.
const LONG: usize = 64 << 10;

/// The memory that bodies use.
#[derive(Debug, Default)]
pub(crate) struct Bodies(AtomicU64);

/// The memory of one body, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bodies: Arc<Bodies>,
    bytes: u64,
}

impl Charge {
    fn new(bodies: &Arc<Bodies>) -> Self {
        Charge { bodies: bodies.clone(), bytes: 0 }
    }

    /// Take more memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all bodies together use too much.
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let bytes = bytes as u64;
        let before = self.bodies.0.fetch_add(bytes, Ordering::Relaxed);
        let is_alone = before <= self.bytes;
        self.bytes += bytes;
        match before.saturating_add(bytes) > MOST_MEMORY && !is_alone {
            true => Err(ApiError::new(ErrorKind::Unavailable, "too many large requests at a time")),
            false => Ok(()),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.bodies.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The JSON object of a request. The type that the client states for it does not matter, as with
/// llama-server; a missing body is an empty object. Its memory counts as used until it is dropped:
/// handlers do so before they wait for the engine.
#[derive(Debug)]
pub struct Body {
    fields: Map<String, Value>,
    #[expect(dead_code, reason = "gives the memory back when it is dropped")]
    charge: Charge,
}

impl Deref for Body {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fields
    }
}

impl FromRequest<Arc<Host>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, host: &Arc<Host>) -> Result<Self, ApiError> {
        let (bytes, mut charge) = bytes(request, host, host.params().max_body_bytes).await?;
        charge.grow(parsed_bytes(&bytes))?;
        let fields = match bytes.len() {
            LONG.. => blocking(move || parse(&bytes)).await?,
            _ => parse(&bytes)?,
        };
        Ok(Body { fields, charge })
    }
}

/// Return about the memory that the values of a body use: one stands before each comma, colon and
/// closing bracket.
fn parsed_bytes(bytes: &[u8]) -> usize {
    let n_values = bytes.iter().filter(|byte| matches!(byte, b',' | b':' | b']' | b'}')).count();
    bytes.len() + n_values * size_of::<Value>()
}

/// Return the bytes of a body, at most `limit` of them, which must arrive in time, and their
/// memory.
///
/// # Errors
/// [`ErrorKind::Timeout`], [`ErrorKind::TooLarge`], [`ErrorKind::Unavailable`] if other bodies use
/// too much memory, and [`ErrorKind::Invalid`] for a body that breaks off.
pub(crate) async fn bytes(
    request: Request,
    host: &Host,
    limit: usize,
) -> Result<(Vec<u8>, Charge), ApiError> {
    tokio::time::timeout(host.params().timeout, collect(request, host, limit))
        .await
        .map_err(|_| ApiError::new(ErrorKind::Timeout, "the body took too long to arrive"))?
}

async fn collect(request: Request, host: &Host, limit: usize) -> Result<(Vec<u8>, Charge), ApiError> {
    let (mut bytes, mut charge) = (Vec::new(), Charge::new(host.bodies()));
    let mut body = Limited::new(request.into_body(), limit);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refused(error.as_ref(), limit))?;
        if let Some(data) = frame.data_ref() {
            charge.grow(data.len())?;
            bytes.extend_from_slice(data);
        }
    }
    Ok((bytes, charge))
}

/// Say why a body could not be read.
fn refused(error: &(dyn core::error::Error + 'static), limit: usize) -> ApiError {
    let mut source = Some(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return too_large(limit);
        }
        source = error.source();
    }
    ApiError::invalid("the body could not be read")
}

/// Make the error about a body of more than `limit` bytes.
pub(super) fn too_large(limit: usize) -> ApiError {
    ApiError::new(ErrorKind::TooLarge, format!("the body is larger than {limit} bytes"))
}

/// Parse a body.
fn parse(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
        Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_objects() {
        assert!(parse(b"").is_ok_and(|fields| fields.is_empty()));
        assert!(parse(b"{\"a\": 1}").is_ok_and(|fields| fields["a"] == 1));
        for wrong in ["[1]", "{\"a\": }", "\"text\"", "{\"a\": 1} x", "{\"a\": \"\u{1}\"}"] {
            let error = parse(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn bodies_share_a_budget_of_memory() {
        let bodies = Arc::new(Bodies::default());
        let mut first = Charge::new(&bodies);
        let all = MOST_MEMORY as usize;
        assert!(first.grow(1).is_ok() && first.grow(all).is_ok(), "one alone may use more");
        let mut second = Charge::new(&bodies);
        assert_eq!(second.grow(1).unwrap_err().kind(), ErrorKind::Unavailable);
        drop((first, second));
        let (mut third, mut fourth) = (Charge::new(&bodies), Charge::new(&bodies));
        assert!(third.grow(all / 2).is_ok() && fourth.grow(all / 2).is_ok() && third.grow(1).is_err());
    }

    #[test]
    fn many_small_values_cost_more_than_they_are_long() {
        let numbers = format!("{{\"prompt\":[{}0]}}", "0,".repeat(1000));
        assert!(parsed_bytes(numbers.as_bytes()) > 1000 * size_of::<Value>());
        assert!(parsed_bytes("a word ".repeat(1000).as_bytes()) == 7000);
    }
}
