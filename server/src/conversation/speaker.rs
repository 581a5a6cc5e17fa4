//! Taking apart what the model writes, while it is written.

use crate::http::new_id;
use backstitch_models::chat::reply::{Delta, Format, Options, Parser, Reply};

/// The answer of the assistant: text goes in, content, reasoning and calls come out.
#[derive(Debug)]
pub(crate) struct Speaker {
    parser: Parser,
    reply: Reply,
}

impl Speaker {
    /// Begin an answer.
    pub fn new(format: &Format, options: &Options) -> Self {
        Speaker { parser: Parser::new(format, options), reply: Reply::default() }
    }

    /// Add text, and return what it means as far as it is certain.
    pub fn write(&mut self, text: &str) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.parser.push(text, &mut deltas);
        self.note(deltas)
    }

    /// Return what the rest of the text means, of which no more comes.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.parser.finish(&mut deltas);
        self.note(deltas)
    }

    /// Give identifiers to calls that have none, and add everything to the whole answer.
    fn note(&mut self, mut deltas: Vec<Delta>) -> Vec<Delta> {
        for delta in &mut deltas {
            if let Delta::ToolCallBegin { id, .. } = delta {
                id.get_or_insert_with(|| new_id("call_"));
            }
            self.reply.add(delta);
        }
        deltas
    }

    /// Return the answer so far.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }
}
