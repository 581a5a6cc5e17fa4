//! Habits of people who know llama.cpp, and files that other systems write.

use super::{arg, backstitch, piped, program};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

#[test]
fn the_command_line_of_a_llama_cpp_user_runs() {
    let plain = backstitch(&["run", "-n", "8", "-s", "3"]).ok();
    let habits = "-ngl 99 -fa on -no-cnv -t -1 --top-k 7 --top-k 40 -n 3 -n 8 -s 3 --keep -1 --mlock --no-warmup \
                  --repeat-last-n -1 --log-disable";
    let outcome = backstitch(&[&["run"], habits.split_whitespace().collect::<Vec<_>>().as_slice()].concat());
    assert!(
        outcome.stderr.contains("note: -ngl is ignored: everything runs on the CPU"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.lines().all(|line| line.starts_with("note: ")), "{}", outcome.stderr);
    assert_eq!(outcome.ok(), plain);
}

#[test]
fn what_cannot_be_had_is_wrong_usage_on_one_line() {
    let cases = [
        ("run -hf x/y", "-hf: nothing is downloaded here; get the GGUF file, then name it with -m FILE"),
        ("run --grammar x", "--grammar: "),
        ("run -ngll 9", "no such option: -ngll; the nearest is -ngl of llama.cpp;"),
        ("-m model.gguf -p hello", "backstitch run -m"),
    ];
    for (line, wanted) in cases {
        let outcome = backstitch(&line.split(' ').collect::<Vec<_>>());
        assert!(outcome.error(2).contains(wanted), "{line}: {}", outcome.stderr);
        assert!(outcome.stdout.is_empty());
    }
}

#[test]
fn a_text_ends_where_the_context_does() {
    let outcome = backstitch(&["run", "-n", "-2", "-c", "32", "--ignore-eos"]);
    assert!(outcome.stderr.contains("the context of 32 tokens is full"), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn a_file_of_another_system_is_the_same_prompt() {
    let folder = TempDir::new().unwrap();
    let ids = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        backstitch(&["tokenize", "--ids", "-f", arg(&path)]).ok()
    };
    let utf16: Vec<u8> = std::iter::once(0xfeff)
        .chain("The cat\r\nsat\r\n".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    let plain = ids("plain", b"The cat\nsat\n");
    assert_eq!(ids("crlf", b"The cat\r\nsat\r\n"), plain);
    assert_eq!(ids("marked", b"\xef\xbb\xbfThe cat\nsat\n"), plain);
    assert_eq!(ids("utf16", &utf16), plain);
    assert_eq!(piped(&["tokenize", "--ids"], b"\xef\xbb\xbfThe cat\r\nsat").ok(), plain);
    std::fs::write(folder.path().join("odd"), &utf16[..utf16.len() - 1]).unwrap();
    let odd = folder.path().join("odd");
    assert!(backstitch(&["tokenize", "-f", arg(&odd)]).error(1).contains("save it as UTF-8"));
}

#[test]
fn piped_text_comes_before_that_of_the_option() {
    let joined = piped(&["tokenize", "--ids", "-p", "sat"], b"The cat\n").ok();
    assert_eq!(joined, backstitch(&["tokenize", "--ids", "-e", "-p", "The cat\\nsat"]).ok());
    assert_ne!(joined, backstitch(&["tokenize", "--ids", "-p", "sat"]).ok());
}

#[test]
fn numbers_beyond_the_model_and_the_machine_are_told() {
    let outcome = backstitch(&["run", "-n", "1", "--logit-bias", "99999+1"]);
    assert!(outcome.error(1).contains("tokens 0 to 2047"), "{}", outcome.stderr);
    let outcome = backstitch(&["run", "-n", "1", "-t", "513"]);
    assert!(outcome.stderr.starts_with("warning: -t 513: "), "{}", outcome.stderr);
    outcome.ok();
}

#[test]
fn a_file_where_llama_cpp_has_its_prompt_cache_is_explained() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cache.session");
    std::fs::write(&path, b"nsgg").unwrap();
    let outcome = backstitch(&["run", "-n", "1", "--prompt-cache", arg(&path)]);
    assert!(outcome.stderr.contains("is a file; a prompt cache is a folder here"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--save"), "{}", outcome.stderr);
    outcome.ok();
    assert_eq!(std::fs::read(&path).unwrap(), b"nsgg");
}

#[test]
fn a_pipe_that_nobody_ends_is_told() {
    let mut child = program(&["run", "-n", "1"]).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (told, lines) = mpsc::channel();
    let reader =
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
    let line = lines.recv_timeout(Duration::from_secs(30));
    drop(stdin);
    assert!(child.wait().unwrap().success());
    reader.join().unwrap().unwrap();
    let line = line.expect("the program says that it waits");
    assert!(line.contains("waiting for the end of standard input") && line.contains("< /dev/null"), "{line}");
    assert_eq!(piped(&["run", "-n", "1"], b"The cat").stderr, "");
}
