//! Options of the commands that generate text: `run` and `chat`. Most of them are shared and
//! defined in the files beside this one.

use super::sampling::SpeculationArgs;
use super::{
    ContextArgs, ConversationArgs, FileArgs, ModelArgs, PromptArgs, PromptCacheArgs, ReportArgs, SamplingArgs,
};
use crate::prompt::escaped;
use clap::{Args, value_parser};

/// Options that end a text.
#[derive(Debug, Clone, Args)]
pub struct StopArgs {
    /// End the text before this one, which is not shown; may be repeated [also: --reverse-prompt].
    #[arg(
        short = 'r',
        long = "stop",
        alias = "reverse-prompt",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    pub stops: Vec<String>,
}

impl StopArgs {
    /// Return the texts, with their escapes replaced if that is wanted.
    pub fn texts(&self, escape: bool) -> Vec<String> {
        self.stops.iter().map(|text| escaped(text, escape)).collect()
    }
}

/// Options of `backstitch run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Most tokens to generate; -1 and -2 mean until the model ends the text or the context is
    /// full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = value_parser!(i64).range(-2..))]
    pub n_predict: i64,
    /// Print only the generated text, not the prompt.
    #[arg(long)]
    pub no_display_prompt: bool,
    /// Continue generating after the model has ended the text.
    #[arg(long)]
    pub ignore_eos: bool,
    #[command(flatten)]
    pub stops: StopArgs,
    #[command(flatten)]
    pub report: ReportArgs,
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
    pub cache: PromptCacheArgs,
    #[command(flatten)]
    pub file: FileArgs,
}

impl RunArgs {
    /// Return true if these options leave open what to continue: a model, and nothing else.
    pub fn is_open(&self) -> bool {
        let has_text =
            self.input.prompt.is_some() || self.input.file.is_some() || self.file.restore.is_some();
        self.model.model.is_some() && !has_text && !self.report.json && !self.ignore_eos
    }

    /// Return the options of a chat with the same model and the same settings.
    pub fn as_chat(&self) -> ChatArgs {
        ChatArgs {
            system_prompt: None,
            prompt: None,
            escape: self.input.escape,
            n_predict: self.n_predict,
            stops: self.stops.clone(),
            chat_template: None,
            context_shift: false,
            no_context_shift: false,
            verbose: self.report.verbose,
            model: self.model.clone(),
            context: self.context.clone(),
            sampling: self.sampling.clone(),
            speculation: self.speculation.clone(),
            cache: self.cache.clone(),
            file: ConversationArgs {
                restore: None,
                save: self.file.save.clone(),
                force: self.file.force,
                history: None,
            },
        }
    }
}

/// Options of `backstitch chat`.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// System prompt: instructions for the model before the first message [also: -sys].
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system_prompt: Option<String>,
    /// The first message; standard input has the others.
    #[arg(short = 'p', long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Replace \n, \t, \r, \", \', \\ and \xHH in -p, --system-prompt and --stop by the characters
    /// that they stand for.
    #[arg(short = 'e', long)]
    pub escape: bool,
    /// Most tokens of an answer; -1 and -2 mean until the model ends it or the context is full.
    #[arg(short = 'n', long = "predict", alias = "n-predict", value_name = "N", default_value_t = -1,
          allow_negative_numbers = true, value_parser = value_parser!(i64).range(-2..))]
    pub n_predict: i64,
    #[command(flatten)]
    pub stops: StopArgs,
    /// Chat template: chatml, gemma, llama2, llama3, phi3 or zephyr, a file, or Jinja source
    /// [default: the model's own, or chatml].
    #[arg(long, value_name = "TEMPLATE")]
    pub chat_template: Option<String>,
    /// When the context is full, drop the oldest tokens behind the system prompt. Without it, the
    /// oldest turns are dropped whole.
    #[arg(long, overrides_with = "no_context_shift")]
    pub context_shift: bool,
    /// Drop the oldest turns whole when the context is full, as without --context-shift.
    #[arg(long, hide = true)]
    pub no_context_shift: bool,
    /// Report the model's memory, the machine and the speed on standard error.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    #[command(flatten)]
    pub cache: PromptCacheArgs,
    #[command(flatten)]
    pub file: ConversationArgs,
}
