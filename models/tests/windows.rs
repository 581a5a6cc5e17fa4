//! Sliding windows, as files state them.

use backstitch_models::{
    Batch, Context, Model, Params, Pos, Token,
    gguf::{Gguf, Writer},
};

/// Return the logits of the last of 40 tokens by the golden model `name`, with its window changed
/// to `n_swa` or left out.
fn logits(name: &str, n_swa: Option<u32>) -> Vec<u32> {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        match (entry.key.ends_with(".attention.sliding_window"), n_swa) {
            (true, None) => {}
            (true, Some(n)) => drop(writer.set(entry.key, n).unwrap()),
            _ => drop(writer.set(entry.key, entry.value.clone()).unwrap()),
        }
    }
    for info in gguf.tensors() {
        writer.tensor(info.name(), info.shape(), info.dtype(), gguf.tensor_data(info)).unwrap();
    }
    let model = Model::from_bytes(&writer.to_bytes()).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    for i in 0..40 {
        batch.push(Token(7 * i as u32 % 288), Pos(i), &[seq], i == 39);
    }
    ctx.decode(&batch).unwrap();
    ctx.logits(seq).unwrap().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_window_wider_than_the_text_is_none() {
    for name in ["gemma2", "gemma3"] {
        let wide = logits(name, Some(40));
        assert_eq!(logits(name, Some(u32::MAX)), wide, "{name}");
        assert_ne!(logits(name, Some(39)), wide, "{name}");
        assert_ne!(logits(name, Some(8)), wide, "{name}");
    }
}

#[test]
fn what_files_leave_out_is_the_architectures() {
    // Gemma 2 had a window of 4096 before files said so, and one rotation for all its layers.
    assert_eq!(logits("gemma2", None), logits("gemma2", Some(4096)));
    assert_eq!(logits("gemma2", Some(0)), logits("gemma2", Some(4096)));
    // Without windows all layers of Gemma 3 are full ones, and rotate as those do.
    assert_eq!(logits("gemma3", None), logits("gemma3", Some(0)));
    assert_ne!(logits("gemma3", None), logits("gemma3", Some(4096)));
}
