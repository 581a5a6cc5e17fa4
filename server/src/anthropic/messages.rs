//! `/v1/messages`: the assistant's next message in Anthropic's shape.

use super::blocks::{Blocks, blocks_json, event};
use crate::conversation::{Ending, Meter, Request, Speaker, Turn, render};
use crate::engine::{Ended, Event};
use crate::http::{
    ApiError, App, Body, Client, Events, Frames, Outcome, Ready, Writer, blocking, n_values, new_id, sse,
    write_json,
};
use crate::params::N_ANSWERS;
use axum::Json;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The number of tokens to generate if the request does not say. Anthropic asks for a number.
const DEFAULT_LIMIT: u64 = 4096;

/// Answer with the assistant's next message.
pub(super) async fn answer(Ready(app): Ready, client: Client, mut body: Body) -> Result<Response, ApiError> {
    let (shared, class) = (app.clone(), body.class());
    let turn = blocking(&client, class, move |client| {
        let request = Request::from_anthropic(&body)?;
        rename(&mut body);
        let turn = Turn::read(&shared, client, &body, request);
        let mut turn = turn.map_err(|error| error.renamed("stop", "stop_sequences"))?;
        // Blocks have no place for them.
        turn.reading.generate.logprobs = None;
        Ok(turn)
    })
    .await?;
    let answer = Answer {
        app: app.clone(),
        id: new_id("msg_"),
        stops: turn.reading.generate.stops.clone(),
        speaker: Speaker::of_turn(&app, &turn),
        blocks: Blocks::default(),
        meter: Meter::of(&turn.reading),
    };
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

/// Return the number of tokens of a conversation.
pub(super) async fn count(Ready(app): Ready, client: Client, body: Body) -> Result<Json<Value>, ApiError> {
    let class = body.class();
    let read = move |client: &Client| render(&app, client, Request::from_anthropic(&body)?);
    let prompt = blocking(&client, class, read).await?;
    Ok(Json(json!({"input_tokens": prompt.tokens.len()})))
}

/// Give fields the names that llama-server's interface has for them, and remove those that mean
/// something else there.
fn rename(body: &mut Map<String, Value>) {
    if let Some(stops) = body.remove("stop_sequences") {
        body.insert("stop".into(), stops);
    }
    if body.get("max_tokens").is_none_or(Value::is_null) {
        body.insert("max_tokens".into(), DEFAULT_LIMIT.into());
    }
    N_ANSWERS.iter().for_each(|name| drop(body.remove(*name)));
}

/// An answer under way.
struct Answer {
    app: Arc<App>,
    id: String,
    stops: Arc<[String]>,
    speaker: Speaker,
    blocks: Blocks,
    meter: Meter,
}

impl Answer {
    /// Return the message with these blocks.
    fn message(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.app.alias(),
            "stop_reason": null,
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        })
    }

    /// Return the reason of the end, and the stop string if it is one.
    fn stop_reason(&self, ended: &Ended) -> (&'static str, Option<&str>) {
        match self.speaker.ending(ended.finish) {
            Ending::Calls => ("tool_use", None),
            Ending::Complete => ("end_turn", None),
            Ending::Stop(index) => ("stop_sequence", self.stops.get(index).map(String::as_str)),
            Ending::Cut => ("max_tokens", None),
        }
    }

    /// Return the answer in one piece.
    fn whole(mut self, outcome: &Outcome) -> Value {
        self.speaker.write(&outcome.text, &outcome.tokens);
        self.speaker.finish();
        let mut message = self.message(blocks_json(self.speaker.reply()));
        if let Some(reuse) = &outcome.reuse {
            message["backstitch"] = self.meter.account(reuse);
        }
        let Some(ended) = &outcome.ended else { return message };
        let (reason, stop) = self.stop_reason(ended);
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = stop.into();
        let n_cached = ended.timings.n_cached;
        message["usage"] = usage(ended.n_prompt, n_cached, ended.timings.n_generated);
        message
    }
}

/// Return the numbers of tokens. Tokens that were reused do not count as input. Typed clients want
/// every field, also those about what there is not here.
fn usage(n_prompt: usize, n_cached: usize, n_generated: usize) -> Value {
    json!({
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": null,
        "output_tokens_details": null,
        "server_tool_use": null,
        "service_tier": "standard",
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "input_tokens": n_prompt.saturating_sub(n_cached),
        "output_tokens": n_generated,
    })
}

impl Writer for Answer {
    fn event(&mut self, _: usize, told: Event, frames: &mut Frames) {
        self.meter.note(&told);
        match told {
            Event::Began { reuse, .. } => {
                let mut message = self.message(Vec::new());
                message["usage"] = usage(self.meter.n_prompt(), self.meter.n_cached(), 0);
                message["backstitch"] = self.meter.account(&reuse);
                event("message_start", json!({"message": message}), frames);
            }
            Event::Chunk(chunk) => {
                for delta in self.speaker.write(&chunk.text, &chunk.tokens) {
                    self.blocks.add(&delta, frames);
                }
            }
            Event::Ended(ended) => {
                for delta in self.speaker.finish() {
                    self.blocks.add(&delta, frames);
                }
                self.blocks.close(frames);
                let (reason, stop) = self.stop_reason(&ended);
                let data = json!({
                    "delta": {
                        "stop_reason": reason,
                        "stop_sequence": stop,
                        "stop_details": null,
                        "container": null,
                    },
                    "usage": usage(ended.n_prompt, ended.timings.n_cached, ended.timings.n_generated),
                });
                event("message_delta", data, frames);
                event("message_stop", json!({}), frames);
            }
            _ => {}
        }
    }

    fn end(&mut self, _: &mut Frames) {}

    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.named("error", &error.anthropic_body());
    }
}
