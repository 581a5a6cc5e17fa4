//! Replay of a whole golden file: its tensors, its cases, and those derived from refused rollbacks.

use super::expected::Expected;
use super::golden::Golden;
use super::replay::Replay;
use super::report::{Failure, Options, Row, Verdict, open};
use super::{adapters, files, llama_files, quant, refused};
use alloc::format;
use std::fs;
use std::path::Path;

/// Replay all cases of a file.
pub(super) fn file(path: &Path, options: &Options, report: &mut dyn FnMut(Row)) -> Result<(), Failure> {
    let golden = Golden::parse(&fs::read_to_string(path)?)?;
    let expected = Expected::read(&path.with_extension("bin"))?;
    let Some(model_path) = files::model(path, &golden.model, options) else {
        let note = format!("{} is not there; name it with --model", golden.model);
        golden.cases.iter().for_each(|case| report(Row::new(&case.name, Verdict::NotSupported, &note)));
        return Ok(());
    };
    quant::tensors(&model_path, &golden, &expected, report)?;
    let model = open(&model_path, options);
    for case in golden.cases.iter().chain(&refused::cases(&golden)) {
        match &model {
            Ok(model) => {
                let replay = Replay::new(model, &golden, &expected, options);
                if case.files.is_empty() {
                    report(replay.run(&case.name, case, |ctx| adapters::set(path, case, ctx)));
                } else {
                    llama_files::cases(path, case, &replay, report);
                }
            }
            Err(error) => report(Row::error(&case.name, error)),
        }
    }
    Ok(())
}
