//! State files with small defects: valid files with changes to their snapshot, sections or bytes,
//! whose checksums are valid or not.

use super::edit::Edit;
use crate::snapshot::Owned;
use crate::storage::{Container, Fingerprint, Header, Scope, StoredSnapshot, Tag, Writer, forge_snapshot};
use alloc::vec::Vec;
use core::hash::Hasher as _;
use twox_hash::xxhash3_64::Hasher;

/// Fingerprint of the model that all forged files belong to.
pub const FINGERPRINT: Fingerprint = Fingerprint([7; 32]);

const HEADER: Header = Header { fingerprint: FINGERPRINT, scope: Scope::Context };

/// Offset of the first section, and sizes of the file's own structures.
const DATA: usize = 1536;
const FOOTER: usize = 64;
const RECORD: usize = 48;

/// Way in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In one pass, to a stream.
    Stream,
    /// In place, with space to continue it later.
    InPlace,
    /// As the continuation of another file.
    Continued,
}

/// A section apart from its file.
#[derive(Clone)]
struct Loose {
    tag: Tag,
    version: u16,
    required: bool,
    index: u64,
    bytes: Vec<u8>,
}

/// Write a snapshot as a file; `before` is the former content of a file that is continued.
pub fn written(owned: &Owned, before: &Owned, form: Form) -> Vec<u8> {
    match form {
        Form::Stream => {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, HEADER).expect("memory takes all");
            let _ = forge_snapshot(&mut writer, owned, None);
            let _ = writer.finish();
            bytes
        }
        Form::InPlace => in_place(HEADER, |writer| drop(forge_snapshot(writer, owned, None))),
        Form::Continued => {
            let old = in_place(HEADER, |writer| drop(forge_snapshot(writer, before, None)));
            continued(&old, owned)
        }
    }
}

fn in_place(header: Header, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::in_place(&mut bytes, header).expect("memory takes all");
    write(&mut writer);
    let slot = writer.finish().map(|written| written.slot());
    if let Ok((at, slot)) = slot {
        bytes[at as usize..at as usize + slot.len()].copy_from_slice(&slot);
    }
    bytes
}

/// Continue a file with another snapshot.
fn continued(old: &[u8], owned: &Owned) -> Vec<u8> {
    let container = Container::parse(old).expect("it was just written");
    let stored = StoredSnapshot::open(&container).ok();
    let mut new = Vec::new();
    let mut writer = Writer::append(&mut new, &container).expect("it can be continued");
    let _ = forge_snapshot(&mut writer, owned, stored.as_ref());
    let slot = writer.finish().map(|written| written.slot());
    let mut bytes = [old, &new].concat();
    if let Ok((at, slot)) = slot {
        bytes[at as usize..at as usize + slot.len()].copy_from_slice(&slot);
    }
    bytes
}

/// Return the file with changed sections; descriptions are padded by `holes` zeros.
pub fn with_sections(bytes: &[u8], edits: &[Edit], holes: usize) -> Vec<u8> {
    let Ok(container) = Container::parse(bytes) else { return bytes.to_vec() };
    let mut sections: Vec<Loose> = container
        .sections()
        .filter_map(|section| {
            let bytes = container.read(section).ok()?.into_owned();
            let (tag, version, required, index) =
                (section.tag, section.version, section.is_required(), section.index);
            Some(Loose { tag, version, required, index, bytes })
        })
        .collect();
    for section in sections.iter_mut().filter(|section| holes > 0 && is_description(section.tag)) {
        section.bytes.resize(section.bytes.len() + holes, 0);
    }
    edits.iter().for_each(|edit| change(&mut sections, edit));
    in_place(*container.header(), |writer| {
        for Loose { tag, version, required, index, bytes } in &sections {
            let _ = writer.section(*tag, *version, *required, *index, &[bytes]);
        }
    })
}

fn is_description(tag: Tag) -> bool {
    tag == Tag(*b"SHAP") || tag == Tag(*b"MEMO")
}

