//! The layout of the header that llama-cpp-python 0.3.36 carries.

use super::{AbortCallback, ProgressCallback, Sampler, TokenDataArray};
use crate::border::{In, Out, Text, exports};
use crate::context::{Options as ContextOptions, Pooled};
use crate::handles::Handle;
use crate::model::LoadOptions;
use crate::quantize::Options as QuantizeOptions;
use crate::sampler::{DryArguments, SamplerRef, dry, penalties};
use std::ffi::{c_char, c_void};

/// The version of llama-cpp-python whose header lays structures out like this.
pub const LAYOUT: &str = "0.3.36";

/// Parameters of loading a model, `struct llama_model_params`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of llama.h")]
pub struct ModelParams {
    pub devices: *mut *mut c_void,
    pub tensor_buft_overrides: *const c_void,
    pub n_gpu_layers: i32,
    pub split_mode: i32,
    pub load_mode: i32,
    pub lazy_mode: i32,
    pub main_gpu: i32,
    pub tensor_split: *const f32,
    pub progress_callback: ProgressCallback,
    pub progress_callback_user_data: *mut c_void,
    pub kv_overrides: *const c_void,
    pub vocab_only: u8,
    pub check_tensors: u8,
    pub use_extra_bufts: u8,
    pub no_host: u8,
    pub no_alloc: u8,
    pub load_mtp: u8,
}

impl Default for ModelParams {
    fn default() -> Self {
        ModelParams {
            devices: std::ptr::null_mut(),
            tensor_buft_overrides: std::ptr::null(),
            n_gpu_layers: -1,
            split_mode: 1,
            load_mode: -1,
            lazy_mode: 1,
            main_gpu: 0,
            tensor_split: std::ptr::null(),
            progress_callback: None,
            progress_callback_user_data: std::ptr::null_mut(),
            kv_overrides: std::ptr::null(),
            vocab_only: 0,
            check_tensors: 0,
            use_extra_bufts: 1,
            no_host: 0,
            no_alloc: 0,
            load_mtp: 0,
        }
    }
}

impl ModelParams {
    /// Return the options that they mean.
    pub fn options(&self) -> LoadOptions {
        /// The file is read, not mapped.
        const MODES_WITHOUT_MAP: [i32; 3] = [0, 2, 4];
        LoadOptions {
            vocab_only: self.vocab_only != 0,
            map: !MODES_WITHOUT_MAP.contains(&self.load_mode),
            progress: self.progress_callback,
            progress_data: self.progress_callback_user_data as usize,
            has_overrides: !self.kv_overrides.is_null(),
        }
    }
}

/// Parameters of a context, `struct llama_context_params`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of llama.h")]
pub struct ContextParams {
    pub n_ctx: u32,
    pub n_batch: u32,
    pub n_ubatch: u32,
    pub n_seq_max: u32,
    pub n_rs_seq: u32,
    pub n_outputs_max: u32,
    pub n_outputs_max_per_seq: u32,
    pub n_threads: i32,
    pub n_threads_batch: i32,
    pub ctx_type: i32,
    pub rope_scaling_type: i32,
    pub pooling_type: i32,
    pub attention_type: i32,
    pub flash_attn_type: i32,
    pub rope_freq_base: f32,
    pub rope_freq_scale: f32,
    pub yarn_ext_factor: f32,
    pub yarn_attn_factor: f32,
    pub yarn_beta_fast: f32,
    pub yarn_beta_slow: f32,
    pub yarn_orig_ctx: u32,
    pub defrag_thold: f32,
    pub cb_eval: *const c_void,
    pub cb_eval_user_data: *mut c_void,
    pub type_k: i32,
    pub type_v: i32,
    pub abort_callback: AbortCallback,
    pub abort_callback_data: *mut c_void,
    pub embeddings: u8,
    pub offload_kqv: u8,
    pub no_perf: u8,
    pub op_offload: u8,
    pub swa_full: u8,
    pub kv_unified: u8,
    pub samplers: *mut c_void,
    pub n_samplers: usize,
    pub ctx_other: *mut c_void,
}

impl Default for ContextParams {
    fn default() -> Self {
        ContextParams {
            n_ctx: 512,
            n_batch: 2048,
            n_ubatch: 512,
            n_seq_max: 1,
            n_rs_seq: 0,
            n_outputs_max: 0,
            n_outputs_max_per_seq: 1,
            n_threads: 4,
            n_threads_batch: 4,
            ctx_type: 0,
            rope_scaling_type: -1,
            pooling_type: -1,
            attention_type: -1,
            flash_attn_type: -1,
            rope_freq_base: 0.0,
            rope_freq_scale: 0.0,
            yarn_ext_factor: -1.0,
            yarn_attn_factor: -1.0,
            yarn_beta_fast: -1.0,
            yarn_beta_slow: -1.0,
            yarn_orig_ctx: 0,
            defrag_thold: -1.0,
            cb_eval: std::ptr::null(),
            cb_eval_user_data: std::ptr::null_mut(),
            type_k: 1,
            type_v: 1,
            abort_callback: None,
            abort_callback_data: std::ptr::null_mut(),
            embeddings: 0,
            offload_kqv: 1,
            no_perf: 1,
            op_offload: 1,
            swa_full: 1,
            kv_unified: 0,
            samplers: std::ptr::null_mut(),
            n_samplers: 0,
            ctx_other: std::ptr::null_mut(),
        }
    }
}

