//! Damaged states: each is a typed error or changes nothing, and live sequences stay as they were.

use crate::seen::{KINDS, golden, saved, saved_all, seen};
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{Checkpoint, CheckpointRef, Content, Snapshot, State};
use backstitch_kv::storage::{
    self, Container, Header, MAX_READ, Scope, Section, StoredSnapshot, Tag, Writer, write_snapshot,
};
use backstitch_models::sampler::{self, Chain, SamplerState, Settings};
use backstitch_models::{
    Context, Error, Model, Params, Pos, RestoreOptions, Restored, RollbackParams, SaveOptions, SavedContext,
    SeqId, Token,
};
use backstitch_testing::Random;
use std::sync::Arc;

/// Return the same container with other content in its sections, and sound checksums.
pub fn rewritten(bytes: &[u8], change: impl Fn(&[u8; 4], u64, &mut Vec<u8>)) -> Vec<u8> {
    let container = Container::parse(bytes).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, *container.header()).unwrap();
    for section in container.sections() {
        let mut content = container.read(section).unwrap().into_owned();
        change(&section.tag.0, section.index, &mut content);
        let (Section { tag, version, index, .. }, required) = (*section, section.is_required());
        writer.section(tag, version, required, index, &[&content]).unwrap();
    }
    writer.finish().unwrap();
    out
}

/// Return the same container with sections of another version and content, to be skipped or not.
fn as_of_later(bytes: &[u8], tags: &[[u8; 4]], skippable: bool) -> Vec<u8> {
    let container = Container::parse(bytes).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, *container.header()).unwrap();
    for section in container.sections() {
        let (Section { tag, version, index, .. }, required) = (*section, section.is_required());
        match tags.contains(&tag.0) {
            true => writer.section(tag, 3, !skippable, index, &[&[7; 5]]).unwrap(),
            false => {
                let content = container.read(section).unwrap();
                writer.section(tag, version, required, index, &[&content]).unwrap();
            }
        }
    }
    writer.finish().unwrap();
    out
}

#[test]
fn sections_of_a_later_version_are_skipped_where_they_may_be() {
    let Small { mut ctx, saved: seq, .. } = small(&golden("llama"));
    let chain = Chain::new(ctx.model().hparams().n_vocab, &Settings::default());
    let options = SaveOptions::default().sampler(Some(&chain)).metadata(b"mine");
    let mut bytes = Vec::new();
    ctx.seq_state_write(seq, &mut bytes, &options).unwrap();
    let extra = [*b"LGTS", *b"SMPL", *b"META"];
    let (target, options) = (SeqId(2), RestoreOptions::default());
    let restored = ctx.seq_state_read_bytes(target, &as_of_later(&bytes, &extra, true), &options).unwrap();
    assert!(
        restored.sampler().is_none() && restored.metadata.is_empty() && ctx.logits_at_hand(target).is_none()
    );
    assert_eq!(ctx.tokens(target).unwrap(), ctx.tokens(seq).unwrap());
    ctx.release(target).unwrap();
    let error = ctx.seq_state_read_bytes(target, &as_of_later(&bytes, &extra, false), &options).unwrap_err();
    assert!(matches!(error, Error::State(storage::Error::UnknownRequired { version: 3, .. })), "{error}");
}

/// A small context, so that its states are small: one sequence of a few tokens with a checkpoint
/// and a journal, and a live one.
struct Small {
    ctx: Context,
    saved: SeqId,
    live: SeqId,
}

fn small(model: &Model) -> Small {
    let timeline = RollbackParams::default().checkpoint_bytes(1 << 20).spacing(4).journal(2).margin(4);
    let params = Params::default()
        .n_ctx(128)
        .n_ubatch(16)
        .n_seq_max(4)
        .rollback(timeline)
        .type_k(CellType::F16)
        .type_v(CellType::F16);
    let mut ctx = Context::new(model, params).unwrap();
    let tell = |ctx: &mut Context, first: u32| {
        let seq = ctx.sequence().unwrap();
        if model.graph().encoder().is_some() {
            ctx.encode(seq, &[Token(first), Token(2), Token(1)]).unwrap();
        }
        ctx.append(seq, &(first..first + 6).map(Token).collect::<Vec<_>>()).unwrap();
        ctx.append(seq, &[Token(first)]).unwrap();
        seq
    };
    let (saved, live) = (tell(&mut ctx, 3), tell(&mut ctx, 40));
    Small { ctx, saved, live }
}

