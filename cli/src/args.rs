//! Every option and its help text.
//!
//! Names follow llama.cpp's, so that scripts carry over. Its short options of several letters (`-ub`, `-ctk`) are
//! spelled out by [`expand`] before clap sees them, because clap knows short options of one letter only.

mod cache;
mod size;
mod state;
mod store;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub use cache::{CacheArgs, FileArgs};
pub use state::{
    CheckArgs, ConvertArgs, DiffArgs, InspectStateArgs, LlamaForm, StateArgs, StateCommand, TrimArgs,
};
pub use store::{CheckStoreArgs, ListArgs, PruneArgs, StoreArgs, StoreCommand};

/// Runs language models on CPUs.
#[derive(Debug, Parser)]
#[command(name = "backstitch", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  backstitch run                                         a story, told by the model inside the program
  backstitch run -m model.gguf -p \"The sea is\" -n 50     continue a text
  cat letter.txt | backstitch run -m model.gguf          the prompt from a pipe
  backstitch chat -m model.gguf                          talk to a model
  backstitch inspect model.gguf                          what is in a file, and the memory it needs

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 stopped by Ctrl-C.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text, printing as it goes.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Talk to a model that was trained for it.
    #[command(after_help = CHAT_EXAMPLES)]
    Chat(ChatArgs),
    /// Show the tokens of a text.
    #[command(after_help = TOKENIZE_EXAMPLES)]
    Tokenize(TokenizeArgs),
    /// Show what a model file holds and how much memory it needs.
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Write a model with its weights in the order in which they are used, so that it starts at once.
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArgs),
    /// Show the operations a model runs.
    #[command(after_help = GRAPH_EXAMPLES)]
    Graph(GraphArgs),
    /// Measure speed, memory and bandwidth.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Draw what a sequence's memory holds and what going back in it costs.
    #[command(after_help = TIMELINE_EXAMPLES)]
    Timeline(TimelineArgs),
    /// Look at saved states, check and compare them.
    #[command(after_help = state::EXAMPLES)]
    State(StateArgs),
    /// Look after the prompt caches that `run --prompt-cache` fills.
    #[command(after_help = store::EXAMPLES)]
    Store(StoreArgs),
    /// Replay conformance files and compare with their expected numbers.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  backstitch run                                           a story by the embedded model
  backstitch run -p \"The little cat\" -n 100 -s 7           another one, the same every time
  backstitch run -m model.gguf -f prompt.txt --temp 0      the likeliest continuation of a file
  echo \"2 + 2 =\" | backstitch run -m model.gguf -n 3 --no-display-prompt
  backstitch run -m large.gguf --draft-model small.gguf -v    the same text, sooner if the small model guesses well
  backstitch run -m model.gguf -f book.txt --prompt-cache ~/.cache/backstitch     the second time it starts at once
  BACKSTITCH_ISA=avx2 backstitch run -m model.gguf -v      with these kernels; -v lists those that this processor has

  backstitch run -m model.gguf -p \"Dear diary,\" -n 100 --save diary.bst              stop here,
  backstitch run -m model.gguf --restore diary.bst -n 100 --save diary.bst        and go on another day

A prompt cache is a folder that all prompts share: whatever a prompt has in common with an earlier one, up to the first
token that differs, is not evaluated again. It is found by itself, may lose what was not used for long, and its failures
stop nothing. A saved session is one file that you name: a text with all that the model keeps of it, and where the
samplers stand, so that it goes on as if it had never stopped. Either way what comes out is the same, bit for bit.";

const CHAT_EXAMPLES: &str = "\
Examples:
  backstitch chat -m model.gguf
  backstitch chat -m model.gguf -sys \"You are terse.\"
  printf 'Hello\\nAnd in French?\\n' | backstitch chat -m model.gguf     one message a line

Commands while talking: /help /retry /undo /clear /exit";

const TOKENIZE_EXAMPLES: &str = "\
Examples:
  backstitch tokenize -p \"Once upon a time\"
  backstitch tokenize -m model.gguf -f letter.txt --ids | wc -w";

const INSPECT_EXAMPLES: &str = "\
Examples:
  backstitch inspect model.gguf
  backstitch inspect model.gguf --tensors
  backstitch inspect model.gguf --json | jq .metadata";

const PACK_EXAMPLES: &str = "\
Examples:
  backstitch pack model.gguf model.packed.gguf
  backstitch run -m model.packed.gguf -p \"The sea is\"          the same bits, sooner

A packed file is used where it lies: nothing is copied or turned around when it is loaded, and several processes share its
memory. It is for this program alone; others refuse it, because they do not know its types. Keep the original.";

const GRAPH_EXAMPLES: &str = "\
Examples:
  backstitch graph -m model.gguf | less
  backstitch graph -m model.gguf --dot | dot -Tsvg > graph.svg";

