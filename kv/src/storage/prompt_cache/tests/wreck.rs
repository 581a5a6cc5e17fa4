//! Files that are not what they should be: never a wrong byte, never a panic.

use super::entry::{BLOCK, ENTRY_VERSION, Entry, PREFIX, RESUME};
use super::*;
use crate::storage::container::Writer;
use crate::storage::{Container, Header, Scope, Tag};
use std::format;

/// Bytes of the small entry: header and slots, three payloads of ten bytes and the prefix, each at
/// a multiple of 64, then directory and footer.
const SMALL: u64 = 1536 + 3 * 64 + 320 + 192 + 64;

/// Return a folder with one small entry of two blocks and a resume point.
fn small() -> (Bench, Vec<Token>, PathBuf) {
    let bench = Bench::new();
    let tokens = prompt(1, 2);
    bench.open(LARGE).put(&bench.entry_with(&tokens, 10, &[2])).unwrap();
    let path = bench.files(".entry").remove(0);
    (bench, tokens, path)
}

/// Put another file in the place of one. Not over it: file systems take long to make sure of that.
fn replace(path: &Path, bytes: &[u8]) {
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Look for a prompt and reads all that is found: the right bytes, less, or errors.
fn use_all(bench: &Bench, cache: &PromptCache, tokens: &[Token]) -> usize {
    let keys = chain(&bench.root, tokens);
    let found = cache.longest(&bench.root, tokens, tokens.len(), Need::ResumePoint).unwrap();
    let blocks = found.blocks.iter().zip(&keys).map(|(payload, key)| (payload, payload_of(key, 10)));
    let resume = found.resume.iter().map(|payload| (payload, resume_of(&keys[found.blocks.len() - 1], 10)));
    let whole = blocks.chain(resume).all(|(payload, wanted)| match read(payload) {
        Ok(bytes) => {
            assert_eq!(bytes, joined(&wanted));
            true
        }
        Err(Error::Entry { .. }) => false,
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
        let is_clean = bench.open(Access::ReadOnly).check().unwrap().is_clean();
        let cache = bench.open(LARGE);
        let n = use_all(&bench, &cache, &tokens);
        harmless += usize::from(n == tokens.len());
        assert!(n == tokens.len() || n == 0, "bit {bit}");
        assert_eq!(is_clean, n > 0, "bit {bit}");
        assert_eq!(path.exists(), n > 0, "bit {bit}");
        assert_eq!(use_all(&bench, &cache, &tokens), n, "bit {bit}, looked up again");
    }
    // The slots, which a stream does not use, the gaps of 54 bytes behind three payloads, of 24
    // behind the prefix, and 0 behind the directory.
    assert_eq!(harmless, (1024 + 3 * 54 + 24) * 8);
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
                Ok(read) => assert_eq!(read, bytes[payload.section.offset as usize..][..10]),
                Err(Error::Entry { .. }) => assert!(!path.exists(), "cut at {cut}"),
                Err(error) => panic!("{error}"),
            }
            whole += u64::from(payload.section.offset + 10 <= cut);
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
        "..entry".into(),
        "é.entry".into(),
        "-.entry".into(),
    ];
    for other in &others {
        fs::write(folder.join(other), &pack).unwrap();
    }
    fs::create_dir(folder.join(name)).unwrap();
    fs::create_dir(folder.join("1-1.part")).unwrap();
    let before = fs::read_dir(folder).unwrap().count();
    let cache = bench.open(LARGE);
    assert_eq!(use_all(&bench, &cache, &tokens), 0);
    assert!(cache.list().unwrap().is_empty());
    cache.prune(Prune::ToBytes(0)).unwrap();
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
    let cache = bench.open(LARGE);
    assert_eq!(use_all(&bench, &cache, &tokens), 0);
    assert!(cache.check().unwrap().is_clean());
    fs::remove_file(&path).unwrap();
    for pipe in [&path, &bench.folder.path().join("1-1.part")] {
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    let cache = bench.open(LARGE);
    assert_eq!(use_all(&bench, &cache, &tokens), 0);
    assert!(cache.check().unwrap().is_clean());
}

#[test]
fn an_entry_under_the_name_of_another_is_nobodys() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let (tokens, other) = (prompt(1, 1), prompt(2, 1));
    cache.put(&bench.entry(&tokens, 10)).unwrap();
    let path = bench.files(".entry").remove(0);
    let theirs = chain(&bench.root, &other)[0];
    let name = path.file_name().unwrap().to_str().unwrap();
    fs::rename(&path, path.with_file_name(format!("{theirs}{}", &name[64..]))).unwrap();
    let cache = bench.open(Access::ReadOnly);
    for tokens in [tokens, other] {
        assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 0);
    }
    let report = cache.check().unwrap();
    assert!(matches!(report.findings[..], [Finding { problem: Problem::Damaged(Error::Entry { .. }), .. }]));
}

