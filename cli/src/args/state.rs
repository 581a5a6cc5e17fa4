//! Options of `backstitch state`.

use super::{CacheType, ModelArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst     what it holds, what going back costs
  backstitch state check story.bst       every byte is as it was written, or not
  backstitch state diff a.bst b.bst      first token, cell and state to differ
  backstitch state trim story.bst --to 100 -o beginning.bst
  backstitch state convert story.bst -o story.ggsn -m model.gguf

A state file is what a model has read, kept: cells of its caches, recurrent
states, tokens, the logits after the last, samplers, and checkpoints. It belongs
to one model, which its fingerprint names, and all of it has checksums.";

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
    /// Roll a saved state back to an earlier position.
    #[command(after_help = TRIM_EXAMPLES)]
    Trim(TrimArgs),
    /// Convert between Backstitch and llama.cpp states.
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(ConvertArgs),
    /// Explain why states cannot be joined, and what to do instead.
    #[command(after_help = SPLICE)]
    Splice(SpliceArgs),
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst
  backstitch state inspect story.bst --text -m model.gguf
  backstitch state inspect story.bst --json | jq .sequences[0].positions

Reads and checks the descriptions alone, so that large files are shown as fast
as small ones. `backstitch state check` reads all of the file.";

const CHECK_EXAMPLES: &str = "\
Examples:
  backstitch state check story.bst
  for f in *.bst; do backstitch state check \"$f\" || echo \"$f is damaged\"; done

Exit codes: 0 everything is as it was written, 1 something is not: one line says
where, what was found and what was wanted.";

const DIFF_EXAMPLES: &str = "\
Examples:
  backstitch state diff yesterday.bst today.bst
  backstitch state diff a.bst b.bst --json | jq '.[0].at'

The number of saves and the order of things in a file do not matter. States of
the same tokens are the same, bit for bit, whatever the batches, threads and
rollbacks by which they came about.

Exit codes: 0 the same state, 1 not the same, or a file cannot be read (one line
on standard error says why).";

const TRIM_EXAMPLES: &str = "\
Examples:
  backstitch state trim story.bst --to 100 -o beginning.bst -m model.gguf
  backstitch state trim story.bst --to 100 -o story.bst -m model.gguf
                                 in place: the old file or the new one, whole

The state is restored, rolled back and saved. `backstitch state inspect` tells
which positions that reaches at once; for others some tokens are re-evaluated.
The new state is the one that the first tokens alone would have made.";

const CONVERT_EXAMPLES: &str = "\
Examples:
  backstitch state convert story.bst -o story.session -m model.gguf
                                         llama-cli --prompt-cache story.session
  backstitch state convert story.bst -o slot.bin -m model.gguf --to sequence
                                         as llama-server saves slots
  backstitch state convert story.session -o story.bst -m model.gguf
                                         and back

The direction follows from what FILE is. Files of llama.cpp hold cells and
states and no more: going there loses checkpoints, the last logits, the samplers
and the name of the model; coming back they are not there. Nothing in such a
file proves which model it is of: that it is of -m MODEL is your word.";

const SPLICE: &str = "\
Pieces of states cannot be joined. What a model keeps of a token depends on all
tokens before it: each layer mixes them in. Cells of a token that were computed
behind another beginning are those of another text, and a recurrent state is all
of its past in one. Joined, they would look right and make the model say what
neither text makes it say.

What to do instead:
  the same beginning, to go on from there:
    backstitch state trim a.bst --to POS -o beginning.bst
  another text behind it:
    backstitch run --restore beginning.bst -p \"the other text\" --save joined.bst
  many texts, of which the common beginning is evaluated once:
    backstitch run --prompt-cache DIR";

/// `backstitch state inspect`
#[derive(Debug, Args)]
pub struct InspectStateArgs {
    /// State file.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// List every section.
    #[arg(long)]
    pub sections: bool,
    /// Print the text alone that it holds, by the vocabulary of its model.
    #[arg(long, conflicts_with_all = ["sections", "json"])]
    pub text: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
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

/// `backstitch state trim`
#[derive(Debug, Args)]
pub struct TrimArgs {
    /// State file of one sequence.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// The position at which the new state ends: as many tokens are left.
    #[arg(long, value_name = "POS")]
    pub to: u32,
    /// The new file; the same as FILE trims in place.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace a saved state that holds another text.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `backstitch state convert`
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// State file, or a session or sequence file of llama.cpp.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// The new file.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace a saved state that holds another text.
    #[arg(long)]
    pub force: bool,
    /// For llama.cpp: a session (llama-cli) or one sequence (slots of llama-server).
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub to: LlamaForm,
    /// The llama.cpp on the other side runs without flash attention.
    #[arg(long)]
    pub no_flash_attn: bool,
    /// From llama.cpp: tokens there must be room for [default: as many as the model's contexts have, and
    /// the file lists].
    #[arg(short = 'c', long = "ctx-size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub n_ctx: Option<u32>,
    /// From llama.cpp: element type of its cached keys [also: -ctk].
    #[arg(long = "cache-type-k", value_name = "TYPE", value_enum, default_value_t)]
    pub type_k: CacheType,
    /// From llama.cpp: element type of its cached values [also: -ctv].
    #[arg(long = "cache-type-v", value_name = "TYPE", value_enum, default_value_t)]
    pub type_v: CacheType,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Kinds of files of llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LlamaForm {
    #[default]
    Session,
    Sequence,
}

/// `backstitch state splice`
#[derive(Debug, Args)]
pub struct SpliceArgs {
    /// Whatever was to be joined.
    #[arg(value_name = "FILE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub _paths: Vec<PathBuf>,
}
