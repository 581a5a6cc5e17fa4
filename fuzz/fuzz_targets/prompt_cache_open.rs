//! Fuzz the prompt cache with folders that others left behind: entries with valid checksums and
//! wrong content, damaged entries, files with odd names.
//!
//! The input is a list of files. Most are entries built by `docs/prompt-cache.md`. The fuzzer may
//! write anything into a description *before* it becomes a section, so that everything behind the
//! checksums is reached, and flip any bits afterwards. Using the folder must never panic. As long
//! as only bits were flipped, every byte that is read must be the one that was stored.
#![no_main]

use backstitch_kv::Token;
use backstitch_kv::storage::prompt_cache::{
    Access, BLOCK_TOKENS, EvaluatedPrefix, Found, Key, Need, PromptCache, Prune,
};
use backstitch_kv::storage::{Fingerprint, Header, Scope, Tag, Writer};
use libfuzzer_sys::fuzz_target;
use std::borrow::Cow;
use std::fs;
use std::path::Path;

/// The number of files at most; more find nothing that fewer do not.
const MAX_FILES: usize = 6;

#[derive(Debug)]
struct Folder {
    files: Vec<File>,
    prompt: u8,
    budget: u16,
}

#[derive(Debug)]
enum File {
    Entry(Entry),
    /// A file with any content; the name picks from the characters of the cache's own names.
    Other {
        name: Vec<u8>,
        content: Vec<u8>,
    },
    /// Something under a name of the cache that is no regular file, or a file of holes.
    Odd {
        kind: u8,
        name: u8,
    },
}

/// An entry of a few blocks of a prompt.
#[derive(Debug)]
struct Entry {
    prompt: u8,
    start: u8,
    n_blocks: u8,
    resumes: u8,
    /// Bytes written into the description of the prefix before it becomes a section: offset, byte.
    forged: Vec<(u16, u8)>,
    /// Bits that are flipped afterwards.
    flipped: Vec<u16>,
    cut: Option<u16>,
}

/// The input, from front to back; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn pair(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(n);
        self.0 = rest;
        bytes
    }

    /// Read up to three items.
    fn some<T>(&mut self, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 4).map(|_| one(self)).collect()
    }

    fn folder(&mut self) -> Folder {
        let (prompt, budget) = (self.byte(), self.pair());
        let mut files = Vec::new();
        while !self.0.is_empty() && files.len() < MAX_FILES {
            files.push(self.file());
        }
        Folder { files, prompt, budget }
    }

    fn file(&mut self) -> File {
        let kind = self.byte() % 8;
        if kind == 6 {
            return File::Odd { kind: self.byte(), name: self.byte() };
        }
        if kind == 7 {
            return File::Other { name: self.bytes().into(), content: self.bytes().into() };
        }
        File::Entry(Entry {
            prompt: self.byte(),
            start: self.byte(),
            n_blocks: self.byte(),
            resumes: self.byte(),
            forged: self.some(|input| (input.pair(), input.byte())),
            flipped: self.some(Input::pair),
            cut: (self.byte() % 8 == 7).then(|| self.pair()),
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let folder = Input(input).folder();
    let home = tempfile::Builder::new().tempdir_in(fast_folder()).unwrap();
    let mut honest = true;
    for file in &folder.files {
        match file {
            File::Entry(entry) => {
                entry.write(home.path());
                honest &= entry.forged.is_empty();
            }
            File::Other { name, content } => write_other(home.path(), name, content),
            File::Odd { kind, name } => make_odd(home.path(), *kind, *name),
        }
    }
    let only_reads = PromptCache::open(home.path(), Access::ReadOnly).unwrap();
    exercise(&only_reads, folder.prompt, honest);
    let budget = u64::from(folder.budget);
    let writes = PromptCache::open(home.path(), Access::ReadWrite { budget }).unwrap();
    exercise(&writes, folder.prompt, honest);
    let tokens = prompt(folder.prompt);
    let started = std::time::Instant::now();
    if writes.put(&prefix(&tokens)).is_ok() {
        let found = writes.longest(&root(), &tokens, tokens.len(), Need::Blocks).unwrap();
        assert_eq!(found.n_tokens, tokens.len(), "{:?}", found.why);
    }
    let _ = writes.prune(Prune::ToBytes(budget / 2));
    assert!(started.elapsed().as_secs() < 5, "nothing in a folder is waited for");
});

/// Call every function of a cache that reads.
fn exercise(cache: &PromptCache, which: u8, honest: bool) {
    let _ = (cache.list().unwrap(), cache.check().unwrap(), cache.stats());
    for which in [which, which.wrapping_add(1)] {
        let tokens = prompt(which);
        for need in [Need::Blocks, Need::ResumePoint] {
            let found = cache.longest(&root(), &tokens, tokens.len(), need).unwrap();
            read_all(&found, &tokens, honest);
        }
        let _ = cache.n_stored(&root(), &tokens).unwrap();
    }
}

fn read_all(found: &Found, tokens: &[Token], honest: bool) {
    let keys = keys(tokens);
    let blocks = found.blocks.iter().zip(&keys).map(|(stored, key)| (stored, payload(key)));
    let resume = found.resume.iter().map(|stored| (stored, resume(&keys[found.blocks.len() - 1])));
    for (stored, wanted) in blocks.chain(resume) {
        // Lengths are true: the file is as long as its head says.
        let mut bytes = vec![0; usize::try_from(stored.len()).unwrap()];
        let (a, b) = bytes.split_at_mut(stored.len() as usize / 2);
        if stored.read(&mut [a, b]).is_ok() && honest {
            assert_eq!(bytes, wanted);
        }
    }
}

fn root() -> Key {
    Key::root(&[1; 32], &[2; 32])
}

/// Return a prompt of four blocks; some prompts share their first blocks.
fn prompt(which: u8) -> Vec<Token> {
    let block = |i: u32| u32::from(which) >> (2 * (3 - i)) & 3;
    (0..4).flat_map(|i| (0..BLOCK_TOKENS as u32).map(move |k| Token(block(i) * 100 + i * 1000 + k))).collect()
}

fn keys(tokens: &[Token]) -> Vec<Key> {
    let mut key = root();
    let link = |block| {
        key = key.then(block);
        key
    };
    tokens.as_chunks::<BLOCK_TOKENS>().0.iter().map(link).collect()
}

/// Return bytes that no other key has.
fn payload(key: &Key) -> Vec<u8> {
    let [first, second, rest @ ..] = key.as_bytes();
    rest.iter().cycle().map(|byte| byte ^ second).take(usize::from(*first)).collect()
}

fn resume(key: &Key) -> Vec<u8> {
    payload(&Key::root(key.as_bytes(), &[3; 32]))
}

fn prefix(tokens: &[Token]) -> EvaluatedPrefix<'_> {
    let blocks = keys(tokens).iter().map(|key| vec![Cow::Owned(payload(key))]).collect();
    EvaluatedPrefix { root: root(), tokens: tokens.into(), first: 0, blocks, resumes: vec![] }
}

