//! The command line: every command, every option, and their help texts.
//!
//! Options have llama.cpp's names, so that scripts carry over. [`expand()`] reads the command line
//! before clap does. It spells out llama.cpp's short options of several letters (`-ub`, `-ctk`),
//! which clap cannot parse, and drops or refuses those of its options that have no meaning here.
//!
//! A file here holds the options of some commands, as structs that clap fills; options that several
//! commands share are structs that the others flatten. The doc comment of a field **is** its help
//! text. Nothing here acts on an option: that is the job of `commands`.

mod adapters;
mod around;
mod cache;
mod convert;
mod defaults;
mod examples;
mod expand;
mod files;
mod judge;
mod list;
mod llama;
mod llama_server;
mod model;
mod numbers;
mod quantize;
mod reports;
mod run;
mod sampling;
mod serve;
mod serve_environment;
mod size;
mod state;
mod usage;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

pub use adapters::AdapterArgs;
pub use around::{CompletionsArgs, DoctorArgs, ManArgs, ModelsArgs, Shell};
pub use cache::{CacheArgs, CacheCommand, CheckCacheArgs, ListArgs, PruneArgs};
pub use convert::ConvertFolderArgs;
pub use expand::expand;
pub use files::{ConversationArgs, FileArgs, PromptCacheArgs};
pub use judge::{EmbedArgs, NormArg, PerplexityArgs};
pub use model::{CacheType, ContextArgs, EvaluationArgs, ModelArgs, PromptArgs};
pub use quantize::{ImatrixArgs, QuantizeArgs};
pub use reports::{
    BenchArgs, GraphArgs, InspectArgs, PackArgs, ReportArgs, TimelineArgs, TokenizeArgs, VerifyArgs,
};
pub use run::{ChatArgs, RunArgs};
pub use sampling::{Generator, SamplingArgs, SpeculationArgs};
pub use serve::{AnswerArgs, LogFormat, PoolingArg, ServeArgs, SlotArgs, SlotFormat};
pub use state::{
    CheckArgs, ConvertArgs, DiffArgs, InspectStateArgs, LlamaForm, StateArgs, StateCommand, TrimArgs,
};
pub use usage::usage_line;

/// Run language models on CPUs.
#[derive(Debug, Parser)]
#[command(name = "backstitch", version, max_term_width = 80, args_override_self = true, after_help = examples::ALL)]
pub struct Cli {
    /// File of defaults for options [default: backstitch/config.toml in ~/.config].
    // Only `expand` reads it: the content of the file stands before what was typed.
    #[arg(long, value_name = "FILE", global = true, display_order = 900)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which the help lists them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text, and print it as it is generated.
    #[command(after_help = examples::RUN)]
    Run(RunArgs),
    /// Chat with an instruction-tuned model.
    #[command(after_help = examples::CHAT)]
    Chat(ChatArgs),
    /// Serve programs over HTTP, as llama-server does.
    #[command(after_help = examples::SERVE)]
    Serve(Box<ServeArgs>),
    /// Show the tokens of a text.
    #[command(after_help = examples::TOKENIZE)]
    Tokenize(TokenizeArgs),
    /// Judge a model by the probabilities it gives to a text.
    #[command(after_help = examples::PERPLEXITY)]
    Perplexity(Box<PerplexityArgs>),
    /// Turn texts into embeddings, or compare their meanings.
    #[command(after_help = examples::EMBED)]
    Embed(EmbedArgs),
    /// Show what a model file holds and how much memory it needs.
    #[command(after_help = examples::INSPECT)]
    Inspect(InspectArgs),
    /// Make a model file (GGUF) of a Hugging Face folder.
    #[command(after_help = examples::CONVERT)]
    Convert(ConvertFolderArgs),
    /// Repack a model file, so that it loads without delay.
    #[command(after_help = examples::PACK)]
    Pack(PackArgs),
    /// Quantise a model file: the same weights in fewer bits.
    #[command(after_help = examples::QUANTIZE)]
    Quantize(Box<QuantizeArgs>),
    /// Measure which columns of a model matter, for quantize.
    #[command(after_help = examples::IMATRIX)]
    Imatrix(Box<ImatrixArgs>),
    /// Show the operations a model runs.
    #[command(after_help = examples::GRAPH)]
    Graph(GraphArgs),
    /// Measure speed, memory and bandwidth.
    #[command(after_help = examples::BENCH)]
    Bench(BenchArgs),
    /// Draw the memory of a sequence, with the cost of rollbacks.
    #[command(after_help = examples::TIMELINE)]
    Timeline(TimelineArgs),
    /// Inspect, check, compare, trim and convert saved states.
    #[command(after_help = state::EXAMPLES)]
    State(StateArgs),
    /// List, check and prune prompt caches.
    #[command(after_help = cache::EXAMPLES)]
    Cache(CacheArgs),
    /// Check logits and tokens against those of another engine.
    #[command(after_help = examples::VERIFY)]
    Verify(VerifyArgs),
    /// List the models that -m finds by name.
    #[command(after_help = examples::MODELS)]
    Models(ModelsArgs),
    /// Show what this machine can do, and what to expect of a model.
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Print the completions for a shell.
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the manual pages.
    #[command(after_help = examples::MAN)]
    Man(ManArgs),
}

impl Command {
    /// Return the options that name models: those of the model, and the draft model.
    pub fn models(&mut self) -> Option<(&mut ModelArgs, Option<&mut PathBuf>)> {
        match self {
            Self::Run(args) => Some((&mut args.model, args.speculation.draft_model.as_mut())),
            Self::Chat(args) => Some((&mut args.model, args.speculation.draft_model.as_mut())),
            Self::Tokenize(args) => Some((&mut args.model, None)),
            Self::Perplexity(args) => Some((&mut args.model, None)),
            Self::Embed(args) => Some((&mut args.model, None)),
            Self::Imatrix(args) => Some((&mut args.model, None)),
            Self::Inspect(args) => Some((&mut args.model, None)),
            Self::Graph(args) => Some((&mut args.model, None)),
            Self::Bench(args) => Some((&mut args.model, None)),
            Self::Timeline(args) => Some((&mut args.model, None)),
            Self::Doctor(args) => Some((&mut args.model, None)),
            Self::Serve(args) => Some((&mut args.model, args.speculation.draft_model.as_mut())),
            Self::State(args) => args.command.models().map(|args| (args, None)),
            Self::Cache(args) => args.command.models().map(|args| (args, None)),
            _ => None,
        }
    }

    /// Let the model of a command share its memory with the draft model, if there is one.
    pub fn share_memory(&mut self) {
        let (context, speculation) = match self {
            Self::Run(args) => (&mut args.context, &args.speculation),
            Self::Chat(args) => (&mut args.context, &args.speculation),
            Self::Serve(args) => (&mut args.context, &args.speculation),
            _ => return,
        };
        context.evaluation.has_draft_model = speculation.draft_model.is_some();
    }
}

#[cfg(test)]
mod tests;
