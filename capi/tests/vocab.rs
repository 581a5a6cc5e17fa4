//! The statements of a file about its tokens, through llama.h.

use backstitch_capi::handles::Handle;
use backstitch_capi::layouts::ModelParams;
use backstitch_capi::{model, vocab};
use backstitch_models::gguf::{Gguf, Writer};
use std::ffi::CString;

mod handing_over;

use handing_over::*;

/// Open the golden model with its last tokens renamed, and with tokens that are to be suppressed.
fn open_with(names: &[&str], suppressed: Option<Vec<i32>>) -> Handle {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf");
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut tokens = gguf.optional::<&[&str]>("tokenizer.ggml.tokens").unwrap().unwrap().to_vec();
    let first = tokens.len() - names.len();
    tokens[first..].copy_from_slice(names);
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        match entry.key {
            "tokenizer.ggml.tokens" => writer.set(entry.key, tokens.clone()).unwrap(),
            _ => writer.set(entry.key, entry.value.clone()).unwrap(),
        };
    }
    if let Some(suppressed) = suppressed {
        writer.set("tokenizer.ggml.suppress_tokens", suppressed).unwrap();
    }
    for info in gguf.tensors() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    writer.write_to(std::fs::File::create(&path).unwrap()).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let model = model::llama_model_load_from_file(text(&path), ModelParams::default());
    assert!(!model.is_null(), "{}", last_error());
    model::llama_model_get_vocab(model)
}

#[test]
fn parts_of_fill_in_the_middle_prompts_have_tokens() {
    let families = [
        ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
        ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
        ["<|prefix|>", "<|suffix|>", "<|middle|>"],
    ];
    for names in families {
        let handle = open_with(&names, None);
        let n = vocab::llama_vocab_n_tokens(handle);
        assert_eq!(vocab::llama_vocab_fim_pre(handle), n - 3, "{names:?}");
        assert_eq!(vocab::llama_vocab_fim_suf(handle), n - 2, "{names:?}");
        assert_eq!(vocab::llama_vocab_fim_mid(handle), n - 1, "{names:?}");
    }
    let handle = open_with(&[], None);
    assert_eq!(vocab::llama_vocab_fim_pre(handle), -1);
}

#[test]
fn suppressed_tokens_are_listed() {
    let list = |suppressed| -> Vec<i32> {
        let (handle, mut n) = (open_with(&[], suppressed), [-1]);
        let first = vocab::llama_vocab_get_suppress_tokens(handle, output(&mut n));
        assert_eq!(first.is_null(), n == [0]);
        if first.is_null() {
            return Vec::new();
        }
        // SAFETY: the function returned the address of so many tokens of a model that is open.
        unsafe { std::slice::from_raw_parts(first, n[0] as usize) }.to_vec()
    };
    assert!(list(None).is_empty());
    assert!(list(Some(vec![])).is_empty());
    assert_eq!(list(Some(vec![9, -1, 4, 9, 1 << 30])), [4, 9]);
}
