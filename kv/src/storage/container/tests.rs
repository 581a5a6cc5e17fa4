//! Containers as a whole: what is written is read, and nothing else is.

use super::*;
use crate::io::{self, ReadAt};
use crate::storage::error::Error;
use crate::storage::header::{Fingerprint, Header, Scope, Tag};
use std::string::ToString;
use std::vec::Vec;
use std::{format, vec};

pub(in crate::storage) mod forge;
mod random;

const HEADER: Header = Header { fingerprint: Fingerprint([7; 32]), scope: Scope::Sequence };
const TOKENS: Tag = Tag(*b"TOKS");
const BLOCK: Tag = Tag(*b"BLCK");

/// A section: tag, index, content.
type Content = (Tag, u64, Vec<u8>);

fn sections_of(texts: &[(Tag, u64, &str)]) -> Vec<Content> {
    texts.iter().map(|&(tag, index, text)| (tag, index, text.as_bytes().to_vec())).collect()
}

fn put(writer: &mut Writer, contents: &[Content]) -> Result<(), Error> {
    contents.iter().try_for_each(|(tag, index, bytes)| writer.section(*tag, 1, true, *index, &[bytes]))
}

fn stream(contents: &[Content]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    put(&mut writer, contents).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    bytes
}

/// Return a file as the first save makes it.
fn file(contents: &[Content]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::in_place(&mut bytes, HEADER).unwrap();
    put(&mut writer, contents).unwrap();
    let written = writer.finish().unwrap();
    fill_slot(&mut bytes, &written);
    bytes
}

fn fill_slot(bytes: &mut [u8], written: &Written) {
    let (at, slot) = written.slot();
    bytes[at as usize..][..512].copy_from_slice(&slot);
}

/// Return the file after one more save.
fn saved_again(bytes: &[u8], contents: &[Content]) -> (Vec<u8>, Written) {
    let old = Container::parse(bytes).unwrap();
    let mut tail = Vec::new();
    let mut writer = Writer::append(&mut tail, &old).unwrap();
    put(&mut writer, contents).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(written.written, tail.len() as u64);
    let mut bytes = bytes[..old.committed_len() as usize].to_vec();
    bytes.extend(tail);
    fill_slot(&mut bytes, &written);
    (bytes, written)
}

/// A device that gives what a slice has.
struct Device<'a>(&'a [u8]);

impl ReadAt for Device<'_> {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, io::Error> {
        io::Read::read(&mut self.0.get(offset as usize..).unwrap_or_default(), bytes)
    }
}

/// Return all that a container holds, if it opens and every section is whole; the same from a slice
/// and from a device.
fn read_all(bytes: &[u8]) -> Result<Vec<Content>, Error> {
    let device = Device(bytes);
    let on_device = Container::open(&device).and_then(contents);
    let in_slice = Container::parse(bytes).and_then(contents);
    assert_eq!(format!("{on_device:?}"), format!("{in_slice:?}"));
    in_slice
}

fn contents(container: Container) -> Result<Vec<Content>, Error> {
    assert_eq!(container.header(), &HEADER);
    container.check()?;
    container.sections().map(|section| read_both_ways(&container, section)).collect()
}

fn read_both_ways(container: &Container, section: &Section) -> Result<Content, Error> {
    let bytes = container.read(section)?.into_owned();
    let mut copied = vec![0; bytes.len()];
    let (front, back) = copied.split_at_mut(bytes.len() / 3);
    container.read_into(section, &mut [front, back])?;
    assert_eq!(copied, bytes);
    Ok((section.tag, section.index, bytes))
}

fn small() -> Vec<Content> {
    sections_of(&[(BLOCK, 0, "first block"), (BLOCK, 7, ""), (TOKENS, 0, "some tokens")])
}

/// Three saves: the blocks of the second are in the third.
fn three_generations() -> (Vec<u8>, Vec<Content>) {
    let first = file(&small());
    let second = sections_of(&[(BLOCK, 0, "first block"), (BLOCK, 1, "second block"), (TOKENS, 0, "more")]);
    let (bytes, _) = saved_again(&first, &second);
    let third =
        sections_of(&[(BLOCK, 0, "first block"), (BLOCK, 1, "second block"), (TOKENS, 0, "yet more")]);
    let (bytes, written) = saved_again(&bytes, &third);
    assert_eq!(written.generation, 3);
    (bytes, third)
}

