//! GGUF files from streams: a socket, an archive, standard input.
//!
//! A stream has no length to compare counts with, so the reader parses what it has, doubles the
//! bytes while the parser reports a truncated file, and stops when the parser is content.

use super::Gguf;
use super::reader::{MAX_ENTRIES, MAX_TENSORS};
use crate::error::{Error, Region, StreamError};
use alloc::vec::Vec;
use backstitch_kv::io::Read;

/// The number of bytes asked for at first.
const FIRST: usize = 64 << 10;

/// Read the bytes of a GGUF file from a stream.
///
/// A stream that continues behind the file is read for at most as many bytes again. The bytes in
/// memory are never more than twice the bytes received, and never more than `limit`. A stream that
/// is not a GGUF file is given up at its first wrong byte.
///
/// # Errors
/// [`Error::Stream`] if reading fails; [`Error::ModelTooLarge`] if the file continues after `limit`
/// bytes; [`Error::OutOfMemory`]; those of [`Gguf::parse`] for a file that ends too early or is
/// wrong.
pub(crate) fn read_stream(input: &mut dyn Read, limit: u64) -> Result<Vec<u8>, Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut bytes, mut wanted) = (Vec::new(), FIRST.min(limit));
    loop {
        let is_end = fill(input, &mut bytes, wanted)?;
        match Gguf::parse(&bytes).map(drop) {
            Err(error) if !is_end && wants_more(&error) && bytes.len() < limit => {}
            Err(error) if !is_end && wants_more(&error) => {
                return Err(Error::ModelTooLarge { limit: limit as u64 });
            }
            result => return result.map(|()| bytes),
        }
        wanted = bytes.len().saturating_mul(2).min(limit);
    }
}

/// Return true for the error of a file that more bytes can make a good one.
fn wants_more(error: &Error) -> bool {
    match *error {
        Error::TooMany { region: Region::Tensor, found, .. } => found <= MAX_TENSORS as u64,
        Error::TooMany { region: Region::Key, found, .. } => found <= MAX_ENTRIES as u64,
        _ => matches!(error, Error::Truncated { .. } | Error::TooMany { .. }),
    }
}

/// Read until there are `wanted` bytes. Return true if the stream ended before.
fn fill(input: &mut dyn Read, bytes: &mut Vec<u8>, wanted: usize) -> Result<bool, Error> {
    let mut len = bytes.len();
    let refused = Error::OutOfMemory { what: "a model", n_bytes: wanted as u64 };
    bytes.try_reserve_exact(wanted.saturating_sub(len)).map_err(|_| refused)?;
    bytes.resize(wanted, 0);
    let mut is_end = false;
    while let Some(rest @ [_, ..]) = bytes.get_mut(len..) {
        match input.read(rest).map_err(|error| Error::Stream(StreamError(error)))? {
            0 => {
                is_end = true;
                break;
            }
            n => len += n.min(rest.len()),
        }
    }
    bytes.truncate(len);
    Ok(is_end)
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use std::io;

    /// Gives some bytes at a time, then others for ever, and counts them.
    struct Slow<'a> {
        bytes: &'a [u8],
        after: u8,
        n_given: usize,
    }

    impl io::Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = into.len().min(999);
            self.n_given += n;
            for byte in &mut into[..n] {
                *byte = self.bytes.split_off_first().copied().unwrap_or(self.after);
            }
            Ok(n)
        }
    }

    fn golden() -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/models/llama.gguf")).unwrap()
    }

    #[test]
    fn a_file_is_read_to_its_end_and_a_stream_not_much_beyond() {
        let file = golden();
        assert_eq!(read_stream(&mut file.as_slice(), u64::MAX).unwrap(), file);
        assert_eq!(read_stream(&mut file.as_slice(), file.len() as u64).unwrap(), file);
        let mut slow = Slow { bytes: &file, after: 7, n_given: 0 };
        let bytes = read_stream(&mut slow, u64::MAX).unwrap();
        assert!(bytes.starts_with(&file) && bytes.len() <= 2 * file.len() && slow.n_given == bytes.len());
    }

    #[test]
    fn what_is_no_model_or_too_long_is_given_up() {
        let file = golden();
        let mut zeros = Slow { bytes: &[], after: 0, n_given: 0 };
        assert!(matches!(read_stream(&mut zeros, u64::MAX), Err(Error::Magic { .. })));
        assert!(zeros.n_given <= FIRST, "{}", zeros.n_given);
        let limit = file.len() as u64 - 1;
        let error = read_stream(&mut file.as_slice(), limit).unwrap_err();
        assert!(matches!(error, Error::ModelTooLarge { limit: found } if found == limit), "{error:?}");
        let error = read_stream(&mut &file[..file.len() - 1], u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{error:?}");
        // A header that promises more than any file has, and one that promises more than comes.
        let mut header = file[..64].to_vec();
        header[8..16].fill(0x7f);
        let mut endless = Slow { bytes: &header, after: 0, n_given: 0 };
        let error = read_stream(&mut endless, u64::MAX).unwrap_err();
        assert!(matches!(error, Error::TooMany { .. }) && endless.n_given <= FIRST, "{error:?}");
        header[8..16].copy_from_slice(&(MAX_TENSORS as u64).to_le_bytes());
        let mut endless = Slow { bytes: &header, after: 0, n_given: 0 };
        let error = read_stream(&mut endless, 1 << 20).unwrap_err();
        assert!(matches!(error, Error::ModelTooLarge { .. }), "{error:?}");
        assert_eq!(endless.n_given, 1 << 20);
        struct Failing;
        impl io::Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        assert!(matches!(read_stream(&mut Failing, u64::MAX), Err(Error::Stream(_))));
    }
}
