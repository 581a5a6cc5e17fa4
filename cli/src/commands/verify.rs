//! `backstitch verify`: replay conformance files.

use crate::args::VerifyArgs;
use crate::error::{Error, one_line};
use crate::model;
use crate::output::Output;
use backstitch_models::conformance::{self, Options, Row, Verdict};
use serde_json::json;
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// [`Error::Failed`] if any case failed, [`Error::Read`] if a path cannot be read, [`Error::Refused`] if there is nothing
/// to verify.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let options = Options {
        tolerance: args.tolerance,
        model: args.model.clone(),
        n_threads: model::n_threads(args.n_threads),
        kernels: None,
    };
    let mut report = Report { out: Output::new(args.json), tally: Tally::default() };
    for path in &args.paths {
        for file in conformance::find(path).map_err(|source| Error::Read { path: path.clone(), source })? {
            report.file(&file, &options)?;
        }
    }
    report.finish()
}

/// How many cases came out how.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_supported: usize,
    informational: usize,
}

impl Tally {
    fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed => &mut self.failed,
            Verdict::NotSupported => &mut self.not_supported,
            Verdict::Informational => &mut self.informational,
        } += 1;
    }
}

struct Report {
    out: Output,
    tally: Tally,
}

impl Report {
    fn file(&mut self, path: &Path, options: &Options) -> Result<(), Error> {
        let mut failed = None;
        conformance::verify(path, options, &mut |row| {
            self.tally.count(row.verdict);
            if failed.is_none() {
                failed = self.row(path, &row).err();
            }
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn row(&mut self, path: &Path, row: &Row) -> std::io::Result<()> {
        if self.out.is_json() {
            self.out.value(&json!({
                "file": path.display().to_string(),
                "case": row.case,
                // JSON has no infinity.
                "max_diff": row.max_diff.filter(|diff| diff.is_finite()),
                "verdict": row.verdict.to_string(),
                "note": row.note,
            }))?;
        } else {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let diff = row.max_diff.map_or("-".into(), |diff| format!("{diff:.1e}"));
            let style = self.style(row.verdict);
            let (verdict, name, case) = (row.verdict.to_string(), one_line(&name), one_line(&row.case));
            let note = one_line(&row.note);
            let line = format!("{style}{verdict:13}{style:#}  {diff:>8}  {name:24}  {case:24}  {note}");
            self.out.line(line.trim_end())?;
        }
        self.out.flush()
    }

    fn style(&self, verdict: Verdict) -> anstyle::Style {
        match verdict {
            Verdict::Passed => self.out.good(),
            Verdict::Failed => self.out.bad(),
            Verdict::NotSupported | Verdict::Informational => self.out.faint(),
        }
    }

    fn finish(mut self) -> Result<(), Error> {
        let Tally { passed, failed, not_supported, informational } = self.tally;
        if passed + failed + not_supported + informational == 0 {
            return Err(Error::Refused(
                "no conformance files there; name .txt, .tsv or .json files or folders of them".into(),
            ));
        }
        if !self.out.is_json() {
            self.out.line(format_args!(
                "{passed} passed, {failed} failed, {not_supported} not supported, {informational} informational"
            ))?;
        }
        self.out.flush()?;
        if failed > 0 { Err(Error::Failed { n: failed }) } else { Ok(()) }
    }
}
