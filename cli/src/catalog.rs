//! Models by name: the GGUF files in a folder, or in the cache that the tools of Hugging Face keep.
//!
//! A model's name is its path in the folder without the ending: `small/smollm2-Q8_0`. In the cache,
//! `models--org--name/snapshots/…/file.gguf` is `org/name/file`. A person may leave out what is not
//! needed to tell the models apart.

use crate::args::Command;
use crate::error::Error;
use crate::output::one_line;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Deepest folder that is looked into, below the one that was named.
const MAX_DEPTH: usize = 8;
/// Most files and folders that are looked at, so that a wrong folder does not take forever.
const MAX_ENTRIES: usize = 100_000;
/// Most names that an error lists.
const MAX_NAMES: usize = 8;

/// A model in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, without the ending of the file.
    pub name: String,
    /// The file; the first part of a split model.
    pub path: PathBuf,
    /// Bytes of the file, and of the other parts of a split model.
    pub n_bytes: u64,
    /// Time of the last change, if the system reports it.
    modified: Option<SystemTime>,
}

/// Return the folder in which the tools of Hugging Face keep models, if it is there. `variable`
/// returns a variable of the environment.
pub fn hugging_face(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || {
        Some(folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?.join("huggingface"))
    };
    let hub = folder("HF_HUB_CACHE").or_else(|| Some(folder("HF_HOME").or_else(cache)?.join("hub")));
    hub.filter(|folder| folder.is_dir())
}

/// Return the models in a folder, sorted by name.
///
/// # Errors
/// [`Error::Read`] if the folder itself cannot be read; folders in it that cannot are left out.
pub fn list(folder: &Path) -> Result<Vec<Entry>, Error> {
    fs::read_dir(folder).map_err(|source| Error::Read { path: folder.into(), source })?;
    let mut found = BTreeMap::new();
    let mut n_left = MAX_ENTRIES;
    collect(folder, folder, MAX_DEPTH, &mut n_left, &mut found);
    Ok(found.into_values().collect())
}

/// Add the models in `folder` and the folders in it.
fn collect(
    root: &Path,
    folder: &Path,
    depth: usize,
    n_left: &mut usize,
    found: &mut BTreeMap<String, Entry>,
) {
    // A folder that cannot be read is somebody else's.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Some(left) = n_left.checked_sub(1) else { return };
        *n_left = left;
        let path = entry.path();
        // Links of the cache lead to files; a linked folder could lead back to this one.
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if metadata.is_dir() && !is_link && depth > 0 {
            collect(root, &path, depth - 1, n_left, found);
        } else if metadata.is_file()
            && let Some((name, is_first)) = name_of(root, &path)
        {
            let modified = metadata.modified().ok();
            let part = Entry { name: name.clone(), path, n_bytes: metadata.len(), modified };
            join(found, name, part, is_first);
        }
    }
}

/// Add a file: a model, or a part of one. Of several snapshots the newest counts.
fn join(found: &mut BTreeMap<String, Entry>, name: String, part: Entry, is_first: bool) {
    let Some(entry) = found.get_mut(&name) else {
        found.insert(name, part);
        return;
    };
    // Parts of one model lie side by side, snapshots in folders of their own.
    match part.path.parent() == entry.path.parent() {
        true => {
            entry.n_bytes = entry.n_bytes.saturating_add(part.n_bytes);
            if is_first {
                entry.path = part.path;
            }
        }
        false if part.modified > entry.modified => *entry = part,
        false => {}
    }
}

/// Return the name of the model in a file, and true unless the file is a later part of it; none if
/// the file is no model by its ending.
fn name_of(root: &Path, path: &Path) -> Option<(String, bool)> {
    let is_gguf = path.extension()?.eq_ignore_ascii_case("gguf");
    let mut parts: Vec<String> = Vec::new();
    for part in path.with_extension("").strip_prefix(root).ok()?.components() {
        let Component::Normal(part) = part else { return None };
        parts.push(part.to_str()?.into());
    }
    if let Some(at) = parts.iter().position(|part| part == "snapshots")
        && let Some(repository) = at.checked_sub(1).and_then(|at| parts.get(at)?.strip_prefix("models--"))
    {
        // The snapshot's own folder says nothing to a person.
        let repository = repository.replace("--", "/");
        parts = std::iter::once(repository).chain(parts.into_iter().skip(at + 2)).collect();
    }
    let last = parts.pop()?;
    let (stem, is_first) = match part_of(&last) {
        Some((stem, number)) => (stem.to_owned(), number == 1),
        None => (last, true),
    };
    parts.push(stem);
    is_gguf.then(|| (parts.join("/"), is_first))
}

/// Return the name and the number of a part, `name-00002-of-00003`.
fn part_of(stem: &str) -> Option<(&str, u32)> {
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(total) && is_number(number)).then(|| number.parse().ok().map(|number| (name, number)))?
}