fn change(sections: &mut Vec<Loose>, edit: &Edit) {
    // Mostly descriptions: blocks outnumber them, but have fewer checks.
    let described = |section: &Loose| is_description(section.tag);
    let of_description = sections.iter().position(described).filter(|_| edit.which >= 128);
    let number = of_description.map(|first| {
        let n = sections.iter().filter(|section| described(section)).count();
        first + edit.which % n.max(1)
    });
    let len = sections.len();
    let Some(number) = number.or(edit.which.checked_rem(len)).filter(|number| *number < len) else { return };
    let section = &mut sections[number];
    match edit.op {
        0..200 => edit.bytes(&mut section.bytes),
        200..206 => drop(sections.remove(number)),
        206..212 => {
            let copy = Loose { index: edit.value.into(), ..section.clone() };
            sections.push(copy);
        }
        212..218 => section.index = edit.value.into(),
        218..224 => section.tag = Tag(edit.value.to_le_bytes()),
        224..230 => section.version = edit.value as u16,
        230..236 => section.required ^= true,
        236..246 => {
            let other = edit.at % len;
            let bytes = sections[other].bytes.clone();
            sections[number].bytes = bytes;
        }
        _ => section.bytes.clear(),
    }
}

/// Change numbers in the header, slots, directory and footer of a file.
pub fn with_parts(bytes: &mut [u8], edits: &[Edit]) {
    for edit in edits {
        let Some((start, len)) = part(bytes, edit.which) else { continue };
        let Some(own) = bytes.get_mut(start..start + len) else { continue };
        let mut copy = own.to_vec();
        edit.bytes(&mut copy);
        own.iter_mut().zip(copy).for_each(|(to, from)| *to = from);
    }
}

/// Return offset and length of the header, a slot, the directory or the footer.
fn part(bytes: &[u8], which: usize) -> Option<(usize, usize)> {
    let footer = bytes.len().checked_sub(FOOTER)?;
    match which % 8 {
        0 => Some((0, 64)),
        1 => Some((512, 32)),
        2 => Some((1024, 32)),
        3 => Some((footer, FOOTER)),
        _ => directory(bytes),
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?) as usize)
}

fn set(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(field) = bytes.get_mut(at..at.saturating_add(8)) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Return offset and length of the directory, as stated in the last footer.
fn directory(bytes: &[u8]) -> Option<(usize, usize)> {
    let footer = bytes.len().checked_sub(FOOTER)?;
    let (start, len) = (number(bytes, footer + 24)?, number(bytes, footer + 32)?);
    bytes.get(start..start.checked_add(len)?).map(|_| (start, len))
}

/// Return the checksum of a range; that of nothing if the range is outside the file.
fn sum(bytes: &[u8], start: usize, len: usize) -> u64 {
    Hasher::oneshot(bytes.get(start..start.saturating_add(len)).unwrap_or_default())
}

/// Make all checksums valid; those of sections only if `contents` is true.
pub fn repair(bytes: &mut [u8], contents: bool) {
    let Some(footer) = bytes.len().checked_sub(FOOTER).filter(|footer| *footer >= DATA) else { return };
    let head = sum(bytes, 0, 504);
    set(bytes, 504, head);
    let (start, len) = directory(bytes).unwrap_or_default();
    for record in (start..start + len).step_by(RECORD).filter(|_| contents) {
        let (offset, stored) = (number(bytes, record + 16), number(bytes, record + 24));
        let sum = sum(bytes, offset.unwrap_or_default(), stored.unwrap_or_default());
        set(bytes, record + 40, sum);
    }
    let of_directory = sum(bytes, start, len);
    set(bytes, footer + 40, of_directory);
    let mut whole = Hasher::default();
    whole.write(&bytes[..512]);
    whole.write(bytes.get(start..start + len).unwrap_or_default());
    set(bytes, footer + 48, whole.finish());
    let check = sum(bytes, footer, 56);
    set(bytes, footer + 56, check);
    let of_footer = sum(bytes, footer, FOOTER);
    for copy in [512, 768, 1024, 1280] {
        if number(bytes, copy + 8) == Some(footer + FOOTER) {
            set(bytes, copy + 16, of_footer);
        }
        if number(bytes, copy) != Some(0) {
            let check = sum(bytes, copy, 56);
            set(bytes, copy + 56, check);
        }
    }
}
