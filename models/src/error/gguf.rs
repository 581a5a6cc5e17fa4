//! Places and shapes in GGUF files, as errors name them.

use alloc::boxed::Box;

/// The part of a GGUF file that the reader was in when it met an error.
///
/// # Example
/// ```
/// use backstitch_models::error::{Error, Region};
/// use backstitch_models::gguf::Gguf;
///
/// let error = Gguf::parse(b"GGUF\x03\0\0\0").unwrap_err();
/// assert!(matches!(error, Error::Truncated { region: Region::Tensor, offset: 8, .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Region {
    /// The magic and the version.
    Header,
    /// The key of a metadata entry, or the number of entries.
    Key,
    /// The value of a metadata entry.
    Value,
    /// The description of a tensor, or the number of tensors.
    Tensor,
    /// The data of a tensor.
    Data,
}

/// The two shapes of [`Error::Shape`](super::Error::Shape), outermost dimension first.
///
/// # Example
/// ```
/// use backstitch_models::Error;
/// use backstitch_models::backstitch_core::DType;
/// use backstitch_models::gguf::{Gguf, Writer};
///
/// let mut writer = Writer::new();
/// writer.tensor("output.weight", &[2, 3], DType::F32, &[0; 24])?;
/// let file = writer.to_bytes();
/// let tensor = Gguf::parse(&file)?.tensor("output.weight").unwrap();
/// let Err(Error::Shape { shapes, .. }) = tensor.expect_shape(&[3, 2]) else { panic!() };
/// assert_eq!((&*shapes.found, &*shapes.wanted), (&[2, 3][..], &[3, 2][..]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shapes {
    /// The shape in the file.
    pub found: Box<[usize]>,
    /// The shape that the model needs.
    pub wanted: Box<[usize]>,
}
