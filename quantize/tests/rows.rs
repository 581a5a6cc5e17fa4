//! Rows of a real model against the reference's encoders: `goldens/quantize/smollm2_rows.tsv` has,
//! for each type, with importance and without it, the CRC-32 of what the library libgguf makes of
//! sixteen rows of SmolLM2.

mod shared;

use backstitch_core::DType;
use shared::{crc32, golden};

/// Columns of a row.
const N_COLS: usize = 1536;

#[test]
fn rows_of_a_real_model_are_encoded_as_by_the_reference() {
    let halves = golden("quantize/smollm2_rows.f16");
    let mut values = vec![0.0; halves.len() / 2];
    DType::F16.decode(&halves, &mut values).unwrap();
    let importance: Vec<f32> = (0..N_COLS).map(|i| (i * 7919 % 1009 + 1) as f32 / 8.0).collect();
    let lines = String::from_utf8(golden("quantize/smollm2_rows.tsv")).unwrap();
    let mut wrong = Vec::new();
    for line in lines.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let dtype = DType::from_name(words[0]).unwrap();
        let mut bytes = vec![0; dtype.row_bytes(values.len()).unwrap()];
        let row_bytes = dtype.row_bytes(N_COLS).unwrap();
        for (row, bytes) in values.chunks(N_COLS).zip(bytes.chunks_mut(row_bytes)) {
            match words[1] {
                "imatrix" => dtype.encode_important(row, &importance, bytes).unwrap(),
                _ => dtype.encode(row, bytes).unwrap(),
            }
        }
        let found = format!("{:08x}", crc32(&bytes));
        if found != words[2] {
            wrong.push(format!("{line}: {found}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(lines.lines().count(), 38);
}