impl ContextParams {
    /// Return the options that they mean.
    pub fn options(&self) -> ContextOptions {
        ContextOptions {
            n_ctx: self.n_ctx,
            n_batch: self.n_batch,
            n_ubatch: self.n_ubatch,
            n_seq_max: self.n_seq_max,
            n_threads: self.n_threads,
            n_threads_batch: self.n_threads_batch,
            pooling: Pooled::from_number(self.pooling_type),
            type_k: self.type_k,
            type_v: self.type_v,
            abort: self.abort_callback,
            abort_data: self.abort_callback_data as usize,
            embeddings: self.embeddings != 0,
            is_unified: self.kv_unified != 0,
            v_trans: self.flash_attn_type == 0,
            has_rope: self.rope_freq_base != 0.0 || self.rope_freq_scale != 0.0 || self.yarn_orig_ctx != 0,
            has_eval_callback: !self.cb_eval.is_null(),
            has_samplers: self.n_samplers != 0,
            has_kind: self.ctx_type != 0,
            attention: self.attention_type,
        }
    }
}

/// Parameters of a quantisation, `llama_model_quantize_params`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of llama.h")]
pub struct QuantizeParams {
    pub nthread: i32,
    pub ftype: i32,
    pub output_tensor_type: i32,
    pub token_embedding_type: i32,
    pub allow_requantize: u8,
    pub quantize_output_tensor: u8,
    pub only_copy: u8,
    pub pure: u8,
    pub keep_split: u8,
    pub dry_run: u8,
    pub imatrix: *const c_void,
    pub kv_overrides: *const c_void,
    pub tt_overrides: *const c_void,
    pub prune_layers: *const i32,
    pub max_buf_size: usize,
}

impl Default for QuantizeParams {
    fn default() -> Self {
        QuantizeParams {
            nthread: 0,
            ftype: 7,
            output_tensor_type: 43,
            token_embedding_type: 43,
            allow_requantize: 0,
            quantize_output_tensor: 1,
            only_copy: 0,
            pure: 0,
            keep_split: 0,
            dry_run: 0,
            imatrix: std::ptr::null(),
            kv_overrides: std::ptr::null(),
            tt_overrides: std::ptr::null(),
            prune_layers: std::ptr::null(),
            max_buf_size: 0,
        }
    }
}

impl QuantizeParams {
    /// Return the options that they mean.
    pub fn options(&self) -> QuantizeOptions {
        let lists = [self.imatrix, self.kv_overrides, self.tt_overrides, self.prune_layers.cast()];
        QuantizeOptions {
            n_threads: self.nthread,
            file_type: self.ftype,
            output: self.output_tensor_type,
            token_embedding: self.token_embedding_type,
            allow_requantize: self.allow_requantize != 0,
            keep_output: self.quantize_output_tensor == 0,
            pure: self.pure != 0,
            dry_run: self.dry_run != 0,
            has_unknown: self.only_copy != 0 || self.keep_split != 0 || lists.iter().any(|p| !p.is_null()),
        }
    }
}

/// The functions of a sampler, `struct llama_sampler_i`. Those that run samplers on devices are
/// never called.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields are those of llama.h")]
pub struct SamplerInterface {
    pub name: Option<extern "C" fn(*const Sampler) -> *const c_char>,
    pub accept: Option<extern "C" fn(*mut Sampler, i32)>,
    pub apply: Option<extern "C" fn(*mut Sampler, Out<TokenDataArray>)>,
    pub reset: Option<extern "C" fn(*mut Sampler)>,
    pub clone: Option<extern "C" fn(*const Sampler) -> *mut Sampler>,
    pub free: Option<extern "C" fn(*mut Sampler)>,
    pub backend: [Option<extern "C" fn()>; 5],
    pub copy_state: Option<extern "C" fn(*const Sampler, *mut Sampler)>,
}

impl SamplerInterface {
    /// Return the functions of the samplers of this library.
    pub const fn of_library(
        name: extern "C" fn(*const Sampler) -> *const c_char,
        accept: extern "C" fn(*mut Sampler, i32),
        apply: extern "C" fn(*mut Sampler, Out<TokenDataArray>),
        reset: extern "C" fn(*mut Sampler),
        clone: extern "C" fn(*const Sampler) -> *mut Sampler,
    ) -> Self {
        SamplerInterface {
            name: Some(name),
            accept: Some(accept),
            apply: Some(apply),
            reset: Some(reset),
            clone: Some(clone),
            free: None,
            backend: [None; 5],
            copy_state: None,
        }
    }
}

exports! {
    /// Return a sampler that lowers the logits of recent tokens, or null.
    fn llama_sampler_init_penalties(n_vocab: i32, last_n: i32, repeat: f32, frequency: f32, presence: f32)
        -> SamplerRef = [SamplerRef::NULL]
    {
        penalties(n_vocab, last_n, repeat, frequency, presence)
    }

    /// Return a sampler that lowers the logits of tokens which would extend a repetition, or null.
    fn llama_sampler_init_dry(
        vocab: Handle, multiplier: f32, base: f32, allowed_length: i32, last_n: i32,
        breakers: In<Text>, n_breakers: usize,
    ) -> SamplerRef = [SamplerRef::NULL] {
        dry(vocab, &DryArguments { multiplier, base, allowed_length, last_n, breakers, n_breakers })
    }
}

/// The sizes of that header on 64-bit systems.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ModelParams>() == 80);
    assert!(size_of::<ContextParams>() == 160);
    assert!(size_of::<QuantizeParams>() == 64);
    assert!(size_of::<SamplerInterface>() == 96);
    assert!(size_of::<super::Batch>() == 56);
};
