//! A position in text of which more may come.

use alloc::string::String;

use super::tools::MAX_NAME;

/// The text that is not decided yet, and a position in it.
pub(super) struct Cursor<'t> {
    /// The text.
    pub(super) text: &'t str,
    /// The byte offset of the position, on a character's boundary.
    pub(super) at: usize,
    /// True if no more text comes.
    pub(super) ended: bool,
}

/// The outcome of looking for a literal at the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The literal stands there.
    Found,
    /// Its beginning stands there, and more text may come.
    Partial,
    /// Something else stands there.
    Missing,
}

/// The outcome of reading as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More text has to come.
    More,
    /// The construct was read; the cursor stands behind it.
    Done,
    /// The text is something else, as is known at the cursor.
    Failed,
}

impl<'t> Cursor<'t> {
    /// Return the text from the position on.
    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    /// Return the character at the position.
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skip the character at the position.
    pub(super) fn skip(&mut self) {
        self.at += self.peek().map_or(0, char::len_utf8);
    }

    /// Skip characters for which `skipped` holds.
    pub(super) fn skip_while(&mut self, skipped: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(skipped).len();
    }

    /// Skip white space.
    pub(super) fn skip_space(&mut self) {
        self.skip_while(char::is_whitespace);
    }

    /// Look for `literal` at the position.
    pub(super) fn look(&self, literal: &str) -> Match {
        let rest = self.rest();
        if rest.starts_with(literal) {
            Match::Found
        } else if !self.ended && literal.starts_with(rest) {
            Match::Partial
        } else {
            Match::Missing
        }
    }

    /// Look for `literal` at the position and skip it.
    pub(super) fn take(&mut self, literal: &str) -> Match {
        let found = self.look(literal);
        if found == Match::Found {
            self.at += literal.len();
        }
        found
    }

    /// Read a name of a tool or an identifier. The cursor stays before one that is longer than any,
    /// or that may go on; it goes behind one that the end of the text cuts.
    pub(super) fn name(&mut self, name: &mut String) -> Step {
        let start = self.at;
        self.skip_while(is_name);
        let found = self.text.get(start..self.at).unwrap_or("");
        if found.len() > MAX_NAME || (found.is_empty() && !self.rest().is_empty()) {
            self.at = start;
            return Step::Failed;
        }
        if self.rest().is_empty() {
            self.at = if self.ended { self.at } else { start };
            return self.more();
        }
        name.push_str(found);
        Step::Done
    }

    /// Return `Step::More`, or `Step::Failed` if no more text comes.
    pub(super) fn more(&self) -> Step {
        if self.ended { Step::Failed } else { Step::More }
    }
}

/// Return true for the characters of names of tools and of identifiers of calls.
pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '$')
}
