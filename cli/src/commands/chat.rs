//! `backstitch chat`: chat with a model.
//!
//! `input` reads messages from a terminal (`keyboard`) or a pipe, `message` says what a message is,
//! and `command` which of them are commands. `conversation` keeps the messages, `answer` evaluates
//! them and generates, `template` chooses the text around them. `branches` and `saving` are about
//! several conversations, and about those that outlive the program.

mod answer;
mod branches;
mod command;
mod conversation;
mod input;
#[cfg(any(unix, windows))]
mod keyboard;
mod message;
mod saving;
mod template;

use crate::args::ChatArgs;
use crate::drafter::drafter;
use crate::error::Error;
use crate::model;
use crate::output::{Output, counted, note};
use crate::prompt::escaped;
use crate::prompt_cache::PromptCache;
use crate::session::Session;
use crate::target::{Kind, Stamp, Target};
use backstitch_models::Model;
use backstitch_models::chat::ChatError;
use branches::Branch;
use command::{Branch as BranchCommand, Command, HELP};
use conversation::{Conversation, Role};
use input::Input;
use message::Event;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use template::Template;

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the model cannot be loaded or evaluated.
/// - [`Error::Refused`] if the chat template cannot be used, or a piped message got no answer.
/// - [`Error::State`] if a saved conversation cannot be used.
/// - [`Error::NotSaved`] or [`Error::Write`] if the conversation cannot be saved.
/// - [`Error::Interrupted`] if a signal stopped an answer to piped input.
/// - [`Error::Terminal`] if input or output fails.
pub fn run(args: &ChatArgs) -> Result<(), Error> {
    if let Some(path) = &args.file.save {
        let models = [&args.model.model, &args.speculation.draft_model].map(|path| path.as_deref());
        Target::check(path, "--save", Kind::State, &models)?;
    }
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    if model.graph().encoder().is_some() {
        return Err(Error::Refused(
            "this model answers one text at a time and does not chat; use `backstitch run`, with -p TEXT"
                .into(),
        ));
    }
    model::check_biases(&args.sampling, &model)?;
    let mut chat = begin(args, &model)?;
    if args.verbose {
        chat.session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }
    match chat.converse() {
        Ok(()) => chat.end(),
        Err(error) => Err(chat.break_off(error)),
    }
}

/// Make a chat, or restore one.
fn begin<'a>(args: &'a ChatArgs, model: &'a Model) -> Result<Chat<'a>, Error> {
    let system = args.system_prompt.as_ref().map(|text| escaped(text, args.escape));
    let loaded = match &args.file.restore {
        Some(path) => saving::load(path, model, args)?,
        None => saving::fresh(model, args)?,
    };
    let template = loaded.template(model, args)?;
    let mut chat = Chat {
        model,
        template,
        session: loaded.session,
        args,
        stops: args.stops.texts(args.escape),
        branches: loaded.branches,
        current: loaded.current,
        kept: Vec::new(),
        places: loaded.place.into_iter().collect(),
        saved_as: None,
        cache: PromptCache::open(&args.cache),
        input: Input::new(args.file.history.clone()),
        out: Output::new(false),
        terminal: input::is_terminal(),
        n_failed: 0,
        n_failed_commands: 0,
    };
    if !chat.places.is_empty() {
        chat.keep();
        chat.say_restored();
    }
    if system.is_some() {
        chat.branch_mut().conversation.set_system(system);
    }
    chat.draft()?;
    Ok(chat)
}

/// Turn an error of the chat template into one of the command.
fn refused(error: ChatError) -> Error {
    match error {
        ChatError::Cancelled => Error::Interrupted,
        error => Error::Refused(error.to_string()),
    }
}

/// A file that holds the chat.
struct Place {
    path: PathBuf,
    /// The file as it was when it was read or written last; none where that cannot be told.
    stamp: Option<Stamp>,
}

