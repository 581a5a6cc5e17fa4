//! A restored sequence continues and rolls back as if it had never been saved, in any context.

use crate::converted::model;
use crate::seen::{
    CELLS, KINDS, Seen, context, go_back, go_on, golden, instant, landmarks, params, restore, saved, seen,
    tell,
};
use backstitch_core::{DType, KernelSet, cell::CellType};
use backstitch_models::graph::Head;
use backstitch_models::sampler::{Chain, Settings};
use backstitch_models::{Context, Model, Params, Pos, RestoreOptions, SaveOptions, SeqId, Token};

const WEIGHTS: [DType; 4] = [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0];

/// Contexts to restore into; the first is like the one that saved.
fn places(cells: CellType) -> Vec<(String, Params)> {
    let same = params(cells);
    let mut places = vec![
        ("the same".to_owned(), same),
        ("a large context".to_owned(), same.n_ctx(2048).n_seq_max(9)),
        ("a small context".to_owned(), same.n_ctx(416)),
        ("three threads".to_owned(), same.n_threads(3).n_ubatch(13).n_batch(64)),
    ];
    let kernels = KernelSet::available().map(|set| (format!("{set:?}"), same.kernels(Some(set))));
    places.extend(kernels);
    places
}

fn check(what: &str, model: &Model, cells: CellType) {
    let mut ctx = context(model, cells);
    let seq = tell(&mut ctx, 1);
    let (before, bytes) = (seen(&ctx, seq), saved(&ctx, seq));
    assert_eq!(ctx.seq_state_size(seq, &SaveOptions::default()).unwrap(), bytes.len() as u64);
    let backs: Vec<_> =
        landmarks(&before.positions).into_iter().map(|pos| (pos, go_back(&mut ctx, seq, pos))).collect();
    let after = go_on(&mut ctx, seq, 5, 20);
    for (place, params) in places(cells) {
        let what = format!("{what}, {cells:?}, {place}");
        let mut other = Context::new(model, params).unwrap();
        let beside = tell(&mut other, 2);
        let live = seen(&other, beside);
        let target = SeqId(2);
        let restored = restore(&mut other, target, &bytes);
        assert_eq!(restored.n_bytes, bytes.len() as u64);
        let sequence = &restored.sequences[0];
        assert_eq!((sequence.seq, sequence.end, sequence.n_tokens), (target, Pos(123), 123), "{what}");
        compare(&what, &seen(&other, target), &before);
        assert_eq!(seen(&other, beside), live, "{what}: a live sequence");
        if place == "the same" {
            for (pos, expected) in &backs {
                assert_eq!(go_back(&mut other, target, *pos), *expected, "{what}: back to {pos}");
            }
        }
        assert_eq!(go_on(&mut other, target, 5, 20), after, "{what}");
    }
}

/// Check that all sequences are as before. A context of another size may have more checkpoints, but
/// not fewer.
fn compare(what: &str, after: &Seen, before: &Seen) {
    assert_eq!((&after.tokens, &after.logits), (&before.tokens, &before.logits), "{what}");
    assert_eq!(after.range.map(|range| range.1), before.range.map(|range| range.1), "{what}");
    let held = instant(&after.positions);
    let lost: Vec<Pos> = instant(&before.positions).into_iter().filter(|pos| !held.contains(pos)).collect();
    assert!(lost.is_empty(), "{what}: {lost:?} are no longer instant");
}

#[test]
fn a_restored_sequence_goes_on_as_if_it_had_never_stopped() {
    for (i, name) in KINDS.into_iter().enumerate() {
        let dtype = WEIGHTS[i % WEIGHTS.len()];
        check(&format!("{name} {dtype}"), &model(name, dtype), CELLS[i % CELLS.len()]);
    }
}

