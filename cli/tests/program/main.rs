//! The program as people meet it: commands, pipes, exit codes, and the lines they read.

mod around;
mod bad_input;
mod chat;
mod convert;
mod habits;
mod interrupt;
mod judge;
#[cfg(unix)]
mod limits;
mod prompt_cache;
mod quantize;
mod reports;
mod run;
mod session;
mod state;
mod target;
#[cfg(unix)]
mod terminal;
mod timeline;
#[cfg(unix)]
mod typing;
mod width;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The outcome of a run of the program.
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// The output of a run that has to succeed.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// The one line on standard error of a run that has to fail with this code.
    #[track_caller]
    fn error(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        let line = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(line.starts_with("error: ") && !line.contains('\n'), "not one line: {line:?}");
        line
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The configuration of whoever runs the tests does not matter.
    command.env("BACKSTITCH_CONFIG", "");
    command
}

/// Runs the program without any input.
fn backstitch(args: &[&str]) -> Outcome {
    program(args).output().expect("the program starts").into()
}

/// Runs the program with `input` piped in.
fn piped(args: &[&str], input: &[u8]) -> Outcome {
    let mut child = program(args).stdin(Stdio::piped()).spawn().expect("the program starts");
    // A program that fails early does not read its input.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("the program ends").into()
}

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A path as an argument.
fn arg(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
