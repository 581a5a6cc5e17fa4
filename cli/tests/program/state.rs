//! `state`: what files of states say of themselves, and what is said of files that are none.

use super::{arg, backstitch, repository};
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::{Context, Model, Params, SaveOptions, Token};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const TITLE: &str = "Once upon a time";

/// A state of the embedded model after some tokens, in a file.
fn saved(folder: &TempDir, name: &str, tokens: &[Token], pin: Option<i32>) -> PathBuf {
    let model = Model::from_bytes(&std::fs::read(repository("demo/demo.gguf")).unwrap()).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(1024)).unwrap();
    let seq = ctx.sequence().unwrap();
    let (front, rest) = tokens.split_at(pin.unwrap_or(0) as usize);
    ctx.append(seq, front).unwrap();
    if pin.is_some() {
        ctx.pin(seq).unwrap();
    }
    ctx.append(seq, rest).unwrap();
    let chain = Chain::new(model.hparams().n_vocab, &Settings::default().seed(7));
    let metadata = format!("{TITLE}\x1b[31m\n").into_bytes();
    let options = SaveOptions::default().sampler(Some(&chain)).metadata(&metadata);
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &options).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn tokens(n: u32) -> Vec<Token> {
    (0..n).map(|i| Token(100 + i * 7 % 1500)).collect()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&backstitch(args).ok()).unwrap()
}

#[test]
fn a_state_says_what_it_holds() {
    let folder = TempDir::new().unwrap();
    let path = saved(&folder, "a.bst", &tokens(300), Some(100));
    let text = backstitch(&["state", "inspect", arg(&path)]).ok();
    for part in [
        "one sequence",
        "attention over everything: 6 layers",
        "recurrent: 6 layers",
        "0: positions up to 299, 300 tokens",
        "100 (pinned)",
        "rolls back at once to 0, 100, 256",
        "replays recurrences to",
        "sampler: seed 7",
        "metadata: 22 B: Once upon a time\\u{1b}[31m\\n",
        "CELL",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    let listed = backstitch(&["state", "inspect", "--sections", arg(&path)]).ok();
    assert!(listed.lines().count() > text.lines().count(), "{listed}");
}

#[test]
fn programs_read_the_same_and_the_rollback_costs_are_those_after_restoring() {
    let folder = TempDir::new().unwrap();
    let path = saved(&folder, "a.bst", &tokens(300), Some(100));
    let json = json(&["state", "inspect", "--json", arg(&path)]);
    assert_eq!((&json["format"], &json["scope"]), (&2.into(), &"sequence".into()));
    assert_eq!(json["bytes"], std::fs::metadata(&path).unwrap().len());
    assert_eq!(json["sequences"][0]["tokens"].as_array().unwrap().len(), 300);

    let model = Model::from_bytes(&std::fs::read(repository("demo/demo.gguf")).unwrap()).unwrap();
    assert_eq!(json["fingerprint"], model.fingerprint().to_string());
    let mut ctx = Context::new(&model, Params::default().n_ctx(1024)).unwrap();
    let seq = ctx.sequence().unwrap();
    let restored =
        ctx.seq_state_read_bytes(seq, &std::fs::read(&path).unwrap(), &Default::default()).unwrap();
    let told = json["sequences"][0]["positions"].as_array().unwrap();
    assert_eq!(told.len(), restored.sequences[0].positions.len());
    for (told, range) in told.iter().zip(&restored.sequences[0].positions) {
        assert_eq!(told["first"], range.positions.start.0);
        assert_eq!(told["last"], range.positions.end.0 - 1);
        assert_eq!(told["restored_from"], range.restored_from.0);
    }
}

#[test]
fn differences_begin_where_the_tokens_do() {
    let folder = TempDir::new().unwrap();
    let mut other = tokens(300);
    let a = saved(&folder, "a.bst", &other, None);
    let again = saved(&folder, "again.bst", &other, None);
    assert_eq!(backstitch(&["state", "diff", arg(&a), arg(&again)]).ok(), "the same state\n");

    other[123] = Token(55);
    let b = saved(&folder, "b.bst", &other, None);
    let outcome = backstitch(&["state", "diff", arg(&a), arg(&b)]);
    assert!(outcome.error(1).contains("the states differ in 4 ways"), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("tokens of sequence 0: token 123 is "), "{}", outcome.stdout);
    assert!(
        outcome.stdout.contains("cells of sequence 0: position 123: keys of layer 0 differ"),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.contains("state of sequence 0: layer "), "{}", outcome.stdout);

    let shorter = saved(&folder, "shorter.bst", &tokens(200), None);
    let outcome = backstitch(&["state", "diff", "--json", arg(&a), arg(&shorter)]);
    let found: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&found[0]["what"], &found[0]["at"]), (&"tokens".into(), &200.into()));
    assert_eq!((&found[1]["what"], &found[1]["at"]), (&"cells".into(), &200.into()));
}

