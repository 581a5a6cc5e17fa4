//! A disk that fails on request: for tests of everything that stores.
//!
//! It keeps each file twice, as programs see it (*live*) and as it would be after the loss of power
//! (*durable*), and every write, change of length and change of a name in between.
//! [`FakeDisk::fail_at`] makes one operation fail, tear, or be the last of the process,
//! [`FakeDisk::watch`] those of some kinds; [`FakeDisk::after_power_loss`] gives a disk on which
//! any part of what was not synced has survived.

use super::{Disk, DiskFile, Facts, Lock, Mode, Wait};
use crate::file::Problem;
use crate::io::ReadAt;
use crate::storage::error::Operation;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::vec::Vec;

/// Faults of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and fails.
    Error,
    /// It does a part of its work and fails.
    Tear,
    /// It does a part of its work, and nothing can be done after it: the process was killed.
    Kill,
    /// It is done, and nothing can be done after it.
    KillAfter,
}

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub struct FakeDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    locked: BTreeSet<PathBuf>,
    /// Files of locks that nobody released.
    lock_files: BTreeSet<PathBuf>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    watch: Option<Watch>,
    dead: bool,
    capacity: Option<u64>,
}

/// Decides whether an operation of this kind fails.
struct Watch(Box<dyn FnMut(Operation) -> io::Result<()> + Send>);

impl core::fmt::Debug for Watch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Clone, Debug)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    modified: SystemTime,
    /// Claims of processes that live.
    claims: usize,
}

impl Inode {
    fn new(bytes: &[u8]) -> Self {
        let (live, durable) = (bytes.to_vec(), bytes.to_vec());
        Self { live, durable, pending: Vec::new(), modified: SystemTime::now(), claims: 0 }
    }
}

/// A change of a file since it was synced.
#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Len(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write(to, *offset, bytes),
            Self::Len(len) => to.resize(*len, 0),
        }
    }
}

fn write(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

/// The part of an operation that is done.
enum Verdict {
    Do,
    Half,
    DoThenDie,
}

fn failed() -> io::Error {
    io::Error::other("the fake disk fails here")
}

impl State {
    /// Count an operation and say what becomes of it.
    fn begin(&mut self, operation: Operation) -> io::Result<Verdict> {
        if self.dead {
            return Err(failed());
        }
        if let Some(watch) = &mut self.watch {
            (watch.0)(operation)?;
        }
        let this = self.operations;
        self.operations += 1;
        let Some((_, fault)) = self.fault.filter(|(at, _)| *at == this) else { return Ok(Verdict::Do) };
        match fault {
            Fault::Error => Err(failed()),
            Fault::Tear => Ok(Verdict::Half),
            Fault::Kill => {
                self.dead = true;
                Ok(Verdict::Half)
            }
            Fault::KillAfter => {
                self.dead = true;
                Ok(Verdict::DoThenDie)
            }
        }
    }

    /// Begin an operation that is done or not, nothing between.
    fn begin_whole(&mut self, operation: Operation) -> io::Result<()> {
        match self.begin(operation)? {
            Verdict::Half => Err(failed()),
            Verdict::Do | Verdict::DoThenDie => Ok(()),
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].live.len() as u64).sum()
    }

    /// Return how many of `len` bytes at `offset` there is room for.
    fn room(&self, file: usize, offset: usize, len: usize) -> usize {
        let Some(capacity) = self.capacity else { return len };
        let have = self.files[file].live.len();
        let free = capacity.saturating_sub(self.used()) as usize;
        len.min((have + free).saturating_sub(offset))
    }

    fn change(&mut self, file: usize, change: Change) {
        change.apply(&mut self.files[file].live);
        self.files[file].pending.push(change);
    }
}

impl FakeDisk {
    /// Return an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return a disk with durable files.
    pub fn with(files: &[(&Path, &[u8])]) -> Self {
        let disk = Self::new();
        for (path, bytes) in files {
            let mut state = disk.state();
            let file = state.files.len();
            state.files.push(Inode::new(bytes));
            state.names.insert(path.into(), file);
            state.durable_names.insert(path.into(), file);
        }
        disk
    }

