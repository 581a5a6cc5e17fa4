//! Compile JSON schemas and check texts against them, for comparisons with other validators.
//!
//! Each line of the standard input is a JSON object: a `schema`, optionally `tests` (texts), and
//! `n_random`, the number of random texts to write under the grammar. Each line of the output says
//! in how many milliseconds the schema was compiled, the parts that were left out, which tests are
//! accepted, and the random texts; or the `error`.
//!
//! ```text
//! cargo run --release -p backstitch-models --features grammar --example schema_check < cases
//! ```

use std::io::{BufRead, Write};
use std::time::Instant;

use backstitch_models::grammar::{Compiler, Grammar};
use backstitch_models::{Model, Token};
use serde_json::{Value, json};

/// The longest random text, in tokens.
const MAX_TOKENS: usize = 400;
/// The steps of a random text that may be long. Behind them, it goes to where it can end.
const MAX_FREE: usize = 150;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let bytes = std::env::args().nth(1).map(std::fs::read).transpose()?;
    let model = match &bytes {
        Some(bytes) => Model::from_bytes(bytes)?,
        None => Model::from_bytes(backstitch_demo::GGUF)?,
    };
    let compiler = Compiler::new(model.vocab())?;
    let (mut out, mut seed) = (std::io::stdout().lock(), 1);
    for line in std::io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        writeln!(out, "{}", answer(&compiler, &case, &mut seed))?;
    }
    Ok(())
}

/// Return the answer for one case.
fn answer(compiler: &Compiler, case: &Value, seed: &mut u64) -> Value {
    let start = Instant::now();
    let grammar = match compiler.json_schema_value(case.get("schema").unwrap_or(&Value::Null)) {
        Ok(grammar) => grammar,
        Err(error) => {
            return json!({"ms": start.elapsed().as_millis() as u64, "error": error.to_string()});
        }
    };
    let ms = start.elapsed().as_millis() as u64;
    let tests = case.get("tests").and_then(Value::as_array).into_iter().flatten();
    let accepts: Vec<bool> = tests.filter_map(Value::as_str).map(|text| grammar.accepts(text)).collect();
    let n_random = case.get("n_random").and_then(Value::as_u64).unwrap_or(0);
    let texts: Vec<Option<String>> = (0..n_random).map(|_| random_text(&grammar, seed)).collect();
    let relaxed: Vec<String> = grammar.relaxed().iter().map(ToString::to_string).collect();
    json!({"ms": ms, "relaxed": relaxed, "accepts": accepts, "texts": texts})
}

/// Return a random number.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Return a text that random draws under the masks of `grammar` write; `None` if it does not end.
fn random_text(grammar: &Grammar, seed: &mut u64) -> Option<String> {
    let (vocab, mut matcher) = (grammar.compiler().vocab(), grammar.matcher());
    let mut bytes = Vec::new();
    for n in 0..MAX_TOKENS {
        if matcher.is_accepting() && (n > MAX_FREE || random(seed).is_multiple_of(4) || matcher.is_stopped())
        {
            return String::from_utf8(bytes).ok();
        }
        let allowed: Vec<Token> = matcher.mask().ok()?.iter().filter(|&token| !vocab.is_eog(token)).collect();
        let closing = |token: &&Token| vocab.piece(**token).iter().any(|byte| b"\"}]".contains(byte));
        let ending: Vec<Token> = allowed.iter().filter(closing).copied().collect();
        let choices = if (n > MAX_FREE || random(seed).is_multiple_of(4)) && !ending.is_empty() {
            ending
        } else {
            allowed
        };
        let token = *choices.get(usize::try_from(random(seed)).ok()? % choices.len().max(1))?;
        bytes.extend_from_slice(vocab.piece(token));
        matcher.accept(token).ok()?;
    }
    None
}
