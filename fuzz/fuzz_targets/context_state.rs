//! Forged states of whole contexts, with tokens, logits and metadata, read into contexts of tiny
//! models that hold a live sequence. The result is a typed error without a change to that sequence,
//! or sequences that can continue, roll back and be saved again.
//!
//! The first four bytes choose the model, whether checksums are made right, and the number of edits
//! to the sections and to the file's own structure; the rest applies to its bytes. Each edit takes
//! eight bytes.
#![no_main]

use backstitch_fuzz::edit::Edit;
use backstitch_fuzz::forge;
use backstitch_kv::{SeqId, Token};
use backstitch_models::{Context, Model, Params, RestoreOptions, SaveOptions};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

/// One model for each kind of memory.
const MODELS: [&[u8]; 4] = [
    include_bytes!("../../goldens/models/llama.gguf"),
    include_bytes!("../../goldens/models/gemma3.gguf"),
    include_bytes!("../../goldens/models/mamba2.gguf"),
    include_bytes!("../../goldens/models/falcon_h1.gguf"),
];

thread_local! {
    /// The models, and a state of each.
    static KNOWN: RefCell<Vec<(Model, Vec<u8>)>> = RefCell::new(MODELS.iter().map(|bytes| known(bytes)).collect());
}

fn known(bytes: &[u8]) -> (Model, Vec<u8>) {
    let model = Model::from_bytes(bytes).expect("a golden is a model");
    let (mut ctx, seq) = context(&model, 11);
    let fork = ctx.fork(seq).expect("there is room for a fork");
    ctx.append(fork, &[Token(9), Token(8)]).expect("there is room for two tokens");
    let mut state = Vec::new();
    ctx.state_write(&mut state, &SaveOptions::default().metadata(b"a title")).expect("memory takes all");
    (model, state)
}

/// Make a context with one sequence.
fn context(model: &Model, n_tokens: u32) -> (Context, SeqId) {
    let params = Params::default().n_ctx(128).n_seq_max(4).n_threads(1);
    let mut ctx = Context::new(model, params).expect("a small context fits");
    let seq = ctx.sequence().expect("there is a first sequence");
    let tokens: Vec<Token> = (3..3 + n_tokens).map(Token).collect();
    ctx.append(seq, &tokens).expect("there is room for some tokens");
    (ctx, seq)
}

/// Return the whole state of a sequence.
fn held(ctx: &Context, seq: SeqId) -> Vec<u8> {
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &SaveOptions::default()).expect("the sequence is there");
    bytes
}

fuzz_target!(|input: &[u8]| {
    let Some(([which, repair, sections, parts], rest)) = input.split_first_chunk::<4>() else { return };
    let edits: Vec<Edit> = rest.as_chunks().0.iter().take(32).map(Edit::read).collect();
    let (to_sections, rest) = edits.split_at(edits.len().min(usize::from(sections % 16)));
    let (to_parts, to_bytes) = rest.split_at(rest.len().min(usize::from(parts % 8)));
    KNOWN.with_borrow(|known| {
        let (model, state) = &known[usize::from(*which) % known.len()];
        let mut bytes = state.clone();
        if !to_sections.is_empty() {
            bytes = forge::with_sections(&bytes, to_sections, 0);
        }
        forge::with_parts(&mut bytes, to_parts);
        if repair % 3 > 0 {
            forge::repair(&mut bytes, repair % 3 > 1);
        }
        to_bytes.iter().for_each(|edit| edit.bytes(&mut bytes));
        read(model, &bytes);
    });
});

fn read(model: &Model, bytes: &[u8]) {
    let (mut ctx, seq) = context(model, 7);
    let before = held(&ctx, seq);
    let restored = match ctx.state_read_bytes(bytes, &RestoreOptions::default()) {
        Ok(restored) => restored,
        Err(error) => {
            let _ = error.to_string();
            assert!(held(&ctx, seq) == before, "nothing was restored, yet something changed: {error}");
            return;
        }
    };
    for sequence in &restored.sequences {
        let end = ctx.pos(sequence.seq).unwrap();
        let _ = held(&ctx, sequence.seq);
        let _ = ctx.append(sequence.seq, &[Token(5), Token(6)]).map_err(|error| error.to_string());
        let _ = ctx.rollback(sequence.seq, end).map_err(|error| error.to_string());
        let _ = held(&ctx, sequence.seq);
    }
}
