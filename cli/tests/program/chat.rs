//! `chat`: turns, commands, and what does not fit.

use super::{Outcome, arg, backstitch, piped, repository};
use backstitch_models::gguf::{Gguf, Writer};
use tempfile::NamedTempFile;

/// The embedded model with a template that makes its stories answers.
pub fn model() -> NamedTempFile {
    model_with(
        "{% for m in messages %}{% if m.role == 'fail' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}. {% endfor %}",
    )
}

/// The embedded model with a chat template.
fn model_with(template: &str) -> NamedTempFile {
    let bytes = std::fs::read(repository("demo/demo.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    writer.set("tokenizer.chat_template", template).unwrap();
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
    }
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.to_bytes()).unwrap();
    file
}

pub fn talk(model: &NamedTempFile, more: &[&str], lines: &str) -> Outcome {
    piped(&[&["chat", "-m", arg(model.path()), "--temp", "0", "-n", "6"], more].concat(), lines.as_bytes())
}

/// Talks with a model whose answers end before a line break, so that each is one line.
fn talk_in_lines(model: &NamedTempFile, more: &[&str], lines: &str) -> Outcome {
    talk(model, &[more, &["-e", "-r", "\\n"]].concat(), lines)
}

#[test]
fn a_model_without_template_chats_in_chatml() {
    let answers = piped(&["chat", "--temp", "0", "-n", "6"], b"The cat sat\n").ok();
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    <|im_start|>assistant\n{{ '' }}";
    let args = ["chat", "--temp", "0", "-n", "6", "--chat-template", template];
    assert_eq!(answers, piped(&args, b"The cat sat\n").ok());
    assert_ne!(
        answers,
        piped(&["chat", "--temp", "0", "-n", "6", "--chat-template", "zephyr"], b"The cat sat\n").ok()
    );
    assert!(backstitch(&["chat", "--chat-template", "chatlm"]).error(1).contains("none of chatml, gemma"));
}

#[test]
fn an_edited_message_is_as_if_it_had_been_said_first() {
    let model = model();
    let wanted = talk_in_lines(&model, &[], "The cat sat\nThe sun shone\n").ok();
    let last = |answers: &str| answers.lines().last().map(str::to_owned);
    let edited =
        talk_in_lines(&model, &[], "The cat sat\nThe dog ran\nOne day\n/edit 2 The sun shone\n").ok();
    assert_eq!((last(&edited), edited.lines().count()), (last(&wanted), 4));
    let none = talk_in_lines(&model, &[], "The cat sat\n/edit 2 The sun shone\n");
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("no such message") && none.stderr.ends_with("error: 1 command failed\n"));
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let model = model();
    let lines = format!("The cat sat\n/edit 1 {}\n/list\n", "The dog ran. ".repeat(60));
    let outcome = talk_in_lines(&model, &["-c", "100"], &lines);
    assert!(outcome.stderr.contains("the conversation is as it was"), "{}", outcome.stderr);
    assert_eq!(outcome.code, Some(1));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!((lines[1], lines.len()), ("  1 user      The cat sat", 3), "{}", outcome.stdout);
}

#[test]
fn branches_go_on_apart() {
    let model = model();
    let wanted = talk_in_lines(&model, &[], "The cat sat\nThe sun shone\n").ok();
    let lines = "The cat sat\n/branch new\nThe dog ran\n/branch\n/branch 1\nThe sun shone\n/list\n";
    let shown = talk_in_lines(&model, &[], lines).ok();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[2..4], ["  1  1 message  The cat sat", "* 2  2 messages  The dog ran"], "{shown}");
    assert_eq!(Some(lines[4]), wanted.lines().last());
    assert_eq!(lines[5], "  1 user      The cat sat");
    assert!(lines[6].starts_with("    assistant"), "{shown}");
    assert_eq!((lines[7], lines.len()), ("  2 user      The sun shone", 9));
    // More branches than sequences: the earlier ones are re-evaluated.
    let many =
        "The cat sat\n".to_owned() + &"/branch new\nThe dog ran\n".repeat(6) + "/branch 1\nThe sun shone\n";
    assert_eq!(talk_in_lines(&model, &["-c", "512"], &many).ok().lines().last(), wanted.lines().last());
    let wrong = talk_in_lines(&model, &[], "/branch 2\n/branch drop 1\n");
    assert!(wrong.stderr.ends_with("error: 2 commands failed\n"), "{}", wrong.stderr);
}