#[test]
fn what_was_written_is_read_back() {
    let long: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let contents = [small(), vec![(TOKENS, u64::MAX, long)]].concat();
    for bytes in [stream(&contents), file(&contents)] {
        assert_eq!(read_all(&bytes).unwrap(), contents);
        assert_eq!(bytes.len() % 64, 0);
        let container = Container::parse(&bytes).unwrap();
        assert_eq!(container.waste(), 0);
        assert_eq!(container.uncommitted(), 0);
        assert!(container.sections().all(|section| section.offset % 64 == 0));
    }
}

#[test]
fn pieces_are_one_content() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    writer.section(BLOCK, 1, true, 0, &[b"so", b"", b"me", b"thing"]).unwrap();
    writer.finish().unwrap();
    assert_eq!(read_all(&bytes).unwrap(), sections_of(&[(BLOCK, 0, "something")]));
}

#[test]
fn every_cut_of_a_small_container_is_an_error() {
    let (generations, _) = three_generations();
    for bytes in [stream(&small()), file(&small()), generations] {
        for len in 0..bytes.len() {
            let error = read_all(&bytes[..len]).unwrap_err();
            assert!(
                matches!(error, Error::Truncated { .. } | Error::Checksum { .. }),
                "cut to {len} of {}: {error}",
                bytes.len()
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_small_container_is_an_error_or_harmless() {
    let (generations, third) = three_generations();
    for (mut bytes, contents) in
        [(stream(&small()), small()), (file(&small()), small()), (generations, third)]
    {
        let mut harmless = 0;
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match read_all(&bytes) {
                Ok(found) => {
                    assert_eq!(found, contents, "bit {bit}");
                    harmless += 1;
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(harmless > 0, "padding is not checked");
    }
}

#[test]
fn a_second_save_writes_only_what_is_new() {
    let block = |seed: u8| vec![seed; 4000];
    let first: Vec<Content> = (0..20).map(|i| (BLOCK, i, block(i as u8))).collect();
    let second: Vec<Content> = (0..21).map(|i| (BLOCK, i, block(i as u8))).collect();
    let (bytes, written) = saved_again(&file(&first), &second);
    assert_eq!(written.reused, 20 * 4000);
    assert!(written.written < 4000 + 64 + 22 * 48 + 128, "{} written", written.written);
    assert_eq!(read_all(&bytes).unwrap(), second);
    assert_eq!(Container::parse(&bytes).unwrap().waste(), written.waste);
    assert_eq!(written.waste, 20 * 48 + 64);
}

#[test]
fn blocks_that_moved_to_other_indices_are_found() {
    let contents = sections_of(&[(BLOCK, 0, "a"), (BLOCK, 1, "b"), (TOKENS, 5, "b")]);
    let moved = sections_of(&[(BLOCK, 3, "b"), (BLOCK, 4, "b"), (BLOCK, 9, "a"), (TOKENS, 0, "a")]);
    let (bytes, written) = saved_again(&file(&contents), &moved);
    assert_eq!(written.reused, 3, "the tokens are of another kind");
    assert_eq!(read_all(&bytes).unwrap(), moved);
}

#[test]
fn content_is_recognised_however_it_is_cut_into_pieces() {
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
    let bytes = file(&[(BLOCK, 0, content.clone())]);
    let device = Device(&bytes);
    for old in [Container::parse(&bytes).unwrap(), Container::open(&device).unwrap()] {
        let section = old.find(BLOCK, 0).unwrap();
        for step in [1, 100, 4096, 131_072, 131_073, 1 << 20] {
            let mut pieces: Vec<&[u8]> = content.chunks(step).collect();
            pieces.insert(0, &[]);
            pieces.push(&[]);
            assert!(old.source.holds(section, &pieces));
            let last = pieces.len() - 2;
            assert!(!old.source.holds(section, &pieces[..last]), "shorter by {step}");
            assert!(!old.source.holds(section, &[&pieces[..], &[&[0]]].concat()), "longer by one");
            let end = pieces[last];
            let changed = [&end[1..], &[!end[end.len() - 1]]].concat();
            pieces[last] = &changed;
            assert!(!old.source.holds(section, &pieces));
        }
    }
}

#[test]
fn damaged_sections_of_the_old_container_are_not_reused() {
    let mut bytes = file(&small());
    let at = Container::parse(&bytes).unwrap().find(BLOCK, 0).unwrap().offset as usize;
    bytes[at] ^= 1;
    assert!(matches!(read_all(&bytes).unwrap_err(), Error::Checksum { section: BLOCK, offset: 1536, .. }));
    let (bytes, _) = saved_again(&bytes, &small());
    assert_eq!(read_all(&bytes).unwrap(), small());
}

#[test]
fn what_follows_the_committed_bytes_does_not_matter() {
    let (bytes, contents) = three_generations();
    let longer = [&bytes[..], &[0xaa; 1000]].concat();
    assert_eq!(read_all(&longer).unwrap(), contents);
    assert_eq!(Container::parse(&longer).unwrap().uncommitted(), 1000);
    let stream = [stream(&small()), vec![0; 64]].concat();
    assert!(matches!(Container::parse(&stream).unwrap_err(), Error::Truncated { section: Tag::FOOTER, .. }));
}

#[test]
fn a_commit_that_makes_no_sense_is_an_error_at_its_slot() {
    let (mut bytes, _) = saved_again(&file(&small()), &small());
    let slot = layout::Slot::new(&layout::Commit::new(2, 65, 0));
    bytes[1024..1536].copy_from_slice(bytemuck::bytes_of(&slot));
    let error = Container::parse(&bytes).unwrap_err();
    assert!(matches!(error, Error::Malformed { offset: 1024, found: 1, wanted: 0, .. }), "{error}");
}

#[test]
fn a_save_that_was_not_committed_leaves_the_one_before() {
    let (bytes, _) = three_generations();
    let second = {
        let mut torn = bytes.clone();
        torn[512..1024].fill(0xff);
        read_all(&torn).unwrap()
    };
    assert!(second.contains(&(TOKENS, 0, b"more".to_vec())));
    let mut half = bytes.clone();
    half[512..768].fill(0xff);
    assert_eq!(read_all(&half).unwrap(), read_all(&bytes).unwrap());
}

#[test]
fn other_files_and_later_versions_are_told_apart_from_damage() {
    assert!(matches!(Container::parse(b"GGUF\x03\0\0\0\0\0").unwrap_err(), Error::Magic { .. }));
    assert!(matches!(Container::parse(b"").unwrap_err(), Error::Truncated { have: 0, .. }));
    let mut later = stream(&small());
    later[8] = 9;
    assert!(matches!(Container::parse(&later).unwrap_err(), Error::Checksum { section: Tag::HEADER, .. }));
    let check = checksum::checksum(&later[..504]).to_le_bytes();
    later[504..512].copy_from_slice(&check);
    assert!(matches!(Container::parse(&later).unwrap_err(), Error::Version { found: 9, wanted: 2 }));
}

#[test]
fn readers_learn_of_sections_that_they_must_know_and_skip_others() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    writer.section(TOKENS, 2, true, 0, &[b"x"]).unwrap();
    writer.section(Tag(*b"NOTE"), 1, false, 0, &[b"y"]).unwrap();
    writer.finish().unwrap();
    let container = Container::parse(&bytes).unwrap();
    assert!(container.expect(&[(TOKENS, 2)]).is_ok());
    assert!(container.expect(&[(BLOCK, 1), (TOKENS, 3)]).is_ok());
    for known in [&[(TOKENS, 1)][..], &[]] {
        let error = container.expect(known).unwrap_err();
        assert!(matches!(error, Error::UnknownRequired { tag: TOKENS, version: 2 }));
    }
}

#[test]
fn the_model_and_the_scope_are_asked_for() {
    let bytes = stream(&small());
    let container = Container::parse(&bytes).unwrap();
    assert!(container.expect_fingerprint(&HEADER.fingerprint).is_ok());
    let other = container.expect_fingerprint(&Fingerprint([8; 32])).unwrap_err();
    assert!(matches!(other, Error::Fingerprint { stored: [7, ..], wanted: [8, ..] }));
    assert!(container.expect_scope(Scope::Sequence).is_ok());
    assert_eq!(
        container.expect_scope(Scope::Context).unwrap_err().to_string(),
        "the file holds one sequence, not a whole context"
    );
}

#[test]
fn sections_are_found_by_tag_and_index() {
    let bytes = file(&small());
    let container = Container::parse(&bytes).unwrap();
    assert_eq!(container.of(BLOCK).iter().map(|section| section.index).collect::<Vec<_>>(), [0, 7]);
    assert!(container.of(Tag(*b"NONE")).is_empty());
    assert_eq!(container.find(BLOCK, 7).unwrap().raw_len, 0);
    assert!(container.find(BLOCK, 1).is_none());
    assert!(matches!(container.require(BLOCK, 1).unwrap_err(), Error::Missing { section: BLOCK, index: 1 }));
}

#[test]
fn a_section_cannot_be_written_twice_or_read_at_another_length() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, HEADER).unwrap();
    writer.section(TOKENS, 1, true, 3, &[b"once"]).unwrap();
    let twice = writer.section(TOKENS, 1, true, 3, &[b"twice"]).unwrap_err();
    assert!(matches!(twice, Error::Repeated { section: TOKENS, index: 3 }));
    writer.finish().unwrap();
    let container = Container::parse(&bytes).unwrap();
    let section = container.find(TOKENS, 3).unwrap();
    let short = container.read_into(section, &mut [&mut [0; 3]]).unwrap_err();
    assert!(matches!(short, Error::Malformed { section: TOKENS, found: 4, wanted: 3, .. }));
}

#[test]
fn a_stream_cannot_be_continued() {
    let bytes = stream(&small());
    let old = Container::parse(&bytes).unwrap();
    let mut tail = Vec::new();
    assert!(matches!(Writer::append(&mut tail, &old).err().unwrap(), Error::Malformed { what: "flags", .. }));
}

#[test]
fn a_receiver_that_is_full_is_an_error_wherever_it_fills() {
    let whole = stream(&small()).len();
    for room in 0..=whole {
        let mut space = vec![0; room];
        let mut out = &mut space[..];
        let result = Writer::new(&mut out, HEADER).and_then(|mut writer| {
            put(&mut writer, &small())?;
            writer.finish()
        });
        assert_eq!(result.is_ok(), room == whole, "{room} of {whole} bytes");
        if let Err(error) = result {
            assert!(matches!(error, Error::Io(io::Error::Full { .. } | io::Error::System(_))), "{error}");
        }
    }
}

/// A device that says it is long and has zeros wherever nothing was written, as files with holes
/// do.
struct Sparse(Vec<u8>, u64);

impl ReadAt for Sparse {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.1)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, io::Error> {
        bytes.fill(0);
        Device(&self.0).read_at(offset.min(self.0.len() as u64), bytes)?;
        Ok(bytes.len())
    }
}

#[test]
fn a_long_file_with_nothing_in_it_costs_nothing() {
    let container = Sparse(vec![], 1 << 50);
    assert!(matches!(Container::open(&container).unwrap_err(), Error::Magic { .. }));
    let source = source::Source::Device(&container);
    let section = Section { raw_len: 1 << 45, stored_len: 1 << 45, ..bytemuck::Zeroable::zeroed() };
    let error = source.read(&section, MAX_READ).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: MAX_READ, .. }));
}

