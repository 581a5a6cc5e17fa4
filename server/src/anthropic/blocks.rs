//! The blocks of an answer, and the events that tell how they grow.

use crate::http::Frames;
use backstitch_models::chat::reply::{Delta, Reply};
use serde_json::{Map, Value, json};

/// The kind of a block that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    ToolUse,
}

/// Writes blocks as events.
#[derive(Default)]
pub(super) struct Blocks {
    open: Option<Kind>,
    /// The number of blocks that are complete.
    n_done: usize,
}

impl Blocks {
    /// Write a piece of the answer.
    pub fn add(&mut self, delta: &Delta, frames: &mut Frames) {
        match delta {
            Delta::Reasoning(text) => {
                self.continue_with(Kind::Thinking, json!({"type": "thinking", "thinking": ""}), frames);
                self.send(json!({"type": "thinking_delta", "thinking": text}), frames);
            }
            Delta::Content(text) => {
                self.continue_with(Kind::Text, text_block(""), frames);
                self.send(json!({"type": "text_delta", "text": text}), frames);
            }
            Delta::ToolCallBegin { id, name, .. } => {
                self.close(frames);
                let block = tool_use(id.as_deref(), name, json!({}));
                self.open(Kind::ToolUse, block, frames);
            }
            Delta::ToolCallArguments { text, .. } => {
                self.send(json!({"type": "input_json_delta", "partial_json": text}), frames);
            }
            // The text of a call that was cut is a block of its own.
            Delta::ToolCallsCut { .. } => self.close(frames),
            _ => {}
        }
    }

    /// Complete the block that is being written.
    pub fn close(&mut self, frames: &mut Frames) {
        let Some(kind) = self.open else { return };
        if kind == Kind::Thinking {
            // Clients expect a signature. Nothing signs here, and nothing checks it.
            self.send(json!({"type": "signature_delta", "signature": ""}), frames);
        }
        event("content_block_stop", json!({"index": self.n_done}), frames);
        self.n_done += 1;
        self.open = None;
    }

    fn continue_with(&mut self, kind: Kind, block: Value, frames: &mut Frames) {
        if self.open != Some(kind) {
            self.close(frames);
            self.open(kind, block, frames);
        }
    }

    fn open(&mut self, kind: Kind, block: Value, frames: &mut Frames) {
        self.open = Some(kind);
        event("content_block_start", json!({"index": self.n_done, "content_block": block}), frames);
    }

    fn send(&self, delta: Value, frames: &mut Frames) {
        event("content_block_delta", json!({"index": self.n_done, "delta": delta}), frames);
    }
}

/// Send an event with its name as its `type`.
pub(super) fn event(name: &str, data: Value, frames: &mut Frames) {
    let mut all = Map::new();
    all.insert("type".into(), name.into());
    if let Value::Object(data) = data {
        all.extend(data);
    }
    frames.named(name, &Value::Object(all));
}

/// Return the block of a call, which the model itself makes.
fn tool_use(id: Option<&str>, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}})
}

/// Return a block of text.
fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text, "citations": null})
}

/// Return the blocks of a whole answer.
pub(super) fn blocks_json(reply: &Reply) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": reply.reasoning, "signature": ""}));
    }
    if !reply.content.is_empty() {
        blocks.push(text_block(&reply.content));
    }
    for call in &reply.tool_calls {
        blocks.push(match serde_json::from_str::<Map<String, Value>>(&call.arguments) {
            Ok(input) => tool_use(call.id.as_deref(), &call.name, input.into()),
            // A number may be too large for every program that reads this.
            Err(_) => text_block(&format!("{}({})", call.name, call.arguments)),
        });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other() {
        let (mut blocks, mut frames) = (Blocks::default(), Frames::default());
        let deltas = [
            Delta::Reasoning("Hm.".into()),
            Delta::Content("Yes".into()),
            Delta::Content(".".into()),
            Delta::ToolCallBegin { index: 0, id: Some("a".into()), name: "time".into() },
            Delta::ToolCallArguments { index: 0, text: "{}".into() },
        ];
        deltas.iter().for_each(|delta| blocks.add(delta, &mut frames));
        blocks.close(&mut frames);
        let data = frames.as_str().lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let told: Vec<(&str, u64)> = events
            .iter()
            .map(|event| (event["type"].as_str().unwrap(), event["index"].as_u64().unwrap()))
            .collect();
        let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
        let thinking = [(start, 0), (delta, 0), (delta, 0), (stop, 0)];
        let text = [(start, 1), (delta, 1), (delta, 1), (stop, 1)];
        assert_eq!(told, [&thinking[..], &text, &[(start, 2), (delta, 2), (stop, 2)]].concat());
        assert_eq!(events[2]["delta"]["type"], "signature_delta");
    }
}
