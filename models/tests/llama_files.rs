//! A state that goes through llama.cpp's files and back continues with the same bits.

use backstitch_core::cell::CellType;
use backstitch_models::llama_files::{Error as LlamaError, File, Form, Options};
use backstitch_models::{Context, Error, Model, Params, Pos, RestoreOptions, SeqId, Token};

const MODELS: [&str; 15] = [
    "llama",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "falcon_h1",
    "jamba",
    "lfm2",
    "lfm2_swa",
    "mamba",
    "mamba2",
    "nemotron_h",
    "nemotron_h_moe",
    "plamo2",
    "qwen35",
];

fn model(name: &str) -> Model {
    let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn context(model: &Model, n_ctx: u32, kind: CellType) -> Context {
    Context::new(model, Params::default().n_ctx(n_ctx).n_seq_max(3).type_k(kind).type_v(kind)).unwrap()
}

fn tokens(n: u32, seed: u32) -> Vec<Token> {
    (0..n).map(|i| Token(3 + (i * i * 7 + i * seed + seed) % 200)).collect()
}

/// Return the bits of the logits of a few more tokens.
fn go_on(ctx: &mut Context, seq: SeqId) -> Vec<u32> {
    let mut bits = Vec::new();
    for token in tokens(5, 11) {
        ctx.append(seq, &[token]).unwrap();
        bits.extend(ctx.logits(seq).unwrap().iter().map(|x| x.to_bits()));
    }
    bits
}

#[test]
fn a_sequence_goes_on_with_the_same_bits_in_another_context() {
    let models = MODELS.into_iter().chain(["rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"]);
    for (number, name) in models.enumerate() {
        let model = model(name);
        let kind = if number % 2 == 0 { CellType::F32 } else { CellType::F16 };
        // Longer than windows, which are 8 wide, and than a block; for one model longer than a span
        // of slots.
        let n = if name == "gemma3" { 300 } else { 45 };
        let mut ctx = context(&model, 384, kind);
        let a = ctx.sequence().unwrap();
        ctx.append(a, &tokens(n, 5)).unwrap();
        let options = Options { n_stream: 3, v_trans: number % 3 == 0, sequence: 2, ..Options::default() };
        let form = if number % 4 == 0 { Form::Buffer } else { Form::Sequence };
        let file = ctx.llama_seq_state_write(a, form, &options).unwrap();
        let wanted = go_on(&mut ctx, a);

        let mut other = context(&model, 512, kind);
        let beside = other.sequence().unwrap();
        other.append(beside, &tokens(9, 8)).unwrap();
        let b = other.sequence().unwrap();
        let restored = other.llama_seq_state_read(b, &file, &RestoreOptions::default()).unwrap();
        assert_eq!((restored.seq(), restored.n_bytes), (b, file.len() as u64));
        assert_eq!(other.pos(b).unwrap(), Pos(n as i32), "{name}");
        let known = if form == Form::Buffer { vec![] } else { tokens(n, 5) };
        assert_eq!(other.tokens(b).unwrap(), known, "{name}");
        assert!(other.logits_at_hand(b).is_none());
        assert!(go_on(&mut other, b) == wanted, "{name}");
        assert_eq!(other.tokens(beside).unwrap(), tokens(9, 8));
    }
}

#[test]
fn a_session_brings_all_sequences_back_and_what_they_share() {
    for name in MODELS {
        let model = model(name);
        for n_stream in [1, 3] {
            let mut ctx = context(&model, 256, CellType::F32);
            let a = ctx.sequence().unwrap();
            ctx.append(a, &tokens(40, 5)).unwrap();
            let gone = ctx.fork(a).unwrap();
            let b = ctx.fork(a).unwrap();
            ctx.release(gone).unwrap();
            ctx.append(b, &tokens(3, 9)).unwrap();
            let file = ctx.llama_state_write(&Options { n_stream, ..Options::default() }).unwrap();
            let wanted = [go_on(&mut ctx, a), go_on(&mut ctx, b)];

            let mut other = context(&model, 256, CellType::F32);
            for _ in 0..3 {
                let old = other.sequence().unwrap();
                other.append(old, &tokens(7, 3)).unwrap();
            }
            let restored = other.llama_state_read(&file, &RestoreOptions::default()).unwrap();
            let seqs: Vec<SeqId> = restored.sequences.iter().map(|sequence| sequence.seq).collect();
            assert_eq!(seqs, [a, b], "{name}");
            assert!(matches!(other.pos(gone), Err(Error::Sequence { .. })), "{name}");
            assert!(wanted == [go_on(&mut other, a), go_on(&mut other, b)], "{name}, {n_stream} streams");
            // The number without a sequence is free.
            assert_eq!(other.sequence().unwrap(), gone);
        }
    }
}

#[test]
fn cells_of_another_type_are_converted_only_when_asked() {
    let model = model("llama");
    let mut ctx = context(&model, 128, CellType::F16);
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(20, 5)).unwrap();
    let file = ctx.llama_seq_state_write(a, Form::Sequence, &Options::default()).unwrap();
    let mut other = context(&model, 128, CellType::F32);
    let error = other.llama_seq_state_read(a, &file, &RestoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Memory(backstitch_kv::Error::CellType { .. })), "{error}");
    assert!(other.tokens(a).is_err());
    other.llama_seq_state_read(a, &file, &RestoreOptions::default().convert(true)).unwrap();
    assert_eq!(other.tokens(a).unwrap(), tokens(20, 5));
}

