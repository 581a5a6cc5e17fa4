//! Options of `backstitch state`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst          what is in it, and where it can be gone back to at once
  backstitch state check story.bst            whether every byte is as it was written
  backstitch state diff a.bst b.bst           the first token, cell and state that differ

A state file is what a model has read, kept: the cells of its caches, its recurrent states, the tokens, the logits
after the last, the samplers, and the positions that can be gone back to at once. It belongs to one model, which its
fingerprint names, and every part of it has a checksum.";

/// `backstitch state`
#[derive(Debug, Args)]
pub struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

/// What to do with state files.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Show what a state file holds.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectStateArgs),
    /// Check every byte of a state file.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show what differs between two state files.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst
  backstitch state inspect story.bst --json | jq .sequences[0].positions

Reads the descriptions and checks them; of cells and states it reads nothing, so that large files are shown as fast as
small ones. `backstitch state check` reads all of it.";

const CHECK_EXAMPLES: &str = "\
Examples:
  backstitch state check story.bst
  for f in states/*.bst; do backstitch state check \"$f\" || echo \"restore $f from the backup\"; done

Exit codes: 0 everything is as it was written, 1 something is not: one line says where, what was found and what was
wanted.";

const DIFF_EXAMPLES: &str = "\
Examples:
  backstitch state diff yesterday.bst today.bst
  backstitch state diff a.bst b.bst --json | jq '.[] | select(.what == \"tokens\").at'

How often a file was saved does not matter, nor where in it things lie. States of the same tokens are the same, bit
for bit, whatever the batches, threads and rollbacks by which they came about.

Exit codes: 0 the same state, 1 not the same, or a file cannot be read (one line on standard error says why).";

/// `backstitch state inspect`
#[derive(Debug, Args)]
pub struct InspectStateArgs {
    /// State file.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// List every section.
    #[arg(long)]
    pub sections: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `backstitch state check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// State file.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
}

/// `backstitch state diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A state file.
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Another.
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}
