//! The statements of a file about its tokens, through llama.h.

use backstitch_capi::handles::Handle;
use backstitch_capi::layouts::ModelParams;
use backstitch_capi::{model, vocab};
use backstitch_models::gguf::{Gguf, Writer};
use std::ffi::CString;
use std::path::Path;

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
    let path = written(&writer, &folder.path().join("model.gguf"));
    let model = model::llama_model_load_from_file(text(&path), ModelParams::default());
    assert!(!model.is_null(), "{}", last_error());
    model::llama_model_get_vocab(model)
}

/// Write a file, and return its path for C.
fn written(writer: &Writer, path: &Path) -> CString {
    writer.write_to(std::fs::File::create(path).unwrap()).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

/// A program loops over as many logits as the vocabulary has tokens.
#[test]
fn a_vocabulary_of_another_size_than_the_logits_is_refused() {
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let tokens = gguf.optional::<&[&str]>("tokenizer.ggml.tokens").unwrap().unwrap();
    for n in [tokens.len() - 1, tokens.len() + 1] {
        let names: Vec<String> = (0..n).map(|i| format!("token {i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut writer = Writer::new();
        for entry in gguf.metadata() {
            match entry.key {
                "tokenizer.ggml.scores" => writer.set(entry.key, vec![0f32; n]).unwrap(),
                "tokenizer.ggml.token_type" => writer.set(entry.key, vec![1; n]).unwrap(),
                "tokenizer.ggml.tokens" => writer.set(entry.key, names.clone()).unwrap(),
                _ => writer.set(entry.key, entry.value.clone()).unwrap(),
            };
        }
        for info in gguf.tensors() {
            writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = written(&writer, &folder.path().join("model.gguf"));
        assert!(model::llama_model_load_from_file(text(&path), ModelParams::default()).is_null());
        assert!(last_error().contains(&format!("the vocabulary has {n} tokens")), "{}", last_error());
    }
}

/// The parts of a split model may have any names.
#[test]
fn a_model_is_loaded_from_the_parts_that_are_named() {
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf")).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let n_first = gguf.tensors().len() / 2;
    let paths = [0u16, 1].map(|no| {
        let mut writer = Writer::new();
        for entry in gguf.metadata().iter().filter(|_| no == 0) {
            writer.set(entry.key, entry.value.clone()).unwrap();
        }
        writer.set("split.no", no).unwrap().set("split.count", 2u16).unwrap();
        writer.set("split.tensors.count", gguf.tensors().len() as i32).unwrap();
        for info in
            gguf.tensors().iter().enumerate().filter(|(i, _)| (*i < n_first) == (no == 0)).map(|(_, t)| t)
        {
            writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
        }
        written(&writer, &folder.path().join(["head", "tail"][usize::from(no)]))
    });
    let parts = [text(&paths[0]), text(&paths[1])];
    let load = |n| model::llama_model_load_from_splits(input(&parts), n, ModelParams::default());
    assert!(!load(2).is_null(), "{}", last_error());
    assert!(load(1).is_null() && load(0).is_null());
}

#[test]
fn models_tell_their_parts_and_how_they_rotate() {
    let load = |name: &str| {
        let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        let path = CString::new(path).unwrap();
        let handle = model::llama_model_load_from_file(text(&path), ModelParams::default());
        assert!(!handle.is_null(), "{}", last_error());
        handle
    };
    let parts =
        |name| (model::llama_model_has_encoder(load(name)), model::llama_model_has_decoder(load(name)));
    assert_eq!(parts("llama"), (false, true));
    assert_eq!(parts("bert"), (false, true));
    assert_eq!(parts("t5"), (true, true));
    assert_eq!(parts("t5encoder"), (true, false));
    let rotations =
        [("llama", 0), ("qwen2", 2), ("qwen2vl", 8), ("qwen3vlmoe", 40), ("qwen35", 40), ("mamba", -1)];
    for (name, number) in rotations {
        assert_eq!(model::llama_model_rope_type(load(name)), number, "{name}");
    }
}

/// The space behind a token that was removed in front is part of the text.
#[test]
fn a_text_without_its_first_token_keeps_its_space() {
    let (handle, mut tokens) = (open_with(&[], None), [0; 4]);
    assert_eq!(vocab::llama_tokenize(handle, input(b"the"), 3, output(&mut tokens), 4, 1, 0), 2);
    let tokens = [tokens[0], tokens[1]];
    assert_eq!(tokens[0], vocab::llama_vocab_bos(handle));
    let written = |tokens: &[i32], remove: u8| {
        let (mut bytes, n) = ([0u8; 32], tokens.len() as i32);
        let len = vocab::llama_detokenize(handle, input(tokens), n, output(&mut bytes), 32, remove, 0);
        String::from_utf8(bytes[..len as usize].to_vec()).unwrap()
    };
    assert_eq!(written(&tokens, 1), " the");
    assert_eq!(written(&tokens, 0), " the");
    assert_eq!(written(&tokens[1..], 1), "the");
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
