//! `convert`: a folder becomes a model that runs, and a damaged one becomes nothing.

use super::{arg, backstitch};
use std::fs;
use tempfile::TempDir;

#[path = "../../../convert/tests/folder/mod.rs"]
mod folder;

#[test]
fn a_folder_becomes_a_model_that_tells_the_same_story() {
    let temp = TempDir::new().unwrap();
    let twin = temp.path().join("twin");
    fs::create_dir(&twin).unwrap();
    folder::write(&twin);
    let said = backstitch(&["convert", arg(&twin), "--outtype", "q8_0", "--json"]).ok();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let model = temp.path().join("twin.gguf");
    assert_eq!(said["output"], arg(&model));
    assert_eq!((&said["architecture"], &said["tensors"]), (&"falcon-h1".into(), &98.into()));
    assert_eq!(said["bytes"], fs::metadata(&model).unwrap().len());
    let story = ["run", "--temp", "0", "-n", "20", "-p", "Once upon a time"];
    let own = backstitch(&story).ok();
    assert_eq!(backstitch(&[&story[..], &["-m", arg(&model)]].concat()).ok(), own);
    // A model of that name is replaced, other files are not.
    assert!(backstitch(&["convert", arg(&twin), arg(&model)]).ok().contains("falcon-h1, 98 tensors, "));
    let config = twin.join("config.json");
    let error = backstitch(&["convert", arg(&twin), arg(&config)]);
    assert!(error.error(1).contains("is a text file, not a model (GGUF)"), "{}", error.stderr);
}

#[test]
fn a_damaged_folder_is_refused_and_the_old_file_stays() {
    let temp = TempDir::new().unwrap();
    let twin = temp.path().join("twin");
    fs::create_dir(&twin).unwrap();
    folder::write(&twin);
    let model = temp.path().join("twin.gguf");
    backstitch(&["convert", arg(&twin)]).ok();
    let before = fs::read(&model).unwrap();
    fs::remove_file(twin.join(folder::SHARDS[1])).unwrap();
    let error = backstitch(&["convert", arg(&twin)]);
    assert!(error.error(1).contains("lists files that are not there: "), "{}", error.stderr);
    assert!(error.stderr.contains(folder::SHARDS[1]), "{}", error.stderr);
    assert!(fs::read(&model).unwrap() == before);
    folder::write(&twin);
    let shard = twin.join(folder::SHARDS[0]);
    let mut bytes = fs::read(&shard).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(shard, bytes).unwrap();
    let error = backstitch(&["convert", arg(&twin)]);
    assert!(error.error(1).contains("has NaN as element "), "{}", error.stderr);
    assert!(fs::read(&model).unwrap() == before);
    let missing = temp.path().join("none");
    assert!(backstitch(&["convert", arg(&missing)]).error(1).contains("no such file or directory"));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2);
}

#[test]
fn an_adapter_needs_its_base_and_becomes_a_file() {
    let temp = TempDir::new().unwrap();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/adapters/llama");
    let (base, out) = (golden.join("base"), temp.path().join("adapter.gguf"));
    let said = backstitch(&["convert", arg(&golden), arg(&out), "--lora", "--base", arg(&base)]).ok();
    assert!(said.contains("adapter.gguf: llama, 32 tensors, "), "{said}");
    assert!(out.is_file());
    let error = backstitch(&["convert", arg(&golden), arg(&out)]);
    assert!(error.error(1).contains("is an adapter; give --lora --base DIR"), "{}", error.stderr);
    assert!(backstitch(&["convert", arg(&golden), "--lora"]).error(2).contains("--base"));
}
