//! A state outlives its process, however the process ends.

use crate::seen::{KINDS, context, golden, tell};
use backstitch_core::cell::CellType;
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::{Context, Model, SaveOptions, SeqId};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The environment variable that gives a process of this test its task and its folder.
const TASK: &str = "BACKSTITCH_TEST_TASK";

fn chain(model: &Model) -> Chain {
    let settings = Settings::default().seed(3).temp(1.3).repeat_penalty(1.1);
    Chain::new(model.hparams().n_vocab, &settings)
}

/// Return ten tokens and the bits of their logits, in words.
fn story(ctx: &mut Context, seq: SeqId, chain: &mut Chain) -> String {
    let mut words = Vec::new();
    for _ in 0..10 {
        let token = chain.sample(ctx.logits(seq).unwrap()).unwrap();
        chain.accept(token);
        ctx.append(seq, &[token]).unwrap();
        let bits =
            ctx.logits(seq).unwrap().iter().fold(0u64, |h, x| h.rotate_left(7) ^ u64::from(x.to_bits()));
        words.push(format!("{token}:{bits:016x}"));
    }
    words.join(" ")
}

/// Run this test's program once more with one task, and return the lines that it prints.
fn process(task: &str, folder: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::the_other_process", "--ignored", "--nocapture"]);
    let mut child = command.env(TASK, task).current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Return the rest of the first line that begins with `word`.
fn line(lines: &mut Lines<BufReader<ChildStdout>>, word: &str) -> String {
    let rest = |line: String| line.strip_prefix(word).map(str::to_owned);
    lines.map(Result::unwrap).find_map(rest).unwrap_or_else(|| panic!("the process said no {word}"))
}

#[test]
#[ignore = "runs in a process of the test below"]
fn the_other_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (what, name) = task.split_once(' ').unwrap();
    let model = golden(name);
    let mut ctx = context(&model, CellType::F16);
    let mut chain = chain(&model);
    if what == "save" {
        let seq = tell(&mut ctx, 1);
        story(&mut ctx, seq, &mut chain);
        let options = SaveOptions::default().sampler(Some(&chain));
        ctx.save_with(seq, name, &options).unwrap();
        // Until it is killed.
        println!("\nsaved");
        std::thread::sleep(std::time::Duration::from_secs(60));
    } else {
        let restored = ctx.restore(name).unwrap();
        chain.resume(restored.sampler().unwrap()).unwrap();
        let told = story(&mut ctx, restored.seq(), &mut chain);
        println!("\ntold {told}");
    }
}

#[test]
fn a_killed_process_goes_on_in_a_new_one_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for name in KINDS {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let seq = tell(&mut ctx, 1);
        let mut chain = chain(&model);
        story(&mut ctx, seq, &mut chain);
        let expected = story(&mut ctx, seq, &mut chain);
        let (mut first, mut lines) = process(&format!("save {name}"), folder.path());
        line(&mut lines, "saved");
        first.kill().unwrap();
        first.wait().unwrap();
        let (mut second, mut lines) = process(&format!("restore {name}"), folder.path());
        assert_eq!(line(&mut lines, "told "), expected, "{name}");
        assert!(lines.all(|line| line.is_ok()) && second.wait().unwrap().success(), "{name}");
    }
}
