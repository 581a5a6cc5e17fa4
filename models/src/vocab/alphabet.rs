//! The alphabet that byte-pair vocabularies are written in: every byte is one printable character.
//!
//! Bytes that are printable in Latin-1 stand for themselves, the other 68 are moved, in order, to U+0100 and up. So a space
//! is `Ġ` (U+0120) and a line feed `Ċ`. Introduced with GPT-2 (`encoder.py`, `bytes_to_unicode`).

use alloc::vec::Vec;

/// Whether a byte is written as the Latin-1 character with its own number.
const fn is_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The code point each byte is written as.
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

/// The byte each of the first 324 code points stands for.
const BYTE: [Option<u8>; 324] = {
    let mut table = [None; 324];
    let mut byte = 0;
    while byte < 256 {
        table[CODE[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// Appends `byte` in the alphabet.
pub(super) fn encode(byte: u8, out: &mut Vec<u8>) {
    let code = u32::from(CODE.get(usize::from(byte)).copied().unwrap_or(0));
    let mut utf8 = [0; 4];
    out.extend_from_slice(char::from_u32(code).unwrap_or('\0').encode_utf8(&mut utf8).as_bytes());
}

/// Appends the bytes that `text` stands for and returns true; returns false and appends nothing if `text` is not UTF-8 or
/// has a character outside the alphabet.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(text) = core::str::from_utf8(text) else { return false };
    let start = out.len();
    for c in text.chars() {
        match BYTE.get(c as usize) {
            Some(&Some(byte)) => out.push(byte),
            _ => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
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
