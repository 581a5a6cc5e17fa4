//! The commands that judge models and embed texts.

use super::{arg, backstitch, piped, repository};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&backstitch(args).ok()).unwrap()
}

const STORY: &str = "Once upon a time there was a little girl who had a red ball. ";

#[test]
fn the_perplexity_of_a_story_is_low_and_a_file_of_itself_does_not_diverge() {
    let folder = TempDir::new().unwrap();
    let (text, base) = (folder.path().join("text.txt"), folder.path().join("base.kld"));
    fs::write(&text, STORY.repeat(12)).unwrap();
    let read = ["-f", arg(&text), "-c", "64"];
    let whole = json(&[&["perplexity", "--json"], &read[..]].concat());
    let value = whole["perplexity"].as_f64().unwrap();
    assert!((1.0..30.0).contains(&value), "{whole}");
    assert!(whole["standard_error"].as_f64() > Some(0.0));
    let shown = backstitch(&[&["perplexity"], &read[..]].concat()).ok();
    assert!(shown.contains(&format!("Final estimate: PPL = {value:.4} +/- ")), "{shown}");

    let file = ["--kl-divergence-base", arg(&base)];
    let written = json(&[&["perplexity", "--json"], &read[..], &file].concat());
    assert_eq!(written, whole);
    let compared = json(&[&["perplexity", "--json", "--kl-divergence"], &file[..]].concat());
    assert!(compared["kl_divergence"].as_f64().unwrap().abs() < 1e-4, "{compared}");
    assert!(compared["same_top"].as_f64() > Some(0.98), "{compared}");
    assert!((compared["perplexity"].as_f64().unwrap() - value).abs() < 1e-9);
    assert!((compared["base_perplexity"].as_f64().unwrap() - value).abs() < 1e-2);
    assert!(
        backstitch(&[&["perplexity", "--kl-divergence"], &file[..]].concat())
            .ok()
            .contains("ratio of the two")
    );
    let other = backstitch(&[&["perplexity", "--kl-divergence", "-c", "128"], &file[..]].concat());
    assert!(other.error(1).contains("have 64 tokens; leave out -c"), "{}", other.stderr);

    // The text is not replaced by probabilities, and probabilities are not read from a text.
    let wrong = ["--kl-divergence-base", arg(&text)];
    let refused = backstitch(&[&["perplexity"], &wrong[..], &["-p", STORY]].concat());
    assert!(refused.error(1).contains("a text file"), "{}", refused.stderr);
    let refused = backstitch(&[&["perplexity", "--kl-divergence"], &wrong[..]].concat());
    assert!(refused.error(1).contains("not a file of probabilities"));
    let few = backstitch(&["perplexity", "-p", "The cat", "-c", "64"]);
    assert!(few.error(1).contains("a window takes 64"), "{}", few.stderr);
}

#[test]
fn questions_are_answered() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("questions.jsonl");
    let question = r#"{"context": "Once upon a", "endings": ["giraffe computes", "time"], "label": 1}"#;
    fs::write(&path, format!("{question}\n{question}\n")).unwrap();
    let lines = backstitch(&["perplexity", "--json", "--multiple-choice", arg(&path)]).ok();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((&last["questions"], &last["accuracy"]), (&2.into(), &1.0.into()), "{lines}");
    fs::write(&path, "{}").unwrap();
    let error = backstitch(&["perplexity", "--multiple-choice", arg(&path)]);
    assert!(error.error(1).contains("line 1: "), "{}", error.stderr);
    #[cfg(unix)]
    {
        let endless = backstitch(&["perplexity", "--multiple-choice", "/dev/zero"]);
        assert!(endless.error(1).contains("longer than 256.0 MiB"), "{}", endless.stderr);
    }
}

#[test]
fn texts_become_embeddings_and_are_compared() {
    let model = repository("goldens/models/bert.gguf");
    let model = ["-m", arg(&model)];
    let lines = piped(&[&["embed"], &model[..]].concat(), b"the cat\nthe dog\n").ok();
    let rows: Vec<Vec<f64>> =
        lines.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!((row.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    }
    let cosine: f64 = rows[0].iter().zip(&rows[1]).map(|(a, b)| a * b).sum();
    let compared = json(&[&["embed", "--json", "--similarity", "the cat", "the dog"], &model[..]].concat());
    assert!((compared["similarity"][0][1].as_f64().unwrap() - cosine).abs() < 1e-5, "{compared}");
    assert!((compared["similarity"][1][1].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let tokens = json(&[&["embed", "--json", "--pooling", "none", "the cat"], &model[..]].concat());
    assert!(tokens["embedding"].as_array().unwrap().len() > 2 && tokens["embedding"][0].is_array());
}

#[test]
fn decoders_embed_too() {
    let one = json(&["embed", "--json", "--normalize", "none", STORY]);
    let two = json(&["embed", "--json", "--normalize", "max", STORY]);
    let most = |value: &Value| {
        let numbers = value["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap().abs());
        numbers.fold(0.0, f64::max)
    };
    assert!(most(&one) > 0.0 && (most(&two) - 32760.0).abs() < 0.01);
    assert!(piped(&["embed"], b"").error(1).contains("no text"));
    assert!(backstitch(&["embed", "--similarity", "--pooling", "none", "a"]).error(1).contains("--pooling"));
}
