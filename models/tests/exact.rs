//! Contract 1: the logits of a token depend on the weights and the tokens before it, and on nothing else. Bits, not
//! tolerances.

use backstitch_core::{DType, KernelSet, cell::CellType};
use backstitch_models::{
    Batch, Context, Error, Model, Params, Pooling, Pos, SeqId, Token,
    gguf::{Gguf, Writer},
};
use backstitch_testing::{Random, assert_bits};

const ARCHITECTURES: [&str; 13] = [
    "llama",
    "qwen3",
    "falcon_h1",
    "gemma2",
    "gemma3",
    "mamba",
    "mamba2",
    "jamba",
    "lfm2",
    "lfm2_swa",
    "rwkv6",
    "rwkv7",
    "qwen35",
];
const WEIGHTS: [DType; 4] = [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0];
const N_TOKENS: usize = 300;

/// The golden model `name` with its matrices in another format, where their rows are whole blocks of it.
fn model(name: &str, dtype: DType) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let converted: Vec<(DType, Vec<u8>)> = gguf
        .tensors()
        .iter()
        .map(|info| {
            let is_matrix =
                info.shape().len() == 2 && info.name().ends_with("weight") && !info.name().contains("conv1d");
            let n_cols = *info.shape().last().unwrap();
            let data = gguf.tensor_data(info);
            if !is_matrix || info.name().contains("norm") || n_cols % dtype.block_len() != 0 {
                return (info.dtype(), data.to_vec());
            }
            let mut values = vec![0.0; info.n_elements()];
            info.dtype().decode(data, &mut values).unwrap();
            let mut out = vec![0; dtype.row_bytes(values.len()).unwrap()];
            dtype.encode(&values, &mut out).unwrap();
            (dtype, out)
        })
        .collect();
    let mut writer = Writer::new();
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for (info, (dtype, data)) in gguf.tensors().iter().zip(&converted) {
        writer.tensor(info.name(), info.shape(), *dtype, data).unwrap();
    }
    Model::from_bytes(&writer.to_bytes()).unwrap()
}

fn params(kernels: &'static KernelSet, n_threads: u32) -> Params {
    Params { n_ctx: 1024, n_seq_max: 4, n_threads, kernels: Some(kernels), ..Params::default() }
}

fn tokens(model: &Model, seed: u64, n: usize) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..n).map(|_| Token(random.below(model.hparams().n_vocab) as u32)).collect()
}

/// Logits of all tokens, evaluated in pieces of these lengths (the last one takes the rest).
fn logits(ctx: &mut Context, seq: SeqId, tokens: &[Token], pieces: &[usize]) -> Vec<f32> {
    let (mut all, mut rest, mut pieces) = (vec![], tokens, pieces.iter());
    while !rest.is_empty() {
        let n = pieces.next().copied().unwrap_or(rest.len()).min(rest.len());
        let mut batch = Batch::new();
        let start = ctx.pos(seq).0;
        for (i, &token) in rest[..n].iter().enumerate() {
            batch.push(token, Pos(start + i as i32), &[seq], true);
        }
        ctx.decode(&batch).unwrap();
        (0..n).for_each(|i| all.extend_from_slice(ctx.output(i).unwrap()));
        rest = &rest[n..];
    }
    all
}

/// The reference: the whole prompt at once, scalar kernels, one thread.
fn reference(model: &Model, tokens: &[Token], cells: CellType) -> Vec<f32> {
    let params = Params { type_k: cells, type_v: cells, ..params(KernelSet::scalar(), 1) };
    logits(&mut Context::new(model, params).unwrap(), SeqId(0), tokens, &[])
}

fn for_each_model(check: impl Fn(&str, &Model)) {
    for name in ARCHITECTURES {
        for dtype in WEIGHTS {
            check(&format!("{name} {dtype}"), &model(name, dtype));
        }
    }
}

#[test]
fn every_kernel_set_and_any_number_of_threads_give_the_same_bits() {
    for_each_model(|what, model| {
        let tokens = tokens(model, 1, N_TOKENS);
        for cells in [CellType::F32, CellType::F16, CellType::BF16] {
            let expected = reference(model, &tokens, cells);
            for set in KernelSet::available() {
                for n_threads in 1..=3 {
                    let params = Params { type_k: cells, type_v: cells, ..params(set, n_threads) };
                    let mut ctx = Context::new(model, params).unwrap();
                    let got = logits(&mut ctx, SeqId(0), &tokens, &[]);
                    assert_bits(format!("{what} {set:?} {n_threads} threads {cells:?}"), &got, &expected);
                }
            }
        }
    });
}

#[test]
fn any_chunking_gives_the_same_bits() {
    for_each_model(|what, model| {
        let tokens = tokens(model, 2, N_TOKENS);
        let expected = reference(model, &tokens, CellType::F16);
        for set in KernelSet::available() {
            for pieces in
                [&[1, 7, 16][..], &[1; N_TOKENS], &[31, 1, 32, 1, 33], &[255, 1], &[2; N_TOKENS / 2]]
            {
                let mut ctx = Context::new(model, params(set, 2)).unwrap();
                let got = logits(&mut ctx, SeqId(1), &tokens, pieces);
                assert_bits(format!("{what} {set:?} {:?}…", &pieces[..1]), &got, &expected);
            }
            for n_ubatch in [1, 5, 64] {
                let mut ctx = Context::new(model, Params { n_ubatch, ..params(set, 1) }).unwrap();
                let got = logits(&mut ctx, SeqId(0), &tokens, &[]);
                assert_bits(format!("{what} {set:?} ubatch {n_ubatch}"), &got, &expected);
            }
        }
    });
}

