//! Encoders: embeddings depend on nothing but their text, and decoders on nothing but the encoder's
//! input and the tokens before. The tests compare bits, not tolerances.

mod converted;

use backstitch_core::pool::{Inline, Panicked, Pool};
use backstitch_core::{DType, KernelSet};
use backstitch_models::{Batch, Context, Error, Model, Params, Pooling, Pos, SeqId, Token};
use backstitch_testing::assert_bits;
use converted::{model, tokens};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WEIGHTS: [DType; 4] = [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0];
/// Encoders that are checked in short.
const OTHERS: [&str; 10] = [
    "eurobert",
    "gemma_embedding",
    "jina_bert_v2",
    "jina_bert_v2_code",
    "jina_bert_v3",
    "llama_embed",
    "modern_bert",
    "neo_bert",
    "nomic_bert",
    "nomic_bert_moe",
];

fn params(kernels: &'static KernelSet, n_threads: u32) -> Params {
    Params::default().n_ctx(1024).n_seq_max(4).n_threads(n_threads).kernels(Some(kernels))
}

/// Return the embeddings of all tokens of some texts, then the pooled ones.
fn embeddings(model: &Model, params: Params, texts: &[Vec<Token>]) -> Vec<Vec<f32>> {
    let mut ctx = Context::new(model, params).unwrap();
    let seqs: Vec<SeqId> = texts.iter().map(|_| ctx.sequence().unwrap()).collect();
    let mut batch = Batch::new();
    // Interleaved, so that the texts have to be taken apart.
    for i in 0..texts.iter().map(Vec::len).max().unwrap_or(0) {
        for (&seq, text) in seqs.iter().zip(texts).filter(|(_, text)| i < text.len()) {
            batch.push(text[i], Pos(i as i32), &[seq], true);
        }
    }
    ctx.encode_batch(&batch).unwrap();
    let mut all: Vec<Vec<f32>> = (0..texts.len()).map(|_| vec![]).collect();
    for i in 0..batch.len() {
        all[batch.seqs(i)[0].index()].extend_from_slice(ctx.embedding(i).unwrap());
    }
    for (seq, all) in seqs.into_iter().zip(&mut all) {
        all.extend_from_slice(ctx.pooled(seq).unwrap());
    }
    all
}

