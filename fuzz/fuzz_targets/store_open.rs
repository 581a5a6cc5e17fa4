//! Folders of prompt stores as others left them: packs with right checksums and wrong content, damaged ones, odd names.
//!
//! The input is a list of files. Most are packs built by the layout in `docs/prompt-store.md`: the fuzzer may write anything anywhere in
//! their heads *before* the checksum is set, so that everything behind it is reached, and flip what it likes after. Whatever the folder
//! holds, using it must not panic; and as long as only bits were flipped, every byte that is read must be the one that was stored.
#![no_main]

use backstitch_kv::Token;
use backstitch_kv::store::{Access, BLOCK_TOKENS, Entry, Found, Key, Need, Prune, Store};
use libfuzzer_sys::fuzz_target;
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use twox_hash::XxHash3_64;

/// More files find nothing that fewer do not.
const MAX_FILES: usize = 6;

#[derive(Debug)]
struct Folder {
    files: Vec<File>,
    prompt: u8,
    budget: u16,
}

#[derive(Debug)]
enum File {
    Pack(Pack),
    /// A file with any content and a name made of these characters.
    Other {
        name: Vec<u8>,
        content: Vec<u8>,
    },
    /// Something that is no file, or is longer than what it holds, under a name of the store.
    Odd {
        kind: u8,
        name: u8,
    },
}

/// A pack of a few blocks of a prompt.
#[derive(Debug)]
struct Pack {
    prompt: u8,
    start: u8,
    n_blocks: u8,
    resumes: u8,
    /// Written into the head before it is sealed: where, what.
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

    /// Up to three of something.
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
        File::Pack(Pack {
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
            File::Pack(pack) => {
                pack.write(home.path());
                honest &= pack.forged.is_empty();
            }
            File::Other { name, content } => write_other(home.path(), name, content),
            File::Odd { kind, name } => make_odd(home.path(), *kind, *name),
        }
    }
    let only_reads = Store::open(home.path(), Access::ReadOnly).unwrap();
    exercise(&only_reads, folder.prompt, honest);
    let budget = u64::from(folder.budget);
    let writes = Store::open(home.path(), Access::ReadWrite { budget }).unwrap();
    exercise(&writes, folder.prompt, honest);
    let tokens = prompt(folder.prompt);
    let started = std::time::Instant::now();
    if writes.put(&entry(&tokens)).is_ok() {
        let found = writes.longest(&root(), &tokens, tokens.len(), Need::Blocks).unwrap();
        assert_eq!(found.n_tokens, tokens.len(), "{:?}", found.why);
    }
    let _ = writes.prune(Prune::ToBytes(budget / 2));
    assert!(started.elapsed().as_secs() < 5, "nothing in a folder is waited for");
});

