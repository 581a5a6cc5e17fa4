//! What people and programs read: text or JSON on standard output, colour on a terminal only.

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    json: bool,
    colour: bool,
}

impl Output {
    /// Locks standard output; `json` is whether the user wants JSON.
    pub fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let colour = colour_wanted(stdout.is_terminal());
        Self { out: BufWriter::new(stdout.lock()), json, colour }
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

    /// Writes a JSON value on a line of its own.
    pub fn value(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    /// Writes bytes as they are and shows them at once.
    pub fn stream(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Shows what was written so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
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
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}

/// Rows in columns, each as wide as its widest cell; columns after the first are aligned to the right.
///
/// No column is wider than a shortened text: formatting panics on widths above 65,535. Longer cells stand out.
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
    fn a_redirected_output_has_no_colour() {
        assert!(!colour_wanted(false));
    }
}
