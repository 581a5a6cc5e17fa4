//! Fuzz programs of saves and restores on a disk that fails, tears, fills up and loses power.
//!
//! A path always holds the state that was saved there last, or an earlier one if that save did not
//! succeed. A restore returns the saved state bit for bit.
//!
//! The first two bytes choose the kind and the size of the memory; every four bytes after that are
//! a step.
#![no_main]

use backstitch_fuzz::forge::FINGERPRINT;
use backstitch_fuzz::kept::Kept;
use backstitch_fuzz::live::{Live, N_SEQS, all_seqs};
use backstitch_kv::snapshot::Owned;
use backstitch_kv::storage::disk::fake::{FakeDisk, Fault};
use backstitch_kv::storage::disk::{Disk, Mode};
use backstitch_kv::storage::{
    Container, Error, Header, Saved, Scope, StoredSnapshot, Sync, save, write_snapshot,
};
use backstitch_kv::{Fit, Pos, SeqId};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::rc::Rc;

/// The number of steps at most; longer programs find nothing that shorter ones do not.
const MAX_STEPS: usize = 40;

const HEADER: Header = Header { fingerprint: FINGERPRINT, scope: Scope::Context };
const PATHS: [&str; 2] = ["/states/a", "/states/b"];
const FAULTS: [Fault; 4] = [Fault::Error, Fault::Tear, Fault::Kill, Fault::KillAfter];

/// The states that a path may hold.
#[derive(Clone, Default)]
struct Truth {
    /// Saved states, or `None` for no file.
    states: Vec<Option<Rc<Kept>>>,
    /// States that the loss of power may bring back.
    behind: Vec<Option<Rc<Kept>>>,
    /// True if something was not synced, so that power loss may leave an unreadable file.
    unsynced: bool,
    /// True if the file may be unreadable.
    damaged: bool,
}

struct Machine {
    kind: usize,
    size: usize,
    live: Live,
    disk: FakeDisk,
    truths: [Truth; 2],
}

fuzz_target!(|input: &[u8]| {
    let Some(([kind, size], steps)) = input.split_first_chunk::<2>() else { return };
    let mut machine = Machine::new((*kind).into(), (*size).into());
    for step in steps.as_chunks().0.iter().take(MAX_STEPS) {
        machine.step(*step);
        machine.live.memory.audit().expect("the memory adds up");
    }
    machine.crash(7);
});

impl Machine {
    fn new(kind: usize, size: usize) -> Machine {
        let nothing = Truth { states: vec![None], ..Truth::default() };
        let (live, disk) = (Live::new(kind, size), FakeDisk::new());
        Machine { kind, size, live, disk, truths: [nothing.clone(), nothing] }
    }

    /// Run a step. Operations on the memory may fail for lack of blocks; other targets check that
    /// such a failure changes nothing.
    fn step(&mut self, [op, which, a, b]: [u8; 4]) {
        let seq = SeqId(u32::from(which) % N_SEQS);
        let path = usize::from(which) >> 4 & 1;
        match op % 16 {
            0..=3 => drop(self.live.append(seq, 1 + u32::from(a) % 40)),
            4 => drop(self.live.back(seq, a.into())),
            5 => {
                let other = SeqId(u32::from(a) % N_SEQS);
                let _ = self.live.memory.seq_rm(other, Pos::ZERO..Pos::MAX);
                let _ = self.live.memory.seq_cp(seq, other, Pos::ZERO..Pos::MAX);
            }
            6 => {
                let _ = self.live.memory.seq_rm(seq, Pos(a.into())..Pos(i32::from(a) + i32::from(b)));
                let _ = self.live.memory.pin(seq);
            }
            7 => {
                let _ = self.live.memory.seq_add(seq, Pos(a.into())..Pos::MAX, i32::from(b as i8));
                let _ = self.live.encode(seq, 1 + u32::from(b) % 20);
            }
            8 | 9 => self.save(path, a, sync(b)),
            10 => {
                let fault = FAULTS[usize::from(b >> 1) % FAULTS.len()];
                let number = u64::from(which & 15) << 5 | u64::from(b >> 3);
                self.disk.fail_at(number % self.n_operations(path, a, sync(b)), fault);
                self.save(path, a, sync(b));
                self.disk.fail_at(u64::MAX, Fault::Error);
                if matches!(fault, Fault::Kill | Fault::KillAfter) {
                    self.crash(a.into());
                }
            }
            11 => {
                self.disk.limit(u64::from(a) << 6);
                self.save(path, b, Sync::Yes);
                self.disk.limit(u64::MAX);
            }
            12 => self.crash(a.into()),
            13 | 14 => self.restore(path, which, a),
            _ => {
                let number = u64::from(a) % self.n_reads(path, which);
                self.disk.fail_at(number, FAULTS[usize::from(b) % 2]);
                self.restore(path, which, b);
                self.disk.fail_at(u64::MAX, Fault::Error);
            }
        }
    }

    /// Save the sequences of a bit mask.
    fn save(&mut self, path: usize, mask: u8, sync: Sync) {
        let seqs = masked(mask);
        let kept = Rc::new(Kept::of(&self.live.owned(&seqs)));
        let saved = self.write(&self.disk, path, &seqs, sync);
        let truth = &mut self.truths[path];
        match saved {
            Ok(_) if sync == Sync::Yes => *truth = Truth { states: vec![Some(kept)], ..Truth::default() },
            Ok(_) => {
                truth.behind.append(&mut truth.states);
                truth.states.push(Some(kept));
                truth.unsynced = true;
            }
            Err(error) => {
                let _ = error.to_string();
                truth.states.push(Some(kept));
                truth.unsynced |= sync == Sync::No;
            }
        }
    }

