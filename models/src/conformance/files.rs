//! Recognition of conformance files, and the location of the models that they name.

use super::report::Options;
use alloc::vec::Vec;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The kind of a conformance file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Steps and expected numbers.
    Golden,
    /// Texts and their tokens.
    Tokens,
    /// Messages and the texts that a template renders.
    Chat,
    /// Continuations of a real model.
    Generation,
}

/// Return all conformance files at or below `path`, in order of their names.
///
/// # Errors
/// The error of the file system if `path` or a folder below it cannot be read.
///
/// # Example
/// ```
/// use backstitch_models::conformance::find;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("a.txt"), "golden-1\n")?;
/// std::fs::write(folder.path().join("b.txt"), "something else\n")?;
/// assert_eq!(find(folder.path())?, [folder.path().join("a.txt")]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn find(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok([path.to_owned()].into());
    }
    let mut found = Vec::new();
    collect(path, &mut found)?;
    Ok(found)
}

/// Add the conformance files below `folder`.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links to folders are not followed, because they may form circles.
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), found)?;
        } else if kind(&entry.path())?.is_some() {
            found.push(entry.path());
        }
    }
    Ok(())
}

/// Return the kind of a file from its name and its first bytes.
pub(super) fn kind(path: &Path) -> io::Result<Option<Kind>> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let Some(extension @ ("tsv" | "txt" | "json")) = extension else { return Ok(None) };
    let mut first = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut first)?;
    let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let says = |format: &str| first.windows(format.len()).any(|window| window == format.as_bytes());
    Ok(match extension {
        "tsv" if line.iter().filter(|&&byte| byte == b'\t').count() == 5 => Some(Kind::Tokens),
        "txt" if line == b"golden-1" => Some(Kind::Golden),
        "json" if says("\"chat-golden-1\"") => Some(Kind::Chat),
        "json" if says("\"generate-golden-1\"") => Some(Kind::Generation),
        _ => None,
    })
}

/// Return the file that the conformance file at `path` calls `name`: beside it or beside its
/// folder.
pub(super) fn named(path: &Path, name: &str) -> Option<PathBuf> {
    let folder = path.parent()?;
    let beside = [folder.join(name), folder.join("..").join(name)];
    beside.into_iter().find(|path| path.is_file())
}

/// Return the model that the file at `path` calls `name`: beside the file, beside its folder, or
/// else the one that the user gave.
pub(super) fn model(path: &Path, name: &str, options: &Options) -> Option<PathBuf> {
    named(path, name).or_else(|| options.model.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_name_and_first_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("below")).unwrap();
        let cases = [
            ("below/a.txt", "golden-1\nmodel x\n", Some(Kind::Golden)),
            ("b.tsv", "\t\t\t\t\t\n", Some(Kind::Tokens)),
            ("table.tsv", "\t\t\t\t\n", None),
            ("c.json", "{\"format\": \"chat-golden-1\"}", Some(Kind::Chat)),
            ("d.json", "{\"format\": \"generate-golden-1\"}", Some(Kind::Generation)),
            ("e.txt", "golden-12\n", None),
            ("f.json", "{}", None),
            ("g.bin", "golden-1\n", None),
        ];
        for (name, content, wanted) in cases {
            fs::write(folder.join(name), content).unwrap();
            assert_eq!(kind(&folder.join(name)).unwrap(), wanted, "{name}");
        }
        let found = find(folder).unwrap();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["b.tsv", "a.txt", "c.json", "d.json"]);
    }
}
