//! The events of the requests that belong to one answer.

use super::app::App;
use super::error::{ApiError, ErrorKind};
use crate::engine::{Ended, Event, Generate, Reuse, Timings};
use crate::error::Error;
use backstitch_models::Token;
use backstitch_models::session::{Finish, TokenLogprobs};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::Sleep;

/// The events of one or more requests, as they come. Dropping them cancels the requests; what was
/// evaluated until then stays held.
#[derive(Debug)]
pub struct Events {
    /// `None` for requests that have ended.
    receivers: Vec<Option<Receiver<Event>>>,
    /// The request to look at first, so that none starves the others.
    first: usize,
    /// Ends all requests.
    deadline: Pin<Box<Sleep>>,
    /// Keeps the model from sleeping.
    _app: Arc<App>,
}

impl Events {
    /// Hand requests to the engine. Behind a prompt without tokens, which a vocabulary without a
    /// token for the beginning makes of an empty text, comes an empty answer, as with llama-server.
    ///
    /// # Errors
    /// Those of [`Engine::generate`](crate::engine::Engine::generate); no request runs then.
    pub fn start(app: &Arc<App>, requests: Vec<Generate>) -> Result<Self, ApiError> {
        let receivers = requests.into_iter().map(|request| match request.prompt.is_empty() {
            true => Ok(Some(empty())),
            false => app.engine().generate(request).map(Some),
        });
        let receivers = receivers.collect::<Result<Vec<_>, Error>>()?;
        let deadline = Box::pin(tokio::time::sleep(app.params().timeout));
        Ok(Events { receivers, first: 0, deadline, _app: app.clone() })
    }

    /// Return the number of requests.
    pub fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Return true if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// Poll for the next event, with the index of its request; none when all requests have ended.
    ///
    /// An error ends its request, one about time all of them.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Event, ApiError>)>> {
        let n = self.receivers.len();
        // Also if events always wait, because the client reads more slowly than they come.
        if self.receivers.iter().any(Option::is_some) && self.deadline.as_mut().poll(cx).is_ready() {
            let late = self.receivers.iter().position(Option::is_some).unwrap_or(0);
            self.receivers.fill_with(|| None);
            let error = ApiError::new(ErrorKind::Timeout, "the request took longer than the server allows");
            return Poll::Ready(Some((late, Err(error))));
        }
        let mut is_any_left = false;
        for index in (self.first..n).chain(0..self.first.min(n)) {
            let Some(slot) = self.receivers.get_mut(index) else { continue };
            let Some(receiver) = slot else { continue };
            is_any_left = true;
            let Poll::Ready(event) = receiver.poll_recv(cx) else { continue };
            let event = match event {
                Some(Event::Failed(error)) => Err(error.into()),
                None => Err(Error::Stopped.into()),
                Some(event) => Ok(event),
            };
            if !matches!(event, Ok(ref event) if !matches!(event, Event::Ended(_))) {
                *slot = None;
            }
            self.first = index + 1;
            return Poll::Ready(Some((index, event)));
        }
        if is_any_left { Poll::Pending } else { Poll::Ready(None) }
    }

    /// Return the next event, as [`Events::poll_next`].
    pub async fn next(&mut self) -> Option<(usize, Result<Event, ApiError>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Wait for the end of all requests, and return what came of each.
    ///
    /// # Errors
    /// That of the first request that failed; the others are cancelled.
    pub async fn outcomes(mut self) -> Result<Vec<Outcome>, ApiError> {
        let mut outcomes: Vec<Outcome> = self.receivers.iter().map(|_| Outcome::default()).collect();
        while let Some((index, event)) = self.next().await {
            let event = event?;
            outcomes.get_mut(index).into_iter().for_each(|outcome| outcome.take(&event));
        }
        Ok(outcomes)
    }
}

/// Return the events of a request that has nothing to evaluate.
fn empty() -> Receiver<Event> {
    let (sender, receiver) = channel(1);
    let (finish, timings) = (Finish::Limit, Timings::default());
    let ended = Ended { finish, timings, n_prompt: 0, n_held: 0, is_shifted: false };
    // There is a place for it.
    let _ = sender.try_send(Event::Ended(ended));
    receiver
}

/// The outcome of a request.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The slot in which it was evaluated.
    pub slot: usize,
    /// The part of the prompt that was reused.
    pub reuse: Option<Reuse>,
    /// The text.
    pub text: String,
    /// The generated tokens.
    pub tokens: Vec<Token>,
    /// Log-probabilities of the tokens, if they were asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Scores of the prompt, if they were asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// The end; `None` until it came.
    pub ended: Option<Ended>,
}

impl Outcome {
    /// Add what an event tells.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Began { slot, reuse } => (self.slot, self.reuse) = (*slot, Some(*reuse)),
            Event::PromptLogprobs(scores) => self.prompt_logprobs.extend_from_slice(scores),
            Event::Chunk(chunk) => {
                self.text.push_str(&chunk.text);
                self.tokens.extend_from_slice(&chunk.tokens);
                self.logprobs.extend_from_slice(&chunk.logprobs);
            }
            Event::Ended(ended) => self.ended = Some(ended.clone()),
            Event::Progress { .. } | Event::Failed(_) => {}
        }
    }
}
