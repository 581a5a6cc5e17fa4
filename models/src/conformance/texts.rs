//! Tokenizers.

use super::tokens::{self, TokenCase};
use super::{Failure, Options, Row, Verdict, files};
use crate::Error;
use crate::gguf::{Access, Source};
use crate::vocab::{AddSpecial, ParseSpecial, Vocab, WriteSpecial};
use alloc::format;
use alloc::vec::Vec;
use backstitch_kv::Token;
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

/// The tokens of a text.
pub(super) fn ids(vocab: &Vocab, text: &str, add: AddSpecial, parse: ParseSpecial) -> Vec<u32> {
    let mut tokens = Vec::new();
    vocab.tokenize(text, add, parse, &mut tokens);
    tokens.iter().map(|token| token.0).collect()
}
