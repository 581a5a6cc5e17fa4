//! Files whose checksums are right and whose content is not: whoever looks at them gets an error or
//! an answer.

use super::{cells, compare, context};
use crate::embedded;
use backstitch_kv::rollback_cost::Kept;
use backstitch_kv::storage::{Container, Error, Tag, Writer};
use backstitch_models::sections::{LOGITS, METADATA, SAMPLER};
use backstitch_models::{Context, Model, Params, Pos, SaveOptions, SavedContext, SeqId, Token};

/// Return a state of the embedded model with two sequences, one of them a fork.
fn state() -> Vec<u8> {
    let model = Model::from_bytes(embedded::GGUF).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(256).n_seq_max(2)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &[5, 6, 7, 8, 9].repeat(14).into_iter().map(Token).collect::<Vec<_>>()).unwrap();
    let fork = ctx.fork(seq).unwrap();
    ctx.append(fork, &[Token(3)]).unwrap();
    assert_eq!(fork, SeqId(1));
    let mut bytes = Vec::new();
    ctx.state_write(&mut bytes, &SaveOptions::default()).unwrap();
    bytes
}

/// Return the same container with the content of one section changed by `change`.
fn forged(container: &Container<'_>, tag: Tag, change: &mut dyn FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, *container.header()).unwrap();
    for section in container.sections() {
        let mut content = container.read(section).unwrap().into_owned();
        if section.tag == tag && section.index == 0 {
            change(&mut content);
        }
        writer
            .section(section.tag, section.version, section.is_required(), section.index, &[&content])
            .unwrap();
    }
    writer.finish().unwrap();
    bytes
}

/// Look at everything as the commands do; whether it was a sound state.
fn look(bytes: &[u8], original: &SavedContext<'_>) -> bool {
    let Ok(container) = Container::parse(bytes) else { return false };
    let Ok(saved) = SavedContext::parse(&container) else { return false };
    (0..saved.sequences.len()).for_each(|i| _ = Kept::of(saved.snapshot(), i).map(|kept| kept.costs()));
    // Whether they can be compared does not matter here.
    let _ = compare(&saved, original);
    let _ = compare(original, &saved);
    true
}

#[test]
fn forged_descriptions_are_errors_or_answered() {
    let bytes = state();
    let container = Container::parse(&bytes).unwrap();
    let original = SavedContext::parse(&container).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let mut n_sound = 0;
    for round in 0..400 {
        let tag = [b"MEMO", b"SHAP", b"SEQS", b"TOKS", b"SMPL"][round % 5];
        let forged = forged(&container, Tag(*tag), &mut |content| {
            let at = next() as usize % content.len().max(1);
            match next() % 4 {
                0 => content.truncate(at),
                1 => content.insert(at, next() as u8),
                _ => content.iter_mut().skip(at).take(1 + round % 4).for_each(|byte| *byte = next() as u8),
            }
        });
        n_sound += u32::from(look(&forged, &original));
    }
    assert!(n_sound > 5, "only {n_sound} got past the first checks");
}

#[test]
fn sections_of_a_later_version_are_skipped_where_they_may_be() {
    let bytes = state();
    let container = Container::parse(&bytes).unwrap();
    let later = |required| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, *container.header()).unwrap();
        for section in container.sections().filter(|section| section.tag != LOGITS) {
            let content = container.read(section).unwrap();
            writer
                .section(section.tag, section.version, section.is_required(), section.index, &[&content])
                .unwrap();
        }
        for tag in [LOGITS, SAMPLER, METADATA] {
            writer.section(tag, 2, required, 0, &[&[7; 5]]).unwrap();
        }
        writer.finish().unwrap();
        bytes
    };
    let bytes = later(false);
    let container = Container::parse(&bytes).unwrap();
    let saved = SavedContext::parse(&container).unwrap();
    assert!(saved.sampler().is_none() && saved.metadata.is_empty());
    assert!(saved.sequences.iter().all(|sequence| sequence.logits.is_none() && !sequence.foreign));
    let bytes = later(true);
    let error = SavedContext::parse(&Container::parse(&bytes).unwrap()).unwrap_err();
    assert!(
        matches!(error, backstitch_models::Error::State(Error::UnknownRequired { version: 2, .. })),
        "{error}"
    );
}

#[test]
fn a_state_is_the_same_as_itself() {
    let bytes = state();
    let container = Container::parse(&bytes).unwrap();
    let saved = SavedContext::parse(&container).unwrap();
    assert_eq!(compare(&saved, &saved).unwrap(), []);
    assert_eq!(saved.sequences.iter().map(|sequence| sequence.end.0).collect::<Vec<_>>(), [70, 71]);
    assert!(Kept::of(saved.snapshot(), 1).is_some() && Kept::of(saved.snapshot(), 2).is_none());
}

#[test]
fn a_position_that_no_memory_could_hold_is_refused_before_a_context_is_made() {
    let (model, bytes) = (Model::from_bytes(embedded::GGUF).unwrap(), state());
    let container = Container::parse(&bytes).unwrap();
    let mut saved = SavedContext::parse(&container).unwrap();
    assert!(context(&saved, &model).is_ok());
    saved.sequences[0].end = Pos(1 << 30);
    let Err(error) = context(&saved, &model) else { panic!("a context of 2^30 tokens was made") };
    assert!(error.to_string().contains("a context of 1073741824 tokens needs"), "{error}");
}

#[test]
fn layers_that_are_larger_than_any_memory_are_a_typed_error() {
    let error = cells::zeros::<f32>(1 << 60).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes } if bytes == 1 << 62), "{error}");
}
