//! `run --save` and `--restore`: a text that goes on another time.

use super::{Outcome, arg, backstitch, repository};
use backstitch_models::vocab::{AddSpecial, ParseSpecial};
use backstitch_models::{Context, Model, Params};
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
    assert!(outcome.error(1).contains("story.bst") && outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert!(run(&["--restore", arg(&missing)]).error(1).contains("story.bst"));

    let file = folder.path().join("story.bst");
    run(&["-n", "20", "--save", arg(&file)]).ok();
    assert!(run(&["-c", "8", "--restore", arg(&file)]).error(1).contains("story.bst"));
    let types = run(&["-ctk", "f32", "--restore", arg(&file)]);
    assert!(types.error(1).contains("f16") && types.stderr.contains("-ctk and -ctv"), "{}", types.stderr);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(run(&["--restore", arg(&file)]).error(1).contains("damaged"));
}

#[test]
fn one_of_several_saved_sequences_goes_on() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("all.bst");
    let model = Model::from_bytes(&std::fs::read(repository("demo/demo.gguf")).unwrap()).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(3)).unwrap();
    let tokens = |text: &str| {
        let mut tokens = Vec::new();
        model.vocab().tokenize(text, AddSpecial::Yes, ParseSpecial::No, &mut tokens);
        tokens
    };
    let texts = ["The cat sat", "Once upon a time", "The dog"];
    for text in texts {
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &tokens(text)).unwrap();
    }
    ctx.save_all(&file).unwrap();

    let outcome = run(&["--restore", arg(&file)]);
    let list = format!("3 sequences: 0 ({} tokens), 1 (5 tokens), 2 (", tokens(texts[0]).len());
    assert!(
        outcome.error(1).contains(&list) && outcome.stderr.contains("--sequence ID"),
        "{}",
        outcome.stderr
    );
    assert!(run(&["--restore", arg(&file), "--sequence", "7"]).error(1).contains(&list));
    for (id, text) in texts.iter().enumerate() {
        let more = ["-n", "9", "--temp", "0"];
        let story =
            run(&[&["--restore", arg(&file), "--sequence", &id.to_string()], &more[..]].concat()).ok();
        assert_eq!(format!("{text}{story}"), run(&[&["-p", text], &more[..]].concat()).ok());
    }
    // The others would be lost.
    let before = std::fs::read(&file).unwrap();
    let outcome = run(&["--restore", arg(&file), "--sequence", "1", "-n", "1", "--save", arg(&file)]);
    assert!(outcome.code == Some(1) && outcome.stderr.contains("holds 3 sequences"), "{}", outcome.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let one = folder.path().join("one.bst");
    run(&["-n", "1", "--save", arg(&one)]).ok();
    run(&["--restore", arg(&one), "--sequence", "0", "-n", "1"]).ok();
    assert!(run(&["--restore", arg(&one), "--sequence", "1"]).error(1).contains("holds 1 sequence: 0 ("));
}

#[test]
fn the_text_of_a_state_is_told() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("story.bst");
    let story = run(&["-p", "The cat", "-n", "12", "-s", "3", "--save", arg(&file)]).ok();
    assert_eq!(backstitch(&["state", "inspect", arg(&file), "--text"]).ok(), story);
    let other = repository("goldens/models/falcon_h1.gguf");
    let refused = backstitch(&["state", "inspect", arg(&file), "--text", "-m", arg(&other)]);
    assert!(refused.error(1).contains("belongs to model"), "{}", refused.stderr);
}
