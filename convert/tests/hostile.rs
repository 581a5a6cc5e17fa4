//! Folders that are damaged or lie: each gets the error that says so, before anything is written.

mod folder;

use std::fs;
use std::path::Path;

use backstitch_convert::safetensors::read_header;
use backstitch_convert::{Error, Options, OutType, Plan};
use serde_json::{Value, json};

/// Write the folder, change it, and return the error of planning its file.
fn refused(change: impl FnOnce(&Path)) -> Error {
    let temp = tempfile::tempdir().unwrap();
    folder::write(temp.path());
    change(temp.path());
    Plan::of_folder(temp.path(), &Options::default()).expect_err("the folder is damaged")
}

/// Replace the header of the first shard.
fn set_header(folder: &Path, header: &str) {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 16]);
    fs::write(folder.join(folder::SHARDS[0]), bytes).unwrap();
}

/// Set a key of `config.json`.
fn set(folder: &Path, key: &str, value: Value) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(path, config.to_string()).unwrap();
}

#[test]
fn headers_that_lie_about_tensors_are_refused() {
    let tensor = |name: &str, shape: &str, start: u64, end: u64| {
        format!(r#""{name}": {{"dtype": "F32", "shape": {shape}, "data_offsets": [{start}, {end}]}}"#)
    };
    let max = u64::MAX;
    let headers = [
        // Overlapping, overflowing, of another size than the shape says, beyond the end.
        format!("{{{}, {}}}", tensor("a", "[2]", 0, 8), tensor("b", "[2]", 4, 12)),
        format!("{{{}}}", tensor("a", "[4294967296, 4294967296, 4]", 0, 16)),
        format!("{{{}}}", tensor("a", "[3]", 0, 16)),
        format!("{{{}}}", tensor("a", "[4]", max - 15, max)),
    ];
    for header in headers {
        let error = refused(|folder| set_header(folder, &header));
        assert!(matches!(error, Error::Tensor { .. }), "{header}: {error}");
    }
    let beyond = format!("{{{}}}", tensor("a", "[8]", 0, 32));
    let error = refused(|folder| set_header(folder, &beyond));
    assert!(matches!(error, Error::Format { .. }), "{error}");
}

#[test]
fn files_that_are_cut_or_too_long_are_refused() {
    let shard = |folder: &Path| folder.join(folder::SHARDS[1]);
    for n_bytes in [0, 7, 8, 100, 100_000] {
        let error = refused(|folder| {
            fs::File::options().write(true).open(shard(folder)).unwrap().set_len(n_bytes).unwrap();
        });
        assert!(matches!(error, Error::Format { .. }), "{n_bytes} bytes: {error}");
    }
    let error = refused(|folder| {
        let mut bytes = fs::read(shard(folder)).unwrap();
        bytes.extend([0; 4]);
        fs::write(shard(folder), bytes).unwrap();
    });
    assert!(matches!(error, Error::Format { .. }), "{error}");
    // A header of almost 2^64 bytes is not allocated.
    let error = refused(|folder| fs::write(shard(folder), [0xff; 64]).unwrap());
    assert!(error.to_string().contains("18446744073709551615"), "{error}");
}

#[test]
fn missing_files_are_named() {
    let error = refused(|folder| fs::remove_file(folder.join(folder::SHARDS[1])).unwrap());
    assert!(
        matches!(&error, Error::MissingShards { shards, .. } if shards[..] == [folder::SHARDS[1]]),
        "{error}"
    );
    let error = refused(|folder| fs::remove_file(folder.join("config.json")).unwrap());
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
    assert!(
        !refused(|folder| fs::remove_file(folder.join("tokenizer.json")).unwrap()).to_string().is_empty()
    );
}

#[test]
fn an_unknown_class_gets_the_nearest_known_name() {
    let error = refused(|folder| set(folder, "architectures", json!(["FalconH2ForCausalLM"])));
    assert!(
        matches!(&error, Error::UnknownArchitecture { nearest: Some("FalconH1ForCausalLM"), .. }),
        "{error}"
    );
}

#[test]
fn numbers_that_do_not_fit_the_tensors_are_refused() {
    for (key, value) in [
        ("num_hidden_layers", json!(5)),
        ("num_hidden_layers", json!(1_000_000)),
        ("mamba_d_head", json!(0)),
        ("vocab_size", json!(-1)),
        ("mlp_multipliers", json!([1.0])),
        ("vocab_size", json!(2_000_000_000)),
    ] {
        let error = refused(|folder| set(folder, key, value.clone()));
        assert!(matches!(error, Error::Key { .. } | Error::Tensor { .. }), "{key} {value}: {error}");
    }
}

#[test]
fn tensors_and_numbers_that_contradict_each_other_are_refused() {
    // The folder has 6 layers, and 6 heads that share the keys of 2.
    for (key, value, words) in [
        ("num_hidden_layers", json!(7), "\"blk.6\" is missing: config.json says 7 layers"),
        ("hidden_size", json!(96), "wanted 96 columns, as config.json says"),
        ("num_attention_heads", json!(5), "wanted a divisor of 5, the number of heads of queries"),
    ] {
        let error = refused(|folder| set(folder, key, value.clone())).to_string();
        assert!(error.contains(words), "{key} {value}: {error}");
    }
}

/// Write the folder with another last element of its last matrix, and return the error of writing
/// its file.
fn refused_with(last: f32, out_type: OutType) -> String {
    let temp = tempfile::tempdir().unwrap();
    folder::write(temp.path());
    let shard = temp.path().join(folder::SHARDS[1]);
    let entries = read_header(&shard).unwrap();
    let matrix = entries.iter().rfind(|entry| entry.shape.len() == 2).unwrap();
    let n: usize = matrix.shape.iter().product();
    let end = matrix.start as usize + 4 * n;
    let mut bytes = fs::read(&shard).unwrap();
    bytes[end - 4..end].copy_from_slice(&last.to_le_bytes());
    fs::write(shard, bytes).unwrap();
    let mut plan = Plan::of_folder(temp.path(), &Options { out_type, ..Options::default() }).unwrap();
    let error = plan.write(std::io::sink(), |_, _| {}).expect_err("an element is no number").to_string();
    let start = format!("tensor {:?} has {last} as element {}, wanted ", matrix.name, n - 1);
    error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}\nwanted: {start}")).into()
}

