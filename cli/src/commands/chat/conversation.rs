//! Messages of a conversation, apart from any model: turns, and the JSON in which they are saved.
//!
//! A *turn* begins with a message of the person and ends before the next one. When the context is
//! full, the oldest turns are left out of what the model reads; they stay in the list.

use backstitch_models::chat::Value as ChatValue;
use serde_json::{Value, json};

/// The speaker of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody: instructions for the model.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Return the name that chat templates use.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// Return the role that a saved conversation names; `None` for names that a later release may
    /// have added.
    fn of_name(name: &str) -> Option<Self> {
        [Self::System, Self::User, Self::Assistant].into_iter().find(|role| role.name() == name)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The speaker.
    pub role: Role,
    /// The text, which control tokens are never recognised in.
    pub text: String,
    /// The reasoning of the model before its text.
    pub reasoning: String,
}

impl Message {
    /// Return the message as chat templates see it.
    pub fn to_value(&self) -> ChatValue {
        let mut entries = vec![("role", self.role.name().into()), ("content", self.text.as_str().into())];
        if !self.reasoning.is_empty() {
            // The names that different models have for it.
            entries
                .extend(["reasoning_content", "thinking"].map(|name| (name, self.reasoning.as_str().into())));
        }
        ChatValue::map(entries)
    }

    /// Return the message as JSON.
    fn to_json(&self) -> Value {
        let mut value = json!({ "role": self.role.name(), "content": self.text.as_str() });
        if !self.reasoning.is_empty() {
            value["reasoning"] = json!(self.reasoning);
        }
        value
    }
}

/// The messages of a conversation: at most one of the system, which comes first, and turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages, oldest first.
    messages: Vec<Message>,
    /// Number of the oldest turns that are left out; less than the number of turns, or 0.
    n_left_out: usize,
}

impl Conversation {
    /// Return the messages, oldest first.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Return the message of the system.
    pub fn system(&self) -> Option<&str> {
        let first = self.messages.first().filter(|message| message.role == Role::System);
        first.map(|message| message.text.as_str())
    }

    /// Replace the message of the system, or remove it.
    pub fn set_system(&mut self, text: Option<String>) {
        self.messages.retain(|message| message.role != Role::System);
        if let Some(text) = text {
            self.messages.insert(0, Message { role: Role::System, text, reasoning: String::new() });
        }
    }

    /// Add a message.
    pub fn push(&mut self, role: Role, text: String) {
        self.messages.push(Message { role, text, reasoning: String::new() });
    }

    /// Add an answer of the model with its reasoning.
    pub fn push_answer(&mut self, text: String, reasoning: String) {
        self.messages.push(Message { role: Role::Assistant, text, reasoning });
    }

    /// Remove the last message.
    pub fn pop(&mut self) {
        self.messages.pop();
        self.keep_one_turn();
    }

    /// Return the number of turns.
    pub fn n_turns(&self) -> usize {
        self.messages.iter().filter(|message| message.role == Role::User).count()
    }

    /// Return the number of turns that are left out.
    pub fn n_left_out(&self) -> usize {
        self.n_left_out
    }

    /// Return the index of the message with which a turn begins. The first turn is 1.
    fn start(&self, turn: usize) -> Option<usize> {
        let mut starts = (0..).zip(&self.messages).filter(|(_, message)| message.role == Role::User);
        starts.nth(turn.checked_sub(1)?).map(|(at, _)| at)
    }

    /// Return the message of the person in a turn.
    pub fn message_of(&self, turn: usize) -> Option<&str> {
        Some(self.messages.get(self.start(turn)?)?.text.as_str())
    }

    /// Remove a turn and all turns after it. Returns false if there is no such turn.
    pub fn remove_from(&mut self, turn: usize) -> bool {
        let start = self.start(turn);
        self.messages.truncate(start.unwrap_or(usize::MAX));
        self.keep_one_turn();
        start.is_some()
    }

    /// Remove the answer of the last turn. Returns false if there is no turn.
    pub fn remove_answer(&mut self) -> bool {
        let start = self.start(self.n_turns());
        self.messages.truncate(start.map_or(usize::MAX, |start| start + 1));
        start.is_some()
    }

