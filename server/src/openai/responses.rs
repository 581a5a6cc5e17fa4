//! `/v1/responses`: an answer made of items.

use super::chunks::n_batch;
use super::items::{Items, Named};
use super::repeated::repeated;
use crate::conversation::{Ending, Meter, Request, Speaker, Turn, render};
use crate::engine::{Ended, Event};
use crate::http::{
    ApiError, App, Body, Client, Events, Frames, Outcome, Ready, Writer, blocking, n_values, new_id, sse,
    timings_json, unix_time, write_json,
};
use crate::params::N_ANSWERS;
use axum::Json;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Answer to an input.
pub(super) async fn respond(Ready(app): Ready, client: Client, mut body: Body) -> Result<Response, ApiError> {
    if let Some(limit) = body.get("max_output_tokens").cloned() {
        body.insert("max_tokens".into(), limit);
    }
    // There is one answer.
    N_ANSWERS.iter().for_each(|name| drop(body.remove(*name)));
    let (shared, class) = (app.clone(), body.class());
    let (turn, answer) = blocking(&client, class, move |client| {
        let mut turn = Turn::read(&shared, client, &body, Request::from_responses(&body)?)
            .map_err(|error| error.renamed("max_tokens", "max_output_tokens"))?;
        // Items have no place for them.
        turn.reading.generate.logprobs = None;
        let answer = Answer::new(&shared, &body, &turn);
        Ok((turn, answer))
    })
    .await?;
    let is_stream = turn.reading.stream;
    let events = Events::start(&app, turn.reading.requests(&app, Vec::new()))?;
    if is_stream {
        let ping = app.params().ping;
        return sse(events, answer, ping).await;
    }
    let outcomes = events.outcomes().await?;
    let n_values = n_values(&outcomes);
    let whole = move || outcomes.first().map_or(Value::Null, |outcome| answer.whole(outcome)).to_string();
    write_json(&client, n_values, whole).await
}

/// Return the number of tokens of an input.
pub(super) async fn count(Ready(app): Ready, client: Client, body: Body) -> Result<Json<Value>, ApiError> {
    let class = body.class();
    let read = move |client: &Client| render(&app, client, Request::from_responses(&body)?);
    let prompt = blocking(&client, class, read).await?;
    Ok(Json(json!({"object": "response.input_tokens", "input_tokens": prompt.tokens.len()})))
}

/// An answer under way.
struct Answer {
    app: Arc<App>,
    id: String,
    created: u64,
    /// Fields of the request that the answer repeats.
    repeated: Map<String, Value>,
    timings_per_token: bool,
    is_progress: bool,
    speaker: Speaker,
    items: Items,
    meter: Meter,
    /// The number of events that were sent.
    n_events: u64,
}

impl Answer {
    fn new(app: &Arc<App>, body: &Map<String, Value>, turn: &Turn) -> Self {
        Answer {
            app: app.clone(),
            id: new_id("resp_"),
            created: unix_time(),
            repeated: repeated(body, &turn.reading.settings(app)),
            timings_per_token: turn.reading.timings_per_token,
            is_progress: turn.reading.return_progress,
            speaker: Speaker::of_turn(app, turn),
            items: Items::default(),
            meter: Meter::of(&turn.reading),
            n_events: 0,
        }
    }

    /// Return the response without what the end tells.
    fn response(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": null,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.app.alias(),
            "output": self.items.done(),
            "previous_response_id": null,
            "store": false,
            "usage": null,
        });
        if let Some(response) = response.as_object_mut() {
            response.extend(self.repeated.clone());
        }
        response
    }

    /// Return true if the answer was cut.
    fn is_cut(&self, ended: &Ended) -> bool {
        self.speaker.ending(ended.finish) == Ending::Cut
    }

    /// Return the response at its end.
    fn ended(&self, ended: &Ended) -> Value {
        let is_cut = self.is_cut(ended);
        let mut response = self.response(if is_cut { "incomplete" } else { "completed" });
        if is_cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        } else {
            response["completed_at"] = unix_time().into();
        }
        let (n_prompt, n_generated) = (ended.n_prompt, ended.timings.n_generated);
        response["usage"] = json!({
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": ended.timings.n_cached, "cache_write_tokens": 0},
            "output_tokens": n_generated,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_prompt + n_generated,
        });
        response
    }

    /// Return the answer in one piece.
    fn whole(mut self, outcome: &Outcome) -> Value {
        let mut deltas = self.speaker.write(&outcome.text, &outcome.tokens);
        deltas.extend(self.speaker.finish());
        for delta in &deltas {
            self.items.add(delta);
        }
        let Some(ended) = &outcome.ended else { return Value::Null };
        self.items.finish(self.is_cut(ended));
        let mut response = self.ended(ended);
        response["timings"] = timings_json(&ended.timings);
        if let Some(reuse) = &outcome.reuse {
            response["backstitch"] = self.meter.account(reuse);
        }
        response
    }

    /// Send events, the last one with `more` in its data.
    fn send(&mut self, mut events: Vec<Named>, more: Option<(&str, Value)>, frames: &mut Frames) {
        if let (Some((name, value)), Some((_, data))) = (more, events.last_mut()) {
            data[name] = value;
        }
        for (name, data) in events {
            let mut event = json!({"type": name, "sequence_number": self.n_events});
            if let (Some(event), Value::Object(data)) = (event.as_object_mut(), data) {
                event.extend(data);
            }
            self.n_events += 1;
            frames.named(name, &event);
        }
    }
}

impl Writer for Answer {
    fn event(&mut self, _: usize, event: Event, frames: &mut Frames) {
        self.meter.note(&event);
        match event {
            Event::Began { .. } => {
                let response = json!({"response": self.response("in_progress")});
                let events = vec![("response.created", response.clone()), ("response.in_progress", response)];
                let report = if self.is_progress { self.meter.report(n_batch(&self.app)) } else { None };
                let progress = report.map(|report| ("prompt_progress", report));
                self.send(events, progress, frames);
            }
            Event::Progress { .. } if self.is_progress => {
                if let Some(report) = self.meter.report(n_batch(&self.app)) {
                    let response = json!({"response": self.response("in_progress")});
                    let events = vec![("response.in_progress", response)];
                    self.send(events, Some(("prompt_progress", report)), frames);
                }
            }
            Event::Chunk(chunk) => {
                let deltas = self.speaker.write(&chunk.text, &chunk.tokens);
                let mut events: Vec<Named> = deltas.iter().flat_map(|delta| self.items.add(delta)).collect();
                events.extend(self.items.settle(self.speaker.n_whole()));
                let timings = self.timings_per_token.then(|| ("timings", self.meter.timings()));
                self.send(events, timings, frames);
            }
            Event::Ended(ended) => {
                let deltas = self.speaker.finish();
                let mut events: Vec<Named> = deltas.iter().flat_map(|delta| self.items.add(delta)).collect();
                events.extend(self.items.finish(self.is_cut(&ended)));
                let mut data = json!({"response": self.ended(&ended)});
                if let Some(reuse) = &self.meter.reuse {
                    data["response"]["backstitch"] = self.meter.account(reuse);
                }
                // llama-server's clients wait for this event also if the answer was cut.
                events.push(("response.completed", data));
                self.send(events, Some(("timings", timings_json(&ended.timings))), frames);
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Frames) {}

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        let mut response = self.response("failed");
        response["error"] = json!({"code": "server_error", "message": error.message()});
        self.send(vec![("response.failed", json!({"response": response}))], None, frames);
    }
}
