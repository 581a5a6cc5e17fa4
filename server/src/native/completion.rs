//! `/completion`: text behind a prompt.

use crate::engine::{Chunk, Ended, Event, Generate, Reuse, Timings};
use crate::http::{
    ApiError, App, Body, Client, Events, Frames, Outcome, Ready, Writer, account_json, blocking, json_list,
    millis, n_values, probabilities_json, sse, timings_json, write_json,
};
use crate::params::{Fields, read_generate, read_prompts};
use axum::response::Response;
use backstitch_models::Token;
use backstitch_models::session::Finish;
use backstitch_models::vocab::WriteSpecial;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Complete one or more prompts.
pub(super) async fn complete(Ready(app): Ready, client: Client, body: Body) -> Result<Response, ApiError> {
    let read = |app: &App, client: &Client, fields: Fields<'_>| {
        read_prompts(app, client, fields, "prompt", app.model().prompt_special())
    };
    answer(app, client, body, read).await
}

/// Generate behind the prompts that `read` finds in the fields, as the fields say.
pub(super) async fn answer(
    app: Arc<App>,
    client: Client,
    body: Body,
    read: impl FnOnce(&App, &Client, Fields<'_>) -> Result<Vec<Vec<Token>>, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (shared, class) = (app.clone(), body.class());
    let work = blocking(&client, class, move |client| {
        let fields = Fields::new(&body);
        Work::read(&shared, client, fields, read(&shared, client, fields)?)
    });
    let Work { requests, answers, is_stream, ping } = work.await?;
    let events = Events::start(&app, requests)?;
    if is_stream {
        return sse(events, Parts(answers), ping).await;
    }
    let outcomes = events.outcomes().await?;
    let n_values = n_values(&outcomes);
    let answers: Vec<_> = answers.into_iter().zip(outcomes).collect();
    let write = move || {
        let is_one = answers.len() == 1;
        // Each answer becomes text before the next one is made: together they can be large.
        let mut bodies = answers.into_iter().map(|(answer, outcome)| answer.whole(outcome).to_string());
        if is_one { bodies.next().unwrap_or_default() } else { json_list(bodies) }
    };
    write_json(&client, n_values, write).await
}

/// The requests of a body for the engine, and their answers, which have not begun.
struct Work {
    requests: Vec<Generate>,
    answers: Vec<Answer>,
    is_stream: bool,
    ping: Duration,
}

impl Work {
    /// Read what to do for `prompts`.
    fn read(
        app: &Arc<App>,
        client: &Client,
        fields: Fields<'_>,
        prompts: Vec<Vec<Token>>,
    ) -> Result<Self, ApiError> {
        if app.params().embedding || app.params().reranking {
            return Err(ApiError::not_supported("this server was started for embeddings only"));
        }
        let response_fields = fields.strings("response_fields")?.unwrap_or_default();
        let return_tokens = fields.bool("return_tokens")?.unwrap_or(false);
        let ping = ping(app, fields)?;
        let n_prompts = prompts.len();
        let n_tokens = prompts.iter().map(Vec::len).sum();
        let mut prompts = prompts.into_iter();
        let mut reading = read_generate(fields, app, client, prompts.next().unwrap_or_default())?;
        reading.check_answers(app, n_prompts)?;
        reading.bound_listed(app, fields, n_prompts, n_tokens)?;
        let is_stream = reading.stream;
        let shape = Arc::new(Shape {
            app: app.clone(),
            settings: reading.settings(app),
            return_tokens: return_tokens || is_stream,
            timings_per_token: reading.timings_per_token,
            is_progress: reading.return_progress,
            response_fields: response_fields.iter().map(|&field| field.to_owned()).collect(),
            ignored: reading.ignored.clone(),
        });
        let requests = reading.requests(app, prompts.collect());
        let answers = requests.iter().enumerate();
        let answers = answers.map(|(index, request)| Answer::new(shape.clone(), index, request)).collect();
        Ok(Work { requests, answers, is_stream, ping })
    }
}

/// Read the time between comments in a silent stream; -1 is never.
fn ping(app: &App, fields: Fields<'_>) -> Result<Duration, ApiError> {
    Ok(match fields.i64("sse_ping_interval")? {
        None => app.params().ping,
        Some(seconds) => match u64::try_from(seconds) {
            Ok(seconds) => Duration::from_secs(seconds.clamp(1, 3600)),
            Err(_) => app.params().timeout,
        },
    })
}

/// The parts that all answers have in common.
struct Shape {
    app: Arc<App>,
    /// Without the number of tokens to keep, which can differ.
    settings: Value,
    return_tokens: bool,
    timings_per_token: bool,
    is_progress: bool,
    /// The fields to send; all if there are none.
    response_fields: Vec<String>,
    /// The parts of the request that do nothing.
    ignored: Vec<String>,
}

/// An answer under way.
struct Answer {
    shape: Arc<Shape>,
    index: usize,
    prompt: Vec<Token>,
    stops: Arc<[String]>,
    /// Probabilities are those after the samplers.
    is_sampled: bool,
    n_keep: usize,
    slot: usize,
    reuse: Option<Reuse>,
    n_generated: usize,
    has_new_line: bool,
    /// The time from the beginning to the end of the prompt, as far as it is known.
    prompt_time: Duration,
    first_token: Option<std::time::Instant>,
}

impl Answer {
    fn new(shape: Arc<Shape>, index: usize, request: &Generate) -> Self {
        Answer {
            shape,
            index,
            prompt: request.prompt.clone(),
            stops: request.stops.clone(),
            is_sampled: request.probs_after_sampling,
            n_keep: request.when_full.n_keep(),
            slot: 0,
            reuse: None,
            n_generated: 0,
            has_new_line: false,
            prompt_time: Duration::ZERO,
            first_token: None,
        }
    }

    /// Return the answer in one piece.
    fn whole(mut self, outcome: Outcome) -> Value {
        (self.slot, self.reuse) = (outcome.slot, outcome.reuse);
        self.has_new_line = outcome.text.contains('\n');
        let Some(ended) = &outcome.ended else { return Value::Null };
        let mut body = self.last(ended);
        body["content"] = outcome.text.into();
        if self.shape.return_tokens {
            body["tokens"] = outcome.tokens.iter().map(|token| token.0).collect();
        }
        if !outcome.logprobs.is_empty() {
            body["completion_probabilities"] =
                probabilities_json(self.shape.app.vocab(), &outcome.logprobs, self.is_sampled);
        }
        select(&self.shape.response_fields, body)
    }

    /// Return what comes last, without the text.
    fn last(&self, ended: &Ended) -> Value {
        let (stop_type, word) = match ended.finish {
            Finish::End(_) => ("eos", ""),
            Finish::Stop { index } => ("word", self.stops.get(index).map_or("", String::as_str)),
            _ => ("limit", ""),
        };
        let mut settings = self.shape.settings.clone();
        settings["n_keep"] = self.n_keep.into();
        let prompt = self.shape.app.vocab().detokenize(&self.prompt, WriteSpecial::Yes);
        let mut body = json!({
            "index": self.index,
            "content": "",
            "tokens": [],
            "id_slot": self.slot,
            "stop": true,
            "model": self.shape.app.alias(),
            "tokens_predicted": ended.timings.n_generated,
            "tokens_evaluated": ended.n_prompt,
            "generation_settings": settings,
            "prompt": String::from_utf8_lossy(&prompt),
            "has_new_line": self.has_new_line,
            "truncated": ended.is_shifted || ended.finish == Finish::ContextFull,
            "stop_type": stop_type,
            "stopping_word": word,
            "tokens_cached": ended.n_held,
            "timings": timings_json(&ended.timings),
        });
        if let Some(reuse) = &self.reuse {
            body["backstitch"] = account_json(reuse, &self.shape.ignored);
        }
        body
    }

    /// Return a piece of the answer.
    fn part(&self, text: &str, tokens: &[Token]) -> Value {
        json!({
            "index": self.index,
            "content": text,
            "tokens": tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
            "stop": false,
            "id_slot": self.slot,
            "tokens_predicted": self.n_generated,
            "tokens_evaluated": self.prompt.len(),
        })
    }

    /// Return the times so far.
    fn timings(&self, n_prompt: usize) -> Value {
        timings_json(&Timings {
            n_cached: self.reuse.map_or(0, |reuse| reuse.n_reused),
            n_prompt,
            prompt: self.prompt_time,
            n_generated: self.n_generated,
            generation: self.first_token.map_or(Duration::ZERO, |first| first.elapsed()),
            ..Timings::default()
        })
    }

    /// Return the part of the prompt that is done.
    fn progress(&self, n_done: usize) -> Value {
        let n_cached = self.reuse.map_or(0, |reuse| reuse.n_reused);
        let mut body = self.part("", &[]);
        body["prompt_progress"] = json!({
            "total": self.prompt.len(),
            "cache": n_cached,
            "processed": n_done,
            "time_ms": millis(self.prompt_time),
        });
        if self.shape.timings_per_token {
            body["timings"] = self.timings(n_done.saturating_sub(n_cached));
        }
        body
    }

    /// Return a piece with tokens.
    fn chunk(&mut self, chunk: &Chunk) -> Value {
        self.n_generated += chunk.tokens.len();
        self.has_new_line |= chunk.text.contains('\n');
        self.prompt_time = chunk.prompt_time.unwrap_or(self.prompt_time);
        self.first_token.get_or_insert_with(std::time::Instant::now);
        let mut body = self.part(&chunk.text, &chunk.tokens);
        if self.shape.timings_per_token {
            let n_cached = self.reuse.map_or(0, |reuse| reuse.n_reused);
            body["timings"] = self.timings(self.prompt.len().saturating_sub(n_cached));
        }
        if !chunk.logprobs.is_empty() {
            body["completion_probabilities"] =
                probabilities_json(self.shape.app.vocab(), &chunk.logprobs, self.is_sampled);
        }
        body
    }
}

/// Writes answers in pieces.
struct Parts(Vec<Answer>);

impl Writer for Parts {
    fn event(&mut self, index: usize, event: Event, frames: &mut Frames) {
        let Some(answer) = self.0.get_mut(index) else { return };
        match event {
            Event::Began { slot, reuse } => {
                (answer.slot, answer.reuse) = (slot, Some(reuse));
                if answer.shape.is_progress {
                    frames.data(&answer.progress(reuse.n_reused));
                }
            }
            Event::Progress { n_done, elapsed } => {
                answer.prompt_time = elapsed;
                frames.data(&answer.progress(n_done));
            }
            Event::Chunk(chunk)
                if !chunk.tokens.is_empty() || !chunk.text.is_empty() || !chunk.logprobs.is_empty() =>
            {
                frames.data(&answer.chunk(&chunk));
            }
            Event::Ended(ended) => {
                let last = answer.last(&ended);
                frames.data(&select(&answer.shape.response_fields, last));
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Frames) {}
}

/// Return the named fields of an answer, all if there are no names. A name with slashes finds a
/// field of a field, which comes under the whole name.
fn select(names: &[String], body: Value) -> Value {
    if names.is_empty() {
        return body;
    }
    let found = |name: &String| Some((name.clone(), body.pointer(&format!("/{name}"))?.clone()));
    Value::Object(names.iter().filter_map(found).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_fields_are_selected() {
        let body = json!({"a": 1, "b": {"c": 2}});
        assert_eq!(select(&[], body.clone()), body);
        assert_eq!(select(&["b/c".into(), "x".into()], body), json!({"b/c": 2}));
    }
}
