//! Calls as in Python: `[weather(city="Oslo"), time()]`.

use alloc::string::String;

use super::cursor::{Cursor, Step, is_name};
use super::literal::{Balance, keywords};
use super::output::Output;
use super::tools::Context;

/// The reader of a list of calls.
#[derive(Debug)]
pub(super) struct PythonCalls {
    /// The position.
    place: Place,
    /// The offset at which a name or the arguments begin.
    start: usize,
    /// The name of the tool.
    name: String,
    /// The search for the end of the arguments.
    balance: Balance,
    /// The offset behind the last call that is complete.
    pub(super) complete: usize,
}

/// A position in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the list.
    Start,
    /// Before a name.
    BeforeName,
    /// Before the arguments.
    AfterName,
    /// In the arguments.
    Arguments,
    /// Behind a call.
    AfterCall,
}

impl PythonCalls {
    /// Make a reader that begins before the list.
    pub(super) fn new() -> Self {
        Self { place: Place::Start, start: 0, name: String::new(), balance: Balance::new(), complete: 0 }
    }

    /// Read as far as there is text.
    pub(super) fn advance(
        &mut self,
        cursor: &mut Cursor<'_>,
        context: Context<'_>,
        output: &mut Output,
    ) -> Step {
        loop {
            if self.place == Place::Arguments {
                match self.balance.advance(cursor) {
                    Step::Done => {}
                    step => return step,
                }
                // The last character is the closing parenthesis.
                let text = cursor.text.get(self.start..cursor.at - 1).unwrap_or("");
                let Some(arguments) = keywords(text) else {
                    return Step::Failed;
                };
                output.begin_call(&self.name, None);
                output.arguments(&arguments);
                output.complete_call();
                (self.complete, self.place) = (cursor.at, Place::AfterCall);
            }
            cursor.skip_space();
            let Some(c) = cursor.peek() else {
                return cursor.more();
            };
            match (self.place, c) {
                (Place::BeforeName, c) if is_name(c) => {
                    let mut name = String::new();
                    match cursor.name(&mut name) {
                        Step::Done if context.tools.get(&name).is_some() => {}
                        Step::Done => return Step::Failed,
                        step => return step,
                    }
                    (self.name, self.place) = (name, Place::AfterName);
                    continue;
                }
                (Place::Start, '[') => self.place = Place::BeforeName,
                (Place::AfterCall, ',') if context.parallel => self.place = Place::BeforeName,
                (Place::AfterName, '(') => {
                    (self.place, self.start, self.balance) =
                        (Place::Arguments, cursor.at + 1, Balance::new());
                }
                (Place::AfterCall, ']') => {
                    cursor.skip();
                    return Step::Done;
                }
                _ => return Step::Failed,
            }
            cursor.skip();
        }
    }
}
