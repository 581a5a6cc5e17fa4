//! `quantize`: a smaller model, and refusals that leave no file.

use super::{arg, backstitch, repository};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

#[test]
fn a_model_becomes_smaller_and_stays_nearly_as_good() {
    let folder = TempDir::new().unwrap();
    let (source, out) = (repository("goldens/models/quant_f16.gguf"), folder.path().join("q8.gguf"));
    let plan = backstitch(&["quantize", arg(&source), arg(&out), "Q8_0", "--dry-run", "--json"]).ok();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert!(!out.exists());
    let said = backstitch(&["quantize", arg(&source), arg(&out), "q8_0", "--json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["type"], &said["output"]), (&"Q8_0".into(), &arg(&out).into()));
    assert_eq!(said["bytes"], fs::metadata(&out).unwrap().len());
    // The plan tells the bytes of the tensors; names, keys and padding come on top.
    assert!(plan["bytes"].as_u64() < said["bytes"].as_u64());
    let planned = plan["tensors"].as_array().unwrap().iter().filter(|tensor| tensor["from"] != tensor["to"]);
    assert_eq!(said["quantized"].as_u64(), Some(planned.count() as u64));
    let inspected: Value = serde_json::from_str(&backstitch(&["inspect", "--json", arg(&out)]).ok()).unwrap();
    assert_eq!(inspected["tensors"].as_array().unwrap().len() as u64, said["tensors"].as_u64().unwrap());
    let norms = plan["tensors"].as_array().unwrap().iter().filter(|tensor| tensor["to"] == "F32");
    assert!(norms.count() > 0);
    // Types by name come before those of the mix; a model in the way is replaced.
    let named = ["--tensor-type", "ffn_down=Q4_0", "--leave-output-tensor"];
    let text = backstitch(&[&["quantize", arg(&source), arg(&out), "Q8_0"], &named[..]].concat()).ok();
    assert!(text.contains("tensors quantised to Q8_0"), "{text}");
    let inspected: Value = serde_json::from_str(&backstitch(&["inspect", "--json", arg(&out)]).ok()).unwrap();
    let of = |name: &str| {
        let tensors = inspected["tensors"].as_array().unwrap();
        tensors.iter().find(|tensor| tensor["name"] == name).unwrap()["type"].clone()
    };
    assert_eq!((of("blk.0.ffn_down.weight"), of("blk.0.ffn_up.weight")), ("Q4_0".into(), "Q8_0".into()));
}

#[test]
fn what_cannot_be_quantised_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let (source, out) = (repository("goldens/models/quant_f16.gguf"), folder.path().join("out.gguf"));
    let refused = |args: &[&str], code: i32, what: &str| {
        let outcome = backstitch(&[&["quantize"], args].concat());
        assert!(outcome.error(code).contains(what), "{args:?}: {}", outcome.stderr);
        assert!(!out.exists(), "{args:?}");
    };
    refused(&[arg(&source), arg(&out), "Q9_0"], 2, "IQ4_XS");
    refused(&[arg(&source), arg(&source), "Q8_0"], 1, "quant_f16.gguf");
    refused(&[arg(&repository("demo/demo.gguf")), arg(&out), "Q4_0"], 1, "demo.gguf");
    refused(&[arg(&source), arg(&out), "IQ2_XS"], 1, "importance matrix");
    let damaged = folder.path().join("imatrix.gguf");
    fs::write(&damaged, "GGUF").unwrap();
    refused(&[arg(&source), arg(&out), "Q4_K_M", "--imatrix", arg(&damaged)], 1, "imatrix.gguf");
    refused(&[arg(&folder.path().join("none.gguf")), arg(&out), "Q8_0"], 1, "none.gguf");
    let text = folder.path().join("text.txt");
    fs::write(&text, "not a model").unwrap();
    let outcome = backstitch(&["quantize", arg(&source), arg(&text), "Q8_0"]);
    assert!(outcome.error(1).contains("is a text file, not a model (GGUF)"), "{}", outcome.stderr);
    assert_eq!(fs::read_to_string(&text).unwrap(), "not a model");
}

#[test]
fn an_importance_matrix_of_a_text_serves_types_of_few_bits() {
    let folder = TempDir::new().unwrap();
    let source = repository("goldens/models/quant_f16.gguf");
    let (text, imatrix) = (folder.path().join("text.txt"), folder.path().join("imatrix.gguf"));
    fs::write(&text, "A cat and a dog. ".repeat(30)).unwrap();
    let measure = ["imatrix", "-m", arg(&source), "-f", arg(&text), "-c", "32", "-o", arg(&imatrix)];
    let said: Value =
        serde_json::from_str(&backstitch(&[&measure[..], &["--chunks", "3", "--json"]].concat()).ok())
            .unwrap();
    assert_eq!(
        (&said["windows"], said["bytes"].as_u64()),
        (&3.into(), fs::metadata(&imatrix).ok().map(|m| m.len()))
    );
    let first = fs::read(&imatrix).unwrap();
    // The batch size and the number of threads change no bit, and the file is replaced.
    let told = backstitch(&[&measure[..], &["--chunks", "3", "--ubatch-size", "7", "-t", "2"]].concat()).ok();
    assert!(told.contains("3 windows"), "{told}");
    assert!(fs::read(&imatrix).unwrap() == first);
    let out = folder.path().join("out.gguf");
    backstitch(&["quantize", arg(&source), arg(&out), "IQ2_XS", "--imatrix", arg(&imatrix)]).ok();
    assert!(backstitch(&["inspect", arg(&out)]).ok().contains("IQ2_XS"));
    // A model is not replaced by an importance matrix, nor the other way round.
    let onto = |args: &[&str]| backstitch(args).error(1).to_owned();
    let model = onto(&["imatrix", "-m", arg(&source), "-f", arg(&text), "-c", "32", "-o", arg(&out)]);
    assert!(model.contains("is a model (GGUF), not an importance matrix"), "{model}");
    let matrix = onto(&["quantize", arg(&source), arg(&imatrix), "Q8_0"]);
    assert!(matrix.contains("is an importance matrix, not a model (GGUF)"), "{matrix}");
    let short = onto(&["imatrix", "-m", arg(&source), "-f", arg(&text), "-c", "512", "-o", arg(&imatrix)]);
    assert!(short.contains("lower -c"), "{short}");
}
