//! `backstitch chat`: talk to a model.
//!
//! Each turn renders the whole conversation with the model's template and lets the session become those tokens: it keeps
//! what is the same as before and takes back the rest. Going back a turn, or asking again, is nothing special.

use crate::args::ChatArgs;
use crate::error::Error;
use crate::interrupt::Stoppable;
use crate::model;
use crate::output::{Output, note};
use crate::session::{Session, Stop, Until};
use backstitch_models::chat::{ChatError, ChatTemplate, GenerationPrompt, Message};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Model, Token};
use std::io::{self, BufRead, IsTerminal, Write};

/// What can be typed besides messages.
const HELP: &str = "\
/retry  another answer to the last message
/undo   forget the last message and its answer
/clear  forget everything
/exit   end (so do Ctrl-C and the end of the input; while an answer comes, Ctrl-C ends it)
A line that ends in \\ goes on in the next.";

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
    let source = model.chat_template().ok_or_else(no_template)?;
    let template = ChatTemplate::from_source(source).map_err(refused)?;
    let session = Session::new(&model, &args.context, &args.sampling)?;
    if args.verbose {
        session.machine(args.context.n_threads).iter().for_each(|line| note("note", line));
    }
    let mut chat =
        Chat { model: &model, template, session, args, messages: Vec::new(), out: Output::new(false) };
    chat.clear();
    if let Some(prompt) = &args.prompt {
        chat.say(prompt.clone())?;
    }
    let terminal = io::stdin().is_terminal();
    if terminal {
        note("note", "type a message, or /help");
    }
    while let Some(line) = read_message(terminal)? {
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => break,
            "/help" => chat.show(HELP)?,
            "/clear" => chat.clear(),
            "/undo" => chat.undo(),
            "/retry" => chat.retry()?,
            command if command.starts_with('/') => {
                note("note", format_args!("no such command: {command}; try /help"))
            }
            _ => chat.say(line)?,
        }
    }
    if args.verbose {
        chat.session.stats.lines().iter().for_each(|line| note("note", line));
    }
    Ok(())
}

fn refused(error: ChatError) -> Error {
    Error::Refused(error.to_string())
}

fn no_template() -> Error {
    Error::Refused(
        "this model has no chat template; name one that was trained to chat with -m, or use `run`".into(),
    )
}

/// The next message: a line, and the following ones where it ends in a backslash. `None` at the end of the input.
fn read_message(terminal: bool) -> Result<Option<String>, Error> {
    let mut message = String::new();
    let mut input = io::stdin().lock();
    loop {
        if terminal {
            let mut err = io::stderr();
            write!(err, "{}", if message.is_empty() { "> " } else { ". " })?;
            err.flush()?;
        }
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(Some(message).filter(|message| !message.is_empty()));
        }
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(start) => {
                message.push_str(start);
                message.push('\n');
            }
            None => {
                message.push_str(line);
                return Ok(Some(message));
            }
        }
    }
}

struct Chat<'a> {
    model: &'a Model,
    template: ChatTemplate,
    session: Session,
    args: &'a ChatArgs,
    /// Role and content, oldest first.
    messages: Vec<(&'static str, String)>,
    out: Output,
}

impl Chat<'_> {
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
                self.answer()
            }
            None => {
                note("note", "there is nothing to answer");
                Ok(())
            }
        }
    }

    fn say(&mut self, text: String) -> Result<(), Error> {
        self.messages.push(("user", text));
        self.answer()
    }

    /// Generates an answer to what was said and remembers it. A message that does not fit is taken back and told, not
    /// fatal.
    fn answer(&mut self) -> Result<(), Error> {
        let _stoppable = Stoppable::begin();
        match self.tokens().and_then(|tokens| self.session.become_tokens(&tokens)) {
            Err(error @ (Error::Refused(_) | Error::Interrupted)) => {
                note("warning", format_args!("{error}; the last message is forgotten"));
                self.messages.pop();
                return Ok(());
            }
            other => other?,
        }
        let mut answer = String::new();
        let out = &mut self.out;
        let stop = self.session.generate(Until::tokens(self.args.n_predict), |_, piece| {
            answer.push_str(piece);
            Ok(out.stream(piece.as_bytes())?)
        })?;
        self.show("")?;
        self.messages.push(("assistant", answer));
        if stop == Stop::ContextFull {
            note("warning", "the context is full; /undo, /clear or start again with a larger -c");
        }
        Ok(())
    }

    /// The whole conversation as the model wants it, up to where it is to speak.
    fn tokens(&self) -> Result<Vec<Token>, Error> {
        let vocab = self.model.vocab();
        let text = |token: Option<Token>| token.map_or(String::new(), |token| text_of(vocab.piece(token)));
        let messages: Vec<_> =
            self.messages.iter().map(|(role, content)| Message { role, content }).collect();
        let (bos, eos) = (text(vocab.bos()), text(vocab.eos()));
        let text = self.template.render(&messages, GenerationPrompt::Yes, &bos, &eos).map_err(refused)?;
        let mut tokens = Vec::new();
        vocab.tokenize(&text, AddSpecial::No, ParseSpecial::Yes, &mut tokens);
        if tokens.is_empty() {
            return Err(Error::Refused("the chat template made no text of this".into()));
        }
        Ok(tokens)
    }
}

fn text_of(piece: &[u8]) -> String {
    String::from_utf8_lossy(piece).into_owned()
}
