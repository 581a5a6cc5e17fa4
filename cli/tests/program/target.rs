//! Files that commands write to: nothing of another kind is replaced, and no other text.

use super::{Outcome, arg, backstitch, repository};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with a file of each kind.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let files = Self { folder };
        let demo = repository("demo/demo.gguf");
        fs::copy(&demo, files.path("own.gguf")).unwrap();
        fs::write(files.path("letter.txt"), "Dear Tim,\n").unwrap();
        fs::write(files.path("noise"), [0xff, 0, 1, 2]).unwrap();
        fs::write(files.path("cat.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>").unwrap();
        run(&["-p", "The cat", "-n", "4", "-s", "1", "--save", files.arg("cat.bst")]).ok();
        backstitch(&["state", "convert", files.arg("cat.bst"), "-o", files.arg("cat.session")]).ok();
        backstitch(&["pack", arg(&demo), files.arg("packed.gguf")]).ok();
        backstitch(&["timeline", "-n", "2", "--svg", files.arg("memory.svg")]).ok();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The path as an argument, for as long as the test runs.
    fn arg(&self, name: &str) -> &'static str {
        Box::leak(arg(&self.path(name)).to_owned().into_boxed_str())
    }

    /// The names and contents of all files.
    fn contents(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).ok())).collect();
        all.sort();
        all
    }
}

fn run(more: &[&str]) -> Outcome {
    backstitch(&[&["run"], more].concat())
}

/// Every output, up to where its path belongs, and the kind that may be replaced.
fn outputs(files: &Files) -> [(Vec<&'static str>, &'static str); 5] {
    [
        (vec!["run", "-n", "1", "--save"], "cat.bst"),
        (vec!["state", "trim", files.arg("cat.bst"), "--to", "1", "-o"], "cat.bst"),
        (vec!["state", "convert", files.arg("cat.bst"), "-o"], "cat.session"),
        (
            vec!["pack", Box::leak(arg(&repository("demo/demo.gguf")).to_owned().into_boxed_str())],
            "packed.gguf",
        ),
        (vec!["timeline", "-n", "2", "--svg"], "memory.svg"),
    ]
}

#[test]
fn no_output_replaces_a_file_of_another_kind() {
    let files = Files::new();
    let before = files.contents();
    let kinds = [
        ("own.gguf", "a model (GGUF)"),
        ("letter.txt", "a text file"),
        ("noise", "a file of another kind"),
        ("cat.svg", "an SVG file that `timeline` did not draw"),
        ("cat.bst", "a saved state"),
        ("cat.session", "a state of llama.cpp"),
        ("packed.gguf", "a packed model"),
        ("memory.svg", "a drawing of `timeline`"),
    ];
    for (command, own) in outputs(&files) {
        for (name, is) in
            kinds.into_iter().filter(|(name, _)| *name != own && !command.contains(&files.arg(name)))
        {
            let outcome = backstitch(&[&command[..], &[files.arg(name)]].concat());
            let line = outcome.error(1);
            assert!(line.contains(&format!("{name} is {is}, not ")), "{command:?}: {line}");
            assert!(line.contains("it is not replaced; name another file for"), "{line}");
            assert!(outcome.stdout.is_empty(), "refused after the work: {}", outcome.stdout);
        }
    }
    assert!(files.contents() == before, "a file has changed");
}

#[test]
fn an_output_of_its_kind_or_an_empty_file_is_replaced() {
    let files = Files::new();
    for (command, own) in outputs(&files) {
        fs::write(files.path("empty"), "").unwrap();
        backstitch(&[&command[..], &[files.arg("empty")]].concat()).ok();
        if command[0] != "run" {
            backstitch(&[&command[..], &[files.arg(own)]].concat()).ok();
        }
    }
}

#[test]
fn a_target_that_cannot_be_written_is_told_before_the_work() {
    let files = Files::new();
    fs::create_dir(files.path("folder")).unwrap();
    fs::write(files.path("guarded"), "").unwrap();
    let mut permissions = fs::metadata(files.path("guarded")).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(files.path("guarded"), permissions).unwrap();
    let before = files.contents();
    let mut cases = vec![
        (files.path("folder"), "is a folder; name a file in it"),
        (files.path("no/such/folder/file"), "no such file or directory"),
        (files.path("guarded"), "is write-protected"),
        (files.path("letter.txt/file"), "not a directory"),
    ];
    if cfg!(target_os = "linux") {
        // Not even the administrator makes files there.
        cases.push((PathBuf::from("/sys/backstitch-file"), "cannot write /sys/backstitch-file"));
    }
    for (command, _) in outputs(&files) {
        for (path, wanted) in &cases {
            let outcome = backstitch(&[&command[..], &[arg(path)]].concat());
            assert!(outcome.error(1).contains(wanted), "{command:?}: {}", outcome.stderr);
            assert!(outcome.stdout.is_empty(), "refused after the work: {}", outcome.stdout);
        }
    }
    assert!(files.contents() == before, "a file has changed");
}

