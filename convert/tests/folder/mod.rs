//! A Hugging Face folder made of the embedded model: its tensors as F32 in two shards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use backstitch_models::gguf::{Gguf, TensorInfo};
use serde_json::{Map, Value, json};

/// Names of layers' tensors in GGUF, and in the folder.
const NAMES: [(&str, &str); 16] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("ffn_norm", "pre_ff_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_gate.weight", "feed_forward.gate_proj.weight"),
    ("ffn_up.weight", "feed_forward.up_proj.weight"),
    ("ffn_down.weight", "feed_forward.down_proj.weight"),
    ("ssm_in.weight", "mamba.in_proj.weight"),
    ("ssm_out.weight", "mamba.out_proj.weight"),
    ("ssm_conv1d.weight", "mamba.conv1d.weight"),
    ("ssm_conv1d.bias", "mamba.conv1d.bias"),
    ("ssm_dt.bias", "mamba.dt_bias"),
    ("ssm_a", "mamba.A_log"),
    ("ssm_d", "mamba.D"),
];

/// Names of the two shards.
pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// A tensor of the folder: name, shape, values.
pub type Stored = (String, Vec<usize>, Vec<f32>);

/// Write the folder.
pub fn write(folder: &Path) {
    let gguf = Gguf::parse(backstitch_demo::GGUF).unwrap();
    let tensors: Vec<Stored> = gguf.tensors().iter().map(|tensor| stored(&gguf, tensor)).collect();
    let mut owners = BTreeMap::new();
    for (shard, tensors) in SHARDS.iter().zip(tensors.chunks(tensors.len().div_ceil(2))) {
        owners.extend(tensors.iter().map(|tensor| (tensor.0.clone(), *shard)));
        fs::write(folder.join(shard), safetensors(tensors)).unwrap();
    }
    let write = |name: &str, value: Value| fs::write(folder.join(name), value.to_string()).unwrap();
    write("model.safetensors.index.json", json!({ "metadata": {}, "weight_map": owners }));
    write("config.json", config());
    write("tokenizer.json", tokenizer(&gguf));
    let end = "<|endoftext|>";
    write("tokenizer_config.json", json!({ "bos_token": end, "eos_token": end, "add_bos_token": true }));
}

/// Return the bytes of a safetensors file.
pub fn safetensors(tensors: &[Stored]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Undo what the conversion does to a tensor.
fn stored(gguf: &Gguf<'_>, tensor: &TensorInfo<'_>) -> Stored {
    let mut shape = tensor.shape().to_vec();
    let mut values = vec![0.0; tensor.n_elements()];
    tensor.dtype().decode(gguf.tensor_data(tensor), &mut values).unwrap();
    let name = match tensor.name() {
        "token_embd.weight" => "model.embed_tokens.weight".into(),
        "output_norm.weight" => "model.final_layernorm.weight".into(),
        name => {
            let (layer, own) = name.strip_prefix("blk.").unwrap().split_once('.').unwrap();
            let theirs = NAMES.iter().find(|row| row.0 == own).unwrap().1;
            format!("model.layers.{layer}.{theirs}")
        }
    };
    if name.ends_with("A_log") {
        values.iter_mut().for_each(|a| *a = (-*a).ln());
    }
    if name.ends_with("A_log") || name.ends_with("mamba.D") {
        shape = vec![values.len()];
    }
    if name.ends_with("conv1d.weight") {
        shape.insert(1, 1);
    }
    (name, shape, values)
}

fn config() -> Value {
    json!({
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1",
        "hidden_size": 192, "num_hidden_layers": 6, "vocab_size": 2048,
        "intermediate_size": 512, "num_attention_heads": 6, "num_key_value_heads": 2,
        "head_dim": 32, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": true,
        "mamba_d_ssm": 192, "mamba_n_groups": 1, "mamba_d_state": 32, "mamba_d_head": 32,
        "mamba_n_heads": 6, "mamba_d_conv": 4,
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "key_multiplier": 1.0,
        "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0, "mlp_multipliers": [1.0, 1.0],
        "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0], "lm_head_multiplier": 1.0,
        "embedding_multiplier": 1.0,
    })
}

fn tokenizer(gguf: &Gguf<'_>) -> Value {
    let texts = |key: &str| gguf.required::<&[&str]>(key).unwrap();
    let vocab: Map<String, Value> = texts("tokenizer.ggml.tokens")
        .iter()
        .zip(0..)
        .map(|(text, id)| ((*text).into(), json!(id)))
        .collect();
    json!({
        "version": "1.0",
        "added_tokens": [{ "id": 0, "content": "<|endoftext|>", "special": true }],
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "use_regex": true },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocab, "merges": texts("tokenizer.ggml.merges") },
    })
}
