//! Folders that say what published ones do in their own ways: each becomes the file of an equal
//! folder in the usual way.

use std::fs;
use std::path::PathBuf;

use backstitch_convert::{Error, Options, OutType, Plan};
use backstitch_models::Model;
use backstitch_models::gguf::{Gguf, TensorInfo};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Width of the models, also of their keys and values; the heads of queries have 8 dimensions.
const WIDTH: usize = 16;

/// A tensor of a folder: name, shape, values.
type Stored = (String, Vec<usize>, Vec<f32>);

/// A folder to be converted.
struct Made {
    temp: TempDir,
    folder: PathBuf,
}

impl Made {
    /// Write a folder with a vocabulary of four tokens.
    fn new(config: &Value, tensors: &[Stored]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        // The name of the folder becomes that of the model.
        let folder = temp.path().join("model");
        fs::create_dir(&folder).unwrap();
        let made = Self { temp, folder };
        made.write("config.json", config.to_string());
        let tensors = tensors.iter().map(|(name, shape, values)| {
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            (name.clone(), "F32", shape.clone(), bytes)
        });
        made.write("model.safetensors", safetensors(tensors.collect()));
        let tokenizer = json!({
            "pre_tokenizer": { "type": "ByteLevel", "use_regex": true },
            "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2, "c": 3 }, "merges": ["a b"] },
        });
        made.write("tokenizer.json", tokenizer.to_string());
        made
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.folder.join(name), content).unwrap();
    }

    fn plan(&self) -> Result<Plan, Error> {
        Plan::of_folder(&self.folder, &Options { out_type: OutType::F32, pre_tokenizer: None })
    }

    fn convert(&self) -> Vec<u8> {
        assert!(self.temp.path().is_dir());
        let (mut plan, mut bytes) = (self.plan().unwrap(), Vec::new());
        plan.write(&mut bytes, |_, _| {}).unwrap();
        bytes
    }
}

/// Return the bytes of a safetensors file: name, type, shape and data of each tensor.
fn safetensors(tensors: Vec<(String, &str, Vec<usize>, Vec<u8>)>) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name, json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        data.extend(bytes);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Return the numbers of a model of a class with one layer, and more.
fn config(class: &str, more: Value) -> Value {
    let mut config = json!({
        "architectures": [class], "num_hidden_layers": 1, "hidden_size": WIDTH, "intermediate_size": 24,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "vocab_size": 4,
    });
    let Value::Object(more) = more else { panic!("{more} is no object") };
    config.as_object_mut().unwrap().extend(more);
    config
}

/// Make a tensor whose values depend on its shape and a seed.
fn tensor(name: &str, shape: &[usize], seed: usize) -> Stored {
    let n: usize = shape.iter().product();
    let values = (0..n).map(|i| ((i * 7 + seed * 13) % 31) as f32 / 16.0 - 1.0).collect();
    (name.into(), shape.into(), values)
}

/// Return the tensors of a layer's attention and norms, and those outside of layers.
fn attention() -> Vec<Stored> {
    let layer = |name: &str, shape: &[usize], seed| tensor(&format!("model.layers.0.{name}"), shape, seed);
    vec![
        tensor("model.embed_tokens.weight", &[4, WIDTH], 1),
        tensor("model.norm.weight", &[WIDTH], 2),
        layer("input_layernorm.weight", &[WIDTH], 3),
        layer("post_attention_layernorm.weight", &[WIDTH], 4),
        layer("self_attn.q_proj.weight", &[WIDTH, WIDTH], 5),
        layer("self_attn.k_proj.weight", &[WIDTH, WIDTH], 6),
        layer("self_attn.v_proj.weight", &[WIDTH, WIDTH], 7),
        layer("self_attn.o_proj.weight", &[WIDTH, WIDTH], 8),
    ]
}

/// Return the tensors of a layer's gated network of 24 neurons.
fn network() -> Vec<Stored> {
    let layer =
        |name: &str, shape: &[usize], seed| tensor(&format!("model.layers.0.mlp.{name}"), shape, seed);
    vec![
        layer("gate_proj.weight", &[24, WIDTH], 9),
        layer("up_proj.weight", &[24, WIDTH], 10),
        layer("down_proj.weight", &[WIDTH, 24], 11),
    ]
}

