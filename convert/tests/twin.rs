//! The embedded model as a folder, converted back: the same tensors, and a model that opens.

mod folder;

use std::path::Path;

use backstitch_convert::{Options, OutType, Plan};
use backstitch_core::DType;
use backstitch_models::Model;
use backstitch_models::gguf::Gguf;

fn convert(folder: &Path, out_type: OutType) -> Vec<u8> {
    let mut plan = Plan::of_folder(folder, &Options { out_type, pre_tokenizer: None }).unwrap();
    assert_eq!(plan.architecture(), "falcon-h1");
    let (mut bytes, mut last) = (Vec::new(), (0, 0));
    plan.write(&mut bytes, |done, total| {
        assert!(done > last.0 && done <= total, "{done} of {total} after {}", last.0);
        last = (done, total);
    })
    .unwrap();
    assert_eq!(last, (plan.n_bytes(), plan.n_bytes()));
    bytes
}

#[test]
fn the_twin_of_the_embedded_model_becomes_its_tensors_again() {
    let temp = tempfile::tempdir().unwrap();
    folder::write(temp.path());
    let bytes = convert(temp.path(), OutType::Q8_0);
    let (ours, own) = (Gguf::parse(&bytes).unwrap(), Gguf::parse(backstitch_demo::GGUF).unwrap());
    assert_eq!(ours.tensors().len(), own.tensors().len());
    for wanted in own.tensors() {
        let found = ours.tensor(wanted.name()).unwrap_or_else(|| panic!("{} is missing", wanted.name()));
        assert_eq!(found.dtype(), wanted.dtype(), "{}", wanted.name());
        assert_eq!(found.n_elements(), wanted.n_elements(), "{}", wanted.name());
        let (found, data) = (ours.tensor_data(&found), own.tensor_data(wanted));
        if wanted.name().ends_with("ssm_a") {
            // The folder holds a logarithm, which rounds.
            let floats = |bytes: &[u8]| -> Vec<f32> {
                bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
            };
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs();
            assert!(floats(found).iter().zip(&floats(data)).all(close), "{}", wanted.name());
        } else {
            assert!(found == data, "{} differs", wanted.name());
        }
    }
    for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"] {
        assert_eq!(ours.required::<&[&str]>(key).unwrap(), own.required::<&[&str]>(key).unwrap());
    }
    let (ours, own) = (Model::from_bytes(&bytes).unwrap(), Model::from_bytes(backstitch_demo::GGUF).unwrap());
    assert_eq!(ours.vocab().n_vocab(), own.vocab().n_vocab());
}

#[test]
fn matrices_have_the_type_that_was_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    folder::write(temp.path());
    // The folder holds F32, which becomes half precision unless told otherwise.
    let cases = [
        (OutType::F32, DType::F32),
        (OutType::F16, DType::F16),
        (OutType::BF16, DType::BF16),
        (OutType::Auto, DType::F16),
    ];
    for (out_type, wanted) in cases {
        let bytes = convert(temp.path(), out_type);
        let gguf = Gguf::parse(&bytes).unwrap();
        let dtype = |name: &str| gguf.tensor(name).unwrap().dtype();
        assert_eq!(dtype("blk.5.attn_q.weight"), wanted, "{out_type:?}");
        assert_eq!(dtype("blk.5.attn_norm.weight"), DType::F32, "{out_type:?}");
        assert!(Model::from_bytes(&bytes).is_ok(), "{out_type:?}");
    }
}
