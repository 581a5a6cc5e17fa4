//! Chat completions in pieces.

use super::{FINGERPRINT, finish_reason};
use crate::conversation::{Meter, Speaker, Turn};
use crate::engine::{Chunk, Ended, Event};
use crate::http::{App, Frames, Writer, probabilities_json, timings_json, usage_json};
use backstitch_models::chat::reply::Delta;
use serde_json::{Value, json};
use std::sync::Arc;

/// The common parts of all pieces of an answer.
pub(super) struct Shape {
    pub app: Arc<App>,
    pub id: String,
    pub created: u64,
    pub timings_per_token: bool,
    pub is_progress: bool,
    pub include_usage: bool,
    /// Probabilities are those after the samplers.
    pub is_sampled: bool,
    /// Details for debugging, if they were asked for.
    pub verbose: Option<Value>,
}

/// An answer of several.
pub(super) struct Choice {
    pub index: usize,
    pub speaker: Speaker,
    pub meter: Meter,
    /// The piece that names the role was sent.
    has_role: bool,
    ended: Option<Ended>,
}

impl Choice {
    /// Begin the answer with this index.
    pub fn new(app: &Arc<App>, index: usize, turn: &Turn) -> Self {
        Choice {
            index,
            speaker: Speaker::of_turn(app, turn),
            meter: Meter::of(&turn.reading),
            has_role: false,
            ended: None,
        }
    }
}

/// Writes answers in pieces.
pub(super) struct Chunks {
    shape: Shape,
    choices: Vec<Choice>,
}

impl Chunks {
    /// Write these answers.
    pub fn new(shape: Shape, choices: Vec<Choice>) -> Self {
        Chunks { shape, choices }
    }
}

impl Shape {
    /// Return a piece with these choices.
    fn piece(&self, choices: Value) -> Value {
        json!({
            "choices": choices,
            "created": self.created,
            "id": self.id,
            "model": self.app.alias(),
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion.chunk",
        })
    }

    /// Return a piece with a delta of one choice.
    fn delta(&self, index: usize, delta: Value) -> Value {
        self.piece(json!([{"finish_reason": null, "index": index, "delta": delta}]))
    }

    /// Return the piece that names the role, if it was not sent yet.
    fn role(&self, choice: &mut Choice) -> Option<Value> {
        let is_first = !core::mem::replace(&mut choice.has_role, true);
        is_first.then(|| self.delta(choice.index, json!({"role": "assistant", "content": null})))
    }

    /// Write a step of a choice.
    fn step(&self, choice: &mut Choice, chunk: &Chunk, frames: &mut Frames) {
        if let Some(role) = self.role(choice) {
            frames.data(&role);
        }
        let deltas = choice.speaker.write(&chunk.text, &chunk.tokens);
        let mut pieces: Vec<Value> =
            deltas.iter().filter_map(delta_json).map(|delta| self.delta(choice.index, delta)).collect();
        if pieces.is_empty() && !chunk.logprobs.is_empty() {
            pieces.push(self.delta(choice.index, json!({"content": ""})));
        }
        if let Some(last) = pieces.last_mut() {
            if !chunk.logprobs.is_empty() {
                let content = probabilities_json(self.app.vocab(), &chunk.logprobs, self.is_sampled);
                last["choices"][0]["logprobs"] = json!({"content": content, "refusal": null});
            }
            if self.timings_per_token {
                last["timings"] = choice.meter.timings();
            }
        }
        pieces.iter().for_each(|piece| frames.data(piece));
    }

    /// Write how much of the prompt is done.
    fn progress(&self, choice: &mut Choice, frames: &mut Frames) {
        let Some(progress) = choice.meter.report(n_batch(&self.app)) else { return };
        let role = self.role(choice);
        let mut piece = role.unwrap_or_else(|| self.delta(choice.index, json!({})));
        piece["prompt_progress"] = progress;
        frames.data(&piece);
    }

    /// Write the end of a choice. Counts come in a piece of their own if they were asked for.
    fn last(&self, choice: &mut Choice, ended: &Ended, frames: &mut Frames) {
        if let Some(role) = self.role(choice) {
            frames.data(&role);
        }
        for delta in choice.speaker.finish().iter().filter_map(delta_json) {
            frames.data(&self.delta(choice.index, delta));
        }
        let reason = finish_reason(choice.speaker.ending(ended.finish));
        let mut piece = self.piece(json!([{"finish_reason": reason, "index": choice.index, "delta": {}}]));
        if !self.include_usage {
            self.account(&mut piece, choice, ended);
        }
        if let Some(verbose) = &self.verbose {
            piece["__verbose"] = verbose.clone();
        }
        frames.data(&piece);
    }

    /// Add times and the account of what was reused.
    fn account(&self, piece: &mut Value, choice: &Choice, ended: &Ended) {
        piece["timings"] = timings_json(&ended.timings);
        if let Some(reuse) = &choice.meter.reuse {
            piece["backstitch"] = choice.meter.account(reuse);
        }
    }
}

impl Writer for Chunks {
    fn event(&mut self, index: usize, event: Event, frames: &mut Frames) {
        let Chunks { shape, choices } = self;
        let Some(choice) = choices.get_mut(index) else { return };
        choice.meter.note(&event);
        match event {
            Event::Began { .. } | Event::Progress { .. } if shape.is_progress => {
                shape.progress(choice, frames);
            }
            Event::Chunk(chunk) => shape.step(choice, &chunk, frames),
            Event::Ended(ended) => {
                shape.last(choice, &ended, frames);
                choice.ended = Some(ended);
            }
            _ => {}
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        let ended: Vec<&Ended> = self.choices.iter().filter_map(|choice| choice.ended.as_ref()).collect();
        if self.shape.include_usage
            && let (Some(first), Some(choice)) = (ended.first(), self.choices.first())
        {
            let mut piece = self.shape.piece(json!([]));
            piece["usage"] = sum_usage(&ended);
            self.shape.account(&mut piece, choice, first);
            frames.data(&piece);
        }
        frames.done();
    }
}

/// Return the number of tokens after which progress is reported.
pub(super) fn n_batch(app: &App) -> usize {
    app.engine().params().context.n_batch as usize
}

/// Return the counts of several answers to one prompt.
pub(super) fn sum_usage(ended: &[&Ended]) -> Value {
    let Some(first) = ended.first() else { return Value::Null };
    let n_generated: usize = ended.iter().map(|ended| ended.timings.n_generated).sum();
    let mut usage = usage_json(first);
    usage["completion_tokens"] = n_generated.into();
    usage["total_tokens"] = (first.n_prompt + n_generated).into();
    usage
}

/// Return a delta of a message. There is none for calls that were cut: the reason of the end says
/// so.
fn delta_json(delta: &Delta) -> Option<Value> {
    Some(match delta {
        Delta::Content(text) => json!({"content": text}),
        Delta::Reasoning(text) => json!({"reasoning_content": text}),
        Delta::ToolCallBegin { index, id, name } => json!({"tool_calls": [{
            "index": index,
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }]}),
        Delta::ToolCallArguments { index, text } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_with_their_index() {
        let begin = Delta::ToolCallBegin { index: 1, id: Some("a".into()), name: "time".into() };
        let json = delta_json(&begin).unwrap();
        assert_eq!(json["tool_calls"][0]["index"], 1);
        assert_eq!(json["tool_calls"][0]["function"]["name"], "time");
        let json = delta_json(&Delta::ToolCallArguments { index: 1, text: "{".into() });
        assert_eq!(json.unwrap(), json!({"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}));
    }
}
