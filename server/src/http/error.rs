//! Errors as clients see them.

use crate::error::Error;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The seconds after which a client should try again when the queue is full.
const RETRY_AFTER: &str = "1";

/// The kind of an error: its status, and its name in every interface.
///
/// # Example
/// ```
/// use backstitch_server::http::ErrorKind;
///
/// assert_eq!(ErrorKind::Invalid.status(), 400);
/// assert_eq!(ErrorKind::Unavailable.name(), "unavailable_error");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense.
    Invalid,
    /// The prompt does not fit into the context.
    TooLong,
    /// The API key is missing or wrong.
    Authentication,
    /// The key may not do this.
    Permission,
    /// There is no such thing.
    NotFound,
    /// The body is larger than allowed.
    TooLarge,
    /// The method does not fit the path.
    Method,
    /// The request took longer than allowed.
    Timeout,
    /// The server was started without this, or the model cannot do it.
    NotSupported,
    /// The server is busy or stopping.
    Unavailable,
    /// Something failed here.
    Server,
}

impl ErrorKind {
    /// Return the status code.
    pub fn status(self) -> u16 {
        match self {
            ErrorKind::Invalid | ErrorKind::TooLong => 400,
            ErrorKind::Authentication => 401,
            ErrorKind::Permission => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::Method => 405,
            ErrorKind::Timeout => 408,
            ErrorKind::TooLarge => 413,
            ErrorKind::NotSupported => 501,
            ErrorKind::Unavailable => 503,
            ErrorKind::Server => 500,
        }
    }

    /// Return the `type` of llama-server's errors.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Invalid | ErrorKind::TooLarge | ErrorKind::Method => "invalid_request_error",
            ErrorKind::TooLong => "exceed_context_size_error",
            ErrorKind::Authentication => "authentication_error",
            ErrorKind::Permission => "permission_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::NotSupported => "not_supported_error",
            ErrorKind::Unavailable => "unavailable_error",
            ErrorKind::Timeout => "timeout_error",
            ErrorKind::Server => "server_error",
        }
    }

    /// Return the `type` of Anthropic's errors.
    pub fn anthropic_name(self) -> &'static str {
        match self {
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Unavailable => "overloaded_error",
            ErrorKind::Authentication => "authentication_error",
            ErrorKind::Permission => "permission_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::Timeout => "timeout_error",
            ErrorKind::Server => "api_error",
            _ => "invalid_request_error",
        }
    }
}

/// An error for a client. As a response it has OpenAI's shape with llama-server's codes and types;
/// under `/v1/messages` the server turns it into Anthropic's shape.
///
/// # Example
/// ```
/// use backstitch_server::http::ApiError;
///
/// let error = ApiError::field("top_k", "a whole number");
/// assert_eq!(error.message(), "\"top_k\" must be a whole number");
/// assert_eq!(error.body()["error"]["code"], 400);
/// assert_eq!(error.anthropic_body()["error"]["type"], "invalid_request_error");
/// ```
#[derive(Clone, Debug)]
pub struct ApiError {
    kind: ErrorKind,
    message: String,
    /// The name of the field that is wrong.
    param: Option<String>,
    /// The tokens of the prompt and of the context, if the prompt is too long.
    sizes: Option<(usize, usize)>,
}

