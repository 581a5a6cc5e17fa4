//! Answers that come in pieces: server-sent events.

use super::error::ApiError;
use super::events::Events;
use crate::engine::Event;
use axum::body::{Body, Bytes};
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use http_body::Frame;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A writer of the events of one interface: it turns what the engine tells into frames.
pub trait Writer: Send + Unpin + 'static {
    /// Write what `event` of the request `index` tells.
    fn event(&mut self, index: usize, event: Event, frames: &mut Frames);

    /// Write what comes after the last event of all requests.
    fn end(&mut self, frames: &mut Frames);

    /// Write an error, after which nothing follows.
    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.body());
    }
}

/// Frames of a stream that are about to be sent.
///
/// # Example
/// ```
/// use backstitch_server::http::Frames;
///
/// let mut frames = Frames::default();
/// frames.data(&serde_json::json!({"n": 1}));
/// frames.named("ping", &serde_json::json!({}));
/// frames.done();
/// assert_eq!(frames.as_str(), "data: {\"n\":1}\n\nevent: ping\ndata: {}\n\ndata: [DONE]\n\n");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Frames(String);

impl Frames {
    /// Add a frame of data.
    pub fn data(&mut self, value: &Value) {
        // JSON has no line breaks outside of strings, and they are escaped there.
        self.0 += &format!("data: {value}\n\n");
    }

    /// Add a frame with a name, as Anthropic's interface and OpenAI's responses have them.
    pub fn named(&mut self, name: &str, value: &Value) {
        self.0 += &format!("event: {name}\ndata: {value}\n\n");
    }

    /// Add the frame that ends OpenAI's streams.
    pub fn done(&mut self) {
        self.0 += "data: [DONE]\n\n";
    }

    /// Return the bytes to send.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Answer with the events of requests as server-sent events.
///
/// The answer begins with the first event, so that a request that fails at once has the status of
/// its error. While nothing happens a comment is sent from time to time. The requests are cancelled
/// when the client goes away; they pause while it reads no further.
///
/// # Errors
/// That of a request that fails at once.
pub async fn sse(mut events: Events, mut writer: impl Writer, ping: Duration) -> Result<Response, ApiError> {
    let mut frames = Frames::default();
    if let Ok(Some((index, event))) = tokio::time::timeout(ping, events.next()).await {
        writer.event(index, event?, &mut frames);
    }
    let body = Stream { events, writer, frames, ping, timer: Box::pin(sleep(ping)), is_done: false };
    // nginx would otherwise collect events before it passes them on.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache"), (unbuffered, "no")];
    Ok((headers, Body::new(body)).into_response())
}

/// The body of a stream.
struct Stream<W> {
    events: Events,
    writer: W,
    frames: Frames,
    ping: Duration,
    timer: Pin<Box<Sleep>>,
    is_done: bool,
}

impl<W: Writer> Stream<W> {
    /// Write the events that have come, up to those that fill a frame.
    fn write(&mut self, cx: &mut Context<'_>) {
        while !self.is_done && self.frames.0.len() < FRAME_BYTES {
            match self.events.poll_next(cx) {
                Poll::Ready(Some((index, Ok(event)))) => {
                    self.writer.event(index, event, &mut self.frames);
                }
                Poll::Ready(Some((_, Err(error)))) => {
                    self.writer.failed(&error, &mut self.frames);
                    self.is_done = true;
                }
                Poll::Ready(None) => {
                    self.writer.end(&mut self.frames);
                    self.is_done = true;
                }
                Poll::Pending => break,
            }
        }
    }
}

/// The bytes at which a frame is sent before further events are written.
const FRAME_BYTES: usize = 16 << 10;

impl<W: Writer> http_body::Body for Stream<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        this.write(cx);
        if this.frames.0.is_empty() {
            if this.is_done {
                return Poll::Ready(None);
            }
            if this.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.frames.0 += ":\n\n";
        }
        this.timer.as_mut().reset(Instant::now() + this.ping);
        // The timer has to wake this task also if no event comes after this frame: it is polled
        // again before the next pause, because hyper polls the body until it is pending.
        let bytes = Bytes::from(core::mem::take(&mut this.frames.0));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}
