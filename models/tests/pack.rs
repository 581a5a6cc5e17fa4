//! Packed models give the same bits, and are computed with straight from the file.

use backstitch_core::pool::Inline;
use backstitch_models::gguf::Gguf;
use backstitch_models::{Context, Error, LoadParams, Model, PackedModel, Params, Token};

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    let gguf = Gguf::parse(bytes).unwrap();
    PackedModel::new(&gguf, &Inline, None, |_| {}).unwrap().writer().unwrap().to_bytes()
}

fn logits(model: &Model) -> Vec<u32> {
    let mut ctx = Context::new(model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &[Token(5), Token(6), Token(7)]).unwrap();
    ctx.logits(seq).unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_packed_model_gives_the_same_bits_and_is_used_where_it_lies() {
    for name in ["llama", "gemma3", "mamba2", "rwkv7", "falcon_h1", "qwen35"] {
        let bytes = golden(name);
        let packed = pack(&bytes);
        let (original, copied) = (Model::from_bytes(&bytes).unwrap(), Model::from_bytes(&packed).unwrap());
        assert_eq!(original.fingerprint(), copied.fingerprint(), "{name}");
        let wanted = logits(&original);
        assert_eq!(logits(&copied), wanted, "{name}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed.gguf");
        std::fs::write(&path, &packed).unwrap();
        assert_eq!(logits(&Model::open(&path).unwrap()), wanted, "{name}");
        // Packing again changes nothing.
        assert!(pack(&packed) == packed, "{name}");
    }
}

#[test]
fn progress_counts_what_is_read_and_comes_to_its_end() {
    let bytes = golden("llama");
    let folder = tempfile::tempdir().unwrap();
    let [n_read, n_read_of_packed] = [bytes.clone(), pack(&bytes)].map(|file| {
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, file).unwrap();
        let mut calls = Vec::new();
        Model::open_with(&path, LoadParams::default(), |done, all| calls.push((done, all))).unwrap();
        assert!(calls.is_sorted() && calls.iter().all(|(_, all)| *all == calls[0].1), "{calls:?}");
        let &(done, all) = calls.last().unwrap();
        assert_eq!(done, all);
        all
    });
    assert!(n_read_of_packed < n_read / 10, "{n_read_of_packed} of {n_read}");
}

#[test]
fn every_cut_of_a_packed_file_and_every_other_type_is_an_error() {
    let packed = pack(&golden("llama"));
    for len in (0..packed.len()).step_by(997) {
        assert!(Gguf::parse(&packed[..len]).is_err(), "{len}");
    }
    let gguf = Gguf::parse(&packed).unwrap();
    let tensor = gguf.tensors().iter().find(|tensor| tensor.is_packed()).unwrap();
    let id = tensor.type_id().to_le_bytes();
    assert_eq!(&id[1..], [2, 0x53, 0x42], "the type says BS and the version of the layout");
    let at = packed.windows(4).position(|bytes| bytes == id).unwrap();
    for (other, version) in [
        (31, None),
        (0x4253_0218, None),
        (u32::MAX, None),
        (0x4253_0008, Some(0)),
        (0x4253_0108, Some(1)),
        (0x4253_0308, Some(3)),
    ] {
        let mut forged = packed.clone();
        forged[at..at + 4].copy_from_slice(&u32::to_le_bytes(other));
        let error = Gguf::parse(&forged).unwrap_err();
        match (&error, version) {
            (Error::TensorType { found, .. }, None) => assert_eq!(*found, other),
            (Error::PackedVersion { found, wanted: 2, .. }, Some(version)) => {
                assert_eq!(*found, version);
                assert!(error.to_string().contains("backstitch pack ORIGINAL.gguf"), "{error}");
            }
            _ => panic!("{other:x}: {error}"),
        }
    }
}