#[test]
fn a_restored_sequence_goes_on_with_quantised_cells() {
    for (name, cells) in [("quant_f16", CellType::Q8_0), ("qwen35", CellType::Q4_0)] {
        check(&format!("{name} {cells:?}"), &model(name, DType::Q8_0), cells);
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_restored_sequence_goes_on_for_every_format_and_cell_type() {
    for name in KINDS {
        for dtype in WEIGHTS {
            let model = model(name, dtype);
            CELLS.into_iter().for_each(|cells| check(&format!("{name} {dtype}"), &model, cells));
        }
    }
}

#[test]
#[ignore = "needs a model: SMOLLM2=/path/to/model.gguf"]
fn a_restored_sequence_of_a_real_model_goes_on() {
    let model = Model::open(std::env::var("SMOLLM2").unwrap()).unwrap();
    check("a real model", &model, CellType::F16);
}

#[test]
fn every_architecture_goes_on() {
    let folder = format!("{}/../goldens/models", env!("CARGO_MANIFEST_DIR"));
    let mut n_models = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Some are there to be refused.
        let Ok(model) = Model::open(&path) else { continue };
        let mut ctx = context(&model, CellType::F16);
        if model.graph().head() == Head::Embeddings {
            // A model that only encodes has no state.
            let a = ctx.sequence().unwrap();
            let bytes = saved(&ctx, a);
            assert_eq!(restore(&mut ctx, SeqId(1), &bytes).sequences[0].n_tokens, 0);
            continue;
        }
        let a = tell(&mut ctx, 3);
        let bytes = saved(&ctx, a);
        restore(&mut ctx, SeqId(1), &bytes);
        // Learned positions end somewhere.
        let room = model.hparams().n_ctx_train.saturating_sub(ctx.pos(a).unwrap().0 as u32) as usize;
        let [of_a, of_b] = [a, SeqId(1)].map(|seq| go_on(&mut ctx, seq, 8, room.min(12)));
        assert!(room > 0 && of_a == of_b, "{}", path.display());
        n_models += 1;
    }
    assert!(n_models > 60, "{n_models}");
}

#[test]
fn a_text_that_nothing_was_decoded_from_yet_comes_back() {
    let model = golden("t5");
    let mut ctx = context(&model, CellType::F16);
    let (a, b) = (ctx.sequence().unwrap(), SeqId(1));
    ctx.encode(a, &[Token(5), Token(6), Token(1)]).unwrap();
    let bytes = saved(&ctx, a);
    restore(&mut ctx, b, &bytes);
    assert_eq!(ctx.pos(b).unwrap(), Pos(0));
    assert_eq!(go_on(&mut ctx, b, 1, 4), go_on(&mut ctx, a, 1, 4));
}

#[test]
fn a_fork_of_a_restored_sequence_is_the_sequence() {
    for name in KINDS {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let a = tell(&mut ctx, 3);
        let bytes = saved(&ctx, a);
        let b = SeqId(1);
        restore(&mut ctx, b, &bytes);
        let c = ctx.fork(b).unwrap();
        assert_eq!(ctx.logits_at_hand(c), ctx.logits_at_hand(a), "{name}");
        let [of_a, of_b, of_c] = [a, b, c].map(|seq| go_on(&mut ctx, seq, 8, 12));
        assert!(of_a == of_b && of_a == of_c, "{name}");
    }
}

#[test]
fn a_sequence_restored_over_a_live_one_takes_its_place() {
    for name in KINDS {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let (a, b) = (tell(&mut ctx, 3), tell(&mut ctx, 4));
        let (before, bytes) = (seen(&ctx, a), saved(&ctx, a));
        restore(&mut ctx, b, &bytes);
        restore(&mut ctx, a, &bytes);
        assert_eq!((&seen(&ctx, a), &seen(&ctx, b)), (&before, &before), "{name}");
    }
}

#[test]
fn restored_logits_stay_until_their_sequence_changes() {
    let model = golden("llama");
    let mut ctx = context(&model, CellType::F16);
    let a = tell(&mut ctx, 3);
    let bytes = saved(&ctx, a);
    restore(&mut ctx, SeqId(1), &bytes);
    assert!(ctx.logits_at_hand(a).is_some() && ctx.logits_at_hand(SeqId(1)).is_some());
    ctx.append(a, &[Token(1)]).unwrap();
    assert!(ctx.logits_at_hand(a).is_some() && ctx.logits_at_hand(SeqId(1)).is_some());
    ctx.append(SeqId(1), &[Token(1)]).unwrap();
    assert_eq!(ctx.logits(a).unwrap().to_vec(), ctx.logits(SeqId(1)).unwrap());
    restore(&mut ctx, SeqId(1), &bytes);
    ctx.rollback(SeqId(1), Pos(100)).unwrap();
    assert!(ctx.logits_at_hand(SeqId(1)).is_none());
}

#[test]
fn samplers_and_the_callers_bytes_come_back_too() {
    let model = golden("falcon_h1");
    let settings = Settings::default().seed(9).repeat_penalty(1.2).temp(1.5);
    let n_vocab = model.hparams().n_vocab;
    let mut ctx = context(&model, CellType::F16);
    let a = tell(&mut ctx, 6);
    let mut chain = Chain::new(n_vocab, &settings);
    let story = |ctx: &mut Context, seq: SeqId, chain: &mut Chain| -> Vec<Token> {
        let mut next = |_| {
            let token = chain.sample(ctx.logits(seq).unwrap()).unwrap();
            chain.accept(token);
            ctx.append(seq, &[token]).unwrap();
            token
        };
        (0..25).map(&mut next).collect()
    };
    story(&mut ctx, a, &mut chain);
    let mut bytes = Vec::new();
    let options = SaveOptions::default().sampler(Some(&chain)).metadata(b"a title");
    ctx.seq_state_write(a, &mut bytes, &options).unwrap();
    let mut other = context(&model, CellType::F16);
    let restored = restore(&mut other, SeqId(0), &bytes);
    assert_eq!(restored.metadata, b"a title");
    let mut resumed = Chain::new(n_vocab, &settings.seed(1));
    resumed.resume(restored.sampler().unwrap()).unwrap();
    assert_eq!(story(&mut other, SeqId(0), &mut resumed), story(&mut ctx, a, &mut chain));
}

#[test]
fn cells_of_another_type_are_converted_when_asked_for_and_the_error_is_told() {
    for (name, from, to) in
        [("llama", CellType::F32, CellType::F16), ("gemma3", CellType::F16, CellType::F32)]
    {
        let model = golden(name);
        let mut ctx = context(&model, from);
        let a = tell(&mut ctx, 3);
        let bytes = saved(&ctx, a);
        let mut other = context(&model, to);
        let beside = tell(&mut other, 4);
        let live = seen(&other, beside);
        let mut read = |convert| {
            let options = RestoreOptions::default().convert(convert);
            other.seq_state_read_bytes(SeqId(1), &bytes, &options)
        };
        let refused = read(false).unwrap_err();
        assert!(refused.to_string().contains("conversion"), "{refused}");
        let conversion = read(true).unwrap().fit.conversion.unwrap();
        assert!(conversion.n_values > 1_000, "{conversion:?}");
        assert_eq!(conversion.n_changed > 0, from == CellType::F32, "{name}: {conversion:?}");
        assert_eq!(conversion.max_error > 0.0, from == CellType::F32, "{name}: {conversion:?}");
        assert_eq!(seen(&other, beside), live, "{name}");
        // Nearly the same story.
        let near = |a: &Context, b: &Context| {
            let pairs = a.logits_at_hand(SeqId(0)).unwrap().iter().zip(b.logits_at_hand(SeqId(1)).unwrap());
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        ctx.append(a, &[Token(7)]).unwrap();
        other.append(SeqId(1), &[Token(7)]).unwrap();
        let difference = near(&ctx, &other);
        assert!(difference < 0.1, "{name}: {difference}");
    }
}
