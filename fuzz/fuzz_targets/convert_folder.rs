//! Folders of models and adapters, in which one file is arbitrary and the others are valid.
//!
//! The first byte chooses the file: `config.json`, `generation_config.json`, `tokenizer.json`,
//! `tokenizer_config.json`, `tokenizer.model`, `adapter_config.json` or the header of the adapter's
//! factors. The rest is its content. The folder must be refused with an error that can be printed,
//! or become a file that the reader of GGUF files accepts. Seeds are the valid files.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use backstitch_convert::{Error, Options, OutType, Plan};
use backstitch_models::gguf::Gguf;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// The files that can be arbitrary.
const FILES: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "adapter_config.json",
    "adapter_model.safetensors",
];
/// Number of the first file of an adapter.
const ADAPTER: usize = 5;
/// Width of the model, rows of its embedding and of its network.
const WIDTH: usize = 8;

/// A folder with a model of one layer, and the adapter of one matrix.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in valid() {
        fs::write(folder.path().join(name), bytes).expect("the file");
    }
    folder
});

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let number = usize::from(*first) % FILES.len();
    let (folder, name) = (FOLDER.path(), FILES[number]);
    // Data behind the header, as many as the valid one describes.
    let factors = || [&(rest.len() as u64).to_le_bytes(), rest, &[0; 2 * 4 * WIDTH * 4]].concat();
    let bytes = if name.ends_with(".safetensors") { factors() } else { rest.to_vec() };
    fs::write(folder.join(name), bytes).expect("the file");
    check(plan(folder, number));
    // The model of SentencePiece comes before tokenizer.json, so it must not stay.
    match valid().into_iter().find(|file| file.0 == name) {
        Some((_, bytes)) => fs::write(folder.join(name), bytes).expect("the file"),
        None => fs::remove_file(folder.join(name)).expect("the file was there"),
    }
});

fn plan(folder: &Path, number: usize) -> Result<Plan, Error> {
    if number >= ADAPTER {
        return Plan::of_adapter(folder, folder, OutType::F32);
    }
    let pre_tokenizer = Some("default".to_owned());
    Plan::of_folder(folder, &Options { out_type: OutType::F32, pre_tokenizer })
}

fn check(planned: Result<Plan, Error>) {
    let written = planned.and_then(|mut plan| {
        let mut bytes = Vec::new();
        plan.write(&mut bytes, |done, total| assert!(done <= total)).map(|()| bytes)
    });
    match written {
        Ok(bytes) => assert!(Gguf::parse(&bytes).is_ok(), "the file is refused"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Return the valid files. There is none of SentencePiece.
fn valid() -> Vec<(&'static str, Vec<u8>)> {
    let text = |value: Value| value.to_string().into_bytes();
    let vocab: Map<String, Value> =
        ["<s>", "</s>", "a", "b", "ab", "Ġ", "Ġa", "c"].iter().zip(0..).map(|(t, i)| ((*t).into(), json!(i))).collect();
    let added = |id: u32, content: &str| json!({ "id": id, "content": content, "special": true });
    let layer = |name: &str, shape: [usize; 2]| (format!("model.layers.0.{name}.weight"), shape.to_vec());
    let (square, key) = ([WIDTH, WIDTH], [WIDTH / 2, WIDTH]);
    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), square.to_vec()),
        ("model.norm.weight".to_owned(), vec![WIDTH]),
        ("model.layers.0.input_layernorm.weight".to_owned(), vec![WIDTH]),
        ("model.layers.0.post_attention_layernorm.weight".to_owned(), vec![WIDTH]),
    ];
    for name in ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"] {
        tensors.push(layer(name, square));
    }
    tensors.extend([layer("self_attn.k_proj", key), layer("self_attn.v_proj", key)]);
    let factor = |name: &str, shape: Vec<usize>| {
        (format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{name}.weight"), shape)
    };
    let factors = [factor("A", vec![4, WIDTH]), factor("B", vec![WIDTH, 4])];
    vec![
        ("config.json", text(json!({
            "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": WIDTH,
            "intermediate_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "vocab_size": WIDTH,
        }))),
        ("generation_config.json", text(json!({ "temperature": 0.5, "top_k": 20, "top_p": 0.9 }))),
        ("tokenizer.json", text(json!({
            "added_tokens": [added(0, "<s>"), added(1, "</s>")], "pre_tokenizer": { "type": "ByteLevel" },
            "model": { "type": "BPE", "vocab": vocab, "merges": ["a b", "Ġ a"] },
        }))),
        ("tokenizer_config.json", text(json!({ "bos_token": "<s>", "eos_token": "</s>", "chat_template": "x" }))),
        ("adapter_config.json", text(json!({ "peft_type": "LORA", "r": 4, "lora_alpha": 8 }))),
        ("adapter_model.safetensors", safetensors(&factors)),
        ("model.safetensors", safetensors(&tensors)),
    ]
}

/// Return a safetensors file whose tensors are zero.
fn safetensors(tensors: &[(String, Vec<usize>)]) -> Vec<u8> {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * 4;
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] }));
    }
    let header = Value::from(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.into_bytes());
    bytes.resize(bytes.len() + end, 0);
    bytes
}
