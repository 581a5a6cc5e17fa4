//! `backstitch chat`: talk to a model.
//!
//! Each turn renders the whole conversation with the model's template and lets the session become those
//! tokens: it keeps what is the same as before and takes back the rest. Going back a turn, or asking again,
//! is nothing special.

#[cfg(unix)]
mod editor;
mod input;

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
use input::{Input, Said};
use std::ops::ControlFlow;

/// What can be typed besides messages.
const HELP: &str = "\
/retry  another answer to the last message
/undo   forget the last message and its answer
/clear  forget everything
/exit   end (so do Ctrl-D and the end of the input)
Ctrl-C drops what is being typed, or ends the answer that comes.
A line that ends in \\ goes on in the next; several lines that are pasted are one
message, where the terminal marks what is pasted.";

/// Runs the command.
///
/// # Errors
/// If there is no sound model or it has no chat template, or input or output fails.
pub fn run(args: &ChatArgs) -> Result<(), Error> {
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    if model.graph().encoder().is_some() {
        return Err(Error::Refused(
            "this model answers one text at a time and does not chat; use `run`".into(),
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

fn refused(error: ChatError) -> Error {
    match error {
        ChatError::Cancelled => Error::Interrupted,
        error => Error::Refused(error.to_string()),
    }
}

fn no_template() -> Error {
    Error::Refused(
        "this model has no chat template; name one that was trained to chat with -m, or use `run`".into(),
    )
}

struct Chat<'a> {
    model: &'a Model,
    template: ChatTemplate,
    session: Session,
    args: &'a ChatArgs,
    /// Role and content, oldest first.
    messages: Vec<(&'static str, String)>,
    input: Input,
    out: Output,
    /// Whether somebody types.
    terminal: bool,
    /// Messages that got no answer.
    n_failed: usize,
}

impl Chat<'_> {
    /// Waits for what is said and does it. Breaks at the end of the conversation.
    fn turn(&mut self) -> Result<ControlFlow<()>, Error> {
        match self.input.read()? {
            Said::End => return Ok(ControlFlow::Break(())),
            Said::CtrlC { is_empty: true } => note("note", "to leave, type /exit or press Ctrl-D"),
            Said::CtrlC { is_empty: false } => {}
            Said::Nothing(why) => {
                note("warning", why);
                self.n_failed += 1;
            }
            Said::Message(text) => match text.trim() {
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

    fn show(&mut self, text: &str) -> Result<(), Error> {
        self.out.line(text)?;
        Ok(self.out.flush()?)
    }

    /// Forgets all but the system prompt.
    fn clear(&mut self) {
        self.messages = self.args.system_prompt.iter().map(|text| ("system", text.clone())).collect();
    }

    /// Forgets the last message and its answer.
    fn undo(&mut self) {
        match self.messages.iter().rposition(|(role, _)| *role == "user") {
            Some(last) => self.messages.truncate(last),
            None => note("note", "there is nothing to undo"),
        }
    }

    /// Answers the last message again.
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

    fn say(&mut self, text: String) -> Result<(), Error> {
        self.messages.push(("user", text));
        self.answer(None)
    }

    /// Generates an answer to what was said and remembers it; another one if there was one up to where
    /// random numbers are
    /// `used`. A message that does not fit is taken back and told, not fatal.
    fn answer(&mut self, used: Option<u64>) -> Result<(), Error> {
        let _stoppable = Stoppable::begin();
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

    /// The whole conversation as the model wants it, up to where it is to speak.
    fn tokens(&self) -> Result<Vec<Token>, Error> {
        let vocab = self.model.vocab();
        let messages = self.messages.iter().map(|(role, content)| Message { role, content });
        let conversation = Conversation::new(messages).tokens_of(vocab).cancel(interrupt::cancel());
        let mut tokens = Vec::new();
        self.template.render(&conversation).map_err(refused)?.tokenize(vocab, AddSpecial::Yes, &mut tokens);
        if tokens.is_empty() {
            return Err(Error::Refused("the chat template made no text of this".into()));
        }
        Ok(tokens)
    }
}
