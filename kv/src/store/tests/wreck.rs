//! Files that are not what they should be: never a wrong byte, never a panic.

use super::pack::{Head, Plan};
use super::*;
use std::format;

/// Bytes of the small pack: its head, and three payloads of ten bytes at multiples of 64.
const SMALL: u64 = 512 + 2 * 64 + 10;

/// A folder with one small pack of two blocks and a resume point.
fn small() -> (Bench, Vec<Token>, PathBuf) {
    let bench = Bench::new();
    let tokens = prompt(1, 2);
    bench.open(LARGE).put(&bench.entry_with(&tokens, 10, &[2])).unwrap();
    let path = bench.files(".pack").remove(0);
    (bench, tokens, path)
}

/// Puts another file in the place of one. Not over it: file systems take long to make sure of that.
fn replace(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Looks for a prompt and reads all that is found: the right bytes, less, or errors.
fn use_all(bench: &Bench, store: &Store, tokens: &[Token]) -> usize {
    let keys = chain(&bench.root, tokens);
    let found = store.longest(&bench.root, tokens, tokens.len(), Need::ResumePoint).unwrap();
    let blocks = found.blocks.iter().zip(&keys).map(|(payload, key)| (payload, payload_of(key, 10)));
    let resume = found.resume.iter().map(|payload| (payload, resume_of(&keys[found.blocks.len() - 1], 10)));
    let whole = blocks.chain(resume).all(|(payload, wanted)| match read(payload) {
        Ok(bytes) => {
            assert_eq!(bytes, joined(&wanted));
            true
        }
        Err(Error::Payload { .. } | Error::Io { .. }) => false,
        Err(error) => panic!("{error}"),
    });
    if whole { found.n_tokens } else { 0 }
}

#[test]
fn every_cut_is_noticed_and_the_file_removed() {
    let (bench, tokens, path) = small();
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        replace(&path, &bytes[..cut]);
        assert_eq!(use_all(&bench, &bench.open(Access::ReadOnly), &tokens), 0, "cut at {cut}");
        assert!(path.exists());
        assert!(!bench.open(Access::ReadOnly).check().unwrap().is_clean());
        bench.open(LARGE);
        assert!(!path.exists(), "cut at {cut}");
    }
    replace(&path, &[&bytes[..], &[0]].concat());
    assert_eq!(use_all(&bench, &bench.open(LARGE), &tokens), 0);
}

#[test]
fn every_flipped_bit_is_noticed_or_does_not_matter() {
    let (bench, tokens, path) = small();
    let bytes = fs::read(&path).unwrap();
    let mut harmless = 0;
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        replace(&path, &damaged);
        let store = bench.open(LARGE);
        let n = use_all(&bench, &store, &tokens);
        harmless += usize::from(n == tokens.len());
        assert!(n == tokens.len() || n == 0, "bit {bit}");
        assert_eq!(path.exists(), n > 0 || is_version(bit), "bit {bit}");
        assert_eq!(use_all(&bench, &store, &tokens), n, "bit {bit}, looked up again");
    }
    // Between the payloads: two gaps of 54 bytes. The head's own padding is under its checksum.
    assert_eq!(harmless, 2 * 54 * 8);
}

/// Whether a bit belongs to the version: a file of a later one is not damaged, and stays.
fn is_version(bit: usize) -> bool {
    (8..12).contains(&(bit / 8))
}

#[test]
fn check_notices_every_flipped_bit() {
    let (bench, _, path) = small();
    let bytes = fs::read(&path).unwrap();
    let store = bench.open(Access::ReadOnly);
    assert!(store.check().unwrap().is_clean());
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        replace(&path, &damaged);
        assert!(!store.check().unwrap().is_clean(), "bit {bit}");
    }
}

