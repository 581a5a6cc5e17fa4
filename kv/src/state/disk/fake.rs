//! A disk that fails on request: for tests of everything that saves.
//!
//! It keeps two images, what programs see (*live*) and what would be left after the loss of power (*durable*), and every write, change of
//! length and change of a name in between. [`FakeDisk::fail_at`] makes one operation fail, tear, or be the last of the process;
//! [`FakeDisk::after_power_loss`] gives a disk on which any part of what was not synced has survived.

use super::{Disk, DiskFile, Lock};
use crate::file::Problem;
use crate::io::ReadAt;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Vec;

/// What happens to an operation.
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
    dead: bool,
    capacity: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

/// What was done to a file since it was synced.
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

/// How much of an operation is done.
enum Verdict {
    Do,
    Half,
    DoThenDie,
}

fn failed() -> io::Error {
    io::Error::other("the fake disk fails here")
}

impl State {
    /// Counts an operation and says what becomes of it.
    fn begin(&mut self) -> io::Result<Verdict> {
        if self.dead {
            return Err(failed());
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

    /// An operation that is done or not, nothing between.
    fn begin_whole(&mut self) -> io::Result<()> {
        match self.begin()? {
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

    /// How many of `len` bytes at `offset` there is room for.
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
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk with durable files.
    pub fn with(files: &[(&Path, &[u8])]) -> Self {
        let disk = Self::new();
        for (path, bytes) in files {
            let mut state = disk.state();
            let file = state.files.len();
            state.files.push(Inode { live: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() });
            state.names.insert(path.into(), file);
            state.durable_names.insert(path.into(), file);
        }
        disk
    }

    /// The bytes of a file as programs see them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&file| state.files[file].live.clone())
    }

    /// The names that there are.
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

    /// Gives the disk room for so many bytes.
    pub fn limit(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// The disk as another process finds it: without faults and locks.
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let left = State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            lock_files: state.lock_files.clone(),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(left)))
    }

    /// The disk after the loss of power: what was synced, and of the rest, depending on `seed`, nothing (0), everything (1), or any
    /// part: of each name, whether it changed; of each write, any of its sectors, the last perhaps in part.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let state = self.state();
        let mut chance = Chance::new(seed);
        let files = state.files.iter().map(|file| {
            let mut left = file.durable.clone();
            file.pending.iter().for_each(|change| survive(change, &mut left, &mut chance));
            Inode { live: left.clone(), durable: left, pending: Vec::new() }
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

/// What a disk promises to write at once.
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
        state.begin_whole()?;
        Ok(state.names.contains_key(path).then(|| path.into()))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin_whole()?;
        let file = state.file(path)?;
        Ok(Box::new(FakeFile { disk: self.clone(), file }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.begin_whole()?;
        if state.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(Inode::default());
        state.names.insert(path.into(), file);
        Ok(Box::new(FakeFile { disk: self.clone(), file }))
    }

    /// Does not wait: a lock that is held is an error here, because nobody else is there to give it up.
    fn lock(&self, path: &Path, _most: Duration) -> io::Result<Lock> {
        let mut state = self.state();
        state.begin_whole()?;
        if !state.locked.insert(path.into()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let is_fresh = state.lock_files.insert(path.into());
        Ok(Lock { is_fresh, guard: Box::new(FakeLock { disk: self.clone(), path: path.into() }) })
    }

    fn names_in(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let mut state = self.state();
        state.begin_whole()?;
        let inside = state.names.keys().filter(|name| name.parent() == Some(folder));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole()?;
        let file = state.file(from)?;
        state.names.remove(from);
        state.names.insert(to.into(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole()?;
        state.file(path)?;
        state.names.remove(path);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.begin_whole()?;
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
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        state.locked.remove(&self.path);
        if !state.dead {
            state.lock_files.remove(&self.path);
        }
    }
}

struct FakeFile {
    disk: FakeDisk,
    file: usize,
}

impl ReadAt for FakeFile {
    fn len(&self) -> Result<u64, crate::io::Error> {
        let mut state = self.disk.state();
        state.begin_whole()?;
        Ok(state.files[self.file].live.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, crate::io::Error> {
        let mut state = self.disk.state();
        state.begin_whole()?;
        let live = &state.files[self.file].live;
        let rest = live.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(bytes.len());
        bytes[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl DiskFile for FakeFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let half = matches!(state.begin()?, Verdict::Half);
        let offset = offset as usize;
        let wanted = if half { bytes.len() / 2 } else { bytes.len() };
        let n = state.room(self.file, offset, wanted);
        state.change(self.file, Change::Write { offset, bytes: bytes[..n].to_vec() });
        match (half, n < wanted) {
            (_, true) => Err(ErrorKind::StorageFull.into()),
            (true, _) => Err(failed()),
            _ => Ok(()),
        }
    }

    fn n_names(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.begin_whole()?;
        Ok(state.names.values().filter(|&&file| file == self.file).count() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.begin_whole()?;
        state.change(self.file, Change::Len(len as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let half = matches!(state.begin()?, Verdict::Half);
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
}