/// Uses a store in every way that reads.
fn exercise(store: &Store, which: u8, honest: bool) {
    let _ = (store.list().unwrap(), store.check().unwrap(), store.stats());
    for which in [which, which.wrapping_add(1)] {
        let tokens = prompt(which);
        for need in [Need::Blocks, Need::ResumePoint] {
            let found = store.longest(&root(), &tokens, tokens.len(), need).unwrap();
            read_all(&found, &tokens, honest);
        }
        let _ = store.n_stored(&root(), &tokens).unwrap();
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

/// Four blocks; some prompts share their beginnings.
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

/// Bytes that belong to a key alone.
fn payload(key: &Key) -> Vec<u8> {
    let [first, second, rest @ ..] = key.as_bytes();
    rest.iter().cycle().map(|byte| byte ^ second).take(usize::from(*first)).collect()
}

fn resume(key: &Key) -> Vec<u8> {
    payload(&Key::root(key.as_bytes(), &[3; 32]))
}

fn entry(tokens: &[Token]) -> Entry<'_> {
    let blocks = keys(tokens).iter().map(|key| vec![Cow::Owned(payload(key))]).collect();
    Entry { root: root(), tokens: tokens.into(), first: 0, blocks, resumes: vec![] }
}

impl Pack {
    fn write(&self, folder: &Path) {
        let tokens = prompt(self.prompt);
        let keys = keys(&tokens);
        let start = usize::from(self.start % 4);
        let n = usize::from(self.n_blocks) % (5 - start);
        let key = |blocks: usize| blocks.checked_sub(1).map_or(root(), |last| keys[last]);
        let resumes: Vec<u32> = (0..=n as u32)
            .filter(|&after| self.resumes >> after & 1 == 1 && start as u32 + after > 0)
            .collect();
        let mut payloads: Vec<Vec<u8>> = keys[start..start + n].iter().map(payload).collect();
        payloads.extend(resumes.iter().map(|&after| resume(&key(start + after as usize))));

        let mut head = b"BSTPACK1\x01\0\0\0\0\0\0\0".to_vec();
        let len = (192 + 144 * n + 24 * resumes.len()).next_multiple_of(64);
        let total = payloads.iter().fold(len, |end, payload| end.next_multiple_of(64) + payload.len());
        head.extend((total as u64).to_le_bytes());
        head.extend((len as u64).to_le_bytes());
        [root(), key(start), key(start + n)].iter().for_each(|key| head.extend(key.as_bytes()));
        [start, n, resumes.len(), 0].iter().for_each(|&n| head.extend((n as u32).to_le_bytes()));
        head.resize(192, 0);
        for (i, payload) in payloads.iter().enumerate() {
            match resumes.get(i.wrapping_sub(n)) {
                Some(after) => head.extend(u64::from(*after).to_le_bytes()),
                None => {
                    let block = &tokens[(start + i) * BLOCK_TOKENS..][..BLOCK_TOKENS];
                    block.iter().for_each(|token| head.extend(token.0.to_le_bytes()));
                }
            }
            head.extend((payload.len() as u64).to_le_bytes());
            head.extend(XxHash3_64::oneshot(payload).to_le_bytes());
        }
        head.resize(len, 0);
        self.finish(folder, head, &payloads);
    }

    /// Forges and seals the head, adds the payloads, damages the file, and gives it the name that its head asks for.
    fn finish(&self, folder: &Path, mut head: Vec<u8>, payloads: &[Vec<u8>]) {
        let len = head.len();
        self.forged.iter().for_each(|&(at, byte)| head[usize::from(at) % len] = byte);
        head[144..152].fill(0);
        let check = XxHash3_64::oneshot(&head);
        head[144..152].copy_from_slice(&check.to_le_bytes());
        let key: String = head[96..128].iter().map(|byte| format!("{byte:02x}")).collect();
        let mut file = head;
        for payload in payloads {
            file.resize(file.len().next_multiple_of(64), 0);
            file.extend(payload);
        }
        let bits = file.len() * 8;
        for bit in self.flipped.iter().map(|&bit| usize::from(bit) % bits) {
            file[bit / 8] ^= 1 << (bit % 8);
        }
        file.truncate(self.cut.map_or(usize::MAX, usize::from));
        fs::write(folder.join(format!("{key}-{check:016x}.pack")), file).unwrap();
    }
}

/// Names are made of what names of the store are made of.
fn write_other(folder: &Path, name: &[u8], content: &[u8]) {
    let letters = b"0123456789abcdefABCDEF-.packrtsolk";
    let name: String =
        name.iter().take(90).map(|&i| char::from(letters[usize::from(i) % letters.len()])).collect();
    let path = folder.join(&name);
    // Writing to a pipe that has the name already would wait for somebody to read it.
    if !name.trim_matches('.').is_empty() && fs::symlink_metadata(&path).is_err() {
        fs::write(path, content).unwrap();
    }
}

/// A pipe, a folder, a link, or a file of holes where the store looks for files of its own.
fn make_odd(folder: &Path, kind: u8, name: u8) {
    let pack = format!("{}-{:016x}.pack", "ab".repeat(32), 7);
    let path =
        folder.join(["store.lock", "7-0123456789abcdef.part", "7-1.part", &pack][usize::from(name % 4)]);
    let made = match kind % 4 {
        0 => std::process::Command::new("mkfifo").arg(&path).status().map(drop),
        1 => fs::create_dir(&path),
        2 => std::os::unix::fs::symlink("/dev/zero", &path),
        _ => fs::File::create_new(&path).and_then(|file| file.set_len(1 << 40)),
    };
    // Where something has the name already, there is one odd thing less.
    let _ = made;
}

/// A folder in memory, where the system has one.
fn fast_folder() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.into() } else { std::env::temp_dir() }
}