impl Entry {
    fn write(&self, folder: &Path) {
        let tokens = prompt(self.prompt);
        let keys = keys(&tokens);
        let start = usize::from(self.start % 4);
        let n = usize::from(self.n_blocks) % (5 - start);
        let key = |blocks: usize| blocks.checked_sub(1).map_or(root(), |last| keys[last]);
        let mut prefix = key(start).as_bytes().to_vec();
        [start, n].iter().for_each(|&n| prefix.extend((n as u32).to_le_bytes()));
        let blocks = &tokens[start * BLOCK_TOKENS..][..n * BLOCK_TOKENS];
        blocks.iter().for_each(|token| prefix.extend(token.0.to_le_bytes()));
        let len = prefix.len();
        self.forged.iter().for_each(|&(at, byte)| prefix[usize::from(at) % len] = byte);

        let mut file = Vec::new();
        let header = Header { fingerprint: Fingerprint(*root().as_bytes()), scope: Scope::Entry };
        let mut writer = Writer::new(&mut file, header).unwrap();
        let mut put = |tag: &[u8; 4], index, content: &[u8]| {
            writer.section(Tag(*tag), 1, true, index, &[content]).unwrap();
        };
        put(b"PRFX", 0, &prefix);
        (0..).zip(&keys[start..start + n]).for_each(|(index, key)| put(b"BLCK", index, &payload(key)));
        for after in (0..=n).filter(|&after| self.resumes >> after & 1 == 1 && start + after > 0) {
            put(b"RESM", after as u64, &resume(&key(start + after)));
        }
        let check = writer.finish().unwrap().whole_checksum;

        let bits = file.len() * 8;
        for bit in self.flipped.iter().map(|&bit| usize::from(bit) % bits) {
            file[bit / 8] ^= 1 << (bit % 8);
        }
        file.truncate(self.cut.map_or(usize::MAX, usize::from));
        fs::write(folder.join(format!("{}-{check:016x}.entry", key(start + n))), file).unwrap();
    }
}

/// Write a file whose name consists of characters that occur in names of the cache.
fn write_other(folder: &Path, name: &[u8], content: &[u8]) {
    let letters = b"0123456789abcdefABCDEF-.entrypackslo";
    let name: String =
        name.iter().take(90).map(|&i| char::from(letters[usize::from(i) % letters.len()])).collect();
    let path = folder.join(&name);
    // Writing to a pipe that has the name already would wait for somebody to read it.
    if !name.trim_matches('.').is_empty() && fs::symlink_metadata(&path).is_err() {
        fs::write(path, content).unwrap();
    }
}

/// Put a pipe, a folder, a link, or a file of holes where the cache looks for files of its own.
fn make_odd(folder: &Path, kind: u8, name: u8) {
    let entry = format!("{}-{:016x}.entry", "ab".repeat(32), 7);
    let path =
        folder.join(["cache.lock", "7-0123456789abcdef.part", "7-1.part", &entry][usize::from(name % 4)]);
    let made = match kind % 4 {
        0 => std::process::Command::new("mkfifo").arg(&path).status().map(drop),
        1 => fs::create_dir(&path),
        2 => std::os::unix::fs::symlink("/dev/zero", &path),
        _ => fs::File::create_new(&path).and_then(|file| file.set_len(1 << 40)),
    };
    // If the name is taken already, the folder has one odd thing less.
    let _ = made;
}

/// Return a folder in memory if the system has one, else the folder for temporary files.
fn fast_folder() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.into() } else { std::env::temp_dir() }
}
