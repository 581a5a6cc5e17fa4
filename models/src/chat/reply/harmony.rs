//! The parser of gpt-oss' format: messages with headers.
//!
//! A message is a header, `<|message|>`, and a body up to `<|end|>`, `<|call|>` or `<|return|>`.
//! The header names a channel (`analysis` is reasoning, `commentary` and `final` are content) and
//! possibly a recipient, `to=functions.NAME`, whose message is the arguments of a call. The prompt
//! ends with `<|start|>assistant`, so the text begins within a header.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Trigger;
use super::cursor::{Cursor, Step, is_name};
use super::output::Output;
use super::scanner::Scanner;
use super::tools::{Context, Tool, Tools};

/// The longest header, in bytes.
pub(super) const MAX_HEADER: usize = 512;
/// The marker before a header.
const START: &str = "<|start|>";
/// The beginning of a message of the assistant, behind which its header goes on.
pub(super) const ROLE: &str = "<|start|>assistant";
/// The marker before the name of a channel.
const CHANNEL: &str = "<|channel|>";
/// The marker before a body.
pub(super) const MESSAGE: &str = "<|message|>";
/// The text before the name of a tool.
pub(super) const RECIPIENT: &str = " to=functions.";
/// The markers behind or between bodies.
pub(super) const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", START, CHANNEL];

/// Return the texts that begin a call. The recipient stands behind the role, which the prompt may
/// have written, or behind the channel.
pub(super) fn triggers() -> Vec<Trigger> {
    let anywhere = ["<|start|>assistant", "<|channel|>commentary", "<|channel|>analysis"];
    let anywhere = anywhere.map(|before| Trigger::Anywhere(format!("{before}{RECIPIENT}")));
    anywhere.into_iter().chain([Trigger::AtStart(RECIPIENT.to_string())]).collect()
}

/// Return the text of a call with these arguments, up to the token that ends the answer.
pub(super) fn written(name: &str, arguments: &str) -> String {
    format!("{CHANNEL}commentary{RECIPIENT}{name} <|constrain|>json{MESSAGE}{arguments}")
}

/// All markers.
pub(super) const MARKERS: [&str; 7] =
    [START, CHANNEL, MESSAGE, "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"];

/// The parser.
#[derive(Debug)]
pub(super) struct Harmony {
    /// The position.
    state: State,
    /// True until the first message.
    is_first: bool,
}

/// A position.
#[derive(Debug)]
enum State {
    /// Before a header or a body.
    Between,
    /// In a header.
    Header,
    /// In a body of content.
    Content,
    /// In a body of reasoning.
    Reasoning,
    /// Before the body of a call to this tool.
    BeforeCall(String),
    /// In the arguments of a call, whose text so far is kept.
    Call(Scanner, String),
}

/// The text at a position.
enum Found {
    /// A marker at this offset.
    Marker(usize, &'static str),
    /// None before this offset, where one may begin.
    None(usize),
}

impl Harmony {
    /// Make a parser of a text that begins in or before a header.
    pub(super) fn new() -> Self {
        Self { state: State::Between, is_first: true }
    }

    /// Begin within a message of reasoning, whose header is `open`.
    pub(super) fn begin_in_reasoning(&mut self, open: &str, output: &mut Output) {
        (self.state, self.is_first) = (State::Reasoning, false);
        output.begin_reasoning(open);
    }

    /// Read `text` as far as it is decided, and return the number of bytes that were read.
    pub(super) fn run(
        &mut self,
        text: &str,
        ended: bool,
        context: Context<'_>,
        output: &mut Output,
    ) -> usize {
        let mut cursor = Cursor { text, at: 0, ended };
        loop {
            let goes_on = match &mut self.state {
                State::Between => self.between(&mut cursor, output),
                State::Header => self.header(&mut cursor, context.tools, output),
                State::BeforeCall(name) => {
                    cursor.skip_space();
                    match cursor.peek() {
                        Some('{') if context.parallel || output.n_calls() == 0 => {
                            output.begin_call(name, None);
                            self.state = State::Call(Scanner::new(), String::new());
                            true
                        }
                        None if !ended => false,
                        None => {
                            output.cut_calls(true);
                            false
                        }
                        // Arguments that are no object are shown.
                        _ => {
                            self.state = State::Content;
                            true
                        }
                    }
                }
                State::Call(scanner, read) => {
                    let (start, mut arguments) = (cursor.at, String::new());
                    let step = scanner.advance(&mut cursor, &mut arguments);
                    output.arguments(&arguments);
                    read.push_str(text.get(start..cursor.at).unwrap_or(""));
                    match step {
                        Step::More => false,
                        Step::Done => {
                            output.complete_call();
                            output.close_calls();
                            self.state = State::Between;
                            true
                        }
                        Step::Failed => {
                            output.cut_calls(false);
                            output.content(read);
                            self.state = State::Content;
                            true
                        }
                    }
                }
                State::Content | State::Reasoning => self.body(&mut cursor, output),
            };
            if !goes_on {
                return cursor.at;
            }
        }
    }

