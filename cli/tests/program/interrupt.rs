//! Ctrl-C.
#![cfg(unix)]

use super::program;
use std::io::Read;
use std::process::{Child, Command, Stdio};

fn press_ctrl_c(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
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
    let mut child = program(&["run"]).stdin(Stdio::piped()).spawn().unwrap();
    // It reads its input once the handler is there; there is nothing to see that by.
    std::thread::sleep(std::time::Duration::from_millis(500));
    press_ctrl_c(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
