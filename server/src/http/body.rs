//! JSON bodies, and the memory that all of them use.

use super::app::Host;
use super::client::{Client, Owner};
use super::error::{ApiError, ErrorKind};
use super::json::{JsonError, read_object};
use super::work::{Class, blocking};
use crate::params::ServerParams;
use axum::extract::{FromRequest, Request};
use backstitch_models::Cancel;
use core::ops::{Deref, DerefMut};
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most bytes of memory for all bodies together, before and after they are parsed. A body that
/// is alone may use more.
const MOST_MEMORY: u64 = 1 << 30;
/// The most of that for the bodies of one client.
const MOST_OF_OWNER: u64 = MOST_MEMORY / 2;
/// Further memory for small bodies alone, so that large ones do not keep them out.
const RESERVE: u64 = 64 << 20;
/// The most of that for the bodies of one client.
const RESERVE_OF_OWNER: u64 = RESERVE / 8;
/// The bytes that a long body has to bring each second.
const LEAST_BYTES_PER_SECOND: u32 = 64 << 10;
/// The length in bytes from which reading a body is long work.
const LONG: usize = 64 << 10;
/// The length in bytes from which a body is read beside the thread that serves all clients. Reading
/// a shorter one takes some tenths of a millisecond, no more than the way to another thread.
const BESIDE: usize = 8 << 10;
/// The most memory that the values of a body may take, in lengths of its text. Reading them as
/// messages, writing them with a template and making tokens of them takes about as much again.
const MOST_TIMES: usize = 4;
/// The memory that the values of any body may take.
const ANY_BODY: usize = 16 << 20;

/// The memory that bodies use, by client.
#[derive(Debug, Default)]
pub(crate) struct Bodies(Mutex<HashMap<Owner, u64>>);

/// The memory of one body, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bodies: Arc<Bodies>,
    owner: Owner,
    bytes: u64,
}

impl Charge {
    fn new(bodies: &Arc<Bodies>, owner: Owner) -> Self {
        Charge { bodies: bodies.clone(), owner, bytes: 0 }
    }

    /// Take more memory. `is_small` says that all of the body is small.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all bodies together, or those of this client, use too much.
    fn grow(&mut self, bytes: usize, is_small: bool) -> Result<(), ApiError> {
        let mut used = self.bodies.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = used.values().sum::<u64>().saturating_add(bytes as u64);
        let is_alone = all <= self.bytes.saturating_add(bytes as u64);
        let own = used.entry(self.owner).or_default();
        *own = own.saturating_add(bytes as u64);
        self.bytes += bytes as u64;
        let is_free = match is_small {
            true => all <= MOST_MEMORY + RESERVE && *own <= MOST_OF_OWNER + RESERVE_OF_OWNER,
            false => all <= MOST_MEMORY && *own <= MOST_OF_OWNER,
        };
        match is_free || is_alone {
            true => Ok(()),
            false => Err(ApiError::new(ErrorKind::Unavailable, "too many large requests at a time")),
        }
    }

    /// Give memory back until `bytes` are left.
    fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes as u64);
        let mut used = self.bodies.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = used.get_mut(&self.owner) {
            *own = own.saturating_sub(surplus);
            if *own == 0 {
                used.remove(&self.owner);
            }
        }
        self.bytes -= surplus;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The JSON object of a request. The type that the client states for it does not matter, as with
/// llama-server; a missing body is an empty object. Its memory counts as used until it is dropped:
/// handlers do so before they wait for the engine.
#[derive(Debug)]
pub struct Body {
    fields: Map<String, Value>,
    class: Class,
    #[expect(dead_code, reason = "gives the memory back when it is dropped")]
    charge: Charge,
}

impl Body {
    /// Read the fields of a body, whose bytes are paid.
    fn read(bytes: &[u8], mut charge: Charge, cancel: &Cancel) -> Result<Self, ApiError> {
        let (class, most) = (class_of(bytes), most_bytes(bytes));
        charge.grow(most, class == Class::Short)?;
        let (fields, n_bytes) = parse(bytes, most, cancel)?;
        charge.shrink_to(n_bytes);
        Ok(Body { fields, class, charge })
    }

