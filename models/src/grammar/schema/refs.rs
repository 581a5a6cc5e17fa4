//! References to other places of the same schema.

use alloc::{string::String, vec::Vec};

use serde_json::Value;

/// Return the JSON pointer that a reference means, and the value there.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<(String, &'s Value)> {
    let pointer = reference.strip_prefix('#')?;
    // llama.cpp and its clients write the root as `#/` too.
    let pointer = if pointer == "/" { "" } else { pointer };
    let found = |pointer: String| root.pointer(&pointer).map(|value| (pointer, value));
    // A reference is part of an address, so that its characters may be written in hexadecimal.
    decoded(pointer).and_then(found).or_else(|| found(pointer.into()))
}

/// Return the schema that `schema` refers to over `n` references at most, or itself; `None` if to
/// nothing. Return the cost of finding it, too, in values.
pub(super) fn followed<'s>(schema: &'s Value, root: &'s Value, n: usize) -> (Option<&'s Value>, usize) {
    let (mut schema, mut n_read) = (schema, 0);
    for _ in 0..n {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { break };
        n_read += reference.len() / 64;
        match target(root, reference) {
            Some((_, target)) => schema = target,
            None => return (None, n_read),
        }
    }
    (Some(schema), n_read)
}

/// Return `text` with the bytes that `%` announces; `None` if that is no text.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| 16 * high + low),
            _ => None,
        };
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8(out).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| digit.try_into().ok())
}
