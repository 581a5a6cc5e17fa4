//! LoRA adapters: the files of llama.cpp's converter, and adapters that are damaged or belong to
//! another model.

mod folder;

use std::fs;
use std::path::{Path, PathBuf};

use backstitch_convert::{Error, OutType, Plan};
use backstitch_core::DType;
use backstitch_models::gguf::Gguf;
use serde_json::{Value, json};

/// Folders of adapters whose files another program made: see `goldens/README.md`.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/adapters").join(name)
}

fn convert(folder: &Path, base: &Path, out_type: OutType) -> Vec<u8> {
    let mut plan = Plan::of_adapter(folder, base, out_type).unwrap();
    let mut bytes = Vec::new();
    plan.write(&mut bytes, |_, _| {}).unwrap();
    bytes
}

#[test]
fn adapters_become_the_tensors_and_keys_of_the_reference() {
    for name in ["llama", "mixtral"] {
        let bytes = convert(&golden(name), &golden(name).join("base"), OutType::F32);
        let wanted = fs::read(golden(&format!("{name}.gguf"))).unwrap();
        let (ours, wanted) = (Gguf::parse(&bytes).unwrap(), Gguf::parse(&wanted).unwrap());
        assert_eq!(ours.tensors().len(), wanted.tensors().len(), "{name}");
        for tensor in wanted.tensors() {
            let found = ours.tensor(tensor.name()).unwrap_or_else(|| panic!("{} is missing", tensor.name()));
            assert_eq!(found.dtype(), tensor.dtype(), "{name}: {}", tensor.name());
            assert_eq!(found.shape(), tensor.shape(), "{name}: {}", tensor.name());
            assert!(ours.tensor_data(&found) == wanted.tensor_data(tensor), "{name}: {}", tensor.name());
        }
        for key in ["general.architecture", "general.type", "adapter.type"] {
            let text = |gguf: &Gguf<'_>| gguf.required::<&str>(key).map(str::to_owned);
            assert_eq!(text(&ours).unwrap(), text(&wanted).unwrap(), "{name}: {key}");
        }
        let alpha = |gguf: &Gguf<'_>| gguf.required::<f32>("adapter.lora.alpha").unwrap();
        assert_eq!(alpha(&ours), alpha(&wanted), "{name}");
    }
}

#[test]
fn factors_have_the_type_that_was_asked_for() {
    let base = golden("llama").join("base");
    for (out_type, a, b) in [
        (OutType::F16, DType::F16, DType::F16),
        (OutType::BF16, DType::BF16, DType::BF16),
        // The rows of B are as long as the rank, which is no block.
        (OutType::Q8_0, DType::Q8_0, DType::F16),
        (OutType::Auto, DType::F16, DType::F16),
    ] {
        let bytes = convert(&golden("llama"), &base, out_type);
        let gguf = Gguf::parse(&bytes).unwrap();
        let dtype = |name: &str| gguf.tensor(name).unwrap().dtype();
        assert_eq!(dtype("blk.1.ffn_up.weight.lora_a"), a, "{out_type:?}");
        assert_eq!(dtype("blk.1.ffn_up.weight.lora_b"), b, "{out_type:?}");
    }
}

/// An adapter of the llama golden that a test changes.
struct Copy {
    folder: tempfile::TempDir,
    tensors: Vec<folder::Stored>,
    config: Value,
    base: PathBuf,
}

impl Copy {
    /// Make an adapter of rank 2 for a matrix of 64 columns and rows.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name =
            |factor: &str| format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{factor}.weight");
        let tensors =
            vec![(name("A"), vec![2, 64], vec![0.5; 128]), (name("B"), vec![64, 2], vec![0.25; 128])];
        let config = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 3 });
        Self { folder, tensors, config, base: golden("llama").join("base") }
    }

    fn plan(&self) -> Result<Plan, Error> {
        let folder = self.folder.path();
        fs::write(folder.join("adapter_config.json"), self.config.to_string()).unwrap();
        fs::write(folder.join("adapter_model.safetensors"), folder::safetensors(&self.tensors)).unwrap();
        Plan::of_adapter(folder, &self.base, OutType::F32)
    }

    fn alpha(&self) -> f32 {
        let mut bytes = Vec::new();
        self.plan().unwrap().write(&mut bytes, |_, _| {}).unwrap();
        Gguf::parse(&bytes).unwrap().required("adapter.lora.alpha").unwrap()
    }
}

