//! Base 64, in which files of vocabularies write bytes.

/// Decode a text in base 64; `None` if it is none.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| -> Option<u32> {
        Some(
            match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            }
            .into(),
        )
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let bits = group.iter().try_fold(0, |bits, &byte| Some(bits << 6 | digit(byte)?))?;
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend([bits >> 16, bits >> 8, bits].iter().take(group.len() - 1).map(|b| *b as u8));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_decoded() {
        assert_eq!(base64("TWFuTWE=").unwrap(), b"ManMa");
        assert_eq!(base64("TQ==").unwrap(), b"M");
        assert_eq!(base64("T?=="), None);
        assert_eq!(base64("TWFuT"), None);
    }
}