    /// Read between messages, and return true if the text goes on.
    fn between(&mut self, cursor: &mut Cursor<'_>, output: &mut Output) -> bool {
        let start = cursor.at;
        cursor.skip_space();
        let Some(c) = cursor.peek() else {
            if cursor.ended {
                output.content(cursor.text.get(start..).unwrap_or(""));
            } else {
                cursor.at = start;
            }
            return false;
        };
        // The first header has neither `<|start|>` nor a role.
        let mut may_grow = self.is_first && !cursor.ended && "to=".starts_with(cursor.rest());
        if self.is_first && cursor.rest().starts_with("to=") {
            self.state = State::Header;
            return true;
        }
        for marker in [START, CHANNEL, "<|end|>", "<|call|>", "<|return|>"] {
            if cursor.rest().starts_with(marker) {
                if marker == START || marker == CHANNEL {
                    self.state = State::Header;
                } else {
                    cursor.at += marker.len();
                }
                return true;
            }
            may_grow |= c == '<' && !cursor.ended && marker.starts_with(cursor.rest());
        }
        cursor.at = start;
        if may_grow {
            return false;
        }
        (self.state, self.is_first) = (State::Content, false);
        true
    }

    /// Read a header, and return true if the text goes on.
    fn header(&mut self, cursor: &mut Cursor<'_>, tools: &Tools, output: &mut Output) -> bool {
        self.is_first = false;
        let rest = cursor.rest();
        let longest = rest.floor_char_boundary(MAX_HEADER + MESSAGE.len());
        let found = rest.get(..longest).and_then(|front| front.find(MESSAGE));
        let Some(n) = found else {
            if rest.len() <= MAX_HEADER + MESSAGE.len() && !cursor.ended {
                return false;
            }
            // A header that was cut is no text; one that is too long to be one is.
            if rest.len() > MAX_HEADER {
                let n = if rest.starts_with(START) { START.len() } else { rest.len().min(CHANNEL.len()) };
                let n = rest.char_indices().map(|(i, _)| i).find(|i| *i >= n).unwrap_or(rest.len());
                output.content(rest.get(..n).unwrap_or(""));
                cursor.at += n;
                self.state = State::Content;
                return true;
            }
            output.cut_calls(recipient(rest, tools).is_some());
            cursor.at = cursor.text.len();
            return false;
        };
        let header = rest.get(..n).unwrap_or("");
        cursor.at += n + MESSAGE.len();
        let channel = header.rsplit_once(CHANNEL).map_or("", |(_, channel)| channel);
        self.state = match recipient(header, tools) {
            Some(tool) => State::BeforeCall(tool.name.to_string()),
            None if channel.trim_start().starts_with("analysis") => {
                let from = header.rfind(CHANNEL).unwrap_or(0);
                let open = rest.get(from..n + MESSAGE.len()).unwrap_or("");
                output.begin_reasoning(open);
                State::Reasoning
            }
            None => State::Content,
        };
        true
    }

    /// Read a body, and return true if the text goes on.
    fn body(&mut self, cursor: &mut Cursor<'_>, output: &mut Output) -> bool {
        let rest = cursor.rest();
        let (n, marker) = match find(rest, cursor.ended) {
            Found::Marker(n, marker) => (n, Some(marker)),
            Found::None(n) => (n, None),
        };
        let text = rest.get(..n).unwrap_or("");
        let is_reasoning = matches!(self.state, State::Reasoning);
        if is_reasoning {
            output.reasoning(text);
        } else {
            output.content(text);
        }
        cursor.at += n;
        let Some(marker) = marker else {
            return false;
        };
        let is_header = marker == START || marker == CHANNEL;
        if is_reasoning {
            output.end_reasoning(if is_header { "" } else { marker });
        }
        if !is_header {
            cursor.at += marker.len();
        }
        self.state = State::Between;
        true
    }
}

/// Return the tool that a header names as the recipient of its message.
pub(super) fn recipient<'t>(header: &str, tools: &'t Tools) -> Option<&'t Tool> {
    // A header without a message may stand before the one that counts.
    let last = header.rfind(START).map_or(header, |i| header.get(i..).unwrap_or(""));
    let (_, recipient) = last.rsplit_once("to=")?;
    let recipient = recipient.split(|c| !is_name(c)).next()?;
    tools.get(recipient.strip_prefix("functions.").unwrap_or(recipient))
}

/// Find the first marker that ends a body.
fn find(text: &str, ended: bool) -> Found {
    for (i, _) in text.match_indices("<") {
        let rest = text.get(i..).unwrap_or("");
        if let Some(marker) = ENDS.into_iter().find(|marker| rest.starts_with(marker)) {
            return Found::Marker(i, marker);
        }
        if !ended && ENDS.iter().any(|marker| marker.starts_with(rest)) {
            return Found::None(i);
        }
    }
    Found::None(text.len())
}
