//! Promises of the prompt cache, on real folders and on a disk that fails.

use super::*;
use crate::storage::disk::fake::{FakeDisk, Fault};
use crate::storage::error::Operation;
use backstitch_testing::random::Random;
use std::borrow::Cow;
use std::boxed::Box;
use std::path::PathBuf;
use std::time::SystemTime;
use std::vec;
use std::{fs, io};

mod faults;
mod lookups;
mod room;
mod wreck;
mod writing;

/// A folder for a cache, a root, and ways to make prompts.
struct Bench {
    folder: tempfile::TempDir,
    root: Key,
}

const LARGE: Access = Access::ReadWrite { budget: 1 << 30 };

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), root: Key::root(&[7; 32], &[9; 32]) }
    }

    fn open(&self, access: Access) -> PromptCache {
        PromptCache::open(self.folder.path(), access).unwrap()
    }

    /// Return the folder's files whose names end like this.
    fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.to_str().unwrap().ends_with(suffix)).collect();
        files.sort();
        files
    }

    /// Return bytes of all files.
    fn bytes(&self) -> u64 {
        bytes_in(self.folder.path())
    }

    /// When each entry was last used.
    fn times(&self) -> Vec<SystemTime> {
        self.files(".entry").iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect()
    }

    /// Everything of a prompt, with payloads that follow from its keys.
    fn entry<'a>(&self, tokens: &'a [Token], payload: usize) -> EvaluatedPrefix<'a> {
        let keys = chain(&self.root, tokens);
        let blocks = keys.iter().map(|key| payload_of(key, payload)).collect();
        EvaluatedPrefix { root: self.root, tokens: Cow::Borrowed(tokens), first: 0, blocks, resumes: vec![] }
    }

    /// Return the same, owning everything.
    fn owned(&self, seed: u64, n_blocks: usize, payload: usize) -> EvaluatedPrefix<'static> {
        let tokens = prompt(seed, n_blocks);
        let EvaluatedPrefix { blocks, .. } = self.entry(&tokens, payload);
        let blocks = blocks.iter().map(|pieces| vec![Cow::Owned(joined(pieces))]).collect();
        EvaluatedPrefix { root: self.root, tokens: tokens.into(), first: 0, blocks, resumes: vec![] }
    }

    /// Return the same, with resume points after these blocks.
    fn entry_with<'a>(&self, tokens: &'a [Token], payload: usize, places: &[usize]) -> EvaluatedPrefix<'a> {
        let keys = chain(&self.root, tokens);
        let resumes = places.iter().map(|&n| (n, resume_of(&keys[n - 1], payload))).collect();
        EvaluatedPrefix { resumes, ..self.entry(tokens, payload) }
    }

    /// Return the stored beginning of a prompt, after comparing every byte with what belongs there.
    fn verified(&self, cache: &PromptCache, tokens: &[Token], need: Need) -> Found {
        let found = cache.longest(&self.root, tokens, tokens.len(), need).unwrap();
        let keys = chain(&self.root, tokens);
        assert_eq!(found.n_tokens, found.blocks.len() * BLOCK_TOKENS);
        for (payload, key) in found.blocks.iter().zip(&keys) {
            assert_eq!(read(payload).unwrap(), joined(&payload_of(key, payload.len() as usize)));
        }
        if let Some(resume) = &found.resume {
            let key = &keys[found.blocks.len() - 1];
            assert_eq!(read(resume).unwrap(), joined(&resume_of(key, resume.len() as usize)));
        }
        found
    }
}

fn bytes_in(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// A cache on a disk that fails when it is told to.
struct Faulty {
    bench: Bench,
    disk: FakeDisk,
}

impl Faulty {
    fn new() -> Faulty {
        Faulty { bench: Bench::new(), disk: FakeDisk::new() }
    }

    /// Return the same disk, as a process that starts now finds it.
    fn restarted(&self) -> Faulty {
        Faulty { bench: Bench::new(), disk: self.disk.after_kill() }
    }

    fn open(&self, access: Access) -> PromptCache {
        PromptCache::open_on(Arc::new(self.disk.clone()), "/cache", access).unwrap()
    }

    /// Make every operation that `fails` fail, as on a full disk.
    fn break_disk(&self, mut fails: impl FnMut(Operation) -> bool + Send + 'static) {
        self.disk.watch(
            move |operation| {
                if fails(operation) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            },
        );
    }

    /// Return the names of entries.
    fn entries(&self) -> Vec<PathBuf> {
        let names = self.disk.names().into_iter();
        names.filter(|name| name.extension().is_some_and(|end| end == "entry")).collect()
    }
}

/// Return the operation of the system that failed, if one did.
fn failed(error: &Error) -> Option<Operation> {
    match error {
        Error::File { operation, .. } => Some(*operation),
        _ => None,
    }
}

/// Return a prompt of so many blocks; equal seeds begin equally.
fn prompt(seed: u64, n_blocks: usize) -> Vec<Token> {
    let mut random = Random::new(seed);
    (0..n_blocks * BLOCK_TOKENS).map(|_| Token(random.bits() as u32 % 50_000)).collect()
}

/// `len` bytes, in two pieces, that belong to a key alone.
fn payload_of(key: &Key, len: usize) -> Pieces<'static> {
    let seed = u64::from_le_bytes(*key.as_bytes().first_chunk().unwrap());
    let mut random = Random::new(seed);
    let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
    let (a, b) = bytes.split_at(len / 3);
    vec![Cow::Owned(a.to_vec()), Cow::Owned(b.to_vec())]
}

/// Return the same for a resume point.
fn resume_of(key: &Key, len: usize) -> Pieces<'static> {
    payload_of(&Key::root(key.as_bytes(), &[1; 32]), len)
}

fn joined(pieces: &Pieces<'_>) -> Vec<u8> {
    pieces.concat()
}

fn read(payload: &Payload) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; payload.len() as usize];
    let (a, b) = bytes.split_at_mut(payload.len() as usize / 2);
    payload.read(&mut [a, b])?;
    Ok(bytes)
}