/// A section of a forged entry.
type Part = (Tag, u64, Vec<u8>);

/// Return the sections of an entry of two blocks and two resume points.
fn sound(bench: &Bench) -> Vec<Part> {
    let tokens = prompt(1, 2);
    let mut parts = vec![(PREFIX, 0, entry::prefix(&bench.root, 0, blocks_of(&tokens)))];
    parts.extend((0..2).map(|index| (BLOCK, index, vec![7; 10])));
    parts.extend((1..3).map(|index| (RESUME, index, vec![8; 5])));
    parts
}

/// Return an entry of these sections, with right checksums, under the name that it asks for.
fn forge(bench: &Bench, scope: Scope, parts: &[Part]) -> PathBuf {
    let mut bytes = Vec::new();
    let header = Header { scope, ..entry::header(&bench.root) };
    let mut writer = Writer::new(&mut bytes, header).unwrap();
    for (tag, index, content) in parts {
        writer.section(*tag, ENTRY_VERSION, true, *index, &[content]).unwrap();
    }
    let check = writer.finish().unwrap().whole_checksum;
    let key = *chain(&bench.root, &prompt(1, 2)).last().unwrap();
    let path = bench.folder.path().join(format!("{}", EntryName { key, check }));
    fs::write(&path, bytes).unwrap();
    path
}

/// Change the content of a section.
fn changed(parts: &[Part], tag: Tag, at: usize, to: &[u8]) -> Vec<Part> {
    let mut parts = parts.to_vec();
    let part = parts.iter_mut().find(|part| part.0 == tag).unwrap();
    part.2[at..at + to.len()].copy_from_slice(to);
    parts
}

#[test]
fn hostile_entries_with_valid_checksums_are_refused() {
    let bench = Bench::new();
    let parts = sound(&bench);
    let read = |path: &Path| Entry::read(&*RealDisk.open(path, crate::storage::disk::Mode::Read).unwrap());
    assert_eq!(read(&forge(&bench, Scope::Entry, &parts)).unwrap().blocks.len(), 2);
    let prefix = |at, to: &[u8]| changed(&parts, PREFIX, at, to);
    let without = |tag, index| -> Vec<Part> {
        parts.iter().filter(|part| (part.0, part.1) != (tag, index)).cloned().collect()
    };
    let with = |tag, index| -> Vec<Part> { [&parts[..], &[(tag, index, vec![1; 9])]].concat() };
    let longer = |extra: usize| {
        let mut parts = parts.clone();
        parts[0].2.extend(vec![0; extra]);
        parts
    };
    let cases: [(&str, Vec<Part>); 13] = [
        ("parent", prefix(0, &[0])),
        ("blocks before", prefix(32, &[1])),
        ("number of blocks", prefix(36, &[255; 4])),
        ("number of blocks", prefix(36, &[1])),
        ("bytes behind the tokens", longer(1)),
        ("tokens of a block that is not there", longer(128)),
        ("too many tokens", longer(128 * entry::MAX_PAYLOADS)),
        ("no prefix", without(PREFIX, 0)),
        ("no first block", without(BLOCK, 0)),
        ("a block too many", with(BLOCK, 2)),
        ("a block out of place", [without(BLOCK, 1), vec![(BLOCK, 7, vec![])]].concat()),
        ("a resume point at the start of the prompt", with(RESUME, 0)),
        ("a resume point behind the end", with(RESUME, 3)),
    ];
    backstitch_testing::each(cases, |(what, parts)| {
        assert!(read(&forge(&bench, Scope::Entry, parts)).is_err(), "{what}");
    });
    assert!(read(&forge(&bench, Scope::Sequence, &parts)).is_err());
    assert!(read(&forge(&bench, Scope::Entry, &with(Tag(*b"ELSE"), 0))).is_err());
    // More tokens than the keys of the entry's name know of: the file is nobody's.
    let path = forge(&bench, Scope::Entry, &prefix(40, &[255]));
    assert!(read(&path).is_ok());
    bench.open(LARGE);
    assert!(!path.exists());
}

