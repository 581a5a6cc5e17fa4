//! What people and programs read: text or JSON on standard output, colour on a terminal only.

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    /// Columns of the terminal, or as many as `COLUMNS` says.
    columns: Option<usize>,
    json: bool,
    is_terminal: bool,
    colour: bool,
}

impl Output {
    /// Locks standard output; `json` is whether the user wants JSON.
    pub fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let colour = colour_wanted(is_terminal);
        Self { out: BufWriter::new(stdout.lock()), columns: columns(), json, is_terminal, colour }
    }

    /// Whether the user wants JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The style of headings; nothing off a terminal.
    pub fn heading(&self) -> Style {
        self.style(Style::new().bold())
    }

    /// The style of what matters less.
    pub fn faint(&self) -> Style {
        self.style(Style::new().dimmed())
    }

    /// The style of what went well.
    pub fn good(&self) -> Style {
        self.style(AnsiColor::Green.on_default())
    }

    /// The style of what went wrong.
    pub fn bad(&self) -> Style {
        self.style(AnsiColor::Red.on_default().bold())
    }

    /// The style on a terminal; none elsewhere.
    pub fn style(&self, style: Style) -> Style {
        if self.colour { style } else { Style::new() }
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Columns of drawings: 80 for files and pipes.
    pub fn columns(&self) -> usize {
        self.columns.unwrap_or(80)
    }

    /// Columns of other lines. In files and pipes they are not broken, so that programs find what they look for.
    pub fn room(&self) -> usize {
        self.columns.unwrap_or(MOST_COLUMNS)
    }

    /// Writes text, wrapped where it does not fit; lines after the first begin with `indent` spaces.
    pub fn text(&mut self, text: impl Display, indent: usize) -> io::Result<()> {
        wrap(&text.to_string(), self.room(), indent).iter().try_for_each(|line| self.line(line))
    }

    /// Writes rows in columns; where that is too wide, each row on several lines, its first cell above the others.
    pub fn table(&mut self, rows: &[Vec<String>]) -> io::Result<()> {
        let lines = table(rows);
        if lines.iter().all(|line| line.chars().count() <= self.room()) {
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

    /// Writes a JSON value on a line of its own.
    pub fn value(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    /// Writes text of a model or a person and shows it at once: as it is, but [`harmless`] on a terminal.
    pub fn stream(&mut self, text: &str) -> io::Result<()> {
        let text = if self.is_terminal { harmless(text) } else { text.into() };
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Shows what was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The text with the characters spelled out that a terminal would obey, all but line breaks and tabs.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let shown = |c: char| if is_obeyed(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// More columns than any terminal has.
const MOST_COLUMNS: usize = 100_000;

/// Columns of the terminal, or what `COLUMNS` says; none for files and pipes.
fn columns() -> Option<usize> {
    let wish = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    wish.or_else(terminal).filter(|&n| n > 0).map(|n| n.clamp(20, MOST_COLUMNS))
}

/// The text on lines of at most `columns`, broken at spaces, or within words that are longer than a line.
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

/// As much of the text as fits so many columns, and what follows. Commands to the terminal take no column.
fn split_line(text: &str, columns: usize) -> (&str, &str) {
    let (mut n, mut in_command, mut space) = (0, false, None);
    for (at, c) in text.char_indices() {
        in_command |= c == '\x1b';
        if in_command {
            in_command = c != 'm';
            continue;
        }
        if c == ' ' && n > 0 && !text.get(..at).unwrap_or_default().trim().is_empty() {
            space = Some(at);
        }
        if n == columns {
            let end = space.unwrap_or(at);
            return (text.get(..end).unwrap_or(text), text.get(end..).unwrap_or_default().trim_start());
        }
        n += 1;
    }
    (text, "")
}

/// The custom of <https://no-color.org>.
fn colour_wanted(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Bytes as people read them: "7.5 MiB".
pub fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut unit) = (n as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units.get(unit).copied().unwrap_or_default())
}

/// A number of things in words: "1 token", "2 tokens".
pub fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Longest text shown of what a file holds, in characters.
pub const MAX_SHOWN: usize = 90;

/// The text, cut to [`MAX_SHOWN`] characters.
pub fn shorten(text: &str) -> String {
    cut(text, MAX_SHOWN)
}

/// The text, cut to so many characters.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}

/// Rows in columns, each as wide as its widest cell; columns after the first are aligned to the right.
///
/// No column is wider than a shortened text: formatting panics on widths above 65,535. Longer cells stand
/// out.
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

/// A warning or note on standard error, on one line.
pub fn note(kind: &str, text: impl Display) {
    let text = crate::error::one_line(&text.to_string());
    // Nothing can be done for a user whose standard error is closed.
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
