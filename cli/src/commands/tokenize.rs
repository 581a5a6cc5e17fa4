//! `backstitch tokenize`: show the tokens of a text, as the model would read it.

use crate::args::TokenizeArgs;
use crate::error::Error;
use crate::output::Output;
use crate::{model, prompt};
use backstitch_models::Token;
use backstitch_models::vocab::{AddSpecial, ParseSpecial, Vocab};
use serde_json::{Value, json};

/// Run the command. Only the vocabulary of the model is loaded.
///
/// # Errors
/// - [`Error::Refused`] if there is no text.
/// - [`Error::Read`] if the text cannot be read.
/// - [`Error::Engine`] if the model cannot be read, or its vocabulary is damaged.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &TokenizeArgs) -> Result<(), Error> {
    let text =
        prompt::read(&args.input)?.ok_or_else(|| Error::Refused("no text; give -p, -f or a pipe".into()))?;
    let (vocab, _) = model::vocab(&args.model)?;
    let add = if args.no_bos { AddSpecial::No } else { AddSpecial::Yes };
    let parse = if args.no_parse_special { ParseSpecial::No } else { ParseSpecial::Yes };
    let mut tokens = Vec::new();
    vocab.tokenize(&text, add, parse, &mut tokens);

    let mut out = Output::new(args.json);
    if args.json {
        out.value(&tokens.iter().map(|&token| as_json(&vocab, token)).collect())?;
    } else if args.ids {
        out.line(tokens.iter().map(|token| token.0.to_string()).collect::<Vec<_>>().join(" "))?;
    } else {
        for &token in &tokens {
            out.line(format_args!("{:>7}  {}", token.0, shown(vocab.piece(token))))?;
        }
    }
    Ok(out.flush()?)
}

/// Return a token as JSON, in the form of llama.cpp's server: its text, or bytes if it is only a
/// part of a character.
fn as_json(vocab: &Vocab, token: Token) -> Value {
    let piece = vocab.piece(token);
    let piece = std::str::from_utf8(piece).map_or_else(|_| json!(piece), |text| json!(text));
    json!({ "id": token.0, "piece": piece })
}

/// Return a piece in quotes on one line. Bytes that are no UTF-8 are shown as `\x..`.
fn shown(piece: &[u8]) -> String {
    let chunks = piece.utf8_chunks();
    let chunk = |chunk: std::str::Utf8Chunk| {
        let bytes: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("{}{bytes}", chunk.valid().escape_debug())
    };
    format!("\"{}\"", chunks.map(chunk).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_shown_on_one_line() {
        assert_eq!(shown(b" a\n"), "\" a\\n\"");
        assert_eq!(shown(b"\xe2\x96"), "\"\\xe2\\x96\"");
        assert_eq!(shown("né".as_bytes()), "\"né\"");
    }
}