#[test]
fn a_file_that_changes_under_an_open_store_is_noticed_when_it_is_read() {
    for cut in (0..SMALL).rev() {
        let (bench, tokens, path) = small();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, SMALL);
        let found = bench.verified(&bench.open(LARGE), &tokens, Need::ResumePoint);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let mut whole = 0;
        for payload in found.blocks.iter().chain(&found.resume) {
            match read(payload) {
                Ok(read) => assert_eq!(read, bytes[payload.extent.offset as usize..][..10]),
                Err(Error::Io { .. } | Error::Payload { .. }) => assert!(!path.exists(), "cut at {cut}"),
                Err(error) => panic!("{error}"),
            }
            whole += u64::from(payload.extent.offset + 10 <= cut);
        }
        assert_eq!(path.exists(), whole == 3, "cut at {cut}");
    }
}

#[test]
fn what_was_found_stays_readable_when_it_is_evicted() {
    let (bench, tokens, path) = small();
    let found = bench.open(LARGE).longest(&bench.root, &tokens, 64, Need::Blocks).unwrap();
    bench.open(LARGE).prune(Prune::ToBytes(0)).unwrap();
    assert!(!path.exists());
    for (payload, key) in found.blocks.iter().zip(chain(&bench.root, &tokens)) {
        assert_eq!(read(payload).unwrap(), joined(&payload_of(&key, 10)));
    }
}

#[test]
fn files_of_other_names_and_kinds_do_not_exist_for_the_store() {
    let (bench, tokens, path) = small();
    let folder = bench.folder.path();
    let name = path.file_name().unwrap().to_str().unwrap();
    let pack = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let others = [
        name.to_uppercase(),
        format!("x{name}"),
        format!("{name}x"),
        name.replace('-', "+"),
        name[1..].into(),
        format!("+{}", &name[1..]),
        "..pack".into(),
        "é.pack".into(),
        "-.pack".into(),
    ];
    for other in &others {
        fs::write(folder.join(other), &pack).unwrap();
    }
    fs::create_dir(folder.join(name)).unwrap();
    fs::create_dir(folder.join("1-1.part")).unwrap();
    let before = fs::read_dir(folder).unwrap().count();
    let store = bench.open(LARGE);
    assert_eq!(use_all(&bench, &store, &tokens), 0);
    assert!(store.list().unwrap().is_empty());
    store.prune(Prune::ToBytes(0)).unwrap();
    // The lock is new.
    assert_eq!(fs::read_dir(folder).unwrap().count(), before);
}

#[cfg(unix)]
#[test]
fn links_and_pipes_are_neither_followed_nor_waited_for() {
    let (bench, tokens, path) = small();
    let aside = bench.folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    let store = bench.open(LARGE);
    assert_eq!(use_all(&bench, &store, &tokens), 0);
    assert!(store.check().unwrap().is_clean());
    fs::remove_file(&path).unwrap();
    for pipe in [&path, &bench.folder.path().join("1-1.part")] {
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let store = bench.open(LARGE);
    assert_eq!(use_all(&bench, &store, &tokens), 0);
    assert!(store.check().unwrap().is_clean());
}

#[test]
fn a_pack_under_the_name_of_another_is_nobodys() {
    let bench = Bench::new();
    let store = bench.open(LARGE);
    let (tokens, other) = (prompt(1, 1), prompt(2, 1));
    store.put(&bench.entry(&tokens, 10)).unwrap();
    let path = bench.files(".pack").remove(0);
    let theirs = chain(&bench.root, &other)[0];
    let name = path.file_name().unwrap().to_str().unwrap();
    fs::rename(&path, path.with_file_name(format!("{theirs}{}", &name[64..]))).unwrap();
    let store = bench.open(Access::ReadOnly);
    for tokens in [tokens, other] {
        assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 0);
    }
    let report = store.check().unwrap();
    assert!(matches!(report.findings[..], [Finding { problem: Problem::Damaged(Flaw::Chain), .. }]));
}

/// A head with valid checksum whose bytes `change` changed.
fn forged(bench: &Bench, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let tokens = prompt(1, 2);
    let blocks: Vec<_> = blocks_of(&tokens).iter().map(|tokens| (*tokens, 10, 0)).collect();
    let (root, parent) = (bench.root, bench.root);
    let head =
        Head::new(&Plan { root, parent, n_before: 0, blocks: &blocks, resumes: &[(1, 5, 0), (2, 5, 0)] });
    let mut bytes = head.unwrap().encode();
    change(&mut bytes);
    pack::seal(&mut bytes);
    bytes
}