/// Change an adapter, and check that the error has these words.
fn refused(change: impl FnOnce(&mut Copy), words: &[&str]) {
    let mut copy = Copy::new();
    assert!(copy.plan().is_ok());
    change(&mut copy);
    let error = copy.plan().unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}\nwanted: {words:?}");
}

#[test]
fn adapters_for_another_model_are_refused() {
    let set = |key: &'static str, value: Value| {
        move |copy: &mut Copy| {
            let text = fs::read(copy.base.join("config.json")).unwrap();
            let mut config: Value = serde_json::from_slice(&text).unwrap();
            config[key] = value;
            let base = copy.folder.path().join("base");
            fs::create_dir(&base).unwrap();
            fs::write(base.join("config.json"), config.to_string()).unwrap();
            copy.base = base;
        }
    };
    let width = ["adapter_model.safetensors: tensor", "q_proj.lora_A", "[64, 64]", "128 columns, the width"];
    refused(set("hidden_size", json!(128)), &width);
    let heads = ["q_proj.lora_A", "[64, 64]", "a multiple of 5 as dimension 0"];
    refused(set("num_attention_heads", json!(5)), &heads);
    refused(set("architectures", json!(["NoSuchModel"])), &["NoSuchModel"]);
    let rename = |name: &'static str| {
        move |copy: &mut Copy| {
            for tensor in &mut copy.tensors {
                tensor.0 = tensor.0.replace("layers.0.self_attn.q_proj", name);
            }
        }
    };
    refused(rename("layers.7.self_attn.q_proj"), &["layers.7", "wanted a layer below 2"]);
    refused(rename("layers.0.self_attn.z_proj"), &["z_proj", "is none that llama has"]);
    // The folder of the base model holds its weights: another width of the heads' network.
    refused(
        |copy| {
            let temp = copy.folder.path().join("base");
            fs::create_dir(&temp).unwrap();
            folder::write(&temp);
            copy.base = temp;
        },
        &["q_proj.lora_A", "[64, 64]", "as \"blk.0.attn_q.weight\" has in"],
    );
}

#[test]
fn factors_that_do_not_fit_are_refused() {
    let ranks = ["q_proj.lora_B.weight", "the shape [32, 4]", "2 columns, the rank of"];
    refused(|copy| copy.tensors[1].1 = vec![32, 4], &ranks);
    refused(|copy| copy.tensors.truncate(1), &["q_proj.weight\" is missing", "only one of its two factors"]);
    refused(|copy| copy.config["r"] = json!(8), &["rank 2", "wanted 8, as adapter_config.json says"]);
    let other = ("base_model.model.lm_head.weight".to_owned(), vec![1, 2], vec![0.0; 2]);
    refused(move |copy| copy.tensors.push(other), &["lm_head.weight", "a name of no factor"]);
    refused(|copy| copy.tensors[0].1 = vec![2, 8, 8], &["[2, 8, 8]", "2 dimensions"]);
    let none =
        |copy: &mut Copy| copy.tensors = vec![("base_layer.base_layer.weight".into(), vec![1], vec![0.0])];
    refused(none, &["lora_A", "has no tensors that it changes"]);
}

#[test]
fn adapters_of_other_kinds_are_refused() {
    for (key, value, words) in [
        ("peft_type", json!("IA3"), "wanted \"LORA\""),
        ("use_dora", json!(true), "no magnitudes"),
        ("lora_bias", json!(true), "no biases"),
        ("modules_to_save", json!(["lm_head"]), "no whole modules"),
        ("trainable_token_indices", json!([1]), "no single rows"),
        ("alpha_pattern", json!({ "q_proj": 4 }), "one alpha"),
        ("lora_alpha", json!("big"), "wanted a number"),
        ("lora_alpha", json!(null), "is nothing"),
        ("invocation_string", json!("Now"), "alora_invocation_tokens"),
        ("alora_invocation_tokens", json!([-1]), "a list of tokens"),
    ] {
        refused(|copy| copy.config[key] = value, &["adapter_config.json: key", key, words]);
    }
}

