//! The text to work on: from an option, a file or a pipe.

use crate::args::PromptArgs;
use crate::error::Error;
use crate::output::note;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// No model has a context for this many bytes; an endless pipe has to end somewhere.
const MAX_BYTES: u64 = 64 << 20;

/// Time to wait for the end of standard input before telling that the program waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// The text the user gave, or `None` if there is none: no option, and standard input is a terminal or
/// empty. What is piped in comes before the text of `-p`, on lines of its own.
///
/// # Errors
/// [`Error::Read`] if the file cannot be read, [`Error::Refused`] if it is not text or far too long.
pub fn read(args: &PromptArgs) -> Result<Option<String>, Error> {
    let typed = args.prompt.as_ref().map(|text| if args.escape { unescaped(text) } else { text.clone() });
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

/// Tells that the program waits for the end of standard input if that takes long; until the result is dropped. Who
/// starts the program without a terminal may have left a pipe open that nobody writes to.
fn tell_if_long() -> Option<Sender<()>> {
    let (waiting, ended) = mpsc::channel::<()>();
    let tell = move || {
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note("note", "waiting for the end of standard input; `< /dev/null` if there is none");
        }
    };
    std::thread::Builder::new().name("waiting".into()).spawn(tell).ok().map(|_| waiting)
}

fn joined(piped: Option<String>, typed: Option<String>) -> Option<String> {
    match (piped, typed) {
        (Some(piped), Some(typed)) => Some(format!("{piped}\n{typed}")),
        (piped, typed) => piped.or(typed),
    }
}

/// The text with the characters that backslashes stand for; others stay as they are.
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
        rest = after.get(n..).unwrap_or_default();
    }
    plain + rest
}

/// The character of `xHH`, if it is one of ASCII: others are several bytes of a text.
fn hexadecimal(text: &str) -> Option<char> {
    let digits = text.get(1..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(char::from)
}

#[derive(Debug)]
enum Unreadable {
    Io(io::Error),
    TooLong,
    NotText(usize),
    NotUtf16(usize),
}

impl Unreadable {
    fn at(self, read: impl Fn(io::Error) -> Error) -> Error {
        Error::Refused(match self {
            Self::Io(source) => return read(source),
            Self::TooLong => format!("the text is longer than {} MiB", MAX_BYTES >> 20),
            Self::NotText(at) => format!("the text is not valid UTF-8 at byte {at}; convert it first"),
            Self::NotUtf16(at) => {
                format!("the text begins as UTF-16 and is none at byte {at}; save it as UTF-8")
            }
        })
    }
}

/// All of `source`, without a byte-order mark and its last line break; line breaks of other systems become
/// `\n`.
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

/// UTF-8, or UTF-16 with the mark by which it is known.
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
