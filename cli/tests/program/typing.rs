//! `chat` on a terminal: editing, history, pasted text, Ctrl-C, Ctrl-D, other sizes, and the
//! commands as a person types them.

use super::chat::{model, talk};
use super::terminal::Terminal;
use super::{arg, repository};
use backstitch_models::gguf::Gguf;
use pty_process::blocking::Command;
use tempfile::NamedTempFile;

/// Escape sequences of keys.
const LEFT: &str = "\x1b[D";
const RIGHT: &str = "\x1b[C";
const UP: &str = "\x1b[A";
const DOWN: &str = "\x1b[B";
const HOME: &str = "\x1b[H";
const END: &str = "\x1b[F";
const DELETE: &str = "\x1b[3~";
const BACKSPACE: &str = "\x7f";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_R: &str = "\x12";
const CTRL_U: &str = "\x15";
const CTRL_W: &str = "\x17";
const CTRL_Y: &str = "\x19";

/// Opens a chat as `talk` does, and waits for its prompt.
fn chat(model: &NamedTempFile, more: &[&str]) -> Terminal {
    let args = ["chat", "-m", arg(model.path()), "--temp", "0", "-n", "6"];
    let terminal = Terminal::start(&[&args, more].concat());
    terminal.wait_for_prompt();
    terminal
}

/// Leaves with Ctrl-D. Returns what the screen shows then.
#[track_caller]
fn leave(terminal: Terminal) -> String {
    terminal.press(CTRL_D);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    shown
}

/// The lines that piped messages get in answer, as a screen shows them.
fn answers(model: &NamedTempFile, lines: &str) -> Vec<String> {
    shown(&talk(model, &[], lines).ok())
}

/// The lines of a text that show something, without spaces at their ends.
fn shown(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Asserts that the screen shows these answers, and returns it.
#[track_caller]
fn expect_answers(terminal: &Terminal, answers: &[String]) {
    let shown = shown(&terminal.text());
    assert!(answers.iter().all(|answer| shown.contains(answer)), "{shown:#?}\ninstead of {answers:#?}");
}

#[test]
fn a_line_is_edited_with_keys() {
    let model = model();
    let wanted = answers(&model, "The cat sat\nThe dog ran\n");
    let chat = chat(&model, &[]);
    chat.press("he dat zat");
    chat.wait_for_line("> he dat zat");
    chat.press(&[HOME, "T", RIGHT, RIGHT, RIGHT, DELETE, "c", END, LEFT, LEFT, BACKSPACE, "s", END].concat());
    chat.wait_for_line("> The cat sat");
    chat.press("\r");
    chat.wait_for_prompt();
    chat.press(&["The dog sang", CTRL_W, "ran away", CTRL_W, CTRL_U, CTRL_Y].concat());
    // Ctrl-Y brings back all that was cut.
    chat.wait_for_line("> The dog ran away");
    chat.press(&[CTRL_W, BACKSPACE, "\r"].concat());
    chat.wait_for_prompt();
    expect_answers(&chat, &wanted);
    leave(chat);
}

#[test]
fn what_was_typed_comes_back_also_in_later_chats() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let history = folder.path().join("history");
    let first = chat(&model, &["--history", arg(&history)]);
    first.say("The cat sat");
    first.say("The dog ran");
    first.press(UP);
    first.wait_for_line("> The dog ran");
    first.press(&[UP, UP].concat());
    first.wait_for_line("> The cat sat");
    first.press(DOWN);
    first.wait_for_line("> The dog ran");
    first.press(CTRL_C);
    first.wait_for_prompt();
    leave(first);
    let second = chat(&model, &["--history", arg(&history)]);
    second.press(CTRL_R);
    second.wait_for("reverse-i-search");
    second.press("cat");
    second.wait_for("The cat sat");
    second.press("\r");
    second.wait_for_prompt();
    expect_answers(&second, &answers(&model, "The cat sat\n"));
    leave(second);
    // A file of another kind is not made into a history.
    std::fs::write(&history, "Dear Tim,\n").unwrap();
    let third = chat(&model, &["--history", arg(&history)]);
    third.say("The cat sat");
    assert!(third.text().contains("this is no history, and the file stays as it is"), "{}", third.text());
    leave(third);
    assert_eq!(std::fs::read_to_string(&history).unwrap(), "Dear Tim,\n");
}

#[test]
fn pasted_and_continued_lines_are_one_message() {
    let model = model();
    let wanted = answers(&model, "The cat\\\nsat on\\\na mat\nThe dog\\\nran\n");
    let chat = chat(&model, &[]);
    chat.press("\x1b[200~The cat\rsat on\ra mat\x1b[201~");
    chat.wait_for("sat on\na mat");
    chat.press("\r");
    chat.wait_for_prompt();
    chat.press("The dog\\\r");
    chat.wait_for_line(". ");
    chat.press("ran\r");
    chat.wait_for_prompt();
    expect_answers(&chat, &wanted);
    chat.say("/list");
    let listed: Vec<_> = shown(&chat.text()).into_iter().filter(|line| line.contains(" user ")).collect();
    assert_eq!(listed, ["  1 user      The cat sat on a mat", "  2 user      The dog ran"]);
    leave(chat);
}

