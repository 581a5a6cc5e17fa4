//! The prompt, from an option, a file or a pipe.
//!
//! A prompt is UTF-8. Texts of other systems are accepted if they are unmistakable: with a
//! byte-order mark, as UTF-16 with one, and with the line breaks of Windows. Anything else is
//! refused with the place of the first wrong byte, because a model would silently read something
//! else.

use crate::args::PromptArgs;
use crate::error::Error;
use crate::output::note;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Longest prompt, in bytes. No model has a context for as much, and an endless pipe must not fill
/// the memory.
const MAX_BYTES: u64 = 64 << 20;

/// Time to wait for the end of standard input before a note says that the program waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Read the prompt. `None` means that there is none: no option, and standard input is a terminal or
/// empty. Piped text comes before that of `-p`, on lines of its own.
///
/// # Errors
/// - [`Error::Read`] if the file or standard input cannot be read.
/// - [`Error::Refused`] if the text is not UTF-8, or longer than [`MAX_BYTES`].
pub fn read(args: &PromptArgs) -> Result<Option<String>, Error> {
    let typed = args.prompt.as_ref().map(|text| escaped(text, args.escape));
    match args.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let failed = |source| Error::Read { path: path.into(), source };
            text(File::open(path).map_err(failed)?).map_err(|error| error.at(failed)).map(Some)
        }
        None if io::stdin().is_terminal() => Ok(typed),
        _ => {
            let failed = |source| Error::Read { path: "standard input".into(), source };
            let waiting = tell_if_long();
            let piped = text(io::stdin().lock()).map_err(|error| error.at(failed))?;
            drop(waiting);
            Ok(joined(Some(piped).filter(|piped| args.file.is_some() || !piped.is_empty()), typed))
        }
    }
}

/// Start a thread that prints a note if standard input does not end soon. Dropping the result stops
/// it. A program that was started without a terminal may have inherited an open pipe to which
/// nobody writes; without the note it would seem to hang.
fn tell_if_long() -> Option<Sender<()>> {
    let (waiting, ended) = mpsc::channel::<()>();
    let tell = move || {
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note("note", "waiting for the end of standard input; `< /dev/null` if there is none");
        }
    };
    std::thread::Builder::new().name("waiting".into()).spawn(tell).ok().map(|_| waiting)
}

/// Put the piped text before the typed one.
fn joined(piped: Option<String>, typed: Option<String>) -> Option<String> {
    match (piped, typed) {
        (Some(piped), Some(typed)) => Some(format!("{piped}\n{typed}")),
        (piped, typed) => piped.or(typed),
    }
}

/// Return a text that was typed as an option, with its escapes replaced if `is_escaped`.
pub fn escaped(text: &str, is_escaped: bool) -> String {
    if is_escaped { unescaped(text) } else { text.into() }
}

/// Replace escapes (`\n`, `\x41`) by the characters that they stand for. Unknown escapes stay as
/// they are.
fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let (c, n) = match after.as_bytes() {
            [b'n', ..] => ('\n', 1),
            [b't', ..] => ('\t', 1),
            [b'r', ..] => ('\r', 1),
            [c @ (b'"' | b'\'' | b'\\'), ..] => (char::from(*c), 1),
            [b'x', ..] => hexadecimal(after).map_or(('\\', 0), |c| (c, 3)),
            _ => ('\\', 0),
        };
        plain.push(c);
        (_, rest) = after.split_at(n);
    }
    plain + rest
}

