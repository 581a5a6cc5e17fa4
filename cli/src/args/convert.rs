//! Options of `convert`.

use backstitch_convert::OutType;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of `backstitch convert`.
#[derive(Debug, Args)]
pub struct ConvertFolderArgs {
    /// Folder of a model: safetensors, config.json, tokenizer. With --lora, folder of an adapter.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The new file; without it, DIR.gguf beside the folder. It replaces a model of that name once
    /// it is complete.
    #[arg(value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Data type of the matrices; `auto` keeps 16 bits as they are and makes f16 of others. Without
    /// it, `auto` for models and `f32` for adapters.
    #[arg(long, value_name = "TYPE", value_enum)]
    pub outtype: Option<OutTypeArg>,
    /// Convert a LoRA adapter: adapter_config.json and adapter_model.safetensors, as PEFT writes
    /// them.
    #[arg(long, requires = "base")]
    pub lora: bool,
    /// Folder of the model that the adapter belongs to. Its config.json is enough; if its
    /// safetensors are there, shapes are compared with them.
    #[arg(long, value_name = "DIR", requires = "lora")]
    pub base: Option<PathBuf>,
    /// Name of the pre-tokeniser, for a tokenizer whose own is unknown.
    #[arg(long, value_name = "NAME", conflicts_with = "lora")]
    pub pre_tokenizer: Option<String>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Data types of matrices, by llama.cpp's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutTypeArg {
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    Auto,
}

impl From<OutTypeArg> for OutType {
    fn from(arg: OutTypeArg) -> Self {
        match arg {
            OutTypeArg::F32 => Self::F32,
            OutTypeArg::F16 => Self::F16,
            OutTypeArg::Bf16 => Self::BF16,
            OutTypeArg::Q8_0 => Self::Q8_0,
            OutTypeArg::Auto => Self::Auto,
        }
    }
}