    /// Return the bytes of a file as programs see them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&file| state.files[file].live.clone())
    }

    /// Return the names that there are.
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Operations since the last [`FakeDisk::fail_at`] or the start.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Lets the `n`-th operation from now on end badly, counted from 0.
    pub fn fail_at(&self, n: u64, fault: Fault) {
        let mut state = self.state();
        (state.operations, state.fault) = (0, Some((n, fault)));
    }

    /// Asks `watch` before every operation if it may be done; an error of its is that of the
    /// operation. The disk must not be used in it.
    pub fn watch(&self, watch: impl FnMut(Operation) -> io::Result<()> + Send + 'static) {
        self.state().watch = Some(Watch(Box::new(watch)));
    }

    /// Ends all faults and watching.
    pub fn mend(&self) {
        let mut state = self.state();
        (state.fault, state.watch, state.dead) = (None, None, false);
    }

    /// Return bytes of all files as programs see them.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Give the disk room for so many bytes.
    pub fn limit(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Return the disk as another process finds it: without faults and locks.
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let left = State {
            files: state.files.iter().map(|file| Inode { claims: 0, ..file.clone() }).collect(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            lock_files: state.lock_files.clone(),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(left)))
    }

    /// Return the disk after the loss of power: what was synced, and of the rest, depending on
    /// `seed`, nothing (0), everything (1), or any part: of each name, whether it changed; of each
    /// write, any of its sectors, the last perhaps in part.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let state = self.state();
        let mut chance = Chance::new(seed);
        let files = state.files.iter().map(|file| {
            let mut left = file.durable.clone();
            file.pending.iter().for_each(|change| survive(change, &mut left, &mut chance));
            Inode { modified: file.modified, ..Inode::new(&left) }
        });
        let files: Vec<Inode> = files.collect();
        let all: BTreeSet<&PathBuf> = state.names.keys().chain(state.durable_names.keys()).collect();
        let names = all.into_iter().filter_map(|name| {
            let from = if chance.take() { &state.names } else { &state.durable_names };
            from.get(name).map(|&file| (name.clone(), file))
        });
        let names: BTreeMap<PathBuf, usize> = names.collect();
        let lock_files = state.lock_files.iter().filter(|_| chance.take()).cloned().collect();
        let left = State { files, durable_names: names.clone(), names, lock_files, ..State::default() };
        Self(Arc::new(Mutex::new(left)))
    }
}

/// Bytes that a disk writes at once.
const SECTOR: usize = 512;

/// Applies the parts of a change that reached the disk.
fn survive(change: &Change, to: &mut Vec<u8>, chance: &mut Chance) {
    let Change::Write { offset, bytes } = change else {
        if chance.take() {
            change.apply(to);
        }
        return;
    };
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + SECTOR - (offset + at) % SECTOR).min(bytes.len());
        if chance.take() {
            let torn = if chance.rarely() { at + chance.below(end - at) } else { end };
            write(to, offset + at, &bytes[at..torn]);
        }
        at = end;
    }
}

/// Chance that repeats itself: xorshift.
struct Chance {
    state: u64,
    always: Option<bool>,
}

impl Chance {
    fn new(seed: u64) -> Self {
        let always = if seed < 2 { Some(seed == 1) } else { None };
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, always }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn take(&mut self) -> bool {
        self.always.unwrap_or_else(|| self.next() >> 63 == 0)
    }

