//! Bad input: one line that says what is wrong, and an exit code that tells it from wrong usage.

use super::{arg, backstitch, piped, repository};
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
fn a_text_ends_at_the_last_position_that_a_model_has() {
    let model = super::repository("goldens/models/gpt2.gguf");
    let command = ["run", "-m", arg(&model), "-p", "a", "-c", "512", "--ignore-eos", "--json"];
    let outcome = backstitch(&command);
    assert!(outcome.stderr.contains("-c 512: the model has 128 positions"), "{}", outcome.stderr);
    let json: serde_json::Value = serde_json::from_str(&outcome.ok()).unwrap();
    assert_eq!((json["tokens"].as_array().unwrap().len(), &json["truncated"]), (127, &true.into()));
}

#[test]
fn a_server_without_the_keys_that_it_should_have_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let comments = folder.path().join("keys");
    std::fs::write(&comments, "# a key a line\n\n").unwrap();
    for (args, told) in [
        (["--api-key", ""], "--api-key is empty"),
        (["--api-key-file", comments.to_str().unwrap()], "has no keys"),
        (["--api-key", ","], "--api-key is empty"),
        #[cfg(unix)]
        (["--api-key-file", "/dev/zero"], "/dev/zero: longer than 1.0 MiB"),
        (["--reasoning-budget", "50"], "50 is not in -1..=0"),
        (["--seed", "4294967296"], "seeds here have 32 bits"),
    ] {
        let outcome = backstitch(&[&["serve", "--port", "0"], &args[..]].concat());
        assert_ne!(outcome.code, Some(0));
        assert!(outcome.stderr.contains(told), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn sizes_beyond_reason_are_refused() {
    backstitch(&["run", "-c", "4000000000"]).error(1);
    backstitch(&["bench", "--depth", "4294967295"]).error(1);
    let outcome = backstitch(&["bench", "-c", "100", "--depth", "4000000000"]);
    assert!(outcome.error(1).contains("does not fit a context of 100"), "{}", outcome.stderr);
}

#[test]
fn a_wrong_number_in_a_list_is_named_with_its_place() {
    for (wrong, named) in [
        (["-p", "128,x"], "\"x\" at place 2: wanted a whole number from 1"),
        (["-n", "0"], "wanted a whole number from 1, or several with commas between, like 1,2"),
        (["-d", "0,-1"], "\"-1\" at place 2: wanted a whole number from 0"),
        (["-t", "1,,2"], "nothing at place 2"),
    ] {
        let outcome = backstitch(&[&["bench"][..], &wrong].concat());
        assert!(outcome.error(2).contains(named), "{wrong:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
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
        assert!(
            args.is_empty() || outcome.error(2).ends_with("--help`") || args.contains(&"--tempo"),
            "{args:?}"
        );
    }
}

#[test]
fn a_file_of_another_kind_names_the_command_that_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    backstitch(&["run", "-p", "The cat", "-n", "2", "-s", "1", "--save", arg(&at("cat.bst"))]).ok();
    backstitch(&["state", "convert", arg(&at("cat.bst")), "-o", arg(&at("cat.session"))]).ok();
    std::fs::write(at("tiny"), "Dear Tim").unwrap();
    std::fs::write(at("letter"), "Dear Tim, ".repeat(999)).unwrap();
    std::fs::copy(super::repository("demo/demo.gguf"), at("demo.gguf")).unwrap();
    let (state, session, packed) = (at("cat.bst"), at("cat.session"), at("packed.gguf"));
    let (tiny, letter, demo) = (at("tiny"), at("letter"), at("demo.gguf"));
    let cases: [(&[&str], &str); 10] = [
        (&["run", "--restore", arg(&session)], "`backstitch state convert`"),
        (&["state", "inspect", arg(&session)], "`backstitch state convert`"),
        (&["run", "--restore", arg(&tiny)], "tiny is a text file, not a saved state"),
        (&["state", "inspect", arg(&tiny)], "tiny is a text file, not a saved state"),
        (&["state", "check", arg(&letter)], "letter is a text file, not a saved state"),
        (&["run", "--restore", arg(&demo)], "is a model (GGUF), not a saved state; -m takes it"),
        (&["inspect", arg(&state)], "`backstitch state inspect`"),
        (&["pack", arg(&state), arg(&packed)], "`backstitch state inspect`"),
        (&["run", "-m", arg(&state)], "`backstitch run --restore`"),
        (&["tokenize", "-p", "a", "-m", arg(&session)], "is a state of llama.cpp, not a model"),
    ];
    for (args, wanted) in cases {
        let outcome = backstitch(args);
        assert!(outcome.error(1).contains(wanted), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn errors_name_options_and_sizes_that_people_read() {
    let phi3 = repository("goldens/models/phi3.gguf");
    let cases: [(&[&str], &str); 2] = [
        (&["-m", arg(&phi3), "-ctk", "q8_0"], "give -ctk f16 -ctv f16"),
        (&["-ub", "70000", "-c", "80000"], "-ub is 70000, not a number from 1 to 65536"),
    ];
    for (args, wanted) in cases {
        let outcome = backstitch(&[&["run", "-p", "a", "-n", "1"], args].concat());
        assert!(outcome.error(1).contains(wanted), "{args:?}: {}", outcome.stderr);
    }
    let folder = tempfile::TempDir::new().unwrap();
    let cut = folder.path().join("cut.bst");
    backstitch(&["run", "-p", "a", "-n", "1", "--save", arg(&cut)]).ok();
    let whole = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 3000]).unwrap();
    let outcome = backstitch(&["state", "check", arg(&cut)]);
    assert!(outcome.error(1).contains(" is cut off: 2.9 KiB are missing"), "{}", outcome.stderr);
}

#[test]
fn help_teaches_by_example() {
    let commands = ["run", "chat", "tokenize", "inspect", "graph", "bench", "verify", "state", "cache"];
    let of_state = ["state inspect", "state check", "state diff", "state trim", "state convert"];
    let of_cache = ["cache list", "cache check", "cache prune"];
    for command in commands.iter().chain(&of_state).chain(&of_cache) {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = backstitch(&words).ok();
        assert!(
            help.contains("Examples:\n  ") && help.contains(&format!("backstitch {command}")),
            "{command}"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_context_larger_than_the_memory_there_is_is_refused_with_both_sizes() {
    let program = env!("CARGO_BIN_EXE_backstitch");
    for command in ["run -n 1", "timeline -n 1", "bench -n 1 -p 1"] {
        let line = format!("ulimit -v 3000000 && exec {program} {command} -c 2000000 2>&1");
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("of 2000000 tokens needs ") && told.contains("`ulimit -v` leaves "), "{told}");
        assert!(told.contains("GiB") && told.contains("lower -c") && !told.contains("panicked"), "{told}");
    }
}
