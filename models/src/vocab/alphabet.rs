//! The alphabet in which byte-pair vocabularies are written: every byte is one printable character.
//!
//! Bytes that are printable in Latin-1 stand for themselves. The other 68 are moved, in order, to
//! U+0100 and up, so a space is `Ġ` (U+0120) and a line feed `Ċ`. GPT-2 introduced it
//! (`encoder.py`, `bytes_to_unicode`).

use alloc::vec::Vec;

/// Return true if a byte is written as the Latin-1 character with its own number.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The code point that each byte is written as.
const CODE: [u16; 256] = {
    let mut code = [0; 256];
    let mut byte = 0;
    let mut moved = 0;
    while byte < 256 {
        if is_itself(byte as u8) {
            code[byte] = byte as u16;
        } else {
            code[byte] = 256 + moved;
            moved += 1;
        }
        byte += 1;
    }
    code
};

/// The byte that each of the first 324 code points stands for.
const BYTE: [Option<u8>; 324] = {
    let mut table = [None; 324];
    let mut byte = 0;
    while byte < 256 {
        table[CODE[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// Append `byte` in the alphabet.
pub(super) fn encode(byte: u8, out: &mut Vec<u8>) {
    let code = u32::from(CODE.get(usize::from(byte)).copied().unwrap_or(0));
    let mut utf8 = [0; 4];
    out.extend_from_slice(char::from_u32(code).unwrap_or('\0').encode_utf8(&mut utf8).as_bytes());
}

/// Append the bytes that `text` stands for and return true. Return false and append nothing if
/// `text` has a character outside of the alphabet. Characters of the alphabet take one or two bytes
/// of UTF-8.
pub(super) fn decode(mut text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    loop {
        let (code, rest) = match text {
            [] => return true,
            &[one, ref rest @ ..] if one.is_ascii() => (usize::from(one), rest),
            &[lead @ 0xc2..=0xc5, next @ 0x80..=0xbf, ref rest @ ..] => {
                (usize::from(lead & 0x1f) << 6 | usize::from(next & 0x3f), rest)
            }
            _ => (usize::MAX, text),
        };
        let Some(&Some(byte)) = BYTE.get(code) else {
            out.truncate(start);
            return false;
        };
        out.push(byte);
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character_and_comes_back() {
        for byte in 0..=255 {
            let (mut text, mut back) = (Vec::new(), Vec::new());
            encode(byte, &mut text);
            assert!(decode(&text, &mut back));
            assert_eq!(back, [byte]);
        }
    }

    #[test]
    fn well_known_characters() {
        let mut text = Vec::new();
        for byte in *b" \nA\0\xad" {
            encode(byte, &mut text);
        }
        assert_eq!(text, "ĠĊAĀŃ".as_bytes());
    }

    #[test]
    fn other_characters_are_refused_whole() {
        for text in ["a b", "▁a", "Ġń日"] {
            let mut out = Vec::from(*b"kept");
            assert!(!decode(text.as_bytes(), &mut out), "{text}");
            assert_eq!(out, b"kept");
        }
        assert!(!decode(b"\xff", &mut Vec::new()));
    }
}
