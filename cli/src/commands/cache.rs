//! `backstitch cache`: list, check and prune a prompt cache.
//!
//! The subcommands work on a folder that `run --prompt-cache` made, also while other processes use
//! it; [`PromptCache`] has the locks. A folder that is no prompt cache is refused: opening one to
//! write would make it a cache, and pruning would remove files.

mod list;

use crate::args::{CacheArgs, CacheCommand, CheckCacheArgs, PruneArgs};
use crate::error::Error;
use crate::output::{Output, bytes, counted, one_line};
use crate::progress::Progress;
use backstitch_kv::storage::prompt_cache::{Access, Finding, PromptCache, Prune};
use serde_json::{Value, json};
use std::path::Path;

/// Run the subcommand.
///
/// # Errors
/// The errors of the subcommand.
pub fn run(args: &CacheArgs) -> Result<(), Error> {
    match &args.command {
        CacheCommand::List(args) => list::run(args),
        CacheCommand::Check(args) => check(args),
        CacheCommand::Prune(args) => prune(args),
    }
}

/// Open the prompt cache in a folder. A folder without one is refused and stays as it is.
///
/// # Errors
/// - [`Error::Read`] if the folder does not exist.
/// - [`Error::Refused`] if it is no prompt cache.
/// - [`Error::PromptCache`] if the cache cannot be opened.
fn open(folder: &Path, access: Access) -> Result<PromptCache, Error> {
    let failed = |source| Error::Read { path: folder.into(), source };
    if !std::fs::metadata(folder).map_err(failed)?.is_dir() {
        let name = folder.display();
        return Err(Error::Refused(format!("{name} is not a folder; name the folder of a prompt cache")));
    }
    if !PromptCache::is_at(folder)? {
        let name = folder.display();
        return Err(Error::Refused(format!("{name} is no prompt cache; `run --prompt-cache DIR` makes one")));
    }
    Ok(PromptCache::open(folder, access)?)
}

/// Read every entry and compare it with its checksums. Changes nothing.
///
/// # Errors
/// [`Error::Unclean`] if anything is damaged or left over; the errors of [`open`].
fn check(args: &CheckCacheArgs) -> Result<(), Error> {
    let progress = Progress::bytes("checking");
    let cache = open(&args.folder, Access::ReadOnly)?;
    let report = cache.check_with(&mut |done, total| progress.set(done, total))?;
    drop(progress);
    let mut out = Output::new(args.json);
    let findings = report.findings.iter();
    if out.is_json() {
        out.value(&json!({
            "entries": report.entries,
            "blocks": report.blocks,
            "resume_points": report.resumes,
            "bytes": report.bytes,
            "findings": findings.map(as_json).collect::<Vec<_>>(),
        }))?;
    } else {
        findings.map(|finding| one_line(&finding.to_string())).try_for_each(|line| out.text(line, 6))?;
        let (entries, size) = (counted(report.entries as usize, "whole file"), bytes(report.bytes));
        let clean = if report.is_clean() { "all sound" } else { "not all sound" };
        let good = if report.is_clean() { out.good() } else { out.bad() };
        let blocks = counted(report.blocks as usize, "block");
        let resumes = counted(report.resumes as usize, "state");
        out.text(
            format_args!(
                "{good}{clean}{good:#}: {entries}, {size}, {blocks} blocks, {resumes} states to go on from"
            ),
            6,
        )?;
    }
    out.flush()?;
    if report.is_clean() { Ok(()) } else { Err(Error::Unclean { n: report.findings.len() }) }
}

/// Return a damaged or left-over file as JSON.
fn as_json(finding: &Finding) -> Value {
    json!({ "name": finding.name, "text": finding.to_string() })
}

/// Remove damaged and left-over files, then entries that are too old or too many.
///
/// # Errors
/// The errors of [`open`]; [`Error::PromptCache`] if files cannot be removed.
fn prune(args: &PruneArgs) -> Result<(), Error> {
    let progress = Progress::endless("pruning");
    // Opening removes left-over files. The budget limits what is written, which is nothing here.
    let cache = open(&args.folder, Access::ReadWrite { budget: u64::MAX })?;
    // Damaged files go first, so that sound entries are not removed in their place.
    cache.prune(Prune::Damaged)?;
    if let Some(age) = args.older_than {
        cache.prune(Prune::OlderThan(age))?;
    }
    if let Some(most) = args.max_size {
        cache.prune(Prune::ToBytes(most))?;
    }
    let stats = cache.stats();
    drop(progress);
    let mut out = Output::new(args.json);
    if out.is_json() {
        out.value(&json!({
            "removed": stats.evicted,
            "damaged": stats.damaged,
            "entries": stats.entries,
            "bytes": stats.bytes,
        }))?;
    } else {
        let (removed, damaged) = (counted(stats.evicted as usize, "file"), stats.damaged);
        let (entries, size) = (counted(stats.entries as usize, "file"), bytes(stats.bytes));
        out.text(format_args!("removed {removed} and {damaged} damaged; {entries} left, {size}"), 6)?;
    }
    Ok(out.flush()?)
}