/// llama.cpp has already emptied the sequence when it notices that a file does not fit.
#[test]
fn a_file_that_cannot_be_read_leaves_everything_as_it_was() {
    for name in ["llama", "gemma3", "falcon_h1", "mamba"] {
        let model = model(name);
        let mut ctx = context(&model, 128, CellType::F32);
        let a = ctx.sequence().unwrap();
        ctx.append(a, &tokens(30, 5)).unwrap();
        let file = ctx.llama_seq_state_write(a, Form::Sequence, &Options::default()).unwrap();
        let session = ctx.llama_state_write(&Options::default()).unwrap();
        let options = RestoreOptions::default();
        let mut damaged = file.clone();
        damaged.truncate(file.len() - 1);
        assert!(matches!(ctx.llama_seq_state_read(a, &damaged, &options), Err(Error::Llama(_))));
        damaged.clone_from(&session);
        damaged.push(0);
        assert!(matches!(ctx.llama_state_read(&damaged, &options), Err(Error::Llama(_))));
        let unsupported = |error| matches!(error, Err(Error::Llama(error)) if matches!(*error, LlamaError::Unsupported { .. }));
        assert!(unsupported(ctx.llama_state_read(&file, &options)));
        assert!(unsupported(ctx.llama_seq_state_read(a, &session, &options)));
        let error = ctx.llama_seq_state_read(SeqId(3), &file, &options);
        assert!(matches!(error, Err(Error::Sequence { seq: 3 })));
        let mut untouched = context(&model, 128, CellType::F32);
        let b = untouched.sequence().unwrap();
        untouched.append(b, &tokens(30, 5)).unwrap();
        assert!(go_on(&mut ctx, a) == go_on(&mut untouched, b), "{name}");
    }
}

#[test]
fn models_that_were_not_compared_are_refused_by_name() {
    let model = model("t5");
    let ctx = context(&model, 64, CellType::F32);
    let error = ctx.llama_state_write(&Options::default()).unwrap_err();
    let wanted = r#"llama.cpp's state files are not supported for architecture "t5"; use Backstitch's own"#;
    assert_eq!(error.to_string(), wanted);
}

