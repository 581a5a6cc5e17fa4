//! State files that llama.cpp wrote between two steps: they are restored, and the steps after them
//! are run.

use super::files;
use super::golden::{Batch, Case, Expect, Step};
use super::replay::{Abort, Replay};
use super::report::{Row, Verdict};
use crate::{Context, Error, RestoreOptions};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use backstitch_kv::SeqId;
use std::fs;
use std::path::Path;

/// Report a row for each file of a case.
pub(super) fn cases(path: &Path, case: &Case, replay: &Replay<'_>, report: &mut dyn FnMut(Row)) {
    for (kind, file) in &case.files {
        let name = format!("{} .{kind}", case.name);
        let Some(found) = files::named(path, file) else {
            report(Row::new(name, Verdict::NotSupported, format!("{file} is not there")));
            continue;
        };
        let bytes = match fs::read(&found) {
            Ok(bytes) => bytes,
            Err(error) => {
                report(Row::new(name, Verdict::Failed, format!("{}: {error}", found.display())));
                continue;
            }
        };
        let rest = after(case, (kind == "seq").then_some(case.saved_sequence));
        report(replay.run(&name, &rest, |ctx| restore(ctx, kind, case.saved_sequence, &bytes)));
    }
}

/// Restore a file into a context.
fn restore(ctx: &mut Context, kind: &str, sequence: u32, bytes: &[u8]) -> Result<(), Abort> {
    let options = RestoreOptions::default();
    let restored = match kind {
        "state" => ctx.llama_state_read(bytes, &options),
        "seq" => ctx.llama_seq_state_read(SeqId(sequence), bytes, &options),
        other => return Err(Abort::NotSupported(format!("files of kind {other}"))),
    };
    restored.map(drop).map_err(|error| match error {
        // The fault is in the file and not in the engine.
        Error::Llama(error) => Abort::Failed(error.to_string()),
        error => error.into(),
    })
}

/// Return the case with the steps after the files were written, of one sequence or of all.
fn after(case: &Case, sequence: Option<u32>) -> Case {
    let rest = case.steps.iter().skip(case.n_saved);
    let steps = rest.flat_map(|step| match (step, sequence) {
        (Step::Decode(batch), Some(sequence)) => of_sequence(batch, sequence),
        _ => [step.clone()].into(),
    });
    Case { steps: steps.collect(), ..case.clone() }
}

/// Return the tokens of a batch that belong to one sequence, each as a step of its own, because its
/// expected numbers are spread among those of other sequences.
fn of_sequence(batch: &Batch, sequence: u32) -> Vec<Step> {
    let tokens = batch.tokens.iter().zip(&batch.pos).zip(&batch.seq).enumerate();
    let own = tokens.filter(|(_, (_, seq))| **seq == sequence);
    let steps = own.map(|(index, ((&token, &pos), &seq))| {
        let output = batch.out.iter().position(|&out| out == index);
        let expect = output.zip(batch.expect.as_ref());
        Step::Decode(Batch {
            n: 1,
            tokens: [token].into(),
            pos: [pos].into(),
            seq: [seq].into(),
            out: output.map(|_| 0).into_iter().collect(),
            expect: expect.map(|(output, of)| Expect { row: of.row.saturating_add(output), ..of.clone() }),
        })
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Verdict, find, verify};
    use alloc::format;
    use alloc::vec::Vec;
    use std::path::Path;

    #[test]
    fn what_follows_every_file_that_llama_cpp_saved_is_what_it_computed() {
        let folder = format!("{}/../goldens/state", env!("CARGO_MANIFEST_DIR"));
        let mut rows = Vec::new();
        for path in find(Path::new(&folder)).unwrap() {
            verify(&path, &Options::default(), &mut |row| rows.push((path.clone(), row)));
        }
        for (path, row) in &rows {
            assert_eq!(row.verdict, Verdict::Passed, "{}: {row:?}", path.display());
        }
        assert_eq!(rows.len(), 46);
    }
}
