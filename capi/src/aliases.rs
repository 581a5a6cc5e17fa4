//! Former names of functions.

use crate::border::{In, Out, Text};
use crate::handles::Handle;
use crate::layouts::{ContextParams, ModelParams};
use crate::{context, model, state, vocab};
use std::ffi::c_char;

/// Define functions that call others: `old(argument: type, ...) -> type = path::to::new;`.
macro_rules! aliases {
    ($($old:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? = $module:ident::$new:ident;)*) => {$(
        #[doc = concat!("The former name of [`", stringify!($module), "::", stringify!($new), "`].")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $old($($arg: $ty),*) $(-> $out)? {
            $module::$new($($arg),*)
        }
    )*};
}

aliases! {
    llama_load_model_from_file(path: Text, params: ModelParams) -> Handle
        = model::llama_model_load_from_file;
    llama_free_model(handle: Handle) = model::llama_model_free;
    llama_new_context_with_model(handle: Handle, params: ContextParams) -> Handle = context::llama_init_from_model;
    llama_n_ctx_train(handle: Handle) -> i32 = model::llama_model_n_ctx_train;
    llama_n_embd(handle: Handle) -> i32 = model::llama_model_n_embd;
    llama_n_layer(handle: Handle) -> i32 = model::llama_model_n_layer;
    llama_n_head(handle: Handle) -> i32 = model::llama_model_n_head;
    llama_n_vocab(handle: Handle) -> i32 = vocab::llama_vocab_n_tokens;
    llama_get_state_size(handle: Handle) -> usize = state::llama_state_get_size;
    llama_load_session_file(handle: Handle, path: Text, tokens: Out<i32>, capacity: usize, n_tokens: Out<usize>)
        -> bool = state::llama_state_load_file;
    llama_save_session_file(handle: Handle, path: Text, tokens: In<i32>, n_tokens: usize) -> bool
        = state::llama_state_save_file;
    llama_token_get_text(handle: Handle, token: i32) -> *const c_char = vocab::llama_vocab_get_text;
    llama_token_get_score(handle: Handle, token: i32) -> f32 = vocab::llama_vocab_get_score;
    llama_token_get_attr(handle: Handle, token: i32) -> i32 = vocab::llama_vocab_get_attr;
    llama_token_is_eog(handle: Handle, token: i32) -> bool = vocab::llama_vocab_is_eog;
    llama_token_is_control(handle: Handle, token: i32) -> bool = vocab::llama_vocab_is_control;
    llama_token_bos(handle: Handle) -> i32 = vocab::llama_vocab_bos;
    llama_token_eos(handle: Handle) -> i32 = vocab::llama_vocab_eos;
    llama_token_eot(handle: Handle) -> i32 = vocab::llama_vocab_eot;
    llama_token_cls(handle: Handle) -> i32 = vocab::llama_vocab_cls;
    llama_token_sep(handle: Handle) -> i32 = vocab::llama_vocab_sep;
    llama_token_nl(handle: Handle) -> i32 = vocab::llama_vocab_nl;
    llama_token_pad(handle: Handle) -> i32 = vocab::llama_vocab_pad;
    llama_add_bos_token(handle: Handle) -> bool = vocab::llama_vocab_get_add_bos;
    llama_add_eos_token(handle: Handle) -> bool = vocab::llama_vocab_get_add_eos;
    llama_token_fim_pre(handle: Handle) -> i32 = vocab::llama_vocab_fim_pre;
    llama_token_fim_suf(handle: Handle) -> i32 = vocab::llama_vocab_fim_suf;
    llama_token_fim_mid(handle: Handle) -> i32 = vocab::llama_vocab_fim_mid;
    llama_token_fim_pad(handle: Handle) -> i32 = vocab::llama_vocab_fim_pad;
    llama_token_fim_rep(handle: Handle) -> i32 = vocab::llama_vocab_fim_rep;
    llama_token_fim_sep(handle: Handle) -> i32 = vocab::llama_vocab_fim_sep;
}
