//! An answer: the conversation is evaluated, and the model continues it.
//!
//! Each answer renders the whole conversation with the chat template and makes the session hold
//! those tokens: it keeps the prefix that is the same as before and rolls back the rest. So undoing
//! a turn, editing a message, or asking for another answer needs no evaluation of its own.
//!
//! The ends of messages are pinned, so that going back to one costs nothing, whatever the memory of
//! the model. A context that becomes full, also in the middle of an answer, is made smaller
//! ([`Chat::make_room`]), and the answer goes on.

use super::conversation::{Conversation, Message as ChatMessage, Role};
use super::{Chat, refused};
use crate::error::Error;
use crate::interrupt::{self, Stoppable};
use crate::output::{Output, counted, note};
use crate::session::{Until, too_long};
use backstitch_kv::Error as MemoryError;
use backstitch_models::chat::reply::{Delta, Format, Options, Parser, Reply};
use backstitch_models::chat::{self, Message, Rendered, Value};
use backstitch_models::session::Finish;
use backstitch_models::vocab::AddSpecial;
use backstitch_models::{Error as EngineError, Token};

/// An answer that is being generated.
struct Answer {
    /// Takes reasoning and text apart.
    parser: Parser,
    /// Reasoning and text so far.
    reply: Reply,
    /// The tokens that were drawn, to go on from when the context was full.
    tokens: Vec<Token>,
}

impl Answer {
    /// Begin an answer behind `prompt`.
    fn new(format: &Format, prompt: &str) -> Self {
        let parser = Parser::new(format, &Options::default().prompt(prompt));
        Self { parser, reply: Reply::default(), tokens: Vec::new() }
    }

    /// Add text, or end the answer where there is none, and return what that means.
    fn read(&mut self, text: Option<&str>) -> Vec<Delta> {
        let mut deltas = Vec::new();
        match text {
            Some(text) => self.parser.push(text, &mut deltas),
            None => self.parser.finish(&mut deltas),
        }
        deltas.iter().for_each(|delta| self.reply.add(delta));
        deltas
    }

