//! The weights of a folder: one safetensors file, or several with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use crate::json::{read_json, shown};
use crate::safetensors::{StoredType, read_header};

/// A tensor of the checkpoint and where its data lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Number of the file.
    pub file: usize,
    /// Byte offset of the data in the file.
    pub start: u64,
    /// Type of the elements.
    pub ty: StoredType,
}

/// The tensors of all files, and the open files.
#[derive(Debug)]
pub struct Checkpoint {
    /// Name, shape and place of each tensor, in the order of the files and of the data in them.
    pub tensors: Vec<(String, Vec<usize>, Stored)>,
    files: Vec<(PathBuf, File)>,
}

impl Checkpoint {
    /// Read the headers of the files of a folder whose names begin with `stem` ("model").
    ///
    /// # Errors
    /// [`Error::MissingFile`] if there is none, [`Error::MissingShards`] and [`Error::Index`] if
    /// the index lists other files or tensors than there are, [`Error::Tensor`] if two files have a
    /// tensor of one name; the errors of [`read_header`].
    pub fn open(folder: &Path, stem: &str) -> Result<Self, Error> {
        let index_path = folder.join(format!("{stem}.safetensors.index.json"));
        let index = read_json(&index_path)?.map(|index| weight_map(&index_path, &index)).transpose()?;
        let names = match &index {
            Some(map) => present(folder, &index_path, map)?,
            None => shard_names(folder, stem)?,
        };
        if names.is_empty() {
            let wanted = format!("{stem}.safetensors and no {stem}.safetensors.index.json");
            return Err(Error::MissingFile { folder: folder.into(), wanted });
        }
        let mut checkpoint = Self::empty();
        let mut owners = BTreeMap::new();
        for name in &names {
            checkpoint.add(&folder.join(name), name, &mut owners)?;
        }
        if let Some(map) = &index {
            compare(&index_path, map, &owners)?;
        }
        Ok(checkpoint)
    }

    /// Make a checkpoint without tensors.
    pub fn empty() -> Self {
        Self { tensors: Vec::new(), files: Vec::new() }
    }

    /// Open a file and add its tensors. `owners` collects the file of each tensor.
    fn add(&mut self, path: &Path, name: &str, owners: &mut BTreeMap<String, String>) -> Result<(), Error> {
        for entry in read_header(path)? {
            if let Some(other) = owners.insert(entry.name.clone(), name.into()) {
                let (found, wanted) = (format!("data in {other} and {name}"), "data in one file".into());
                return Err(Error::Tensor { tensor: entry.name, found, wanted });
            }
            let stored = Stored { file: self.files.len(), start: entry.start, ty: entry.ty };
            self.tensors.push((entry.name, entry.shape, stored));
        }
        let file = File::open(path).map_err(|source| Error::Read { path: path.into(), source })?;
        self.files.push((path.into(), file));
        Ok(())
    }

    /// Read bytes of a file into `bytes`, from byte `start`.
    ///
    /// # Errors
    /// [`Error::Read`] if the file cannot be read or became shorter.
    pub fn read(&mut self, file: usize, start: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let Some((path, file)) = self.files.get_mut(file) else { return Ok(()) };
        file.seek(SeekFrom::Start(start))
            .and_then(|_| file.read_exact(bytes))
            .map_err(|source| Error::Read { path: path.clone(), source })
    }
}

/// Read the file of each tensor from an index.
fn weight_map(path: &Path, index: &Value) -> Result<BTreeMap<String, String>, Error> {
    let wrong = |key: &str, found: Option<&Value>, wanted: &str| Error::Key {
        path: path.into(),
        key: key.into(),
        found: found.map_or("nothing".into(), shown),
        wanted: wanted.into(),
    };
    let map = index.get("weight_map");
    let object = map.and_then(Value::as_object).ok_or_else(|| wrong("weight_map", map, "an object"))?;
    let mut owners = BTreeMap::new();
    for (tensor, file) in object {
        // A file of the folder itself: an index must not lead anywhere else.
        let name = file.as_str().filter(|name| !name.contains(['/', '\\']) && name.ends_with(".safetensors"));
        let name = name.ok_or_else(|| wrong(tensor, Some(file), "a file of the folder"))?;
        owners.insert(tensor.clone(), name.to_owned());
    }
    Ok(owners)
}

