//! Tokenizers and chat templates.

use super::tokens::{self, TokenCase};
use super::{Failure, Options, Row, Verdict, files};
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

/// Checks a table of texts: a row for each text that comes out wrong, or one for all.
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

fn vocabulary(model: &Path) -> Result<Vocab, Error> {
    Vocab::from_gguf(&Source::open(model, Access::Map)?.gguf()?)
}

/// What comes out wrong, if anything does.
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

/// Renders the conversations of a file, a row each; their tokens are compared where the model is there.
pub(super) fn chat(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default();
    let template = ChatTemplate::from_source(text("template"))?;
    let vocab = match files::model(path, text("model"), options) {
        Some(model) => Some(vocabulary(&model)?),
        None => None,
    };
    let cases = json.get("cases").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (i, case) in cases.iter().enumerate() {
        let (verdict, note) = conversation(case, &template, vocab.as_ref());
        report(Row::new(format!("conversation {i}"), verdict, note));
    }
    Ok(())
}

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

type Case<'a> = (Vec<Message<'a>>, GenerationPrompt, &'a str, Vec<u32>);

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

/// The tokens of a text.
pub(super) fn ids(vocab: &Vocab, text: &str, add: AddSpecial, parse: ParseSpecial) -> Vec<u32> {
    let mut tokens = Vec::new();
    vocab.tokenize(text, add, parse, &mut tokens);
    tokens.iter().map(|token| token.0).collect()
}
