//! The functions of ggml that programs of llama.h call: starting, clocks, names.

use crate::border::{Text, exports};
use crate::context::now_us;
use crate::log::{self, Level};
use backstitch_models::KernelSet;
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Names of the types of ggml, in the order of their numbers; empty for numbers that are free.
const TYPES: [&CStr; 43] = [
    c"f32", c"f16", c"q4_0", c"q4_1", c"", c"", c"q5_0", c"q5_1", c"q8_0", c"q8_1", c"q2_K", c"q3_K",
    c"q4_K", c"q5_K", c"q6_K", c"q8_K", c"iq2_xxs", c"iq2_xs", c"iq3_xxs", c"iq1_s", c"iq4_nl", c"iq3_s",
    c"iq2_s", c"iq4_xs", c"i8", c"i16", c"i32", c"i64", c"f64", c"iq1_m", c"bf16", c"", c"", c"", c"tq1_0",
    c"tq2_0", c"", c"", c"", c"mxfp4", c"nvfp4", c"q1_0", c"q2_0",
];

exports! {
    /// Do nothing: there is nothing to start.
    fn llama_backend_init() {
        Ok(())
    }

    /// Do nothing: models and contexts are freed one by one.
    fn llama_backend_free() {
        Ok(())
    }

    /// Say once that memory is not bound to nodes.
    fn llama_numa_init(strategy: i32) {
        if strategy != 0 {
            log::write(Level::Warning, "llama_numa_init: memory is not bound to nodes");
        }
        Ok(())
    }

    /// Do nothing: the processor's kernels are part of the library.
    fn ggml_backend_load_all() {
        Ok(())
    }

    /// Do nothing, wherever the program looks for kernels.
    fn ggml_backend_load_all_from_path(path: Text) {
        let _ = path;
        Ok(())
    }

    /// Return microseconds of a clock.
    fn ggml_time_us() -> i64 = [0] {
        Ok(now_us())
    }

    /// Return milliseconds of a clock.
    fn ggml_time_ms() -> i64 = [0] {
        Ok(now_us() / 1000)
    }

    /// Do nothing: the clock runs by itself.
    fn ggml_time_init() {
        Ok(())
    }

    /// Return the name of a type; an empty text for numbers that are none.
    fn ggml_type_name(ty: i32) -> *const c_char = [c"".as_ptr()] {
        let name = usize::try_from(ty).ok().and_then(|ty| TYPES.get(ty));
        Ok(name.map_or(c"".as_ptr(), |name| name.as_ptr()))
    }

    /// Return the version of the library.
    fn llama_version() -> *const c_char = [c"".as_ptr()] {
        static VERSION: OnceLock<CString> = OnceLock::new();
        let text = || log::c_string(concat!("backstitch ", env!("CARGO_PKG_VERSION")));
        Ok(VERSION.get_or_init(text).as_ptr())
    }

    /// Return a line about the kernels in use.
    fn llama_print_system_info() -> *const c_char = [c"".as_ptr()] {
        static INFO: OnceLock<CString> = OnceLock::new();
        let kernels = || KernelSet::detect().map_or("none", |set| set.name());
        let text = || log::c_string(&format!("backstitch {} | kernels {}", env!("CARGO_PKG_VERSION"), kernels()));
        Ok(INFO.get_or_init(text).as_ptr())
    }

    /// Return true: files are mapped.
    fn llama_supports_mmap() -> bool = [true] {
        Ok(true)
    }

    /// Return false: memory is not locked.
    fn llama_supports_mlock() -> bool = [false] {
        Ok(false)
    }

    /// Return false: there are no devices beside the processor.
    fn llama_supports_gpu_offload() -> bool = [false] {
        Ok(false)
    }

    /// Return false: there are no remote devices.
    fn llama_supports_rpc() -> bool = [false] {
        Ok(false)
    }

    /// Return 1: the processor.
    fn llama_max_devices() -> usize = [1] {
        Ok(1)
    }

    /// Return the largest number of sequences of a context.
    fn llama_max_parallel_sequences() -> usize = [256] {
        Ok(256)
    }

    /// Return 0: tensors have no buffers of their own.
    fn llama_max_tensor_buft_overrides() -> usize = [0] {
        Ok(0)
    }
}