    /// Return the class of work that reading the fields is, as far as their length tells.
    pub(crate) fn class(&self) -> Class {
        self.class
    }
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
        let client = Client::of_request(request.extensions(), request.headers(), host)?;
        let (bytes, charge) = bytes(request, host, host.params().max_body_bytes).await?;
        match bytes.len() < BESIDE {
            true => Body::read(&bytes, charge, &Cancel::new()),
            false => {
                let class = class_of(&bytes);
                // The memory is used until the work has ended, also if the client goes away.
                blocking(&client, class, move |client| Body::read(&bytes, charge, client.cancel())).await
            }
        }
    }
}

/// Return the class of the work that reading a body is.
fn class_of(bytes: &[u8]) -> Class {
    if bytes.len() < LONG { Class::Short } else { Class::Long }
}

/// Return the most memory that the values of a body can and may take. One value stands before each
/// comma, colon and closing bracket.
fn most_bytes(bytes: &[u8]) -> usize {
    let n_values = bytes.iter().filter(|byte| matches!(byte, b',' | b':' | b']' | b'}')).count();
    let most = bytes.len() + n_values.saturating_mul(4 * size_of::<Value>()) + 4096;
    most.min(bytes.len().saturating_mul(MOST_TIMES).max(ANY_BODY))
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
    let client = Client::of_request(request.extensions(), request.headers(), host)?;
    let charge = Charge::new(host.bodies(), client.owner());
    collect(request.into_body(), charge, limit, Pace::new(host.params())).await
}

/// The pace at which a body has to arrive.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The moment until which the next piece has to come.
    until: Instant,
    /// The moment until which all of the body has to come.
    end: Instant,
    /// The most time between two pieces.
    between: Duration,
    /// The bytes that a long body has to bring each second.
    bytes_per_second: u32,
}

impl Pace {
    fn new(params: &ServerParams) -> Self {
        Pace::from(Instant::now(), params.body_timeout, params.timeout, LEAST_BYTES_PER_SECOND)
    }

    fn from(begun: Instant, between: Duration, most: Duration, bytes_per_second: u32) -> Self {
        let end = begun + most;
        Pace { until: (begun + between).min(end), end, between, bytes_per_second }
    }

    /// Give the next piece time for the bytes that have come at `now`. Bytes that came fast do not
    /// excuse a long wait later, and a body that is too slow has to end, also if it never rests.
    fn advance(&mut self, now: Instant, n_bytes: usize) {
        let earned = Duration::from_secs(n_bytes as u64) / self.bytes_per_second;
        self.until = (self.until + earned).min(now + self.between).min(self.end);
    }
}

