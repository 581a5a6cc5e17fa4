//! Fuzz restoring forged state files into memories that hold live sequences. A restore either
//! returns a typed error and leaves every sequence as it was, bit for bit, or its sequences can be
//! decoded, rolled back and saved again.
//!
//! The first twelve bytes choose the kinds and sizes of the memory that is saved and of the one
//! that is restored into, the operations that fill them, how the file is written, and the number of
//! edits to the snapshot, to the sections, to the file's own parts and, after its checksums were
//! repaired, to its bytes. Each edit takes eight bytes.
#![no_main]

use backstitch_fuzz::edit::Edit;
use backstitch_fuzz::forge::{self, Form};
use backstitch_fuzz::live::{Live, N_KINDS, N_SEQS, N_SIZES, N_STORIES, all_seqs};
use backstitch_kv::snapshot::{Owned, Sequence};
use backstitch_kv::storage::{Container, IMAGE_TAGS, StoredSnapshot};
use backstitch_kv::{Pos, SeqId};
use backstitch_testing::Counting;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::collections::BTreeMap;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// Snapshots of real memories, by kind, size and story.
type Known = BTreeMap<(usize, usize, usize), Owned>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Bytes of memory that opening a file may take at once: so many for each byte of the file, and
/// `BESIDES` more.
const BYTES_PER_BYTE: u64 = 4;
const BESIDES: u64 = 64 << 20;

/// Numbers of zeros that may follow a description, like holes of a file that is long but not full.
const HOLES: [usize; 4] = [0, 100, 1 << 16, 4 << 20];

/// The choices that the first twelve bytes make.
struct Job {
    kind: usize,
    other_kind: bool,
    sizes: (usize, usize),
    stories: (usize, usize),
    form: Form,
    convert: bool,
    end: u8,
    repair: u8,
    first_seq: u32,
    n_edits: [usize; 3],
    /// The number of zeros, as an index into `HOLES`.
    holes: usize,
}

impl Job {
    fn read(head: &[u8; 12]) -> Job {
        let [kind, sizes, stories, form, flags, first_seq, snapshot, sections, parts, ..] = *head;
        Job {
            kind: usize::from(kind) % N_KINDS,
            other_kind: kind >= 240,
            sizes: (usize::from(sizes & 15) % N_SIZES, usize::from(sizes >> 4) % N_SIZES),
            stories: (usize::from(stories & 15) % N_STORIES, usize::from(stories >> 4) % N_STORIES),
            form: [Form::InPlace, Form::Stream, Form::Continued][usize::from(form) % 3],
            convert: flags & 1 == 1,
            end: flags >> 1 & 3,
            repair: flags >> 3 & 3,
            holes: usize::from(flags >> 6),
            first_seq: first_seq.into(),
            n_edits: [snapshot % 8, sections % 16, parts % 8].map(usize::from),
        }
    }

    fn file(&self, known: &mut Known, edits: &[Edit]) -> Vec<u8> {
        let mut snapshot_of = |story| {
            let key = (self.kind, self.sizes.0, story);
            let made = || {
                let (live, seqs) = Live::with_story(key.0, key.1, key.2);
                live.owned(&seqs)
            };
            known.entry(key).or_insert_with(made).clone()
        };
        let (mut owned, before) = (snapshot_of(self.stories.0), snapshot_of(self.stories.1));
        let [n_snapshot, n_sections, n_parts] = self.n_edits;
        let (to_snapshot, rest) = edits.split_at(n_snapshot.min(edits.len()));
        let (to_sections, rest) = rest.split_at(n_sections.min(rest.len()));
        let (to_parts, to_bytes) = rest.split_at(n_parts.min(rest.len()));
        to_snapshot.iter().for_each(|edit| edit.snapshot(&mut owned));
        let mut bytes = forge::written(&owned, &before, self.form);
        if !to_sections.is_empty() || self.holes > 0 {
            bytes = forge::with_sections(&bytes, to_sections, HOLES[self.holes]);
        }
        forge::with_parts(&mut bytes, to_parts);
        if self.repair > 0 {
            forge::repair(&mut bytes, self.repair > 1);
        }
        to_bytes.iter().for_each(|edit| edit.bytes(&mut bytes));
        bytes
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((head, rest)) = input.split_first_chunk::<12>() else { return };
    let edits: Vec<Edit> = rest.as_chunks().0.iter().take(40).map(Edit::read).collect();
    let job = Job::read(head);
    let bytes = KNOWN.with_borrow_mut(|known| job.file(known, &edits));
    let kind = if job.other_kind { job.kind + 1 } else { job.kind };
    let (mut live, _) = Live::with_story(kind, job.sizes.1, job.stories.1);
    let before = live.owned(&all_seqs());
    let restored = restore(&job, &bytes, &mut live);
    live.memory.audit().expect("the memory adds up");
    match restored {
        None => assert!(live.owned(&all_seqs()) == before, "nothing was restored, yet something changed"),
        Some(_) => go_on(&mut live),
    }
});