#[test]
fn weights_that_are_no_numbers_or_become_none_are_refused() {
    for (last, out_type, wanted) in [
        (f32::NAN, OutType::F32, "finite numbers"),
        (f32::NAN, OutType::F16, "finite numbers"),
        (f32::NEG_INFINITY, OutType::Q8_0, "finite numbers"),
        (65520.0, OutType::F16, "less than 65520, to become F16"),
        (-1e7, OutType::Q8_0, "less than 8321040, to become Q8_0"),
        (3.4e38, OutType::BF16, "less than 3396"),
    ] {
        let found = refused_with(last, out_type);
        assert!(found.starts_with(wanted), "{found}\nwanted: {wanted}");
    }
}

/// Replace the tensors of the folder by one file with this header and no data.
fn set_tensors(folder: &Path, header: &Value) {
    folder::SHARDS.iter().for_each(|shard| fs::remove_file(folder.join(shard)).unwrap());
    fs::remove_file(folder.join("model.safetensors.index.json")).unwrap();
    let header = header.to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

#[test]
fn empty_tensors_cannot_claim_experts() {
    // A dimension of 0 needs no data, whatever the others are: no loop may run over them.
    for path in ["down_proj", "gate_up_proj"] {
        let error = refused(|folder| {
            set(folder, "architectures", json!(["GptOssForCausalLM"]));
            set(folder, "num_local_experts", json!(4));
            set(folder, "num_experts_per_tok", json!(2));
            set(folder, "sliding_window", json!(16));
            let empty = |shape: &[u64]| json!({"dtype": "U8", "shape": shape, "data_offsets": [0, 0]});
            let name = |kind: &str| format!("model.layers.0.mlp.experts.{path}_{kind}");
            let (blocks, scales) = (empty(&[1 << 40, 0, 1, 16]), empty(&[1 << 40, 0, 1]));
            set_tensors(folder, &json!({ name("blocks"): blocks, name("scales"): scales }));
        });
        assert!(error.to_string().ends_with("wanted no dimension of 0"), "{path}: {error}");
    }
}

#[test]
fn heads_of_absurdly_many_dimensions_are_refused() {
    // Factors of the rotary embedding are made for each dimension.
    let rope = json!({"rope_type": "llama3", "rope_theta": 1e4});
    for key in ["head_dim", "hidden_size"] {
        let error = refused(|folder| {
            set(folder, "architectures", json!(["LlamaForCausalLM"]));
            set(folder, "rope_scaling", rope.clone());
            if key == "hidden_size" {
                set(folder, "head_dim", Value::Null);
            }
            set(folder, key, json!(i32::MAX));
        });
        assert!(error.to_string().contains("wanted at most 65536"), "{key}: {error}");
    }
}
