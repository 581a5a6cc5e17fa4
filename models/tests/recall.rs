//! Prefixes from a prompt cache: the same bits as evaluating them, for every kind of memory.

use backstitch_core::cell::CellType;
use backstitch_kv::storage::prompt_cache::{Access, BLOCK_TOKENS, PromptCache, Why};
use backstitch_models::llama_files::{Form, Options};
use backstitch_models::{Context, Model, Params, Pos, RestoreOptions, SaveOptions, SeqId, Token};

/// One model of each kind of memory.
const MODELS: [&str; 7] = ["llama", "gemma3", "mamba2", "rwkv7", "falcon_h1", "lfm2_swa", "qwen35"];

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn params() -> Params {
    Params::default().n_ctx(512).n_seq_max(2)
}

fn prompt(n: usize) -> Vec<Token> {
    (0..n).map(|i| Token(7 + (i * 31 % 90) as u32)).collect()
}

fn bits(ctx: &Context, seq: SeqId) -> Vec<u32> {
    ctx.logits_at_hand(seq).unwrap().iter().map(|x| x.to_bits()).collect()
}

/// Evaluates a prompt and stores it.
fn remember(cache: &PromptCache, model: &Model, tokens: &[Token]) -> Vec<u32> {
    let mut ctx = Context::new(model, params()).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, tokens).unwrap();
    if let Some(entry) = ctx.remember(seq, cache).unwrap() {
        cache.put(&entry).unwrap();
    }
    bits(&ctx, seq)
}

fn cache(folder: &tempfile::TempDir) -> PromptCache {
    PromptCache::open(folder.path(), Access::ReadWrite { budget: 1 << 30 }).unwrap()
}

#[test]
fn what_was_stored_goes_on_with_the_same_bits_in_another_context() {
    for name in MODELS {
        let (model, folder, tokens) = (model(name), tempfile::tempdir().unwrap(), prompt(300));
        let wanted = remember(&cache(&folder), &model, &tokens);
        // Opened anew, as another process would, and with other sizes.
        for n_ctx in [512, 400] {
            let cache = cache(&folder);
            let mut ctx = Context::new(&model, params().n_ctx(n_ctx)).unwrap();
            let (other, seq) = (ctx.sequence().unwrap(), ctx.sequence().unwrap());
            ctx.append(other, &tokens[..50]).unwrap();
            let beside = bits(&ctx, other);
            let recalled = ctx.recall(seq, &cache, &tokens).unwrap();
            assert_eq!((recalled.n_tokens, recalled.why), (288, Why::AllStored), "{name}, {recalled:?}");
            assert!(recalled.trouble.is_none() && ctx.tokens(seq).unwrap() == &tokens[..288]);
            assert_eq!(bits(&ctx, other), beside, "{name}");
            ctx.append(seq, &tokens[288..]).unwrap();
            assert_eq!(bits(&ctx, seq), wanted, "{name}");
            // What follows the beginning can be gone back to.
            ctx.rollback(seq, Pos(290)).unwrap();
            ctx.append(seq, &tokens[290..]).unwrap();
            assert_eq!(bits(&ctx, seq), wanted, "{name}");
        }
    }
}

#[test]
fn prompts_share_what_is_common_and_say_where_they_differ() {
    for name in MODELS {
        let (model, folder, tokens) = (model(name), tempfile::tempdir().unwrap(), prompt(300));
        let cache = cache(&folder);
        remember(&cache, &model, &tokens);
        let mut other = tokens.clone();
        other[290] = Token(3);
        let mut ctx = Context::new(&model, params()).unwrap();
        let seq = ctx.sequence().unwrap();
        let recalled = ctx.recall(seq, &cache, &other).unwrap();
        assert_eq!(recalled.n_tokens, 288, "{name}");
        other[150] = Token(3);
        let recalled = ctx.recall(seq, &cache, &other).unwrap();
        assert_eq!((recalled.n_stored, recalled.why), (128, Why::Differs { at: 150 }), "{name}");
        assert!(recalled.n_tokens <= 128 && recalled.n_tokens.is_multiple_of(BLOCK_TOKENS));
        if name == "llama" {
            assert_eq!(recalled.n_tokens, 128);
        }
        ctx.append(seq, &other[recalled.n_tokens..]).unwrap();
        assert_eq!(bits(&ctx, seq), remember(&cache, &model, &other), "{name}");
        // Only what is new is in the second file.
        let again = ctx.remember(seq, &cache).unwrap();
        assert!(again.is_none_or(|entry| entry.blocks.is_empty()), "{name}");
    }
}

