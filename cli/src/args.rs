//! Every option and its help text.
//!
//! Names follow llama.cpp's, so that scripts carry over. [`expand()`] reads the command line before clap
//! does: it spells out llama.cpp's short options of several letters (`-ub`, `-ctk`), which clap does not
//! know, and takes away or refuses its options that have no meaning here.

mod cache;
mod examples;
mod expand;
mod list;
mod llama;
mod model;
mod numbers;
mod reports;
mod run;
mod sampling;
mod size;
mod state;
mod store;
mod usage;

use clap::{Parser, Subcommand};

pub use cache::{CacheArgs, FileArgs};
pub use expand::expand;
pub use model::{CacheType, ContextArgs, EvaluationArgs, ModelArgs, PromptArgs};
pub use reports::{
    BenchArgs, GraphArgs, InspectArgs, PackArgs, ReportArgs, TimelineArgs, TokenizeArgs, VerifyArgs,
};
pub use run::{ChatArgs, RunArgs};
pub use sampling::SamplingArgs;
pub use state::{
    CheckArgs, ConvertArgs, DiffArgs, InspectStateArgs, LlamaForm, StateArgs, StateCommand, TrimArgs,
};
pub use store::{CheckStoreArgs, ListArgs, PruneArgs, StoreArgs, StoreCommand};
pub use usage::usage_line;

/// Run language models on CPUs.
#[derive(Debug, Parser)]
#[command(name = "backstitch", version, max_term_width = 80, args_override_self = true, after_help = examples::ALL)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text, printing as it goes.
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Chat with an instruction-tuned model.
    #[command(after_help = examples::CHAT)]
    Chat(ChatArgs),
    /// Show the tokens of a text.
    #[command(after_help = examples::TOKENIZE)]
    Tokenize(TokenizeArgs),
    /// Show what a model file holds and how much memory it needs.
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectArgs),
    /// Repack a model, so that it is mapped and starts at once.
    #[command(after_help = examples::PACK)]
    Pack(PackArgs),
    /// Show the operations a model runs.
    #[command(after_help = examples::GRAPH)]
    Graph(GraphArgs),
    /// Measure speed, memory and bandwidth.
    #[command(after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Draw the memory of a sequence, and the rollback cost of each position.
    #[command(after_help = examples::TIMELINE)]
    Timeline(TimelineArgs),
    /// Inspect, check, compare, trim and convert saved states.
    #[command(after_help = state::EXAMPLES)]
    State(StateArgs),
    /// List, check and prune the prompt caches of `run --prompt-cache`.
    #[command(after_help = store::EXAMPLES)]
    Store(StoreArgs),
    /// Replay conformance files and compare with their expected numbers.
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyArgs),
}

#[cfg(test)]
mod tests;