/// Return the files of an index, each of which is there.
fn present(folder: &Path, path: &Path, map: &BTreeMap<String, String>) -> Result<Vec<String>, Error> {
    let names: BTreeSet<&String> = map.values().collect();
    let (there, missing): (Vec<_>, Vec<_>) =
        names.into_iter().cloned().partition(|name| folder.join(name).is_file());
    if missing.is_empty() {
        Ok(there)
    } else {
        Err(Error::MissingShards { path: path.into(), shards: missing })
    }
}

/// Return the names of the weight files of a folder without an index, sorted.
fn shard_names(folder: &Path, stem: &str) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Read { path: folder.into(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with(stem) && name.ends_with(".safetensors") {
            names.push(name);
        }
    }
    names.sort();
    complete(folder, stem, &names)?;
    Ok(names)
}

/// Check that files named `model-00001-of-00003.safetensors` are all there.
fn complete(folder: &Path, stem: &str, names: &[String]) -> Result<(), Error> {
    let total = names.iter().find_map(|name| {
        let numbers = name.strip_prefix(stem)?.strip_prefix('-')?.strip_suffix(".safetensors")?;
        numbers.split_once("-of-")?.1.parse::<usize>().ok()
    });
    match total {
        Some(total) if total != names.len() => {
            let wanted = format!("all {total} files that the names promise, but {} of them", names.len());
            Err(Error::MissingFile { folder: folder.into(), wanted })
        }
        _ => Ok(()),
    }
}

/// Check that the files hold the tensors that the index says.
fn compare(
    path: &Path,
    index: &BTreeMap<String, String>,
    owners: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let differs = index.keys().chain(owners.keys()).find(|name| index.get(*name) != owners.get(*name));
    let Some(tensor) = differs else { return Ok(()) };
    let file = |map: &BTreeMap<String, String>| map.get(tensor).cloned().unwrap_or("nothing".into());
    Err(Error::Index { path: path.into(), tensor: tensor.clone(), found: file(owners), wanted: file(index) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Write a safetensors file with one tensor of two F32.
    fn write(folder: &Path, file: &str, tensor: &str) {
        let header = format!(r#"{{"{tensor}": {{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}}}"#);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([0; 8]);
        fs::write(folder.join(file), bytes).unwrap();
    }

    fn open_error(folder: &Path) -> String {
        Checkpoint::open(folder, "model").unwrap_err().to_string()
    }

    #[test]
    fn shards_that_are_missing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(open_error(folder).contains("has no model.safetensors"));
        write(folder, "model-00001-of-00002.safetensors", "a");
        assert!(open_error(folder).contains("all 2 files that the names promise, but 1"));
        let index = folder.join("model.safetensors.index.json");
        let both = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors",
            "b": "model-00002-of-00002.safetensors"}}"#;
        fs::write(&index, both).unwrap();
        assert!(open_error(folder).contains("not there: model-00002-of-00002.safetensors"));
        write(folder, "model-00002-of-00002.safetensors", "c");
        let error = open_error(folder);
        assert!(error.contains("tensor \"b\" is in nothing, but should be in model-00002"), "{error}");
        write(folder, "model-00002-of-00002.safetensors", "a");
        assert!(open_error(folder).contains("wanted data in one file"));
        write(folder, "model-00002-of-00002.safetensors", "b");
        assert_eq!(Checkpoint::open(folder, "model").unwrap().tensors.len(), 2);
        fs::write(&index, r#"{"weight_map": {"a": "../model.safetensors"}}"#).unwrap();
        assert!(open_error(folder).contains("wanted a file of the folder"));
    }
}