    fn rarely(&mut self) -> bool {
        self.always.is_none() && self.next() >> 62 == 0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

impl Disk for FakeDisk {
    fn find(&self, path: &Path) -> Result<Option<PathBuf>, Problem> {
        let mut state = self.state();
        state.begin_whole(Operation::Open)?;
        Ok(state.names.contains_key(path).then(|| path.into()))
    }

    fn open(&self, path: &Path, _mode: Mode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin_whole(Operation::Open)?;
        let file = state.file(path)?;
        Ok(Box::new(FakeFile { disk: self.clone(), file, claimed: AtomicBool::new(false) }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin_whole(Operation::Create)?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(Inode::new(&[]));
        state.names.insert(path.into(), file);
        Ok(Box::new(FakeFile { disk: self.clone(), file, claimed: AtomicBool::new(false) }))
    }

    /// Does not wait: a lock that is held is an error here, because nobody else is there to give it
    /// up.
    fn lock(&self, path: &Path, wait: Wait<'_>) -> io::Result<Lock> {
        let mut state = self.state();
        state.begin_whole(Operation::Lock)?;
        if !state.locked.insert(path.into()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let is_fresh = state.lock_files.insert(path.into());
        let guard = FakeLock { disk: self.clone(), path: path.into(), goes: wait.goes };
        Ok(Lock { is_fresh, guard: Box::new(guard) })
    }

    fn make_folder(&self, _folder: &Path) -> io::Result<()> {
        self.state().begin_whole(Operation::MakeFolder)
    }

    fn facts(&self, path: &Path) -> io::Result<Facts> {
        let mut state = self.state();
        state.begin_whole(Operation::Ask)?;
        let file = state.file(path)?;
        let Inode { live, modified, .. } = &state.files[file];
        Ok(Facts { is_file: true, len: live.len() as u64, modified: *modified })
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.state();
        state.begin_whole(Operation::List)?;
        let inside = state.names.keys().filter(|name| name.parent() == Some(folder));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect())
    }

    /// Folders change all the time here.
    fn changed(&self, _folder: &Path) -> io::Result<SystemTime> {
        self.state().begin_whole(Operation::Ask)?;
        Ok(SystemTime::now())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole(Operation::Rename)?;
        let file = state.file(from)?;
        state.names.remove(from);
        state.names.insert(to.into(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole(Operation::Remove)?;
        state.file(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn touch(&self, path: &Path, when: SystemTime) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole(Operation::Touch)?;
        let file = state.file(path)?;
        state.files[file].modified = when;
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole(Operation::Sync)?;
        let inside = |name: &Path| name.parent() == Some(folder);
        let names: Vec<_> = state.names.iter().map(|(name, &file)| (name.clone(), file)).collect();
        state.durable_names.retain(|name, _| !inside(name));
        state.durable_names.extend(names.into_iter().filter(|(name, _)| inside(name)));
        Ok(())
    }
}

struct FakeLock {
    disk: FakeDisk,
    path: PathBuf,
    goes: bool,
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.locked.remove(&self.path);
        if !state.dead && self.goes {
            state.lock_files.remove(&self.path);
        }
    }
}

struct FakeFile {
    disk: FakeDisk,
    file: usize,
    claimed: AtomicBool,
}

impl Drop for FakeFile {
    fn drop(&mut self) {
        if self.claimed.load(Ordering::Relaxed) {
            self.disk.state().files[self.file].claims -= 1;
        }
    }
}

impl FakeFile {
    fn write_piece(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let half = matches!(state.begin(Operation::Write)?, Verdict::Half);
        let wanted = if half { bytes.len() / 2 } else { bytes.len() };
        let n = state.room(self.file, offset, wanted);
        state.change(self.file, Change::Write { offset, bytes: bytes[..n].to_vec() });
        match (half, n < wanted) {
            (_, true) => Err(ErrorKind::StorageFull.into()),
            (true, _) => Err(failed()),
            _ => Ok(()),
        }
    }
}

impl ReadAt for FakeFile {
    fn len(&self) -> Result<u64, crate::io::Error> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Ask)?;
        Ok(state.files[self.file].live.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, crate::io::Error> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Read)?;
        let live = &state.files[self.file].live;
        let rest = live.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(bytes.len());
        bytes[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl DiskFile for FakeFile {
    /// Each piece is an operation of its own.
    fn write_pieces_at(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut offset = offset as usize;
        for piece in pieces {
            self.write_piece(offset, piece)?;
            offset += piece.len();
        }
        Ok(())
    }

    fn n_names(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Ask)?;
        Ok(state.names.values().filter(|&&file| file == self.file).count() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Resize)?;
        state.change(self.file, Change::Len(len as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let half = matches!(state.begin(Operation::Sync)?, Verdict::Half);
        let file = &mut state.files[self.file];
        if half {
            let done = file.pending.len() / 2;
            let Inode { durable, pending, .. } = file;
            pending.drain(..done).for_each(|change| change.apply(durable));
            return Err(failed());
        }
        file.durable.clone_from(&file.live);
        file.pending.clear();
        Ok(())
    }

    fn claim(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Lock)?;
        if !self.claimed.swap(true, Ordering::Relaxed) {
            state.files[self.file].claims += 1;
        }
        Ok(())
    }

    fn is_claimed(&self) -> io::Result<bool> {
        let mut state = self.disk.state();
        state.begin_whole(Operation::Ask)?;
        Ok(state.files[self.file].claims > 0)
    }
}