#[test]
fn containers_can_be_read_by_several_threads() {
    fn is_shared<T: Send + core::marker::Sync>(_: &T) {}
    let bytes = stream(&small());
    is_shared(&Container::parse(&bytes).unwrap());
}

/// Return a file whose directory was made by hand.
fn forged(change: impl FnOnce(&mut Vec<Section>)) -> Result<(), Error> {
    let honest =
        stream(&sections_of(&[(BLOCK, 0, "0123456789"), (BLOCK, 1, "abcdefghij"), (TOKENS, 0, "t")]));
    let container = Container::parse(&honest).unwrap();
    let mut sections: Vec<Section> = container.sections().copied().collect();
    change(&mut sections);
    let directory: &[u8] = bytemuck::must_cast_slice(&sections);
    let start = DATA_END;
    let mut bytes = honest[..start].to_vec();
    bytes.extend(directory);
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    let footer = layout::Footer {
        generation: 1,
        total: bytes.len() as u64 + 64,
        directory_offset: start as u64,
        directory_len: directory.len() as u64,
        directory_checksum: checksum::checksum(directory),
        whole_checksum: checksum::of_pieces(&[&honest[..512], directory]),
        ..bytemuck::Zeroable::zeroed()
    };
    bytes.extend(bytemuck::bytes_of(&footer.sealed()));
    Container::parse(&bytes)?.check()
}