#[test]
fn more_sections_than_an_entry_can_have_are_refused_before_they_are_read() {
    let bench = Bench::new();
    let mut parts = sound(&bench);
    parts.extend((0..2 * entry::MAX_PAYLOADS as u64).map(|index| (Tag(*b"MORE"), index, vec![])));
    let path = forge(&bench, Scope::Entry, &parts);
    let error = Entry::read(&*RealDisk.open(&path, crate::storage::disk::Mode::Read).unwrap()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "bytes of the directory", .. }));
}

#[test]
fn an_entry_that_lies_about_its_place_is_found_by_its_keys() {
    let bench = Bench::new();
    let tokens = prompt(1, 4);
    let keys = chain(&bench.root, &tokens);
    let (front, back) = blocks_of(&tokens).split_at(2);
    bench.open(LARGE).put(&bench.entry(front.as_flattened(), 10)).unwrap();
    // Two blocks behind two others, said to stand behind 77.
    let mut bytes = Vec::new();
    let payloads: Vec<_> = keys[2..].iter().map(|key| payload_of(key, 10)).collect();
    let payloads = (0..).zip(&payloads).map(|(index, pieces)| (BLOCK, index, pieces));
    let prefix = entry::prefix(&keys[1], 77, back);
    let check = entry::write(&mut bytes, &bench.root, &prefix, payloads).unwrap();
    let path = bench.folder.path().join(format!("{}", EntryName { key: keys[3], check }));
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let _ = bench.open(LARGE).put(&bench.entry(&tokens, 10)).unwrap();
        let _ = fs::remove_file(&path);
    }
    assert_eq!(bench.verified(&bench.open(LARGE), &tokens, Need::Blocks).n_tokens, 128);
}

/// Return the small entry with another version in its header, and the header's checksum true again.
fn of_version(path: &Path, version: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[8] = version;
    let check = twox_hash::XxHash3_64::oneshot(&bytes[..504]);
    bytes[504..512].copy_from_slice(&check.to_le_bytes());
    replace(path, &bytes);
}

#[test]
fn entries_of_a_later_version_are_left_alone_until_room_is_needed() {
    let (bench, tokens, path) = small();
    of_version(&path, 3);
    let cache = bench.open(LARGE);
    assert_eq!(use_all(&bench, &cache, &tokens), 0);
    assert!(path.exists());
    cache.prune(Prune::ToBytes(0)).unwrap();
    assert!(!path.exists());
}

#[test]
fn entries_with_sections_of_a_later_release_stay() {
    let bench = Bench::new();
    let parts = [sound(&bench), vec![(Tag(*b"NEXT"), 0, vec![1; 9])]].concat();
    let path = forge(&bench, Scope::Entry, &parts);
    let cache = bench.open(LARGE);
    assert!(path.exists() && cache.stats().entries == 1);
    assert_eq!(bench.verified(&cache, &prompt(1, 2), Need::Blocks).n_tokens, 0);
}

#[test]
fn entries_of_an_older_version_are_removed() {
    let (bench, tokens, path) = small();
    of_version(&path, 1);
    let pack = bench.folder.path().join(format!("{}-0123456789abcdef.pack", "ab".repeat(32)));
    fs::write(&pack, b"BSTPACK1").unwrap();
    let reads = bench.open(Access::ReadOnly);
    let found: Vec<_> = reads.check().unwrap().findings.into_iter().map(|finding| finding.problem).collect();
    assert!(matches!(found[..], [Problem::Damaged(_), Problem::Leftover]), "{found:?}");
    let text = "format version 1, this release reads version 2";
    assert!(matches!(&found[0], Problem::Damaged(error) if error.to_string().contains(text)));
    assert!(path.exists() && pack.exists());
    assert_eq!(use_all(&bench, &bench.open(LARGE), &tokens), 0);
    assert!(!path.exists() && !pack.exists());
}