/// Return the elements of a tensor of F32.
fn floats(gguf: &Gguf<'_>, name: &str) -> Vec<f32> {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("{name} is missing"));
    let mut values = vec![0.0; tensor.n_elements()];
    tensor.dtype().decode(gguf.tensor_data(&tensor), &mut values).unwrap();
    values
}

#[test]
fn heads_of_values_are_reordered_in_the_factor_that_has_them() {
    const MODULE: &str = "base_model.model.model.layers.0.linear_attn";
    // Two heads of keys, each with two heads of values, all of 16 dimensions: rows 64 to 127 of the
    // first matrix are values, as are all columns of the second.
    let base = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["Qwen3_5MoeForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "head_dim": 16,
        "linear_key_head_dim": 16, "linear_num_key_heads": 2,
        "linear_value_head_dim": 16, "linear_num_value_heads": 4,
    });
    fs::write(base.path().join("config.json"), config.to_string()).unwrap();
    let mut copy = Copy { base: base.path().into(), ..Copy::new() };
    let counting = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<_>>();
    copy.tensors = [("in_proj_qkv", 128), ("out_proj", 64)]
        .into_iter()
        .flat_map(|(module, n_rows)| {
            let name = |factor: &str| format!("{MODULE}.{module}.lora_{factor}.weight");
            let a = (name("A"), vec![2, 64], counting(128));
            [a, (name("B"), vec![n_rows, 2], counting(2 * n_rows))]
        })
        .collect();
    let mut bytes = Vec::new();
    copy.plan().unwrap().write(&mut bytes, |_, _| {}).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    // The heads of values in their new order.
    let of_values = |i: usize| [0, 2, 1, 3][i / 16] * 16 + i % 16;
    let of_rows = |row: usize| if row < 64 { row } else { 64 + of_values(row - 64) };
    let rows = (0..128).flat_map(|row| [2 * of_rows(row), 2 * of_rows(row) + 1]).map(|i| i as f32);
    assert_eq!(floats(&gguf, "blk.0.attn_qkv.weight.lora_b"), rows.collect::<Vec<_>>());
    assert_eq!(floats(&gguf, "blk.0.attn_qkv.weight.lora_a"), counting(128));
    let columns = (0..128).map(|i| (i / 64 * 64 + of_values(i % 64)) as f32);
    assert_eq!(floats(&gguf, "blk.0.ssm_out.weight.lora_a"), columns.collect::<Vec<_>>());
    assert_eq!(floats(&gguf, "blk.0.ssm_out.weight.lora_b"), counting(128));
}

#[test]
fn factors_are_finite() {
    let mut copy = Copy::new();
    copy.tensors[1].2[3] = f32::INFINITY;
    let error = copy.plan().unwrap().write(std::io::sink(), |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("q_proj.lora_B.weight\" has inf as element "), "{error}");
}

#[test]
fn files_that_are_missing_are_named() {
    let copy = Copy::new();
    copy.plan().unwrap();
    let folder = copy.folder.path();
    let again = || Plan::of_adapter(folder, &copy.base, OutType::F32).unwrap_err().to_string();
    fs::rename(
        folder.join("adapter_model.safetensors"),
        folder.join("adapter_model-00001-of-00002.safetensors"),
    )
    .unwrap();
    assert!(again().contains("all 2 files that the names promise, but 1"), "{}", again());
    fs::remove_file(folder.join("adapter_model-00001-of-00002.safetensors")).unwrap();
    assert!(again().contains("has no adapter_model.safetensors"), "{}", again());
    fs::remove_file(folder.join("adapter_config.json")).unwrap();
    assert!(again().contains("has no adapter_config.json"), "{}", again());
    let nowhere = Plan::of_adapter(&golden("llama"), folder, OutType::F32).unwrap_err().to_string();
    assert!(nowhere.contains("has no config.json"), "{nowhere}");
}

#[test]
fn the_scale_of_rank_stabilised_adapters_is_that_of_training() {
    let mut copy = Copy::new();
    assert_eq!(copy.alpha(), 3.0);
    // An engine divides by the rank, 2; training divided by its root.
    copy.config["use_rslora"] = json!(true);
    assert_eq!(copy.alpha(), 3.0 * 2f32.sqrt());
    copy.config["rank_pattern"] = json!({ "q_proj": 2 });
    assert_eq!(copy.alpha(), 3.0 * 2f32.sqrt());
}
