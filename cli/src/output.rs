//! Standard output for people and programs: text or JSON, with colour on a terminal only.
//!
//! A command writes its results here and nowhere else. Notes, warnings and errors go to standard
//! error with [`note`], so that a pipe gets results only. Lines fit the width of the terminal; in
//! files and pipes they are not broken, so that a search finds what it looks for.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output, locked and buffered.
///
/// A command makes one and flushes it at its end. Text of a model goes through [`Output::stream`],
/// which shows it at once and keeps it from controlling the terminal.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    /// Width of the terminal, or the value of `COLUMNS`; none for files and pipes.
    columns: Option<usize>,
    /// True if the person asked for JSON.
    json: bool,
    is_terminal: bool,
    /// True if text may have colours and weights.
    colour: bool,
}

impl Output {
    /// Lock standard output. `json` is true if the person asked for JSON.
    pub fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let colour = colour_wanted(is_terminal);
        Self { out: BufWriter::new(stdout.lock()), columns: columns(), json, is_terminal, colour }
    }

    /// Return true if the person asked for JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Return the style of headings.
    pub fn heading(&self) -> Style {
        self.style(Style::new().bold())
    }

    /// Return the style of details.
    pub fn faint(&self) -> Style {
        self.style(Style::new().dimmed())
    }

    /// Return the style of success.
    pub fn good(&self) -> Style {
        self.style(AnsiColor::Green.on_default())
    }

    /// Return the style of failure.
    pub fn bad(&self) -> Style {
        self.style(AnsiColor::Red.on_default().bold())
    }

    /// Return the style where colours are wanted, and an empty style elsewhere.
    pub fn style(&self, style: Style) -> Style {
        if self.colour { style } else { Style::new() }
    }

    /// Write a line of text.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Return the width of drawings, which is 80 in files and pipes.
    pub fn columns(&self) -> usize {
        self.columns.unwrap_or(80)
    }

    /// Return the width of other lines. Files and pipes have no limit.
    pub fn width(&self) -> usize {
        self.columns.unwrap_or(MOST_COLUMNS)
    }

    /// Write text, wrapped to the width; lines after the first begin with `indent` spaces.
    pub fn text(&mut self, text: impl Display, indent: usize) -> io::Result<()> {
        wrap(&text.to_string(), self.width(), indent).iter().try_for_each(|line| self.line(line))
    }

    /// Write rows in columns. If that is too wide, each row becomes several lines, with the first
    /// cell above the others.
    pub fn table(&mut self, rows: &[Vec<String>]) -> io::Result<()> {
        let lines = table(rows);
        if lines.iter().all(|line| line.chars().count() <= self.width()) {
            return lines.iter().try_for_each(|line| self.line(line));
        }
        for row in rows {
            let (first, others) = row.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
            self.text(first, 4)?;
            let others: Vec<_> =
                others.iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty()).collect();
            self.text(format_args!("    {}", others.join("  ")), 4)?;
        }
        Ok(())
    }

    /// Write a JSON value on a line of its own.
    pub fn value(&mut self, value: &Value) -> io::Result<()> {
        self.serialize(value)
    }

    /// Write anything as JSON on a line of its own. It is written as it is made, so that it may be
    /// larger than the memory.
    pub fn serialize(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.line("")
    }

    /// Write text of a model or a person, and show it at once: as it is in files and pipes, and
    /// [`harmless`] on a terminal.
    pub fn stream(&mut self, text: &str) -> io::Result<()> {
        let text = if self.is_terminal { harmless(text) } else { text.into() };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Write text like [`Output::stream`], faint where colours are wanted.
    pub fn stream_faint(&mut self, text: &str) -> io::Result<()> {
        let faint = self.faint();
        write!(self.out, "{faint}")?;
        let shown = self.stream(text);
        write!(self.out, "{faint:#}")?;
        shown?;
        self.out.flush()
    }

    /// Show the text that was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Escape the characters that a terminal would obey, all but line breaks and tabs.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let shown = |c: char| if is_obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// Escape control characters, so that `text` stays on one line. Names of files, and names inside of
/// files, may contain line breaks and commands to the terminal.
pub fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Limit of the width: more columns than any terminal has.
const MOST_COLUMNS: usize = 100_000;

/// Return the value of `COLUMNS`, or else the width of the terminal; none for files and pipes.
fn columns() -> Option<usize> {
    let wish = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    wish.or_else(terminal).filter(|&n| n > 0).map(|n| n.clamp(20, MOST_COLUMNS))
}

/// Break the text into lines of at most `columns`, at spaces, or within a word that is longer than
/// a line. Lines after the first are indented.
pub fn wrap(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let (mut lines, mut rest, mut first) = (Vec::new(), text, true);
    while !rest.is_empty() || first {
        let pad = if first { 0 } else { indent.min(columns / 2) };
        let (line, after) = split_line(rest, columns - pad);
        lines.push(format!("{:pad$}{}", "", line.trim_end()));
        (rest, first) = (after, false);
    }
    lines
}

/// Split the text after as much as fits the columns. Commands to the terminal take no column.
fn split_line(text: &str, columns: usize) -> (&str, &str) {
    let (mut n, mut in_command, mut has_word, mut space) = (0, false, false, None);
    for (at, c) in text.char_indices() {
        in_command |= c == '\x1b';
        if in_command {
            in_command = c != 'm';
            continue;
        }
        // A line is not cut in its indent: nothing would be left of it.
        if c == ' ' && has_word {
            space = Some(at);
        }
        has_word |= c != ' ';
        if n == columns {
            let (line, rest) = text.split_at(space.unwrap_or(at));
            return (line, rest.trim_start());
        }
        n += 1;
    }
    (text, "")
}

/// Return true if colours are wanted, by the custom of <https://no-color.org>.
fn colour_wanted(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Format a number of bytes as people read it: "7.5 MiB".
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1024.0, "KiB");
    for larger in ["MiB", "GiB", "TiB", "PiB"] {
        // From here on one digit after the point would round up to 1024.0.
        if value < 1023.95 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{value:.1} {unit}")
}

/// Format a number of things: "1 token", "2 tokens", "2 branches".
pub fn counted(n: usize, thing: &str) -> String {
    let ending = match n {
        1 => "",
        _ if thing.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{n} {thing}{ending}")
}

/// Most characters that are shown of a text from a file.
pub const MAX_SHOWN: usize = 90;

/// Cut the text to [`MAX_SHOWN`] characters.
pub fn shorten(text: &str) -> String {
    cut(text, MAX_SHOWN)
}

/// Cut the text to `most` characters, with an ellipsis if it was longer.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.into(),
    }
}

