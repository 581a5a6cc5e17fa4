//! Adapters through llama.h: what they change, and that nothing crosses from one to another.

use backstitch_capi::adapter::*;
use backstitch_capi::handles::Handle;
use backstitch_capi::{context, decode, memory, model, state};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

mod handing_over;

use handing_over::*;

fn adapter(model: Handle, name: &str) -> Handle {
    let path = format!("{}/../goldens/lora/{name}", env!("CARGO_MANIFEST_DIR"));
    llama_adapter_lora_init(model, text(&CString::new(path).unwrap()))
}

/// Evaluate a text from the beginning, and return the logits of its last token.
fn logits(ctx: Handle) -> Vec<u32> {
    memory::llama_memory_clear(context::llama_get_memory(ctx), 1);
    assert_eq!(decode_tokens(ctx, &mut [5, 6, 7, 8]), 0, "{}", last_error());
    let n = backstitch_capi::vocab::llama_vocab_n_tokens(model::llama_model_get_vocab(
        context::llama_get_model(ctx),
    ));
    let row = decode::llama_get_logits_ith(ctx, -1);
    // SAFETY: a row of logits has a number for each token of the vocabulary.
    let row = unsafe { std::slice::from_raw_parts(row, n as usize) };
    row.iter().map(|x| x.to_bits()).collect()
}

fn clear(ctx: Handle) {
    memory::llama_memory_clear(context::llama_get_memory(ctx), 1);
}

#[test]
fn adapters_change_logits_and_leave_no_trace() {
    let (model, ctx) = open();
    let base = logits(ctx);
    let [first, second] = ["llama.lora.gguf", "llama.second.gguf"].map(|name| adapter(model, name));
    assert!(!first.is_null() && !second.is_null(), "{}", last_error());
    // The sequence holds tokens of the base.
    assert_eq!(llama_set_adapter_lora(ctx, first, 1.0), -1);
    assert!(last_error().contains("tokens"), "{}", last_error());
    clear(ctx);
    assert_eq!(llama_set_adapter_lora(ctx, first, 1.0), 0, "{}", last_error());
    let one = logits(ctx);
    clear(ctx);
    assert_eq!(llama_set_adapters_lora(ctx, input(&[first, second]), 2, input(&[1.0, 0.5])), 0);
    let both = logits(ctx);
    clear(ctx);
    assert_eq!(llama_rm_adapter_lora(ctx, second), 0);
    assert_eq!(llama_rm_adapter_lora(ctx, second), -1);
    assert!(base != one && one != both && base != both);
    assert_eq!(logits(ctx), one);
    clear(ctx);
    assert_eq!(llama_set_adapter_lora(ctx, first, 0.0), 0);
    assert_eq!(logits(ctx), base);
    clear(ctx);
    assert_eq!(llama_set_adapter_lora(ctx, first, 1.0), 0);
    // A context goes on with an adapter that was freed.
    llama_adapter_lora_free(first);
    assert_eq!(logits(ctx), one);
    clear(ctx);
    llama_clear_adapter_lora(ctx);
    assert_eq!(logits(ctx), base);
    assert_eq!(llama_set_adapter_lora(ctx, first, 1.0), -1);
}

#[test]
fn control_vectors_change_logits_in_their_layers() {
    let (model, ctx) = open();
    let base = logits(ctx);
    clear(ctx);
    let (n_embd, n_layer) = (model::llama_model_n_embd(model), model::llama_model_n_layer(model));
    let data: Vec<f32> = (0..n_embd * (n_layer - 1)).map(|i| 0.1 * (i % 7) as f32).collect();
    let set =
        |n_embd, first, last| llama_set_adapter_cvec(ctx, input(&data), data.len(), n_embd, first, last);
    assert_eq!(set(n_embd + 1, 1, n_layer), -1);
    assert!(last_error().contains("n_embd"), "{}", last_error());
    assert_eq!(set(n_embd, 1, n_layer), 0, "{}", last_error());
    assert_ne!(logits(ctx), base);
    clear(ctx);
    assert_eq!(set(n_embd, 2, 1), 0, "{}", last_error());
    assert_eq!(logits(ctx), base);
    clear(ctx);
    assert_eq!(set(n_embd, -3, n_layer + 9), 0, "{}", last_error());
    assert_ne!(logits(ctx), base);
    clear(ctx);
    assert_eq!(llama_set_adapter_cvec(ctx, nothing(), 0, n_embd, 1, n_layer), 0);
    assert_eq!(logits(ctx), base);
}

