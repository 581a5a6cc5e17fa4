//! Compressed sections are smaller, whole, and bounded.

use super::*;
use crate::storage::{Container, Fingerprint, Header, Scope, Tag, Writer};
use std::vec;

const HEADER: Header = Header { fingerprint: Fingerprint([9; 32]), scope: Scope::Sequence };
const CELLS: Tag = Tag(*b"CELL");

/// Numbers as caches have them: random signs and fractions, exponents close together.
fn halves(n: u32) -> Vec<u8> {
    let number = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 16) as u16 & 0x83ff | 0x3800;
    (0..n).flat_map(|i| number(i).to_le_bytes()).collect()
}

fn noise(n: u32) -> Vec<u8> {
    (0..n)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ (i.wrapping_mul(0x85eb_ca6b) >> 22) as u8)
        .collect()
}

fn written(contents: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::in_place(&mut bytes, HEADER).unwrap();
    writer.compress();
    for (content, index) in contents.iter().zip(0..) {
        let (front, back) = content.split_at(content.len() / 3);
        writer.section(CELLS, 1, true, index, &[front, back]).unwrap();
    }
    let (at, slot) = writer.finish().unwrap().slot();
    bytes[at as usize..][..512].copy_from_slice(&slot);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let container = Container::parse(bytes)?;
    let read = |section: &Section| {
        let mut copied = vec![0; section.raw_len as usize];
        let (front, back) = copied.split_at_mut(section.raw_len as usize / 4);
        container.read_into(section, &mut [front, back])?;
        assert_eq!(container.read(section)?, copied);
        Ok(copied)
    };
    container.sections().map(read).collect()
}

#[test]
fn sections_are_compressed_where_it_pays_and_read_back() {
    let (long, odd, text, noise) =
        (halves(100_000), halves(3001), b"abcdefg, hijk; ".repeat(100), noise(50_000));
    let (odd, zeros, short) = (&odd[..6001], [0; 100_000], [1; 500]);
    let contents: [&[u8]; 6] = [&long, odd, &text, &noise, &zeros, &short];
    let bytes = written(&contents);
    assert_eq!(read(&bytes).unwrap(), contents);
    let container = Container::parse(&bytes).unwrap();
    let codecs: Vec<Codec> = container.sections().map(|section| section.codec).collect();
    use Codec as C;
    assert_eq!(codecs, [C::SHUFFLED_ZSTD, C::SHUFFLED_ZSTD, C::ZSTD, C::RAW, C::RAW, C::RAW]);
    assert!(container.sections().all(
        |section| section.codec == C::RAW || pays(section.stored_len as usize, section.raw_len as usize)
    ));
    container.check().unwrap();
}

#[test]
fn compressed_content_is_recognised_when_saved_again() {
    let (a, b) = (halves(5000), halves(6000));
    let bytes = written(&[&a, &b]);
    let old = Container::parse(&bytes).unwrap();
    let mut tail = Vec::new();
    let mut writer = Writer::append(&mut tail, &old).unwrap();
    writer.section(CELLS, 1, true, 7, &[&b]).unwrap();
    writer.section(CELLS, 1, true, 8, &[&a[..9999]]).unwrap();
    let finished = writer.finish().unwrap();
    assert_eq!(finished.reused, old.find(CELLS, 1).unwrap().stored_len);
}

#[test]
fn every_flipped_bit_of_a_compressed_section_is_an_error_or_harmless() {
    let content = halves(600);
    let mut bytes = written(&[&content]);
    let section = *Container::parse(&bytes).unwrap().find(CELLS, 0).unwrap();
    assert_eq!(section.codec, Codec::SHUFFLED_ZSTD);
    for bit in section.offset * 8..section.end() * 8 {
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
        if let Ok(found) = read(&bytes) {
            assert_eq!(found, [&content[..]]);
        }
        bytes[bit as usize / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_frame_that_holds_more_or_less_than_it_should_is_an_error() {
    let frame = zstd::bulk::compress(&halves(5000), 1).unwrap();
    let bytes = written(&[&halves(5000)]);
    let honest = *Container::parse(&bytes).unwrap().find(CELLS, 0).unwrap();
    assert!(decompress(&Section { codec: Codec::ZSTD, ..honest }, &frame).is_ok());
    for raw_len in [0, 1, 9999, 10_001, 50_000] {
        let section = Section { raw_len, codec: Codec::ZSTD, ..honest };
        assert!(
            matches!(decompress(&section, &frame).unwrap_err(), Error::Malformed { wanted, .. } if wanted == raw_len)
        );
    }
    assert!(decompress(&Section { codec: Codec(3), ..honest }, &frame).is_err());
    assert!(decompress(&honest, &[]).is_err());
}
