//! Failures of other engines that this one must not have, each with a description.

use crate::damage::rewritten;
use crate::seen::{bits, context, go_back, go_on, golden, params, restore, saved, saved_all, seen, tell};
use backstitch_core::cell::CellType;
use backstitch_kv::storage::Container;
use backstitch_models::{Context, Error, Model, Pos, RestoreOptions, SeqId, Token};

fn read(ctx: &mut Context, seq: SeqId, bytes: &[u8]) -> Result<(), Error> {
    ctx.seq_state_read_bytes(seq, bytes, &RestoreOptions::default()).map(drop)
}

/// Elsewhere a state file with a flipped bit loads without an error, and the sequence continues
/// with other logits.
#[test]
fn a_flipped_bit_in_a_state_is_noticed() {
    let model = golden("llama");
    let mut ctx = context(&model, CellType::F16);
    let a = tell(&mut ctx, 1);
    let before = seen(&ctx, a);
    let mut bytes = saved(&ctx, a);
    let container = Container::parse(&bytes).unwrap();
    let sections = container.sections().map(|section| section.offset + section.stored_len / 2);
    let mut places: Vec<usize> = sections.map(|at| at as usize).collect();
    // The header, the directory, the footer.
    places.extend([20, 40, bytes.len() - 100, bytes.len() - 5]);
    for at in places {
        bytes[at] ^= 4;
        let error = read(&mut ctx, a, &bytes).unwrap_err();
        assert!(matches!(error, Error::State(_)), "{at}: {error:?}");
        assert_eq!(seen(&ctx, a), before, "{at}");
        bytes[at] ^= 4;
    }
}

/// Elsewhere the state of an F16 model loads into its Q4_0 twin, and logits differ by 1.25.
#[test]
fn the_state_of_a_twin_in_another_format_is_refused() {
    let (f16, q4_0) = (golden("quant_f16"), golden("quant_q4_0"));
    let mut ctx = context(&f16, CellType::F16);
    let a = tell(&mut ctx, 1);
    let bytes = saved(&ctx, a);
    let mut twin = context(&q4_0, CellType::F16);
    let live = tell(&mut twin, 2);
    let before = seen(&twin, live);
    let error = read(&mut twin, live, &bytes).unwrap_err();
    assert!(matches!(&error, Error::State(backstitch_kv::storage::Error::Fingerprint { .. })), "{error:?}");
    let ours = f16.fingerprint().to_string();
    assert!(error.to_string().contains(&ours[..32]), "{error}");
    assert_eq!(seen(&twin, live), before);
}

/// Elsewhere a file that claims two cells where there is one ends the process, 16 bytes allocate 3
/// GiB, and negative positions are accepted.
#[test]
fn hostile_numbers_in_a_sound_container_are_refused() {
    for name in ["llama", "mamba2", "gemma3"] {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let a = tell(&mut ctx, 1);
        let before = seen(&ctx, a);
        let bytes = saved(&ctx, a);
        let refused = |ctx: &mut Context, what: &str, bytes: &[u8]| {
            let error = read(ctx, a, bytes).unwrap_err();
            assert!(!error.to_string().is_empty());
            assert_eq!(seen(ctx, a), before, "{name}, {what}: {error}");
        };
        // 16 bytes and hostile lengths.
        refused(&mut ctx, "sixteen bytes", &bytes[..16]);
        refused(&mut ctx, "nothing", &[]);
        // A first position below zero, one beyond all, an end that is another.
        for start in [[0xff; 4], [0xff, 0xff, 0xff, 0x7f], [9, 0, 0, 0]] {
            let bytes = rewritten(&bytes, |tag, _, content| {
                if tag == b"TOKS" {
                    content[4..8].copy_from_slice(&start);
                }
            });
            refused(&mut ctx, "a start", &bytes);
        }
        // A token that there is not, a token too few, half a token.
        for cut in [None, Some(4), Some(2)] {
            let bytes = rewritten(&bytes, |tag, _, content| match (tag, cut) {
                (b"TOKS", None) => content[8..12].copy_from_slice(&[0, 0, 1, 0]),
                (b"TOKS", Some(n)) => content.truncate(content.len() - n),
                _ => {}
            });
            refused(&mut ctx, "tokens", &bytes);
        }
        // A second sequence that is not there, and none.
        for n in [0, 8] {
            let bytes = rewritten(&bytes, |tag, _, content| {
                if tag == b"SEQS" {
                    content.resize(n, 0);
                }
            });
            refused(&mut ctx, "sequences", &bytes);
        }
        // Logits of another vocabulary.
        let short = rewritten(&bytes, |tag, _, content| {
            if tag == b"LGTS" {
                content.truncate(8);
            }
        });
        refused(&mut ctx, "logits", &short);
    }
}