const BENCH_EXAMPLES: &str = "\
Examples:
  backstitch bench -m model.gguf -t 2
  backstitch bench -m model.gguf --depth 2048 --seqs 4 --json
  BACKSTITCH_ISA=avx2 backstitch bench -m model.gguf -v      with these kernels; -v lists those that this processor has";

const TIMELINE_EXAMPLES: &str = "\
Examples:
  backstitch timeline                                    the embedded model's memory of a story
  backstitch timeline -m model.gguf -f book.txt          of a text of yours
  backstitch timeline --pin 200 --rollback 450           what going back from 605 to 450 takes, and what is left then
  backstitch timeline --forks 3 --rollback 300           blocks that forks share stay with them
  backstitch timeline --spacing 64 --journal 16          more checkpoints, a shorter journal
  backstitch timeline --svg memory.svg                   as a drawing, with the cost of every rollback

In this order: the text is evaluated, tokens are generated behind it, pins are set where it passes them, forks leave
from its end, rollbacks happen one after the other, and then the memory is drawn.

A checkpoint is a position that is restored at once. The ladder has some at growing distances from the end; a journal
holds what entered the recurrent states since a checkpoint, so that positions behind it are replayed without the
network. What neither reaches is evaluated again from the checkpoint before it.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  backstitch verify goldens/goldens/llama.txt
  backstitch verify goldens                       everything below a folder
  backstitch verify goldens/real --model SmolLM2-135M-Instruct.Q4_1.gguf";

/// Which model.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// GGUF file; without it, the small story teller inside the program.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Read the file instead of mapping it: slower to load, safe while others change it.
    #[arg(long)]
    pub no_mmap: bool,
}

/// The text to work on.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Input")]
pub struct PromptArgs {
    /// The text; without -p and -f it is read from standard input, if that is not a terminal.
    #[arg(short = 'p', long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// Read the text from a file ("-" is standard input), without its last line break.
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// How to evaluate.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Evaluation")]
pub struct ContextArgs {
    /// Tokens the context holds; 0 is what the model was trained for [default: that, at most 4096].
    #[arg(short = 'c', long = "ctx-size", value_name = "N")]
    pub n_ctx: Option<u32>,
    /// Threads, at most 512; 0 is one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N")]
    pub n_threads: Option<u32>,
    /// Tokens handed over at once.
    #[arg(short = 'b', long = "batch-size", value_name = "N", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub n_batch: u32,
    /// Tokens evaluated at once [also: -ub].
    #[arg(long = "ubatch-size", value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub n_ubatch: u32,
    /// Element type of cached keys [also: -ctk].
    #[arg(long = "cache-type-k", value_name = "TYPE", value_enum, default_value_t)]
    pub type_k: CacheType,
    /// Element type of cached values [also: -ctv].
    #[arg(long = "cache-type-v", value_name = "TYPE", value_enum, default_value_t)]
    pub type_v: CacheType,
    /// The least distance of checkpoints, in tokens.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub spacing: u32,
    /// Tokens back that can be replayed without the network, in recurrent models; 0 is none.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(..=1 << 16))]
    pub journal: u32,
    /// The most memory that checkpoints take, in MiB.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub checkpoint_mib: u32,
}

/// Element types of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum CacheType {
    F32,
    #[default]
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

/// How to choose tokens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Higher is more surprising; 0 always takes the likeliest token.
    #[arg(long = "temp", alias = "temperature", value_name = "X", default_value_t = 0.8, value_parser = at_least_zero)]
    pub temp: f32,
    /// Choose among the N likeliest tokens; 0 is off.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub top_k: u32,
    /// Choose among the likeliest tokens that together have this probability; 1 is off.
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = probability)]
    pub top_p: f32,
    /// Choose among tokens at least P times as likely as the likeliest; 0 is off.
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = probability)]
    pub min_p: f32,
    /// Choose among tokens about as surprising as expected, up to this probability; 1 is off.
    #[arg(long = "typical", alias = "typical-p", value_name = "P", default_value_t = 1.0, value_parser = probability)]
    pub typical_p: f32,
    /// The penalties look at the last N tokens; 0 is off, -1 the whole context.
    #[arg(long, value_name = "N", default_value_t = 64, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..=u32::MAX as i64))]
    pub repeat_last_n: i64,
    /// Makes tokens that occurred less likely; 1 is off.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = above_zero)]
    pub repeat_penalty: f32,
    /// Subtracted from the logit of every token that occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub presence_penalty: f32,
    /// Subtracted from a token's logit as often as it occurred.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = finite)]
    pub frequency_penalty: f32,
    /// Adds to a token's logit: 15043+1, 15043-1.5 or 2-inf; may be repeated.
    #[arg(long, value_name = "TOKEN±X", value_parser = bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// The same seed tells the same story; -1 picks one.
    #[arg(short = 's', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..))]
    pub seed: i64,
}