/// A chat: conversations of which one is current.
///
/// The messages are what counts: the session holds the tokens of some earlier state of them, and is
/// brought up to date before each answer.
struct Chat<'a> {
    /// The model, for its vocabulary.
    model: &'a Model,
    /// The chat template, which turns messages into text.
    template: Template,
    /// The tokens that are evaluated, with the samplers.
    session: Session,
    /// The options of the command.
    args: &'a ChatArgs,
    /// Texts that end an answer.
    stops: Vec<String>,
    /// The branches, at least one.
    branches: Vec<Branch>,
    /// Index of the current branch, which has a sequence.
    current: usize,
    /// The conversations of the branches as a file has them; none before the chat was saved.
    kept: Vec<Conversation>,
    /// The files in which the chat, or an earlier state of it, was saved or found. The last one was
    /// used last.
    places: Vec<Place>,
    /// The file in which `--save` saved the chat last, or from which `/load` took it.
    saved_as: Option<PathBuf>,
    /// The prompt cache, if one was asked for.
    cache: Option<PromptCache>,
    /// The source of messages.
    input: Input,
    /// Standard output, for answers and what commands show; notes go to standard error.
    out: Output,
    /// True if a person types, false if messages come from a pipe.
    terminal: bool,
    /// Number of messages that got no answer.
    n_failed: usize,
    /// Number of commands that could not be carried out.
    n_failed_commands: usize,
}

