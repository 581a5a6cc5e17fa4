//! The end of a text at a line: after a time, or where the indentation is too small. Editors that
//! complete code ask for this.

use super::request::Generate;
use core::time::Duration;

/// The place in the lines of a text so far.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The number of spaces and tabs since the last line break; `None` before the first one, and
    /// behind the beginning of a line.
    indent: Option<usize>,
    /// True behind the first line break.
    has_line: bool,
}

impl Lines {
    /// Read on in a text that has gone on for `elapsed`. Return true if it ends as `request` says;
    /// a line that is not indented enough is cut off behind its indentation.
    pub fn end(&mut self, text: &mut String, request: &Generate, elapsed: Duration) -> bool {
        if let Some(end) = self.outdented(text, request.n_indent) {
            text.truncate(end);
            return true;
        }
        self.has_line |= text.contains('\n');
        self.has_line && request.line_time.is_some_and(|limit| elapsed >= limit)
    }

    /// Return the place of the first character that stands less than `n_indent` spaces and tabs
    /// behind a line break.
    fn outdented(&mut self, text: &str, n_indent: usize) -> Option<usize> {
        for (at, letter) in text.char_indices() {
            match (letter, self.indent) {
                (' ' | '\t', Some(n)) => self.indent = Some(n + 1),
                (_, Some(n)) if n < n_indent => return Some(at),
                ('\n', _) => self.indent = Some(0),
                _ => self.indent = None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_little_indentation_end_a_text() {
        let cut = |pieces: &[&str], n_indent| {
            let (mut lines, mut all) = (Lines::default(), String::new());
            for piece in pieces {
                let end = lines.outdented(piece, n_indent);
                all.push_str(&piece[..end.unwrap_or(piece.len())]);
                if end.is_some() {
                    return (all, true);
                }
            }
            (all, false)
        };
        assert_eq!(cut(&["a\n", "  b\n", " ", "c"], 2), ("a\n  b\n ".into(), true));
        assert_eq!(cut(&["a\n\tb  c", "\n", "  d"], 1), ("a\n\tb  c\n  d".into(), false));
        assert_eq!(cut(&["a\n  b\n\n"], 2), ("a\n  b\n".into(), true));
        assert_eq!(cut(&["a\nb\n\nc"], 0), ("a\nb\n\nc".into(), false));
    }
}
