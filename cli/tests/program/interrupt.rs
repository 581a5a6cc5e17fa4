//! Ctrl-C, and other signals that end a program.
#![cfg(unix)]

use super::{arg, backstitch, program, repository};
use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, Value, Writer};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

fn press_ctrl_c(child: &Child) {
    signal(child, "-INT");
}

/// Waits until the program handles signals; the system lists those.
fn wait_for_handler(child: &Child) {
    let path = format!("/proc/{}/status", child.id());
    for _ in 0..500 {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask & 2 != 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Where the system does not list them, this has to do.
}

/// Sends the signal, and expects the end within two seconds: on an idle machine it comes in a few
/// milliseconds.
fn ends_at_once(mut child: Child, name: &str, code: i32) {
    let start = Instant::now();
    signal(&child, name);
    assert_eq!(child.wait().unwrap().code(), Some(code));
    assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_story_ends_with_its_line() {
    // Long enough that only Ctrl-C ends it.
    let mut child = program(&["run", "--ignore-eos", "-c", "100000", "-t", "1"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut story = vec![0; 40];
    stdout.read_exact(&mut story).unwrap();
    press_ctrl_c(&child);
    stdout.read_to_end(&mut story).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(story.ends_with(b"\n"));
}

#[test]
fn a_program_that_waits_for_input_ends() {
    let child = program(&["run"]).stdin(Stdio::piped()).spawn().unwrap();
    wait_for_handler(&child);
    ends_at_once(child, "-INT", 130);
}

#[test]
fn what_leaves_nothing_behind_ends_at_once() {
    let golden = repository("goldens/goldens/llama.txt");
    let many: Vec<&str> = std::iter::repeat_n(arg(&golden), 5000).collect();
    let cases: [(&[&str], &str, i32); 4] = [
        (&["timeline", "-c", "60000", "-n", "59000", "-t", "1"], "-INT", 130),
        (&["bench", "-c", "60000", "-p", "59000", "-t", "1", "-b", "60000"], "-INT", 130),
        (&["bench", "-c", "60000", "-p", "59000", "-t", "1", "-b", "60000"], "-TERM", 143),
        (&[&["verify"], &many[..]].concat(), "-INT", 130),
    ];
    for (args, name, code) in cases {
        let mut child = program(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_handler(&child);
        std::thread::sleep(Duration::from_millis(700));
        assert!(child.try_wait().unwrap().is_none(), "{args:?} is over already");
        ends_at_once(child, name, code);
    }
}

#[test]
fn a_prompt_ends_at_once_and_is_saved_as_far_as_it_came() {
    let folder = TempDir::new().unwrap();
    let (text, saved) = (folder.path().join("long.txt"), folder.path().join("long.bst"));
    std::fs::write(&text, "The cat sat on the mat. ".repeat(7000)).unwrap();
    let args = ["run", "-c", "60000", "-t", "1", "-f", arg(&text), "--save", arg(&saved)];
    let mut child = program(&args).spawn().unwrap();
    wait_for_handler(&child);
    std::thread::sleep(Duration::from_millis(900));
    assert!(child.try_wait().unwrap().is_none(), "the prompt is over already");
    let mut stderr = child.stderr.take().unwrap();
    ends_at_once(child, "-INT", 130);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("saved ") && saved.exists(), "{said}");
    let on = backstitch(&["run", "-c", "60000", "-n", "4", "--temp", "0", "--restore", arg(&saved)]);
    assert!(on.stderr.contains("restored ") && !on.stderr.contains("restored 0"), "{}", on.stderr);
    on.ok();
}

/// A model with so many MiB of weights beside those of the demo.
fn large_model(path: &Path, n_mib: usize) {
    let bytes = std::fs::read(repository("demo/demo.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    writer.set("general.name", Value::Str("large")).unwrap();
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
    }
    let data = vec![0; n_mib << 20];
    writer.tensor("ballast", &[data.len() / 4], DType::F32, &data).unwrap();
    writer.write_to(std::fs::File::create(path).unwrap()).unwrap();
}

#[test]
fn packing_leaves_no_file_behind() {
    let folder = TempDir::new().unwrap();
    let (input, output) = (folder.path().join("large.gguf"), folder.path().join("packed.gguf"));
    large_model(&input, 256);
    for round in 0..6 {
        let mut child = program(&["pack", arg(&input), arg(&output)]).spawn().unwrap();
        wait_for_handler(&child);
        // Once in the middle of writing, whose file is there, and then at other times.
        let begun = || round > 0 || names(folder.path()).len() > 1;
        while !begun() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20 * round));
        if child.try_wait().unwrap().is_none() {
            ends_at_once(child, "-INT", 130);
        }
        let left = names(folder.path());
        assert!(left.iter().all(|path| *path == input || *path == output), "{left:?}");
    }
}

/// Runs the program on a terminal that `script` makes; nothing where there is no such tool.
#[cfg(target_os = "linux")]
fn on_a_terminal(args: &str, before: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_backstitch");
    let line = format!("stty cols 80; {before} {program} {args}");
    let output =
        Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
#[cfg(target_os = "linux")]
fn work_of_more_than_half_a_second_shows_a_line_that_goes() {
    let Some(long) = on_a_terminal("timeline -c 4000 -n 3500 -t 1", "") else { return };
    assert!(long.contains("evaluating") && long.contains(" tokens, ") && long.contains(" left"), "{long}");
    let cleared = long.rfind("\x1b[2K").expect("the line is cleared");
    assert!(cleared > long.rfind("evaluating").unwrap(), "{long:?}");
    let prompt = on_a_terminal("run -c 6000 -n 1 -t 1 -p \"$(yes The cat sat. | head -900)\"", "").unwrap();
    assert!(prompt.contains("evaluating") && prompt.contains(" left"), "{prompt}");
    let short = on_a_terminal("timeline -n 4", "").unwrap();
    assert!(!short.contains("evaluating"), "{short:?}");
    let stopped = on_a_terminal("timeline -c 60000 -n 59000 -t 1", "timeout -s INT 2").unwrap();
    let cleared = stopped.rfind("\x1b[2K").expect("the line is cleared");
    assert!(cleared > stopped.rfind("evaluating").unwrap(), "{stopped:?}");
}

#[test]
fn a_program_that_is_to_outlive_its_terminal_does() {
    let line = format!("nohup {} bench -c 60000 -p 59000 -t 1 -b 60000", env!("CARGO_BIN_EXE_backstitch"));
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {line}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_handler(&child);
    signal(&child, "-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the program took the signal");
    ends_at_once(child, "-INT", 130);
    // Tests may be to outlive their terminal themselves, and the program with them.
    if !is_ignored_here(1) {
        let args = ["bench", "-c", "60000", "-p", "59000", "-t", "1", "-b", "60000"];
        let child = program(&args).spawn().unwrap();
        wait_for_handler(&child);
        ends_at_once(child, "-HUP", 129);
    }
}

/// Return true if this process, and so every process that it starts, ignores a signal.
fn is_ignored_here(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