/// Return the model that a person named; none if no model has that name.
///
/// # Errors
/// [`Error::Refused`] if several have.
pub fn find<'a>(models: &'a [Entry], wanted: &str) -> Result<Option<&'a Entry>, Error> {
    let wanted = wanted.strip_suffix(".gguf").unwrap_or(wanted).to_lowercase();
    let names = |is_meant: &dyn Fn(&str) -> bool| {
        models.iter().filter(|entry| is_meant(&entry.name.to_lowercase())).collect::<Vec<_>>()
    };
    // The whole name, its end, its beginning, or any part of it: the first of these that is
    // anybody's name counts.
    let ways: [&dyn Fn(&str) -> bool; 4] = [
        &|name| name == wanted,
        &|name| name.ends_with(&format!("/{wanted}")),
        &|name| name.starts_with(&format!("{wanted}/")),
        &|name| name.contains(&wanted),
    ];
    let found = ways.iter().map(|way| names(*way)).find(|found| !found.is_empty()).unwrap_or_default();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            Err(Error::Refused(format!("several models have the name {wanted}: {}; name one", some(several))))
        }
    }
}

/// Return the names of some models.
fn some(models: &[&Entry]) -> String {
    let mut names: Vec<_> = models.iter().take(MAX_NAMES).map(|entry| one_line(&entry.name)).collect();
    names.extend((models.len() > MAX_NAMES).then(|| "…".into()));
    names.join(", ")
}

/// Replace the names of models in the options of a command by the paths of their files. What is a
/// path already stays.
///
/// # Errors
/// - [`Error::Refused`] for a name that several models have, or none in a folder that was named.
/// - [`Error::Read`] if a folder that was named cannot be read.
pub fn resolve(command: &mut Command) -> Result<(), Error> {
    let Some((args, draft)) = command.models() else { return Ok(()) };
    let is_named = args.models.is_some();
    let folder = args.models.clone().or_else(|| hugging_face(|name| std::env::var_os(name)));
    let Some(folder) = folder else { return Ok(()) };
    for path in [args.model.as_mut(), draft].into_iter().flatten().filter(|path| !path.exists()) {
        let Some(wanted) = path.to_str() else { continue };
        let models = list(&folder)?;
        match find(&models, wanted)? {
            Some(entry) => *path = entry.path.clone(),
            None if is_named => {
                let all: Vec<&Entry> = models.iter().collect();
                let (wanted, folder) = (one_line(wanted), one_line(&folder.display().to_string()));
                let text = format!("there is no model {wanted} in {folder}, which has {}", some(&all));
                return Err(Error::Refused(text));
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, each as long as its path.
    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        folder
    }

    fn names(models: &[Entry]) -> Vec<&str> {
        models.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn models_of_a_folder_and_of_the_cache_have_names() {
        let folder = folder(&[
            "tiny.gguf",
            "notes.txt",
            "large/big-Q4_0.GGUF",
            "models--org--name-it/snapshots/0123/name-Q8_0.gguf",
            "models--org--name-it/refs/main",
            "split-00001-of-00002.gguf",
            "split-00002-of-00002.gguf",
        ]);
        let models = list(folder.path()).unwrap();
        assert_eq!(names(&models), ["large/big-Q4_0", "org/name-it/name-Q8_0", "split", "tiny"]);
        let split = &models[2];
        assert!(split.path.ends_with("split-00001-of-00002.gguf") && split.n_bytes == 50, "{split:?}");
    }

    #[test]
    fn the_newest_snapshot_counts() {
        let folder = folder(&["models--a--b/snapshots/1/c.gguf", "models--a--b/snapshots/2/c.gguf"]);
        let old = fs::File::options()
            .append(true)
            .open(folder.path().join("models--a--b/snapshots/2/c.gguf"))
            .unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let models = list(folder.path()).unwrap();
        assert_eq!(names(&models), ["a/b/c"]);
        assert!(models[0].path.ends_with("1/c.gguf"));
    }

    #[test]
    fn a_name_may_leave_out_what_nobody_needs() {
        let folder = folder(&["a/tiny-Q8_0.gguf", "b/tiny-Q4_0.gguf", "b/tiny-Q4_0-it.gguf", "c/other.gguf"]);
        let models = list(folder.path()).unwrap();
        for (wanted, name) in [
            ("a/tiny-Q8_0", "a/tiny-Q8_0"),
            ("tiny-q8_0.gguf", "a/tiny-Q8_0"),
            ("tiny-Q4_0", "b/tiny-Q4_0"),
            ("c", "c/other"),
            ("q8", "a/tiny-Q8_0"),
        ] {
            assert_eq!(find(&models, wanted).unwrap().unwrap().name, name, "{wanted}");
        }
        assert!(find(&models, "none").unwrap().is_none());
        assert!(find(&models, "tiny").unwrap_err().to_string().contains("a/tiny-Q8_0, b/tiny-Q4_0"));
    }

    #[test]
    fn the_cache_is_where_its_tools_keep_it() {
        let folder = folder(&[".cache/huggingface/hub/a", "own/hub/a"]);
        let home = |name: &str| (name == "HOME").then(|| folder.path().into());
        assert_eq!(hugging_face(home), Some(folder.path().join(".cache/huggingface/hub")));
        let own = |name: &str| (name == "HF_HOME").then(|| folder.path().join("own").into());
        assert_eq!(hugging_face(own), Some(folder.path().join("own/hub")));
        assert_eq!(hugging_face(|_| None), None);
    }
}