#[test]
fn a_folder_that_vanishes_is_an_error_until_it_is_back() {
    let bench = Bench::new();
    let path = bench.folder.path().join("cache");
    let cache = PromptCache::open(&path, LARGE).unwrap();
    let tokens = prompt(1, 2);
    cache.put(&bench.entry(&tokens, 10)).unwrap();
    let found = bench.verified(&cache, &tokens, Need::Blocks);
    fs::remove_dir_all(&path).unwrap();
    assert!(cache.longest(&bench.root, &tokens, 64, Need::Blocks).is_err());
    assert!(matches!(cache.put(&bench.entry(&tokens, 10)), Err(Error::File { .. })));
    assert!(cache.list().is_err() && cache.check().is_err() && cache.prune(Prune::ToBytes(0)).is_err());
    assert!(!path.exists());
    assert!(read(&found.blocks[0]).is_ok());
    let again = PromptCache::open(&path, LARGE).unwrap();
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 0);
    again.put(&bench.entry(&tokens, 10)).unwrap();
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 64);
}

#[test]
fn what_is_not_a_folder_is_refused() {
    let bench = Bench::new();
    let path = bench.folder.path().join("file");
    fs::write(&path, b"text").unwrap();
    for access in [LARGE, Access::ReadOnly] {
        assert!(matches!(PromptCache::open(&path, access), Err(Error::File { .. })));
    }
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn an_entry_lies_as_documented() {
    let (bench, tokens, path) = small();
    let keys = chain(&bench.root, &tokens);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, SMALL);
    let container = Container::parse(&bytes).unwrap();
    assert!(container.is_stream());
    assert_eq!((container.scope(), container.fingerprint().0), (Scope::Entry, *bench.root.as_bytes()));
    let mut wanted = bench.root.as_bytes().to_vec();
    [0_u32, 2].iter().for_each(|n| wanted.extend(n.to_le_bytes()));
    tokens.iter().for_each(|token| wanted.extend(token.0.to_le_bytes()));
    let content = |tag: &[u8; 4], index| {
        let section = container.require(Tag(*tag), index).unwrap();
        assert_eq!((section.version, section.is_required()), (1, true));
        container.read(section).unwrap()
    };
    assert_eq!(*content(b"PRFX", 0), wanted);
    assert_eq!(*content(b"BLCK", 0), joined(&payload_of(&keys[0], 10)));
    assert_eq!(*content(b"BLCK", 1), joined(&payload_of(&keys[1], 10)));
    assert_eq!(*content(b"RESM", 2), joined(&resume_of(&keys[1], 10)));
    let name = format!("{}-{:016x}.entry", keys[1], container.whole_checksum());
    assert_eq!(path.file_name().unwrap().to_str(), Some(&*name));

    let document = include_str!("../../../../../docs/prompt-cache.md");
    for row in [
        "| `PRFX` | 0 |",
        "| `BLCK` | number of the block",
        "| `RESM` | blocks of this entry before it",
        "| 0 | 32 | key of the prefix that the first block follows",
        "| 32 | 4 | blocks of the prompt before the first |",
        "| 36 | 4 | n, blocks in this entry, at most 4096 |",
        "| 40 | 128 n | the tokens",
    ] {
        assert!(document.contains(row), "docs/prompt-cache.md lacks: {row}");
    }
}

#[test]
fn a_long_payload_with_nothing_in_it_costs_nothing() {
    let bench = Bench::new();
    let tokens = prompt(1, 1);
    let mut bytes = Vec::new();
    let payload = payload_of(&bench.root, 10);
    let prefix = entry::prefix(&bench.root, 0, blocks_of(&tokens));
    let payloads = [(BLOCK, 0, &payload), (RESUME, 1, &payload)];
    let check = entry::write(&mut bytes, &bench.root, &prefix, payloads.into_iter()).unwrap();
    let path =
        bench.folder.path().join(format!("{}", EntryName { key: chain(&bench.root, &tokens)[0], check }));
    fs::write(&path, &bytes).unwrap();
    let cache = bench.open(Access::ReadOnly);
    let found = cache.longest(&bench.root, &tokens, 32, Need::ResumePoint).unwrap();
    let mut resume = found.resume.unwrap();
    resume.section.raw_len = (1 << 30) + 1;
    resume.section.stored_len = (1 << 30) + 1;
    let error = resume.to_vec().unwrap_err();
    let is_too_large = |error: &Error| matches!(error, Error::TooLarge { value: 0x4000_0001, .. });
    assert!(matches!(&error, Error::Entry { error, .. } if is_too_large(error)), "{error}");
}