/// End of the three sections of [`forged`].
const DATA_END: usize = 1536 + 3 * 64;

#[test]
fn a_directory_that_lies_is_refused_before_anything_is_read() {
    assert!(forged(|_| ()).is_ok());
    assert!(forged(|sections| sections[1] = Section { index: 1, ..sections[0] }).is_ok(), "shared bytes");
    type Change = fn(&mut Vec<Section>);
    let cases: [(&str, Change); 12] = [
        ("before the sections", |s| s[0].offset = 512),
        ("not aligned", |s| s[0].offset += 8),
        ("behind the sections", |s| s[0].offset = DATA_END as u64 + 64),
        ("into the directory", |s| (s[2].stored_len, s[2].raw_len) = (65, 65)),
        ("beyond all numbers", |s| (s[2].stored_len, s[2].raw_len) = (u64::MAX - 64, u64::MAX - 64)),
        ("offset beyond all numbers", |s| s[2].offset = u64::MAX - 63),
        ("overlapping", |s| (s[0].stored_len, s[0].raw_len) = (65, 65)),
        ("same place, other length", |s| s[1].offset = s[0].offset),
        ("other length than content", |s| s[0].raw_len = 11),
        ("a bomb", |s| (s[0].codec, s[0].raw_len) = (Codec::ZSTD, 641)),
        ("out of order", |s| s.swap(0, 1)),
        ("twice", |s| s[1] = s[0]),
    ];
    for (name, change) in cases {
        let error = forged(change).expect_err(name);
        let typed = matches!(
            error,
            Error::Misplaced { .. }
                | Error::Overlap { .. }
                | Error::Malformed { .. }
                | Error::TooLarge { .. }
        );
        assert!(typed, "{name}: {error}");
    }
}

