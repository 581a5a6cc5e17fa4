//! States in files.

use crate::seen::{KINDS, bits, context, go_on, golden, params, seen, tell};
use backstitch_core::cell::CellType;
use backstitch_models::sampler::Chain;
use backstitch_models::{Context, Error, Pos, SaveOptions, Token};
use std::fs;

#[test]
fn a_sequence_comes_back_from_its_file_beside_the_live_ones() {
    let folder = tempfile::tempdir().unwrap();
    for name in KINDS {
        let model = golden(name);
        let path = folder.path().join(name);
        let mut ctx = context(&model, CellType::F16);
        let a = tell(&mut ctx, 1);
        let saved = ctx.save(a, &path).unwrap();
        assert!(
            !saved.appended && !saved.replaced && saved.container.bytes == fs::metadata(&path).unwrap().len(),
            "{name}"
        );
        let restored = ctx.restore(&path).unwrap();
        let b = restored.seq();
        assert_eq!((seen(&ctx, b), restored.n_bytes), (seen(&ctx, a), saved.container.bytes), "{name}");
        assert_eq!(go_on(&mut ctx, b, 2, 5), go_on(&mut ctx, a, 2, 5), "{name}");
    }
}

#[test]
fn a_context_comes_back_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all");
    let model = golden("falcon_h1");
    let mut ctx = context(&model, CellType::F16);
    let a = tell(&mut ctx, 1);
    let b = ctx.fork(a).unwrap();
    ctx.append(b, &[Token(1)]).unwrap();
    let chain = Chain::builder(model.hparams().n_vocab).seed(5).build();
    let options = SaveOptions::default().sampler(Some(&chain)).metadata(b"two");
    ctx.save_all_with(&path, &options).unwrap();
    let mut other = context(&model, CellType::F16);
    let restored = other.restore_all(&path).unwrap();
    assert_eq!((restored.sequences.len(), restored.metadata.as_slice()), (2, &b"two"[..]));
    assert_eq!(restored.sampler(), Some(&chain.state()));
    for seq in [a, b] {
        assert_eq!(seen(&other, seq), seen(&ctx, seq));
    }
}

#[test]
fn saving_again_writes_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "gemma3", "falcon_h1"] {
        let model = golden(name);
        let path = folder.path().join(name);
        let mut ctx = Context::new(&model, params(CellType::F32).n_ctx(4096)).unwrap();
        let a = ctx.sequence().unwrap();
        let tokens: Vec<Token> = (0..1500).map(|i| Token(i * 7 % 288)).collect();
        ctx.append(a, &tokens).unwrap();
        let first = ctx.save(a, &path).unwrap();
        for round in 0..3 {
            go_on(&mut ctx, a, round, 10);
            let options = SaveOptions::default().sync(round == 0);
            let again = ctx.save_with(a, &path, &options).unwrap();
            let share = again.container.written as f64 / first.container.written as f64;
            assert!(share < 0.1, "{name}, round {round}: {share} of {}", first.container.written);
            let restored = ctx.restore(&path).unwrap().seq();
            assert_eq!(seen(&ctx, restored), seen(&ctx, a), "{name}, round {round}");
            ctx.release(restored).unwrap();
        }
        // Another story in the same file.
        let b = tell(&mut ctx, 4);
        ctx.save(b, &path).unwrap();
        ctx.rollback(b, Pos(40)).unwrap();
        ctx.save(b, &path).unwrap();
        let restored = ctx.restore(&path).unwrap().seq();
        assert_eq!(seen(&ctx, restored), seen(&ctx, b), "{name}");
        assert_eq!(go_on(&mut ctx, restored, 5, 5), go_on(&mut ctx, b, 5, 5), "{name}");
    }
}

#[cfg(feature = "zstd")]
#[test]
fn a_compressed_state_is_shorter_and_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "falcon_h1"] {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F32);
        let a = tell(&mut ctx, 1);
        let plain = ctx.save(a, folder.path().join("plain")).unwrap().container.bytes;
        let options = SaveOptions::default().compress(true);
        let path = folder.path().join(name);
        let bytes = ctx.save_with(a, &path, &options).unwrap().container.bytes;
        assert!(bytes < plain, "{name}: {bytes}, {plain} plain");
        let b = ctx.restore(&path).unwrap().seq();
        assert_eq!(seen(&ctx, b), seen(&ctx, a), "{name}");
        // A little more to the same file.
        go_on(&mut ctx, a, 5, 3);
        ctx.save_with(a, &path, &options).unwrap();
        let c = ctx.restore(&path).unwrap().seq();
        assert_eq!(seen(&ctx, c), seen(&ctx, a), "{name}");
    }
}

#[test]
fn what_is_no_state_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = golden("mamba2");
    let mut ctx = context(&model, CellType::F16);
    let a = tell(&mut ctx, 1);
    let before = seen(&ctx, a);
    let path = |name: &str| folder.path().join(name);
    ctx.save(a, path("good")).unwrap();
    let good = fs::read(path("good")).unwrap();
    fs::write(path("empty"), []).unwrap();
    fs::write(path("text"), "once upon a time, there was a file of the wrong kind").unwrap();
    fs::write(path("cut"), &good[..good.len() - 1]).unwrap();
    fs::write(path("start"), &good[..100]).unwrap();
    let mut later = good.clone();
    later[8] = 9;
    fs::write(path("later"), later).unwrap();
    fs::create_dir(path("folder")).unwrap();
    for name in ["missing", "empty", "text", "cut", "start", "later", "folder"] {
        let error = ctx.restore(path(name)).unwrap_err().to_string();
        assert!(error.contains(path(name).to_str().unwrap()), "{error}");
        assert_eq!(seen(&ctx, a), before, "{name}");
    }
    // A whole context is not a sequence.
    ctx.save_all(path("all")).unwrap();
    assert!(ctx.restore(path("all")).is_err());
    assert!(ctx.restore_all(path("good")).is_err());
    // Trailing bytes, left of a save that was cut short, are not read.
    let mut tail = good.clone();
    tail.extend([7; 1000]);
    fs::write(path("tail"), tail).unwrap();
    let b = ctx.restore(path("tail")).unwrap().seq();
    assert_eq!(seen(&ctx, b), before);
}

#[test]
fn there_is_no_restore_without_a_free_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let model = golden("llama");
    let mut ctx = Context::new(&model, params(CellType::F16).n_seq_max(1)).unwrap();
    let a = tell(&mut ctx, 1);
    ctx.save(a, &path).unwrap();
    assert!(matches!(ctx.restore(&path), Err(Error::TooManySequences { limit: 1 })));
    let before = bits(ctx.logits_at_hand(a));
    ctx.release(a).unwrap();
    let b = ctx.restore(&path).unwrap().seq();
    assert_eq!(bits(ctx.logits_at_hand(b)), before);
}
