//! Every format against the files in `goldens/formats`, and the promises that all formats share.

use std::string::String;
use std::vec;
use std::vec::Vec;

use crate::dtype::DType;
use crate::error::Error;
use crate::packed::PackedType;

/// A format's stored rows with the floats they decode to.
struct Golden {
    dtype: DType,
    blocks: &'static [u8],
    values: &'static [u8],
}

macro_rules! goldens {
    ($($name:ident)*) => {
        &[$(Golden {
            dtype: DType::$name,
            blocks: file!($name, ".blocks"),
            values: file!($name, ".values"),
        }),*]
    };
}

macro_rules! files {
    ($kind:literal: $($name:ident)*) => {
        &[$((DType::$name, file!($name, $kind))),*]
    };
}

macro_rules! file {
    ($name:ident, $kind:literal) => {
        include_bytes!(concat!("../../../goldens/formats/", stringify!($name), $kind))
    };
}

static GOLDENS: &[Golden] = goldens![
    F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4 TQ1_0 TQ2_0
    Q1_0 Q2_0 IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S
];

/// The blocks that the sample encodes to.
static ENCODED: &[(DType, &[u8])] = files![
    ".encoded": F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4
    TQ1_0 TQ2_0 Q1_0 Q2_0 IQ1_M IQ2_S IQ3_XXS IQ3_S
];

/// The blocks that the sample encodes to with [`IMPORTANCE`].
static IMPORTANT: &[(DType, &[u8])] = files![
    ".important": Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ1_S IQ1_M IQ2_XXS
    IQ2_XS IQ2_S IQ3_XXS IQ3_S
];

static SAMPLE: &[u8] = include_bytes!("../../../goldens/formats/sample.values");

/// The importance of 256 columns.
static IMPORTANCE: &[u8] = include_bytes!("../../../goldens/formats/importance.values");

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut y = vec![f32::NAN; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    dtype.decode(bytes, &mut y).expect("whole blocks");
    y
}

/// Encode with all errors alike, for types that need importance, and without importance for others.
fn encode(dtype: DType, x: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xa5; dtype.row_bytes(x.len()).expect("whole blocks")];
    if dtype.needs_importance() {
        dtype.encode_important(x, &vec![1.0; x.len()], &mut bytes).expect("whole blocks");
    } else {
        dtype.encode(x, &mut bytes).expect("whole blocks");
    }
    bytes
}

fn decodable() -> impl Iterator<Item = DType> {
    DType::table().iter().map(|info| info.dtype).filter(|dtype| PackedType::of(*dtype).is_some())
}

#[test]
fn decoding_is_bit_equal_to_the_reference() {
    let mut wrong = Vec::new();
    for golden in GOLDENS {
        let (found, wanted) = (decode(golden.dtype, golden.blocks), floats(golden.values));
        assert_eq!(found.len(), wanted.len(), "{}", golden.dtype);
        let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        match found.iter().zip(&wanted).filter(|&pair| differ(pair)).count() {
            0 => {}
            n => wrong.push((golden.dtype, n)),
        }
    }
    assert_eq!(wrong, [], "types and the number of elements that differ");
}

/// Return the blocks that differ, by type.
fn differing(
    goldens: &[(DType, &[u8])],
    encode: impl Fn(DType, &mut [u8]) -> Result<(), Error>,
) -> Vec<(DType, Vec<usize>)> {
    let mut wrong = Vec::new();
    for &(dtype, wanted) in goldens {
        let mut found = vec![0xa5; wanted.len()];
        assert_eq!(encode(dtype, &mut found), Ok(()), "{dtype}");
        let blocks = found.chunks_exact(dtype.block_bytes()).zip(wanted.chunks_exact(dtype.block_bytes()));
        let differing: Vec<usize> = blocks.enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
        if !differing.is_empty() {
            wrong.push((dtype, differing));
        }
    }
    wrong
}

/// The block that the reference gets wrong: behind a sub-block of zeros, its encoder of IQ3_S writes
/// the next ones 32 elements too early. Row 8 of the sample has such sub-blocks.
fn zeros_of_iq3_s() -> (DType, Vec<usize>) {
    (DType::IQ3_S, vec![8])
}

