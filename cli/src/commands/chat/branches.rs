//! The branches of a chat: conversations that share a beginning.
//!
//! Each branch has a list of messages. A sequence of the session, with what is evaluated of them,
//! is a convenience: a branch whose sequence gave way to another gets a new one when it becomes the
//! current branch, and is re-evaluated when it is answered.

use super::Chat;
use super::conversation::{Conversation, Role};
use crate::error::Error;
use crate::output::{counted, note, one_line};
use backstitch_kv::{Pos, SeqId};

/// A branch.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    /// The messages.
    pub conversation: Conversation,
    /// The sequence of the session; none if it gave way.
    pub seq: Option<SeqId>,
    /// The positions that were pinned, ascending.
    pub pins: Vec<Pos>,
}

impl Chat<'_> {
    /// Return the current branch.
    pub(super) fn branch(&self) -> &Branch {
        &self.branches[self.current]
    }

    /// Return the current branch, to change it.
    pub(super) fn branch_mut(&mut self) -> &mut Branch {
        &mut self.branches[self.current]
    }

    /// Pin the end of the current branch.
    pub(super) fn pin(&mut self) -> Result<(), Error> {
        let Self { session, branches, current, .. } = self;
        session.pin(&mut branches[*current].pins)
    }

    /// Take the sequence of another branch away, to make room. Returns false if no other has one.
    pub(super) fn unseat(&mut self) -> Result<bool, Error> {
        let current = self.current;
        let mut others = self.branches.iter_mut().enumerate().filter(|(at, _)| *at != current);
        let Some(seq) = others.find_map(|(_, branch)| branch.seq.take()) else { return Ok(false) };
        self.session.remove(seq)?;
        Ok(true)
    }

    /// Make a sequence with the content of the current one. Other branches give theirs up if there
    /// are too few.
    fn fork(&mut self) -> Result<SeqId, Error> {
        loop {
            if let Some(seq) = self.session.branch()? {
                return Ok(seq);
            }
            if !self.unseat()? {
                return Err(Error::Refused("there is no room for another branch".into()));
            }
        }
    }

    /// Copy the current branch, and make the copy the current one.
    pub(super) fn new_branch(&mut self) -> Result<(), Error> {
        let seq = self.fork()?;
        let copy = Branch { seq: Some(seq), ..self.branch().clone() };
        self.branches.push(copy);
        self.session.switch(seq)?;
        self.current = self.branches.len() - 1;
        note("note", format_args!("this is branch {}; /branch lists them", self.branches.len()));
        Ok(())
    }

    /// Make branch `number` the current one. The first is 1.
    pub(super) fn switch(&mut self, number: usize) -> Result<(), Error> {
        let Some(at) = self.place_of(number) else { return Ok(()) };
        let seq = match self.branches[at].seq {
            Some(seq) => seq,
            // What both have in common need not be re-evaluated.
            None => {
                let seq = self.fork()?;
                self.branches[at].pins = self.branch().pins.clone();
                seq
            }
        };
        self.branches[at].seq = Some(seq);
        self.session.switch(seq)?;
        self.current = at;
        let turns = counted(self.branch().conversation.n_turns(), "message");
        note("note", format_args!("this is branch {number}, with {turns}; /list shows them"));
        Ok(())
    }

    /// Remove branch `number`.
    pub(super) fn drop_branch(&mut self, number: usize) -> Result<(), Error> {
        let Some(at) = self.place_of(number) else { return Ok(()) };
        if at == self.current {
            self.failed(format_args!("branch {number} is the current one; switch to another first"));
            return Ok(());
        }
        let removed = self.branches.remove(at);
        self.current -= usize::from(at < self.current);
        removed.seq.map_or(Ok(()), |seq| self.session.remove(seq))
    }

    /// Return the index of branch `number`, or say that there is none.
    fn place_of(&mut self, number: usize) -> Option<usize> {
        let at = number.checked_sub(1).filter(|at| *at < self.branches.len());
        if at.is_none() {
            let branches = counted(self.branches.len(), "branch");
            self.failed(format_args!("there is no branch {number}, only {branches}"));
        }
        at
    }

    /// Show the branches, a line each.
    pub(super) fn list_branches(&mut self) -> Result<(), Error> {
        let line = |(at, branch): (usize, &Branch)| {
            let mark = if at == self.current { '*' } else { ' ' };
            let n = branch.conversation.n_turns();
            let last = branch.conversation.message_of(n).unwrap_or_default();
            format!("{mark} {}  {}  {}", at + 1, counted(n, "message"), beginning(last))
        };
        let lines: Vec<String> = self.branches.iter().enumerate().map(line).collect();
        self.show(lines.join("\n"))
    }

    /// Show the messages of the current branch, a line each, with the numbers that `/edit` takes.
    pub(super) fn list_messages(&mut self) -> Result<(), Error> {
        let (mut lines, mut n) = (Vec::new(), 0);
        let left_out = self.branch().conversation.n_left_out();
        for message in self.branch().conversation.messages() {
            n += usize::from(message.role == Role::User);
            let number = if message.role == Role::User { n.to_string() } else { String::new() };
            let dropped = if n <= left_out && message.role != Role::System { "(dropped) " } else { "" };
            let text = beginning(&message.text);
            lines.push(format!("{number:>3} {:<9} {dropped}{text}", message.role.name()));
        }
        if lines.is_empty() {
            note("note", "there are no messages");
            return Ok(());
        }
        self.show(lines.join("\n"))
    }
}

/// Return the beginning of a text, on one line.
fn beginning(text: &str) -> String {
    // A list with numbers and marks before the texts still fits in 80 columns.
    const LENGTH: usize = 56;
    let mut short = one_line(&text.chars().take(LENGTH).collect::<String>().replace('\n', " "));
    if text.chars().nth(LENGTH).is_some() {
        short.push('…');
    }
    short
}
