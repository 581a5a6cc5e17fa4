//! Contract 5: once a context is made, decoding a token allocates nothing, also after a fork, a rollback and a shift.

use backstitch_models::{Context, Model, Params, Pos, Token};
use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[test]
fn decoding_a_token_allocates_nothing() {
    for name in ["llama", "qwen3", "falcon_h1", "gemma3", "quant_q4_0", "quant_q8_0", "llama_moe"] {
        let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        let model = Model::from_bytes(&std::fs::read(path).unwrap()).unwrap();
        for n_threads in [1, 2] {
            let params = Params { n_ctx: 512, n_seq_max: 3, n_threads, ..Params::default() };
            let mut ctx = Context::new(&model, params).unwrap();
            let a = ctx.sequence().unwrap();
            let prompt: Vec<Token> = (0..70).map(Token).collect();
            ctx.append(a, &prompt).unwrap();
            let b = ctx.fork(a).unwrap();
            ctx.rollback(a, Pos(40)).unwrap();
            for seq in [a, b] {
                ctx.append(seq, &[Token(1)]).unwrap();
            }
            let (_, tally) = ALLOCATOR.during(|| {
                for i in 0..100 {
                    ctx.append(a, &[Token(i)]).unwrap();
                    ctx.append(b, &[Token(i + 100)]).unwrap();
                }
            });
            assert_eq!(tally.allocations, 0, "{name}, {n_threads} threads: {tally:?}");
            ctx.seq_rm(b, Pos(10)..Pos(20)).unwrap();
            ctx.seq_add(b, Pos(20)..Pos::MAX, -10).unwrap();
            ctx.append(b, &[Token(1)]).unwrap();
            let (_, tally) = ALLOCATOR.during(|| {
                for i in 0..50 {
                    ctx.append(b, &[Token(i)]).unwrap();
                }
            });
            assert_eq!(tally.allocations, 0, "{name}, {n_threads} threads, after a shift: {tally:?}");
        }
    }
}
