//! Programs in C and C++ that are compiled against the headers and linked with the library, as
//! users do it. Without a compiler they are left out, with a line that says so.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Return the folder of this test's program, where the shared library lies too.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn capi() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compile a source file, or return false if there is no such compiler.
fn compile(compiler: &str, flags: &[&str], source: &str, to: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(capi().join("include"));
    command.arg(capi().join(source)).arg("-o").arg(to);
    command
        .args(["-x", "none"])
        .arg(built().join("libbackstitch_capi.so"))
        .arg(format!("-Wl,-rpath,{}", built().display()));
    match command.output() {
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler} {source}:\n{message}");
            true
        }
        Err(error) => {
            println!("SKIPPING {source}: no {compiler} here ({error})");
            false
        }
    }
}

/// Run a program that was compiled, and return what it wrote.
fn run(program: &Path, arguments: &[&Path], input: &str) -> String {
    use std::io::Write;
    use std::process::Stdio;
    let mut command = Command::new(program);
    // The library's name inside is the one that it has once it is installed.
    std::fs::copy(built().join("libbackstitch_capi.so"), program.with_file_name("libbackstitch.so")).unwrap();
    command.env("LD_LIBRARY_PATH", program.parent().unwrap()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {:?}\n{out}\n{err}", program.display(), output.status);
    out.into_owned()
}

fn models() -> PathBuf {
    capi().join("../goldens/models")
}

/// Run one of the programs in `tests/c` on the models, with a folder for files.
fn check(name: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    if compile("cc", &["-std=c11"], &format!("tests/c/{name}.c"), &program) {
        let out = run(&program, &[&models(), folder.path()], "");
        assert!(out.contains(expected), "{out}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn structures_have_the_pinned_layout_in_c_and_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("layout");
    compile("cc", &["-std=c11"], "tests/c/layout.c", &program);
    compile("c++", &["-std=c++17", "-x", "c++"], "tests/c/layout.c", &folder.path().join("layout.o.so"));
}

#[test]
#[cfg(target_os = "linux")]
fn eight_failures_of_engines_are_right_here() {
    check("failures", "all eight are right");
}

#[test]
#[cfg(target_os = "linux")]
fn only_regular_files_are_read_and_replaced() {
    check("files", "files are right");
}

#[test]
#[cfg(target_os = "linux")]
fn editing_is_exact_through_c() {
    check("editing", "editing is exact");
}

#[test]
#[cfg(target_os = "linux")]
fn the_examples_run() {
    let folder = tempfile::tempdir().unwrap();
    let (chat, editor) = (folder.path().join("chat"), folder.path().join("editor"));
    if compile("cc", &["-std=c11", "-D_GNU_SOURCE"], "examples/chat.c", &chat) {
        let out = run(&chat, &[&models().join("llama.gguf"), Path::new("2")], "Hello\n/undo\nHello\n");
        // With this seed no answer has an angle bracket of its own.
        assert_eq!(out.matches("> ").count(), 4, "{out}");
    }
    if compile("c++", &["-std=c++17"], "examples/undo_editor.cpp", &editor) {
        let script = "Once upon a time\nthere was\ng\nb\na cat\nu\ns\ng\nu\nq\n";
        let out = run(&editor, &[&models().join("falcon_h1.gguf")], script);
        let next: Vec<&str> = out.lines().filter(|line| line.starts_with("next: ")).collect();
        assert_eq!(next.len(), 2, "{out}");
        // The branch holds the same text, and so goes on alike.
        assert_eq!(next[0], next[1], "{out}");
        assert_eq!(out.matches("back at ").count(), 2, "{out}");
    }
}
