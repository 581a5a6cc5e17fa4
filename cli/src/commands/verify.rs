//! `backstitch verify`: replay conformance files, and compare with what another engine computed.
//!
//! The files are described in `goldens/README.md`; reading and replaying them is the library's job
//! ([`conformance`]). This command prints a line for each case.

use crate::args::VerifyArgs;
use crate::error::Error;
use crate::model;
use crate::output::{Output, counted, one_line};
use crate::progress::Progress;
use backstitch_models::conformance::{self, Options, Row, Verdict};
use serde_json::json;
use std::path::Path;

/// Run the command.
///
/// # Errors
/// - [`Error::Failed`] if a case failed.
/// - [`Error::Read`] if a path cannot be read.
/// - [`Error::Refused`] if no case could be checked, or with `--strict` if one was not supported.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &VerifyArgs) -> Result<(), Error> {
    let options = Options {
        tolerance: args.tolerance,
        model: args.model.clone(),
        n_threads: model::n_threads(args.n_threads),
        kernels: None,
    };
    let mut report = Report {
        out: Output::new(args.json),
        tally: Tally::default(),
        strict: args.strict,
        progress: Progress::counted("verifying", "files"),
    };
    // Find all files first, so that the progress line knows their number.
    let mut files = Vec::new();
    for path in &args.paths {
        files.extend(conformance::find(path).map_err(|source| Error::Read { path: path.clone(), source })?);
    }
    for (n, file) in files.iter().enumerate() {
        report.progress.set(n as u64, files.len() as u64);
        report.file(file, &options)?;
    }
    report.finish()
}

/// The number of cases with each verdict.
#[derive(Default)]
struct Tally {
    /// Cases with the expected result.
    passed: usize,
    /// Cases with another result, or an error.
    failed: usize,
    /// Cases that the engine cannot replay.
    not_supported: usize,
    /// Cases that are shown and do not have to pass.
    informational: usize,
}

impl Tally {
    /// Count a case.
    fn count(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed => &mut self.failed,
            Verdict::NotSupported => &mut self.not_supported,
            Verdict::Informational => &mut self.informational,
        } += 1;
    }
}

/// The report: lines that are printed as cases end, and the numbers at its end.
/// The report: lines that are printed as cases end, and the numbers at its end.
struct Report {
    out: Output,
    tally: Tally,
    /// True if a case that is not supported is a failure.
    strict: bool,
    progress: Progress,
}

impl Report {
    /// Replay a file and print a line for each of its cases. If printing fails, the other cases of
    /// the file are still counted.
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

    /// Print the line of a case while the progress line is away.
    fn row(&mut self, path: &Path, row: &Row) -> std::io::Result<()> {
        let Self { out, progress, .. } = self;
        progress.beside(|| Self::print(out, path, row))
    }

    /// Print the line of a case as text or JSON.
    fn print(out: &mut Output, path: &Path, row: &Row) -> std::io::Result<()> {
        if out.is_json() {
            out.value(&json!({
                "file": path.display().to_string(),
                "case": row.case,
                // JSON has no infinity.
                "max_diff": row.max_diff.filter(|diff| diff.is_finite()),
                "verdict": row.verdict.to_string(),
                "note": row.note,
            }))?;
        } else {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let diff = row.max_diff.map_or("-".into(), |diff| format!("{diff:.1e}"));
            let style = style(out, row.verdict);
            let (verdict, name, case) = (row.verdict.to_string(), one_line(&name), one_line(&row.case));
            let note = one_line(&row.note);
            let line = format!("{style}{verdict:13}{style:#}  {diff:>8}  {name:24}  {case:24}  {note}");
            out.text(line.trim_end(), 15)?;
        }
        out.flush()
    }

    /// Print the numbers, and decide whether the command succeeded.
    fn finish(mut self) -> Result<(), Error> {
        drop(self.progress);
        let Tally { passed, failed, not_supported, informational } = self.tally;
        if passed + failed + not_supported + informational == 0 {
            return Err(Error::Refused(
                "found no conformance files; name .txt, .tsv or .json files, or folders with such files"
                    .into(),
            ));
        }
        if !self.out.is_json() {
            self.out.text(format_args!(
                "{passed} passed, {failed} failed, {not_supported} not supported, {informational} informational"
            ), 2)?;
        }
        self.out.flush()?;
        match (passed, failed, not_supported) {
            (_, 1.., _) => Err(Error::Failed { n: failed }),
            (0, ..) => Err(Error::Refused("no case could be checked; the notes above say why".into())),
            (.., 1..) if self.strict => {
                let n = counted(not_supported, "case");
                Err(Error::Refused(format!("{n} not supported, which fails with --strict")))
            }
            _ => Ok(()),
        }
    }
}

/// Return the colour of a verdict.
fn style(out: &Output, verdict: Verdict) -> anstyle::Style {
    match verdict {
        Verdict::Passed => out.good(),
        Verdict::Failed => out.bad(),
        Verdict::NotSupported | Verdict::Informational => out.faint(),
    }
}
