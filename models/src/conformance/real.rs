//! Continuations of a real model.
//!
//! llama.cpp continued some prompts twice: with its own arithmetic (`native`), and with the same
//! weights as floats (`dequantised`). On these texts, the best token has to be the same wherever
//! llama.cpp's choice was clear.
//!
//! The distance of the logits is measured by the lead of the best token over all others. The file
//! has this lead for every token, and each token rounds independently, while the ten logits that
//! the file has behind each prompt all move together. The root mean square runs over the tokens up
//! to which llama.cpp's two continuations agree. Ours must not be farther from `dequantised` than
//! `native` is.

use super::compare::best;
use super::files;
use super::report::{Failure, Options, Row, Verdict, open};
use super::tokenizers::ids;
use crate::vocab::{AddSpecial, ParseSpecial};
use crate::{Context, Error, Model, Params};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::{Batch, Pos, Token};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The smallest lead of a clear choice. Rounding moves each of the two best logits by about half of
/// this.
const CLEAR_GAP: f64 = 0.6;

/// One continuation of a prompt.
struct Continuation {
    prompt: String,
    /// The tokens that followed.
    prompt_ids: Vec<u32>,
    /// The tokens that followed.
    ids: Vec<u32>,
    /// The lead of each of them.
    gaps: Vec<f64>,
}

/// Sums of squared differences of leads from the dequantised ones.
#[derive(Default)]
struct Squares {
    ours: f64,
    native: f64,
    /// The number of tokens added.
    n: usize,
}

/// Check all continuations of a file.
pub(super) fn file(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let json: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let (native, exact) = (continuations(&json, "native")?, continuations(&json, "dequantised")?);
    let missing = || Failure("the file has no \"model\"; make it again".into());
    let name = json.get("model").and_then(Value::as_str).ok_or_else(missing)?;
    let Some(model_path) = files::model(path, name, options) else {
        let note = format!("{name} is not there; name it with --model");
        report(Row::new("all", Verdict::NotSupported, note));
        return Ok(());
    };
    let model = match open(&model_path, options) {
        Ok(model) => model,
        Err(error) => {
            report(Row::error("all", &error));
            return Ok(());
        }
    };
    let mut squares = Squares::default();
    for (i, (native, exact)) in native.iter().zip(&exact).enumerate() {
        for (kind, continuation) in [("native", native), ("dequantised", exact)] {
            let case = format!("{kind} {i}");
            report(
                continued(&model, continuation, &case, options)
                    .unwrap_or_else(|error| Row::error(&case, &error)),
            );
        }
        squares.add(&model, native, exact, options)?;
    }
    if squares.n == 0 {
        return Ok(());
    }
    let verdict = if squares.ours <= squares.native { Verdict::Passed } else { Verdict::Failed };
    let (ratio, n) = (libm::sqrt(squares.ours / squares.native), squares.n);
    let note = format!("rms to dequantised is {ratio:.2} times llama.cpp's, over {n} tokens");
    report(Row::new("distance", verdict, note));
    Ok(())
}

/// Compare the model's choices along a continuation with llama.cpp's, where those were clear.
fn continued(
    model: &Model,
    continuation: &Continuation,
    case: &str,
    options: &Options,
) -> Result<Row, Error> {
    if ids(model.vocab(), &continuation.prompt, AddSpecial::Yes, ParseSpecial::Yes) != continuation.prompt_ids
    {
        return Ok(Row::new(case, Verdict::Failed, "the prompt has other tokens"));
    }
    let mut clear = 0;
    let mut wrong = Vec::new();
    each_logits(model, continuation, options, |i, logits| {
        if continuation.gaps.get(i).is_some_and(|&gap| gap > CLEAR_GAP) {
            clear += 1;
            if best(logits).map(|(id, _)| id) != continuation.ids.get(i).copied() {
                wrong.push(i);
            }
        }
    })?;
    let of = continuation.ids.len();
    Ok(if wrong.is_empty() {
        Row::new(case, Verdict::Passed, format!("{clear} of {of} tokens are clear"))
    } else {
        Row::new(case, Verdict::Failed, format!("other tokens at {wrong:?}, of {clear} clear ones"))
    })
}

