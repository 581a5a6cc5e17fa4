//! The few calls of llama.cpp's C interface that the benchmark needs, made safe.

use std::ffi::{CString, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};

use llama_cpp_sys_2 as sys;

/// Kind of attention, fused or not. The faster kind depends on the processor and the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flash {
    /// llama.cpp chooses.
    Auto,
    /// Fused.
    On,
    /// Three operations: scores, softmax, weighted sum.
    Off,
}

/// Data type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Half precision, the default.
    F16,
    /// 8 bits in blocks of 32.
    Q8,
}

/// Parameters of a context. All others have llama.cpp's default.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Threads of every computation.
    pub threads: usize,
    /// Cells of the cache, over all sequences.
    pub n_ctx: usize,
    /// Sequences.
    pub n_seqs: usize,
    /// Kind of attention.
    pub flash: Flash,
    /// Type of the cache.
    pub cells: Cells,
}

unsafe extern "C" fn ignore(_: sys::ggml_log_level, _: *const c_char, _: *mut c_void) {}

/// Start the library and silence its log. Call this once, before anything else.
pub fn start() {
    // SAFETY: a callback that touches nothing may be called from anywhere.
    unsafe { sys::llama_log_set(Some(ignore), ptr::null_mut()) };
    // SAFETY: called before anything else of the library.
    unsafe { sys::llama_backend_init() };
}

fn c_path(path: &Path) -> Result<CString, String> {
    let text = path.to_str().ok_or_else(|| format!("{}: not UTF-8", path.display()))?;
    CString::new(text).map_err(|_| format!("{text:?}: holds a zero byte"))
}

/// A model's weights.
pub struct Model(NonNull<sys::llama_model>);

impl Model {
    /// Load a GGUF file.
    ///
    /// # Errors
    /// If llama.cpp does not load it. It does not say why.
    pub fn load(path: &Path) -> Result<Model, String> {
        let name = c_path(path)?;
        // SAFETY: plain data out of the library.
        let params = unsafe { sys::llama_model_default_params() };
        // SAFETY: `name` ends with a zero and outlives the call; `params` are the library's own.
        let raw = unsafe { sys::llama_model_load_from_file(name.as_ptr(), params) };
        NonNull::new(raw).map(Model).ok_or_else(|| format!("{}: llama.cpp cannot load it", path.display()))
    }

    /// Return the number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        // SAFETY: the model lives as long as `self`.
        let vocab = unsafe { sys::llama_model_get_vocab(self.0.as_ptr()) };
        // SAFETY: the vocabulary belongs to the model.
        unsafe { sys::llama_vocab_n_tokens(vocab) as usize }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: loaded once, freed once; contexts borrow the model and are gone.
        unsafe { sys::llama_model_free(self.0.as_ptr()) }
    }
}

/// Tokens to evaluate in one call.
#[derive(Default)]
pub struct Batch {
    token: Vec<sys::llama_token>,
    pos: Vec<sys::llama_pos>,
    seq: Vec<sys::llama_seq_id>,
    output: Vec<i8>,
}

impl Batch {
    /// Add a token at `pos` of sequence `seq`. It gets logits if `output`.
    pub fn push(&mut self, token: u32, pos: usize, seq: usize, output: bool) {
        self.token.push(token as i32);
        self.pos.push(pos as i32);
        self.seq.push(seq as i32);
        self.output.push(i8::from(output));
    }
}

/// A cache and buffers for one model.
pub struct Context<'m> {
    raw: NonNull<sys::llama_context>,
    model: PhantomData<&'m Model>,
}

/// Most tokens of one call of [`Context::decode`]; llama.cpp's default.
pub const N_BATCH: usize = 2048;