/// Align rows in columns, each as wide as its widest cell; columns after the first are aligned to
/// the right.
///
/// No column is wider than a shortened text, because formatting panics on widths above 65,535.
/// Longer cells stick out.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> =
        (0..columns).map(|column| width(column).unwrap_or(0).min(MAX_SHOWN + 1)).collect();
    let cell = |(column, cell): (usize, &String)| {
        let width = widths.get(column).copied().unwrap_or(0);
        if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
    };
    let line = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<String>().trim_end().to_owned();
    rows.iter().map(line).collect()
}

/// Print a note, warning or error on standard error, on one line.
pub fn note(kind: &str, text: impl Display) {
    let text = one_line(&text.to_string());
    // If standard error is closed, there is nobody to tell.
    let _ = writeln!(io::stderr(), "{kind}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_naturally() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (7 << 20, "7.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ];
        for (n, expected) in cases {
            assert_eq!(bytes(n), expected);
        }
    }

    #[test]
    fn counts_agree_with_their_things() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "token")), ["0 tokens", "1 token", "2 tokens"]);
        assert_eq!(counted(2, "branch"), "2 branches");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "200".to_owned()]];
        assert_eq!(table(&rows), ["a       1", "long  200"]);
    }

    #[test]
    fn columns_are_not_as_wide_as_a_cell_can_be() {
        let cell = |text: &str| text.to_owned();
        let lines = table(&[vec!["a".repeat(70_000), cell("b")], vec![cell("a"), cell("b")]]);
        let lengths: Vec<_> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [70_003, MAX_SHOWN + 4]);
    }

    #[test]
    fn long_lines_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three", 80, 2), ["one two three"]);
        assert_eq!(wrap("one two three four", 9, 2), ["one two", "  three", "  four"]);
        assert_eq!(wrap("abcdefghijkl mn", 5, 1), ["abcde", " fghi", " jkl", " mn"]);
        assert_eq!(wrap("", 5, 1), [""]);
        assert_eq!(wrap("\x1b[1mname\x1b[0m: a", 7, 0), ["\x1b[1mname\x1b[0m: a"]);
        assert_eq!(wrap("é é é é", 3, 0), ["é é", "é é"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_spelled_out() {
        assert_eq!(harmless("a\n\tb é"), "a\n\tb é");
        assert_eq!(harmless("\x1b]0;x\x07\r\u{9b}2J"), "\\u{1b}]0;x\\u{7}\\r\\u{9b}2J");
    }

    #[test]
    fn a_redirected_output_has_no_colour() {
        assert!(!colour_wanted(false));
    }
}