/// Evaluate a whole continuation, and call `f` with the logits that token `i` of it was chosen by.
fn each_logits(
    model: &Model,
    continuation: &Continuation,
    options: &Options,
    mut f: impl FnMut(usize, &[f32]),
) -> Result<(), Error> {
    let n_prompt = continuation.prompt_ids.len();
    let n_tokens = n_prompt + continuation.ids.len().saturating_sub(1);
    let mut ctx = Context::new(
        model,
        Params {
            n_ctx: n_tokens as u32,
            n_threads: options.n_threads,
            kernels: options.kernels,
            type_k: CellType::F32,
            type_v: CellType::F32,
            ..Params::default()
        },
    )?;
    let seq = ctx.sequence()?;
    let mut batch = Batch::new();
    let tokens = continuation.prompt_ids.iter().chain(&continuation.ids).take(n_tokens);
    for (&token, pos) in tokens.zip(0i32..) {
        batch.push(Token(token), Pos(pos), &[seq], pos as usize + 1 >= n_prompt);
    }
    ctx.decode(&batch)?;
    for i in 0..continuation.ids.len() {
        if let Some(logits) = ctx.output(n_prompt + i - 1) {
            f(i, logits);
        }
    }
    Ok(())
}

impl Squares {
    /// Add the leads of the best token along one continuation, as far as llama.cpp's two agree
    /// about it.
    fn add(
        &mut self,
        model: &Model,
        native: &Continuation,
        exact: &Continuation,
        options: &Options,
    ) -> Result<(), Error> {
        let agreed = native.ids.iter().zip(&exact.ids).take_while(|(a, b)| a == b).count();
        let leads = exact.ids.iter().zip(&exact.gaps).zip(&native.gaps).take(agreed);
        let leads: Vec<_> = leads.map(|((&id, &exact), &native)| (id, exact, native)).collect();
        each_logits(model, exact, options, |i, logits| {
            if let Some(&(id, exact, native)) = leads.get(i) {
                let ours = lead(logits, id);
                self.ours += (ours - exact) * (ours - exact);
                self.native += (native - exact) * (native - exact);
                self.n += 1;
            }
        })
    }
}

/// Return the lead of the logit of token `id` over all others; negative if it is not the best.
fn lead(logits: &[f32], id: u32) -> f64 {
    let others = logits.iter().zip(0u32..).filter(|&(_, other)| other != id).map(|(&logit, _)| logit);
    let best = others.fold(f32::NEG_INFINITY, f32::max);
    f64::from(logits.get(id as usize).copied().unwrap_or(f32::NAN)) - f64::from(best)
}

/// Read the continuations of one kind.
fn continuations(json: &Value, kind: &str) -> Result<Vec<Continuation>, Failure> {
    let wrong = || Failure(format!("a continuation in \"{kind}\" lacks something"));
    let list = json.get(kind).and_then(Value::as_array).ok_or_else(wrong)?;
    list.iter().map(|continuation| read(continuation).ok_or_else(wrong)).collect()
}

/// Read one continuation; `None` if a field is missing or of another type.
fn read(continuation: &Value) -> Option<Continuation> {
    let numbers =
        |key: &str| continuation.get(key)?.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<_>>>();
    let tokens = |key: &str| Some(numbers(key)?.into_iter().map(|id| id as u32).collect::<Vec<_>>());
    Some(Continuation {
        prompt: continuation.get("prompt")?.as_str()?.to_string(),
        prompt_ids: tokens("prompt_ids").filter(|ids| !ids.is_empty())?,
        ids: tokens("greedy_ids")?,
        gaps: numbers("top2_gaps")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_lead_is_negative_behind_a_better_token() {
        assert_eq!(lead(&[1.0, 4.0, 2.5], 1), 1.5);
        assert_eq!(lead(&[1.0, 4.0, 2.5], 2), -1.5);
        assert!(lead(&[1.0], 7).is_nan());
    }

    #[test]
    fn a_story_is_read_whole_or_not_at_all() {
        let whole = r#"{"prompt": "a", "prompt_ids": [1], "greedy_ids": [2, 3], "top2_gaps": [0.5, 1]}"#;
        let continuation = read(&serde_json::from_str(whole).unwrap()).unwrap();
        assert_eq!(
            (continuation.prompt_ids, continuation.ids, continuation.gaps),
            (vec![1], vec![2, 3], vec![0.5, 1.0])
        );
        for key in ["prompt", "prompt_ids", "greedy_ids", "top2_gaps"] {
            let json = serde_json::from_str(&whole.replace(&format!("\"{key}\""), "\"other\"")).unwrap();
            assert!(read(&json).is_none(), "{key}");
        }
    }
}
