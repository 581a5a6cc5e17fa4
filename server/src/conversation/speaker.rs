//! Taking apart what the model writes, while it is written.

use super::own_calls::CallFormat;
use super::turn::Turn;
use crate::engine::Tenant;
use crate::http::{App, new_id};
use backstitch_models::Token;
use backstitch_models::chat::Value;
use backstitch_models::chat::reply::{Delta, Format, Options, Parser, Reply};
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
    memory: Option<Memory>,
    /// The number of stop strings of the client; those behind them are ends of the template.
    n_stops: usize,
    /// The answer has to call a tool.
    must_call: bool,
}

/// The tokens of an answer so far, and what else it takes to remember its calls.
#[derive(Debug)]
struct Memory {
    app: Arc<App>,
    format: Format,
    tools: Arc<[Value]>,
    tenant: Tenant,
    /// The tokens of the answer so far.
    tokens: Vec<Token>,
}

impl Speaker {
    /// Begin an answer in this format.
    pub fn new(format: &Format, options: &Options) -> Self {
        let (parser, reply) = (Parser::new(format, options), Reply::default());
        Speaker { parser, reply, memory: None, n_stops: usize::MAX, must_call: false }
    }

    /// Begin the answer of a turn, whose calls are remembered.
    pub fn of_turn(app: &Arc<App>, turn: &Turn) -> Self {
        let (app, tools) = (app.clone(), turn.tools.clone());
        let tenant = turn.reading.generate.tenant;
        let memory = Memory { app, format: turn.format, tools, tenant, tokens: Vec::new() };
        let memory = Some(memory).filter(|memory| !memory.tools.is_empty());
        let (n_stops, must_call) = (turn.n_stops, turn.must_call);
        Speaker { memory, n_stops, must_call, ..Speaker::new(&turn.format, &turn.options) }
    }

    /// Add text with its tokens, and return what it means as far as it is certain.
    pub fn write(&mut self, text: &str, tokens: &[Token]) -> Vec<Delta> {
        if let Some(memory) = &mut self.memory {
            memory.tokens.extend_from_slice(tokens);
        }
        let mut deltas = Vec::new();
        self.parser.push(text, &mut deltas);
        self.note(deltas)
    }

    /// Return what the rest of the text means, of which no more comes.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.parser.finish(&mut deltas);
        let deltas = self.note(deltas);
        if let Some(Memory { app, format, tools, tenant, tokens }) = &self.memory {
            let format = CallFormat { format, tools, vocab: app.vocab(), tenant: *tenant };
            app.own_calls().remember(&self.reply.tool_calls, tokens, format);
        }
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
            // Text of an answer that has to call is that of a call, even before its name is known.
            Finish::Stop { .. } if self.must_call && !self.reply.content.is_empty() => Ending::Cut,
            Finish::End(_) => Ending::Complete,
            Finish::Stop { index } if index >= self.n_stops => Ending::Complete,
            Finish::Stop { index } => Ending::Stop(index),
            _ => Ending::Cut,
        }
    }

    /// Return the number of calls of the answer that are whole: no later text cuts them.
    pub fn n_whole(&self) -> usize {
        self.parser.n_whole()
    }

    /// Return the answer so far.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }
}
