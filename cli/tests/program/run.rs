//! `run`: from a beginning to a story.

use super::{arg, backstitch, piped, program, repository};
use serde_json::Value;
use std::io::Read;

#[test]
fn without_anything_a_story_begins() {
    let story = backstitch(&["run", "-n", "12"]).ok();
    assert!(story.starts_with("Once upon a time") && story.len() > 30, "{story}");
    assert!(story.ends_with('\n') && !story.contains('\x1b'));
}

#[test]
fn the_story_of_temperature_zero_is_known() {
    let story = backstitch(&["run", "-n", "5", "--temp", "0"]).ok();
    assert_eq!(story, "Once upon a time, there was a little\n");
}

#[test]
fn a_seed_tells_the_same_story_on_any_number_of_threads() {
    let story = |seed, threads| backstitch(&["run", "-n", "16", "-s", seed, "-t", threads]).ok();
    assert_eq!(story("7", "1"), story("7", "3"));
    assert_ne!(story("7", "1"), story("8", "1"));
}

#[test]
fn pieces_and_cache_types_are_options() {
    let args = ["run", "-n", "8", "--temp", "0", "-b", "3", "-ub", "2", "-ctk", "f32", "-ctv", "f32"];
    assert_eq!(backstitch(&args).ok(), backstitch(&["run", "-n", "8", "--temp", "0"]).ok());
}

#[test]
fn a_prompt_comes_from_an_option_a_pipe_or_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "The dog\n").unwrap();
    let common = ["run", "-n", "6", "--temp", "0"];
    let with = |more: &[&'static str]| [&common, more].concat();
    let story = backstitch(&with(&["-p", "The dog"])).ok();
    assert!(story.starts_with("The dog "), "{story}");
    assert_eq!(piped(&common, b"The dog\n").ok(), story);
    assert_eq!(piped(&with(&["-f", "-"]), b"The dog").ok(), story);
    assert_eq!(backstitch(&[&common[..], &["-f", arg(file.path())]].concat()).ok(), story);
    let added = backstitch(&with(&["-p", "The dog", "--no-display-prompt"])).ok();
    assert_eq!(format!("The dog{added}"), story);
}

#[test]
fn no_tokens_wanted_none_made() {
    assert_eq!(backstitch(&["run", "-n", "0", "-p", "The end"]).ok(), "The end\n");
}

#[test]
fn an_empty_prompt_begins_anywhere() {
    let story = backstitch(&["run", "-n", "8", "-p", "", "-s", "3"]).ok();
    assert!(story.trim().len() > 5, "{story:?}");
}

#[test]
fn json_says_what_was_read_and_written() {
    let json = backstitch(&["run", "-n", "4", "--temp", "0", "--json"]).ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["prompt"], "Once upon a time");
    assert_eq!(json["content"], ", there was a");
    assert_eq!(json["tokens"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["stop_type"], "limit");
    assert_eq!(json["timings"]["predicted_n"], 4);
}

#[test]
fn a_story_can_be_told_again_by_its_seed() {
    let first: Value = serde_json::from_str(&backstitch(&["run", "-n", "12", "--json"]).ok()).unwrap();
    let again = backstitch(&["run", "-n", "12", "--json", "-s", &first["seed"].to_string()]).ok();
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap()["content"], first["content"]);
}

