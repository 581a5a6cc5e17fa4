//! Responses: the items of an answer, and the events that tell how they grow.

use crate::http::new_id;
use backstitch_models::chat::reply::Delta;
use serde_json::{Value, json};

/// The status of an item that the model ended.
const COMPLETED: &str = "completed";
/// The status of an item that was cut.
const INCOMPLETE: &str = "incomplete";

/// An item that is being written.
enum Open {
    Reasoning { id: String, text: String },
    Message { id: String, text: String },
    Call { id: String, call_id: String, name: String, arguments: String },
}

/// The items of an answer.
#[derive(Default)]
pub(super) struct Items {
    open: Option<Open>,
    /// The items that are complete.
    done: Vec<Value>,
}

/// An event of a stream: its name, which is its `type` too, and its data.
pub(super) type Named = (&'static str, Value);

impl Items {
    /// Add a piece of the answer, and return the events that tell it.
    pub fn add(&mut self, delta: &Delta) -> Vec<Named> {
        let mut events = Vec::new();
        match delta {
            Delta::Reasoning(piece) => {
                if !matches!(self.open, Some(Open::Reasoning { .. })) {
                    self.open(Open::Reasoning { id: new_id("rs_"), text: String::new() }, &mut events);
                }
                if let Some(Open::Reasoning { text, .. }) = &mut self.open {
                    *text += piece;
                }
                events.push(("response.reasoning_text.delta", self.part(json!({"delta": piece}))));
            }
            Delta::Content(piece) => {
                if !matches!(self.open, Some(Open::Message { .. })) {
                    self.open(Open::Message { id: new_id("msg_"), text: String::new() }, &mut events);
                    let part = json!({"part": text_part("")});
                    events.push(("response.content_part.added", self.part(part)));
                }
                if let Some(Open::Message { text, .. }) = &mut self.open {
                    *text += piece;
                }
                let data = json!({"delta": piece, "logprobs": []});
                events.push(("response.output_text.delta", self.part(data)));
            }
            Delta::ToolCallBegin { id, name, .. } => {
                let call = Open::Call {
                    id: new_id("fc_"),
                    call_id: id.clone().unwrap_or_default(),
                    name: name.clone(),
                    arguments: String::new(),
                };
                self.open(call, &mut events);
            }
            Delta::ToolCallArguments { text, .. } => {
                if let Some(Open::Call { arguments, .. }) = &mut self.open {
                    *arguments += text;
                }
                let data = self.part(json!({"delta": text}));
                events.push(("response.function_call_arguments.delta", data));
            }
            Delta::ToolCallsCut { n } => events.extend(self.cut(*n)),
            _ => {}
        }
        events
    }

    /// Complete the last `n` items, which are calls without an end, as incomplete.
    fn cut(&mut self, n: usize) -> Vec<Named> {
        let is_open = matches!(self.open, Some(Open::Call { .. }));
        let events = if is_open { self.end(INCOMPLETE) } else { Vec::new() };
        for item in self.done.iter_mut().rev().take(n) {
            item["status"] = INCOMPLETE.into();
        }
        events
    }

    /// Leave out the calls that are incomplete: their text is content.
    pub fn drop_cut(&mut self) {
        self.done.retain(|item| item["type"] != "function_call" || item["status"] != INCOMPLETE);
    }

    /// Complete the item that is being written.
    pub fn close(&mut self) -> Vec<Named> {
        self.end(COMPLETED)
    }

    /// End the item that is being written, with this status.
    fn end(&mut self, status: &str) -> Vec<Named> {
        let mut events = Vec::new();
        match &self.open {
            None => return events,
            Some(Open::Reasoning { text, .. }) => {
                events.push(("response.reasoning_text.done", self.part(json!({"text": text}))));
            }
            Some(Open::Message { text, .. }) => {
                let data = json!({"text": text, "logprobs": []});
                events.push(("response.output_text.done", self.part(data)));
                let data = json!({"part": text_part(text)});
                events.push(("response.content_part.done", self.part(data)));
            }
            Some(Open::Call { name, arguments, .. }) => {
                let data = json!({"name": name, "arguments": arguments});
                events.push(("response.function_call_arguments.done", self.part(data)));
            }
        }
        let item = self.item(status);
        let data = json!({"output_index": self.done.len(), "item": item});
        events.push(("response.output_item.done", data));
        self.done.push(item);
        self.open = None;
        events
    }

    /// Return the complete items.
    pub fn done(&self) -> &[Value] {
        &self.done
    }

    /// Begin an item, after the one before is complete.
    fn open(&mut self, item: Open, events: &mut Vec<Named>) {
        events.extend(self.close());
        self.open = Some(item);
        let data = json!({"output_index": self.done.len(), "item": self.item("in_progress")});
        events.push(("response.output_item.added", data));
    }

    /// Add the place of the item that is being written to the data of an event.
    fn part(&self, mut data: Value) -> Value {
        let (id, has_parts) = match &self.open {
            Some(Open::Reasoning { id, .. } | Open::Message { id, .. }) => (id.as_str(), true),
            Some(Open::Call { id, .. }) => (id.as_str(), false),
            None => ("", false),
        };
        data["item_id"] = id.into();
        data["output_index"] = self.done.len().into();
        if has_parts {
            data["content_index"] = 0.into();
        }
        data
    }

    /// Return the item that is being written. It has no content while it is in progress.
    fn item(&self, status: &str) -> Value {
        let is_done = status != "in_progress";
        match &self.open {
            Some(Open::Reasoning { id, text }) => {
                let part = json!({"type": "reasoning_text", "text": text});
                let content = if is_done { json!([part]) } else { json!([]) };
                json!({
                    "id": id,
                    "summary": [],
                    "type": "reasoning",
                    "content": content,
                    "encrypted_content": "",
                    "status": status,
                })
            }
            Some(Open::Message { id, text }) => {
                let content = if is_done { json!([text_part(text)]) } else { json!([]) };
                json!({
                    "id": id,
                    "content": content,
                    "role": "assistant",
                    "status": status,
                    "type": "message",
                })
            }
            Some(Open::Call { id, call_id, name, arguments }) => json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "arguments": if is_done { arguments.as_str() } else { "" },
                "call_id": call_id,
                "name": name,
            }),
            None => Value::Null,
        }
    }
}

/// Return a part of a message.
fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_open_grow_and_close() {
        let mut items = Items::default();
        let deltas = [
            Delta::Reasoning("Hm.".into()),
            Delta::Content("It ".into()),
            Delta::Content("rains.".into()),
            Delta::ToolCallBegin { index: 0, id: Some("a".into()), name: "time".into() },
            Delta::ToolCallArguments { index: 0, text: "{}".into() },
        ];
        let mut events: Vec<Named> = deltas.iter().flat_map(|delta| items.add(delta)).collect();
        events.extend(items.close());
        let names: Vec<&str> = events.iter().map(|(name, _)| *name).collect();
        let wanted = [
            "response.output_item.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ];
        assert_eq!(names, wanted);
        let [reasoning, message, call] = items.done() else { panic!("three items") };
        assert_eq!(reasoning["content"][0]["text"], "Hm.");
        assert_eq!(message["content"][0]["text"], "It rains.");
        assert_eq!((&call["call_id"], &call["arguments"]), (&json!("a"), &json!("{}")));
        assert_eq!(events[6].1["item_id"], message["id"]);
        assert_eq!(events[6].1["output_index"], 1);
    }
}