#[test]
fn sub_blocks_behind_zeros_stay_in_place() {
    let mut x = noise();
    x[..64].fill(0.0);
    x[512..544].fill(0.0);
    for dtype in decodable().filter(|dtype| *dtype != DType::Q1_0) {
        let y = decode(dtype, &encode(dtype, &x));
        let same_sign = x.iter().zip(&y).filter(|(x, y)| x.abs() > 0.6 && **x * **y > 0.0).count();
        assert!(same_sign as f32 > 0.97 * x.iter().filter(|x| x.abs() > 0.6).count() as f32, "{dtype}");
    }
}

#[test]
fn encoding_is_bit_equal_to_the_reference() {
    let x = floats(SAMPLE);
    let wrong = differing(ENCODED, |dtype, bytes| dtype.encode(&x, bytes));
    assert_eq!(wrong, [zeros_of_iq3_s()], "types and the blocks that differ");
}

#[test]
fn encoding_with_importance_is_bit_equal_to_the_reference() {
    let (x, importance) = (floats(SAMPLE), floats(IMPORTANCE));
    let wrong = differing(IMPORTANT, |dtype, bytes| dtype.encode_important(&x, &importance, bytes));
    assert_eq!(wrong, [zeros_of_iq3_s()], "types and the blocks that differ");
    // The others pay no heed to it.
    let others = ENCODED.iter().filter(|(a, _)| IMPORTANT.iter().all(|(b, _)| a != b)).copied();
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 9);
    let wrong = differing(&others, |dtype, bytes| dtype.encode_important(&x, &importance, bytes));
    assert_eq!(wrong, [], "types and the blocks that differ");
}

#[test]
fn types_of_few_bits_ask_for_importance() {
    let mut needy = Vec::new();
    for dtype in decodable() {
        let mut bytes = vec![0; dtype.row_bytes(256).unwrap()];
        match dtype.encode(&[1.0; 256], &mut bytes) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, Error::NeedsImportance { dtype: dtype.name() });
                needy.push(dtype);
            }
        }
    }
    assert_eq!(needy, [DType::IQ2_XXS, DType::IQ2_XS, DType::IQ1_S]);
}

#[test]
fn importance_that_fits_no_row_is_refused() {
    let mut bytes = vec![0; DType::Q4_K.row_bytes(512).unwrap()];
    let x = [1.0; 512];
    for (n, block) in [(0, 0), (300, 300), (1024, 1024)] {
        let error = DType::Q4_K.encode_important(&x, &vec![1.0; n], &mut bytes);
        assert_eq!(error, Err(Error::Ragged { what: "elements with importance", found: 512, block }));
    }
    let error = DType::Q4_K.encode_important(&x, &[1.0; 128], &mut bytes);
    assert_eq!(error, Err(Error::Ragged { what: "elements", found: 128, block: 256 }));
    let error = DType::Q4_K.encode_important(&x, &[1.0; 256], &mut bytes[1..]);
    assert_eq!(error, Err(Error::Length { what: "bytes of blocks", found: 287, wanted: 288 }));
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert_eq!(DType::Q4_K.encode_important(&[], &[], &mut []), Ok(()));
}

/// 1,024 numbers from -1 to 1, fixed.
fn noise() -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..1024).map(|_| next()).collect()
}

#[test]
fn round_trips_stay_within_the_error_of_the_format() {
    let bounds = [
        (DType::F32, 0.0),
        (DType::F16, 0.000_3),
        (DType::BF16, 0.002),
        (DType::Q8_0, 0.003),
        (DType::Q6_K, 0.02),
        (DType::Q5_1, 0.02),
        (DType::Q5_K, 0.025),
        (DType::Q5_0, 0.025),
        (DType::Q4_1, 0.045),
        (DType::Q4_K, 0.05),
        (DType::Q4_0, 0.05),
        (DType::IQ4_NL, 0.06),
        (DType::IQ4_XS, 0.06),
        (DType::MXFP4, 0.09),
        (DType::Q3_K, 0.10),
        (DType::Q2_K, 0.20),
        (DType::TQ2_0, 0.30),
        (DType::TQ1_0, 0.30),
        (DType::NVFP4, 0.09),
        (DType::Q2_0, 0.30),
        (DType::Q1_0, 0.30),
        (DType::IQ3_S, 0.10),
        (DType::IQ3_XXS, 0.12),
        (DType::IQ2_S, 0.20),
        (DType::IQ2_XS, 0.20),
        (DType::IQ2_XXS, 0.25),
        (DType::IQ1_M, 0.30),
        (DType::IQ1_S, 0.30),
    ];
    assert_eq!(bounds.len(), decodable().count());
    let x = noise();
    let mut wrong = Vec::new();
    for (dtype, bound) in bounds {
        let y = decode(dtype, &encode(dtype, &x));
        let squares: f32 = x.iter().zip(&y).map(|(x, y)| (x - y) * (x - y)).sum();
        let rms = (squares / x.len() as f32).sqrt();
        if rms > bound || rms < bound / 4.0 {
            wrong.push((dtype, rms, bound));
        }
    }
    assert_eq!(wrong, [], "types, error and bound");
}

