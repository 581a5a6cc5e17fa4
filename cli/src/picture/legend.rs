//! The colours of a picture: a colour for each meaning, on terminals and in SVG files.

use anstyle::{AnsiColor, Style};

/// The meaning of a part of a picture, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Text.
    Plain,
    /// Title, and labels of rows.
    Heading,
    /// Rulers and explanations.
    Faint,
    /// Block or state that only this sequence uses.
    Own,
    /// Block or state that other sequences use as well.
    Shared,
    /// Window of the next token.
    Window,
    /// Pinned checkpoint.
    Pinned,
    /// Checkpoint of the checkpoint schedule.
    Scheduled,
    /// Rows of a journal, and positions that are reached by replaying them.
    Replayed,
    /// Positions that are reached at once.
    Held,
    /// Positions that are reached by re-evaluating tokens.
    Evaluated,
}

impl Ink {
    /// Return the style on a terminal.
    pub fn style(self) -> Style {
        match self {
            Ink::Plain | Ink::Own => Style::new(),
            Ink::Heading => Style::new().bold(),
            Ink::Faint => Style::new().dimmed(),
            Ink::Shared => AnsiColor::Cyan.on_default(),
            Ink::Window | Ink::Scheduled => AnsiColor::Blue.on_default(),
            Ink::Pinned => AnsiColor::Magenta.on_default(),
            Ink::Replayed => AnsiColor::Yellow.on_default(),
            Ink::Held => AnsiColor::Green.on_default(),
            Ink::Evaluated => AnsiColor::Red.on_default(),
        }
    }

    /// Return the colour in an SVG file. All are of middle lightness, so that they stand out from
    /// white and from black.
    pub fn colour(self) -> &'static str {
        match self {
            Ink::Plain | Ink::Heading => "#73777d",
            Ink::Faint => "#868b91",
            Ink::Own => "#3b82d6",
            Ink::Shared => "#1f8f96",
            Ink::Window => "#6b72d8",
            Ink::Pinned => "#b75fc4",
            Ink::Scheduled => "#4a7fc9",
            Ink::Replayed => "#a97c16",
            Ink::Held => "#2f8f4e",
            Ink::Evaluated => "#d1553f",
        }
    }
}