#[test]
fn embeddings_have_the_same_bits_whatever_lies_beside_a_text() {
    for dtype in WEIGHTS {
        let model = model("bert", dtype);
        let texts: Vec<Vec<Token>> = (0..4).map(|i| tokens(&model, 20 + i, 1 + 42 * i as usize)).collect();
        for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last] {
            let pooled = |set, n_threads| params(set, n_threads).pooling(Some(pooling));
            let alone = |text: &Vec<Token>| {
                embeddings(&model, pooled(KernelSet::scalar(), 1), core::slice::from_ref(text)).remove(0)
            };
            let expected: Vec<Vec<f32>> = texts.iter().map(alone).collect();
            for set in KernelSet::available() {
                for n_threads in 1..=3 {
                    let got = embeddings(&model, pooled(set, n_threads), &texts);
                    for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                        assert_bits(
                            format!("{dtype:?} {set:?} {n_threads} threads, text {i}"),
                            got,
                            expected,
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn other_encoders_give_the_same_bits_whatever_lies_beside_a_text() {
    for (name, dtype) in OTHERS.into_iter().zip(WEIGHTS.into_iter().cycle()) {
        let model = model(name, dtype);
        let texts: Vec<Vec<Token>> = (0..3).map(|i| tokens(&model, 30 + i, 1 + 32 * i as usize)).collect();
        let got = embeddings(&model, params(KernelSet::detect().unwrap(), 2), &texts);
        for (i, text) in texts.iter().enumerate() {
            let alone = params(KernelSet::scalar(), 1);
            let expected = embeddings(&model, alone, core::slice::from_ref(text)).remove(0);
            assert_bits(format!("{name} {dtype:?} text {i}"), &got[i], &expected);
        }
    }
}

#[test]
fn what_an_encoder_cannot_do_is_refused_with_the_way_out() {
    let model = model("bert", DType::F32);
    let mut ctx = Context::new(&model, Params::default().n_ubatch(16)).unwrap();
    let seq = ctx.sequence().unwrap();
    assert!(matches!(ctx.append(seq, &[Token(1)]), Err(Error::EncoderOnly)));
    assert!(matches!(ctx.append_partly(seq, &[Token(1)], |_| ()), Err(Error::EncoderOnly)));
    let too_long = ctx.encode(seq, &tokens(&model, 1, 17)).unwrap_err();
    assert!(too_long.to_string().contains("tokens of one sequence in a ubatch: 17"), "{too_long}");
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(500), &[seq], true);
    let beyond = ctx.encode_batch(&batch).unwrap_err();
    assert!(matches!(beyond, Error::BeyondPositions { pos: 500, n_pos: 128 }), "{beyond}");
    ctx.encode(seq, &tokens(&model, 1, 16)).unwrap();
    assert!(ctx.pooled(seq).is_some() && ctx.embedding(15).is_some() && ctx.logits_at_hand(seq).is_none());
    assert_eq!(ctx.pos(seq).unwrap(), Pos(0), "nothing is kept");
    ctx.release(seq).unwrap();
    assert!(ctx.pooled(seq).is_none());
    let llama = self::model("llama", DType::F32);
    let mut ctx = Context::new(&llama, Params::default()).unwrap();
    let seq = ctx.sequence().unwrap();
    assert!(matches!(ctx.encode(seq, &[Token(1)]), Err(Error::NoEncoder)));
}

/// Return the logits of all tokens in a context of an encoder-decoder, with an input for the
/// encoder and then tokens in pieces of these lengths.
fn answers(ctx: &mut Context, seq: SeqId, text: &[Token], tokens: &[Token], pieces: &[usize]) -> Vec<f32> {
    if !text.is_empty() {
        ctx.encode(seq, text).unwrap();
    }
    let (mut all, mut rest, mut pieces) = (vec![], tokens, pieces.iter());
    while !rest.is_empty() {
        let n = pieces.next().copied().unwrap_or(rest.len()).min(rest.len());
        let mut batch = Batch::new();
        let start = ctx.pos(seq).unwrap().0;
        for (i, &token) in rest[..n].iter().enumerate() {
            batch.push(token, Pos(start + i as i32), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        (0..n).for_each(|i| all.extend_from_slice(ctx.output(i).unwrap()));
        rest = &rest[n..];
    }
    all
}

/// Return the reference: scalar kernels, one thread, everything at once.
fn reference(model: &Model, text: &[Token], tokens: &[Token]) -> Vec<f32> {
    let mut ctx = Context::new(model, params(KernelSet::scalar(), 1)).unwrap();
    let seq = ctx.sequence().unwrap();
    answers(&mut ctx, seq, text, tokens, &[])
}

#[test]
fn a_decoder_gives_the_same_bits_in_any_pieces_with_any_threads_and_kernels() {
    for dtype in WEIGHTS {
        let model = model("t5", dtype);
        // Long enough for distances that share the last bucket.
        let (text, made) = (tokens(&model, 1, 150), tokens(&model, 2, 300));
        let expected = reference(&model, &text, &made);
        for set in KernelSet::available() {
            for (n_threads, pieces, n_ubatch) in
                [(1, &[1; 300][..], 512), (2, &[1, 7, 16], 150), (3, &[], 512), (2, &[255, 1], 151)]
            {
                let params = (params(set, n_threads)).n_ubatch(n_ubatch);
                let mut ctx = Context::new(&model, params).unwrap();
                let seq = ctx.sequence().unwrap();
                let got = answers(&mut ctx, seq, &text, &made, pieces);
                assert_bits(
                    format!("{dtype:?} {set:?} {n_threads} threads, {}", pieces.len()),
                    &got,
                    &expected,
                );
            }
        }
    }
}

#[test]
fn forks_and_rollbacks_keep_the_text_and_the_bits() {
    let model = model("t5", DType::Q8_0);
    let n_vocab = model.hparams().n_vocab;
    let texts = [tokens(&model, 3, 40), tokens(&model, 4, 1), tokens(&model, 5, 77)];
    let (first, second) = (tokens(&model, 6, 90), tokens(&model, 7, 30));
    let both: Vec<Token> = first[..50].iter().chain(&second).copied().collect();
    let mut ctx = Context::new(&model, params(KernelSet::detect().unwrap(), 2)).unwrap();
    let (a, b) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
    // Both texts in one batch, interleaved.
    let mut batch = Batch::new();
    for (&token, i) in texts[0].iter().zip(0..) {
        batch.push(token, Pos(i), &[a], false);
        if i == 0 {
            batch.push(texts[1][0], Pos(0), &[b], false);
        }
    }
    ctx.encode_batch(&batch).unwrap();
    let of = |text: usize, tokens: &[Token]| reference(&model, &texts[text], tokens);
    assert_bits("a", &answers(&mut ctx, a, &[], &first, &[9]), &of(0, &first));
    assert_bits("b", &answers(&mut ctx, b, &[], &first, &[]), &of(1, &first));
    assert_eq!(ctx.rollback(a, Pos(50)).unwrap().reevaluated, 0);
    let fork = ctx.fork(a).unwrap();
    let expected = of(0, &both);
    assert_bits("rolled back", &answers(&mut ctx, a, &[], &second, &[]), &expected[50 * n_vocab..]);
    // The other goes on with another text; the fork does not notice.
    ctx.rollback(a, Pos(0)).unwrap();
    assert_bits("from the start", &answers(&mut ctx, a, &[], &first, &[]), &of(0, &first));
    ctx.rollback(a, Pos(0)).unwrap();
    assert_bits("another text", &answers(&mut ctx, a, &texts[2], &first, &[]), &of(2, &first));
    assert_bits("forked", &answers(&mut ctx, fork, &[], &second, &[3]), &expected[50 * n_vocab..]);
    // The next sequence with this id has no encoder output.
    ctx.release(fork).unwrap();
    let next = ctx.sequence().unwrap();
    let refused = ctx.append(next, &first);
    assert!(matches!(refused, Err(Error::Memory(backstitch_kv::Error::NotEncoded { .. }))), "{refused:?}");
    assert_bits(
        "b again",
        &answers(&mut ctx, b, &[], &second, &[]),
        &of(1, &[first, second].concat())[90 * n_vocab..],
    );
}

/// A pool that fails in one of its calls.
struct Faulty {
    runs: Arc<AtomicU64>,
    fails_at: Arc<AtomicU64>,
}

impl Pool for Faulty {
    fn n_threads(&self) -> usize {
        1
    }
    fn run(&self, n_jobs: usize, job: &(dyn Fn(usize) + Sync)) -> Result<(), Panicked> {
        match self.runs.fetch_add(1, Relaxed) == self.fails_at.load(Relaxed) {
            true => Err(Panicked),
            false => Inline.run(n_jobs, job),
        }
    }
}

#[test]
fn an_encoding_that_fails_leaves_the_last_text() {
    let model = model("t5", DType::F32);
    let (runs, fails_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let pool = Arc::new(Faulty { runs: runs.clone(), fails_at: fails_at.clone() });
    let params = Params::default().n_ctx(128).n_ubatch(64).n_seq_max(2);
    let mut ctx = Context::with_pool(&model, params, pool).unwrap();
    let seq = ctx.sequence().unwrap();
    let (old, new, made) = (tokens(&model, 8, 60), tokens(&model, 9, 64), tokens(&model, 10, 20));
    ctx.encode(seq, &old).unwrap();
    let mut faults = 0;
    loop {
        runs.store(0, Relaxed);
        fails_at.store(faults * 2, Relaxed);
        match ctx.encode(seq, &new) {
            Ok(()) => break,
            Err(Error::Core(backstitch_core::Error::Panicked)) => faults += 1,
            Err(error) => panic!("{error}"),
        }
        fails_at.store(u64::MAX, Relaxed);
        assert_bits(
            "the old text",
            &answers(&mut ctx, seq, &[], &made, &[]),
            &reference(&model, &old, &made),
        );
        ctx.rollback(seq, Pos(0)).unwrap();
    }
    assert!(faults > 10, "only {faults} steps failed");
    fails_at.store(u64::MAX, Relaxed);
    let long = tokens(&model, 11, 65);
    assert!(
        ctx.encode(seq, &long).unwrap_err().to_string().contains("tokens of one sequence in a ubatch: 65")
    );
    assert_bits("the new text", &answers(&mut ctx, seq, &[], &made, &[]), &reference(&model, &new, &made));
    assert!(matches!(ctx.encode(seq, &old), Err(Error::HoldsTokens { seq: 0 })));
    let next = answers(&mut ctx, seq, &[], &made, &[]);
    let whole = reference(&model, &new, &[&made[..], &made].concat());
    assert_bits("went on", &next, &whole[made.len() * model.hparams().n_vocab..]);
}