/// Return the character of `xHH` if it is ASCII. Larger numbers would be bytes of a character, not
/// characters.
fn hexadecimal(text: &str) -> Option<char> {
    let digits = text.get(1..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(char::from)
}

/// A reason why a source is no prompt.
#[derive(Debug)]
enum Unreadable {
    Io(io::Error),
    /// More than [`MAX_BYTES`].
    TooLong,
    /// Not UTF-8 at this byte.
    NotText(usize),
    /// Not UTF-16 at this byte, though the text begins like that.
    NotUtf16(usize),
}

impl Unreadable {
    /// Make the error of the command; `read` makes that of a failed read.
    fn at(self, read: impl Fn(io::Error) -> Error) -> Error {
        Error::Refused(match self {
            Self::Io(source) => return read(source),
            Self::TooLong => format!("the text is longer than {} MiB; shorten it", MAX_BYTES >> 20),
            Self::NotText(at) => format!("the text is not valid UTF-8 at byte {at}; convert it first"),
            Self::NotUtf16(at) => {
                format!("the text begins like UTF-16 and is not valid at byte {at}; save it as UTF-8")
            }
        })
    }
}

/// Read all of `source`, without a byte-order mark and the last line break. Line breaks of other
/// systems become `\n`.
fn text(source: impl Read) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Unreadable::TooLong);
    }
    let mut text = decoded(bytes)?;
    if text.contains("\r\n") {
        text = text.replace("\r\n", "\n");
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// Decode UTF-8, or UTF-16 with its byte-order mark.
fn decoded(bytes: Vec<u8>) -> Result<String, Unreadable> {
    match bytes.as_slice() {
        [0xff, 0xfe, units @ ..] => utf16(units, u16::from_le_bytes),
        [0xfe, 0xff, units @ ..] => utf16(units, |[high, low]| u16::from_le_bytes([low, high])),
        [0xef, 0xbb, 0xbf, text @ ..] => {
            let text =
                std::str::from_utf8(text).map_err(|error| Unreadable::NotText(3 + error.valid_up_to()))?;
            Ok(text.into())
        }
        _ => String::from_utf8(bytes).map_err(|e| Unreadable::NotText(e.utf8_error().valid_up_to())),
    }
}

/// Decode UTF-16; `unit` makes a number of two bytes in the right order.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Unreadable> {
    let (units, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    let mut at = 2;
    for c in char::decode_utf16(units.iter().map(|bytes| unit(*bytes))) {
        let c = c.map_err(|_| Unreadable::NotUtf16(at))?;
        at += 2 * c.len_utf16();
        text.push(c);
    }
    if rest.is_empty() { Ok(text) } else { Err(Unreadable::NotUtf16(at)) }
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

    #[test]
    fn marks_and_line_breaks_of_other_systems_are_as_if_they_were_not_there() {
        assert_eq!(text(&b"\xef\xbb\xbfa\r\nb\rc\r\n"[..]).unwrap(), "a\nb\rc");
        let units: Vec<u16> = "né\r\n𝄞\r\n".encode_utf16().collect();
        let little: Vec<u8> =
            [0xff, 0xfe].into_iter().chain(units.iter().flat_map(|u| u.to_le_bytes())).collect();
        let big: Vec<u8> =
            [0xfe, 0xff].into_iter().chain(units.iter().flat_map(|u| u.swap_bytes().to_le_bytes())).collect();
        assert_eq!(text(&little[..]).unwrap(), "né\n𝄞");
        assert_eq!(text(&big[..]).unwrap(), "né\n𝄞");
        assert!(matches!(text(&little[..little.len() - 1]), Err(Unreadable::NotUtf16(16))));
        assert!(matches!(text(&b"\xff\xfe\x00\xd8a\0"[..]), Err(Unreadable::NotUtf16(2))));
        assert!(matches!(text(&b"\xef\xbb\xbfa\xff"[..]), Err(Unreadable::NotText(4))));
    }

    #[test]
    fn backslashes_stand_for_characters_where_that_is_wanted() {
        assert_eq!(unescaped(r#"a\nb\t\"c\"\\n \x41\xe9\q\"#), "a\nb\t\"c\"\\n A\\xe9\\q\\");
    }

    #[test]
    fn piped_text_comes_before_typed() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(joined(some("a"), some("b")), some("a\nb"));
        assert_eq!(joined(None, some("b")), some("b"));
        assert_eq!(joined(some("a"), None), some("a"));
    }
}
