//! Options of `quantize` and `imatrix`.
//!
//! The names of most are llama-quantize's and llama-imatrix's, and so is their meaning; a type is
//! parsed here, so that a wrong one is an error before any file is opened.

use super::numbers::count;
use super::{ContextArgs, ModelArgs, PromptArgs};
use backstitch_core::{DType, PackedType};
use backstitch_quantize::{FileType, Options, Pattern};
use clap::{Args, value_parser};
use std::path::PathBuf;

/// Options of `backstitch quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    /// GGUF file, or one part of a split model; best in F32, F16 or BF16.
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The new file. It replaces a model of that name once it is complete.
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Mix of types, by llama.cpp's name or number; --help lists them.
    #[arg(value_name = "TYPE", value_parser = file_type)]
    pub file_type: FileType,
    /// Importance matrix, as llama.cpp's imatrix writes it; types of few bits need one.
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Give all tensors that are quantised the same type.
    #[arg(long)]
    pub pure: bool,
    /// Type of the output matrix, in place of the mix's.
    #[arg(long, value_name = "T", value_parser = dtype)]
    pub output_tensor_type: Option<DType>,
    /// Type of the token embeddings, in place of the mix's.
    #[arg(long, value_name = "T", value_parser = dtype)]
    pub token_embedding_type: Option<DType>,
    /// Type of the tensors in whose names a regular expression is found; may be given several
    /// times, and the first that matches counts.
    #[arg(long, value_name = "NAME=T", value_parser = pattern)]
    pub tensor_type: Vec<Pattern>,
    /// Leave the output matrix as it is.
    #[arg(long, conflicts_with = "output_tensor_type")]
    pub leave_output_tensor: bool,
    /// Take tensors that are quantised already, which makes them worse.
    #[arg(long)]
    pub allow_requantize: bool,
    /// List the type that each tensor would get, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Number of threads, capped at 512; 0 and -1 mean one for each core [default: 0].
    #[arg(short = 't', long = "threads", value_name = "N", allow_negative_numbers = true, value_parser = count)]
    pub n_threads: Option<u32>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backstitch imatrix`.
#[derive(Debug, Args)]
pub struct ImatrixArgs {
    /// File for the importance matrix. It replaces one of that name once it is complete.
    #[arg(short = 'o', long, value_name = "FILE", default_value = "imatrix.gguf")]
    pub output: PathBuf,
    /// Read only the first N windows of the text [default: all].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Measure the output matrix too. Quantising it with the result makes some models worse.
    #[arg(long)]
    pub process_output: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub input: PromptArgs,
    #[command(flatten)]
    pub context: ContextArgs,
}

impl QuantizeArgs {
    /// Return the wishes as the library takes them.
    pub fn options(&self) -> Options {
        let mut options = Options::new(self.file_type);
        options.output = self.output_tensor_type;
        options.token_embedding = self.token_embedding_type;
        options.tensor_types = self.tensor_type.clone();
        options.pure = self.pure;
        options.keep_output = self.leave_output_tensor;
        options.allow_requantize = self.allow_requantize;
        options
    }
}

/// Parse the name of a mix of types.
fn file_type(text: &str) -> Result<FileType, String> {
    FileType::from_name(text).ok_or_else(|| {
        let names: Vec<_> = FileType::ALL.iter().map(|ty| ty.name()).collect();
        format!("wanted one of {}", names.join(", "))
    })
}

/// Parse the name of a type of weights, in capitals or not.
fn dtype(text: &str) -> Result<DType, String> {
    let named = DType::from_name(&text.to_ascii_uppercase());
    let weights = named.filter(|&dtype| PackedType::of(dtype).is_some());
    weights.ok_or_else(|| "wanted a type of weights, such as Q8_0, Q4_K or F16".into())
}

/// Parse a regular expression for names of tensors, and the type of these.
fn pattern(text: &str) -> Result<Pattern, String> {
    // Names of types have no "=", regular expressions may.
    let (name, ty) = text.rsplit_once('=').ok_or("wanted NAME=TYPE")?;
    Pattern::new(name, dtype(ty)?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_parsed_by_their_names() {
        assert_eq!(file_type("q4_k_m"), Ok(FileType::Q4_K_M));
        assert!(file_type("Q9").unwrap_err().contains("IQ4_XS"));
        assert_eq!(dtype("q6_k"), Ok(DType::Q6_K));
        assert!(dtype("I32").is_err());
        assert_eq!(pattern("blk.1.*up=q8_0").unwrap().dtype_of("blk.1.ffn_up.weight"), Some(DType::Q8_0));
        assert!(pattern("up").is_err() && pattern("(=Q8_0").is_err() && pattern("up=Q9").is_err());
    }
}
