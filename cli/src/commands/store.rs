//! `backstitch store`: what a prompt cache holds, whether it is sound, and making room in it.

mod list;

use crate::args::{CheckStoreArgs, PruneArgs, StoreArgs, StoreCommand};
use crate::error::{Error, one_line};
use crate::output::{Output, bytes, counted};
use crate::progress::Progress;
use backstitch_kv::store::{Access, Finding, Prune, Store};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the command.
///
/// # Errors
/// Whatever the subcommand fails with.
pub fn run(args: &StoreArgs) -> Result<(), Error> {
    match &args.command {
        StoreCommand::List(args) => list::run(args),
        StoreCommand::Check(args) => check(args),
        StoreCommand::Prune(args) => prune(args),
    }
}

/// Opens a store that is there; a folder that is none stays as it is.
fn open(folder: &Path, access: Access) -> Result<Store, Error> {
    let failed = |source| Error::Read { path: folder.into(), source };
    if !std::fs::metadata(folder).map_err(failed)?.is_dir() {
        let name = folder.display();
        return Err(Error::Refused(format!("{name} is not a folder; name that of a prompt cache")));
    }
    if !Store::is_at(folder)? {
        let name = folder.display();
        return Err(Error::Refused(format!("{name} is no prompt cache; `run --prompt-cache DIR` makes one")));
    }
    Ok(Store::open(folder, access)?)
}

fn check(args: &CheckStoreArgs) -> Result<(), Error> {
    let progress = Progress::bytes("checking");
    let store = open(&args.folder, Access::ReadOnly)?;
    let report = store.check_with(&mut |done, total| progress.set(done, total))?;
    drop(progress);
    let mut out = Output::new(args.json);
    let findings = report.findings.iter();
    if out.is_json() {
        out.value(&json!({
            "packs": report.packs,
            "blocks": report.blocks,
            "resume_points": report.resumes,
            "bytes": report.bytes,
            "findings": findings.map(as_json).collect::<Vec<_>>(),
        }))?;
    } else {
        findings.map(|finding| one_line(&finding.to_string())).try_for_each(|line| out.text(line, 6))?;
        let (packs, size) = (counted(report.packs as usize, "whole file"), bytes(report.bytes));
        let clean = if report.is_clean() { "all sound" } else { "not all sound" };
        let good = if report.is_clean() { out.good() } else { out.bad() };
        let (blocks, resumes) = (report.blocks, report.resumes);
        out.text(
            format_args!(
                "{good}{clean}{good:#}: {packs}, {size}, {blocks} blocks, {resumes} states to go on from"
            ),
            6,
        )?;
    }
    out.flush()?;
    if report.is_clean() { Ok(()) } else { Err(Error::Unclean { n: report.findings.len() }) }
}

fn as_json(finding: &Finding) -> Value {
    json!({ "name": finding.name, "text": finding.to_string() })
}

fn prune(args: &PruneArgs) -> Result<(), Error> {
    let progress = Progress::endless("pruning");
    // Opening removes what is left over; the budget only limits what is written.
    let store = open(&args.folder, Access::ReadWrite { budget: u64::MAX })?;
    store.prune(Prune::Damaged)?;
    if let Some(age) = args.older_than {
        store.prune(Prune::OlderThan(age))?;
    }
    if let Some(most) = args.max_size {
        store.prune(Prune::ToBytes(most))?;
    }
    let stats = store.stats();
    drop(progress);
    let mut out = Output::new(args.json);
    if out.is_json() {
        out.value(&json!({
            "removed": stats.evicted,
            "damaged": stats.damaged,
            "packs": stats.packs,
            "bytes": stats.bytes,
        }))?;
    } else {
        let (removed, damaged) = (counted(stats.evicted as usize, "file"), stats.damaged);
        let (packs, size) = (counted(stats.packs as usize, "file"), bytes(stats.bytes));
        out.text(format_args!("removed {removed} and {damaged} damaged; {packs} left, {size}"), 6)?;
    }
    Ok(out.flush()?)
}