/// Read damaged bytes into a third sequence and into the live one: an error, or the state as it was
/// saved.
struct Reader {
    small: Small,
    before: crate::seen::Seen,
    live: crate::seen::Seen,
    n_read: u64,
}

impl Reader {
    fn new(model: &Model) -> Reader {
        let small = small(model);
        let (before, live) = (seen(&small.ctx, small.saved), seen(&small.ctx, small.live));
        Reader { small, before, live, n_read: 0 }
    }

    fn one(&mut self, what: &dyn Fn() -> String, bytes: &[u8]) {
        let (ctx, target) = (&mut self.small.ctx, SeqId(2));
        match ctx.seq_state_read_bytes(target, bytes, &RestoreOptions::default()) {
            Ok(_) => {
                assert_eq!(seen(ctx, target), self.before, "{}", what());
                ctx.release(target).unwrap();
                self.n_read += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert_eq!(seen(ctx, self.small.live), self.live, "{}", what());
    }
}

/// The share of all possible damage that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Everything,
    Sampled(usize),
}

fn places(how: How, n: usize, seed: u64) -> Vec<usize> {
    match how {
        How::Everything => (0..n).collect(),
        How::Sampled(count) => {
            let mut random = Random::new(seed);
            // Both ends whole: there lie the header and the directory.
            let ends = (0..n.min(32)).chain(n.saturating_sub(96)..n);
            ends.chain((0..count).map(|_| random.below(n))).collect()
        }
    }
}

fn check_cuts(name: &str, model: &Model, how: How) {
    let mut reader = Reader::new(model);
    let bytes = saved(&reader.small.ctx, reader.small.saved);
    reader.one(&|| format!("{name}, whole"), &bytes);
    assert_eq!(reader.n_read, 1, "{name}");
    for n in places(how, bytes.len(), 1) {
        reader.one(&|| format!("{name}, cut to {n}"), &bytes[..n]);
    }
    assert_eq!(reader.n_read, 1, "{name}: what is cut off is no state");
}

fn check_flips(name: &str, model: &Model, how: How) {
    let mut reader = Reader::new(model);
    let mut bytes = saved(&reader.small.ctx, reader.small.saved);
    for bit in places(how, 8 * bytes.len(), 2) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        reader.one(&|| format!("{name}, bit {bit} flipped"), &bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Put other bytes under sound checksums. Changed cells and states cannot be noticed, but their
/// descriptions must be consistent.
fn check_numbers(name: &str, model: &Model, how: How) {
    let mut reader = Reader::new(model);
    let bytes = saved(&reader.small.ctx, reader.small.saved);
    let container = Container::parse(&bytes).unwrap();
    let is_numbers = |section: &&Section| [*b"CELL", *b"STAT", *b"ROWS", *b"LGTS"].contains(&section.tag.0);
    let described: Vec<Section> =
        container.sections().filter(|section| !is_numbers(section)).copied().collect();
    assert!(described.len() >= 4, "{name}: {described:?}");
    for section in described {
        for at in places(how, section.raw_len as usize, 3) {
            for change in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let damaged = rewritten(&bytes, |tag, index, content| {
                    if *tag == section.tag.0 && index == section.index {
                        content[at] = change;
                    }
                });
                hold(&mut reader, &damaged, &|| format!("{name}, byte {at} of {section:?} is {change:#x}"));
            }
        }
    }
}

/// Check that a state that may be another one now is refused, or taken and usable, and that the
/// live sequence is as it was.
fn hold(reader: &mut Reader, bytes: &[u8], what: &dyn Fn() -> String) {
    let (ctx, target) = (&mut reader.small.ctx, SeqId(2));
    let read = || ctx.seq_state_read_bytes(target, bytes, &RestoreOptions::default());
    let (result, tally) = crate::ALLOCATOR.during_here(read);
    let limit = 4 * bytes.len() as u64 + 20_000;
    assert!(tally.bytes < limit, "{}: {} bytes allocated, {limit} at most", what(), tally.bytes);
    if result.is_ok() {
        let restored_again = |ctx: &mut Context, seq: SeqId| {
            let bytes = saved(ctx, seq);
            let again = ctx.seq_state_read_bytes(seq, &bytes, &RestoreOptions::default());
            again.map(drop).unwrap_or_else(|error| panic!("{}: saved, and then {error}", what()));
        };
        let used = |ctx: &mut Context| -> Result<(), Error> {
            restored_again(ctx, target);
            ctx.append(target, &[Token(1), Token(2)])?;
            let fork = ctx.fork(target)?;
            let end = ctx.pos(fork).unwrap();
            for back in [1, 3, 5, 8] {
                let _ = ctx.rollback(fork, Pos(end.0.saturating_sub(back)));
                restored_again(ctx, fork);
            }
            ctx.release(fork)
        };
        let _ = used(ctx);
        ctx.survey(target).unwrap();
        ctx.release(target).unwrap();
        if ctx.tokens(SeqId(3)).is_ok() {
            ctx.release(SeqId(3)).unwrap();
        }
        reader.live.logits = None;
    }
    let mut live = seen(ctx, reader.small.live);
    if reader.live.logits.is_none() {
        live.logits = None;
    }
    assert_eq!(live, reader.live, "{}", what());
}

#[test]
fn a_state_cut_off_anywhere_is_refused() {
    KINDS.into_iter().for_each(|name| check_cuts(name, &golden(name), How::Sampled(200)));
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_or_harmless() {
    KINDS.into_iter().for_each(|name| check_flips(name, &golden(name), How::Sampled(400)));
}

#[test]
fn other_numbers_under_sound_checksums_do_no_harm() {
    KINDS.into_iter().for_each(|name| check_numbers(name, &golden(name), How::Sampled(0)));
}

#[test]
#[ignore = "takes minutes"]
fn a_state_cut_off_at_every_byte_is_refused() {
    KINDS.into_iter().for_each(|name| check_cuts(name, &golden(name), How::Everything));
}

#[test]
#[ignore = "takes minutes in a release build: .ci/run flips"]
fn every_flipped_bit_is_noticed_or_harmless() {
    KINDS.into_iter().for_each(|name| check_flips(name, &golden(name), How::Everything));
}

#[test]
#[ignore = "takes minutes"]
fn every_other_number_under_sound_checksums_does_no_harm() {
    KINDS.into_iter().for_each(|name| check_numbers(name, &golden(name), How::Everything));
}

#[test]
#[ignore = "needs a model: SMOLLM2=/path/to/model.gguf"]
fn a_state_of_a_real_model_is_refused_where_it_is_damaged() {
    let path = std::env::var("SMOLLM2").unwrap();
    let model = Model::open(path).unwrap();
    check_cuts("a real model", &model, How::Sampled(500));
    check_flips("a real model", &model, How::Sampled(2_000));
    check_numbers("a real model", &model, How::Sampled(0));
}

/// A snapshot with bytes that are all zero.
struct Zeros<'a> {
    snapshot: Snapshot,
    floats: &'a [f32],
}

impl Content for Zeros<'_> {
    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    fn block(&self, _group: usize, _block: usize) -> Vec<&[u8]> {
        Vec::new()
    }

    fn state(&self, _state: usize) -> Vec<&[f32]> {
        self.snapshot.shape.pieces().map(|piece| &self.floats[..piece.len]).collect()
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        let n_rows = self.snapshot.journals[journal] as usize;
        self.snapshot.shape.pieces().map(|piece| &self.floats[..piece.input * n_rows]).collect()
    }
}

#[test]
fn a_state_whose_tokens_go_on_across_a_hole_in_its_cells_is_refused() {
    let mut reader = Reader::new(&golden("llama"));
    let bytes = saved(&reader.small.ctx, reader.small.saved);
    // Seven tokens; the cells of the last three move on by two positions, and the list of tokens
    // gets two more.
    let holed = rewritten(&bytes, |tag, _, content| match tag {
        b"MEMO" => {
            assert_eq!(
                content[8..17],
                [0x7f, 0, 0, 0, 0, 0, 0, 0, 0],
                "a block of seven cells from position 0 on"
            );
            let listed = [0_i32, 1, 2, 3, 6, 7, 8].iter().flat_map(|pos| pos.to_le_bytes());
            content.splice(12..17, [1].into_iter().chain(listed));
        }
        b"TOKS" => drop(content.splice(24..24, [9, 0, 0, 0, 9, 0, 0, 0])),
        _ => {}
    });
    let error =
        reader.small.ctx.seq_state_read_bytes(SeqId(2), &holed, &RestoreOptions::default()).unwrap_err();
    assert!(matches!(error, Error::SavedValue { found: 4, .. }), "{error}");
    assert_eq!(seen(&reader.small.ctx, reader.small.live), reader.live);
}

#[test]
fn what_could_not_be_restored_is_not_saved() {
    let Small { ctx, saved: seq, .. } = small(&golden("llama"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bst");
    ctx.save(seq, &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let metadata = vec![0; MAX_READ as usize + 1];
    let options = SaveOptions::default().metadata(&metadata);
    for error in
        [ctx.save_with(seq, &path, &options).unwrap_err(), ctx.save_all_with(&path, &options).unwrap_err()]
    {
        assert!(matches!(error, Error::State(storage::Error::TooLarge { limit: MAX_READ, .. })), "{error}");
    }
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_state_of_very_many_checkpoints_takes_time_and_memory_of_its_size() {
    let mut reader = Reader::new(&golden("mamba2"));
    let bytes = saved(&reader.small.ctx, reader.small.saved);
    let container = Container::parse(&bytes).unwrap();
    let mut snapshot = StoredSnapshot::open(&container).unwrap().snapshot().clone();
    let (n, end) = (200_000, Pos(snapshot.sequences[0].last.0 + 1));
    let state = snapshot.sequences[0].state;
    let checkpoint =
        Checkpoint { state: state.map(|state| State { first: Pos(0), ..state }), ..Checkpoint::default() };
    snapshot.checkpoints.resize(snapshot.checkpoints.len() + n, checkpoint);
    let first = snapshot.checkpoints.len() - n;
    let mark = |checkpoint: usize| CheckpointRef { checkpoint: checkpoint as u32, pos: end, n_rows: 0 };
    snapshot.sequences[0].checkpoints.extend((first..first + n).map(mark));
    let floats = vec![0.0; 1 << 20];
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, *container.header()).unwrap();
    write_snapshot(&mut writer, &Zeros { snapshot, floats: &floats }, None).unwrap();
    for section in container.sections().filter(|section| [*b"SEQS", *b"TOKS"].contains(&section.tag.0)) {
        let content = container.read(section).unwrap();
        writer.section(section.tag, section.version, true, section.index, &[&content]).unwrap();
    }
    writer.finish().unwrap();
    let start = std::time::Instant::now();
    reader.before.logits = None;
    let (result, tally) = crate::ALLOCATOR
        .during_here(|| reader.small.ctx.seq_state_read_bytes(SeqId(2), &out, &RestoreOptions::default()));
    assert!(result.unwrap().fit.n_checkpoints_dropped > 100_000);
    assert!(tally.bytes < 40 * out.len() as u64, "{} bytes for {}", tally.bytes, out.len());
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    assert_eq!(seen(&reader.small.ctx, reader.small.live), reader.live);
}

/// Put other numbers under sound checksums, for all sequences at once: an error that changes
/// nothing, or a usable context.
#[test]
fn a_forged_context_is_refused_or_read_and_makes_way_for_a_good_one() {
    for name in ["llama", "gemma3", "falcon_h1"] {
        let mut reader = Reader::new(&golden(name));
        let good = saved_all(&reader.small.ctx);
        let (options, seqs) = (RestoreOptions::default(), [reader.small.saved, reader.small.live]);
        let before = [reader.before.clone(), reader.live.clone()];
        for (tag, change) in [*b"SEQS", *b"TOKS", *b"SHAP", *b"MEMO"]
            .into_iter()
            .flat_map(|tag| [0x00, 0x01, 0x02, 0x80, 0xff].map(|change| (tag, change)))
        {
            for place in 0..24 {
                let forged = rewritten(&good, |own, _, content| {
                    if *own == tag {
                        let at = place * content.len() / 24;
                        content[at] = change;
                    }
                });
                let ctx = &mut reader.small.ctx;
                if ctx.state_read_bytes(&forged, &options).is_ok() {
                    let live: Vec<SeqId> = (0..4).map(SeqId).filter(|seq| ctx.tokens(*seq).is_ok()).collect();
                    // Whatever comes out of it.
                    live.iter().for_each(|seq| drop(ctx.append(*seq, &[Token(1)])));
                    ctx.clear();
                    ctx.state_read_bytes(&good, &options).unwrap();
                }
                assert_eq!(seqs.map(|seq| seen(ctx, seq)), before, "{name}, {tag:?}, {place}, {change:#x}");
            }
        }
    }
}

#[test]
fn a_damaged_context_is_refused_and_all_its_sequences_stay() {
    for name in KINDS {
        let mut reader = Reader::new(&golden(name));
        let mut bytes = saved_all(&reader.small.ctx);
        for at in places(How::Sampled(100), bytes.len(), 4) {
            bytes[at] ^= 0x10;
            let ctx = &mut reader.small.ctx;
            let result = ctx.state_read(&mut bytes.as_slice(), &RestoreOptions::default());
            let now = [reader.small.saved, reader.small.live].map(|seq| seen(ctx, seq));
            assert_eq!(now, [reader.before.clone(), reader.live.clone()], "{name}, byte {at}: {result:?}");
            bytes[at] ^= 0x10;
        }
    }
}

#[test]
fn states_of_samplers_that_are_alike_too_often_are_not_saved() {
    let model = golden("llama");
    let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(3)).unwrap();
    let samplers = vec![SamplerState { index: 0, bytes: vec![7; 40 << 20] }];
    let state = sampler::State { samplers, ..sampler::State::default() };
    let seqs: Vec<_> = (0..3).map(|_| ctx.sequence().unwrap()).collect();
    seqs.iter().for_each(|&seq| ctx.append(seq, &[Token(30)]).unwrap());
    let save = |ctx: &Context, n: usize| {
        let states: Vec<_> = seqs.iter().take(n).map(|&seq| (seq, state.clone())).collect();
        let mut bytes = Vec::new();
        let options = SaveOptions::default().samplers(&states);
        ctx.state_write(&mut bytes, &options).map(|_| bytes)
    };
    let error = save(&ctx, 3).unwrap_err();
    assert!(matches!(error, Error::State(storage::Error::TooLarge { .. })), "{error}");
    let bytes = save(&ctx, 2).unwrap();
    let mut other = Context::new(&model, *ctx.params()).unwrap();
    assert_eq!(other.state_read_bytes(&bytes, &RestoreOptions::default()).unwrap().sequences.len(), 3);
}

/// Return the container after a save that adds sections; equal contents of a tag are there once.
fn continued(bytes: &[u8], added: &[([u8; 4], u64, Vec<u8>)]) -> Vec<u8> {
    let old = Container::parse(bytes).unwrap();
    let mut tail = Vec::new();
    let mut writer = Writer::append(&mut tail, &old).unwrap();
    for section in old.sections() {
        let (content, required) = (old.read(section).unwrap(), section.is_required());
        writer.section(section.tag, section.version, required, section.index, &[&content]).unwrap();
    }
    for (tag, index, content) in added {
        writer.section(Tag(*tag), 1, false, *index, &[content]).unwrap();
    }
    let (at, slot) = writer.finish().unwrap().slot();
    let mut bytes = [bytes, &tail].concat();
    bytes[at as usize..][..slot.len()].copy_from_slice(&slot);
    bytes
}

/// Return a file of `n` sequences that begin alike.
fn file_of_forks(n: u32) -> Vec<u8> {
    let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(n)).unwrap();
    let seq = ctx.sequence().unwrap();
    ctx.append(seq, &[Token(5), Token(6)]).unwrap();
    (1..n).for_each(|_| _ = ctx.fork(seq).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forks.bst");
    ctx.save_all(&path).unwrap();
    std::fs::read(&path).unwrap()
}

#[test]
fn what_sequences_share_in_a_file_is_in_memory_once() {
    let n = 24;
    let state = sampler::State { tokens: vec![Token(7); 1 << 18], ..sampler::State::default() };
    let adapters = [vec![7; 32], vec![b'a'; 900]].concat();
    let shared = [(*b"SMPL", state.encode()), (*b"ADPT", adapters)];
    let once = shared.iter().map(|(tag, content)| (*tag, 0, content.clone())).collect::<Vec<_>>();
    let first = continued(&file_of_forks(n), &once);
    // The earlier states are others for every sequence: one, at its own position.
    let trail = |index: u32| [1, 0, 1, index, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let trails = (0..n).map(|index| (*b"SMPT", index.into(), trail(index)));
    let alike =
        (1..u64::from(n)).flat_map(|index| shared.clone().map(|(tag, content)| (tag, index, content)));
    let bytes = continued(&first, &trails.chain(alike).collect::<Vec<_>>());
    let container = Container::parse(&bytes).unwrap();
    let (saved, peak) = crate::ALLOCATOR.peak_here(|| SavedContext::parse(&container).unwrap());
    assert!(bytes.len() < 3 << 20 && peak < 3 << 20, "{peak} bytes for {} of file", bytes.len());
    let [first, .., last] = saved.sequences.as_slice() else { panic!("several sequences") };
    let (sampler, adapters) = (first.sampler.as_ref().unwrap(), first.adapters.as_ref().unwrap());
    assert!(Arc::ptr_eq(sampler, last.sampler.as_ref().unwrap()) && **sampler == state);
    assert!(Arc::ptr_eq(adapters, last.adapters.as_ref().unwrap()) && first.trail != last.trail);
}

/// Return a container of 20 sequences with a list of 1 MiB each under `tag`.
fn with_long_lists(scope: Scope, tag: Tag, prepare: impl Fn(&mut Writer<'_>)) -> Vec<u8> {
    let bytes = file_of_forks(20);
    let container = Container::parse(&bytes).unwrap();
    let mut random = Random::new(5);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, Header { scope, ..*container.header() }).unwrap();
    for section in container.sections().filter(|section| section.tag != tag) {
        let (content, required) = (container.read(section).unwrap(), section.is_required());
        writer.section(section.tag, section.version, required, section.index, &[&content]).unwrap();
    }
    prepare(&mut writer);
    for index in 0..20 {
        // Its end cannot be compressed.
        let mut numbers = vec![0; 1 << 20];
        numbers[15 << 16..].fill_with(|| random.bits() as u8);
        writer.section(tag, 1, false, index, &[&numbers]).unwrap();
    }
    writer.finish().unwrap();
    out
}

#[test]
fn sequences_that_there_is_no_place_for_are_refused_before_their_lists_are_read() {
    let model = Model::from_bytes(backstitch_demo::GGUF).unwrap();
    let mut ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(2)).unwrap();
    let options = RestoreOptions::default();
    let mut peak_of =
        |scope, read: fn(&mut Context, &[u8], &RestoreOptions<'_>) -> Result<Restored, Error>| {
            let bytes = with_long_lists(scope, Tag(*b"LGTS"), |_| ());
            let (result, peak) = crate::ALLOCATOR.peak_here(|| read(&mut ctx, &bytes, &options).map(drop));
            (result.unwrap_err(), peak)
        };
    let (error, peak) =
        peak_of(Scope::Sequence, |ctx, bytes, options| ctx.seq_state_read_bytes(SeqId(0), bytes, options));
    assert!(
        matches!(error, Error::SavedValue { wanted: "one sequence", .. }) && peak < 1 << 19,
        "{error}, {peak}"
    );
    let (error, peak) = peak_of(Scope::Context, Context::state_read_bytes);
    assert!(matches!(error, Error::Sequence { seq: 19 }) && peak < 1 << 19, "{error}, {peak}");
}

#[test]
fn a_list_of_tokens_is_copied_once() {
    let bytes = with_long_lists(Scope::Context, Tag(*b"TOKS"), |_| ());
    let container = Container::parse(&bytes).unwrap();
    let (error, peak) = crate::ALLOCATOR.peak_here(|| SavedContext::parse(&container).map(drop).unwrap_err());
    assert!(matches!(error, Error::SavedValue { .. }), "{error}");
    assert!(peak < 3 << 19, "{peak}");
}

#[cfg(feature = "zstd")]
#[test]
fn lists_that_decompress_to_more_than_the_file_justifies_are_refused() {
    let out = with_long_lists(Scope::Context, Tag(*b"LGTS"), |writer| writer.compress());
    let container = Container::parse(&out).unwrap();
    let (error, peak) = crate::ALLOCATOR.peak_here(|| SavedContext::parse(&container).map(drop).unwrap_err());
    assert!(matches!(error, Error::State(storage::Error::TooLarge { .. })), "{error}");
    assert!(out.len() < 2 << 20 && peak < 4 * out.len() as u64 + (16 << 20), "{peak}");
}
