//! `run --save` and `--restore`: a text that goes on another time.

use super::{Outcome, arg, backstitch};
use tempfile::TempDir;

fn run(more: &[&str]) -> Outcome {
    backstitch(&[&["run"], more].concat())
}

#[test]
fn a_restored_session_goes_on_as_if_it_had_never_stopped() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("story.bst");
    let whole = run(&["-s", "7", "-n", "60"]).ok();
    let first = run(&["-s", "7", "-n", "25", "--save", arg(&file)]);
    assert!(first.stderr.contains("note: saved 30 tokens to"), "{}", first.stderr);
    let first = first.ok();
    // Another number of threads, another size of batches.
    let second = run(&["-n", "20", "-t", "2", "-b", "3", "--restore", arg(&file), "--save", arg(&file)]);
    assert!(second.stderr.contains("note: restored 30 tokens from"), "{}", second.stderr);
    let third = run(&["-n", "15", "-c", "200", "--restore", arg(&file)]).ok();
    assert_eq!(
        format!("{}{}{third}", first.trim_end_matches('\n'), second.ok().trim_end_matches('\n')),
        whole
    );
}

#[test]
fn a_prompt_follows_what_was_restored() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("story.bst");
    run(&["-p", "Once upon a time", "-n", "0", "--save", arg(&file)]).ok();
    let together = run(&["-p", "Once upon a time there was a cat", "--temp", "0", "-n", "12"]).ok();
    let apart = run(&["-p", " there was a cat", "--temp", "0", "-n", "12", "--restore", arg(&file)]).ok();
    assert_eq!(format!("Once upon a time{apart}"), together);
}

#[test]
fn what_cannot_be_saved_or_restored_is_an_error() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("no").join("story.bst");
    let outcome = run(&["-n", "1", "--save", arg(&missing)]);
    assert_eq!(outcome.code, Some(1));
    assert!(
        outcome.stderr.starts_with("error: ") && outcome.stderr.lines().count() == 1,
        "{}",
        outcome.stderr
    );
    assert!(outcome.stdout.starts_with("Once upon a time"), "{}", outcome.stdout);
    assert!(run(&["--restore", arg(&missing)]).error(1).contains("story.bst"));

    let file = folder.path().join("story.bst");
    run(&["-n", "20", "--save", arg(&file)]).ok();
    assert!(run(&["-c", "8", "--restore", arg(&file)]).error(1).contains("story.bst"));
    assert!(run(&["-ctk", "f32", "--restore", arg(&file)]).error(1).contains("f16"));
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(run(&["--restore", arg(&file)]).error(1).contains("damaged"));
}
