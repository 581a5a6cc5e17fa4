//! Adapters (LoRA, control vectors): none is loaded yet.
//!
//! The functions exist so that programs which may use adapters can be linked and run without. Each
//! returns the failure value that llama.h documents.

use crate::border::{In, Out, Text, exports};
use crate::context::context;
use crate::error::Error;
use crate::handles::{Handle, Registry};
use crate::model::model;
use std::ffi::{c_char, c_void};

/// An adapter that a handle stands for. There is none, so no value of this type exists.
pub enum Adapter {}

static ADAPTERS: Registry<Adapter> = Registry::new(crate::handles::Kind::Adapter);

const LORA: Error = Error::Absent { what: "LoRA adapters" };
const VECTORS: Error = Error::Absent { what: "control vectors" };

exports! {
    /// Load an adapter of a model: returns null.
    fn llama_adapter_lora_init(handle: Handle, path: Text) -> Handle = [Handle::NULL] {
        model(handle)?;
        path.bytes("path_lora")?;
        Err(LORA)
    }

    /// Load an adapter from an open `FILE`: returns null.
    fn llama_adapter_lora_init_from_file_ptr(handle: Handle, file: *mut c_void) -> Handle = [Handle::NULL] {
        let _ = (model(handle)?, file);
        Err(LORA)
    }

    /// Free an adapter.
    fn llama_adapter_lora_free(adapter: Handle) {
        if adapter.is_null() {
            return Ok(());
        }
        ADAPTERS.remove(adapter).map(drop)
    }

    /// Use these adapters from now on: 0 for none, -1 for any.
    fn llama_set_adapters_lora(handle: Handle, adapters: In<Handle>, n: usize, scales: In<f32>) -> i32 = [-1] {
        let _ = (context(handle)?, scales);
        adapters.slice(n, "adapters")?.iter().try_for_each(|&adapter| ADAPTERS.get(adapter).map(drop))?;
        if n > 0 { Err(LORA) } else { Ok(0) }
    }

    /// Use an adapter from now on: returns -1.
    fn llama_set_adapter_lora(handle: Handle, adapter: Handle, scale: f32) -> i32 = [-1] {
        let _ = (context(handle)?, scale);
        ADAPTERS.get(adapter)?;
        Err(LORA)
    }

    /// Stop to use an adapter: returns -1, for none is in use.
    fn llama_rm_adapter_lora(handle: Handle, adapter: Handle) -> i32 = [-1] {
        context(handle)?;
        ADAPTERS.get(adapter)?;
        Err(LORA)
    }

    /// Stop to use all adapters.
    fn llama_clear_adapter_lora(handle: Handle) {
        context(handle).map(drop)
    }

    /// Use a control vector from now on: 0 for none, -1 for any.
    fn llama_set_adapter_cvec(
        handle: Handle, data: In<f32>, len: usize, n_embd: i32, il_start: i32, il_end: i32,
    ) -> i32 = [-1] {
        let _ = (context(handle)?, len, n_embd, il_start, il_end);
        if data.is_null() { Ok(0) } else { Err(VECTORS) }
    }

    /// Use a control vector, as [`llama_set_adapter_cvec`].
    fn llama_apply_adapter_cvec(
        handle: Handle, data: In<f32>, len: usize, n_embd: i32, il_start: i32, il_end: i32,
    ) -> i32 = [-1] {
        Ok(llama_set_adapter_cvec(handle, data, len, n_embd, il_start, il_end))
    }

    /// Write a value of an adapter's metadata: returns -1.
    fn llama_adapter_meta_val_str(adapter: Handle, key: Text, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        let _ = (ADAPTERS.get(adapter)?, key, buf, size);
        Err(LORA)
    }

    /// Return the number of entries of an adapter's metadata.
    fn llama_adapter_meta_count(adapter: Handle) -> i32 = [0] {
        ADAPTERS.get(adapter).map(|_| 0)
    }

    /// Write a key of an adapter's metadata: returns -1.
    fn llama_adapter_meta_key_by_index(adapter: Handle, i: i32, buf: Out<c_char>, size: usize) -> i32 = [-1] {
        let _ = (ADAPTERS.get(adapter)?, i, buf, size);
        Err(LORA)
    }

    /// Write a value of an adapter's metadata: returns -1.
    fn llama_adapter_meta_val_str_by_index(adapter: Handle, i: i32, buf: Out<c_char>, size: usize)
        -> i32 = [-1]
    {
        let _ = (ADAPTERS.get(adapter)?, i, buf, size);
        Err(LORA)
    }

    /// Return the number of tokens that start an adapter.
    fn llama_adapter_get_alora_n_invocation_tokens(adapter: Handle) -> u64 = [0] {
        ADAPTERS.get(adapter).map(|_| 0)
    }

    /// Return the tokens that start an adapter.
    fn llama_adapter_get_alora_invocation_tokens(adapter: Handle) -> *const i32 = [std::ptr::null()] {
        ADAPTERS.get(adapter).map(|_| std::ptr::null())
    }
}