impl ApiError {
    /// Make an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        ApiError { kind, message: message.into(), param: None, sizes: None }
    }

    /// Make an error about a request that makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Make an error about a field of the wrong type or value; `wanted` says what it must be.
    pub fn field(name: &str, wanted: &str) -> Self {
        let mut error = Self::invalid(format!("\"{name}\" must be {wanted}"));
        error.param = Some(name.to_owned());
        error
    }

    /// Return the error with the field that it is about.
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.param = Some(name.to_owned());
        self
    }

    /// Make an error about a missing field.
    pub fn missing(name: &str) -> Self {
        let mut error = Self::invalid(format!("\"{name}\" must be provided"));
        error.param = Some(name.to_owned());
        error
    }

    /// Make an error about something that this server was started without, or cannot do.
    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotSupported, message)
    }

    /// Return the error with the name that the client gave to the field `name`, or to that of which
    /// it is an item: some interfaces have other names, or put a field into another one.
    pub(crate) fn renamed(mut self, name: &str, given: &str) -> Self {
        let param = self.param.take();
        let item = param.as_ref().and_then(|param| param.strip_prefix(name));
        self.param = match (&param, item.filter(|item| item.is_empty() || item.starts_with('['))) {
            (Some(param), Some(item)) => {
                let given = format!("{given}{item}");
                self.message = self.message.replace(&format!("\"{param}\""), &format!("\"{given}\""));
                Some(given)
            }
            _ => param,
        };
        self
    }

    /// Return the error with another message, and with `kind` if it was an error of the server.
    pub(crate) fn with_message(mut self, message: String, kind: ErrorKind) -> Self {
        self.message = message;
        if self.kind == ErrorKind::Server {
            self.kind = kind;
        }
        self
    }

    /// Return the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Return the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Return the body in OpenAI's shape, with llama-server's codes and types.
    pub fn body(&self) -> Value {
        let mut error = json!({
            "code": self.kind.status(),
            "message": self.message,
            "type": self.kind.name(),
        });
        if let Some(param) = &self.param {
            error["param"] = json!(param);
        }
        self.tell_sizes(&mut error);
        json!({ "error": error })
    }

    /// Add the tokens of the prompt and of the context, if the prompt is too long.
    fn tell_sizes(&self, error: &mut Value) {
        if let Some((n_prompt_tokens, n_ctx)) = self.sizes {
            error["n_prompt_tokens"] = json!(n_prompt_tokens);
            error["n_ctx"] = json!(n_ctx);
        }
    }

    /// Return the body in Anthropic's shape.
    pub fn anthropic_body(&self) -> Value {
        // The service's clients shorten a conversation when they read these words.
        let message = self.sizes.map(|(n, most)| format!("prompt is too long: {n} tokens > {most} maximum"));
        let message = message.as_ref().unwrap_or(&self.message);
        let mut error = json!({ "type": self.kind.anthropic_name(), "message": message });
        self.tell_sizes(&mut error);
        json!({ "type": "error", "error": error })
    }

    /// Return the response with a body in Anthropic's shape.
    pub(super) fn into_anthropic(self) -> Response {
        let body = self.anthropic_body();
        self.with_body(&body)
    }

    fn with_body(self, body: &Value) -> Response {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_busy = self.kind == ErrorKind::Unavailable;
        let mut response = (status, axum::Json(body)).into_response();
        if is_busy {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        // The guard finds it there, to log it or to change its shape.
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        self.with_body(&body)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::EmptyPrompt
            | Error::Slot { .. }
            | Error::NoToken
            | Error::Grammar(_)
            | Error::NoFile { .. } => ErrorKind::Invalid,
            Error::PromptTooLong { n_prompt_tokens, n_ctx } => {
                return Self::too_long(*n_prompt_tokens, *n_ctx);
            }
            Error::File { kind: std::io::ErrorKind::NotFound, .. } => ErrorKind::Invalid,
            Error::Busy { .. } | Error::BusySlot { .. } | Error::Stopped => ErrorKind::Unavailable,
            Error::InputTooLong { .. } => ErrorKind::Invalid,
            Error::InputBeyondContext { n_prompt_tokens, n_ctx } => {
                return Self::too_long(*n_prompt_tokens, *n_ctx)
                    .with_message(error.to_string(), ErrorKind::TooLong);
            }
            Error::File { .. } | Error::Engine(_) => ErrorKind::Server,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<PathRejection> for ApiError {
    fn from(error: PathRejection) -> Self {
        Self::invalid(error.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        Self::invalid(error.body_text())
    }
}

impl ApiError {
    /// Make an error about a prompt of more than `at_least` tokens, of which the rest was not
    /// counted, that does not fit into `n_ctx`.
    pub fn far_too_long(at_least: usize, n_ctx: usize) -> Self {
        let message = format!(
            "request (more than {at_least} tokens) exceeds the available context size ({n_ctx} tokens), try \
             sending less"
        );
        let mut error = Self::new(ErrorKind::TooLong, message);
        error.sizes = Some((at_least, n_ctx));
        error
    }

    /// Make an error about a prompt of `n_prompt_tokens` that does not fit into `n_ctx`.
    pub fn too_long(n_prompt_tokens: usize, n_ctx: usize) -> Self {
        let message = format!(
            "request ({n_prompt_tokens} tokens) exceeds the available context size ({n_ctx} tokens), \
             try increasing it"
        );
        let mut error = Self::new(ErrorKind::TooLong, message);
        error.sizes = Some((n_prompt_tokens, n_ctx));
        error
    }
}
