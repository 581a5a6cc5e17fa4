//! `chat`: turns, commands, and what does not fit.

use super::{Outcome, arg, backstitch, piped, repository};
use backstitch_models::gguf::{Gguf, Writer};
use tempfile::NamedTempFile;

/// The embedded model with a template that makes its stories answers.
fn model() -> NamedTempFile {
    let bytes = std::fs::read(repository("demo/demo.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    let template = "{% for m in messages %}{% if m.role == 'fail' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}. {% endfor %}";
    writer.set("tokenizer.chat_template", template).unwrap();
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
    }
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), writer.to_bytes()).unwrap();
    file
}

fn talk(model: &NamedTempFile, more: &[&str], lines: &str) -> Outcome {
    piped(&[&["chat", "-m", arg(model.path()), "--temp", "0", "-n", "6"], more].concat(), lines.as_bytes())
}

#[test]
fn a_model_without_template_cannot_chat() {
    assert!(backstitch(&["chat"]).error(1).contains("no chat template"));
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
    assert_eq!(outcome.ok().lines().count(), 1);
}

#[test]
fn unknown_commands_are_not_sent_to_the_model() {
    let outcome = talk(&model(), &[], "/sing\n/undo\n/help\n");
    assert!(outcome.stderr.contains("no such command: /sing") && outcome.stderr.contains("nothing to undo"));
    assert!(outcome.ok().contains("/retry"));
}
