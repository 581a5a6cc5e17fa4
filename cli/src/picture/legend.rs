//! What the colours and signs of a picture mean.

use anstyle::{AnsiColor, Style};

/// What a part of a picture stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Heading,
    Faint,
    /// A block that only this sequence has.
    Own,
    /// A block that other sequences have as well.
    Shared,
    /// What a window shows.
    Window,
    Pinned,
    /// A checkpoint of the checkpoint schedule.
    Scheduled,
    /// Rows of a journal, and positions that are reached by them.
    Replayed,
    Held,
    /// Tokens that are re-evaluated.
    Evaluated,
}

impl Ink {
    /// Its style on a terminal.
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

    /// Its colour in a drawing; of middle lightness, so that it stands out from white and from black.
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
