//! Values as a C program hands them over, and a model that is open.
#![allow(dead_code, reason = "each test uses some")]

use backstitch_capi::border::{In, Out, Text};
use backstitch_capi::handles::Handle;
use backstitch_capi::layouts::{ContextParams, ModelParams};
use backstitch_capi::{batch, bst, context, decode, model};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

pub fn text(text: &CStr) -> Text {
    // SAFETY: the text ends with a zero and outlives the call that it is handed to.
    unsafe { Text::new(text.as_ptr()) }
}

pub fn input<T: Copy>(values: &[T]) -> In<T> {
    // SAFETY: the slice outlives the call that it is handed to.
    unsafe { In::new(values.as_ptr()) }
}

pub fn output<T: Copy>(values: &mut [T]) -> Out<T> {
    // SAFETY: the slice outlives the call that it is handed to, and nobody else uses it meanwhile.
    unsafe { Out::new(values.as_mut_ptr()) }
}

pub fn nowhere<T: Copy>() -> Out<T> {
    // SAFETY: null is always allowed.
    unsafe { Out::new(null_mut()) }
}

pub fn nothing<T: Copy>() -> In<T> {
    // SAFETY: null is always allowed.
    unsafe { In::new(null()) }
}

pub fn last_error() -> String {
    // SAFETY: the address of this thread's last error is a text with a zero.
    unsafe { CStr::from_ptr(bst::bst_last_error()) }.to_string_lossy().into_owned()
}

pub extern "C" fn quiet(_level: i32, _text: *const c_char, _data: *mut c_void) {}

pub fn open() -> (Handle, Handle) {
    backstitch_capi::log::llama_log_set(Some(quiet), null_mut());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf");
    let path = CString::new(path).unwrap();
    let model = model::llama_model_load_from_file(text(&path), ModelParams::default());
    assert!(!model.is_null(), "{}", last_error());
    let params =
        ContextParams { n_ctx: 64, n_seq_max: 2, n_threads: 1, n_threads_batch: 1, ..Default::default() };
    let ctx = context::llama_init_from_model(model, params);
    assert!(!ctx.is_null(), "{}", last_error());
    (model, ctx)
}

pub fn decode_tokens(ctx: Handle, tokens: &mut [i32]) -> i32 {
    decode::llama_decode(ctx, batch::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32))
}
