//! Architectures stay short: what two of them share is a block or a choice, not a copy.

use std::collections::BTreeMap;
use std::path::Path;

/// Lines of an architecture's file, and of the middle one of all.
const MAX_LINES: usize = 150;
const MAX_MEDIAN: usize = 50;
/// Lines that may not stand in two files one after another.
const BLOCK: usize = 6;

/// Return the files in `src/arch` by name.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .map(|path| {
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Return true if the table of architectures names a function of a file.
fn is_architecture(name: &str) -> bool {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch.rs");
    std::fs::read_to_string(table).unwrap().contains(&format!("build: {name}::"))
}

#[test]
fn files_of_architectures_are_short() {
    let files = files().into_iter().filter(|(name, _)| is_architecture(name));
    let mut lengths: Vec<usize> = Vec::new();
    for (name, text) in files {
        let n = text.lines().count();
        assert!(n <= MAX_LINES, "{name} has {n} lines");
        lengths.push(n);
    }
    lengths.sort_unstable();
    assert!(lengths.len() > 50, "{lengths:?}");
    let median = lengths[lengths.len() / 2];
    assert!(median <= MAX_MEDIAN, "half of the files have more than {median} lines");
}

#[test]
fn no_two_files_share_a_block_of_lines() {
    let mut seen: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    let files = files();
    for (name, text) in &files {
        // Comments, imports and lone brackets are no code that could be shared.
        let code: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| line.contains(char::is_alphanumeric) && !line.starts_with("//"))
            .collect();
        let imports_end = code.iter().position(|line| line.starts_with("pub(super) ")).unwrap_or(0);
        for block in code[imports_end..].windows(BLOCK) {
            let other = seen.entry(block.to_vec()).or_insert(name);
            assert!(other == name, "{name} and {other} share\n{}", block.join("\n"));
        }
    }
}
