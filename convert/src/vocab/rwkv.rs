//! RWKV's vocabulary: a number, a literal of Python and a length in each line.

use super::Sources;
use super::special::Specials;
use super::tokens::{Kind, Tokens, wrong};
use crate::error::Error;
use crate::json::read_text;
use crate::metadata::Metadata;

/// Set the keys of a vocabulary of `rwkv_vocab_v20230424.txt`.
pub(super) fn set(sources: Sources<'_>, meta: &mut Metadata) -> Result<(), Error> {
    let path = sources.folder.join("rwkv_vocab_v20230424.txt");
    let text = read_text(&path)?.unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let n = sources.vocab_size(65536)?;
    if lines.len() >= n {
        return Err(wrong(
            &path,
            format!("{} tokens", lines.len()),
            format!("fewer than {n}, the vocab_size"),
        ));
    }
    let mut tokens = Tokens::padding(n);
    tokens.set(0, "<s>", 0.0, Kind::Control);
    for (i, line) in lines.iter().enumerate() {
        let parts = line.split_once(' ').and_then(|(_, rest)| rest.rsplit_once(' '));
        let token = parts.and_then(|(literal, length)| Some((literal_bytes(literal)?, length.trim())));
        let Some((bytes, length)) = token else {
            return Err(wrong(&path, format!("{line:.40}"), "a number, a literal and a length"));
        };
        if length.parse() != Ok(bytes.len()) {
            return Err(wrong(
                &path,
                format!("{} bytes in {line:.40}", bytes.len()),
                format!("{length} bytes"),
            ));
        }
        tokens.set(i + 1, shown(&bytes), 0.0, Kind::Normal);
    }
    let specials = Specials::read(sources, None, tokens.len())?;
    tokens.write("rwkv", None, false, meta);
    meta.set("tokenizer.chat_template", "rwkv-world");
    specials.write(meta);
    // The first token ends texts, whatever the files say.
    meta.set("tokenizer.ggml.eos_token_id", 0u32);
    meta.set("tokenizer.ggml.bos_token_id", 0u32);
    meta.set("tokenizer.ggml.eot_token_id", 261u32);
    Ok(())
}

/// Read a literal of Python: a text or bytes, in either kind of quotes.
fn literal_bytes(literal: &str) -> Option<Vec<u8>> {
    let (is_bytes, quoted) = match literal.strip_prefix('b') {
        Some(rest) => (true, rest),
        None => (false, literal),
    };
    let quote = quoted.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut bytes = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match chars.next()? {
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            kind @ ('x' | 'u' | 'U') => {
                let n = match kind {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits: String = chars.by_ref().take(n).collect();
                let value = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == n)?;
                if is_bytes {
                    bytes.push(u8::try_from(value).ok()?);
                } else {
                    bytes.extend(char::from_u32(value)?.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            same @ ('\\' | '\'' | '"') => bytes.push(same as u8),
            _ => return None,
        }
    }
    Some(bytes)
}

/// Write bytes as the inside of a literal of Python, the form that GGUF keeps.
fn shown(bytes: &[u8]) -> String {
    // Python prefers single quotes, and takes double ones if that saves escapes.
    let quote = if bytes.contains(&b'\'') && !bytes.contains(&b'"') { b'"' } else { b'\'' };
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' => text.push_str("\\\\"),
            byte if byte == quote => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_and_written() {
        let cases: [(&str, &[u8], &str); 6] = [
            (r"'\x00'", b"\0", r"\x00"),
            (r#""'s""#, b"'s", "'s"),
            (r"b'\xe0\xa4'", b"\xe0\xa4", r"\xe0\xa4"),
            ("'é'", "é".as_bytes(), r"\xc3\xa9"),
            (r"'\\n'", b"\\n", r"\\n"),
            (r"'\u00e9\n'", "é\n".as_bytes(), r"\xc3\xa9\n"),
        ];
        for (literal, bytes, text) in cases {
            assert_eq!(literal_bytes(literal).as_deref(), Some(bytes), "{literal}");
            assert_eq!(shown(bytes), text);
        }
        for broken in ["", "'", "x", r"'\x0'", r"b'\u1234'", r"'\q'"] {
            assert_eq!(literal_bytes(broken), None, "{broken}");
        }
    }
}