impl Chat<'_> {
    /// Answer the prompt of the command line, and then messages until there are no more.
    fn converse(&mut self) -> Result<(), Error> {
        if let Some(prompt) = &self.args.prompt {
            self.say(escaped(prompt, self.args.escape))?;
        }
        if self.terminal {
            note("note", "type a message, or /help");
        }
        while self.turn()?.is_continue() {}
        Ok(())
    }

    /// Save the chat after an error of the terminal, which ends it and leaves its conversations as
    /// they were: the reader of the output went away, for example, as `head` does. Returns the
    /// error to end with. That a reader went away is no failure, but a failed save is.
    fn break_off(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Terminal(_)) || !self.is_unsaved() {
            return error;
        }
        match self.save_after_answer() {
            Err(failed) if error.is_closed_pipe() => failed,
            Err(failed) => {
                note("warning", crate::error::chain(&failed));
                error
            }
            Ok(()) => error,
        }
    }

    /// Wait for a message or a command, and carry it out. Breaks at the end of the conversation.
    fn turn(&mut self) -> Result<ControlFlow<()>, Error> {
        match self.input.read("")? {
            Event::End => return Ok(ControlFlow::Break(())),
            Event::CtrlC { is_empty: true } => note("note", "to leave, type /exit or press Ctrl-D"),
            Event::CtrlC { is_empty: false } => {}
            Event::Invalid(why) => {
                note("warning", why);
                self.n_failed += 1;
            }
            Event::Message(text) if text.trim().is_empty() => {}
            Event::Message(text) => match Command::parse(&text) {
                None => self.say(text)?,
                Some(Ok(Command::Exit)) => return Ok(ControlFlow::Break(())),
                Some(Ok(command)) => self.carry_out(command)?,
                Some(Err(why)) => self.failed(why),
            },
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Carry out a command. One that cannot be carried out is told and counted.
    fn carry_out(&mut self, command: Command<'_>) -> Result<(), Error> {
        match command {
            Command::Help => self.show(HELP),
            Command::List => self.list_messages(),
            Command::Edit(number, text) => self.edit(number, text),
            Command::Regenerate => self.regenerate(),
            Command::Undo => {
                let n = self.branch().conversation.n_turns();
                if !self.branch_mut().conversation.remove_from(n) {
                    self.failed("there is nothing to undo");
                }
                Ok(())
            }
            Command::Clear => {
                self.branch_mut().conversation.remove_from(1);
                Ok(())
            }
            Command::System(None) => {
                let system = self.branch().conversation.system().map(String::from);
                self.show(system.as_deref().unwrap_or("there is no system prompt"))
            }
            Command::System(Some(text)) => {
                let text = Some(text).filter(|text| *text != "-").map(String::from);
                self.branch_mut().conversation.set_system(text);
                Ok(())
            }
            Command::Branch(BranchCommand::List) => self.list_branches(),
            Command::Branch(BranchCommand::New) => self.new_branch(),
            Command::Branch(BranchCommand::Switch(number)) => self.switch(number),
            Command::Branch(BranchCommand::Drop(number)) => self.drop_branch(number),
            Command::Save(path) => {
                let saved = self.save(path.map(PathBuf::from), "/save", false);
                self.tell(saved)
            }
            Command::Load { path, force } => {
                let loaded = self.load(Path::new(path), force);
                self.tell(loaded)
            }
            Command::Stats => {
                let lines = [self.session.usage()?, self.session.stats.lines().to_vec()].concat();
                self.show(lines.join("\n"))
            }
            // The loop of the chat ends there.
            Command::Exit => Ok(()),
        }
    }

    /// Tell why a command failed. Failures of the terminal end the chat.
    fn tell(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(error @ Error::Terminal(_)) => Err(error),
            Err(error) => {
                self.failed(crate::error::chain(&error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Count a command that could not be carried out, and tell why.
    fn failed(&mut self, why: impl Display) {
        self.n_failed_commands += 1;
        note("warning", why);
    }

    /// Print lines.
    fn show(&mut self, text: impl Display) -> Result<(), Error> {
        self.out.line(text)?;
        Ok(self.out.flush()?)
    }

    /// Replace message `number`, or the last, and forget everything after it. Without a text, a
    /// person gets the message to change it.
    fn edit(&mut self, number: Option<usize>, text: Option<&str>) -> Result<(), Error> {
        let turn = number.unwrap_or_else(|| self.branch().conversation.n_turns());
        let Some(old) = self.branch().conversation.message_of(turn).map(String::from) else {
            self.failed("there is no such message; /list shows them");
            return Ok(());
        };
        let text = match text {
            Some(text) => text.to_owned(),
            None if self.input.can_edit() => match self.input.read(&old)? {
                Event::Message(text) if !text.trim().is_empty() => text,
                _ => {
                    note("note", "the message is as it was");
                    return Ok(());
                }
            },
            None => {
                self.failed("/edit needs the new text here: /edit N TEXT");
                return Ok(());
            }
        };
        let before = self.branch().conversation.clone();
        self.branch_mut().conversation.remove_from(turn);
        self.branch_mut().conversation.push(Role::User, text);
        self.answer(None, Some(before))
    }

    /// Generate another answer to the last message.
    fn regenerate(&mut self) -> Result<(), Error> {
        let before = self.branch().conversation.clone();
        if !self.branch_mut().conversation.remove_answer() {
            self.failed("there is nothing to answer");
            return Ok(());
        }
        let used = self.session.random();
        self.answer(Some(used), Some(before))
    }

    /// Use speculative decoding, if that is wanted.
    fn draft(&mut self) -> Result<(), Error> {
        let args = self.args;
        let n_ctx = self.session.n_ctx();
        if let Some(drafter) = drafter(&args.speculation, &args.model, &args.context, self.model, n_ctx)? {
            self.session.draft_with(drafter, args.speculation.draft_max.into());
        }
        Ok(())
    }

    /// Save what changed after the last answer, wait for the prompt cache, and report.
    fn end(mut self) -> Result<(), Error> {
        let saved = if self.is_unsaved() { self.save_after_answer() } else { Ok(()) };
        if let Some(cache) = &mut self.cache {
            cache.finish(&mut self.session);
        }
        self.session.report(self.args.verbose, true);
        saved?;
        match (self.n_failed, self.n_failed_commands) {
            _ if self.terminal => Ok(()),
            (0, 0) => Ok(()),
            (0, n) => Err(Error::Refused(format!("{} failed", counted(n, "command")))),
            (n, _) => Err(Error::Refused(format!("{} got no answer", counted(n, "message")))),
        }
    }
}
