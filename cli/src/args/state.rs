//! Options of `backstitch state`, which works on files of saved states, and the texts below them.

use super::{CacheType, ModelArgs};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Text below the subcommands of `state`.
pub const EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst     contents, and the cost of rollbacks
  backstitch state check story.bst       find damage
  backstitch state diff a.bst b.bst      first token, cell and state to differ
  backstitch state trim story.bst --to 100 -o beginning.bst -m model.gguf
  backstitch state convert story.bst -o story.ggsn -m model.gguf

A state file holds what a model remembers of a text: cells of its caches,
recurrent states, the tokens, the logits after the last token, samplers, and
checkpoints. It belongs to one model, which its fingerprint identifies, and
checksums cover all of it.";

/// Options of `backstitch state`.
#[derive(Debug, Args)]
pub struct StateArgs {
    #[command(subcommand)]
    pub command: StateCommand,
}

/// Subcommands of `state`.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Show what a state file holds.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectStateArgs),
    /// Check a state file for damage.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Compare two state files.
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

impl StateCommand {
    /// Return the options that name a model.
    pub fn models(&mut self) -> Option<&mut ModelArgs> {
        match self {
            Self::Inspect(args) => Some(&mut args.model),
            Self::Trim(args) => Some(&mut args.model),
            Self::Convert(args) => Some(&mut args.model),
            Self::Check(_) | Self::Diff(_) | Self::Splice(_) => None,
        }
    }
}

/// Text below the options of `state inspect`.
const INSPECT_EXAMPLES: &str = "\
Examples:
  backstitch state inspect story.bst
  backstitch state inspect story.bst --text -m model.gguf
  backstitch state inspect story.bst --json | jq .sequences[0].positions

Reads and checks the descriptions only, so that large files are shown as fast as
small ones. `backstitch state check` reads all of the file.";

/// Text below the options of `state check`.
const CHECK_EXAMPLES: &str = "\
Examples:
  backstitch state check story.bst
  for f in *.bst; do backstitch state check \"$f\" || echo \"$f is damaged\"; done

Every byte is compared with its checksum.

Exit codes: 0 the file is as it was written, 1 it is damaged: one line says
where, what was found and what was wanted.";

/// Text below the options of `state diff`.
const DIFF_EXAMPLES: &str = "\
Examples:
  backstitch state diff yesterday.bst today.bst
  backstitch state diff a.bst b.bst --json | jq '.[0].at'

The states are compared, not the files: the number of saves and the order of
sections do not matter. States of the same tokens are the same, bit for bit,
whatever the batches, threads and rollbacks were.

Exit codes: 0 the states are the same, 1 they differ, or a file cannot be read
(one line on standard error says why).";

/// Text below the options of `state trim`.
const TRIM_EXAMPLES: &str = "\
Examples:
  backstitch state trim story.bst --to 100 -o beginning.bst -m model.gguf
  backstitch state trim story.bst --to 100 -o story.bst -m model.gguf
                                 in place, atomically

The state is restored, rolled back and saved. `backstitch state inspect` shows
which positions are free; for others some tokens are re-evaluated. The new state
is the one that the remaining tokens alone would have made.";

/// Text below the options of `state convert`.
const CONVERT_EXAMPLES: &str = "\
Examples:
  backstitch state convert story.bst -o story.session -m model.gguf
                                         llama-cli --prompt-cache story.session
  backstitch state convert story.bst -o slot.bin -m model.gguf --to sequence
                                         as llama-server saves slots
  backstitch state convert story.session -o story.bst -m model.gguf
                                         and back

The direction follows from the kind of FILE. Files of llama.cpp hold cells and
recurrent states only: converting to them loses checkpoints, the last logits,
the samplers and the fingerprint of the model, and converting back does not
bring these back. Nothing in such a file says which model it belongs to: you
vouch for it with -m MODEL.";

/// Text below the options of `state splice`.
const SPLICE: &str = "\
States cannot be joined. What a model keeps of a token depends on all tokens
before it, because each layer mixes them in: cells that were computed after
another beginning belong to another text, and a recurrent state sums up all of
its past. A joined state would look right, and make the model say what neither
text makes it say.

What to do instead:
  keep the beginning of a state:
    backstitch state trim a.bst --to POS -o beginning.bst
  continue it with another text:
    backstitch run --restore beginning.bst -p \"the other text\" --save joined.bst
  evaluate the common beginning of many texts once:
    backstitch run --prompt-cache DIR";

/// Options of `backstitch state inspect`.
#[derive(Debug, Args)]
pub struct InspectStateArgs {
    /// State file.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// List every section.
    #[arg(long)]
    pub sections: bool,
    /// Print only the text of the state, with the vocabulary of its model.
    #[arg(long, conflicts_with_all = ["sections", "json"])]
    pub text: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Options of `backstitch state check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// State file.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
}

/// Options of `backstitch state diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// First state file.
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Second state file.
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch state trim`.
#[derive(Debug, Args)]
pub struct TrimArgs {
    /// State file of one sequence.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// Position to roll back to: the number of tokens that the new state holds.
    #[arg(long, value_name = "POS")]
    pub to: u32,
    /// The new file; with the name of FILE the state is trimmed in place.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// Let -o replace a saved state of another text.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Options of `backstitch state convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// State file, or a session or sequence file of llama.cpp.
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// The new file.
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,
    /// Let -o replace a saved state of another text.
    #[arg(long)]
    pub force: bool,
    /// To llama.cpp: write a session (llama-cli) or one sequence (slots of llama-server).
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub to: LlamaForm,
    /// The llama.cpp on the other side runs without flash attention.
    #[arg(long)]
    pub no_flash_attn: bool,
    /// From llama.cpp: context size for reading the file, in tokens [default: that of `run`, or
    /// what the file needs if it is more].
    #[arg(short = 'c', long = "ctx-size", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub n_ctx: Option<u32>,
    /// From llama.cpp: data type of the keys in its KV cache [also: -ctk].
    #[arg(long = "cache-type-k", value_name = "TYPE", value_enum, default_value_t)]
    pub type_k: CacheType,
    /// From llama.cpp: data type of the values in its KV cache [also: -ctv].
    #[arg(long = "cache-type-v", value_name = "TYPE", value_enum, default_value_t)]
    pub type_v: CacheType,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// Kinds of llama.cpp's state files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LlamaForm {
    #[default]
    Session,
    Sequence,
}

/// Options of `backstitch state splice`: any words, because the command only explains.
#[derive(Debug, Args)]
pub struct SpliceArgs {
    /// Files that should have been joined.
    #[arg(value_name = "FILE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub _paths: Vec<PathBuf>,
}