#[test]
fn a_codec_of_later_days_is_an_error_only_when_read() {
    let error = forged(|sections| sections[0].codec = Codec(200)).unwrap_err();
    assert!(matches!(error, Error::Codec { section: BLOCK, offset: 1536, codec: 200 }));
    assert_eq!(format!("{:?}", TOKENS), "Tag(TOKS)");
}

#[test]
fn a_file_of_this_format_version_stays_readable() {
    let golden = include_bytes!("../../../../goldens/state/container_v2.bst");
    assert_eq!(golden[8..12], 2_u32.to_le_bytes());
    assert_eq!(read_all(golden).unwrap(), three_generations().1);
    let container = Container::parse(golden).unwrap();
    assert_eq!((container.generation(), container.uncommitted()), (3, 0));
    assert_eq!(container.waste(), 640);
}

#[test]
fn a_file_of_format_version_1_is_refused_with_both_versions_and_a_way_out() {
    let golden = include_bytes!("../../../../goldens/state/container_v1.bst");
    let error = Container::parse(golden).unwrap_err();
    assert!(matches!(error, Error::Version { found: 1, wanted: 2 }));
    assert_eq!(
        error.to_string(),
        "the file has format version 1, this release reads version 2; \
         restore it with the release that saved it, or re-evaluate its text"
    );
}

#[test]
fn what_a_later_release_put_in_the_reserved_bytes_of_the_header_stays_when_the_file_is_continued() {
    let bytes = forge::forged(file(&small()), |header| header[64..70].copy_from_slice(b"hello!"), 1);
    let more = sections_of(&[(BLOCK, 0, "first block"), (TOKENS, 0, "more")]);
    let (again, _) = saved_again(&bytes, &more);
    assert_eq!(again[..512], bytes[..512]);
    assert_eq!(read_all(&again).unwrap(), more);
}