#[test]
#[cfg(unix)]
fn devices_and_links_to_nothing_are_no_targets() {
    let files = Files::new();
    std::os::unix::fs::symlink(files.path("nothing"), files.path("dangling")).unwrap();
    for (command, _) in outputs(&files) {
        let dangling = backstitch(&[&command[..], &[files.arg("dangling")]].concat());
        assert!(dangling.error(1).contains("is a link to nothing"), "{}", dangling.stderr);
        if command[0] != "timeline" {
            let device = backstitch(&[&command[..], &["/dev/null"]].concat());
            assert!(device.error(1).contains("is not a regular file"), "{}", device.stderr);
        }
    }
    backstitch(&["timeline", "-n", "2", "--svg", "/dev/null"]).ok();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_file_that_is_read_is_not_written() {
    let files = Files::new();
    let (prompt, model) = (files.arg("letter.txt"), files.arg("own.gguf"));
    fs::hard_link(files.path("letter.txt"), files.path("linked")).unwrap();
    let before = files.contents();
    let cases: [&[&str]; 7] = [
        &["run", "-f", prompt, "--save", prompt],
        &["run", "-f", prompt, "--save", files.arg("linked")],
        &["run", "-m", model, "--save", model],
        &["state", "convert", files.arg("cat.session"), "-o", files.arg("cat.session")],
        &["state", "convert", files.arg("cat.bst"), "-o", files.arg("cat.bst")],
        &["pack", files.arg("packed.gguf"), files.arg("packed.gguf")],
        &["timeline", "-f", files.arg("memory.svg"), "--svg", files.arg("memory.svg")],
    ];
    for args in cases {
        let outcome = backstitch(args);
        assert!(
            outcome.error(1).contains("is read by this command: it is not replaced"),
            "{}",
            outcome.stderr
        );
    }
    #[cfg(unix)]
    {
        let link = files.path("link.gguf");
        std::os::unix::fs::symlink(files.path("packed.gguf"), &link).unwrap();
        assert!(
            backstitch(&["pack", files.arg("packed.gguf"), arg(&link)]).error(1).contains("is read by this")
        );
        fs::remove_file(link).unwrap();
    }
    assert!(files.contents() == before, "a file has changed");
}

#[test]
fn forgetting_to_restore_does_not_replace_the_diary() {
    let files = Files::new();
    let diary = files.path("diary.bst");
    run(&["-p", "Dear diary,", "-n", "20", "-s", "1", "--save", arg(&diary)]).ok();
    let before = fs::read(&diary).unwrap();
    let refused = |args: &[&str], wanted: &str| {
        let outcome = run(&[args, &["--save", arg(&diary)]].concat());
        let line = outcome.error(1);
        assert!(line.contains(wanted) && line.contains("--force") && line.contains("--restore"), "{line}");
        assert!(outcome.stdout.is_empty(), "refused after the work: {}", outcome.stdout);
        assert!(fs::read(&diary).unwrap() == before);
    };
    refused(&["-p", "Another text"], "holds another text of ");
    refused(&["-p", "Dear diary,"], "that begins with these ");
    refused(&["-p", "Dear diary,", "-n", "5"], "that begins with these ");
    let another = run(&["--restore", files.arg("cat.bst"), "--save", arg(&diary)]);
    assert!(
        another.code == Some(1) && another.stderr.contains("holds another text of "),
        "{}",
        another.stderr
    );
    let llama = repository("goldens/models/falcon_h1.gguf");
    refused(&["-m", arg(&llama), "-p", "Dear diary,"], "is a state of another model");

    let forced = run(&["-p", "Another text", "-n", "3", "--save", arg(&diary), "--force"]);
    assert!(forced.stderr.contains("saved "), "{}", forced.stderr);
    assert!(fs::read(&diary).unwrap() != before);
}

#[test]
fn a_text_that_goes_on_with_the_saved_one_replaces_it() {
    let files = Files::new();
    let diary = files.arg("diary.bst");
    run(&["-p", "Dear diary,", "-n", "0", "--save", diary]).ok();
    run(&["-p", "Dear diary, it rained", "-n", "3", "--save", diary]).ok();
    run(&["--restore", diary, "-n", "3", "--save", diary]).ok();
    run(&["--restore", diary, "-n", "0", "--save", diary]).ok();
    // What is to be saved is a beginning of what is there.
    let before = fs::read(diary).unwrap();
    let shorter = run(&["-p", "Dear diary, it rained", "-n", "0", "--save", diary]);
    assert!(shorter.error(1).contains("that begins with these "), "{}", shorter.stderr);
    assert!(fs::read(diary).unwrap() == before);
    // The same command again makes the same text.
    for _ in 0..2 {
        run(&["-p", "The dog", "-n", "5", "-s", "4", "--save", files.arg("dog.bst")]).ok();
    }
}

#[test]
fn a_text_that_turns_out_to_be_another_is_saved_beside() {
    let files = Files::new();
    let dog = files.path("dog.bst");
    run(&["-p", "The dog", "-n", "9", "-s", "4", "--save", arg(&dog)]).ok();
    let before = fs::read(&dog).unwrap();
    let outcome = run(&["-p", "The dog", "-n", "9", "-s", "5", "--save", arg(&dog)]);
    assert!(outcome.stderr.contains("dog.bst holds another text, or"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("dog.2.bst"), "{}", outcome.stderr);
    outcome.ok();
    assert!(fs::read(&dog).unwrap() == before);
    assert!(backstitch(&["state", "check", files.arg("dog.2.bst")]).ok().contains("sound"));
    // The same text, but less of it.
    let less = run(&["-p", "The dog", "-n", "4", "-s", "4", "--save", arg(&dog)]);
    assert!(less.stderr.contains("dog.3.bst"), "{}", less.stderr);
    assert!(fs::read(&dog).unwrap() == before);
}

#[test]
#[cfg(target_os = "linux")]
fn a_text_that_nobody_reads_any_more_is_saved_all_the_same() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.bst");
    let args = ["run", "-p", "The cat", "-n", "400", "--ignore-eos", "-s", "1", "--save", arg(&path)];
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_backstitch"));
    let outcome = command.args(args).stdin(std::process::Stdio::null()).stdout(full).output().unwrap();
    assert_eq!(outcome.status.code(), Some(1), "{}", String::from_utf8_lossy(&outcome.stderr));
    assert!(backstitch(&["state", "check", arg(&path)]).ok().contains("sound"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_of_another_user_is_told_before_the_work() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("a.bst");
    run(&["-p", "The cat", "-n", "2", "-s", "1", "--save", arg(&path)]).ok();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_backstitch"));
    command.args(["run", "--restore", arg(&path), "-n", "2", "--save", arg(&path)]);
    // Root alone can be somebody else, and only where others may run the program.
    let Ok(outcome) = command.stdin(std::process::Stdio::null()).uid(65534).gid(65534).output() else {
        return;
    };
    let outcome = Outcome::from(outcome);
    assert!(
        outcome.error(1).contains("permission denied") && outcome.stdout.is_empty(),
        "{}",
        outcome.stderr
    );
}

#[test]
fn trimming_and_converting_keep_other_texts() {
    let files = Files::new();
    let dog = files.arg("dog.bst");
    run(&["-p", "The dog ran", "-n", "4", "-s", "1", "--save", dog]).ok();
    backstitch(&["state", "convert", dog, "-o", files.arg("dog.session")]).ok();
    let before = files.contents();
    let cases: [(&[&str], &str); 4] = [
        (&["state", "trim", dog, "--to", "4", "-o", files.arg("cat.bst")], "another text"),
        (&["state", "convert", dog, "-o", files.arg("cat.session")], "another text"),
        // Other engines do not keep all that the state has.
        (&["state", "convert", files.arg("dog.session"), "-o", dog], "checkpoints"),
        (&["state", "convert", files.arg("dog.session"), "-o", files.arg("cat.bst")], "checkpoints"),
    ];
    for (args, wanted) in cases {
        let outcome = backstitch(args);
        assert!(outcome.error(1).contains(wanted), "{}", outcome.stderr);
    }
    assert!(files.contents() == before, "a file has changed");
    for (args, _) in cases {
        assert_eq!(backstitch(&[args, &["--force"]].concat()).code, Some(0), "{args:?}");
    }
}

#[test]
#[cfg(unix)]
fn what_was_said_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let files = Files::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files.path("cat.session")), 0o600);
    assert_eq!(mode(&files.path("cat.bst")), 0o600);
}