#[test]
fn a_saved_conversation_continues_as_if_it_had_not_been_saved() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let file = folder.path().join("chat.bst");
    let seed = ["--temp", "0.9", "-s", "7"];
    let whole = talk(&model, &seed, "The cat sat\nThe dog ran\n").ok();
    let (first, second) = whole.split_once('\n').unwrap();
    let save = format!("The cat sat\n/save {}\n", arg(&file));
    assert_eq!(talk(&model, &seed, &save).ok().trim_end(), first);
    let on = |more: &[&str], lines: &str| talk(&model, &[&["--temp", "0.9"], more].concat(), lines);
    assert_eq!(on(&["--restore", arg(&file)], "The dog ran\n").ok(), second);
    let load = format!("A bird sang\n/load! {}\nThe dog ran\n", arg(&file));
    assert_eq!(on(&["-s", "1"], &load).ok().lines().count(), 2);
    assert_eq!(on(&[], &load).ok().lines().last(), second.lines().last());
    // Nothing is evaluated but what is new.
    let stats = on(&["--restore", arg(&file), "-v"], "The dog ran\n").stderr;
    let prompt = stats.lines().find_map(|line| line.strip_prefix("note: prompt: ")).unwrap();
    assert!(prompt.split(' ').next().unwrap().parse::<usize>().unwrap() < 12, "{stats}");
}

#[test]
fn a_conversation_that_is_not_saved_is_not_replaced_unasked() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (cat, dog) = (file("cat.bst"), file("dog.bst"));
    talk(&model, &[], &format!("The cat sat\n/save {cat}\n")).ok();
    let refused = talk(&model, &[], &format!("The dog ran\n/load {cat}\n/list\n"));
    assert!(refused.stderr.contains("not saved: /save FILE saves it, /load! FILE"), "{}", refused.stderr);
    assert!(refused.code == Some(1) && refused.stdout.contains("  1 user      The dog ran"));
    // What is saved, forgotten or empty can be replaced.
    for before in [format!("/save {dog}"), "/undo".into(), "/clear\n/system Be sad".into()] {
        let lines = format!("The dog ran\n{before}\n/load {cat}\n/list\n");
        let shown = talk(&model, &[], &lines).ok();
        assert!(shown.contains("  1 user      The cat sat"), "{before}: {shown}");
    }
    // What changed since it was saved cannot.
    for change in ["The sun shone", "/undo\nThe sun shone", "/branch new\nThe sun shone"] {
        let lines = format!("The dog ran\n/save {dog}2\n{change}\n/load {cat}\n");
        assert_eq!(talk(&model, &[], &lines).code, Some(1), "{change}");
    }
}