    /// Add text like [`Answer::read`], and show what it means. Reasoning is shown to a person only.
    fn show(&mut self, text: Option<&str>, out: &mut Output, terminal: bool) -> Result<(), Error> {
        let mut has_content = !self.reply.content.is_empty();
        for delta in self.read(text) {
            match delta {
                Delta::Content(text) => {
                    let is_behind = terminal && !has_content && !self.reply.reasoning.is_empty();
                    out.stream(if is_behind { "\n\n" } else { "" })?;
                    out.stream(&text)?;
                    has_content = true;
                }
                Delta::Reasoning(text) if terminal => out.stream_faint(&text)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Chat<'_> {
    /// Add a message of the person, and answer it.
    pub(super) fn say(&mut self, text: String) -> Result<(), Error> {
        self.branch_mut().conversation.push(Role::User, text);
        self.answer(None, None)
    }

    /// Generate an answer to the last message and add it. `used` is the state of the random numbers
    /// after an earlier answer, which the new one should not repeat. A message that does not fit
    /// the context is removed with a warning; or the conversation becomes `before`, which it was
    /// before a command changed it.
    pub(super) fn answer(&mut self, used: Option<u64>, before: Option<Conversation>) -> Result<(), Error> {
        let _stoppable = Stoppable::begin();
        match self.evaluate() {
            // Nothing was answered since the last save.
            Err(Error::Interrupted) if !self.terminal => return Err(Error::Interrupted),
            Err(error @ (Error::Refused(_) | Error::Interrupted)) => {
                self.n_failed += 1;
                let conversation = &mut self.branch_mut().conversation;
                let now = match before {
                    Some(before) => {
                        *conversation = before;
                        "the conversation is as it was"
                    }
                    None => {
                        conversation.pop();
                        "the last message is forgotten"
                    }
                };
                note("warning", format_args!("{error}; {now}"));
                return Ok(());
            }
            other => other?,
        }
        used.into_iter().for_each(|used| self.session.draw_anew(used));
        // It was rendered before; where a person stops that now, the answer ends at once.
        let prompt = self.render(self.branch().conversation.read().map(ChatMessage::to_value));
        let mut answer = Answer::new(&self.template.format, prompt.as_ref().map_or("", Rendered::as_str));
        let finish = match self.generate(&mut answer) {
            // Making room in a full context can be stopped, too.
            Err(Error::Interrupted) => Ok(Finish::Cancelled),
            finish => finish,
        };
        let rest = answer.show(None, &mut self.out, self.terminal);
        let shown = rest.and_then(|()| self.show(""));
        // An answer that was stopped stays in the conversation as far as it came, also one whose
        // reader went away.
        let Reply { content, reasoning, .. } = answer.reply;
        if content.is_empty() && !reasoning.is_empty() && !self.terminal {
            note("warning", "the model wrote no answer behind its reasoning; -n may end it too soon");
        }
        self.branch_mut().conversation.push_answer(content, reasoning);
        shown?;
        match finish? {
            Finish::Cancelled if !self.terminal => {
                self.save_after_answer()?;
                return Err(Error::Interrupted);
            }
            Finish::Cancelled => self.input.forget(),
            Finish::ContextFull => {
                note("warning", "the context is full; /undo, /clear or start again with a larger -c");
            }
            _ => {}
        }
        interrupt::ask_again();
        self.pin()?;
        match self.save_after_answer() {
            // A person can free some room, or save elsewhere, before anything is lost.
            Err(error) if self.terminal => self.tell(Err(error)),
            saved => saved,
        }
    }

    /// Evaluate the conversation up to the beginning of the answer.
    fn evaluate(&mut self) -> Result<(), Error> {
        let mut tokens = self.tokens()?;
        if tokens.len() >= self.session.n_ctx() {
            tokens = self.make_room(&[])?.ok_or_else(|| too_long(tokens.len(), self.session.n_ctx()))?;
        }
        self.recall(&tokens);
        self.hold(&tokens)?;
        self.pin()?;
        if let Some(cache) = &mut self.cache {
            cache.remember(&mut self.session);
        }
        Ok(())
    }

    /// Look for the beginning of the conversation in the prompt cache, if nothing is evaluated yet.
    fn recall(&mut self, tokens: &[Token]) {
        let Some(cache) = self.cache.as_mut().filter(|_| self.session.tokens().is_empty()) else { return };
        cache.recall(&mut self.session, tokens);
        cache.report(self.model, tokens);
    }

    /// Make the session hold these tokens. Other branches give up what is evaluated of them if
    /// there is no room for both.
    fn hold(&mut self, tokens: &[Token]) -> Result<(), Error> {
        loop {
            match self.session.become_tokens(tokens) {
                Err(Error::Engine(EngineError::Memory(MemoryError::Full { .. }))) if self.unseat()? => {}
                result => return result,
            }
        }
    }

    /// Generate behind the tokens of the session. The answer is shown as it comes.
    fn generate(&mut self, answer: &mut Answer) -> Result<Finish, Error> {
        loop {
            let n = i64::try_from(answer.tokens.len()).unwrap_or(i64::MAX);
            let limit = if self.args.n_predict < 0 { -1 } else { self.args.n_predict.saturating_sub(n) };
            let stops = self.stops.iter().chain(&self.template.ends).cloned().collect();
            let shown = self.template.markers(self.model.vocab());
            let (out, terminal) = (&mut self.out, self.terminal);
            let finish = self.session.generate(Until { stops, shown, ..Until::tokens(limit) }, |piece| {
                answer.tokens.extend(&piece.tokens);
                answer.show(Some(&piece.text), out, terminal)
            })?;
            if finish != Finish::ContextFull || !self.go_on(answer)? {
                return Ok(finish);
            }
        }
    }

    /// Make room for more of an answer that has filled the context. Returns false if that cannot be
    /// done.
    fn go_on(&mut self, answer: &Answer) -> Result<bool, Error> {
        if self.session.tokens().len() < self.session.n_ctx() {
            return self.unseat();
        }
        let Some(tokens) = self.make_room(&answer.tokens)? else { return Ok(false) };
        // Going back takes the random numbers back, too, and the answer must not repeat itself.
        let used = self.session.random();
        self.hold(&tokens)?;
        self.session.draw_anew(used);
        Ok(true)
    }

    /// Return the tokens of the conversation and the beginning of an answer, shortened to fit the
    /// context with room to go on; none if they cannot be shortened so far. One line says what was
    /// dropped.
    fn make_room(&mut self, answer: &[Token]) -> Result<Option<Vec<Token>>, Error> {
        let n_ctx = self.session.n_ctx();
        let whole = || -> Result<Vec<Token>, Error> { Ok([self.tokens()?.as_slice(), answer].concat()) };
        if self.args.context_shift {
            let (tokens, keep) = (whole()?, self.n_beginning()?);
            let shifted = shifted(&tokens, keep, n_ctx);
            if let Some(shifted) = &shifted {
                let dropped = counted(tokens.len() - shifted.len(), "oldest token");
                self.say_dropped(&dropped, shifted, !answer.is_empty())?;
            }
            return Ok(shifted);
        }
        let before = self.branch().conversation.n_left_out();
        let mut tokens = whole()?;
        // Half of the context stays free, so that not every answer has to drop something.
        while tokens.len() > n_ctx / 2 && self.branch_mut().conversation.leave_out() {
            tokens = [self.tokens()?.as_slice(), answer].concat();
        }
        let dropped = self.branch().conversation.n_left_out() - before;
        if dropped == 0 || tokens.len() >= n_ctx {
            return Ok(None);
        }
        self.say_dropped(&counted(dropped, "oldest turn"), &tokens, !answer.is_empty())?;
        Ok(Some(tokens))
    }

    /// Say in one line what was dropped of a full context, and what that costs.
    fn say_dropped(&mut self, what: &str, tokens: &[Token], is_inside: bool) -> Result<(), Error> {
        let same = self.session.tokens().iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let again = counted(tokens.len() - same, "token");
        if self.terminal && is_inside {
            // The line of the answer ends here, and the answer goes on below the note.
            self.show("")?;
        }
        note("note", format_args!("the context is full: {what} dropped, {again} re-evaluated"));
        Ok(())
    }

    /// Return the tokens of what the model reads of the conversation, up to the beginning of the
    /// answer.
    fn tokens(&self) -> Result<Vec<Token>, Error> {
        let tokens = self.rendered(self.branch().conversation.read().map(ChatMessage::to_value))?;
        if tokens.is_empty() {
            return Err(Error::Refused("the chat template made no text of this message".into()));
        }
        Ok(tokens)
    }

    /// Return the number of tokens before the first message of the person.
    fn n_beginning(&self) -> Result<usize, Error> {
        let conversation = &self.branch().conversation;
        let system = conversation.system().map(|content| Message { role: "system", content });
        let user = |content| Message { role: "user", content };
        let all = self.rendered(conversation.read().map(ChatMessage::to_value))?;
        let other = self.rendered(system.into_iter().chain([user("\u{2205}")]).map(Value::from))?;
        Ok(all.iter().zip(&other).take_while(|(a, b)| a == b).count())
    }

    /// Render messages with the chat template.
    fn render(&self, messages: impl Iterator<Item = Value>) -> Result<Rendered, Error> {
        let conversation = chat::Conversation::new(messages).tokens_of(self.model.vocab());
        self.template.parsed.render(&conversation.cancel(interrupt::cancel())).map_err(refused)
    }

    /// Return the tokens of messages. Control tokens are recognised in the template's own text
    /// only, never in messages.
    fn rendered(&self, messages: impl Iterator<Item = Value>) -> Result<Vec<Token>, Error> {
        let mut tokens = Vec::new();
        self.render(messages)?.tokenize(self.model.vocab(), AddSpecial::Start, &mut tokens);
        Ok(tokens)
    }
}

/// Drop tokens behind the first `keep`, oldest first, so that the rest fits a context of `n_ctx`
/// with room to go on; none if the kept ones leave no room. They are dropped in steps of half of
/// what is not kept, so that a longer text shares its beginning with a shorter one.
fn shifted(tokens: &[Token], keep: usize, n_ctx: usize) -> Option<Vec<Token>> {
    let step = n_ctx.checked_sub(keep)? / 2;
    if step == 0 {
        return None;
    }
    let excess = (tokens.len() + 1).saturating_sub(n_ctx);
    let n_dropped = excess.div_ceil(step) * step;
    let rest = tokens.get(keep + n_dropped..).filter(|rest| !rest.is_empty())?;
    Some([tokens.get(..keep)?, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_no_markers_of_reasoning() {
        let harmony = "<|start|>assistant<|channel|>analysis<|message|>{{ messages }}";
        let cases = [
            (
                harmony,
                "<|start|>assistant",
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant\
                <|channel|>final<|message|>Yes.",
            ),
            ("[THINK]", "[/INST]", "[THINK]Hm.[/THINK]Yes."),
            ("<think>", "<think>\n", "Hm.\n</think>\n\nYes."),
        ];
        for (template, prompt, text) in cases {
            let mut answer = Answer::new(&Format::of_template(template), prompt);
            text.split_inclusive('|').for_each(|piece| drop(answer.read(Some(piece))));
            answer.read(None);
            assert_eq!((&*answer.reply.reasoning, &*answer.reply.content), ("Hm.", "Yes."), "{template}");
        }
        let mut plain = Answer::new(&Format::of_template("{{ messages }}"), "");
        assert_eq!(plain.read(Some(" <think> \n")), [Delta::Content(" <think> \n".into())]);
    }

    #[test]
    fn a_shift_keeps_the_beginning_and_the_end() {
        let tokens: Vec<Token> = (0..100).map(Token).collect();
        for n in 5..100 {
            let text = &tokens[..n];
            let short = shifted(text, 4, 24).unwrap_or_else(|| panic!("{n}"));
            assert!(short.len() < 24 && short.starts_with(&tokens[..n.min(4)]), "{n}: {short:?}");
            assert_eq!(short.last(), text.last());
        }
        assert_eq!(shifted(&tokens[..20], 4, 24).as_deref(), Some(&tokens[..20]));
    }

    #[test]
    fn a_shift_of_a_longer_text_goes_on_where_the_shorter_one_ended() {
        let tokens: Vec<Token> = (0..100).map(Token).collect();
        let (short, long) = (shifted(&tokens[..24], 4, 24).unwrap(), shifted(&tokens[..30], 4, 24).unwrap());
        assert!(long.starts_with(&short) && short.len() == 14);
    }

    #[test]
    fn a_beginning_that_fills_the_context_cannot_be_shifted() {
        let tokens: Vec<Token> = (0..100).map(Token).collect();
        assert_eq!(shifted(&tokens, 24, 24), None);
        assert_eq!(shifted(&tokens, 30, 24), None);
    }
}
