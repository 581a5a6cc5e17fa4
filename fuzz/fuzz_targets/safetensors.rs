//! The safetensors reader and its index, with arbitrary bytes.
//!
//! The first byte chooses a form. Odd: the rest is a whole file. Even: the rest up to a zero byte
//! is an index, and after it comes the header of the file that it names, with its length before it
//! and data behind. The reader must refuse the folder with an error that can be printed, or every
//! tensor must lie within its file.
#![no_main]

use backstitch_convert::checkpoint::Checkpoint;
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::Path;

/// Bytes of data behind a header.
const DATA: usize = 64;

fuzz_target!(|input: &[u8]| {
    let Some((form, rest)) = input.split_first() else { return };
    let folder = tempfile::tempdir().expect("a folder for the files");
    let file = folder.path().join("model.safetensors");
    if form % 2 == 1 {
        fs::write(&file, rest).expect("the file");
    } else {
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let (index, header) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend([0; DATA]);
        fs::write(&file, bytes).expect("the file");
        if !index.is_empty() {
            fs::write(folder.path().join("model.safetensors.index.json"), index).expect("the index");
        }
    }
    check(folder.path(), &file);
});

fn check(folder: &Path, file: &Path) {
    let mut checkpoint = match Checkpoint::open(folder, "model") {
        Ok(checkpoint) => checkpoint,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let len = fs::metadata(file).expect("the file is there").len();
    for (name, shape, stored) in checkpoint.tensors.clone() {
        let n_bytes = shape.iter().product::<usize>() * stored.ty.n_bytes();
        assert!(stored.start + n_bytes as u64 <= len, "{name} lies beyond the file");
        let mut data = vec![0; n_bytes];
        checkpoint.read(stored.file, stored.start, &mut data).expect("the data are in the file");
    }
}