#[test]
fn a_loaded_conversation_goes_on_in_its_own_file_and_template() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (cat, dog, last) = (file("cat.bst"), file("dog.bst"), file("last.bst"));
    let wanted = talk(&model, &[], "The cat sat\nThe sun shone\n").ok();
    talk(&model, &[], &format!("The cat sat\n/save {cat}\n")).ok();
    talk(&model, &["--chat-template", "zephyr"], &format!("The dog ran\n/save {dog}\n")).ok();
    // The template of the first does not stay with the second.
    let both = talk(&model, &[], &format!("/load {dog}\n/load {cat}\nThe sun shone\n"));
    assert_eq!(both.ok().lines().last(), wanted.lines().last());
    let lines = format!("A bird sang\n/load {cat}\nThe sun shone\n");
    talk(&model, &["--save", &last], &lines).ok();
    let listed = |file: &str| talk(&model, &["--restore", file], "/list\n").ok();
    assert!(listed(&cat).contains("  2 user      The sun shone"), "{}", listed(&cat));
    assert!(listed(&last).starts_with("  1 user      A bird sang"), "{}", listed(&last));
    // What changed behind the last answer is saved at the end.
    talk(&model, &["--restore", &cat, "--save", &cat], "/undo\n").ok();
    assert_eq!(listed(&cat).lines().filter(|line| line.contains(" user ")).count(), 1);
    // So is a conversation whose current branch is empty.
    let empty = file("empty.bst");
    talk(&model, &[], &format!("/branch new\nThe cat sat\n/branch 1\n/save {empty}\n")).ok();
    let on = talk(&model, &["--restore", &empty], "/branch\n/branch 2\nThe sun shone\n").ok();
    assert!(on.starts_with("* 1  0 messages"), "{on}");
    assert_eq!(on.lines().last(), wanted.lines().last());
    // A copy elsewhere does not keep the file of --save from going on.
    let (copy, auto) = (file("copy.bst"), file("auto.bst"));
    let lines =
        format!("The cat sat\n/branch new\n/save {copy}\n/undo\nThe dog ran\n/save {copy}\nA bird sang\n");
    talk(&model, &["--save", &auto], &lines).ok();
    assert!(listed(&auto).contains("  2 user      A bird sang"), "{}", listed(&auto));
}

#[test]
fn saving_after_every_answer_keeps_branches_and_replaces_no_other_text() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let file = folder.path().join("chat.bst");
    let lines = "The cat sat\n/branch new\nThe dog ran\n/undo\nThe sun shone\n";
    talk(&model, &["--save", arg(&file)], lines).ok();
    let shown = talk(&model, &["--restore", arg(&file)], "/branch\n/branch 1\nThe dog ran\n").ok();
    assert!(shown.starts_with("  1  1 message  The cat sat\n* 2  2 messages  The sun shone\n"), "{shown}");
    let wanted = talk(&model, &[], "The cat sat\nThe dog ran\n").ok();
    assert_eq!(shown.lines().last(), wanted.lines().last());
    let before = std::fs::read(&file).unwrap();
    let other = talk(&model, &[], &format!("A bird sang\n/save {}\n", arg(&file)));
    assert_eq!(other.code, Some(1));
    assert!(other.stderr.contains("it is not replaced"), "{}", other.stderr);
    assert!(std::fs::read(&file).unwrap() == before);
    let text = folder.path().join("text.bst");
    let run = ["run", "-m", arg(model.path()), "-p", "The cat", "-n", "2", "--save", arg(&text)];
    backstitch(&run).ok();
    assert!(
        talk(&model, &["--restore", arg(&text)], "").error(1).contains("holds a text and no conversation")
    );
    assert_eq!(talk(&model, &[], &format!("/load {}\nThe cat sat\n", arg(&text))).code, Some(1));
}

/// The embedded model with a template that makes its stories reasoning, of which no message may
/// have any.
fn reasoning_model() -> NamedTempFile {
    model_with(
        "{% for m in messages %}{% if 'girl' in m.content %}{{ raise_exception('reasoning') }}{% endif %}\
         {{ m.content }}. {% endfor %}Once upon a time, there was a little<think>",
    )
}

#[test]
fn reasoning_is_no_part_of_an_answer_in_a_pipe_and_is_saved_apart() {
    let model = reasoning_model();
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("chat");
    let answered = talk(&model, &["--save", arg(&saved)], "The cat sat\nThe sun shone\n");
    assert!(answered.stderr.contains("no answer behind its reasoning"), "{}", answered.stderr);
    assert_eq!(answered.ok(), "\n\n");
    let file = std::fs::read(&saved).unwrap();
    let reasons = br#""reasoning":""#;
    assert!(file.windows(reasons.len()).any(|bytes| bytes == reasons));
    let restored = talk(&model, &["--restore", arg(&saved)], "/list\n").ok();
    assert_eq!(restored.lines().count(), 4, "{restored}");
}

