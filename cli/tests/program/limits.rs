//! Limits of the system, and files that others put in the way: an error in one line, and every file
//! as it was.

use super::{Outcome, arg, backstitch, program};
use backstitch_kv::storage::{Fingerprint, Header, IMAGE, SHAPE, Scope, Writer};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs the program under a limit of the shell; `{}` in `line` stands for the program.
fn limited(limit: &str, line: &str) -> Outcome {
    let line = format!("{limit}; {}", line.replace("{}", env!("CARGO_BIN_EXE_backstitch")));
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell.output().expect("the shell starts").into()
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_the_old_state_stays() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("a.bst");
    let save = |text: &str| format!("{{}} run -p '{text}' -n 2 -s 1 --save {}", arg(&state));
    limited("ulimit -f unlimited", &save("The dog")).ok();
    let before = fs::read(&state).unwrap();
    let outcome = limited("ulimit -f 4", &format!("{} --force", save("The dog ran")));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("ulimit -f"), "{}", outcome.stderr);
    let told = "the file is as it was, and the new state is not saved";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    assert!(fs::read(&state).unwrap() == before);
    assert_eq!(names(folder.path()), ["a.bst"]);
}

#[test]
fn standard_output_takes_no_state() {
    let folder = TempDir::new().unwrap();
    let line = format!("cd {} && {{}} run -n 1 --save -", arg(folder.path()));
    let outcome = limited("true", &line);
    assert!(outcome.error(1).contains("name a file, or ./- for one of that name"), "{}", outcome.stderr);
    assert!(names(folder.path()).is_empty() && outcome.stdout.is_empty());
    limited("true", &line.replace("--save -", "--save ./-")).ok();
    assert_eq!(names(folder.path()), ["-"]);
}

#[test]
fn a_text_that_outgrows_the_limit_on_its_file_ends_in_an_error() {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("text");
    let outcome = limited("ulimit -f 1", &format!("{{}} run -p 'The dog' -n 400 -s 1 > {}", arg(&text)));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(fs::metadata(&text).unwrap().len() > 0);
}

#[test]
fn a_state_whose_lock_cannot_be_had_is_saved_beside() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("a.bst");
    backstitch(&["run", "-p", "The dog", "-n", "2", "-s", "1", "--save", arg(&state)]).ok();
    let before = fs::read(&state).unwrap();
    let lock = folder.path().join(".a.bst.lock");
    assert!(Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let outcome = backstitch(&["run", "-p", "The dog", "-n", "4", "-s", "1", "--save", arg(&state)]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let beside = names(folder.path()).into_iter().find(|name| name.starts_with("a.bst.unsaved-")).unwrap();
    assert!(outcome.stderr.contains(&beside), "{}", outcome.stderr);
    assert!(backstitch(&["state", "check", arg(&folder.path().join(&beside))]).ok().contains("sound"));
    assert!(fs::read(&state).unwrap() == before);
}

/// A program that has told its text, and then waits for the lock of the file that it is to save to.
fn waits_for(state: &Path) -> (Child, fs::File) {
    let name = format!(".{}.lock", state.file_name().unwrap().to_str().unwrap());
    let lock = fs::File::create(state.with_file_name(name)).unwrap();
    lock.lock().unwrap();
    let args = ["run", "-p", "The dog", "-n", "4", "-s", "1", "--save", arg(state)];
    let mut child = program(&args).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // What saves comes right after what tells. Where it has not come yet, this test finds less, not
    // more.
    std::thread::sleep(Duration::from_millis(700));
    (child, lock)
}

#[test]
fn a_save_that_waits_keeps_what_was_saved_before_it() {
    let folder = TempDir::new().unwrap();
    let (state, other) = (folder.path().join("a.bst"), folder.path().join("b.bst"));
    backstitch(&["run", "-p", "The cat", "-n", "4", "-s", "2", "--save", arg(&other)]).ok();
    let (child, lock) = waits_for(&state);
    fs::copy(&other, &state).unwrap();
    drop(lock);
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    assert!(outcome.stderr.contains("is not replaced; saved to "), "{}", outcome.stderr);
    assert_eq!(names(folder.path()), ["a.2.bst", "a.bst", "b.bst"], "{}", outcome.stderr);
    assert!(fs::read(&state).unwrap() == fs::read(&other).unwrap());
    assert!(backstitch(&["state", "check", arg(&folder.path().join("a.2.bst"))]).ok().contains("sound"));
}

#[test]
fn ctrl_c_ends_the_waiting_for_others_who_save_and_nothing_is_lost() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("a.bst");
    let (child, lock) = waits_for(&state);
    let began = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    // Others would be waited for a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
    drop(lock);
    let beside = names(folder.path()).into_iter().find(|name| name.starts_with("a.bst.unsaved-"));
    let beside = beside.unwrap_or_else(|| panic!("{}", outcome.stderr));
    assert!(outcome.error(1).contains(&beside), "{}", outcome.stderr);
    assert!(backstitch(&["state", "check", arg(&folder.path().join(&beside))]).ok().contains("sound"));
}

#[test]
fn a_link_in_place_of_a_lock_is_called_one() {
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("a.bst");
    std::os::unix::fs::symlink("elsewhere", folder.path().join(".a.bst.lock")).unwrap();
    let outcome = backstitch(&["run", "-p", "The dog", "-n", "2", "-s", "1", "--save", arg(&state)]);
    assert!(
        outcome.stderr.contains(".a.bst.lock: a symbolic link, which is not followed"),
        "{}",
        outcome.stderr
    );
    assert!(!folder.path().join("elsewhere").exists());
}

#[test]
fn a_description_made_to_take_much_memory_is_refused_under_a_limit() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("groups.bst");
    let header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, header).unwrap();
    // As many groups as 60 MiB hold.
    let n: u32 = 5_700_000;
    let groups = [&n.to_le_bytes()[..], &vec![0; 11 * n as usize + 4]].concat();
    writer.section(SHAPE, 1, true, 0, &[&groups]).unwrap();
    writer.section(IMAGE, 1, true, 0, &[&vec![0; 60 << 20]]).unwrap();
    writer.finish().unwrap();
    fs::write(&path, bytes).unwrap();
    let outcome = limited("ulimit -v 400000", &format!("{{}} state inspect {}", arg(&path)));
    assert!(outcome.error(1).contains("at most"), "{}", outcome.stderr);
}

#[test]
fn a_pipe_in_place_of_the_lock_of_a_prompt_cache_is_not_waited_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let cache = folder.path().join("cache");
    let prompt = "Once upon a time there was a dog ".repeat(12);
    let run = || {
        let args = ["run", "-p", &prompt, "-n", "1", "-s", "1", "--prompt-cache", arg(&cache)];
        backstitch(&args).ok()
    };
    let text = run();
    for name in names(&cache) {
        let mode = fs::metadata(cache.join(&name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    assert!(names(&cache).iter().any(|name| name.ends_with(".entry")));
    fs::remove_file(cache.join("cache.lock")).unwrap();
    assert!(Command::new("mkfifo").arg(cache.join("cache.lock")).status().unwrap().success());
    assert_eq!(run(), text);
}
