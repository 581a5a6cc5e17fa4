//! Lines fit the terminal, or what `COLUMNS` says.

use super::{Outcome, arg, program, repository};
use tempfile::TempDir;

fn on_columns(args: &[&str], columns: &str) -> String {
    let mut program = program(args);
    program.env("COLUMNS", columns).env_remove("CLICOLOR_FORCE");
    Outcome::from(program.output().unwrap()).ok()
}

#[test]
fn tables_and_drawings_fit_the_columns_that_there_are() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (state, cache) = (path("story.bst"), path("cache"));
    let story = "Once upon a time there was a little girl who had a red ball and a dog. ".repeat(4);
    on_columns(&["run", "-p", &story, "-n", "9", "--prompt-cache", &cache, "--save", &state], "80");
    let gemma = repository("goldens/models/gemma3.gguf");
    let (demo, golden) = (repository("demo/demo.gguf"), repository("goldens/goldens/llama.txt"));
    let commands: [&[&str]; 9] = [
        &["inspect", "--tensors", arg(&demo)],
        &["state", "inspect", &state],
        &["state", "inspect", "--sections", &state],
        &["cache", "list", &cache, "-m", arg(&demo)],
        &["timeline", "-n", "200", "--forks", "2", "--pin", "50", "--rollback", "90"],
        &["timeline", "-f", arg(&golden), "-m", arg(&gemma), "-c", "17000"],
        &["bench", "-p", "4,500", "-n", "2", "-r", "1", "-d", "0,100", "-t", "1,2"],
        &["verify", arg(&golden)],
        &["state", "check", &state],
    ];
    for args in commands {
        for columns in [40, 80] {
            let text = on_columns(args, &columns.to_string());
            let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(longest.chars().count() <= columns, "{args:?} on {columns}: {longest}");
        }
        let (narrow, wide) = (on_columns(args, "40"), on_columns(args, "200"));
        assert!(narrow.lines().count() >= wide.lines().count(), "{args:?}");
    }
}

#[test]
fn help_fits_80_columns() {
    for command in ["run", "chat", "timeline", "state trim", "state splice", "cache prune", "verify", "bench"]
    {
        let args: Vec<_> = command.split(' ').chain(["--help"]).collect();
        for columns in ["", "80", "300"] {
            let help = on_columns(&args, columns);
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        }
    }
}