#[test]
fn a_full_context_drops_the_oldest_turns_or_tokens_and_goes_on() {
    let model = model();
    let lines = "The cat sat on the mat.\nThe dog ran to the park.\nThe sun shone all day.\n".repeat(4);
    let dropped = talk_in_lines(&model, &["-c", "64", "-sys", "Be sad"], &lines);
    assert_eq!((dropped.code, dropped.stdout.lines().count()), (Some(0), 12), "{}", dropped.stderr);
    assert!(
        dropped.stderr.contains("note: the context is full: ") && dropped.stderr.contains("turns dropped, ")
    );
    let shifted = talk_in_lines(&model, &["-c", "64", "-sys", "Be sad", "--context-shift"], &lines);
    assert_eq!((shifted.code, shifted.stdout.lines().count()), (Some(0), 12), "{}", shifted.stderr);
    assert!(shifted.stderr.contains("oldest tokens dropped, "), "{}", shifted.stderr);
    // An answer that fills the context goes on, too.
    let long = talk(&model, &["-c", "48", "-n", "100", "--context-shift"], "The cat sat\n");
    assert!(
        long.stderr.contains("oldest tokens dropped, ") && !long.stderr.contains("/clear"),
        "{}",
        long.stderr
    );
    assert!(long.ok().split_whitespace().count() > 48);
    let again = talk_in_lines(&model, &["-c", "64"], &(lines + "/undo\n/retry\n"));
    assert_eq!(again.code, Some(0), "{}", again.stderr);
}

#[test]
fn stop_strings_end_an_answer_and_escapes_are_replaced() {
    let model = model();
    let whole = talk(&model, &["-n", "40"], "The cat sat\n").ok();
    let end = whole.find('.').expect("a sentence");
    assert_eq!(talk(&model, &["-n", "40", "-r", "."], "The cat sat\n").ok().trim_end(), &whole[..end]);
    assert_eq!(
        talk(&model, &["-n", "40", "-e", "--stop", "\\x2e"], "The cat sat\n").ok().trim_end(),
        &whole[..end]
    );
}

#[test]
fn a_prompt_cache_and_drafts_change_no_answer() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let lines = format!("{}\nThe dog ran\n", "The cat sat on the mat. ".repeat(12));
    let wanted = talk(&model, &[], &lines).ok();
    let cache = ["--prompt-cache", arg(folder.path()), "--prompt-cache-all"];
    assert_eq!(talk(&model, &cache, &lines).ok(), wanted);
    let again = talk(&model, &cache, &lines);
    let reused = again.stderr.lines().find_map(|line| line.strip_prefix("note: prompt cache: ")).unwrap();
    assert!(!reused.starts_with("0 of"), "{reused}");
    assert_eq!(again.ok(), wanted);
    assert_eq!(talk(&model, &["--lookup"], &lines).ok(), wanted);
}

#[test]
fn each_line_gets_an_answer() {
    let model = model();
    let answers = talk(&model, &[], "The cat sat\nThe dog ran\n").ok();
    assert_eq!(answers.lines().count(), 2, "{answers}");
    assert!(answers.lines().all(|answer| answer.len() > 5), "{answers}");
    assert_eq!(talk(&model, &["-p", "The cat sat"], "The dog ran").ok(), answers);
    assert_eq!(talk(&model, &[], "The cat sat\n\n/exit\nThe dog ran\n").ok().lines().count(), 1);
}

