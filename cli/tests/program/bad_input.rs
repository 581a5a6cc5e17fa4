//! Bad input: one line that says what is wrong, and an exit code that tells it from wrong usage.

use super::{arg, backstitch, piped};
use backstitch_core::DType;
use backstitch_models::gguf::Writer;

#[test]
fn files_that_are_no_models_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let cases = [
        folder.path().join("missing.gguf"),
        folder.path().to_owned(),
        file("three", b"GGU"),
        file("empty", b""),
        file("text", b"Once upon a time there was no model in this file.\n"),
        file("future", b"GGUF\x63\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        file("line\nbreak", b"GGU"),
    ];
    for path in &cases {
        for command in ["run", "tokenize", "inspect", "graph", "bench", "chat"] {
            let outcome = piped(&[command, "-m", arg(path)], b"text\n");
            let name = path.file_name().unwrap().to_str().unwrap().replace('\n', "\\n");
            assert!(outcome.error(1).contains(&name), "{command} {name}: {}", outcome.stderr);
        }
    }
}

#[test]
fn a_model_cut_anywhere_is_an_error_not_a_crash() {
    let demo = std::fs::read(super::repository("demo/demo.gguf")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for cut in [4, 23, 24, 100, 1000, 40_000, demo.len() / 2, demo.len() - 64] {
        std::fs::write(file.path(), &demo[..cut]).unwrap();
        backstitch(&["run", "-n", "1", "-m", arg(file.path())]).error(1);
    }
}

#[test]
fn prompts_that_cannot_be_used_are_refused() {
    let long = "All work and no play makes Jack a dull boy. ".repeat(2300);
    let outcome = piped(&["run"], long.as_bytes());
    assert!(outcome.error(1).contains("do not fit a context of 1024"), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty());
    assert!(piped(&["run"], b"ab\xff").error(1).contains("UTF-8 at byte 2"));
    assert!(backstitch(&["run", "-f", "/no/such/file"]).error(1).contains("/no/such/file"));
    assert!(backstitch(&["tokenize"]).error(1).contains("no text"));
}

#[test]
fn sizes_beyond_reason_are_refused() {
    backstitch(&["run", "-c", "4000000000"]).error(1);
    backstitch(&["bench", "--depth", "4294967295"]).error(1);
    let outcome = backstitch(&["bench", "-c", "100", "--depth", "4000000000"]);
    assert!(outcome.error(1).contains("does not fit a context of 100"), "{}", outcome.stderr);
}

#[test]
fn names_of_any_length_are_shown_shortened() {
    let (key, name) = ("\u{1}".repeat(65_535), "\u{2}".repeat(65_535));
    let mut writer = Writer::new();
    writer.set(key, 1u32).unwrap();
    writer.tensor(name, &[1], DType::F32, &[0; 4]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    writer.write_to(file.as_file()).unwrap();
    let outcome = backstitch(&["inspect", "--tensors", arg(file.path())]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.lines().all(|line| line.chars().count() < 200));
}

#[test]
fn wrong_usage_is_code_two() {
    let cases: [&[&str]; 7] = [
        &[],
        &["sing"],
        &["run", "--tempo", "1"],
        &["run", "--temp", "hot"],
        &["run", "-p", "a", "-f", "b"],
        &["run", "-t", "none"],
        &["verify"],
    ];
    for args in cases {
        let outcome = backstitch(args);
        assert_eq!(outcome.code, Some(2), "{args:?}");
        assert!(outcome.stdout.is_empty() && !outcome.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_teaches_by_example() {
    let commands = ["run", "chat", "tokenize", "inspect", "graph", "bench", "verify", "state", "store"];
    let of_state = ["state inspect", "state check", "state diff", "state trim", "state convert"];
    let of_store = ["store list", "store check", "store prune"];
    for command in commands.iter().chain(&of_state).chain(&of_store) {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = backstitch(&words).ok();
        assert!(
            help.contains("Examples:\n  ") && help.contains(&format!("backstitch {command}")),
            "{command}"
        );
    }
}
