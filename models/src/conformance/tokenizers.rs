//! Replay of tokeniser tables and chat templates.

use super::files;
use super::report::{Failure, Options, Row, Verdict};
use super::tokens::{self, TokenCase};
use crate::Error;
use crate::chat::{ChatTemplate, Conversation, GenerationPrompt, Message};
use crate::gguf::{Access, Source};
use crate::vocab::{AddSpecial, ParseSpecial, Vocab, WriteSpecial};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use backstitch_kv::Token;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Check a table of texts. Report a row for each text with a difference, or one row for all texts.
pub(super) fn file(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let cases = tokens::parse(&fs::read_to_string(path)?)?;
    let all = format!("{} texts", cases.len());
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let Some(model) = files::model(path, &format!("models/{stem}.gguf"), options) else {
        report(Row::new(all, Verdict::NotSupported, "the model is not there; name it with --model"));
        return Ok(());
    };
    match vocabulary(&model) {
        Err(error) => report(Row::error(&all, &error)),
        Ok(vocab) => {
            let wrong: Vec<_> = cases.iter().filter_map(|case| Some((case, fault(&vocab, case)?))).collect();
            for (case, what) in &wrong {
                report(Row::new(format!("line {}", case.line), Verdict::Failed, *what));
            }
            if wrong.is_empty() {
                report(Row::new(all, Verdict::Passed, ""));
            }
        }
    }
    Ok(())
}

/// Read the vocabulary of a model file.
fn vocabulary(model: &Path) -> Result<Vocab, Error> {
    Vocab::from_gguf(&Source::open(model, Access::Map)?.gguf()?)
}

/// Return the first difference, if there is one.
fn fault(vocab: &Vocab, case: &TokenCase) -> Option<&'static str> {
    let Ok(text) = core::str::from_utf8(&case.text) else { return Some("the text is not UTF-8") };
    let same = |add, parse, wanted: &[u32]| ids(vocab, text, add, parse) == wanted;
    let bytes = |tokens: &[u32], write| {
        let tokens: Vec<_> = tokens.iter().copied().map(Token).collect();
        vocab.detokenize(&tokens, write)
    };
    if !same(AddSpecial::No, ParseSpecial::No, &case.plain) {
        Some("other tokens")
    } else if !same(AddSpecial::No, ParseSpecial::Yes, &case.special) {
        Some("other tokens where special ones are recognised")
    } else if !same(AddSpecial::Yes, ParseSpecial::Yes, &case.whole) {
        Some("other tokens before or after the text")
    } else if bytes(&case.plain, WriteSpecial::No) != case.plain_bytes {
        Some("another text from the tokens")
    } else if bytes(&case.special, WriteSpecial::Yes) != case.special_bytes {
        Some("another text from tokens with special ones among them")
    } else {
        None
    }
}

/// Render the conversations of a file, and report a row for each. Their tokens are compared if the
/// model is there.
pub(super) fn chat(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let missing = |key: &str| Failure(format!("the file has no \"{key}\"; make it again"));
    let text = |key: &str| json.get(key).and_then(Value::as_str).ok_or_else(|| missing(key));
    let template = ChatTemplate::from_source(text("template")?)?;
    let vocab = match files::model(path, text("model")?, options) {
        Some(model) => Some(vocabulary(&model)?),
        None => None,
    };
    let cases = json.get("cases").and_then(Value::as_array).ok_or_else(|| missing("cases"))?;
    for (i, case) in cases.iter().enumerate() {
        let (verdict, note) = conversation(case, &template, vocab.as_ref());
        report(Row::new(format!("conversation {i}"), verdict, note));
    }
    Ok(())
}

/// Check one conversation.
fn conversation(case: &Value, template: &ChatTemplate, vocab: Option<&Vocab>) -> (Verdict, String) {
    let Some((messages, prompt, rendered, tokens)) = read_conversation(case) else {
        return (Verdict::Failed, "the case lacks something".into());
    };
    let mut conversation = Conversation::new(messages).prompt(prompt);
    if let Some(vocab) = vocab {
        conversation = conversation.tokens_of(vocab);
    }
    match (template.render(&conversation), vocab) {
        (Err(error), _) => (Verdict::Failed, error.to_string()),
        (Ok(text), _) if text.as_str() != rendered => (Verdict::Failed, "another text".into()),
        (Ok(text), Some(vocab)) if ids(vocab, text.as_str(), AddSpecial::No, ParseSpecial::Yes) != tokens => {
            (Verdict::Failed, "other tokens".into())
        }
        (Ok(_), Some(_)) => (Verdict::Passed, String::new()),
        (Ok(_), None) => (Verdict::Passed, "text only; name the model with --model to compare tokens".into()),
    }
}

/// The fields of a conversation: messages, prompt, expected text and expected tokens.
type Case<'a> = (Vec<Message<'a>>, GenerationPrompt, &'a str, Vec<u32>);

/// Read a conversation; `None` if a field is missing or of another type.
fn read_conversation(case: &Value) -> Option<Case<'_>> {
    let messages = case.get("messages")?.as_array()?.iter();
    let messages = messages.map(|message| {
        Some(Message { role: message.get("role")?.as_str()?, content: message.get("content")?.as_str()? })
    });
    let asked = case.get("add_generation_prompt")?.as_bool()?;
    let prompt = if asked { GenerationPrompt::Yes } else { GenerationPrompt::No };
    let tokens = case.get("ids")?.as_array()?.iter().map(|id| u32::try_from(id.as_u64()?).ok());
    Some((
        messages.collect::<Option<_>>()?,
        prompt,
        case.get("rendered")?.as_str()?,
        tokens.collect::<Option<_>>()?,
    ))
}

/// Return the tokens of a text.
pub(super) fn ids(vocab: &Vocab, text: &str, add: AddSpecial, parse: ParseSpecial) -> Vec<u32> {
    let mut tokens = Vec::new();
    vocab.tokenize(text, add, parse, &mut tokens);
    tokens.iter().map(|token| token.0).collect()
}