#[test]
fn going_back_is_as_if_it_had_not_been_said() {
    let model = model();
    let wanted = talk(&model, &[], "The cat sat\nThe sun shone\n").ok();
    let last = |answers: &str| answers.lines().last().map(str::to_owned);
    let undone = talk(&model, &[], "The cat sat\nThe dog ran\n/undo\nThe sun shone\n").ok();
    assert_eq!(last(&undone), last(&wanted));
    let cleared = talk(&model, &[], "The dog ran\n/clear\nThe cat sat\nThe sun shone\n").ok();
    assert_eq!(last(&cleared), last(&wanted));
    let again = talk(&model, &[], "The cat sat\n/retry\n").ok();
    let lines: Vec<_> = again.lines().collect();
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn the_system_prompt_comes_first() {
    let model = model();
    let with = talk(&model, &["-sys", "A sad story about rain"], "The cat sat\n").ok();
    assert_ne!(with, talk(&model, &[], "The cat sat\n").ok());
}

#[test]
fn what_does_not_fit_is_forgotten_and_told() {
    let model = model();
    let long = "dull ".repeat(300);
    let outcome = talk(&model, &["-c", "64"], &format!("{long}\nThe cat sat\n"));
    assert!(
        outcome.stderr.starts_with("warning: ") && outcome.stderr.contains("forgotten"),
        "{}",
        outcome.stderr
    );
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (Some(1), 1));
    assert!(outcome.stderr.ends_with("error: 1 message got no answer\n"), "{}", outcome.stderr);
}

#[test]
fn what_is_no_text_does_not_end_the_conversation() {
    let model = model();
    let args = ["chat", "-m", arg(model.path()), "--temp", "0", "-n", "6"];
    let outcome = piped(&args, b"The c\xffat sat\nThe cat sat\n");
    assert!(
        outcome.stderr.starts_with("warning: the message is not valid UTF-8 at byte 5"),
        "{}",
        outcome.stderr
    );
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stdout, talk(&model, &[], "The cat sat\n").ok());
}

/// Talks on a terminal that `script` makes, with pauses between what is typed. Returns what the
/// terminal shows; nothing where there is no such tool.
#[cfg(target_os = "linux")]
fn type_in(model: &NamedTempFile, keys: &[&str]) -> Option<String> {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::time::Duration;
    let program = env!("CARGO_BIN_EXE_backstitch");
    let chat = format!("{program} chat -m {} --temp 0 -n 6", arg(model.path()));
    // Ctrl-C reaches the shell as well.
    let line = format!("trap : INT; {chat}; echo code=$?; stty -a");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    script.env_remove("NO_COLOR");
    let mut child = script.spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (seen, is_ready) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut shown, mut piece) = (Vec::new(), [0; 512]);
        loop {
            match stdout.read(&mut piece)? {
                0 => return Ok::<_, std::io::Error>(shown),
                n => shown.extend_from_slice(&piece[..n]),
            }
            if shown.windows(2).any(|bytes| bytes == b"> ") {
                let _ = seen.send(());
            }
        }
    });
    // Keys that come before the first prompt would reach the shell.
    let _ = is_ready.recv_timeout(Duration::from_secs(60));
    for keys in keys {
        std::thread::sleep(Duration::from_millis(700));
        stdin.write_all(keys.as_bytes()).unwrap();
    }
    child.wait().unwrap();
    drop(stdin);
    Some(String::from_utf8_lossy(&reader.join().unwrap().unwrap()).replace('\r', ""))
}