impl<'m> Context<'m> {
    /// Make an empty context.
    ///
    /// # Errors
    /// If llama.cpp does not make one. It does not say why.
    pub fn new(model: &'m Model, shape: Shape) -> Result<Context<'m>, String> {
        // SAFETY: plain data out of the library.
        let mut params = unsafe { sys::llama_context_default_params() };
        params.n_ctx = shape.n_ctx as u32;
        params.n_batch = N_BATCH as u32;
        params.n_seq_max = shape.n_seqs as u32;
        params.n_threads = shape.threads as i32;
        params.n_threads_batch = shape.threads as i32;
        params.flash_attn_type = match shape.flash {
            Flash::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            Flash::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            Flash::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        params.type_k = match shape.cells {
            Cells::F16 => sys::GGML_TYPE_F16,
            Cells::Q8 => sys::GGML_TYPE_Q8_0,
        };
        params.type_v = params.type_k;
        // SAFETY: the model outlives the context through the lifetime; `params` have no pointers of
        // ours.
        let raw = unsafe { sys::llama_init_from_model(model.0.as_ptr(), params) };
        let raw = NonNull::new(raw).ok_or("llama.cpp cannot make a context")?;
        Ok(Context { raw, model: PhantomData })
    }

    /// Evaluate `batch` and wait for the result.
    ///
    /// # Errors
    /// llama.cpp's status if it is not 0.
    pub fn decode(&mut self, batch: &mut Batch) -> Result<(), String> {
        let n = batch.token.len();
        let mut one = vec![1; n];
        let mut seq: Vec<*mut i32> = batch.seq.iter_mut().map(ptr::from_mut).collect();
        let raw = sys::llama_batch {
            n_tokens: n as i32,
            token: batch.token.as_mut_ptr(),
            embd: ptr::null_mut(),
            pos: batch.pos.as_mut_ptr(),
            n_seq_id: one.as_mut_ptr(),
            seq_id: seq.as_mut_ptr(),
            logits: batch.output.as_mut_ptr(),
        };
        // SAFETY: every list has `n` entries and outlives the call, which keeps none of them.
        let status = unsafe { sys::llama_decode(self.raw.as_ptr(), raw) };
        // SAFETY: the context is alive.
        unsafe { sys::llama_synchronize(self.raw.as_ptr()) };
        if status == 0 { Ok(()) } else { Err(format!("llama_decode: status {status}")) }
    }

    /// Remove the tokens of `seq` from `pos` on.
    ///
    /// # Errors
    /// If this model's memory cannot do that.
    pub fn rewind(&mut self, seq: usize, pos: usize) -> Result<(), String> {
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.raw.as_ptr()) };
        // SAFETY: the memory belongs to the context.
        let done = unsafe { sys::llama_memory_seq_rm(memory, seq as i32, pos as i32, -1) };
        if done { Ok(()) } else { Err("llama.cpp cannot rewind this kind of memory".into()) }
    }

    /// Return the logits of the last `decode`, `[rows, n_vocab]`: a row for each token with output,
    /// in order.
    pub fn logits(&self, rows: usize, n_vocab: usize) -> &[f32] {
        // SAFETY: the context is alive, and keeps a row for each output of its last batch until the
        // next batch.
        unsafe { std::slice::from_raw_parts(sys::llama_get_logits(self.raw.as_ptr()), rows * n_vocab) }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, freed once.
        unsafe { sys::llama_free(self.raw.as_ptr()) }
    }
}

/// Write the model in `from` to `to` with its matrices in another format.
///
/// # Errors
/// An unknown format, or llama.cpp's status if it is not 0.
pub fn quantize(from: &Path, to: &Path, format: &str) -> Result<(), String> {
    let ftype = match format {
        "F16" => sys::LLAMA_FTYPE_MOSTLY_F16,
        "BF16" => sys::LLAMA_FTYPE_MOSTLY_BF16,
        "Q4_0" => sys::LLAMA_FTYPE_MOSTLY_Q4_0,
        "Q4_1" => sys::LLAMA_FTYPE_MOSTLY_Q4_1,
        "Q5_0" => sys::LLAMA_FTYPE_MOSTLY_Q5_0,
        "Q5_1" => sys::LLAMA_FTYPE_MOSTLY_Q5_1,
        "Q8_0" => sys::LLAMA_FTYPE_MOSTLY_Q8_0,
        "Q4_K_M" => sys::LLAMA_FTYPE_MOSTLY_Q4_K_M,
        "Q5_K_M" => sys::LLAMA_FTYPE_MOSTLY_Q5_K_M,
        "Q6_K" => sys::LLAMA_FTYPE_MOSTLY_Q6_K,
        _ => return Err(format!("unknown format {format}")),
    };
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: plain data out of the library.
    let mut params = unsafe { sys::llama_model_quantize_default_params() };
    params.ftype = ftype;
    params.allow_requantize = true;
    // SAFETY: both names end with a zero and, like `params`, outlive the call.
    match unsafe { sys::llama_model_quantize(from.as_ptr(), to.as_ptr(), &params) } {
        0 => Ok(()),
        status => Err(format!("llama_model_quantize: status {status}")),
    }
}
