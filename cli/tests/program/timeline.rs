//! `timeline`: the picture of a sequence's memory.

use super::{arg, backstitch, piped, repository};
use serde_json::Value;

/// Run `timeline` on the model inside the program.
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&backstitch(&[&["timeline", "--json"], args].concat()).ok()).unwrap()
}

#[test]
fn a_story_is_drawn_on_a_hundred_columns_without_colour() {
    let drawn = backstitch(&["timeline", "-n", "120", "--spacing", "32", "--pin", "50", "--forks", "2"]).ok();
    assert!(drawn.lines().all(|line| line.chars().count() <= 100), "{drawn}");
    assert!(!drawn.contains('\u{1b}'), "{drawn}");
    let starts =
        ["Backstitch", "positions", "blocks", "state", "checkpoints", "journal", "rollbacks", "fork 2"];
    for start in starts.iter().chain(&["cells", "budget"]) {
        assert!(drawn.lines().any(|line| line.starts_with(start)), "{start}: {drawn}");
    }
    assert!(drawn.contains("1 pinned") && drawn.contains("shared with forks"), "{drawn}");
}

#[test]
fn a_rollback_says_what_it_took() {
    let drawn = backstitch(&["timeline", "-n", "120", "--rollback", "110", "--rollback", "40"]).ok();
    let lines: Vec<_> = drawn.lines().collect();
    assert_eq!(lines[0], "rollback to 110: restored from 96, 14 tokens replayed, none evaluated");
    assert_eq!(lines[1], "rollback to 40: restored from 0, 40 tokens re-evaluated");
    let took = json(&["-n", "120", "--pin", "40", "--rollback", "41"]);
    assert_eq!(took["rollbacks"][0]["restored_from"], 40);
    assert_eq!(took["rollbacks"][0]["reevaluated"], 1);
    assert_eq!((&took["n_tokens"], &took["checkpoints"][0]["role"]), (&41.into(), &"pinned".into()));
}

#[test]
fn forks_share_blocks_and_stay_when_the_sequence_is_rolled_back() {
    let held = json(&["-n", "96", "--forks", "3", "--rollback", "10"]);
    let blocks = |survey: &Value| survey["layers"][0]["blocks"].as_array().unwrap().clone();
    let forks = held["forks"].as_array().unwrap();
    assert_eq!(forks.len(), 3);
    for fork in forks {
        assert_eq!(fork["n_tokens"], 102, "the beginning, the story, and a token of its own");
        let blocks = blocks(fork);
        let (last, shared) = blocks.split_last().unwrap();
        assert!(shared.iter().all(|block| block["sequences"].as_u64() >= Some(3)), "{shared:?}");
        assert_eq!(last["users"], 1);
    }
}

#[test]
fn windows_have_a_line_of_their_own() {
    let model = repository("goldens/models/gemma3.gguf");
    let text = "It was a bright cold day in April, and the clocks were striking thirteen. ".repeat(4);
    let drawn = piped(&["timeline", "-m", arg(&model), "-c", "1024"], text.as_bytes()).ok();
    for start in ["window 8", "  sees", "blocks"] {
        assert!(drawn.lines().any(|line| line.starts_with(start)), "{start}: {drawn}");
    }
}

#[test]
fn a_drawing_goes_to_a_file_or_to_standard_output() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let wanted = ["timeline", "-n", "60", "--svg"];
    let outcome = backstitch(&[&wanted[..], &[arg(file.path())]].concat());
    assert!(outcome.stderr.contains("drawn to"), "{}", outcome.stderr);
    assert!(outcome.ok().contains("rollbacks"));
    let drawn = std::fs::read_to_string(file.path()).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    assert_eq!(backstitch(&[&wanted[..], &["-"]].concat()).ok(), drawn);
}

#[test]
fn what_cannot_be_is_one_line() {
    let cases: [(&[&str], &str); 7] = [
        (&["-n", "5", "--pin", "900"], "cannot pin 900: the sequence has 10 tokens"),
        (&["-n", "5", "--rollback", "11"], "cannot roll back to 11: the sequence ends at 10 then"),
        (
            &["-n", "5", "--rollback", "4", "--rollback", "5"],
            "cannot roll back to 5: the sequence ends at 4 then",
        ),
        (&["-n", "5", "-c", "9"], "10 tokens do not fit a context of 9"),
        (&["-n", "5", "-c", "10", "--forks", "1"], "11 tokens do not fit a context of 10"),
        (&["-n", "5", "--json", "--svg", "-"], "give --svg a file"),
        (&["-n", "5", "--svg", "/no/such/folder/a.svg"], "cannot write /no/such/folder/a.svg"),
    ];
    for (args, wanted) in cases {
        let outcome = backstitch(&[&["timeline"], args].concat());
        assert!(outcome.error(1).contains(wanted), "{args:?}: {}", outcome.stderr);
        assert!(outcome.stdout.is_empty(), "{args:?}: {}", outcome.stdout);
    }
    let pins = backstitch(&["timeline", "-n", "5", "--pin", "3", "--checkpoint-mib", "0"]);
    assert!(pins.error(1).contains("pin"), "{}", pins.stderr);
    for wrong in [["--spacing", "0"], ["--pin", "-1"], ["--forks", "65"], ["--journal", "65537"]] {
        assert_eq!(backstitch(&[&["timeline"], &wrong[..]].concat()).code, Some(2), "{wrong:?}");
    }
    backstitch(&["timeline", "-m", "/no/such/model.gguf"]).error(1);
}