#[test]
fn a_context_longer_than_trained_is_warned_about() {
    let outcome = backstitch(&["run", "-n", "2", "-c", "2000"]);
    assert!(outcome.stderr.starts_with("warning: -c 2000 "), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn a_full_context_ends_the_story_with_a_note() {
    let outcome = backstitch(&["run", "-c", "32", "--ignore-eos"]);
    assert!(outcome.stderr.starts_with("note: ") && outcome.stderr.contains("-c"), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn verbose_tells_about_model_and_speed() {
    let outcome = backstitch(&["run", "-n", "2", "-v"]);
    assert!(
        outcome.stderr.contains("falcon-h1") && outcome.stderr.contains("tokens/s"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("note: memory ") && outcome.stderr.contains("weights 3."),
        "{}",
        outcome.stderr
    );
    outcome.ok();
}

#[test]
fn thread_counts_beyond_reason_run_and_verbose_says_so() {
    let story = |threads| backstitch(&["run", "-n", "4", "-s", "7", "-v", "-t", threads]);
    let (none, many, one) = (story("0"), story("100000"), story("1"));
    assert!(
        none.stderr.contains("note: threads ") && none.stderr.contains("note: kernels "),
        "{}",
        none.stderr
    );
    assert!(many.stderr.contains("threads 512, not 100000"), "{}", many.stderr);
    let one = one.ok();
    assert_eq!([none.ok(), many.ok()], [one.clone(), one]);
}

/// `taskset` stands for a container that gives one processor.
#[cfg(target_os = "linux")]
#[test]
fn the_default_number_of_threads_is_what_the_process_may_use() {
    let program = env!("CARGO_BIN_EXE_backstitch");
    let args = ["-c", "0", program, "run", "-n", "1", "-v"];
    // Where the tool is not installed, or that processor not ours, there is nothing to see.
    let Ok(output) = std::process::Command::new("taskset").args(args).output() else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("threads 1;") || told.contains("taskset:"), "{told}");
}

/// As a container or a script passes on a variable that nobody set.
#[test]
fn an_empty_name_of_a_kernel_set_is_none() {
    let outcome = program(&["run", "-n", "1"]).env("BACKSTITCH_ISA", "").output().unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn a_kernel_set_that_cannot_be_had_is_an_error_that_lists_those_that_can() {
    for set in ["abacus", " ", "AVX2"] {
        for args in [&["run", "-n", "1"][..], &["bench", "-n", "1"], &["graph"], &["verify", "none"]] {
            let mut program = program(args);
            let outcome = super::Outcome::from(program.env("BACKSTITCH_ISA", set).output().unwrap());
            let line = outcome.error(1);
            assert!(
                line.contains(&format!(
                    "BACKSTITCH_ISA={set:?}: no such kernel set on this processor; available:"
                )) && line.ends_with("scalar"),
                "{line}"
            );
        }
    }
}

#[test]
fn a_reader_who_goes_away_is_no_error() {
    let mut child = program(&["run", "--ignore-eos"]).spawn().unwrap();
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let outcome = child.wait_with_output().unwrap();
    assert_eq!((outcome.status.code(), outcome.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_bias_bans_a_token() {
    let tokens = |more: &[&str]| {
        let args = [&["run", "-n", "1", "--temp", "0", "--json"], more].concat();
        serde_json::from_str::<Value>(&backstitch(&args).ok()).unwrap()["tokens"][0].to_string()
    };
    let best = tokens(&[]);
    assert_ne!(tokens(&["--logit-bias", &format!("{best}-inf")]), best);
}

#[test]
fn speculative_decoding_changes_the_speed_and_not_the_story() {
    let demo = super::repository("demo/demo.gguf");
    let story = |more: &[&str]| {
        let args =
            [&["run", "-p", "The cat sat. The cat sat. The", "-n", "24", "-s", "5", "--json"], more].concat();
        serde_json::from_str::<Value>(&backstitch(&args).ok()).unwrap()
    };
    let plain = story(&[]);
    assert_eq!(plain["timings"]["draft_n"], 0);
    for more in [&["--lookup"][..], &["--draft-model", arg(&demo), "--draft-max", "3"]] {
        let drafted = story(more);
        assert_eq!(drafted["tokens"], plain["tokens"], "{more:?}");
        let timing = |name: &str| drafted["timings"][name].as_u64().unwrap();
        assert!(timing("draft_n") > 0 && timing("decode_n") <= 24, "{drafted}");
        assert_eq!(timing("decode_n") + timing("draft_n_accepted") + 1, 24, "{drafted}");
    }
    let outcome = backstitch(&["run", "-n", "12", "--temp", "0", "-md", arg(&demo), "-v"]);
    assert!(outcome.stderr.contains("accepted (100 %)"), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn a_draft_model_with_other_tokens_is_refused() {
    let other = super::repository("goldens/models/llama.gguf");
    let outcome = backstitch(&["run", "-n", "4", "--draft-model", arg(&other)]);
    assert!(outcome.error(1).contains("another vocabulary: the number of tokens"), "{}", outcome.stderr);
    assert_eq!(backstitch(&["run", "--lookup", "--draft-model", arg(&other)]).code, Some(2));
}

#[test]
fn an_encoder_decoder_answers_the_prompt_and_an_encoder_says_that_it_cannot() {
    let model = |name: &str| repository(&format!("goldens/models/{name}.gguf"));
    let run = |name: &str| {
        let model = model(name);
        backstitch(&[
            "run",
            "-m",
            arg(&model),
            "-p",
            "Hello, world!",
            "-n",
            "5",
            "--temp",
            "0",
            "--ignore-eos",
            "--json",
        ])
    };
    let answer: Value = serde_json::from_str(&run("t5").ok()).unwrap();
    assert_eq!(answer["tokens"].as_array().map(Vec::len), Some(5), "{answer}");
    assert!(run("bert").error(1).contains("embeddings, not text"));
    let t5 = model("t5");
    assert!(backstitch(&["chat", "-m", arg(&t5)]).error(1).contains("use `backstitch run`"));
}
