//! Structures that C passes by value, as one version of the header lays them out.
//!
//! A library serves one layout: that of llama-cpp-python 0.3.36, or of 0.3.16 with the feature
//! `layout-0-3-16`. Both convert to the options of [`crate::model`], [`crate::context`] and
//! [`crate::quantize`], which know no layout.

#[cfg(feature = "layout-0-3-16")]
mod v0_3_16;
#[cfg(not(feature = "layout-0-3-16"))]
mod v0_3_36;

#[cfg(feature = "layout-0-3-16")]
pub use v0_3_16::*;
#[cfg(not(feature = "layout-0-3-16"))]
pub use v0_3_36::*;

use std::ffi::{c_char, c_void};

/// A callback that receives the progress of loading, from 0 to 1, and returns false to stop it.
pub type ProgressCallback = Option<extern "C" fn(f32, *mut c_void) -> bool>;
/// A callback that returns true to abort a computation.
pub type AbortCallback = Option<extern "C" fn(*mut c_void) -> bool>;

/// A batch, `struct llama_batch`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Batch {
    /// Number of tokens.
    pub n_tokens: i32,
    /// Tokens, or null if there are embeddings.
    pub token: *mut i32,
    /// Embeddings, a row for each token, or null.
    pub embd: *mut f32,
    /// Positions, or null to continue each sequence.
    pub pos: *mut i32,
    /// Number of sequences of each token, or null for one.
    pub n_seq_id: *mut i32,
    /// Sequences of each token, or null for sequence 0.
    pub seq_id: *mut *mut i32,
    /// A byte for each token whose output is wanted, or null for that of the last.
    pub logits: *mut i8,
}

/// A candidate of a draw, `llama_token_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct TokenData {
    /// The token.
    pub id: i32,
    /// Its logit.
    pub logit: f32,
    /// Its probability, where a sampler computed one.
    pub p: f32,
}

/// The candidates of a draw, `llama_token_data_array`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TokenDataArray {
    /// The candidates.
    pub data: *mut TokenData,
    /// Their number.
    pub size: usize,
    /// The index of the chosen one; negative if none is.
    pub selected: i64,
    /// True if logits descend.
    pub sorted: u8,
}

/// A sampler, `struct llama_sampler`; programs may make some themselves.
#[derive(Debug)]
#[repr(C)]
pub struct Sampler {
    /// The functions that it consists of.
    pub iface: *const SamplerInterface,
    /// Whatever these functions know it by.
    pub ctx: *mut c_void,
}

/// A bias of a token, `llama_logit_bias`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LogitBias {
    /// The token.
    pub token: i32,
    /// The number that is added to its logit.
    pub bias: f32,
}

/// A message of a conversation, `llama_chat_message`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChatMessage {
    /// The role of the speaker.
    pub role: *const c_char,
    /// The text.
    pub content: *const c_char,
}

/// Options of a chain of samplers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChainParams {
    /// True to measure no times.
    pub no_perf: u8,
}

/// Times of a context.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PerfContext {
    /// Start, in milliseconds of a clock.
    pub t_start_ms: f64,
    /// Loading.
    pub t_load_ms: f64,
    /// Prompts.
    pub t_p_eval_ms: f64,
    /// Single tokens.
    pub t_eval_ms: f64,
    /// Tokens of prompts.
    pub n_p_eval: i32,
    /// Single tokens.
    pub n_eval: i32,
    /// Graphs that were used again.
    pub n_reused: i32,
}

/// Times of a chain.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PerfSampler {
    /// Sampling.
    pub t_sample_ms: f64,
    /// Tokens.
    pub n_sample: i32,
}

/// Options of training, `struct llama_opt_params`, which nothing here reads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OptParams {
    /// Length of the context.
    pub n_ctx_train: u32,
    /// Callback that chooses tensors.
    pub param_filter: *const c_void,
    /// Its data.
    pub param_filter_ud: *mut c_void,
    /// Callback that gives numbers.
    pub get_opt_pars: *const c_void,
    /// Its data.
    pub get_opt_pars_ud: *mut c_void,
    /// Method.
    pub optimizer_type: i32,
}

/// Embeddings of the extended batch, `struct llama_embd`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Embeddings {
    /// The rows.
    pub data: *const f32,
    /// Their number.
    pub n_rows: usize,
    /// Numbers of a row.
    pub n_embd: usize,
}