#[test]
fn zeros_stay_zeros() {
    for dtype in decodable() {
        let y = decode(dtype, &encode(dtype, &[0.0; 256]));
        assert!(y.iter().all(|&y| y == 0.0), "{dtype}");
    }
}

#[test]
fn lengths_that_do_not_fit_are_refused_and_nothing_is_written() {
    for dtype in decodable() {
        let (n, size) = (dtype.block_len() * 2, dtype.block_bytes() * 2);
        let (x, bytes) = (vec![1.0_f32; n], vec![0x5a_u8; size]);
        for n_bytes in [0, 1, size - 1, size + 1] {
            let wanted = Err(Error::Length { what: "bytes of blocks", found: n_bytes, wanted: size });
            let (mut y, mut out) = (x.clone(), vec![0x5a; n_bytes]);
            assert_eq!(dtype.decode(&vec![0; n_bytes], &mut y), wanted, "{dtype}");
            let encode = |x: &[f32], out: &mut [u8]| {
                if dtype.needs_importance() {
                    dtype.encode_important(x, &x[..x.len().min(n / 2)], out)
                } else {
                    dtype.encode(x, out)
                }
            };
            assert_eq!(encode(&x, &mut out), wanted, "{dtype}");
            assert!(y == x && out.iter().all(|&b| b == 0x5a), "{dtype}");
        }
        if n > 2 {
            let wanted = Err(Error::Ragged { what: "elements", found: n - 1, block: n / 2 });
            assert_eq!(dtype.decode(&bytes, &mut vec![0.0; n - 1]), wanted, "{dtype}");
            if !dtype.needs_importance() {
                assert_eq!(dtype.encode(&x[..n - 1], &mut bytes.clone()), wanted, "{dtype}");
            }
        }
    }
}

#[test]
fn rows_of_no_elements_take_no_bytes() {
    for dtype in decodable() {
        assert_eq!(dtype.decode(&[], &mut []), Ok(()), "{dtype}");
        assert_eq!(dtype.encode_important(&[], &[], &mut []), Ok(()), "{dtype}");
    }
}

#[test]
fn numbers_that_are_none_and_extremes_do_not_panic() {
    let extremes = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        0.0,
        -0.0,
        1e-15,
        65504.0,
        1e30,
    ];
    let noise = noise();
    for dtype in decodable() {
        for a in extremes {
            for b in extremes {
                let mixed = |i: usize| match i % 5 {
                    0 => a,
                    3 => b,
                    _ => noise[i],
                };
                let only_two = |i: usize| if i.is_multiple_of(3) { a } else { b };
                decode(dtype, &encode(dtype, &core::array::from_fn::<f32, 256, _>(mixed)));
                decode(dtype, &encode(dtype, &core::array::from_fn::<f32, 256, _>(only_two)));
            }
        }
    }
}

#[test]
fn any_bytes_decode() {
    for dtype in decodable() {
        for fill in [0x00, 0x7f, 0x80, 0xff] {
            decode(dtype, &vec![fill; 4 * dtype.block_bytes()]);
        }
    }
}

#[test]
fn blocks_are_read_at_any_alignment() {
    let mut wrong = String::new();
    for golden in GOLDENS {
        let mut shifted = vec![0];
        shifted.extend_from_slice(golden.blocks);
        if decode(golden.dtype, &shifted[1..]) != decode(golden.dtype, golden.blocks) {
            wrong += golden.dtype.name();
        }
    }
    assert_eq!(wrong, "");
}