/// Check that two files hold the same keys and tensors, in whatever order, and are models.
fn expect_same(ours: &[u8], wanted: &[u8]) {
    let (one, other) = (Gguf::parse(ours).unwrap(), Gguf::parse(wanted).unwrap());
    let keys = |gguf: &Gguf<'_>| {
        let mut keys: Vec<String> = gguf.metadata().iter().map(|entry| format!("{entry:?}")).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&one), keys(&other));
    let tensors = |gguf: &Gguf<'_>| {
        let entry = |tensor: &TensorInfo<'_>| {
            (tensor.name().to_owned(), tensor.shape().to_vec(), gguf.tensor_data(tensor).to_vec())
        };
        let mut tensors: Vec<_> = gguf.tensors().iter().map(entry).collect();
        tensors.sort();
        tensors
    };
    assert!(tensors(&one) == tensors(&other));
    assert!(Model::from_bytes(ours).is_ok());
}

/// Return the bytes of a SentencePiece model of a few pieces.
fn sentencepiece() -> Vec<u8> {
    let pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("\u{2581}a", 1)];
    let piece = |(text, kind): (&str, u8)| {
        let message = [&[0x0a, text.len() as u8], text.as_bytes(), &[0x18, kind]].concat();
        [&[0x0a, message.len() as u8][..], &message].concat()
    };
    pieces.into_iter().flat_map(piece).collect()
}