#[test]
fn hostile_heads_with_valid_checksums_are_refused() {
    let bench = Bench::new();
    assert!(Head::decode(&forged(&bench, |_| {})).is_ok());
    let big = u64::MAX.to_le_bytes();
    let cases: [(&str, usize, &[u8]); 16] = [
        ("version", 8, &[2, 0, 0, 0]),
        ("zeros behind the version", 12, &[1]),
        ("length of the file", 16, &big),
        ("length of the head", 24, &big),
        ("length of the head", 24, &704u64.to_le_bytes()),
        ("parent", 64, &[0]),
        ("last key", 96, &[0]),
        ("blocks before", 128, &[1]),
        ("number of blocks", 132, &[255; 4]),
        ("number of blocks", 132, &[1]),
        ("number of resume points", 136, &[255; 4]),
        ("zeros at the end", 152, &[1]),
        ("a token", 192, &[255]),
        ("length of a payload", 192 + 128, &big),
        ("length of a payload", 192 + 128, &(i64::MAX as u64).to_le_bytes()),
        ("place of a resume point", 192 + 288, &[2]),
    ];
    backstitch_testing::each(cases, |&(_, at, with)| {
        let bytes = forged(&bench, |bytes| bytes[at..at + with.len()].copy_from_slice(with));
        assert!(Head::decode(&bytes).is_err());
        assert!(pack::head_len(&bytes, 1 << 62).is_err() || at > 24);
    });
}

#[test]
fn a_pack_that_lies_about_its_place_is_found_by_its_keys() {
    let (bench, beginning, first) = small();
    let tokens = [&beginning[..], &prompt(2, 2)].concat();
    bench.open(LARGE).put(&bench.entry(&tokens, 10)).unwrap();
    let path = bench.files(".pack").into_iter().find(|path| *path != first).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(bytes[128], 2);
    bytes[128] = 77;
    let head = pack::head_len(&bytes, bytes.len() as u64).unwrap();
    pack::seal(&mut bytes[..head]);
    let forged = Head::decode(&bytes[..head]).unwrap();
    fs::write(bench.folder.path().join(format!("{}", PackName::of(&forged))), &bytes).unwrap();
    for _ in 0..2 {
        assert_eq!(bench.open(LARGE).put(&bench.entry(&tokens, 10)).unwrap(), Put::default());
        fs::remove_file(&path).unwrap_or_default();
    }
    assert_eq!(bench.verified(&bench.open(LARGE), &tokens, Need::Blocks).n_tokens, 128);
}

#[test]
fn packs_of_a_later_version_are_left_alone_until_room_is_needed() {
    let (bench, tokens, path) = small();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    replace(&path, &bytes);
    let store = bench.open(LARGE);
    assert_eq!(use_all(&bench, &store, &tokens), 0);
    assert!(path.exists());
    store.prune(Prune::ToBytes(0)).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_folder_that_vanishes_is_an_error_until_it_is_back() {
    let bench = Bench::new();
    let path = bench.folder.path().join("store");
    let store = Store::open(&path, LARGE).unwrap();
    let tokens = prompt(1, 2);
    store.put(&bench.entry(&tokens, 10)).unwrap();
    let found = bench.verified(&store, &tokens, Need::Blocks);
    fs::remove_dir_all(&path).unwrap();
    assert!(store.longest(&bench.root, &tokens, 64, Need::Blocks).is_err());
    assert!(matches!(store.put(&bench.entry(&tokens, 10)), Err(Error::Io { .. })));
    assert!(store.list().is_err() && store.check().is_err() && store.prune(Prune::ToBytes(0)).is_err());
    assert!(!path.exists());
    assert!(read(&found.blocks[0]).is_ok());
    let again = Store::open(&path, LARGE).unwrap();
    assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 0);
    again.put(&bench.entry(&tokens, 10)).unwrap();
    assert_eq!(bench.verified(&store, &tokens, Need::Blocks).n_tokens, 64);
}