#[test]
fn any_batch_around_a_sequence_gives_the_same_bits() {
    for_each_model(|what, model| {
        let prompts: Vec<Vec<Token>> = (0..4).map(|i| tokens(model, 10 + i, 40 + 37 * i as usize)).collect();
        let expected: Vec<Vec<f32>> = prompts.iter().map(|p| reference(model, p, CellType::F16)).collect();
        for set in KernelSet::available() {
            let mut ctx = Context::new(model, params(set, 2)).unwrap();
            let mut got: Vec<Vec<f32>> = vec![vec![]; 4];
            let mut at = [0; 4];
            let mut random = Random::new(5);
            while at != [40, 77, 114, 151] {
                // A random number of tokens of each sequence, interleaved one by one.
                let mut batch = Batch::new();
                let mut owner = vec![];
                for _ in 0..random.below(60) + 1 {
                    let i = random.below(4);
                    if at[i] < prompts[i].len() {
                        batch.push(prompts[i][at[i]], Pos(at[i] as i32), &[SeqId(i as u32)], true);
                        at[i] += 1;
                        owner.push(i);
                    }
                }
                ctx.decode(&batch).unwrap();
                for (index, &i) in owner.iter().enumerate() {
                    got[i].extend_from_slice(ctx.output(index).unwrap());
                }
            }
            for i in 0..4 {
                assert_bits(format!("{what} {set:?} sequence {i}"), &got[i], &expected[i]);
            }
        }
    });
}

#[test]
fn rollback_and_fork_give_the_same_bits_as_never_having_gone_another_way() {
    for_each_model(|what, model| {
        let (first, second) = (tokens(model, 3, 120), tokens(model, 4, 50));
        let whole: Vec<Token> = first[..70].iter().chain(&second).copied().collect();
        let expected = reference(model, &whole, CellType::F16);
        let expected = &expected[70 * model.hparams().n_vocab..];
        let mut ctx = Context::new(model, params(KernelSet::detect().unwrap(), 2)).unwrap();
        let a = ctx.sequence().unwrap();
        ctx.append(a, &first).unwrap();
        let done = ctx.rollback(a, Pos(70)).unwrap();
        assert_eq!(done.restored_from.0 as u32 + done.replayed + done.reevaluated, 70);
        assert!(ctx.logits(a).is_none());
        let b = ctx.fork(a).unwrap();
        assert_bits(format!("{what} after a rollback"), &logits(&mut ctx, a, &second, &[]), expected);
        assert_bits(format!("{what} in a fork"), &logits(&mut ctx, b, &second, &[3, 9]), expected);
    });
}

/// Embeddings of all tokens of some texts, then the pooled ones.
fn embeddings(model: &Model, params: Params, texts: &[Vec<Token>]) -> Vec<Vec<f32>> {
    let mut ctx = Context::new(model, params).unwrap();
    let mut batch = Batch::new();
    // Interleaved, so that the texts have to be taken apart.
    for i in 0..texts.iter().map(Vec::len).max().unwrap_or(0) {
        for (seq, text) in texts.iter().enumerate().filter(|(_, text)| i < text.len()) {
            batch.push(text[i], Pos(i as i32), &[SeqId(seq as u32)], true);
        }
    }
    ctx.encode_batch(&batch).unwrap();
    let mut all: Vec<Vec<f32>> = (0..texts.len()).map(|_| vec![]).collect();
    for i in 0..batch.len() {
        all[batch.seqs(i)[0].index()].extend_from_slice(ctx.embedding(i).unwrap());
    }
    for (seq, all) in all.iter_mut().enumerate() {
        all.extend_from_slice(ctx.pooled(SeqId(seq as u32)).unwrap());
    }
    all
}

#[test]
fn embeddings_have_the_same_bits_whatever_lies_beside_a_text() {
    for dtype in WEIGHTS {
        let model = model("bert", dtype);
        let texts: Vec<Vec<Token>> = (0..4).map(|i| tokens(&model, 20 + i, 1 + 42 * i as usize)).collect();
        for pooling in [Pooling::Mean, Pooling::Cls, Pooling::Last] {
            let pooled = |set, n_threads| Params { pooling: Some(pooling), ..params(set, n_threads) };
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
fn what_an_encoder_cannot_do_is_refused_with_the_way_out() {
    let model = model("bert", DType::F32);
    let mut ctx = Context::new(&model, Params { n_ubatch: 16, ..Params::default() }).unwrap();
    let seq = ctx.sequence().unwrap();
    assert!(matches!(ctx.append(seq, &[Token(1)]), Err(Error::EncoderOnly)));
    let too_long = ctx.encode(seq, &tokens(&model, 1, 17)).unwrap_err();
    assert!(too_long.to_string().contains("17 tokens of one sequence in a ubatch"), "{too_long}");
    let mut batch = Batch::new();
    batch.push(Token(1), Pos(500), &[seq], true);
    let beyond = ctx.encode_batch(&batch).unwrap_err();
    assert!(matches!(beyond, Error::BeyondPositions { pos: 500, n_pos: 128 }), "{beyond}");
    ctx.encode(seq, &tokens(&model, 1, 16)).unwrap();
    assert!(ctx.pooled(seq).is_some() && ctx.embedding(15).is_some() && ctx.logits(seq).is_none());
    assert_eq!(ctx.pos(seq), Pos(0), "nothing is kept");
    ctx.release(seq).unwrap();
    assert!(ctx.pooled(seq).is_none());
    let llama = self::model("llama", DType::F32);
    let mut ctx = Context::new(&llama, Params::default()).unwrap();
    let seq = ctx.sequence().unwrap();
    assert!(matches!(ctx.encode(seq, &[Token(1)]), Err(Error::NoEncoder)));
}
