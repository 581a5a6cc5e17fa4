//! Calls of the C interface with random arguments and random handles, stale and foreign ones among
//! them. Each returns, with the value that its documentation states for failure.
#![no_main]

#[path = "../../capi/tests/calls/mod.rs"]
mod calls;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let models = ["llama", "falcon_h1", "gemma3", "mamba"];
    let Some((which, rest)) = bytes.split_first() else { return };
    let name = models[usize::from(*which) % models.len()];
    calls::run(&format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR")), rest);
});
