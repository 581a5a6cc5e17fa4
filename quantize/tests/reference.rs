//! Whole files against those of llama.cpp: `goldens/quantize/MODEL.tsv` has, for each file type,
//! with an importance matrix and without one, the size and the CRC-32 of the file that
//! `llama_model_quantize` writes.

mod shared;

use backstitch_core::pool::{Inline, Pool, ThreadPool};
use backstitch_models::gguf::Gguf;
use backstitch_quantize::{FileType, Imatrix, Options, Quantizer};
use shared::{crc32, golden};

/// Return the importance matrix that the goldens were made with: the same numbers for each matrix.
fn imatrix(gguf: &Gguf<'_>) -> Imatrix {
    let mut imatrix = Imatrix::new("", 512);
    let layers = gguf.tensors().iter().filter(|tensor| tensor.name().starts_with("blk."));
    for tensor in layers.filter(|tensor| tensor.name().ends_with(".weight") && tensor.shape().len() > 1) {
        let n_cols = tensor.shape()[tensor.shape().len() - 1];
        let n_matrices = if tensor.shape().len() > 2 { tensor.shape()[0] } else { 1 };
        let numbers: Vec<f32> =
            (0..n_cols * n_matrices).map(|i| (i * 7919 % 1009 + 1) as f32 / 8.0).collect();
        for (i, numbers) in numbers.chunks(n_cols).enumerate() {
            imatrix.add(tensor.name(), i, n_matrices, numbers, n_cols).unwrap();
        }
    }
    imatrix
}

/// Return the lines on which the files differ.
fn differences(model: &str, pool: &dyn Pool) -> Vec<String> {
    let bytes = golden(&format!("models/{model}.gguf"));
    let gguf = Gguf::parse(&bytes).unwrap();
    let imatrix = imatrix(&gguf);
    let lines = String::from_utf8(golden(&format!("quantize/{model}.tsv"))).unwrap();
    let mut wrong = Vec::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let options = Options::new(FileType::from_name(words[0]).unwrap());
        let mut file = Vec::new();
        let quantizer = match words[1] {
            "imatrix" => Quantizer::with_imatrix(&gguf, &options, &imatrix, "").map(Quantizer::without_keys),
            _ => Quantizer::new(&gguf, &options),
        };
        let result = quantizer.and_then(|quantizer| quantizer.write(pool, &mut file, &mut |_| {}));
        let found = match result {
            Ok(()) => format!("{}\t{:08x}", file.len(), crc32(&file)),
            Err(_) => "refused".into(),
        };
        if found != words[2..].join("\t") {
            wrong.push(format!("{line}: {found}"));
        }
    }
    assert!(lines.lines().count() > 60);
    wrong
}

#[test]
fn files_are_those_of_the_reference() {
    let none: [String; 0] = [];
    for model in ["quant_f16", "llama"] {
        assert_eq!(differences(model, &Inline), none, "{model}");
    }
}

#[test]
fn threads_change_no_byte() {
    let none: [String; 0] = [];
    assert_eq!(differences("quant_f16", &ThreadPool::new(3).unwrap()), none);
}
