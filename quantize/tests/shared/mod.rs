//! Files of the goldens, and their checksums.

use std::path::PathBuf;

/// Read a golden.
pub fn golden(path: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../goldens");
    std::fs::read(root.join(path)).unwrap()
}

/// Return the CRC-32 of zlib.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
