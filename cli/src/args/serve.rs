//! Options of `backstitch serve`, by llama-server's names.
//!
//! Options that llama-server has in two forms, `--slots` and `--no-slots`, are two fields here, of
//! which the last one on the command line counts; the form that is the default is hidden.

use super::numbers::count;
use super::{ContextArgs, ModelArgs, SamplingArgs, SpeculationArgs};
use clap::{Args, ValueEnum, value_parser};
use std::path::PathBuf;

/// Options of `backstitch serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub slots: SlotArgs,
    #[command(flatten)]
    pub answers: AnswerArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// Form of the log on standard error.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Log details.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Log nothing.
    #[arg(long)]
    pub log_disable: bool,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line, for programs.
    Json,
}

/// Options of connections.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Address to listen on, or several with commas; 0.0.0.0 is every network.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_delimiter = ',')]
    pub host: Vec<String>,
    /// Port to listen on; 0 is any that is free.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub port: u16,
    /// Most seconds that a request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = value_parser!(u64).range(1..=1 << 32))]
    pub timeout: u64,
    /// Largest body of a request, in MiB.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(1..=4096))]
    pub max_body_mib: u16,
    /// Most requests that wait for a slot; others are told to try again.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_waiting: usize,
    /// Seconds between signs of life in a stream that is silent.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = value_parser!(u64).range(1..=3600))]
    pub sse_ping_interval: u64,
    /// Leave out the page at /.
    #[arg(long, visible_alias = "no-webui")]
    pub no_ui: bool,
    #[arg(long, alias = "webui", hide = true, overrides_with = "no_ui")]
    pub ui: bool,
}

/// Options of who may ask.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Key that clients must give; several with commas, or by repeating the option.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub api_key: Vec<String>,
    /// File of keys, one a line; lines that begin with # are comments.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Origins whose pages may use the server, with commas; * is all, localhost is this machine.
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    pub cors_origins: Vec<String>,
    /// Answer GET /metrics.
    #[arg(long)]
    pub metrics: bool,
    /// Answer POST /props.
    #[arg(long)]
    pub props: bool,
    /// Do not answer GET /slots.
    #[arg(long)]
    pub no_slots: bool,
    #[arg(long, hide = true, overrides_with = "no_slots")]
    pub slots: bool,
}

/// Layouts of saved slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum SlotFormat {
    /// Backstitch's state file, which `backstitch state` inspects.
    #[default]
    Backstitch,
    /// llama.cpp's sequence file.
    Llama,
}

/// Options of what is evaluated together, and what is kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Conversations")]
pub struct SlotArgs {
    /// Requests that are evaluated together [also: -np] [default: 4, each with the whole context].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value_parser!(i32).range(-1..=4096))]
    pub parallel: Option<i32>,
    /// Give each request the whole context; otherwise -np N gives each an N-th of it.
    #[arg(long)]
    pub kv_unified: bool,
    #[arg(long, hide = true, overrides_with = "kv_unified")]
    pub no_kv_unified: bool,
    /// Memory for conversations beside those being answered, in MiB; -1 is all that they need, as
    /// far as this machine has it.
    #[arg(long, value_name = "N", default_value_t = 1024, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..=1 << 30))]
    pub cache_ram: i64,
    /// Most conversations kept, beside one for each slot.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u16).range(..=4096))]
    pub cache_sequences: u16,
    /// Keep conversations in this folder too, so that they survive a restart.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Largest size of that folder for each client, in MiB.
    #[arg(long, value_name = "N", default_value_t = 8192, requires = "state")]
    pub state_mib: u64,
    /// Do not reuse what was evaluated, unless a request asks for it.
    #[arg(long)]
    pub no_cache_prompt: bool,
    #[arg(long, hide = true, overrides_with = "no_cache_prompt")]
    pub cache_prompt: bool,
    /// Folder of saved slots; without it, slots cannot be saved. If it can only be read, slots are
    /// restored from it.
    #[arg(long, value_name = "DIR")]
    pub slot_save_path: Option<PathBuf>,
    /// Layout of saved slots.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub slot_save_format: SlotFormat,
    /// Remove the oldest tokens when a context is full, instead of ending the text.
    #[arg(long, overrides_with = "no_context_shift")]
    pub context_shift: bool,
    #[arg(long, hide = true, overrides_with = "context_shift")]
    pub no_context_shift: bool,
    /// Tokens at the beginning that stay when the context shifts; -1 is the whole prompt.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..))]
    pub keep: i64,
    /// Drop the model from memory after so many seconds without a request; -1 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..=1 << 32))]
    pub sleep_idle_seconds: i64,
}

/// Methods of pooling, by llama.cpp's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PoolingArg {
    /// No pooling: an embedding for every token.
    None,
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token.
    Last,
    /// The mean, and documents are ranked by it.
    Rank,
}

/// Options of what is answered.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Answers")]
pub struct AnswerArgs {
    /// Names of the model, with commas [also: -a] [default: the file's].
    #[arg(short = 'a', long, value_name = "NAMES", value_delimiter = ',')]
    pub alias: Vec<String>,
    /// Words about the model, with commas.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Most tokens of an answer; -1 is no limit.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = value_parser!(i64).range(-2..))]
    pub n_predict: i64,
    /// Load adapters at scale 0, until a client scales them.
    #[arg(long)]
    pub lora_init_without_apply: bool,
    /// Only answer with embeddings.
    #[arg(long, visible_alias = "embeddings")]
    pub embedding: bool,
    /// Only rank documents.
    #[arg(long, visible_alias = "rerank")]
    pub reranking: bool,
    /// Method of making one embedding of many [default: the model's].
    #[arg(long, value_name = "METHOD", value_enum)]
    pub pooling: Option<PoolingArg>,
    /// Chat template: Jinja, or a name such as chatml [default: the model's].
    #[arg(long, value_name = "TEXT", conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,
    /// File with a chat template in Jinja.
    #[arg(long, value_name = "FILE")]
    pub chat_template_file: Option<PathBuf>,
    /// Variables for the chat template, a JSON object.
    #[arg(long, value_name = "JSON")]
    pub chat_template_kwargs: Option<String>,
    /// Offer no tools, and pass none to the template.
    #[arg(long)]
    pub no_jinja: bool,
    #[arg(long, hide = true, overrides_with = "no_jinja")]
    pub jinja: bool,
    /// Place of thoughts in answers: none leaves them in the text.
    #[arg(long, value_name = "FORMAT", default_value = "auto",
          value_parser = ["auto", "none", "deepseek", "deepseek-legacy"])]
    pub reasoning_format: String,
    /// Ask for thoughts, or forbid them [also: -rea].
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "on", "off"])]
    pub reasoning: String,
    /// Thoughts: -1 sets no limit, 0 forbids them. There is nothing in between.
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = value_parser!(i64).range(-1..=0))]
    pub reasoning_budget: i64,
    /// Answer behind a last message of the assistant, instead of continuing it.
    #[arg(long)]
    pub no_prefill_assistant: bool,
    #[arg(long, hide = true, overrides_with = "no_prefill_assistant")]
    pub prefill_assistant: bool,
    /// Threads of the network, which needs one.
    #[arg(long, hide = true, allow_negative_numbers = true, value_parser = count)]
    pub threads_http: Option<u32>,
}