#[test]
fn every_byte_is_checked() {
    let folder = TempDir::new().unwrap();
    let path = saved(&folder, "a.bst", &tokens(70), None);
    assert!(backstitch(&["state", "check", arg(&path)]).ok().contains("sound: "));
    let sound = std::fs::read(&path).unwrap();
    let sections = json(&["state", "inspect", "--json", arg(&path)])["sections"].clone();
    for section in sections.as_array().unwrap().iter().filter(|section| section["stored_bytes"] != 0) {
        let (tag, at) = (section["tag"].as_str().unwrap(), section["offset"].as_u64().unwrap());
        let mut bytes = sound.clone();
        bytes[at as usize] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let outcome = backstitch(&["state", "check", arg(&path)]);
        assert!(outcome.error(1).contains(&format!("{tag} at {at} is damaged")), "{}", outcome.stderr);
    }
    for cut in (0..sound.len()).step_by(sound.len() / 24) {
        std::fs::write(&path, &sound[..cut]).unwrap();
        backstitch(&["state", "check", arg(&path)]).error(1);
    }
}

#[test]
fn what_is_no_state_file_is_one_line() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let mut cases = vec![
        folder.path().join("missing"),
        folder.path().to_owned(),
        file("empty", b""),
        file("short", b"BSTS"),
        file("text", b"Once upon a time there was no state in this file.\n"),
        file("control", b"\x1b[31mred"),
        file("zeros", &[0; 5000]),
        repository("demo/demo.gguf"),
    ];
    cases.extend(pipe(folder.path()));
    let sound = saved(&folder, "a.bst", &tokens(3), None);
    for path in &cases {
        let output = folder.path().join("output");
        let commands = [
            &["state", "inspect"][..],
            &["state", "check"],
            &["state", "diff", arg(&sound)],
            &["state", "trim", "--to", "0", "-o", arg(&output)],
            &["state", "convert", "-o", arg(&output)],
            &["run", "--restore"],
        ];
        for args in commands {
            let outcome = backstitch(&[args, &[arg(path)]].concat());
            let line = outcome.error(1);
            assert!(!line.contains('\x1b') && line.len() < 400, "{line:?}");
            assert!(line.contains(path.file_name().unwrap().to_str().unwrap()), "{line}");
        }
    }
}