#[test]
fn a_model_finds_nothing_of_another_and_a_cache_nothing_of_another_type() {
    let (folder, tokens) = (tempfile::tempdir().unwrap(), prompt(100));
    let cache = cache(&folder);
    remember(&cache, &model("llama"), &tokens);
    let nothing = |model: &Model, params: Params| {
        let mut ctx = Context::new(model, params).unwrap();
        let seq = ctx.sequence().unwrap();
        let recalled = ctx.recall(seq, &cache, &tokens).unwrap();
        assert_eq!((recalled.n_tokens, recalled.why), (0, Why::NothingStored));
    };
    nothing(&model("qwen3"), params());
    let type_k = CellType::F32;
    nothing(&model("llama"), params().type_k(type_k));
}

#[test]
fn damage_makes_a_prompt_be_evaluated_and_nothing_else() {
    for name in ["llama", "falcon_h1"] {
        let (model, tokens) = (model(name), prompt(100));
        for at in 1..24 {
            let folder = tempfile::tempdir().unwrap();
            let wanted = remember(&cache(&folder), &model, &tokens);
            let file = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let file = file.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
            let mut bytes = std::fs::read(&file).unwrap();
            let place = bytes.len() * at / 24;
            bytes[place] ^= 0x10;
            std::fs::write(&file, bytes).unwrap();
            let cache = cache(&folder);
            let mut ctx = Context::new(&model, params()).unwrap();
            let seq = ctx.sequence().unwrap();
            let recalled = ctx.recall(seq, &cache, &tokens).unwrap();
            ctx.append(seq, &tokens[recalled.n_tokens..]).unwrap();
            assert_eq!(bits(&ctx, seq), wanted, "{name}, {at}");
        }
    }
}

/// The sequence, saved and restored in another context.
fn moved(ctx: &Context, seq: SeqId, params: Params, convert: bool) -> Context {
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &SaveOptions::default()).unwrap();
    let mut other = Context::new(ctx.model(), params).unwrap();
    other.seq_state_read_bytes(seq, &bytes, &RestoreOptions::default().convert(convert)).unwrap();
    other
}

#[test]
fn what_was_not_computed_here_is_never_stored() {
    for name in ["llama", "gemma3", "falcon_h1"] {
        let (model, folder, tokens) = (model(name), tempfile::tempdir().unwrap(), prompt(100));
        let cache = cache(&folder);
        let is_stored = |ctx: &Context, seq| ctx.remember(seq, &cache).unwrap().is_some();
        let mut ctx = Context::new(&model, params()).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &tokens).unwrap();
        assert!(is_stored(&ctx, seq) && is_stored(&moved(&ctx, seq, params(), true), seq), "{name}");

        // Read from files of another engine.
        let file = ctx.llama_seq_state_write(seq, Form::Sequence, &Options::default()).unwrap();
        let session = ctx.llama_state_write(&Options::default()).unwrap();
        let mut foreign = Context::new(&model, params()).unwrap();
        foreign.llama_state_read(&session, &RestoreOptions::default()).unwrap();
        assert!(!is_stored(&foreign, seq), "{name}");
        foreign.llama_seq_state_read(seq, &file, &RestoreOptions::default()).unwrap();
        assert!(foreign.tokens(seq).unwrap() == tokens && !is_stored(&foreign, seq), "{name}");
        // It stays what it is, whatever becomes of it.
        let fork = foreign.fork(seq).unwrap();
        foreign.rollback(fork, Pos(80)).unwrap();
        foreign.append(fork, &tokens).unwrap();
        assert!(!is_stored(&foreign, fork), "{name}");
        assert!(!is_stored(&moved(&foreign, fork, params(), false), fork), "{name}");
        foreign.seq_rm(fork, Pos::ZERO..Pos::MAX).unwrap();
        foreign.append(fork, &tokens).unwrap();
        assert!(is_stored(&foreign, fork), "{name}");

        // Rounded, or widened from what was.
        let wide = params().type_k(CellType::F32).type_v(CellType::F32);
        let converted = moved(&ctx, seq, wide, true);
        assert!(!is_stored(&converted, seq), "{name}");
        assert!(!is_stored(&moved(&converted, seq, params(), true), seq), "{name}");
    }
}

/// A change of these bits needs another `NUMERICS` in `src/context/recall.rs`, because prompt
/// caches and saved states hold results of the old ones.
#[test]
fn the_bits_of_logits_are_pinned() {
    let hashes = MODELS.map(|name| {
        let mut ctx = Context::new(&model(name), params()).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &prompt(300)).unwrap();
        let bits: Vec<u8> = bits(&ctx, seq).into_iter().flat_map(u32::to_le_bytes).collect();
        let front: [u8; 8] = *blake3::hash(&bits).as_bytes().first_chunk().unwrap();
        u64::from_le_bytes(front)
    });
    let pinned: [u64; 7] = [
        0x2a0c_c444_6aa4_aadb,
        0x8e7a_a166_0876_6673,
        0xe15e_d845_fb59_e2a1,
        0x8e5a_e5fc_5154_9d82,
        0x00ed_0652_014b_c095,
        0x502f_b901_652d_314e,
        0x49c6_7883_90c8_c7c6,
    ];
    assert_eq!(hashes, pinned, "{hashes:x?}");
}