#[test]
fn lines_that_are_typed_ahead_are_a_message_each() {
    let model = model();
    let chat = chat(&model, &[]);
    chat.press("The cat sat\rThe dog ran\r/exit\r");
    let (code, screen) = chat.end();
    let screen = shown(&screen);
    let wanted = answers(&model, "The cat sat\nThe dog ran\n");
    assert!(code == Some(0) && wanted.iter().all(|answer| screen.contains(answer)), "{screen:#?}");
}

#[test]
fn a_message_is_edited_undone_and_answered_again() {
    let model = model();
    let chat = chat(&model, &[]);
    chat.say("The cat sat");
    chat.say("The dog ran");
    // The message stands in the line, to be changed.
    chat.press("/edit 1\r");
    chat.wait_for_line("> The cat sat");
    chat.press(&[CTRL_W, "slept\r"].concat());
    chat.wait_for_prompt();
    let mut wanted = answers(&model, "The cat slept\nThe sun shone\n");
    expect_answers(&chat, &wanted[..1]);
    chat.say("A bird sang");
    chat.say("/undo");
    chat.say("The sun shone");
    expect_answers(&chat, &wanted);
    chat.say("/regen");
    // At temperature 0 the answer is the same one, below the command.
    assert_eq!(shown(&chat.text()).iter().rev().nth(1), wanted.last(), "{}", chat.text());
    chat.say("/list");
    let listed: Vec<_> = shown(&chat.text()).into_iter().filter(|line| line.contains(" user ")).collect();
    assert_eq!(listed, ["  1 user      The cat slept", "  2 user      The sun shone"]);
    // Ctrl-C leaves the message as it was.
    chat.press("/edit\r");
    chat.wait_for_line("> The sun shone");
    chat.press(CTRL_C);
    chat.wait_for("the message is as it was");
    chat.wait_for_prompt();
    chat.say("/system Be sad");
    chat.say("/system");
    wanted = shown(&talk(&model, &["-sys", "Be sad"], "The cat slept\n").ok());
    chat.say("/clear");
    chat.say("The cat slept");
    expect_answers(&chat, &["Be sad".to_owned(), wanted[0].clone()]);
    leave(chat);
}

#[test]
fn branches_go_on_apart_on_a_terminal() {
    let model = model();
    let wanted = answers(&model, "The cat sat\nThe sun shone\n");
    let chat = chat(&model, &[]);
    chat.say("The cat sat");
    chat.say("/branch new");
    chat.say("The dog ran");
    chat.say("/branch 1");
    chat.say("The sun shone");
    expect_answers(&chat, &wanted);
    chat.say("/branch");
    let shown = chat.text();
    assert!(shown.contains("* 1  2 messages  The sun shone"), "{shown}");
    assert!(shown.contains("  2  2 messages  The dog ran"), "{shown}");
    chat.say("/branch drop 2");
    chat.say("/branch 2");
    assert!(chat.text().contains("there is no branch 2, only 1 branch"), "{}", chat.text());
    chat.say("/stats");
    let shown = chat.text();
    assert!(shown.contains("context: ") && shown.contains("pinned at ends of messages"), "{shown}");
    leave(chat);
}

