//! Prompt caches: `run --prompt-cache`, and `cache` to look after them.

use super::{Outcome, arg, backstitch, repository};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STORY: &str = "Once upon a time, there was a little girl who liked to play in the garden with her red ball. \
One day she saw a big dog near the old tree. The dog was sad because it had lost its bone, and so they looked for it \
together behind the house, under the bench and in the tall grass until it was almost dark.";

/// Offset of the payloads of an entry.
const FIRST_PAYLOAD: usize = 1536;

fn run(folder: &Path, more: &[&str]) -> Outcome {
    let short: &[&str] = if more.contains(&"-n") { &[] } else { &["-n", "8"] };
    backstitch(&[&["run", "--temp", "0", "--prompt-cache", arg(folder)], short, more].concat())
}

fn json(outcome: Outcome) -> Value {
    serde_json::from_str(&outcome.ok()).unwrap()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "entry")).collect()
}

#[test]
fn a_second_run_evaluates_only_what_is_new() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("cache");
    let without = backstitch(&["run", "--temp", "0", "-n", "8", "-p", STORY]).ok();
    let first = run(&cache, &["-p", STORY]);
    assert!(
        first.stderr.contains("prompt cache: 0 of 73 tokens reused, 73 evaluated: nothing is stored"),
        "{}",
        first.stderr
    );
    assert_eq!(first.ok(), without);
    let second = run(&cache, &["-p", STORY]);
    assert!(second.stderr.contains("prompt cache: 64 of 73 tokens reused, 9 evaluated"), "{}", second.stderr);
    assert_eq!(second.ok(), without);
}

#[test]
fn the_first_token_that_differs_is_told() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), &["-p", STORY]).ok();
    let other = STORY.replace("its bone", "its hat");
    let first = run(folder.path(), &["-p", &other]);
    assert!(first.stderr.contains("stored prompts differ at token "), "{}", first.stderr);
    assert!(first.stderr.contains("(\" hat\" in the prompt)"), "{}", first.stderr);
    let told =
        &json(run(folder.path(), &["--json", "-p", &other.replace("its hat", "its dog")]))["prompt_cache"];
    assert_eq!((&told["reused"], &told["text"]), (&32.into(), &" dog".into()));
    assert!(told["at"].as_u64() > Some(32) && told["written_blocks"].as_u64() > Some(0), "{told}");
}

#[test]
fn what_was_generated_is_kept_on_demand() {
    let folder = TempDir::new().unwrap();
    let story =
        json(run(folder.path(), &["--json", "-p", "Once upon a time", "-n", "100", "--prompt-cache-all"]));
    let text = format!("Once upon a time{}", story["content"].as_str().unwrap());
    let told = &json(run(folder.path(), &["--json", "-p", &text]))["prompt_cache"];
    assert!(told["reused"].as_u64() >= Some(32), "{told}");
}

#[test]
fn a_cache_that_is_read_only_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("cache");
    let outcome = run(&cache, &["-p", STORY, "--prompt-cache-ro"]);
    assert!(
        outcome.stderr.starts_with("note: prompt cache: ") && outcome.code == Some(0),
        "{}",
        outcome.stderr
    );
    assert!(!cache.exists());

    run(&cache, &["-p", STORY]).ok();
    let before = entries(&cache);
    let other = STORY.replace("Once", "There once");
    run(&cache, &["-p", &other, "--prompt-cache-ro"]).ok();
    assert_eq!(entries(&cache), before);
    let told = &json(run(&cache, &["--json", "-p", STORY, "--prompt-cache-ro"]))["prompt_cache"];
    assert_eq!((&told["reused"], &told["written_blocks"]), (&64.into(), &0.into()));
}