#[test]
fn states_belong_to_their_adapters() {
    let (model, ctx) = open();
    let lora = adapter(model, "llama.lora.gguf");
    assert_eq!(llama_set_adapter_lora(ctx, lora, 1.0), 0);
    let one = logits(ctx);
    let mut bytes = vec![0u8; state::llama_state_seq_get_size(ctx, 0)];
    assert!(!bytes.is_empty(), "{}", last_error());
    let size = bytes.len();
    assert_eq!(state::llama_state_seq_get_data(ctx, output(&mut bytes), size, 0), size);
    let (_, other) = open();
    assert_eq!(state::llama_state_seq_set_data(other, input(&bytes), size, 0), 0);
    assert!(last_error().contains("adapter"), "{}", last_error());
    clear(ctx);
    assert_eq!(state::llama_state_seq_set_data(ctx, input(&bytes), size, 0), size, "{}", last_error());
    assert_eq!(memory::llama_memory_seq_pos_max(context::llama_get_memory(ctx), 0), 3);
    assert_eq!(logits(ctx), one);
}

#[test]
fn a_state_that_no_adapters_made_is_refused_with_some() {
    let (model, ctx) = open();
    logits(ctx);
    let mut bytes = vec![0u8; state::llama_state_seq_get_size(ctx, 0)];
    let size = bytes.len();
    assert_eq!(state::llama_state_seq_get_data(ctx, output(&mut bytes), size, 0), size);
    clear(ctx);
    assert_eq!(llama_set_adapter_lora(ctx, adapter(model, "llama.lora.gguf"), 1.0), 0);
    assert_eq!(state::llama_state_seq_set_data(ctx, input(&bytes), size, 0), 0);
    assert!(last_error().contains("adapter"), "{}", last_error());
    assert_eq!(memory::llama_memory_seq_pos_max(context::llama_get_memory(ctx), 0), -1);
}

#[test]
fn metadata_of_an_adapter_is_told_and_other_files_are_refused() {
    let (model, ctx) = open();
    let lora = adapter(model, "llama.lora.gguf");
    let mut buffer = [0 as c_char; 64];
    let size = buffer.len();
    let n = llama_adapter_meta_val_str(lora, text(c"general.type"), output(&mut buffer), size);
    assert_eq!(n, 7);
    // SAFETY: the function ended the text with a zero.
    assert_eq!(unsafe { CStr::from_ptr(buffer.as_ptr()) }, c"adapter");
    assert_eq!(llama_adapter_meta_val_str(lora, text(c"none"), output(&mut buffer), size), -1);
    assert!(llama_adapter_meta_count(lora) > 2);
    assert!(llama_adapter_meta_key_by_index(lora, 0, output(&mut buffer), size) > 0);
    assert_eq!(llama_adapter_meta_key_by_index(lora, 999, output(&mut buffer), size), -1);
    assert_eq!(llama_adapter_meta_val_str_by_index(lora, -1, output(&mut buffer), size), -1);
    for wrong in ["cohere2.lora.gguf", "llama.control.gguf", "none.gguf"] {
        assert!(adapter(model, wrong).is_null(), "{wrong}");
    }
    assert!(llama_adapter_lora_init_from_file_ptr(model, null_mut()).is_null());
    assert_eq!(llama_set_adapter_lora(ctx, ctx, 1.0), -1);
    assert_eq!(llama_set_adapters_lora(ctx, nothing(), 1, nothing()), -1);
    assert_eq!(llama_set_adapter_lora(ctx, lora, f32::NAN), -1);
}
