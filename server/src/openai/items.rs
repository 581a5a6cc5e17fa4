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

impl Open {
    fn is_call(&self) -> bool {
        matches!(self, Open::Call { .. })
    }
}

/// The items of an answer.
#[derive(Default)]
pub(super) struct Items {
    open: Option<Open>,
    /// Calls that are complete, but may still be cut: the list that they stand in has no end yet.
    /// They are in progress, behind those that are done.
    pending: Vec<Open>,
    /// The items that are complete.
    done: Vec<Value>,
    /// The number of calls among these.
    n_calls: usize,
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

    /// Complete the calls up to the first `n_whole` of the answer, which nothing cuts any more.
    pub fn settle(&mut self, n_whole: usize) -> Vec<Named> {
        let mut events = Vec::new();
        while self.n_calls < n_whole && self.end_call(COMPLETED, &mut events) {}
        events
    }

    /// Complete the last `n` calls, which have no end, as incomplete.
    fn cut(&mut self, n: usize) -> Vec<Named> {
        let is_open = self.open.as_ref().is_some_and(Open::is_call);
        let n_all = self.pending.len() + usize::from(is_open);
        let mut events = self.settle(self.n_calls + n_all.saturating_sub(n));
        while self.end_call(INCOMPLETE, &mut events) {}
        events
    }

    /// End the answer, which is cut or not. Calls that were cut are left out of its items from then
    /// on: their text is content.
    pub fn finish(&mut self, is_cut: bool) -> Vec<Named> {
        let events = self.close(if is_cut { INCOMPLETE } else { COMPLETED });
        self.done.retain(|item| item["type"] != "function_call" || item["status"] != INCOMPLETE);
        events
    }

    /// End the items that are being written: calls are complete, a text has this status.
    fn close(&mut self, status: &str) -> Vec<Named> {
        let mut events = Vec::new();
        while self.end_call(COMPLETED, &mut events) {}
        if let Some(open) = self.open.take() {
            self.end(&open, status, &mut events);
        }
        events
    }

    /// End the first call that is being written, with this status. Return false if there is none.
    fn end_call(&mut self, status: &str, events: &mut Vec<Named>) -> bool {
        let call = match self.pending.is_empty() {
            true => self.open.take_if(|open| open.is_call()),
            false => Some(self.pending.remove(0)),
        };
        call.inspect(|call| self.end(call, status, events)).is_some()
    }

    /// Add an item to those that are done, with this status.
    fn end(&mut self, ended: &Open, status: &str, events: &mut Vec<Named>) {
        let index = self.done.len();
        match ended {
            Open::Reasoning { text, .. } => {
                let data = part(ended, index, json!({"text": text}));
                events.push(("response.reasoning_text.done", data));
            }
            Open::Message { text, .. } => {
                let data = part(ended, index, json!({"text": text, "logprobs": []}));
                events.push(("response.output_text.done", data));
                let data = part(ended, index, json!({"part": text_part(text)}));
                events.push(("response.content_part.done", data));
            }
            // Clients may run a call once its arguments are done: those of one that was cut never
            // are.
            Open::Call { name, arguments, .. } if status == COMPLETED => {
                let data = part(ended, index, json!({"name": name, "arguments": arguments}));
                events.push(("response.function_call_arguments.done", data));
                self.n_calls += 1;
            }
            Open::Call { .. } => {}
        }
        let item = item(ended, status);
        events.push(("response.output_item.done", json!({"output_index": index, "item": item})));
        self.done.push(item);
    }

    /// Return the complete items.
    pub fn done(&self) -> &[Value] {
        &self.done
    }

    /// Begin an item. The one before is complete, unless it is a call in a list that goes on.
    fn open(&mut self, opened: Open, events: &mut Vec<Named>) {
        match self.open.take_if(|before| before.is_call() && opened.is_call()) {
            Some(call) => self.pending.push(call),
            None => events.extend(self.close(COMPLETED)),
        }
        let data = json!({"output_index": self.index(), "item": item(&opened, "in_progress")});
        self.open = Some(opened);
        events.push(("response.output_item.added", data));
    }

