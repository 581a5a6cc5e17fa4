//! Names of saved slots.

/// The longest name, in bytes.
const MAX_NAME: usize = 128;

/// Names that are devices on Windows, with any ending.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// Return true if a name can only mean a file in the folder of saved slots, on every system:
/// letters, digits and `.-_ +@=,` without a dot or a space at either end.
pub(super) fn is_safe(name: &str) -> bool {
    let is_fine = |letter: char| letter.is_alphanumeric() || ".-_ +@=,".contains(letter);
    let is_edge = |letter: Option<char>| matches!(letter, None | Some('.' | ' '));
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let bare = stem.trim_end_matches(|letter: char| letter.is_ascii_digit());
    name.len() <= MAX_NAME
        && name.chars().all(is_fine)
        && !is_edge(name.chars().next())
        && !is_edge(name.chars().next_back())
        && !name.contains("..")
        && !DEVICES.contains(&bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for name in ["slot1.bin", "Gespräch 3.bst", "a", "a-b_c+d@e=f,g"] {
            assert!(is_safe(name), "{name}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            "/etc/passwd",
            "C:x",
            ".hidden",
            "x.",
            " x",
            "x ",
            "a..b",
            "x\0",
            "x\n",
            "nul",
            "COM1.bin",
            "a*b",
            "~",
            "$HOME",
            "．．／x",
            "\u{202e}x",
            &long,
        ] {
            assert!(!is_safe(name), "{name:?}");
        }
    }
}