    /// Leave out one more of the oldest turns. Returns false if only one is left.
    pub fn leave_out(&mut self) -> bool {
        let can = self.n_left_out + 1 < self.n_turns();
        self.n_left_out += usize::from(can);
        can
    }

    /// Leave out no turn that would leave none.
    fn keep_one_turn(&mut self) {
        self.n_left_out = self.n_left_out.min(self.n_turns().saturating_sub(1));
    }

    /// Iterate over the messages that the model reads.
    pub fn read(&self) -> impl Iterator<Item = &Message> {
        let start = self.start(self.n_left_out + 1).unwrap_or(0);
        let is_read = move |(at, message): &(usize, &Message)| *at >= start || message.role == Role::System;
        let all = self.messages.iter().enumerate().filter(is_read);
        all.map(|(_, message)| message)
    }

    /// Return the conversation as JSON.
    pub fn to_json(&self) -> Value {
        let messages: Vec<_> = self.messages.iter().map(Message::to_json).collect();
        json!({ "left_out": self.n_left_out, "messages": messages })
    }

    /// Read what [`Conversation::to_json`] wrote; none if it is anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        let mut conversation = Self::default();
        for (at, message) in value.get("messages")?.as_array()?.iter().enumerate() {
            let role = Role::of_name(message.get("role")?.as_str()?)?;
            if role == Role::System && at > 0 {
                return None;
            }
            let text = message.get("content")?.as_str()?.into();
            let reasoning = message.get("reasoning").map_or(Some(""), Value::as_str)?.into();
            conversation.messages.push(Message { role, text, reasoning });
        }
        conversation.n_left_out = usize::try_from(value.get("left_out")?.as_u64()?).ok()?;
        conversation.keep_one_turn();
        Some(conversation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Conversation {
        let mut conversation = Conversation::default();
        conversation.set_system(Some("be brief".into()));
        for turn in 1..=3 {
            conversation.push(Role::User, format!("question {turn}"));
            conversation.push(Role::Assistant, format!("answer {turn}"));
        }
        conversation
    }

    fn texts(conversation: &Conversation) -> Vec<&str> {
        conversation.read().map(|message| message.text.as_str()).collect()
    }

    #[test]
    fn turns_are_left_out_whole_and_the_system_stays() {
        let mut conversation = example();
        assert!(conversation.leave_out() && conversation.leave_out());
        assert!(!conversation.leave_out(), "the last turn stays");
        assert_eq!(texts(&conversation), ["be brief", "question 3", "answer 3"]);
        assert!(conversation.remove_from(2));
        assert_eq!(texts(&conversation), ["be brief", "question 1", "answer 1"]);
    }

    #[test]
    fn turns_are_counted_from_1() {
        let mut conversation = example();
        assert_eq!(conversation.message_of(2), Some("question 2"));
        assert_eq!((conversation.message_of(0), conversation.message_of(4)), (None, None));
        assert!(conversation.remove_answer());
        assert_eq!(conversation.messages().last().unwrap().text, "question 3");
        assert!(conversation.remove_from(1) && !conversation.remove_from(1) && !conversation.remove_answer());
        assert_eq!(texts(&conversation), ["be brief"]);
    }

    #[test]
    fn a_conversation_comes_back_from_its_json() {
        let mut conversation = example();
        conversation.leave_out();
        conversation.push_answer("answer 4".into(), "Hm.".into());
        assert_eq!(Conversation::from_json(&conversation.to_json()), Some(conversation));
    }

    #[test]
    fn json_of_anything_else_is_refused() {
        let message = |role: &str| json!({ "role": role, "content": "a" });
        for wrong in [
            json!(null),
            json!({ "messages": [] }),
            json!({ "left_out": -1, "messages": [] }),
            json!({ "left_out": 0, "messages": [message("tool")] }),
            json!({ "left_out": 0, "messages": [message("user"), message("system")] }),
            json!({ "left_out": 0, "messages": [{ "role": "user" }] }),
        ] {
            assert_eq!(Conversation::from_json(&wrong), None, "{wrong}");
        }
        let many = json!({ "left_out": 9, "messages": [message("user")] });
        assert_eq!(Conversation::from_json(&many).unwrap().n_left_out(), 0);
    }
}