/// The number of the demo's token that ends a text.
fn end_of_text() -> String {
    let bytes = std::fs::read(repository("demo/demo.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    gguf.u32("tokenizer.ggml.eos_token_id").unwrap().to_string()
}

#[test]
fn ctrl_c_stops_an_answer_and_the_conversation_goes_on() {
    let model = model();
    // An answer without an end.
    let ban = format!("{}-inf", end_of_text());
    let endless = ["-n", "-1", "--context-shift", "-c", "256", "--logit-bias", &ban];
    let chat = chat(&model, &endless);
    chat.press("The cat sat\r");
    chat.wait("an answer", |screen| screen.contents().split_whitespace().count() > 60);
    chat.press(CTRL_C);
    chat.wait_for_prompt();
    // The answer stays as far as it came.
    chat.say("/list");
    let listed = shown(&chat.text()).into_iter().filter(|line| line.starts_with("    assistant ")).count();
    assert_eq!(listed, 1, "{}", chat.text());
    chat.say("/undo");
    chat.press("The dog ran");
    chat.wait_for_line("> The dog ran");
    chat.press("\r");
    chat.wait("another answer", |screen| {
        let shown = screen.contents();
        shown.rsplit("> The dog ran").next().is_some_and(|answer| answer.split_whitespace().count() > 20)
    });
    chat.press(CTRL_C);
    chat.wait_for_prompt();
    leave(chat);
}

#[test]
fn ctrl_c_stops_an_answer_also_while_a_full_context_is_made_smaller() {
    let model = model();
    let ban = format!("{}-inf", end_of_text());
    let endless = ["-n", "-1", "--context-shift", "-c", "3000", "-t", "1", "--logit-bias", &ban];
    let chat = chat(&model, &endless);
    chat.press("The cat sat\r");
    // The line comes before half of the context is re-evaluated, which takes a while.
    chat.wait_for("oldest tokens dropped");
    chat.press(CTRL_C);
    chat.wait_for_prompt();
    chat.say("/list");
    assert!(chat.text().contains("  1 user      The cat sat"), "{}", chat.text());
    leave(chat);
}

#[test]
fn ctrl_c_and_ctrl_d_at_the_prompt() {
    let model = model();
    let chat = chat(&model, &[]);
    chat.press("The dog");
    chat.wait_for_line("> The dog");
    chat.press(CTRL_C);
    chat.wait_for_prompt();
    assert!(!chat.text().contains("to leave"), "{}", chat.text());
    chat.press(CTRL_C);
    chat.wait_for("to leave, type /exit or press Ctrl-D");
    chat.wait_for_prompt();
    // In the middle of a text, Ctrl-D deletes.
    chat.press(&["Thex cat sat", HOME, RIGHT, RIGHT, RIGHT, CTRL_D, END].concat());
    chat.wait_for_line("> The cat sat");
    chat.press("\r");
    chat.wait_for_prompt();
    expect_answers(&chat, &answers(&model, "The cat sat\n"));
    let shown = leave(chat);
    assert!(shown.contains("generated 6 tokens at "), "{shown}");
}

#[test]
fn a_line_fits_the_terminal_also_when_its_size_changes() {
    let model = model();
    let text = "The cat sat on the mat, and the dog ran to the park with a big red ball";
    let chat = chat(&model, &[]);
    chat.press(text);
    chat.wait_for_line(&format!("> {text}"));
    chat.resize((40, 30));
    // The line is drawn anew, as three rows.
    let wanted = ["> The cat sat on the mat, and ", "the dog ran to the park with a", " big red ball"];
    let is_wrapped = |end: &str| {
        let rows: Vec<String> = wanted.iter().map(|row| row.trim_end().to_owned()).collect();
        let (rows, end) = (rows, end.to_owned());
        move |screen: &vt100::Screen| {
            let shown: Vec<_> = screen.rows(0, 30).map(|row| row.trim_end().to_owned()).collect();
            let last = format!("{}{end}", rows[2]);
            shown.windows(3).any(|shown| shown[..2] == rows[..2] && shown[2] == last)
        }
    };
    chat.wait("line of three rows", is_wrapped(""));
    chat.press("oon");
    chat.wait("changed line of three rows", is_wrapped("oon"));
    chat.resize((40, 120));
    chat.wait_for_line(&format!("> {text}oon"));
    chat.press(&[BACKSPACE, BACKSPACE, BACKSPACE].concat());
    chat.wait_for_line(&format!("> {text}"));
    chat.press("\r");
    chat.wait_for_prompt();
    expect_answers(&chat, &answers(&model, &format!("{text}\n")));
    leave(chat);
}

#[test]
fn a_saved_conversation_is_loaded_exactly_and_none_is_lost() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let file = folder.path().join("my chat.bst");
    let seed = ["--temp", "0.9", "-s", "7"];
    let whole = shown(&talk(&model, &seed, "The cat sat\nThe dog ran\n").ok());
    let first = chat(&model, &seed);
    first.say("The cat sat");
    first.say(&format!("/save {}", arg(&file)));
    expect_answers(&first, &whole[..1]);
    assert!(first.text().contains("saved 1 branch to "), "{}", first.text());
    leave(first);
    let second = chat(&model, &["--temp", "0.9"]);
    second.say("A bird sang");
    let load = |answer: &str| {
        second.press(&format!("/load {}\r", arg(&file)));
        second.wait_for_line("This conversation is not saved. Replace it? [y/N] ");
        second.press(answer);
        second.press("\r");
        second.wait_for_prompt();
    };
    load("n");
    assert!(second.text().contains("the conversation is as it was"), "{}", second.text());
    second.say("/list");
    assert!(second.text().contains("  1 user      A bird sang"), "{}", second.text());
    load("y");
    assert!(second.text().contains("restored 1 message, "), "{}", second.text());
    second.say("The dog ran");
    expect_answers(&second, &whole[1..]);
    // The question is no message: Up finds what was said before it.
    second.press(&[UP, UP].concat());
    second.wait_for_line(&format!("> /load {}", arg(&file)));
    second.press(CTRL_C);
    second.wait_for_prompt();
    leave(second);
}

#[test]
fn a_terminal_without_a_cursor_is_enough() {
    let model = model();
    let args = ["chat", "-m", arg(model.path()), "--temp", "0", "-n", "6"];
    let command = Command::new(env!("CARGO_BIN_EXE_backstitch")).args(args).env("TERM", "dumb");
    let chat = Terminal::of(command);
    chat.wait_for_prompt();
    chat.press("The cat\\\r");
    chat.wait_for_line(". ");
    chat.press("sat\r");
    chat.wait_for_prompt();
    expect_answers(&chat, &answers(&model, "The cat\\\nsat\n"));
    chat.say("/edit 1");
    chat.wait_for("/edit needs the new text here: /edit N TEXT");
    leave(chat);
}