/// A rollback re-evaluates the tokens that a file lists.
#[test]
fn after_reading_a_file_every_position_can_be_gone_back_to() {
    for name in ["llama", "gemma3", "jamba", "mamba2"] {
        let model = model(name);
        let mut ctx = context(&model, 128, CellType::F32);
        let a = ctx.sequence().unwrap();
        ctx.append(a, &tokens(30, 5)).unwrap();
        let file = ctx.llama_seq_state_write(a, Form::Sequence, &Options::default()).unwrap();
        ctx.rollback(a, Pos(12)).unwrap();
        let wanted = go_on(&mut ctx, a);
        let mut other = context(&model, 128, CellType::F32);
        other.llama_seq_state_read(a, &file, &RestoreOptions::default()).unwrap();
        other.rollback(a, Pos(12)).unwrap();
        assert!(go_on(&mut other, a) == wanted, "{name}");
    }
}

#[test]
fn a_session_has_what_windows_see_and_more_only_if_asked() {
    let mut ctx = context(&model("gemma3"), 128, CellType::F32);
    let a = ctx.sequence().unwrap();
    ctx.append(a, &tokens(60, 5)).unwrap();
    let layout = ctx.llama_layout().unwrap();
    let n_cells = |margin| {
        let bytes = ctx.llama_state_write(&Options { margin, ..Options::default() }).unwrap();
        let file = File::parse(&bytes, &layout).unwrap();
        let mut cells: Vec<u32> =
            file.snapshot().sequences[0].cells.iter().map(|cells| cells.len()).collect();
        cells.sort_unstable();
        cells
    };
    assert_eq!(n_cells(false), [8, 60]);
    assert!(matches!(n_cells(true)[..], [windowed, 60] if windowed > 8));
}

#[test]
fn what_stands_behind_the_tokens_is_read_without_them() {
    let model = model("gemma3");
    let mut ctx = context(&model, 128, CellType::F32);
    let (a, listed) = (ctx.sequence().unwrap(), tokens(30, 5));
    ctx.append(a, &listed).unwrap();
    let behind = 12 + 4 * listed.len();
    let session = ctx.llama_state_write(&Options::default()).unwrap();
    let one = ctx.llama_seq_state_write(a, Form::Sequence, &Options::default()).unwrap();
    let wanted = go_on(&mut ctx, a);
    for (seq, bytes) in [(None, session), (Some(a), one)] {
        let mut other = context(&model, 128, CellType::F32);
        let options = RestoreOptions::default();
        other.llama_read_behind(seq, listed.clone(), &bytes[behind..], &options).unwrap();
        assert_eq!(other.tokens(a).unwrap(), listed);
        assert!(go_on(&mut other, a) == wanted);
        let cut = &bytes[behind..bytes.len() - 1];
        assert!(other.llama_read_behind(seq, listed.clone(), cut, &options).is_err());
    }
}

/// Every number of the files is where llama.cpp itself wrote it.
#[test]
fn what_llama_cpp_saved_is_saved_again_byte_for_byte() {
    let folder = format!("{}/../goldens/state", env!("CARGO_MANIFEST_DIR"));
    let mut n = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file_name = path.file_name().unwrap().to_str().unwrap();
        let parts: Vec<&str> = file_name.split('.').collect();
        // Of several sequences it is not known which one the list of tokens is of.
        let &[name, case @ ("f32" | "f16" | "flash_f16"), kind] = &parts[..] else { continue };
        let bytes = std::fs::read(&path).unwrap();
        let kv = if case == "f32" { CellType::F32 } else { CellType::F16 };
        let mut ctx = context(&model(name), 64, kv);
        // Its sessions have whatever a cache still holds.
        let margin = kind == "state";
        let options = Options { v_trans: case != "flash_f16", margin, ..Options::default() };
        let written = match kind {
            "state" => {
                ctx.llama_state_read(&bytes, &RestoreOptions::default()).unwrap();
                ctx.llama_state_write(&options)
            }
            _ => {
                ctx.llama_seq_state_read(SeqId(0), &bytes, &RestoreOptions::default()).unwrap();
                ctx.llama_seq_state_write(SeqId(0), Form::Sequence, &options)
            }
        };
        assert!(written.unwrap() == bytes, "{file_name}");
        n += 1;
    }
    assert_eq!(n, 32);
}
