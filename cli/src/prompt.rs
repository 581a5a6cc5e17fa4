//! The text to work on: from an option, a file or a pipe.

use crate::args::PromptArgs;
use crate::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

/// No model has a context for this many bytes; an endless pipe has to end somewhere.
const MAX_BYTES: u64 = 64 << 20;

/// The text the user gave, or `None` if there is none: no option, and standard input is a terminal or empty.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read, [`Error::Refused`] if it is not text or far too long.
pub fn read(args: &PromptArgs) -> Result<Option<String>, Error> {
    if let Some(prompt) = &args.prompt {
        return Ok(Some(prompt.clone()));
    }
    match args.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let failed = |source| Error::Read { path: path.into(), source };
            text(File::open(path).map_err(failed)?).map_err(|error| error.at(failed)).map(Some)
        }
        None if io::stdin().is_terminal() => Ok(None),
        _ => {
            let failed = |source| Error::Read { path: "standard input".into(), source };
            let text = text(io::stdin().lock()).map_err(|error| error.at(failed))?;
            Ok(Some(text).filter(|text| args.file.is_some() || !text.is_empty()))
        }
    }
}

#[derive(Debug)]
enum Unreadable {
    Io(io::Error),
    TooLong,
    NotText(usize),
}

impl Unreadable {
    fn at(self, read: impl Fn(io::Error) -> Error) -> Error {
        match self {
            Self::Io(source) => read(source),
            Self::TooLong => Error::Refused(format!("the text is longer than {} MiB", MAX_BYTES >> 20)),
            Self::NotText(at) => {
                Error::Refused(format!("the text is not valid UTF-8 at byte {at}; convert it first"))
            }
        }
    }
}

/// All of `source`, without its last line break.
fn text(source: impl Read) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unreadable::TooLong);
    }
    let mut text = String::from_utf8(bytes).map_err(|e| Unreadable::NotText(e.utf8_error().valid_up_to()))?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_is_not_part_of_the_text() {
        assert_eq!(text(&b"a\nb\n\n"[..]).unwrap(), "a\nb\n");
        assert_eq!(text(&b""[..]).unwrap(), "");
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_place() {
        assert!(matches!(text(&b"ab\xff"[..]), Err(Unreadable::NotText(2))));
    }

    #[test]
    fn an_endless_source_is_refused() {
        assert!(matches!(text(io::repeat(b'y')), Err(Unreadable::TooLong)));
    }
}
