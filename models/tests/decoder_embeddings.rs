//! Embeddings of decoders: they depend on nothing but the text, and the sequence goes on as if
//! logits had been asked for. The tests compare bits, not tolerances.

mod converted;

use backstitch_core::DType;
use backstitch_models::{Batch, Context, Error, Model, Params, Pooling, Pos, Token, Wanted};
use backstitch_testing::assert_bits;
use converted::{model, tokens};

const KINDS: [&str; 5] = ["llama", "gemma3", "mamba2", "falcon_h1", "qwen35"];

fn params(n_ubatch: u32) -> Params {
    Params::default().n_ctx(256).n_seq_max(3).n_ubatch(n_ubatch)
}

/// Return the embeddings of the tokens of one text, and the pooled one.
fn embeddings(model: &Model, params: Params, text: &[Token], beside: &[Token]) -> Vec<f32> {
    let mut ctx = Context::new(model, params).unwrap();
    let mut batch = Batch::new();
    let other = ctx.sequence().unwrap();
    batch.extend(other, Pos(0), beside, Wanted::Last).unwrap();
    let seq = ctx.sequence().unwrap();
    batch.extend(seq, Pos(0), text, Wanted::All).unwrap();
    ctx.decode_embeddings(&batch).unwrap();
    let rows = (beside.len()..batch.len()).map(|i| ctx.embedding(i).unwrap());
    let mut all: Vec<f32> = rows.flatten().copied().collect();
    all.extend(ctx.pooled(seq).unwrap_or_default());
    all
}

#[test]
fn embeddings_of_decoders_have_the_same_bits_whatever_lies_beside_a_text() {
    for kind in KINDS {
        let model = model(kind, DType::F16);
        let (text, beside) = (tokens(&model, 3, 40), tokens(&model, 5, 17));
        let n_embd = model.hparams().n_embd;
        for pooling in [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last] {
            let whole = embeddings(&model, params(64).pooling(Some(pooling)), &text, &[]);
            let n_pooled = usize::from(pooling != Pooling::None);
            assert_eq!(whole.len(), (text.len() + n_pooled) * n_embd, "{kind} {pooling:?}");
            if pooling == Pooling::Last {
                let last = &whole[(text.len() - 1) * n_embd..];
                assert_bits(kind, &last[..n_embd], &last[n_embd..]);
            }
            for (n_ubatch, beside) in [(1, &[][..]), (7, &beside), (64, &beside)] {
                let got = embeddings(&model, params(n_ubatch).pooling(Some(pooling)), &text, beside);
                assert_bits(format!("{kind} {pooling:?} {n_ubatch}"), &got, &whole);
            }
        }
    }
}

/// Embeddings are no logits: those are computed when they are asked for.
#[test]
fn a_sequence_goes_on_behind_its_embeddings() {
    for kind in KINDS {
        let model = model(kind, DType::F16);
        let text = tokens(&model, 3, 30);
        let mut plain = Context::new(&model, params(64)).unwrap();
        let plain_seq = plain.sequence().unwrap();
        plain.append(plain_seq, &text).unwrap();
        let mut ctx = Context::new(&model, params(64)).unwrap();
        let seq = ctx.sequence().unwrap();
        let mut batch = Batch::new();
        batch.extend(seq, Pos(0), &text, Wanted::All).unwrap();
        ctx.decode_embeddings(&batch).unwrap();
        assert!(ctx.output(0).is_none() && ctx.logits_at_hand(seq).is_none(), "{kind}");
        assert_bits(kind, ctx.logits(seq).unwrap(), plain.logits(plain_seq).unwrap());
        for ctx_seq in [(&mut ctx, seq), (&mut plain, plain_seq)] {
            ctx_seq.0.append(ctx_seq.1, &[text[0]]).unwrap();
        }
        assert!(ctx.embedding(0).is_none(), "{kind}");
        assert_bits(kind, ctx.logits(seq).unwrap(), plain.logits(plain_seq).unwrap());
    }
}

/// A batch that yields both has the logits of one that yields logits, and the embeddings of one
/// that yields those, also where the model scales them for its logits.
#[test]
fn embeddings_and_logits_of_one_batch_have_the_bits_of_two() {
    for kind in KINDS.into_iter().chain(["granite"]) {
        let model = model(kind, DType::F16);
        let text = tokens(&model, 3, 30);
        let mut batch = Batch::new();
        let mut contexts = [(); 3].map(|()| Context::new(&model, params(7)).unwrap());
        let seq = contexts.each_mut().map(|ctx| ctx.sequence().unwrap())[0];
        batch.extend(seq, Pos(0), &text, Wanted::All).unwrap();
        let [both, logits, embeddings] = &mut contexts;
        both.decode_with_embeddings(&batch).unwrap();
        logits.decode(&batch).unwrap();
        embeddings.decode_embeddings(&batch).unwrap();
        for i in 0..text.len() {
            assert_bits(kind, both.output(i).unwrap(), logits.output(i).unwrap());
            assert_bits(kind, both.embedding(i).unwrap(), embeddings.embedding(i).unwrap());
        }
        // Its rows stay until the next batch, whatever becomes of the sequences.
        both.clear();
        assert_bits(kind, both.output(3).unwrap(), logits.output(3).unwrap());
        assert!(both.embedding(3).is_some() && both.logits_at_hand(seq).is_none());
        let seq = both.sequence().unwrap();
        both.append(seq, &text).unwrap();
        assert!(both.embedding(text.len() - 1).is_none() && both.output(0).is_none());
    }
}

#[test]
fn a_pooled_embedding_stays_until_its_sequence_changes() {
    for kind in KINDS {
        let model = model(kind, DType::F16);
        let mut ctx = Context::new(&model, params(64).pooling(Some(Pooling::Mean))).unwrap();
        let seq = ctx.sequence().unwrap();
        let mut batch = Batch::new();
        batch.extend(seq, Pos(0), &tokens(&model, 3, 30), Wanted::Last).unwrap();
        ctx.decode_embeddings(&batch).unwrap();
        let pooled = ctx.pooled(seq).unwrap().to_vec();
        ctx.logits(seq).unwrap();
        assert_bits(kind, ctx.pooled(seq).unwrap(), &pooled);
        ctx.rollback(seq, Pos(29)).unwrap();
        assert!(ctx.pooled(seq).is_none(), "{kind}");
    }
}

#[test]
fn a_batch_for_embeddings_that_does_not_fit_changes_nothing() {
    let model = model("llama", DType::F32);
    let mut ctx = Context::new(&model, params(64).n_ctx(32)).unwrap();
    let seq = ctx.sequence().unwrap();
    let mut batch = Batch::new();
    batch.extend(seq, Pos(0), &tokens(&model, 1, 100), Wanted::All).unwrap();
    assert!(matches!(ctx.decode_embeddings(&batch), Err(Error::Memory(_))));
    assert_eq!(ctx.pos(seq).unwrap(), Pos(0));
    let encoder = self::model("bert", DType::F32);
    let mut ctx = Context::new(&encoder, params(64)).unwrap();
    assert!(matches!(ctx.decode_embeddings(&batch), Err(Error::EncoderOnly)));
}
