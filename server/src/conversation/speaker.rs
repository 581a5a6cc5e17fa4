//! Taking apart what the model writes, while it is written.

use super::own_calls::CallFormat;
use super::turn::Turn;
use crate::http::{App, new_id};
use backstitch_models::Token;
use backstitch_models::chat::Value;
use backstitch_models::chat::reply::{Delta, Format, Parser, Reply};
use backstitch_models::session::Finish;
use std::sync::Arc;

/// The way in which an answer ended, as all interfaces tell it in their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The model said all that it wanted to.
    Complete,
    /// A stop string was found: that with this index.
    Stop(usize),
    /// The answer calls tools, and every call is whole.
    Calls,
    /// The answer goes on: a limit was met, or a call was begun and not ended.
    Cut,
}

/// The answer of the assistant: text goes in, content, reasoning and calls come out.
#[derive(Debug)]
pub(crate) struct Speaker {
    parser: Parser,
    reply: Reply,
    app: Arc<App>,
    format: Format,
    tools: Arc<[Value]>,
    /// The tokens of the text.
    tokens: Vec<Token>,
}

impl Speaker {
    /// Begin the answer of a turn.
    pub fn new(app: &Arc<App>, turn: &Turn) -> Self {
        Speaker {
            parser: Parser::new(&turn.format, &turn.options),
            reply: Reply::default(),
            app: app.clone(),
            format: turn.format,
            tools: turn.tools.clone(),
            tokens: Vec::new(),
        }
    }

    /// Add text with its tokens, and return what it means as far as it is certain.
    pub fn write(&mut self, text: &str, tokens: &[Token]) -> Vec<Delta> {
        if !self.tools.is_empty() {
            self.tokens.extend_from_slice(tokens);
        }
        let mut deltas = Vec::new();
        self.parser.push(text, &mut deltas);
        self.note(deltas)
    }

    /// Return what the rest of the text means, of which no more comes. Calls are remembered as the
    /// model wrote them.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.parser.finish(&mut deltas);
        let deltas = self.note(deltas);
        let format = CallFormat { format: &self.format, tools: &self.tools, vocab: self.app.vocab() };
        self.app.own_calls().remember(&self.reply.tool_calls, &self.tokens, format);
        deltas
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

    /// Return the way in which the answer ended, once it is [finished](Self::finish).
    pub fn ending(&self, finish: Finish) -> Ending {
        match finish {
            _ if self.reply.is_cut => Ending::Cut,
            Finish::End(_) | Finish::Stop { .. } if !self.reply.tool_calls.is_empty() => Ending::Calls,
            Finish::End(_) => Ending::Complete,
            Finish::Stop { index } => Ending::Stop(index),
            _ => Ending::Cut,
        }
    }

    /// Return the answer so far.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }
}
