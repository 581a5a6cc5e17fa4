//! Answering questions of multiple choice.
//!
//! Each ending is evaluated behind the question, and its tokens' logarithms of probabilities are
//! added. The ending with the largest sum is the answer; a second score divides sums by the length
//! of the ending first, because longer endings are less probable.

use super::context;
use crate::args::PerplexityArgs;
use crate::error::Error;
use crate::model;
use crate::output::Output;
use crate::progress::Progress;
use crate::whole_file;
use backstitch_models::judge::{Accuracy, Answer, answer};
use serde_json::{Value, json};
use std::path::Path;

/// The longest file of questions, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// A question: the beginning of a text, and endings of which one is right.
struct Question {
    context: String,
    endings: Vec<String>,
    /// The index of the right ending.
    label: usize,
}

/// Answer the questions in the file at `path`.
pub(super) fn run(args: &PerplexityArgs, path: &Path) -> Result<(), Error> {
    let text = whole_file::text(path, MAX_BYTES)?;
    let questions =
        questions(&text).map_err(|error| Error::Refused(format!("{}: {error}", path.display())))?;
    let model = model::open(&args.model, model::n_threads(args.context.n_threads))?;
    let n_ctx =
        args.context.evaluation.n_ctx.unwrap_or(model.hparams().n_ctx_train.min(super::DEFAULT_N_CTX));
    let mut ctx = context(args, &model, n_ctx)?;
    let mut report = Report { out: Output::new(args.json), ..Report::default() };
    let progress = Progress::counted("answering", "questions");
    let n_most = args.chunks.map_or(usize::MAX, |n| n as usize);
    let total = questions.len().min(n_most) as u64;
    for (question, n) in questions.iter().take(n_most).zip(1..) {
        let endings: Vec<&str> = question.endings.iter().map(String::as_str).collect();
        let answer = answer(&mut ctx, &question.context, &endings)?;
        progress.set(n, total);
        progress.beside(|| report.add(question, &answer))?;
    }
    drop(progress);
    report.finish()
}

/// The report: a line for each question with `--json`, and the accuracies.
struct Report {
    out: Output,
    raw: Accuracy,
    normalised: Accuracy,
}

impl Default for Report {
    fn default() -> Self {
        Self { out: Output::new(false), raw: Accuracy::default(), normalised: Accuracy::default() }
    }
}

impl Report {
    /// Count an answer.
    fn add(&mut self, question: &Question, answer: &Answer) -> Result<(), Error> {
        self.raw.add(answer.best() == Some(question.label));
        self.normalised.add(answer.best_by_mean() == Some(question.label));
        if self.out.is_json() {
            self.out.value(&json!({
                "label": question.label, "answer": answer.best(), "answer_normalised": answer.best_by_mean(),
                "log_likelihoods": answer.totals, "log_likelihoods_per_token": answer.means,
            }))?;
        }
        Ok(())
    }

    /// Print the accuracies.
    fn finish(&mut self) -> Result<(), Error> {
        let interval = |accuracy: Accuracy| [accuracy.interval().0, accuracy.interval().1];
        if self.out.is_json() {
            self.out.value(&json!({
                "questions": self.raw.n(),
                "accuracy": self.raw.value(), "interval": interval(self.raw),
                "accuracy_normalised": self.normalised.value(),
                "interval_normalised": interval(self.normalised),
            }))?;
        } else {
            self.out.line(format_args!("{} questions; intervals hold 95 %", self.raw.n()))?;
            let row = |name: &str, accuracy: Accuracy| {
                let [low, high] = interval(accuracy).map(|part| 100.0 * part);
                vec![
                    name.into(),
                    format!("{:.2} %", 100.0 * accuracy.value()),
                    format!("{low:.2} to {high:.2} %"),
                ]
            };
            self.out
                .table(&[row("by likelihood", self.raw), row("by likelihood per token", self.normalised)])?;
        }
        Ok(self.out.flush()?)
    }
}

/// Read questions, one a line; empty lines are skipped.
fn questions(text: &str) -> Result<Vec<Question>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let read = |(line, n): (&str, u32)| question(line).map_err(|error| format!("line {n}: {error}"));
    let questions: Vec<_> = lines.map(read).collect::<Result<_, _>>()?;
    if questions.is_empty() {
        Err("no questions; give a line of JSON for each".into())
    } else {
        Ok(questions)
    }
}

/// Read a question.
fn question(line: &str) -> Result<Question, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let missing = |key: &str, wanted: &str| format!("{key:?} is not {wanted}");
    let context = value.get("context").and_then(Value::as_str);
    let endings = value.get("endings").and_then(Value::as_array);
    let endings = endings.and_then(|all| all.iter().map(|one| one.as_str().map(String::from)).collect());
    let endings: Vec<String> = endings.ok_or_else(|| missing("endings", "a list of texts"))?;
    let label = value.get("label").and_then(Value::as_u64).and_then(|label| usize::try_from(label).ok());
    let label = label.filter(|&label| label < endings.len());
    Ok(Question {
        context: context.ok_or_else(|| missing("context", "a text"))?.into(),
        label: label.ok_or_else(|| missing("label", "the index of an ending"))?,
        endings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_and_mistakes_are_named_with_their_line() {
        let good = r#"{"context": "a", "endings": ["b", "c"], "label": 1}"#;
        let found = questions(&format!("{good}\n\n{good}\n")).map_err(|_| ()).unwrap();
        assert_eq!((found.len(), found[1].label, found[1].endings.len()), (2, 1, 2));
        for (line, wanted) in [
            ("{", "line 2: not JSON"),
            (r#"{"endings": ["b"], "label": 0}"#, "\"context\" is not a text"),
            (r#"{"context": "a", "endings": [1], "label": 0}"#, "\"endings\" is not a list of texts"),
            (r#"{"context": "a", "endings": ["b"], "label": 1}"#, "\"label\" is not the index"),
        ] {
            let error = questions(&format!("{good}\n{line}")).err().unwrap();
            assert!(error.contains(wanted), "{error}");
        }
        assert!(questions("\n").is_err());
    }
}