#[test]
fn a_trimmed_state_is_that_of_its_first_tokens() {
    let folder = TempDir::new().unwrap();
    let whole = saved(&folder, "whole.bst", &tokens(300), Some(100));
    let first = saved(&folder, "first.bst", &tokens(290), Some(100));
    let output = folder.path().join("trimmed.bst");
    let trim = |to: &str, output: &Path| {
        backstitch(&["state", "trim", arg(&whole), "--to", to, "-o", arg(output), "--force"])
    };
    let text = trim("290", &output).ok();
    assert!(text.contains("positions up to 290 of 300") && text.contains("replayed"), "{text}");
    let differences = backstitch(&["state", "diff", arg(&first), arg(&output)]);
    for what in ["tokens", "cells", "state of"] {
        assert!(!differences.stdout.contains(what), "{}", differences.stdout);
    }
    assert!(trim("150", &output).ok().contains("50 tokens re-evaluated"));
    assert!(trim("301", &output).error(1).contains("ends at position 300"));

    let before = std::fs::read(&whole).unwrap();
    let model = repository("goldens/models/falcon_h1.gguf");
    let other =
        backstitch(&["state", "trim", arg(&whole), "--to", "3", "-o", arg(&whole), "-m", arg(&model)]);
    assert!(other.error(1).contains("belongs to model"), "{}", other.stderr);
    assert_eq!(std::fs::read(&whole).unwrap(), before);
    let llama = repository("goldens/models/llama.gguf");
    let theirs = folder.path().join("llama.bst");
    backstitch(&["run", "-m", arg(&llama), "-p", "a", "-n", "1", "--save", arg(&theirs)]).ok();
    for args in [&["trim", "--to", "1"][..], &["convert"]] {
        let untold =
            backstitch(&[&["state"], args, &["-o", arg(&folder.path().join("new")), arg(&theirs)]].concat());
        assert!(
            untold.error(1).contains("without -m it was tried with the model inside"),
            "{}",
            untold.stderr
        );
        let fingerprint = Model::open(&llama).unwrap().fingerprint().to_string();
        assert!(untold.stderr.contains(&fingerprint[..32]), "{}", untold.stderr);
    }
    trim("100", &whole).ok();
    assert!(backstitch(&["state", "inspect", arg(&whole)]).ok().contains("positions up to 99, 100 tokens"));
}

/// The golden model phi3 rotates keys by other frequencies in contexts of more than 384 tokens, so
/// states of such contexts have a fingerprint of their own.
#[test]
fn states_of_long_contexts_are_accepted() {
    let folder = TempDir::new().unwrap();
    let phi3 = repository("goldens/models/phi3.gguf");
    let path = |name: &str| folder.path().join(name);
    let (long, usual, theirs) = (path("long.bst"), path("usual.bst"), path("theirs"));
    let run = |n_ctx: &str, to: &Path| {
        let command = ["run", "-m", arg(&phi3), "-p", "a b c", "-n", "8", "--temp", "0", "--ignore-eos"];
        backstitch(&[&command[..], &["-c", n_ctx, "--save", arg(to)]].concat()).ok();
    };
    run("512", &long);
    run("384", &usual);
    for state in [&long, &usual] {
        let trimmed = path("trimmed.bst");
        let trim = ["state", "trim", arg(state), "--to", "4", "-o", arg(&trimmed), "-m", arg(&phi3)];
        let text = backstitch(&[&trim[..], &["--force"]].concat()).ok();
        assert!(text.contains("positions up to 4 of "), "{text}");
        let fingerprints = [state, &trimmed]
            .map(|path| json(&["state", "inspect", "--json", arg(path)])["fingerprint"].clone());
        assert_eq!(fingerprints[0], fingerprints[1]);
        // The state is accepted; llama.cpp's layout of this architecture's states is not known.
        let convert = ["state", "convert", arg(state), "-o", arg(&theirs), "-m", arg(&phi3), "--force"];
        let refused = backstitch(&convert);
        assert!(refused.error(1).contains("not supported for architecture"), "{}", refused.stderr);
        backstitch(&["state", "inspect", "--text", arg(state), "-m", arg(&phi3)]).ok();
    }
    assert_ne!(
        json(&["state", "inspect", "--json", arg(&long)])["fingerprint"],
        json(&["state", "inspect", "--json", arg(&usual)])["fingerprint"]
    );

    let restore = |n_ctx: &str, state: &Path| {
        backstitch(&["run", "-m", arg(&phi3), "-n", "1", "-c", n_ctx, "--restore", arg(state)])
    };
    assert!(restore("384", &long).error(1).contains("raise -c to at least 385"));
    assert!(restore("512", &usual).error(1).contains("lower -c to 384"));
    restore("385", &long).ok();
}