    /// Return the index of the item that is being written.
    fn index(&self) -> usize {
        self.done.len() + self.pending.len()
    }

    /// Add the place of the item that is being written to the data of an event.
    fn part(&self, data: Value) -> Value {
        self.open.as_ref().map_or(Value::Null, |open| part(open, self.index(), data))
    }
}

/// Add the place of an item to the data of an event.
fn part(item: &Open, index: usize, mut data: Value) -> Value {
    let (Open::Reasoning { id, .. } | Open::Message { id, .. } | Open::Call { id, .. }) = item;
    data["item_id"] = id.as_str().into();
    data["output_index"] = index.into();
    if !item.is_call() {
        data["content_index"] = 0.into();
    }
    data
}

/// Return an item. It has no content while it is in progress.
fn item(item: &Open, status: &str) -> Value {
    let is_done = status != "in_progress";
    match item {
        Open::Reasoning { id, text } => {
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
        Open::Message { id, text } => {
            let content = if is_done { json!([text_part(text)]) } else { json!([]) };
            json!({
                "id": id,
                "content": content,
                "role": "assistant",
                "status": status,
                "type": "message",
            })
        }
        Open::Call { id, call_id, name, arguments } => json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "arguments": if is_done { arguments.as_str() } else { "" },
            "call_id": call_id,
            "name": name,
        }),
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
        events.extend(items.finish(false));
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

    /// Return the index and the status of each item that events end.
    fn ends(events: &[Named]) -> Vec<(u64, &str)> {
        let ended = events.iter().filter(|(name, _)| *name == "response.output_item.done");
        let end = |(_, data): &'_ Named| {
            let status = if data["item"]["status"] == COMPLETED { COMPLETED } else { INCOMPLETE };
            (data["output_index"].as_u64().unwrap(), status)
        };
        ended.map(end).collect()
    }

    /// Return the deltas of two calls.
    fn two_calls() -> [Delta; 4] {
        let begin = |index| Delta::ToolCallBegin { index, id: Some("a".into()), name: "time".into() };
        let arguments = |index| Delta::ToolCallArguments { index, text: "{}".into() };
        [begin(0), arguments(0), begin(1), arguments(1)]
    }

    #[test]
    fn calls_are_complete_once_their_list_is_closed() {
        let mut items = Items::default();
        let events: Vec<Named> = two_calls().iter().flat_map(|delta| items.add(delta)).collect();
        assert!(ends(&events).is_empty() && items.settle(0).is_empty());
        assert_eq!(events.last().unwrap().1["output_index"], 1);
        assert_eq!(ends(&items.settle(2)), [(0, COMPLETED), (1, COMPLETED)]);
        assert!(items.finish(false).is_empty());
        let events = items.add(&Delta::Content("Yes".into()));
        assert_eq!(events[0].1["output_index"], 2);
    }

    #[test]
    fn calls_of_a_list_that_is_cut_are_never_told_to_be_complete() {
        for (n_cut, first) in [(2, INCOMPLETE), (1, COMPLETED)] {
            let mut items = Items::default();
            two_calls().iter().for_each(|delta| drop(items.add(delta)));
            let events = items.add(&Delta::ToolCallsCut { n: n_cut });
            assert_eq!(ends(&events), [(0, first), (1, INCOMPLETE)]);
            let text = items.add(&Delta::Content("[".into()));
            assert_eq!((ends(&text).len(), &text[0].1["output_index"]), (0, &json!(2)));
            let done = "response.function_call_arguments.done";
            let n_done = events.iter().filter(|(name, _)| *name == done).count();
            assert_eq!(n_done, 2 - n_cut);
            assert_eq!(ends(&items.finish(true)), [(2, INCOMPLETE)]);
            assert_eq!(items.done().len(), 4 - 1 - n_cut);
            assert_eq!(items.done().last().unwrap()["status"], INCOMPLETE);
        }
    }
}