    /// Return the number of disk operations that a save takes, counted on a copy of the disk.
    fn n_operations(&self, path: usize, mask: u8, sync: Sync) -> u64 {
        let copy = self.disk.after_kill();
        let _ = self.write(&copy, path, &masked(mask), sync);
        copy.operations().max(1)
    }

    fn write(&self, disk: &FakeDisk, path: usize, seqs: &[SeqId], sync: Sync) -> Result<Saved, Error> {
        let snapshot = self.live.memory.export(seqs).expect("the sequences are there");
        save(disk, Path::new(PATHS[path]), HEADER, sync, &mut |writer| {
            let old = writer.old().and_then(|old| StoredSnapshot::open(old).ok());
            write_snapshot(writer, &snapshot, old.as_ref())
        })
    }

    /// End the process, or cut the power, and start another process on the disk that is left.
    fn crash(&mut self, seed: u64) {
        let power = seed > 63;
        self.disk = if power { self.disk.after_power_loss(seed - 64) } else { self.disk.after_kill() };
        self.live = Live::new(self.kind, self.size);
        for path in 0..PATHS.len() {
            let truth = &mut self.truths[path];
            if power {
                truth.damaged |= truth.unsynced;
                truth.states.append(&mut truth.behind);
            }
            self.look(path, power);
        }
    }

    /// Assert that a path holds one of its possible states; from then on only that one is possible.
    fn look(&mut self, path: usize, power: bool) {
        let found = self.disk.bytes(Path::new(PATHS[path])).map(|bytes| kept(&bytes));
        let truth = &mut self.truths[path];
        let state = match found {
            None => None,
            Some(Ok(kept)) => Some(kept),
            Some(Err(error)) => return assert!(truth.damaged, "{error}"),
        };
        let known = truth.states.iter().find(|known| known.as_deref() == state.as_ref());
        assert!(known.is_some() || truth.damaged && state.is_none(), "what was found was never saved");
        let found = vec![known.cloned().flatten()];
        if power {
            *truth = Truth { states: found, ..Truth::default() };
        } else {
            // A save that was interrupted may have left it on its way to the disk.
            let others = core::mem::replace(&mut truth.states, found);
            truth.behind.extend(others);
        }
    }

    /// Restore the state at a path in the place of some sequences.
    fn restore(&mut self, path: usize, first: u8, end: u8) {
        let before = Kept::of(&self.live.owned(&all_seqs()));
        let restored = self.read(path, first, end);
        let after = Kept::of(&self.live.owned(&all_seqs()));
        match restored {
            Err(error) => {
                let _ = error.to_string();
                assert!(before == after, "nothing was restored, yet something changed: {error}");
            }
            Ok(None) => assert!(before == after, "what was dropped left traces"),
            Ok(Some((seqs, fit))) => {
                let now = Kept::of(&self.live.owned(&seqs));
                let same = |known: &Option<Rc<Kept>>| {
                    known.as_deref().is_some_and(|known| is_restored(known, &now, fit))
                };
                assert!(
                    self.truths[path].states.iter().any(same),
                    "what was restored was never saved: {fit:?}"
                );
            }
        }
    }

    /// Return the number of disk operations that a restore takes. The import is dropped, so the
    /// sequences stay as they are.
    fn n_reads(&mut self, path: usize, first: u8) -> u64 {
        self.disk.fail_at(u64::MAX, Fault::Error);
        let _ = self.read(path, first, 0);
        self.disk.operations().max(1)
    }

    fn read(&mut self, path: usize, first: u8, end: u8) -> Result<Option<(Vec<SeqId>, Fit)>, Error> {
        let file =
            self.disk.open(Path::new(PATHS[path]), Mode::Read).map_err(backstitch_kv::io::Error::from)?;
        let container = Container::open(&*file)?;
        container.expect_fingerprint(&FINGERPRINT)?;
        let stored = StoredSnapshot::open(&container)?;
        let n = stored.snapshot().sequences.len() as u32;
        let seqs: Vec<SeqId> = (0..n).map(|i| SeqId((u32::from(first) + i) % N_SEQS)).collect();
        let import = self.live.memory.import(stored.snapshot(), &stored, &seqs, false)?;
        if end % 4 == 0 {
            return Ok(None);
        }
        let fit = import.commit();
        Ok(Some((seqs, fit)))
    }
}

/// Return the sequences whose bits are set.
fn masked(mask: u8) -> Vec<SeqId> {
    all_seqs().into_iter().filter(|seq| mask >> seq.0 & 1 == 1).collect()
}

fn sync(b: u8) -> Sync {
    if b & 1 == 1 { Sync::No } else { Sync::Yes }
}

/// Return the state that a file holds.
fn kept(bytes: &[u8]) -> Result<Kept, Error> {
    let container = Container::parse(bytes)?;
    container.check()?;
    let stored = StoredSnapshot::open(&container)?;
    Ok(Kept::of(&Owned::load(stored.snapshot(), &stored)?))
}

/// Return true if the sequences hold what was saved: all of it, or at least the same tokens if
/// there was no room for all checkpoints.
fn is_restored(saved: &Kept, now: &Kept, fit: Fit) -> bool {
    let ends = |kept: &Kept| -> Vec<_> {
        let end = |(cells, blocks): (&backstitch_kv::snapshot::Cells, &Vec<_>)| cells.last_pos(blocks);
        let of = |sequence: &backstitch_kv::snapshot::Sequence| -> Vec<_> {
            sequence.cells.iter().zip(&kept.snapshot.blocks).map(end).collect()
        };
        kept.snapshot.sequences.iter().map(of).collect()
    };
    if fit == Fit::default() { saved == now } else { ends(saved) == ends(now) }
}