#[test]
fn what_is_not_a_folder_is_refused() {
    let bench = Bench::new();
    let path = bench.folder.path().join("file");
    fs::write(&path, b"text").unwrap();
    for access in [LARGE, Access::ReadOnly] {
        assert!(matches!(Store::open(&path, access), Err(Error::Io { .. })));
    }
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn a_pack_lies_as_documented() {
    let (bench, tokens, path) = small();
    let keys = chain(&bench.root, &tokens);
    let payloads =
        [payload_of(&keys[0], 10), payload_of(&keys[1], 10), resume_of(&keys[1], 10)].map(|p| joined(&p));
    let check = |bytes: &[u8]| twox_hash::XxHash3_64::oneshot(bytes).to_le_bytes();
    let lengths =
        [(16, SMALL), (24, 512), (128, 0), (132, 2), (136, 1), (320, 10), (464, 10), (480, 2), (488, 10)];
    let mut wanted = vec![0; SMALL as usize];
    let mut put = |at: usize, bytes: &[u8]| wanted[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"BSTPACK1");
    put(8, &[1]);
    lengths.iter().for_each(|(at, n)| put(*at, &u64::to_le_bytes(*n)));
    [(32, bench.root), (64, bench.root), (96, keys[1])].iter().for_each(|(at, key)| put(*at, key.as_bytes()));
    for (i, tokens) in blocks_of(&tokens).iter().enumerate() {
        tokens.iter().enumerate().for_each(|(k, token)| put(192 + 144 * i + 4 * k, &token.0.to_le_bytes()));
    }
    for ((payload, check_at), at) in payloads.iter().zip([328, 472, 496]).zip([512, 576, 640]) {
        put(check_at, &check(payload));
        put(at, payload);
    }
    let head = check(&wanted[..512]);
    wanted[144..152].copy_from_slice(&head);
    assert_eq!(fs::read(&path).unwrap(), wanted);

    let document = include_str!("../../../../docs/prompt-store.md");
    for row in [
        "| 0 | 8 | `BSTPACK1` |",
        "| 8 | 4 | version",
        "| 16 | 8 | length of the file |",
        "| 24 | 8 | length of the head",
        "| 32 | 32 | root |",
        "| 64 | 32 | key of the prefix that the first block follows",
        "| 96 | 32 | key of the prefix that ends with the last block |",
        "| 128 | 4 | blocks of the prompt before",
        "| 132 | 4 | n, blocks in this pack, at most 4096 |",
        "| 136 | 4 | m, resume points in this pack, at most 4096 |",
        "| 144 | 8 | XXH3-64 of the head",
        "| 192 | 144 n | the blocks |",
        "| 192 + 144 n | 24 m | the resume points |",
        "| 0 | 128 | its 32 tokens |",
        "| 128 | 8 | length of its payload |",
        "| 136 | 8 | XXH3-64 of its payload |",
        "| 8 | 8 | length of its payload |",
        "| 16 | 8 | XXH3-64 of its payload |",
    ] {
        assert!(document.contains(row), "docs/prompt-store.md lacks: {row}");
    }
}

#[test]
fn a_long_payload_with_nothing_in_it_costs_nothing() {
    let bench = Bench::new();
    let tokens = prompt(1, 1);
    let blocks = [(blocks_of(&tokens)[0], 0, 7)];
    let resumes = [(1, (1 << 30) + 1, 7)];
    let plan = Plan { root: bench.root, parent: bench.root, n_before: 0, blocks: &blocks, resumes: &resumes };
    let head = Head::new(&plan).unwrap();
    let path = bench.folder.path().join(format!("{}", PackName::of(&head)));
    fs::write(&path, head.encode()).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(head.total).unwrap();
    let store = bench.open(Access::ReadOnly);
    let found = store.longest(&bench.root, &tokens, 32, Need::ResumePoint).unwrap();
    let error = found.resume.unwrap().to_vec().unwrap_err();
    assert!(matches!(error, Error::LongPayload { bytes: 0x4000_0001, .. }), "{error}");
}
