//! Whole files against those of llama.cpp: `goldens/quantize/MODEL.tsv` has, for each file type,
//! with an importance matrix and without one, the size and the CRC-32 of the file that
//! `llama_model_quantize` writes.

mod shared;

use backstitch_core::DType;
use backstitch_core::pool::{Inline, Pool, ThreadPool};
use backstitch_models::gguf::{Gguf, Writer};
use backstitch_models::judge::Windows;
use backstitch_models::{Context, Model, Params, Token};
use backstitch_quantize::{Error, FileType, Imatrix, Options, Pattern, Quantizer, collect};
use shared::{crc32, golden};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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

/// Return a file with matrices of experts that hold the number `x` everywhere.
fn one_matrix(shape: &[usize], x: f32) -> Vec<u8> {
    let data: Vec<u8> = x.to_le_bytes().repeat(shape.iter().product());
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.tensor("blk.0.ffn_down_exps.weight", shape, DType::F32, &data).unwrap();
    writer.to_bytes()
}

fn quantized(file: &[u8], file_type: FileType) -> Result<Vec<u8>, Error> {
    let (gguf, mut out) = (Gguf::parse(file)?, Vec::new());
    Quantizer::new(&gguf, &Options::new(file_type))?.write(&Inline, &mut out, &mut |_| {})?;
    Ok(out)
}

#[test]
fn numbers_too_large_for_their_type_are_refused() {
    for (x, file_type) in [(70_000.0, FileType::F16), (1e6, FileType::Q4_0), (2e7, FileType::Q8_0)] {
        let result = quantized(&one_matrix(&[2, 32, 64], x), file_type);
        assert!(matches!(result, Err(Error::NotFinite { .. })), "{x}");
        assert!(quantized(&one_matrix(&[2, 32, 64], x / 100.0), file_type).is_ok(), "{x}");
    }
}

#[test]
fn one_expert_is_no_mixture() {
    let types = [1, 2].map(|n_experts| {
        let file = quantized(&one_matrix(&[n_experts, 32, 64], 1.0), FileType::MXFP4_MOE).unwrap();
        Gguf::parse(&file).unwrap().tensors()[0].dtype()
    });
    assert_eq!(types, [DType::Q8_0, DType::MXFP4]);
}

#[test]
fn threads_change_no_byte() {
    let none: [String; 0] = [];
    assert_eq!(differences("quant_f16", &ThreadPool::new(3).unwrap()), none);
}

#[test]
fn any_number_of_layers_is_one() {
    for (name, file_type, wanted) in [
        ("blk.4000000000.ffn_down.weight", FileType::Q4_K_M, DType::Q6_K),
        ("blk.4000000000.ffn_up.weight", FileType::IQ3_XS, DType::IQ3_S),
        ("blk.2000000000.ffn_up.weight", FileType::IQ3_XS, DType::IQ3_XXS),
    ] {
        let data = vec![0; 2 * 4 * 256];
        let mut writer = Writer::new();
        writer.set("general.architecture", "llama").unwrap();
        writer.set("llama.block_count", u32::MAX).unwrap().set("llama.expert_count", 2u32).unwrap();
        writer.tensor(name, &[2, 256], DType::F32, &data).unwrap();
        let (bytes, options) = (writer.to_bytes(), Options::new(file_type));
        let gguf = Gguf::parse(&bytes).unwrap();
        let quantizer = Quantizer::new(&gguf, &options).unwrap();
        assert_eq!(quantizer.tensors()[0].dtype, wanted, "{name}");
    }
}

#[test]
fn tensors_get_the_type_that_they_were_given_in_files_of_floats_too() {
    let bytes = golden("models/quant_f16.gguf");
    let gguf = Gguf::parse(&bytes).unwrap();
    for (file_type, float) in
        [(FileType::F16, DType::F16), (FileType::BF16, DType::BF16), (FileType::F32, DType::F32)]
    {
        let mut options = Options::new(file_type);
        options.tensor_types.push(Pattern::new("ffn_down", DType::Q8_0).unwrap());
        let quantizer = Quantizer::new(&gguf, &options).unwrap();
        let of = |name: &str| {
            quantizer.tensors().iter().find(|planned| planned.tensor.name() == name).unwrap().dtype
        };
        assert_eq!([of("blk.0.ffn_down.weight"), of("blk.0.ffn_up.weight")], [DType::Q8_0, float]);
    }
}

#[test]
fn the_importance_of_numbers_too_large_ends_with_the_window_that_has_them() {
    let bytes = golden("models/llama.gguf");
    let (gguf, mut writer) = (Gguf::parse(&bytes).unwrap(), Writer::new());
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    let large = 1e25f32.to_le_bytes().repeat(gguf.tensor("blk.0.attn_norm.weight").unwrap().n_elements());
    for tensor in gguf.tensors() {
        let is_large = tensor.name() == "blk.0.attn_norm.weight";
        let data = if is_large { &large } else { gguf.tensor_data(tensor) };
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), data).unwrap();
    }
    let tokens: Vec<Token> = (10..58).map(Token).collect();
    let measure = |file: &[u8]| {
        let mut ctx = Context::new(&Model::from_bytes(file).unwrap(), Params::default().n_ctx(16)).unwrap();
        let (shown, mut n_done) = (Arc::new(AtomicU32::new(0)), 0);
        let count = shown.clone();
        ctx.set_observer(Some(Box::new(move |_| {
            count.fetch_add(1, Relaxed);
        })));
        let windows = Windows::new(&tokens, 16, None).unwrap();
        let result = collect(&mut ctx, windows, "numbers", false, &mut |_| n_done += 1);
        let seq = ctx.sequence().unwrap();
        // Outputs of such numbers are an error of their own.
        let is_large = result.is_err();
        assert_eq!(ctx.append(seq, &tokens[..2]).is_err(), is_large);
        assert_eq!(shown.load(Relaxed), 0, "the observer is replaced and removed");
        (result, n_done)
    };
    let (result, n_done) = measure(&writer.to_bytes());
    assert!(matches!(&result, Err(Error::NotFinite { tensor }) if tensor.starts_with("blk.0.attn_")));
    assert_eq!((n_done, measure(&bytes).1), (0, 3));
}
