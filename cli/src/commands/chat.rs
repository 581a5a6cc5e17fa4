//! `backstitch chat`: chat with a model.
//!
//! Each turn renders the whole conversation with the model's chat template and makes the session
//! hold those tokens: it keeps the prefix that is the same as before and rolls back the rest. So
//! undoing a turn, or asking for another answer, needs no code of its own.
//!
//! `input` reads messages from a terminal or a pipe, `editor` is the line that is being typed, and
//! `message` says what a message is.

#[cfg(unix)]
mod editor;
mod input;
mod message;

use crate::args::ChatArgs;
use crate::error::Error;
use crate::interrupt::{self, Stoppable};
use crate::model;
use crate::output::{Output, counted, note};
use crate::session::{Session, Until};
use backstitch_models::chat::{ChatError, ChatTemplate, Conversation, Message};
use backstitch_models::session::Finish;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Model, Token};
use input::Input;
use message::Event;
use std::ops::ControlFlow;

/// The answer to `/help`: everything that can be typed besides messages.
const HELP: &str = "\
/retry  another answer to the last message
/undo   forget the last message and its answer
/clear  forget the whole conversation
/exit   leave (so do Ctrl-D and the end of the input)
Ctrl-C drops the line that is being typed, or stops the answer.
A line that ends in \\ continues in the next one. Pasted lines are one message
if the terminal marks pasted text.";

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Refused`] if the model has no chat template, or a piped message got no answer.
/// - [`Error::Interrupted`] if a signal stopped an answer to piped input.
/// - [`Error::Terminal`] if input or output fails.
pub fn run(args: &ChatArgs) -> Result<(), Error> {
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    if model.graph().encoder().is_some() {
        return Err(Error::Refused(
            "this model answers one text at a time and does not chat; use `backstitch run`".into(),
        ));
    }
    model::check_biases(&args.sampling, &model)?;
    let source = model.chat_template().ok_or_else(no_template)?;
    let template = ChatTemplate::from_source(source).map_err(refused)?;
    let session = Session::new(&model, &args.context, &args.sampling)?;
    if args.verbose {
        session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }
    let terminal = input::is_terminal();
    let messages = Vec::new();
    let out = Output::new(false);
    let mut chat = Chat {
        model: &model,
        template,
        session,
        args,
        messages,
        input: Input::default(),
        out,
        terminal,
        n_failed: 0,
    };
    chat.clear();
    if let Some(prompt) = &args.prompt {
        chat.say(prompt.clone())?;
    }
    if terminal {
        note("note", "type a message, or /help");
    }
    while chat.turn()?.is_continue() {}
    if args.verbose {
        chat.session.stats.lines().iter().for_each(|line| note("note", line));
    }
    match chat.n_failed {
        n if n > 0 && !terminal => Err(Error::Refused(format!("{} got no answer", counted(n, "message")))),
        _ => Ok(()),
    }
}

/// Turn an error of the chat template into one of the command.
fn refused(error: ChatError) -> Error {
    match error {
        ChatError::Cancelled => Error::Interrupted,
        error => Error::Refused(error.to_string()),
    }
}

/// Make the error about a model without a chat template.
fn no_template() -> Error {
    Error::Refused(
        "this model has no chat template; name one that was trained to chat with -m, \
         or use `backstitch run`"
            .into(),
    )
}

/// A conversation.
///
/// The messages are what counts: the session holds the tokens of some earlier state of them, and is
/// brought up to date before each answer.
struct Chat<'a> {
    /// The model, for its vocabulary.
    model: &'a Model,
    /// The model's chat template, which turns messages into text.
    template: ChatTemplate,
    /// The tokens that are evaluated, with the sampler.
    session: Session,
    /// The options of the command.
    args: &'a ChatArgs,
    /// Role and content of each message, oldest first.
    messages: Vec<(&'static str, String)>,
    /// The source of messages.
    input: Input,
    /// Standard output, for answers only; notes go to standard error.
    out: Output,
    /// True if a person types, false if messages come from a pipe.
    terminal: bool,
    /// Number of messages that got no answer.
    n_failed: usize,
}

impl Chat<'_> {
    /// Wait for a message or a command, and carry it out. Breaks at the end of the conversation.
    fn turn(&mut self) -> Result<ControlFlow<()>, Error> {
        match self.input.read()? {
            Event::End => return Ok(ControlFlow::Break(())),
            Event::CtrlC { is_empty: true } => note("note", "to leave, type /exit or press Ctrl-D"),
            Event::CtrlC { is_empty: false } => {}
            Event::Invalid(why) => {
                note("warning", why);
                self.n_failed += 1;
            }
            Event::Message(text) => match text.trim() {
                "" => {}
                "/exit" | "/quit" => return Ok(ControlFlow::Break(())),
                "/help" => self.show(HELP)?,
                "/clear" => self.clear(),
                "/undo" => self.undo(),
                "/retry" => self.retry()?,
                command if command.starts_with('/') && !command.contains('\n') => {
                    note("note", format_args!("no such command: {command}; try /help"));
                }
                _ => self.say(text)?,
            },
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Print a line.
    fn show(&mut self, text: &str) -> Result<(), Error> {
        self.out.line(text)?;
        Ok(self.out.flush()?)
    }

    /// Forget all messages but the system prompt.
    fn clear(&mut self) {
        self.messages = self.args.system_prompt.iter().map(|text| ("system", text.clone())).collect();
    }

    /// Forget the last message of the person and its answer.
    fn undo(&mut self) {
        match self.messages.iter().rposition(|(role, _)| *role == "user") {
            Some(last) => self.messages.truncate(last),
            None => note("note", "there is nothing to undo"),
        }
    }

    /// Generate another answer to the last message.
    fn retry(&mut self) -> Result<(), Error> {
        match self.messages.iter().rposition(|(role, _)| *role == "user") {
            Some(last) => {
                self.messages.truncate(last + 1);
                let used = self.session.random();
                self.answer(Some(used))
            }
            None => {
                note("note", "there is nothing to answer");
                Ok(())
            }
        }
    }

    /// Add a message of the person, and answer it.
    fn say(&mut self, text: String) -> Result<(), Error> {
        self.messages.push(("user", text));
        self.answer(None)
    }

    /// Generate an answer to the last message and add it. `used` is the state of the random numbers
    /// after an earlier answer, which the new one should not repeat. A message that does not fit
    /// the context is removed with a warning.
    fn answer(&mut self, used: Option<u64>) -> Result<(), Error> {
        let _stoppable = Stoppable::begin();
        // Evaluate the conversation. A message that cannot be answered is removed: the next one
        // would fail with it.
        match self.tokens().and_then(|tokens| self.session.become_tokens(&tokens)) {
            Err(Error::Interrupted) if !self.terminal => return Err(Error::Interrupted),
            Err(error @ (Error::Refused(_) | Error::Interrupted)) => {
                self.n_failed += 1;
                note("warning", format_args!("{error}; the last message is forgotten"));
                self.messages.pop();
                return Ok(());
            }
            other => other?,
        }
        used.into_iter().for_each(|used| self.session.draw_anew(used));
        let mut answer = String::new();
        let out = &mut self.out;
        let stop = self.session.generate(Until::tokens(self.args.n_predict), |piece| {
            answer.push_str(&piece.text);
            Ok(out.stream(&piece.text)?)
        })?;
        self.show("")?;
        // An answer that was stopped stays in the conversation as far as it came.
        self.messages.push(("assistant", answer));
        if stop == Finish::Cancelled {
            if !self.terminal {
                return Err(Error::Interrupted);
            }
            self.input.forget();
        }
        if stop == Finish::ContextFull {
            note("warning", "the context is full; /undo, /clear or start again with a larger -c");
        }
        Ok(())
    }

    /// Return the tokens of the whole conversation, up to the beginning of the answer.
    fn tokens(&self) -> Result<Vec<Token>, Error> {
        let vocab = self.model.vocab();
        // Control tokens are recognised in the template's own text only, never in messages.
        let messages = self.messages.iter().map(|(role, content)| Message { role, content });
        let conversation = Conversation::new(messages).tokens_of(vocab).cancel(interrupt::cancel());
        let mut tokens = Vec::new();
        self.template.render(&conversation).map_err(refused)?.tokenize(vocab, AddSpecial::Yes, &mut tokens);
        if tokens.is_empty() {
            return Err(Error::Refused("the chat template made no text of this message".into()));
        }
        Ok(tokens)
    }
}