#[test]
fn what_goes_through_llama_cpp_s_files_keeps_tokens_cells_and_states() {
    let folder = TempDir::new().unwrap();
    let path = saved(&folder, "a.bst", &tokens(70), None);
    for form in ["session", "sequence"] {
        let (theirs, back) = (folder.path().join(form), folder.path().join("back.bst"));
        let told = backstitch(&["state", "convert", arg(&path), "-o", arg(&theirs), "--to", form]);
        assert!(told.stderr.contains("left out") && told.stderr.contains("the samplers"), "{}", told.stderr);
        told.ok();
        assert!(backstitch(&["state", "inspect", arg(&theirs)]).error(1).contains("state convert"));
        let told = backstitch(&["state", "convert", arg(&theirs), "-o", arg(&back)]);
        assert!(told.stderr.contains("that is your word"), "{}", told.stderr);
        told.ok();
        let differences = backstitch(&["state", "diff", arg(&path), arg(&back)]).stdout;
        for what in ["tokens", "cells", "state of"] {
            assert!(!differences.contains(what), "{differences}");
        }
        assert!(differences.contains("only A has one"), "{differences}");
        let stories = [&path, &back].map(|path| {
            let story = backstitch(&["run", "--temp", "0", "-n", "5", "--restore", arg(path)]).ok();
            assert!(story.len() > 5, "{story}");
            story
        });
        assert_eq!(stories[0], stories[1]);
    }
}

#[test]
fn files_that_llama_cpp_wrote_are_read() {
    let folder = TempDir::new().unwrap();
    let model = repository("goldens/models/falcon_h1.gguf");
    let output = folder.path().join("ours.bst");
    let import = |name: &str, more: &[&str]| {
        let path = repository("goldens/state").join(name);
        let convert = ["state", "convert", arg(&path), "-o", arg(&output), "-m", arg(&model), "--force"];
        backstitch(&[&convert, more].concat())
    };
    import("falcon_h1.flash_f16.state", &[]).ok();
    assert!(backstitch(&["state", "inspect", arg(&output)]).ok().contains("one sequence"));
    import("falcon_h1.f16.seq", &[]).ok();
    let two = import("falcon_h1.two_seq_f32.state", &["-ctk", "f32", "-ctv", "f32"]);
    assert!(two.stderr.contains("2 sequences to"), "{}", two.stderr);
    two.ok();
    assert!(backstitch(&["state", "check", arg(&output)]).ok().contains("sound"));
    assert!(import("falcon_h1.f32.seq", &[]).error(1).contains("falcon_h1.f32.seq: "));
    assert!(import("gemma3.f16.state", &[]).error(1).contains("architecture"));
    let before = std::fs::read(&output).unwrap();
    let whole = std::fs::read(repository("goldens/state/falcon_h1.f16.seq")).unwrap();
    let cut = folder.path().join("cut.seq");
    for len in [4, 11, 12, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&cut, &whole[..len]).unwrap();
        backstitch(&["state", "convert", arg(&cut), "-o", arg(&output), "-m", arg(&model)]).error(1);
    }
    assert_eq!(std::fs::read(&output).unwrap(), before);
}

#[test]
fn joining_states_is_refused_and_explained() {
    let outcome = backstitch(&["state", "splice", "a.bst", "b.bst", "-o", "c.bst"]);
    assert!(outcome.error(1).contains("depends on all tokens before it"), "{}", outcome.stderr);
    backstitch(&["state", "splice"]).error(1);
    assert!(backstitch(&["state", "splice", "--help"]).ok().contains("What to do instead"));
}

/// A pipe that nobody writes to.
#[cfg(unix)]
fn pipe(folder: &Path) -> Option<PathBuf> {
    let path = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    made.is_ok_and(|status| status.success()).then_some(path)
}

#[cfg(not(unix))]
fn pipe(_: &Path) -> Option<PathBuf> {
    None
}