/// How to guess ahead.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Speculation (the same text, sooner)")]
pub struct SpeculationArgs {
    /// A smaller model with the same vocabulary guesses tokens, which are then checked together [also: -md].
    #[arg(long, alias = "model-draft", value_name = "FILE", conflicts_with = "lookup")]
    pub draft_model: Option<PathBuf>,
    /// Guess that the text goes on as it did where its last tokens stood before: for code, quotations, summaries.
    #[arg(long)]
    pub lookup: bool,
    /// Guess at most N tokens at once; fewer while guesses are wrong.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub draft_max: u16,
}

/// `backstitch run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Tokens to generate; -1 goes on until the model ends the text or the context is full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub n_predict: i64,
    /// Print only what the model adds.
    #[arg(long)]
    pub no_display_prompt: bool,
    /// Go on after the model has ended the text.
    #[arg(long)]
    pub ignore_eos: bool,
    /// Tell about the model, the kernels, threads, processor time, huge pages and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub file: FileArgs,
}

/// `backstitch chat`
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// What the model should know before the first message [also: -sys].
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,
    /// The first message; the others are read from standard input.
    #[arg(short = 'p', long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens an answer may have; -1 goes on until the model ends it or the context is full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub n_predict: i64,
    /// Tell about the kernels, threads, processor time, huge pages and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

/// `backstitch tokenize`
#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// Print the numbers only, on one line.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// Leave out the tokens that the model wants before and after a text.
    #[arg(long)]
    pub no_bos: bool,
    /// Take special tokens in the text as ordinary text.
    #[arg(long)]
    pub no_parse_special: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
}

/// `backstitch inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// GGUF file; without it, the model inside the program.
    #[arg(value_name = "FILE", conflicts_with = "model")]
    pub path: Option<PathBuf>,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `backstitch pack`
#[derive(Debug, Args)]
pub struct PackArgs {
    /// GGUF file, or one part of a split model.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The new file; one that is there is replaced once the new one is whole.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Threads, at most 512; 0 is one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N")]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// `backstitch graph`
#[derive(Debug, Args)]
pub struct GraphArgs {
    /// Print for Graphviz.
    #[arg(long)]
    pub dot: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

/// `backstitch bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Tokens of the prompt.
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub n_prompt: u32,
    /// Tokens to generate.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub n_gen: u32,
    /// Tokens already in the context when generation begins.
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub depth: u32,
    /// Sequences that generate together.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub seqs: u32,
    /// Repetitions; medians are printed.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Tell about the kernels, threads, processor time and huge pages on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

/// `backstitch timeline`
#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Tokens to generate behind the text [default: 0; without text and model, 600].
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N")]
    pub n_predict: Option<u32>,
    /// Fork the sequence N times at its end; each fork goes on with another of the likeliest tokens.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=64))]
    pub forks: u8,
    /// Pin a position, so that it is restored at once; may be repeated.
    #[arg(long, value_name = "POS")]
    pub pin: Vec<u32>,
    /// Go back to a position and tell what that took; may be repeated.
    #[arg(long, value_name = "POS")]
    pub rollback: Vec<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Draw to an SVG file as well; "-" is standard output, instead of text.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

/// `backstitch verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Conformance files (.txt, .tsv, .json), or folders that hold some.
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Largest difference of a logit that passes.
    #[arg(long, value_name = "X", default_value_t = 1e-3, value_parser = at_least_zero)]
    pub tolerance: f32,
    /// The model that files name but that does not lie beside them.
    #[arg(short = 'm', long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Threads, at most 512; 0 is one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N")]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Short options of several letters, as llama.cpp has them.
const LONG_SHORTS: [(&str, &str); 5] = [
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-sys", "--system-prompt"),
    ("-md", "--draft-model"),
];

/// Spells out [`LONG_SHORTS`], with or without `=VALUE`, up to a lone `--`.
pub fn expand(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    let one = |arg: OsString| {
        only_values |= arg == "--";
        match arg.to_str() {
            Some(text) if !only_values => spelled_out(text).map_or(arg, OsString::from),
            _ => arg,
        }
    };
    args.into_iter().map(one).collect()
}

fn spelled_out(text: &str) -> Option<String> {
    let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
    let (_, long) = LONG_SHORTS.into_iter().find(|(short, _)| *short == name)?;
    Some(format!("{long}{value}"))
}

fn number(text: &str, fits: fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if fits(x) => Ok(x),
        _ => Err(format!("wanted {wanted}")),
    }
}

fn finite(text: &str) -> Result<f32, String> {
    number(text, f32::is_finite, "a number")
}

fn at_least_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x >= 0.0, "a number, zero or above")
}

fn above_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x > 0.0, "a number above zero")
}

fn probability(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = || {
        let (token, amount) = text.split_at(text.find(['+', '-'])?);
        let amount: f32 = amount.parse().ok()?;
        Some((token.parse().ok()?, amount)).filter(|_| !amount.is_nan())
    };
    parsed().ok_or_else(|| "wanted a token's number, + or -, and a number, like 15043-1.5".into())
}

#[cfg(test)]
mod tests;
