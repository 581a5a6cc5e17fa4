//! The tables of the document say what the code does.

use super::*;
use crate::storage::container::section::{FLAG_REQUIRED, MAX_COMPRESSED, MAX_RATIO, RECORD_BYTES, Section};
use core::mem::offset_of;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

const DOCUMENT: &str = include_str!("../../../../../docs/state-format.md");

/// Return the rows of the first table under a heading, as trimmed cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, text) = DOCUMENT.split_once(heading).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// A field: its name, where it begins, its size.
type Field = (String, usize, usize);

/// Return the fields that the document has under a heading.
fn documented(heading: &str) -> Vec<Field> {
    let field = |row: Vec<&str>| {
        (row[2].trim_matches('`').to_string(), row[0].parse().unwrap(), row[1].parse().unwrap())
    };
    table(heading).into_iter().map(field).collect()
}

macro_rules! fields {
    ($part:ty: $($field:ident)*) => {{
        let part = <$part>::zeroed();
        let fields: Vec<Field> = [$((stringify!($field).to_string(), offset_of!($part, $field), size_of_val(&part.$field))),*].into();
        assert_eq!(fields.iter().map(|field| field.2).sum::<usize>(), size_of::<$part>(), "all fields are named");
        fields
    }};
}

#[test]
fn the_document_has_the_fields_of_the_code() {
    let header = fields!(HeaderBytes: magic version flags scope zero fingerprint reserved check);
    assert_eq!(documented("### Header\n"), header);
    assert_eq!(documented("### Commit slot\n"), fields!(Slot: first zero second zero_too));
    let commit = fields!(Commit: generation committed footer_checksum reserved check);
    assert_eq!(documented("### Commit\n"), commit);
    let record = fields!(Section: tag version codec flags index offset stored_len raw_len checksum);
    assert_eq!(documented("### Record\n"), record);
    let footer = fields!(Footer: magic generation total directory_offset directory_len directory_checksum whole_checksum check);
    assert_eq!(documented("### Footer\n"), footer);
}

#[test]
fn the_document_has_the_constants_of_the_code() {
    let code = [
        ("VERSION", u64::from(VERSION)),
        ("HEADER_BYTES", HEADER_BYTES),
        ("SLOT_BYTES", SLOT_BYTES),
        ("N_SLOTS", N_SLOTS),
        ("DATA_OFFSET", DATA_OFFSET),
        ("ALIGN", ALIGN),
        ("RECORD_BYTES", RECORD_BYTES),
        ("FOOTER_BYTES", FOOTER_BYTES),
        ("MAX_RATIO", MAX_RATIO),
        ("MAX_COMPRESSED", MAX_COMPRESSED),
        ("FLAG_STREAM", u64::from(FLAG_STREAM)),
        ("FLAG_REQUIRED", u64::from(FLAG_REQUIRED)),
    ];
    let constants: Vec<(&str, u64)> =
        table("## Layers\n").iter().map(|row| (row[0].trim_matches('`'), row[1].parse().unwrap())).collect();
    assert_eq!(constants, code);
    for magic in [MAGIC, FOOTER_MAGIC] {
        assert!(DOCUMENT.contains(&format!("| `magic` | the bytes `{}` |", magic.escape_ascii())));
    }
}

#[test]
fn checksums_are_those_of_the_document() {
    // Of XXH3-64's own test vectors: no bytes, seed 0.
    assert_eq!(checksum(&[]), 0x2d06_8005_38d3_94c2);
    let header = Header { fingerprint: Fingerprint([1; 32]), scope: Scope::Sequence };
    let bytes: [u8; 512] = bytemuck::must_cast(HeaderBytes::new(&header, false));
    assert_eq!(bytes[504..], checksum(&bytes[..504]).to_le_bytes());
    let commit = Commit::new(2, 1664, 5);
    assert_eq!(commit.slot_offset(), 1024);
    let bytes: [u8; 512] = bytemuck::must_cast(Slot::new(&commit));
    assert_eq!(bytes[56..64], checksum(&bytes[..56]).to_le_bytes());
    assert_eq!(bytes[..64], bytes[256..320]);
    assert!(Slot::zeroed().decode(0).is_none());
}
