//! The filter `wordwrap`, which breaks lines as Python's `textwrap` does.

use alloc::vec::Vec;

use super::super::arguments::Arguments;
use super::super::error::{Eval, Fault};
use super::super::heap::Val;
use super::super::lexer::is_space;
use super::super::machine::Machine;
use super::super::methods::lines;
use super::super::text::{Buf, Str};

/// The choices of `wordwrap`.
#[derive(Clone, Copy)]
struct Wrap {
    /// The longest line in characters.
    width: usize,
    /// Words that are longer than a line are cut.
    cuts_words: bool,
    /// Words may be broken behind hyphens.
    cuts_hyphens: bool,
}

impl Machine<'_, '_> {
    /// Evaluate `wordwrap`: `'one two' | wordwrap(4)` is `'one\ntwo'`. Every line of the text is
    /// wrapped on its own.
    ///
    /// # Errors
    /// [`Fault::Failed`] if the width is not positive.
    pub(super) fn wrapped(&mut self, text: &Str, given: Arguments) -> Eval<Val> {
        let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
        let [width, words, between, hyphens] = given.bind("wordwrap", names)?;
        let width = usize::try_from(self.int_arg("wordwrap", width, 79)?).ok().filter(|width| *width > 0);
        let width = width.ok_or_else(|| Fault::failed("wordwrap needs a width above 0"))?;
        let flag = |flag: Option<Val>| flag.is_none_or(|flag| flag.is_true(&self.heap));
        let wrap = Wrap { width, cuts_words: flag(words), cuts_hyphens: flag(hyphens) };
        let between = self.str_arg("wordwrap", between)?.unwrap_or_else(|| Str::template("\n"));
        // Chunks, and the characters of each that are counted.
        self.budget.bytes(text.len().saturating_mul(40))?;
        let mut out = Buf::default();
        for (i, (line, _)) in lines(text.as_str()).enumerate() {
            let rows = wrap.rows(line);
            for row in rows.iter().enumerate().map(|(j, row)| (i + j > 0, row)) {
                let (is_later, row) = row;
                self.budget.bytes(row.len() + between.len())?;
                if is_later {
                    out.push_str(&between);
                }
                out.push_str(&text.subslice(row));
            }
            if rows.is_empty() && i > 0 {
                self.budget.bytes(between.len())?;
                out.push_str(&between);
            }
        }
        Ok(Val::Str(out.finish()))
    }
}

impl Wrap {
    /// Return the rows of a line, without white space at their ends.
    fn rows<'t>(&self, line: &'t str) -> Vec<&'t str> {
        let mut chunks = self.chunks(line);
        chunks.reverse();
        let mut rows = Vec::new();
        while let Some(&next) = chunks.last() {
            if is_blank(next) && !rows.is_empty() {
                chunks.pop();
                continue;
            }
            let (mut row, mut n_chars) = (Vec::new(), 0);
            while let Some(chunk) = chunks.pop_if(|chunk| n_chars + count(chunk) <= self.width) {
                n_chars += count(chunk);
                row.push(chunk);
            }
            if let Some(long) = chunks.pop_if(|chunk| count(chunk) > self.width) {
                let (now, later) = self.cut(long, n_chars);
                match now {
                    Some(now) => row.push(now),
                    None if row.is_empty() => row.push(long),
                    None => chunks.push(long),
                }
                chunks.extend(later.filter(|later| !later.is_empty()));
            }
            if row.last().is_some_and(|last| is_blank(last)) {
                row.pop();
            }
            // The chunks of a row are neighbours in the line.
            if let (Some(first), Some(last)) = (row.first(), row.last()) {
                let at = |part: &str| (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
                rows.extend(line.get(at(first)..at(last) + last.len()));
            }
        }
        rows
    }

    /// Cut a chunk that is longer than a line, behind `n_chars` characters of the row: the part
    /// that comes into the row, and the rest. No part comes into it if words are not cut.
    fn cut<'t>(&self, chunk: &'t str, n_chars: usize) -> (Option<&'t str>, Option<&'t str>) {
        if !self.cuts_words {
            return (None, None);
        }
        let left = self.width - n_chars;
        let mut end = chunk.char_indices().nth(left).map_or(chunk.len(), |(at, _)| at);
        let head = chunk.get(..end).unwrap_or("");
        if let Some(hyphen) = head.rfind('-').filter(|at| self.cuts_hyphens && *at > 0)
            && head.get(..hyphen).is_some_and(|before| before.contains(|c| c != '-'))
        {
            end = hyphen + 1;
        }
        let (now, later) = chunk.split_at(end);
        (Some(now), Some(later))
    }

    /// Return the parts of a line between which it may be broken: white space, words, and parts of
    /// words with hyphens.
    fn chunks<'t>(&self, line: &'t str) -> Vec<&'t str> {
        let mut chunks = Vec::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let is_white = breaks(first);
            let end = rest.find(|c| breaks(c) != is_white).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if is_white || !self.cuts_hyphens {
                chunks.push(word);
                continue;
            }
            let mut start = 0;
            for at in hyphen_breaks(word) {
                chunks.extend(word.get(start..at));
                start = at;
            }
            chunks.extend(word.get(start..));
        }
        chunks
    }
}

/// Return the number of characters.
fn count(text: &str) -> usize {
    text.chars().count()
}

/// Return true if there is nothing but white space.
fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// Return true for the white space at which lines are broken.
fn breaks(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ')
}

/// Return the byte offsets in a word at which it may be broken, ascending: behind a hyphen between
/// letters, at least two on each side but for another hyphen, and around a dash of several hyphens
/// between words.
fn hyphen_breaks(word: &str) -> Vec<usize> {
    let chars: Vec<(usize, char)> = word.char_indices().collect();
    let letter =
        |i: Option<usize>| i.and_then(|i| chars.get(i)).is_some_and(|(_, c)| c.is_alphabetic() || *c == '_');
    let hyphen = |i: Option<usize>| i.and_then(|i| chars.get(i)).is_some_and(|(_, c)| *c == '-');
    let in_word = |c: &char| c.is_alphanumeric() || *c == '_';
    let mut found = Vec::new();
    let mut i = 0;
    while let Some((at, c)) = chars.get(i) {
        if *c != '-' {
            i += 1;
            continue;
        }
        let n = chars.iter().skip(i).take_while(|(_, c)| *c == '-').count();
        let before = i.checked_sub(1).and_then(|i| chars.get(i)).map(|(_, c)| c);
        let after = chars.get(i + n);
        if n > 1 {
            let ends_word = |c: &char| in_word(c) || "!\"'&.,?".contains(*c);
            if before.is_some_and(ends_word)
                && let Some((end, _)) = after.filter(|(_, c)| in_word(c))
            {
                found.extend([*at, *end]);
            }
        } else {
            let back = |n: usize| i.checked_sub(n);
            let behind = letter(back(1)) && (letter(back(2)) || (hyphen(back(2)) && letter(back(3))));
            let ahead =
                letter(Some(i + 1)) && (letter(Some(i + 2)) || (hyphen(Some(i + 2)) && letter(Some(i + 3))));
            if behind && ahead {
                found.extend(after.map(|(end, _)| *end));
            }
        }
        i += n;
    }
    found
}