/// Restore a file; return the sequences that it replaced, or `None` if it was refused or undone.
fn restore(job: &Job, bytes: &[u8], live: &mut Live) -> Option<Vec<SeqId>> {
    let limit = BYTES_PER_BYTE * bytes.len() as u64 + BESIDES;
    let (parsed, peak) = ALLOCATOR.peak_here(|| Container::parse(bytes));
    assert!(peak <= limit, "{peak} bytes to parse {}", bytes.len());
    let container = parsed.inspect_err(|error| drop(error.to_string())).ok()?;
    let _ = container.check().map_err(|error| error.to_string());
    container.expect(&IMAGE_TAGS).ok()?;
    let (opened, peak) = ALLOCATOR.peak_here(|| StoredSnapshot::open(&container));
    assert!(peak <= limit, "{peak} bytes to open {}", bytes.len());
    let stored = opened.inspect_err(|error| drop(error.to_string())).ok()?;
    let n = stored.snapshot().sequences.len().min(N_SEQS as usize + 1) as u32;
    let seqs: Vec<SeqId> = (0..n).map(|i| SeqId((job.first_seq + i) % N_SEQS)).collect();
    let others: Vec<SeqId> = all_seqs().into_iter().filter(|seq| !seqs.contains(seq)).collect();
    let untouched = tokens(&live.owned(&others));
    let import = live.memory.import(stored.snapshot(), &stored, &seqs, job.convert);
    let import = import.inspect_err(|error| drop(error.to_string())).ok()?;
    match job.end {
        0 => {
            drop(import);
            return None;
        }
        1 => {
            // The next operation undoes it.
            std::mem::forget(import);
            live.memory.seq_rm(SeqId(0), Pos::ZERO..Pos::ZERO).expect("an empty range");
            return None;
        }
        _ => {
            let _ = import.commit();
        }
    }
    assert!(tokens(&live.owned(&others)) == untouched, "sequences beside the restored ones changed");
    Some(seqs)
}

/// Return all numbers of each sequence, and what it knows of those that are gone. Rollback costs
/// are left out: sequences share the budget of checkpoints, and new ones may take some of it.
fn tokens(owned: &Owned) -> Vec<impl PartialEq + use<>> {
    let of_sequence = |sequence: &Sequence| {
        let cells = sequence.cells.iter().zip(&owned.snapshot.blocks).zip(&owned.blocks);
        let cells = cells.map(|((cells, blocks), bytes)| {
            let positions: Vec<Pos> = cells.positions(blocks).collect();
            let held =
                cells.extents.iter().map(|extent| (extent.live, bytes.get(extent.block as usize).cloned()));
            (positions, held.collect::<Vec<_>>(), cells.whole_from, cells.start)
        });
        let state =
            sequence.state.and_then(|state| Some((owned.states[state.state? as usize].clone(), state.first)));
        (cells.collect::<Vec<_>>(), state, sequence.last)
    };
    owned.snapshot.sequences.iter().map(of_sequence).collect()
}

/// Assert that restored sequences can be used like any others.
fn go_on(live: &mut Live) {
    for seq in all_seqs() {
        let stretches = live.memory.positions(seq).expect("the sequence is there");
        for stretch in stretches.iter().take(8) {
            let _ = live.memory.route(seq, stretch.positions.start).expect("it can be gone back to");
        }
        let saved = save_again(live, seq);
        let _ = live.append(seq, 5);
        live.memory.audit().expect("the memory adds up after decoding");
        for n in [1, 3, 20] {
            let _ = live.back(seq, n);
            live.memory.audit().expect("the memory adds up after going back");
        }
        let _ = live.append(seq, 35);
        restore_again(live, seq, &saved);
        let other = SeqId((seq.0 + 1) % N_SEQS);
        let _ = live.memory.seq_rm(other, Pos::ZERO..Pos::MAX);
        let _ = live.memory.seq_cp(seq, other, Pos::ZERO..Pos::MAX);
        let _ = live.memory.seq_rm(seq, Pos(2)..Pos(5));
        let _ = live.memory.seq_add(seq, Pos(4)..Pos::MAX, 3);
        live.memory.audit().expect("the memory adds up after edits");
    }
}

/// Save a sequence; return the file, which must hold the same snapshot.
fn save_again(live: &Live, seq: SeqId) -> Vec<u8> {
    let owned = live.owned(&[seq]);
    let bytes = forge::written(&owned, &owned, Form::InPlace);
    let container = Container::parse(&bytes).expect("it was just written");
    let stored = StoredSnapshot::open(&container).expect("what is held can be opened");
    assert!(*stored.snapshot() == owned.snapshot, "a snapshot came back as another");
    bytes
}

/// Restore a sequence from its own file, if there is room.
fn restore_again(live: &mut Live, seq: SeqId, bytes: &[u8]) {
    let container = Container::parse(bytes).expect("it was just written");
    let stored = StoredSnapshot::open(&container).expect("what was held can be opened");
    let end = stored.snapshot().sequences.first().and_then(|s| s.cells.first()).map(|cells| cells.len());
    let Ok(import) = live.memory.import(stored.snapshot(), &stored, &[seq], false) else { return };
    let fit = import.commit();
    assert!(fit.conversion.is_none(), "the same types");
    live.memory.audit().expect("the memory adds up after restoring again");
    let now =
        live.owned(&[seq]).snapshot.sequences.first().and_then(|s| s.cells.first()).map(|cells| cells.len());
    assert!(now <= end, "more cells than were saved");
}