async fn collect(
    body: axum::body::Body,
    mut charge: Charge,
    limit: usize,
    mut pace: Pace,
) -> Result<(Vec<u8>, Charge), ApiError> {
    let late = |_| ApiError::new(ErrorKind::Timeout, "the body took too long to arrive");
    let (mut bytes, mut body) = (Vec::new(), Limited::new(body, limit));
    loop {
        let Some(frame) = timeout_at(pace.until, body.frame()).await.map_err(late)? else { break };
        let frame = frame.map_err(|error| refused(error.as_ref(), limit))?;
        if let Some(data) = frame.data_ref() {
            charge.grow(data.len(), bytes.len() + data.len() < LONG)?;
            bytes.extend_from_slice(data);
            pace.advance(Instant::now(), data.len());
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

/// Parse a body whose values may take `most` bytes. Return its fields, and the bytes that they
/// take.
fn parse(bytes: &[u8], most: usize, cancel: &Cancel) -> Result<(Map<String, Value>, usize), ApiError> {
    if bytes.is_empty() {
        return Ok((Map::new(), 0));
    }
    read_object(bytes, most, cancel).map_err(|error| match error {
        JsonError::Cancelled => ApiError::new(ErrorKind::Unavailable, "reading the body was given up"),
        JsonError::NoObject => ApiError::invalid("the body must be a JSON object"),
        JsonError::Syntax(error) => ApiError::invalid(format!("the body is not JSON: {error}")),
        JsonError::Fields => ApiError::invalid("the body has more than 1024 fields"),
        JsonError::Memory { field } => {
            let wanted = format!(
                "smaller: with so many values, the body of {} bytes would take more than {most} bytes of \
                 memory",
                bytes.len()
            );
            ApiError::field(&field, &wanted)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Tenant;
    use crate::http::client::Address;

    fn owners() -> [Owner; 2] {
        [Owner::Key(Tenant::of(&["one"])), Owner::Address(Some(Address::new([127, 0, 0, 1].into())))]
    }

    #[test]
    fn bodies_are_objects() {
        let parse = |text: &str| parse(text.as_bytes(), 1 << 20, &Cancel::new()).map(|(fields, _)| fields);
        assert!(parse("").is_ok_and(|fields| fields.is_empty()));
        assert!(parse("{\"a\": 1}").is_ok_and(|fields| fields["a"] == 1));
        for wrong in ["[1]", "{\"a\": }", "\"text\"", "{\"a\": 1} x", "{\"a\": \"\u{1}\"}"] {
            assert_eq!(parse(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn a_body_that_is_refused_names_the_field_at_fault() {
        let text = format!("{{\"tools\": [{}0]}}", "[0],".repeat(1 << 20));
        let error = parse(text.as_bytes(), most_bytes(text.as_bytes()), &Cancel::new()).unwrap_err();
        assert!(error.message().starts_with("\"tools\" must be smaller"), "{}", error.message());
    }

    #[test]
    fn bodies_share_a_budget_of_memory() {
        let (bodies, [one, two]) = (Arc::new(Bodies::default()), owners());
        let mut first = Charge::new(&bodies, one);
        let all = MOST_MEMORY as usize;
        assert!(first.grow(1, false).is_ok() && first.grow(all, false).is_ok(), "one alone may use more");
        let mut second = Charge::new(&bodies, two);
        assert_eq!(second.grow(1, false).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(second.grow(1, true).is_ok(), "small bodies have memory of their own");
        drop((first, second));
        assert!(bodies.0.lock().unwrap().is_empty());
        let (mut third, mut fourth) = (Charge::new(&bodies, one), Charge::new(&bodies, two));
        assert!(third.grow(all / 2, false).is_ok() && fourth.grow(all / 2, false).is_ok());
        assert!(third.grow(1, false).is_err());
    }

    #[test]
    fn one_client_leaves_memory_for_others() {
        let (bodies, [one, two]) = (Arc::new(Bodies::default()), owners());
        let part = MOST_MEMORY as usize / 4;
        let mut own: Vec<_> = (0..3).map(|_| Charge::new(&bodies, one)).collect();
        assert!(own[0].grow(part, false).is_ok() && own[1].grow(part, false).is_ok());
        assert!(own[2].grow(part, false).is_err());
        own.pop();
        assert!(Charge::new(&bodies, two).grow(2 * part, false).is_ok());
        let mut small = Charge::new(&bodies, one);
        assert!(small.grow(RESERVE_OF_OWNER as usize, true).is_ok(), "its small ones have a reserve too");
        assert!(small.grow(1, true).is_err(), "which others need as well");
        drop(small);
        own[0].shrink_to(0);
        assert!(Charge::new(&bodies, one).grow(part, false).is_ok());
    }

    #[test]
    fn bodies_arrive_at_a_pace() {
        let [between, most] = [10, 1500].map(Duration::from_millis);
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        let at = |pieces: &[(u64, usize)]| {
            let mut pace = Pace::from(begun, between, most, 1000);
            pieces.iter().for_each(|&(millis, n_bytes)| pace.advance(after(millis), n_bytes));
            pace.until
        };
        assert_eq!(at(&[]), after(10));
        assert_eq!(at(&[(9, 0)]), after(10), "no bytes give no more time");
        assert_eq!(at(&[(9, 5)]), after(15), "few bytes give little");
        assert_eq!(at(&[(9, 1000)]), after(19), "many bytes do not excuse a pause");
        assert_eq!(at(&[(1, 1000), (10, 1)]), after(12), "nor do they later");
        assert_eq!(at(&[(1495, 9000)]), after(1500), "a request has to end");
    }

    #[test]
    fn many_small_values_cost_more_than_they_are_long() {
        let numbers = format!("{{\"prompt\":[{}0]}}", "0,".repeat(1000));
        assert!(most_bytes(numbers.as_bytes()) > 1000 * size_of::<Value>());
        let words = "a word ".repeat(1000);
        assert!(most_bytes(words.as_bytes()) < 2 * words.len());
    }
}