/// Elsewhere a refused restore, because of another cell type for example, has already emptied the
/// live sequence, and a truncated one leaves half of the cells.
#[test]
fn a_restore_that_fails_leaves_the_live_sequence_as_it_was() {
    for name in ["llama", "gemma3", "mamba2", "falcon_h1"] {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F32);
        let (a, b) = (tell(&mut ctx, 1), tell(&mut ctx, 2));
        let (one, all) = (saved(&ctx, a), saved_all(&ctx));
        let mut other = context(&model, CellType::F16);
        let live = tell(&mut other, 3);
        let before = seen(&other, live);
        let check = |other: &mut Context, what: &str, result: Result<(), Error>| {
            assert!(result.is_err(), "{name}, {what}");
            assert_eq!(seen(other, live), before, "{name}, {what}");
        };
        // States are F32 in all contexts.
        if name != "mamba2" {
            let result = read(&mut other, live, &one);
            check(&mut other, "type", result);
        }
        for n in [1, 100, 1535, 1600, one.len() / 2, one.len() - 1] {
            let result = read(&mut other, live, &one[..n]);
            check(&mut other, "one cut", result);
        }
        for n in [1, 1600, all.len() / 2, all.len() - 64, all.len() - 1] {
            let result = other.state_read(&mut &all[..n], &RestoreOptions::default()).map(drop);
            check(&mut other, "all cut", result);
        }
        // It continues like a sequence that was never to be replaced.
        let mut fresh = context(&model, CellType::F16);
        let untouched = tell(&mut fresh, 3);
        assert_eq!(go_on(&mut other, live, 9, 8), go_on(&mut fresh, untouched, 9, 8), "{name}");
        assert_eq!(seen(&ctx, b).tokens.len(), 123);
    }
}

/// Elsewhere a sequence with a sliding window, restored from a file, "rolls back" to a position
/// whose window is gone, and logits differ by 2.7.
#[test]
fn going_back_behind_the_window_after_a_restore_gives_the_logits_of_never_having_left() {
    for name in ["gemma3", "lfm2_swa"] {
        let model = golden(name);
        let mut ctx = context(&model, CellType::F16);
        let a = tell(&mut ctx, 1);
        let tokens = ctx.tokens(a).unwrap().to_vec();
        let mut other = context(&model, CellType::F16);
        restore(&mut other, SeqId(0), &saved(&ctx, a));
        for pos in [100, 60, 33, 5, 1] {
            let (_, back) = go_back(&mut other, SeqId(0), Pos(pos));
            let mut fresh = context(&model, CellType::F16);
            let seq = fresh.sequence().unwrap();
            fresh.append(seq, &tokens[..pos as usize]).unwrap();
            assert_eq!(back, go_on(&mut fresh, seq, 77, 3), "{name}, back to {pos}");
        }
    }
}

/// Elsewhere a state saved between a move of positions and the next decode has new positions with
/// keys that were not shifted yet.
#[test]
fn a_state_saved_after_a_move_holds_what_was_moved() {
    for name in ["llama", "falcon_h1", "gemma3"] {
        let model: Model = golden(name);
        let mut ctx = Context::new(&model, params(CellType::F32).n_ctx(256)).unwrap();
        let a = ctx.sequence().unwrap();
        ctx.append(a, &(0..8).map(Token).collect::<Vec<_>>()).unwrap();
        ctx.seq_rm(a, Pos(2)..Pos(4)).unwrap();
        ctx.seq_add(a, Pos(4)..Pos::MAX, -2).unwrap();
        let bytes = saved(&ctx, a);
        let before = seen(&ctx, a);
        let b = SeqId(3);
        restore(&mut ctx, b, &bytes);
        assert_eq!(seen(&ctx, b), before, "{name}");
        assert_eq!(go_on(&mut ctx, b, 3, 6), go_on(&mut ctx, a, 3, 6), "{name}");
        assert!(bits(ctx.logits_at_hand(a)).is_some());
        // The state before the edit is unknown, so a rollback to it is refused after the restore as
        // before.
        let [of_a, of_b] = [a, b].map(|seq| {
            ctx.rollback(seq, Pos(1)).map_err(|error| error.to_string().replace("sequence 3", "sequence 0"))
        });
        assert_eq!(of_a, of_b, "{name}");
    }
}

/// A context with fewer sequences names the one that it cannot hold.
#[test]
fn sequences_that_a_context_cannot_have_are_named() {
    let model = golden("llama");
    let mut ctx = context(&model, CellType::F16);
    let ids = [tell(&mut ctx, 1), tell(&mut ctx, 2)];
    assert_eq!(ids, [SeqId(0), SeqId(1)]);
    let bytes = saved_all(&ctx);
    let mut small = Context::new(&model, params(CellType::F16).n_seq_max(1)).unwrap();
    let refused = small.state_read_bytes(&bytes, &RestoreOptions::default());
    assert!(matches!(refused, Err(Error::Sequence { seq: 1 })), "{refused:?}");
}
