//! Untrusted importance matrices of both forms.
//!
//! Reading one must not panic nor take more memory than a few times the file. What was read from
//! today's form is written and read again as the same; the importance of each tensor has as many
//! numbers as it has sums.
#![no_main]

use backstitch_models::gguf::Gguf;
use backstitch_quantize::Imatrix;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let imatrix = match Imatrix::read(input) {
        Ok(imatrix) => imatrix,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(imatrix.n_entries() > 0 && imatrix.n_entries() <= input.len());
    let Ok(gguf) = Gguf::parse(input) else { return };
    for tensor in gguf.tensors() {
        if let Some(name) = tensor.name().strip_suffix(".in_sum2") {
            let importance = imatrix.importance(name);
            assert_eq!(importance.map(|all| all.len()), Some(tensor.n_elements()));
        }
    }
    // A name that was long enough for a file of the old form may be too long with a suffix.
    if let Ok(bytes) = imatrix.to_bytes() {
        let again = Imatrix::read(&bytes).expect("what was written is read");
        assert_eq!(again.to_bytes().expect("names fit"), bytes);
    }
});