#[test]
fn gemma_3_without_a_vocabulary_size_has_that_of_its_class() {
    const N_TOKENS: usize = 262_208;
    let text = json!({
        "hidden_size": 2, "intermediate_size": 4, "num_hidden_layers": 1, "sliding_window": 16,
        "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
    });
    let config = json!({ "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text });
    let tensors = [
        tensor("language_model.model.embed_tokens.weight", &[N_TOKENS, 2], 1),
        tensor("language_model.model.layers.0.input_layernorm.weight", &[2], 2),
        tensor("vision_tower.vision_model.embeddings.patch_embedding.weight", &[2], 3),
    ];
    let made = Made::new(&config, &tensors);
    made.write("tokenizer.model", sentencepiece());
    let bytes = made.convert();
    let gguf = Gguf::parse(&bytes).unwrap();
    let tokens = gguf.required::<&[&str]>("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[3], tokens[4]), (N_TOKENS, "\u{2581}a", "[PAD4]"));
    assert_eq!(gguf.tensor("token_embd.weight").unwrap().shape(), [N_TOKENS, 2]);
}

/// Factors of Granite, with numbers of state spaces that only some layers have.
fn granite(class: &str, more: Value) -> Value {
    let mut config = config(
        class,
        json!({
            "attention_multiplier": 0.5, "embedding_multiplier": 3.0, "residual_multiplier": 0.25,
            "logits_scaling": 2.0, "shared_intermediate_size": 24, "head_dim": 99,
            "layer_types": ["attention"], "mamba_expand": 2, "mamba_n_heads": 4,
        }),
    );
    let Value::Object(more) = more else { panic!("{more} is no object") };
    config.as_object_mut().unwrap().extend(more);
    config
}

#[test]
fn granite_4_without_state_spaces_is_granite_3() {
    let joined = |mut tensors: Vec<Stored>| {
        let (down, up) = (tensors.pop().unwrap(), tensors.pop().unwrap());
        let gate = tensors.pop().unwrap();
        let name = |part: &str| format!("model.layers.0.shared_mlp.{part}_linear.weight");
        let rows = [gate.2, up.2].concat();
        vec![(name("input"), vec![48, WIDTH], rows), (name("output"), down.1, down.2)]
    };
    let dense = json!({ "num_local_experts": 0, "num_experts_per_tok": 0 });
    let ours = Made::new(
        &granite("GraniteMoeHybridForCausalLM", dense.clone()),
        &[attention(), joined(network())].concat(),
    );
    let wanted = Made::new(&granite("GraniteForCausalLM", dense), &[attention(), network()].concat());
    expect_same(&ours.convert(), &wanted.convert());
    // The shared network's size is that of the only one.
    let other = json!({ "num_local_experts": 0, "num_experts_per_tok": 0, "intermediate_size": 7 });
    let ours =
        Made::new(&granite("GraniteMoeHybridForCausalLM", other), &[attention(), joined(network())].concat());
    expect_same(&ours.convert(), &wanted.convert());

    let experts = json!({ "num_local_experts": 2, "num_experts_per_tok": 1 });
    let layer = |name: &str, shape: &[usize], seed| {
        tensor(&format!("model.layers.0.block_sparse_moe.{name}.weight"), shape, seed)
    };
    let tensors = [
        attention(),
        joined(network()),
        vec![
            layer("router.layer", &[2, WIDTH], 12),
            layer("input_linear", &[2, 48, WIDTH], 13),
            layer("output_linear", &[2, WIDTH, 24], 14),
        ],
    ]
    .concat();
    let ours = Made::new(&granite("GraniteMoeHybridForCausalLM", experts.clone()), &tensors).convert();
    let wanted = Made::new(&granite("GraniteMoeSharedForCausalLM", experts), &tensors).convert();
    expect_same(&ours, &wanted);
}

#[test]
fn experts_of_nemotron_between_projections_keep_them() {
    let config = config(
        "NemotronHForCausalLM",
        json!({
            "layers_block_type": ["moe"], "mamba_num_heads": 2, "mamba_head_dim": 8, "conv_kernel": 4,
            "ssm_state_size": 8, "n_groups": 1, "head_dim": 8, "layer_norm_epsilon": 1e-5,
            "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1,
            "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 24,
            "moe_latent_size": 8, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
        }),
    );
    let layer = |name: &str, shape: &[usize], seed| tensor(&format!("backbone.layers.0.{name}"), shape, seed);
    let mut tensors = vec![
        tensor("backbone.embeddings.weight", &[8, WIDTH], 1),
        tensor("backbone.norm_f.weight", &[WIDTH], 2),
        tensor("lm_head.weight", &[8, WIDTH], 3),
        layer("norm.weight", &[WIDTH], 4),
        layer("mixer.gate.weight", &[2, WIDTH], 5),
        layer("mixer.gate.e_score_correction_bias", &[2], 6),
        layer("mixer.shared_experts.up_proj.weight", &[24, WIDTH], 7),
        layer("mixer.shared_experts.down_proj.weight", &[WIDTH, 24], 8),
        layer("mixer.fc1_latent_proj.weight", &[8, WIDTH], 9),
        layer("mixer.fc2_latent_proj.weight", &[WIDTH, 8], 10),
    ];
    for expert in 0..2 {
        let name = |matrix: &str| format!("mixer.experts.{expert}.{matrix}_proj.weight");
        tensors.push(layer(&name("up"), &[24, 8], 11 + expert));
        tensors.push(layer(&name("down"), &[8, 24], 13 + expert));
    }
    let bytes = Made::new(&config, &tensors).convert();
    let gguf = Gguf::parse(&bytes).unwrap();
    assert_eq!(gguf.u32("nemotron_h_moe.moe_latent_size").unwrap(), 8);
    for (name, from, shape) in [("down", 8, [8, WIDTH]), ("up", 9, [WIDTH, 8])] {
        let tensor = gguf.tensor(&format!("blk.0.ffn_latent_{name}.weight")).unwrap();
        assert_eq!(tensor.shape(), shape, "{name}");
        let wanted: Vec<u8> = tensors[from].2.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(gguf.tensor_data(&tensor), wanted, "{name}");
    }
    assert!(Model::from_bytes(&bytes).is_ok());
}

#[test]
fn the_model_that_thinks_is_that_of_qwen_2_5_omni() {
    let rope = json!({ "rope_scaling": { "type": "mrope", "mrope_section": [1, 1, 2] } });
    let biases = |name: &str, seed| tensor(&format!("model.layers.0.self_attn.{name}.bias"), &[WIDTH], seed);
    let biases = vec![biases("q_proj", 12), biases("k_proj", 13), biases("v_proj", 14)];
    let tensors = [attention(), network(), biases].concat();
    let wanted = Made::new(&config("Qwen2VLForConditionalGeneration", rope.clone()), &tensors);
    let mut text = config("", rope);
    text.as_object_mut().unwrap().remove("architectures");
    let nested = json!({
        "architectures": ["Qwen2_5OmniModel"],
        "talker_config": { "hidden_size": 99, "num_hidden_layers": 99 },
        "thinker_config": { "text_config": text, "vision_config": { "hidden_size": 98 } },
    });
    let mut own: Vec<Stored> = tensors;
    own.iter_mut().for_each(|tensor| tensor.0.insert_str(0, "thinker."));
    own.push(tensor("talker.model.embed_tokens.weight", &[4, 99], 15));
    own.push(tensor("thinker.audio_tower.proj.weight", &[4, 99], 16));
    let ours = Made::new(&nested, &own).convert();
    let wanted = wanted.convert();
    expect_same(&ours, &wanted);
}

#[test]
fn matrices_of_8_bits_with_one_scale_are_multiplied_by_it() {
    const SCALE: f32 = 0.375;
    let mut tensors = [attention(), network()].concat();
    let mut scaled = Vec::new();
    for (name, shape, values) in &mut tensors {
        if shape.len() == 1 || !name.contains(".layers.") {
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            scaled.push((name.clone(), "F32", shape.clone(), bytes));
            continue;
        }
        // 1 and -1 in 8 bits.
        let bytes = values.iter().map(|x| if *x < 0.0 { 0xb8 } else { 0x38 }).collect();
        scaled.push((name.clone(), "F8_E4M3", shape.clone(), bytes));
        scaled.push((format!("{name}_scale_inv"), "F32", vec![], SCALE.to_le_bytes().into()));
        let of_inputs = name.replace(".weight", ".activation_scale");
        scaled.push((of_inputs, "F32", vec![], 2f32.to_le_bytes().into()));
        values.iter_mut().for_each(|x| *x = if *x < 0.0 { -SCALE } else { SCALE });
    }
    let quantization = json!({ "quantization_config": {
        "activation_scheme": "static", "quant_method": "fp8", "weight_block_size": null,
    } });
    let ours = Made::new(&config("LlamaForCausalLM", quantization), &[]);
    ours.write("model.safetensors", safetensors(scaled));
    let wanted = Made::new(&config("LlamaForCausalLM", json!({})), &tensors);
    expect_same(&ours.convert(), &wanted.convert());
}

#[test]
fn vocabularies_with_ranks_become_those_with_merges() {
    // The special tokens of Mistral, then a, b and ab, and one that the model does not have.
    let special = ["<unk>", "<s>", "</s>", "<pad>"];
    let tensors = || {
        let mut tensors = [attention(), network()].concat();
        tensors[0] = tensor("model.embed_tokens.weight", &[7, WIDTH], 1);
        tensors
    };
    let numbers = || config("MistralForCausalLM", json!({ "vocab_size": 7 }));
    let list = |key: &str, text: &str| -> Vec<Value> {
        let token = |(rank, token)| json!({ key: rank, text: token, "is_control": true, "special": true });
        special.iter().enumerate().map(token).collect()
    };
    let ranked = |(rank, bytes)| json!({ "rank": rank, "token_bytes": bytes });
    let vocab: Vec<Value> = ["YQ==", "Yg==", "YWI=", "Yw=="].iter().enumerate().map(ranked).collect();
    let pattern = concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    );
    let tekken = json!({
        "config": { "pattern": pattern, "default_vocab_size": 7, "default_num_special_tokens": 4 },
        "vocab": vocab,
        "special_tokens": list("rank", "token_str"),
    });
    let ours = Made::new(&numbers(), &tensors());
    fs::remove_file(ours.folder.join("tokenizer.json")).unwrap();
    ours.write("tekken.json", tekken.to_string());
    let wanted = Made::new(&numbers(), &tensors());
    let json = json!({
        "added_tokens": list("id", "content"),
        "pre_tokenizer": { "type": "Split", "pattern": { "Regex": pattern } },
        "model": { "type": "BPE", "vocab": { "a": 4, "b": 5, "ab": 6 }, "merges": ["a b"] },
    });
    wanted.write("tokenizer.json", json.to_string());
    let mut roles = json!({
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "add_bos_token": true, "add_eos_token": false,
    });
    wanted.write("tokenizer_config.json", roles.to_string());
    let bytes = ours.convert();
    expect_same(&bytes, &wanted.convert());
    assert_eq!(Gguf::parse(&bytes).unwrap().str("tokenizer.ggml.pre").unwrap(), "tekken");

    // Kimi's files list the special tokens elsewhere, and tell no expression.
    fs::remove_file(ours.folder.join("tekken.json")).unwrap();
    ours.write("tiktoken.model", "YQ== 4\nYg== 5\nYWI= 6\n");
    let entries = list("id", "content").into_iter().map(|token| (token["id"].to_string(), token));
    roles["added_tokens_decoder"] = Value::Object(entries.collect());
    ours.write("tokenizer_config.json", roles.to_string());
    let error = ours.plan().unwrap_err();
    assert!(matches!(error, Error::UnknownPreTokenizer { .. }), "{error}");
    let options = Options { out_type: OutType::F32, pre_tokenizer: Some("tekken".into()) };
    let (mut plan, mut bytes) = (Plan::of_folder(&ours.folder, &options).unwrap(), Vec::new());
    plan.write(&mut bytes, |_, _| {}).unwrap();
    expect_same(&bytes, &wanted.convert());
}

#[test]
fn vocabularies_in_other_formats_are_named() {
    let made = Made::new(&config("MistralForCausalLM", json!({})), &[attention(), network()].concat());
    fs::remove_file(made.folder.join("tokenizer.json")).unwrap();
    let error = || made.plan().unwrap_err();
    assert!(matches!(error(), Error::MissingFile { .. }), "{}", error());
    made.write("vocab.json", "");
    assert!(matches!(error(), Error::UnreadVocabulary { .. }), "{}", error());
    let found = "vocab.json is no vocabulary that can be converted; put tokenizer.model or";
    assert!(error().to_string().contains(found), "{}", error());
}
