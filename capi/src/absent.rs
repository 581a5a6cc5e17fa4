//! Functions that have no meaning here: they do nothing, say so once in the log, and return the
//! value that llama.h documents for that.

use crate::border::{self, Flag, Opaque};
use crate::handles::Handle;
use crate::layouts::{ModelParams, OptParams};
use crate::log::{self, Level};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Functions that were called.
static SAID: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);

/// Say once that a function does nothing.
fn say(function: &'static str, why: &str) {
    let is_new = {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        said.get_or_insert_with(HashSet::new).insert(function)
    };
    if is_new {
        log::write(Level::Warning, &format!("{function} does nothing: {why}"));
    }
}

/// Define functions that do nothing: `name(argument: type, ...) -> type = value, reason;`.
macro_rules! absent {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty = $value:expr)?, $why:literal;)*) => {$(
        #[doc = concat!("Do nothing: ", $why, ".")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $ty),*) $(-> $out)? {
            $(let _ = &$arg;)*
            border::call(stringify!($name), (), || { say(stringify!($name), $why); Ok(()) });
            $($value)?
        }

    )*};
}

absent! {
    llama_attach_threadpool(ctx: Handle, pool: Opaque, pool_batch: Opaque), "a context has its own threads";
    llama_detach_threadpool(ctx: Handle), "a context has its own threads";
    llama_set_warmup(ctx: Handle, warmup: Flag), "models need no warming up";
    llama_set_causal_attn(ctx: Handle, causal: Flag), "the model says which tokens see which";
    llama_get_causal_attn(ctx: Handle) -> bool = true, "the model says which tokens see which";
    llama_set_sampler(ctx: Handle, seq: i32, sampler: Opaque) -> bool = false, "samplers run outside of the context";
    llama_get_sampled_token_ith(ctx: Handle, i: i32) -> i32 = -1, "samplers run outside of the context";
    llama_get_sampled_probs_ith(ctx: Handle, i: i32) -> Opaque = Opaque(0), "samplers run outside of the context";
    llama_get_sampled_probs_count_ith(ctx: Handle, i: i32) -> u32 = 0, "samplers run outside of the context";
    llama_get_sampled_logits_ith(ctx: Handle, i: i32) -> Opaque = Opaque(0), "samplers run outside of the context";
    llama_get_sampled_logits_count_ith(ctx: Handle, i: i32) -> u32 = 0, "samplers run outside of the context";
    llama_get_sampled_candidates_ith(ctx: Handle, i: i32) -> Opaque = Opaque(0), "samplers run outside of the context";
    llama_get_sampled_candidates_count_ith(ctx: Handle, i: i32) -> u32 = 0, "samplers run outside of the context";
    llama_model_save_to_file(model: Handle, path: Opaque), "models are not written";
    llama_model_init_from_user(metadata: Opaque, set: Opaque, data: Opaque, params: ModelParams) -> Handle
        = Handle::NULL, "models come from files";
    llama_opt_param_filter_all(tensor: Opaque, data: Opaque) -> bool = true, "nothing is trained";
    llama_opt_init(ctx: Handle, model: Handle, params: OptParams), "nothing is trained";
    llama_opt_epoch(ctx: Handle, dataset: Opaque, train: Opaque, eval: Opaque, split: i64, on_train: Opaque,
        on_eval: Opaque), "nothing is trained";
    llama_set_embeddings_nextn(ctx: Handle, value: Flag, masked: Flag), "no layers predict further tokens";
    llama_set_nextn_layer_offset(ctx: Handle, offset: i32), "no layers predict further tokens";
    llama_get_embeddings_nextn(ctx: Handle) -> Opaque = Opaque(0), "no layers predict further tokens";
    llama_get_embeddings_nextn_ith(ctx: Handle, i: i32) -> Opaque = Opaque(0), "no layers predict further tokens";
    llama_get_ctx_other(ctx: Handle) -> Handle = Handle::NULL, "contexts are not linked";
}
