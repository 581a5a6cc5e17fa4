//! A process that saves again and again is killed at random, thousands of times: the file always
//! holds what it saved last, or what it was saving.
//!
//! The test runs itself again as that process; what it is told stands in environment variables.

#![cfg(unix)]

use backstitch_kv::storage::disk::RealDisk;
use backstitch_kv::storage::{
    Container, Error, Fingerprint, Header, Operation, Saved, Scope, Sync, Tag, Writer, save,
};
use backstitch_testing::Random;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The file that a process is to save to; without it the test is not such a process.
const FILE: &str = "BACKSTITCH_SAVE_KILL_FILE";
/// The number of the first state that it saves.
const FIRST: &str = "BACKSTITCH_SAVE_KILL_FIRST";
/// Number of processes that the long run kills; 1000 if it is not set.
const ROUNDS: &str = "BACKSTITCH_SAVE_KILL_ROUNDS";

const HEADER: Header = Header { fingerprint: Fingerprint([5; 32]), scope: Scope::Sequence };
const NUMBER: Tag = Tag(*b"NUMB");
const BLOCK: Tag = Tag(*b"BLCK");

/// Blocks of a state; every tenth state begins anew, so that files are appended to, compacted and
/// replaced.
fn blocks(number: u64) -> std::ops::Range<u64> {
    number / 10 * 10..number + 1
}

fn content(block: u64) -> Vec<u8> {
    let mut random = Random::new(block);
    let n = 1 + random.below(2_000);
    (0..n).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn save_state(path: &Path, number: u64) -> Result<Saved, Error> {
    let mut fill = |writer: &mut Writer<'_>| {
        writer.section(NUMBER, 1, true, 0, &[&number.to_le_bytes()])?;
        (0..)
            .zip(blocks(number))
            .try_for_each(|(index, block)| writer.section(BLOCK, 1, true, index, &[&content(block)]))
    };
    save(&RealDisk, path, HEADER, Sync::No, &mut fill)
}

/// The number of the state in a file, which is whole.
fn state_in(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    let container = Container::parse(&bytes).unwrap();
    container.check().unwrap();
    let number = container.read(container.require(NUMBER, 0).unwrap()).unwrap();
    let number = u64::from_le_bytes((*number).try_into().unwrap());
    assert_eq!(container.of(BLOCK).len() as u64, blocks(number).count() as u64);
    for (section, block) in container.of(BLOCK).iter().zip(blocks(number)) {
        assert_eq!(*container.read(section).unwrap(), content(block), "block {block} of state {number}");
    }
    number
}

fn spawn(path: &Path, first: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "saves_until_it_is_killed", "--ignored", "--nocapture", "--quiet"]);
    command.env(FILE, path).env(FIRST, first.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Kills a process that saves after some time; tells the last state that it called saved.
fn run_and_kill(path: &Path, first: u64, time: Duration) -> Option<u64> {
    let mut child = spawn(path, first);
    sleep(time);
    child.kill().unwrap();
    let told = BufReader::new(child.stdout.take().unwrap());
    let numbers = told.lines().map_while(Result::ok);
    let last = numbers.filter_map(|line| line.strip_prefix("saved ")?.parse().ok()).max();
    child.wait().unwrap();
    last
}

fn save_and_kill(rounds: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    save_state(&path, 0).unwrap();
    let (mut random, mut last, mut saved) = (Random::new(3), 0, 0);
    for round in 0..rounds {
        // Longer than it takes to start, most of the time.
        let time = Duration::from_micros(2_000 + random.below(30_000) as u64);
        let told = run_and_kill(&path, last + 1, time);
        let found = state_in(&path);
        let least = told.unwrap_or(last);
        // What was told is there; the next may be, if it was not told in time.
        assert!((least..=least + 1).contains(&found), "round {round}: {found}, {least} was called saved");
        saved += found - last;
        last = found;
    }
    save_state(&path, last + 1).unwrap();
    assert_eq!(state_in(&path), last + 1);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a.bst"], "the state, and nothing of the dead");
    println!("{rounds} processes killed, {saved} states saved by them");
    assert!(saved > 0);
}

#[test]
fn a_process_killed_while_it_saves_leaves_the_old_or_the_new_state() {
    save_and_kill(25);
}

#[test]
#[ignore = "kills 1000 processes, or as many as BACKSTITCH_SAVE_KILL_ROUNDS says"]
fn processes_killed_while_they_save_leave_the_old_or_the_new_state_every_time() {
    save_and_kill(env::var(ROUNDS).map_or(1000, |rounds| rounds.parse().unwrap()));
}

/// Not a test of its own: what the processes of the others run.
#[test]
#[ignore = "is run by the other tests of this file"]
fn saves_until_it_is_killed() {
    let Some(path) = env::var_os(FILE) else { return };
    for number in env::var(FIRST).unwrap().parse().unwrap().. {
        save_state(path.as_ref(), number).unwrap();
        println!("saved {number}");
    }
}

/// Needs the right to mount; says so where it is missing.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs the right to mount a file system"]
fn a_disk_that_is_really_full_is_an_error_and_keeps_the_old_state() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).arg(folder.path()).status();
        status.is_ok_and(|status| status.success())
    };
    if !run("mount", &["-t", "tmpfs", "-o", "size=128k", "tmpfs"]) {
        println!("SKIPPED: no right to mount");
        return;
    }
    let path = folder.path().join("a.bst");
    let mut number = 0;
    let error = loop {
        match save_state(&path, number) {
            Ok(_) => assert_eq!(state_in(&path), number),
            Err(error) => break error,
        }
        number += 1;
    };
    assert!(matches!(error, Error::File { operation: Operation::Write, .. }), "{error}");
    assert!(number > 0);
    assert_eq!(state_in(&path), number - 1);
    // There is room again, and the next save takes it.
    fs::remove_file(&path).unwrap();
    save_state(&path, number / 10 * 10).unwrap();
    assert!(run("umount", &["-l"]));
}
