//! JSON bodies.

use super::app::Host;
use super::error::{ApiError, ErrorKind};
use crate::params::ServerParams;
use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The JSON object of a request. The type that the client states for it does not matter, as with
/// llama-server; a missing body is an empty object.
#[derive(Clone, Debug, Default)]
pub struct Body(pub Map<String, Value>);

impl FromRequest<Arc<Host>> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, host: &Arc<Host>) -> Result<Self, ApiError> {
        parse(&bytes(request, host.params(), host.params().max_body_bytes).await?)
    }
}

/// Return the bytes of a body, at most `limit` of them, which must arrive in time.
///
/// # Errors
/// [`ErrorKind::Timeout`], [`ErrorKind::TooLarge`], and [`ErrorKind::Invalid`] for a body that
/// breaks off.
pub(crate) async fn bytes(request: Request, params: &ServerParams, limit: usize) -> Result<Bytes, ApiError> {
    tokio::time::timeout(params.timeout, to_bytes(request.into_body(), limit))
        .await
        .map_err(|_| ApiError::new(ErrorKind::Timeout, "the body took too long to arrive"))?
        .map_err(|error| refused(&error, limit))
}

/// Say why a body could not be read.
fn refused(error: &axum::Error, limit: usize) -> ApiError {
    let mut source: Option<&(dyn core::error::Error + 'static)> = Some(error);
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
fn parse(bytes: &Bytes) -> Result<Body, ApiError> {
    if bytes.is_empty() {
        return Ok(Body::default());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(Body(fields)),
        Ok(_) => Err(ApiError::invalid("the body must be a JSON object")),
        Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_objects() {
        assert!(parse(&Bytes::from_static(b"")).is_ok_and(|body| body.0.is_empty()));
        assert!(parse(&Bytes::from_static(b"{\"a\": 1}")).is_ok_and(|body| body.0["a"] == 1));
        for wrong in ["[1]", "{\"a\": }", "\"text\"", "{\"a\": 1} x", "{\"a\": \"\u{1}\"}"] {
            let error = parse(&Bytes::copy_from_slice(wrong.as_bytes())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = "[".repeat(100_000);
        assert!(parse(&Bytes::from(deep)).is_err());
    }
}