#[test]
#[cfg(target_os = "linux")]
fn a_paste_that_never_ends_is_ended_by_ctrl_c() {
    let model = model();
    let expected = talk(&model, &[], "The cat sat\n").ok();
    let keys = ["\x1b[200~The dog\r/exit\r", "\x03", "The cat sat\r", "/exit\r"];
    let Some(shown) = type_in(&model, &keys) else { return };
    assert!(shown.contains(&expected) && shown.contains("code=0"), "{shown}, not {expected}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_shows_reasoning_faint() {
    let faint = |model: &NamedTempFile| {
        let shown = type_in(model, &["The cat sat\r", "The sun shone\r", "/exit\r"])?;
        assert!(shown.contains("code=0"), "{shown}");
        Some(shown.contains("\x1b[2m"))
    };
    let (with, without) = (faint(&reasoning_model()), faint(&model()));
    assert!((with, without) == (Some(true), Some(false)) || (with, without) == (None, None));
}

#[test]
#[cfg(target_os = "linux")]
fn no_terminal_obeys_what_a_prompt_says() {
    use std::process::{Command, Stdio};
    let line = format!("{} run -n 1 --temp 0 -p \"$TEXT\"", env!("CARGO_BIN_EXE_backstitch"));
    let text = "The cat\x1b]0;title\x07 sat";
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TEXT", text).stdin(Stdio::null());
    let Ok(output) = script.output() else { return };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("The cat\\u{1b}]0;title\\u{7} sat") && !shown.contains("\x1b]0;"), "{shown:?}");
    assert!(backstitch(&["run", "-n", "1", "-p", text]).ok().starts_with(text), "a pipe gets it as it is");
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_at_the_prompt_asks_again_and_the_terminal_is_as_before() {
    let model = model();
    let expected = talk(&model, &[], "The cat sat\n").ok();
    let keys = ["The dog\x03", "\x03", "The cax\x7ft sat\r", "\x04"];
    let Some(shown) = type_in(&model, &keys) else { return };
    assert!(shown.contains("to leave, type /exit or press Ctrl-D"), "{shown}");
    assert!(shown.contains(&expected), "{shown}, not {expected}");
    assert!(shown.contains("code=0") && shown.contains(" icanon") && shown.contains(" echo "), "{shown}");
    assert!(shown.rfind("\x1b[?2004l") > shown.rfind("\x1b[?2004h"), "{shown:?}");
}

#[test]
fn unknown_commands_are_not_sent_to_the_model() {
    let outcome = talk(&model(), &[], "/sing\n/undo\n/help\n");
    assert!(outcome.stderr.contains("no such command: /sing") && outcome.stderr.contains("nothing to undo"));
    assert!(outcome.stdout.contains("/retry"));
    // A script hears of it.
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.ends_with("error: 2 commands failed\n"), "{}", outcome.stderr);
}

/// Start a chat whose answer only its reader or a signal ends, and read the beginning of it.
#[cfg(unix)]
fn begun(model: &NamedTempFile, saved: &std::path::Path) -> (std::process::Child, std::process::ChildStdout) {
    use std::io::{Read, Write};
    // Token 0 would end the answer.
    let endless = ["-n", "-1", "-c", "20000", "-t", "1", "--logit-bias", "0-inf"];
    let args = ["chat", "-m", arg(model.path()), "--save", arg(saved)];
    let mut chat = super::program(&[&args[..], &endless].concat());
    let mut child = chat.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"The cat sat\n").unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 20]).unwrap();
    (child, stdout)
}

#[cfg(unix)]
#[test]
fn what_was_answered_is_saved_when_the_reader_goes_away_or_a_signal_comes() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    for (ending, code) in [("closed", 0), ("interrupted", 130)] {
        let saved = folder.path().join(ending);
        let (mut child, stdout) = begun(&model, &saved);
        let kept = (code == 130).then_some(stdout);
        if kept.is_some() {
            let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            assert!(kill.unwrap().success());
        }
        // The program must not wait for a full pipe.
        if let Some(mut stdout) = kept {
            std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(code), "{ending}");
        let listed = talk(&model, &["--restore", arg(&saved)], "/list\n").ok();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(lines.first(), Some(&"  1 user      The cat sat"), "{ending}: {listed}");
        assert!(lines.get(1).is_some_and(|line| line.starts_with("    assistant")), "{ending}: {listed}");
    }
}