#[test]
fn a_folder_that_cannot_be_used_is_a_note() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let without = backstitch(&["run", "--temp", "0", "-n", "8", "-p", STORY]).ok();
    for path in [file.clone(), file.join("below")] {
        let outcome = run(&path, &["-p", STORY]);
        assert!(outcome.stderr.starts_with("note: prompt cache: "), "{}", outcome.stderr);
        assert_eq!(outcome.ok(), without);
        let told = &json(run(&path, &["--json", "-p", STORY]))["prompt_cache"];
        assert_eq!(
            (&told["reused"], told["trouble"].as_array().map(Vec::is_empty)),
            (&0.into(), Some(false))
        );
    }
    let small = run(folder.path(), &["-p", STORY, "--prompt-cache-size", "10K"]);
    assert!(
        small.stderr.contains("budget") || small.stderr.contains("--prompt-cache-size"),
        "{}",
        small.stderr
    );
    assert_eq!(small.ok(), without);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_note() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let outcome = run(full, &["-p", STORY]);
    assert!(outcome.stderr.starts_with("note: prompt cache: "), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn damage_is_noted_and_evaluated_again() {
    let folder = TempDir::new().unwrap();
    let without = run(folder.path(), &["-p", STORY]).ok();
    for path in entries(folder.path()) {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[FIRST_PAYLOAD] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
    }
    let checked = backstitch(&["cache", "check", arg(folder.path())]);
    assert!(checked.stdout.contains("BLCK at 1536 is damaged: "), "{}", checked.stdout);
    assert!(checked.error(1).contains("problem"), "{}", checked.stderr);

    let outcome = run(folder.path(), &["-p", STORY]);
    assert!(
        outcome.stderr.contains("note: prompt cache: ") && outcome.stderr.contains(" is damaged: "),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.ok(), without);
    assert!(backstitch(&["cache", "check", arg(folder.path())]).ok().starts_with("all sound: "));
    let told = &json(run(folder.path(), &["--json", "-p", STORY]))["prompt_cache"];
    assert_eq!(told["reused"], 64);
}

#[test]
fn what_is_called_damaged_can_be_pruned() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), &["-p", STORY]).ok();
    run(folder.path(), &["-p", &STORY.replace("Once", "It happened once")]).ok();
    let entries = entries(folder.path());
    let mut bytes = std::fs::read(&entries[0]).unwrap();
    bytes[FIRST_PAYLOAD] ^= 1;
    std::fs::write(&entries[0], &bytes).unwrap();
    backstitch(&["cache", "check", arg(folder.path())]).error(1);
    let pruned = backstitch(&["cache", "prune", arg(folder.path())]).ok();
    assert!(pruned.starts_with("removed 0 files and 1 damaged; 1 file left"), "{pruned}");
    assert!(backstitch(&["cache", "check", arg(folder.path())]).ok().starts_with("all sound: 1 whole file"));
    assert!(!entries[0].exists() && entries[1].exists());
}

#[test]
fn a_cache_is_listed_and_pruned() {
    let folder = TempDir::new().unwrap();
    let path = arg(folder.path());
    run(folder.path(), &["-p", STORY]).ok();
    run(folder.path(), &["-p", &STORY.replace("Once", "It happened once")]).ok();
    let model = repository("demo/demo.gguf");
    let text = backstitch(&["cache", "list", path, "-m", arg(&model)]).ok();
    assert!(text.contains("0 to 63") && text.contains("Once upon a time") && text.contains("now"), "{text}");
    assert!(text.ends_with("\n") && text.contains("\n2 files, "), "{text}");
    let listed: Value = serde_json::from_str(&backstitch(&["cache", "list", "--json", path]).ok()).unwrap();
    let bytes: u64 = listed.as_array().unwrap().iter().map(|entry| entry["bytes"].as_u64().unwrap()).sum();
    let largest = listed[0]["bytes"].as_u64().unwrap().max(listed[1]["bytes"].as_u64().unwrap());
    assert_eq!(listed[0]["tokens"].as_array().map(Vec::len), Some(64));
    let on_disk: u64 = entries(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(bytes, on_disk);

    let kept = backstitch(&["cache", "prune", path, "--older-than", "1h"]).ok();
    assert!(kept.starts_with("removed 0 files and 0 damaged; 2 files left"), "{kept}");
    let kept = backstitch(&["cache", "prune", path, "--max-size", &largest.to_string()]).ok();
    assert!(kept.starts_with("removed 1 file and 0 damaged; 1 file left"), "{kept}");
    backstitch(&["cache", "prune", path, "--max-size", "0", "--json"]).ok();
    assert!(entries(folder.path()).is_empty());
    assert_eq!(backstitch(&["cache", "list", path]).ok(), "0 files, 0 B\n");
}

#[test]
fn what_is_no_cache_is_one_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    for command in ["list", "check", "prune"] {
        let missing = folder.path().join("missing");
        assert!(backstitch(&["cache", command, arg(&missing)]).error(1).contains("missing"));
        assert!(!missing.exists());
        assert!(backstitch(&["cache", command, arg(&file)]).error(1).contains("is not a folder"));
        let other = backstitch(&["cache", command, arg(folder.path())]);
        assert!(other.error(1).contains("is no prompt cache"), "{command}: {}", other.stderr);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{command} left something behind");
    }
    assert_eq!(backstitch(&["cache", "prune", arg(folder.path()), "--max-size", "much"]).code, Some(2));
    assert_eq!(backstitch(&["run", "--prompt-cache-ro"]).code, Some(2));
}
