//! Importance matrices: how much the columns of each matrix of a model matter.
//!
//! While a model reads text, the squares of everything that a matrix is multiplied by are added up.
//! A column that meets large numbers turns small errors of its weights into large ones of the
//! output, so quantisers weight errors by the mean of these squares. The files are llama.cpp's: a
//! GGUF file with two tensors for each matrix today, an unlabelled stream of numbers before.

mod collect;

pub use collect::collect;

use crate::Error;
use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, Writer};
use std::collections::BTreeMap;

/// The sums of squares of an importance matrix, by tensor.
///
/// ```
/// use backstitch_quantize::Imatrix;
///
/// let mut imatrix = Imatrix::new("text.txt", 512);
/// imatrix.add("blk.0.attn_q.weight", 0, 1, &[1.0, 2.0, 3.0, 4.0], 2)?;
/// let again = Imatrix::read(&imatrix.to_bytes()?)?;
/// assert_eq!(again.importance("blk.0.attn_q.weight"), Some(vec![5.0, 10.0]));
/// # Ok::<(), backstitch_quantize::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Imatrix {
    entries: BTreeMap<String, Entry>,
    datasets: Vec<String>,
    /// Chunks of text that it was made of, if the file says so.
    n_chunks: Option<u32>,
    /// Tokens of a chunk; 0 in files of the old form.
    chunk_size: u32,
}

/// The data of one tensor: for each of its matrices (experts) a count, and a sum for each
/// column.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    sums: Vec<f32>,
    counts: Vec<f32>,
    /// True if the sums are means times the count, as in files of the old form.
    is_scaled: bool,
}

/// Most bytes of the name of a tensor in files of the old form.
const MAX_NAME: usize = 4096;

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Imatrix {
    /// Return an importance matrix without data, for text from the file `dataset` in chunks of
    /// `chunk_size` tokens.
    pub fn new(dataset: impl Into<String>, chunk_size: u32) -> Self {
        Self { entries: BTreeMap::new(), datasets: vec![dataset.into()], n_chunks: Some(0), chunk_size }
    }

    /// Return the number of tensors that it has data for.
    pub fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// Return the names of the files that it was made of.
    pub fn datasets(&self) -> &[String] {
        &self.datasets
    }

    /// Return the number of chunks that it was made of; none if the file does not say so.
    pub fn n_chunks(&self) -> Option<u32> {
        self.n_chunks
    }

    /// State the number of chunks that it was made of.
    pub fn set_n_chunks(&mut self, n_chunks: u32) {
        self.n_chunks = Some(n_chunks);
    }

    /// Return the importance of each column of a tensor, of one matrix after the other: means of
    /// squares, 1 for a matrix that no token met. None if there is no data for the tensor.
    pub fn importance(&self, tensor: &str) -> Option<Vec<f32>> {
        let entry = self.entries.get(tensor)?;
        let n_cols = (entry.sums.len() / entry.counts.len().max(1)).max(1);
        let mut importance = entry.sums.clone();
        for (sums, &count) in importance.chunks_mut(n_cols).zip(&entry.counts) {
            if count > 0.0 {
                sums.iter_mut().for_each(|sum| *sum /= count);
            } else if !entry.is_scaled {
                sums.fill(1.0);
            }
        }
        Some(importance)
    }

    /// Add the squares of rows of `n_cols` inputs of matrix `matrix` of `n_matrices` of a tensor.
    ///
    /// # Errors
    /// [`Error::Imatrix`] if the rows are not whole, or if the tensor had another shape before.
    pub fn add(
        &mut self,
        tensor: &str,
        matrix: usize,
        n_matrices: usize,
        inputs: &[f32],
        n_cols: usize,
    ) -> Result<(), Error> {
        let refused = |problem: &str| Error::Imatrix { what: tensor.into(), problem: problem.into() };
        if n_cols == 0 || !inputs.len().is_multiple_of(n_cols) || matrix >= n_matrices {
            return Err(refused("the inputs are no whole rows of one of its matrices"));
        }
        let entry = self.entries.entry(tensor.into()).or_insert_with(|| Entry {
            sums: vec![0.0; n_cols * n_matrices],
            counts: vec![0.0; n_matrices],
            is_scaled: false,
        });
        if entry.sums.len() != n_cols * n_matrices || entry.counts.len() != n_matrices {
            return Err(refused("the tensor had another shape before"));
        }
        let sums = &mut entry.sums[matrix * n_cols..][..n_cols];
        for row in inputs.chunks(n_cols) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += x * x;
            }
        }
        entry.counts[matrix] += (inputs.len() / n_cols) as f32;
        Ok(())
    }

    /// Return true if all sums of matrix `matrix` of a tensor are finite.
    fn is_finite(&self, tensor: &str, matrix: usize) -> bool {
        let sums = self.entries.get(tensor).map(|entry| {
            let n_cols = entry.sums.len().checked_div(entry.counts.len()).unwrap_or(0);
            entry.sums.iter().skip(matrix * n_cols).take(n_cols)
        });
        sums.into_iter().flatten().all(|sum| sum.is_finite())
    }

    /// Read a file of either form.
    ///
    /// # Errors
    /// [`Error::Model`] if the file is damaged GGUF, [`Error::Imatrix`] if it is something else.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.starts_with(b"GGUF") { Self::read_gguf(&Gguf::parse(bytes)?) } else { read_old(bytes) }
    }

    fn read_gguf(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let mut entries = BTreeMap::new();
        for tensor in gguf.tensors() {
            // Newer files have sums of the inputs themselves, too.
            let Some(name) = tensor.name().strip_suffix(SUMS) else { continue };
            let counts = gguf.tensor(&format!("{name}{COUNTS}"));
            let counts = counts.ok_or_else(|| problem(name, "there are sums without counts"))?;
            let sums = floats(tensor.dtype(), gguf.tensor_data(tensor), name)?;
            let counts = floats(counts.dtype(), gguf.tensor_data(&counts), name)?;
            if counts.is_empty() || !sums.len().is_multiple_of(counts.len()) {
                return Err(problem(
                    name,
                    "the sums do not divide into as many matrices as there are counts",
                ));
            }
            check(&sums, name)?;
            check(&counts, name)?;
            let counts = counts.into_iter().map(f32::round).collect();
            entries.insert(name.to_owned(), Entry { sums, counts, is_scaled: false });
        }
        let n_counts = gguf.tensors().iter().filter(|tensor| tensor.name().ends_with(COUNTS)).count();
        if entries.is_empty() || n_counts != entries.len() {
            return Err(problem("tensors", "each matrix needs sums and counts"));
        }
        let datasets: &[&str] = gguf.optional("imatrix.datasets")?.unwrap_or_default();
        Ok(Self {
            entries,
            datasets: datasets.iter().map(|&text| text.into()).collect(),
            n_chunks: gguf.optional("imatrix.chunk_count")?,
            chunk_size: gguf.optional("imatrix.chunk_size")?.unwrap_or(0),
        })
    }

    /// Return the content of a file of today's form.
    ///
    /// # Errors
    /// [`Error::Model`] if a tensor has a name that no file can hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut writer = Writer::new();
        writer.set("general.type", "imatrix")?;
        let datasets: Vec<&str> = self.datasets.iter().map(String::as_str).collect();
        writer.set("imatrix.datasets", datasets)?;
        writer.set("imatrix.chunk_count", self.n_chunks.unwrap_or(0))?;
        writer.set("imatrix.chunk_size", self.chunk_size)?;
        let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        let data: Vec<_> =
            self.entries.values().map(|entry| (bytes(&entry.sums), bytes(&entry.counts))).collect();
        for ((name, entry), (sums, counts)) in self.entries.iter().zip(&data) {
            let n_matrices = entry.counts.len();
            let n_cols = entry.sums.len() / n_matrices.max(1);
            let (sums_shape, counts_shape) = ([n_matrices, n_cols], [n_matrices, 1]);
            let skipped = usize::from(n_matrices == 1);
            writer.tensor(format!("{name}{SUMS}"), &sums_shape[skipped..], DType::F32, sums)?;
            writer.tensor(format!("{name}{COUNTS}"), &counts_shape[skipped..], DType::F32, counts)?;
        }
        Ok(writer.to_bytes())
    }
}

fn problem(what: &str, problem: &str) -> Error {
    Error::Imatrix { what: what.into(), problem: problem.into() }
}

fn floats(dtype: DType, bytes: &[u8], name: &str) -> Result<Vec<f32>, Error> {
    if dtype != DType::F32 {
        return Err(problem(name, "the numbers are not of type F32"));
    }
    Ok(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect())
}

/// Check that all numbers can be sums of squares.
fn check(numbers: &[f32], name: &str) -> Result<(), Error> {
    match numbers.iter().position(|x| !x.is_finite() || *x < 0.0) {
        None => Ok(()),
        Some(at) => {
            let found = numbers.get(at).copied().unwrap_or_default();
            let text = format!("number {at} is {found}, wanted a sum of squares: finite, and at least 0");
            Err(problem(name, &text))
        }
    }
}

/// Reads the old form from its beginning to its end.
struct Old<'a>(&'a [u8]);

impl<'a> Old<'a> {
    fn bytes(&mut self, n: usize, what: &str) -> Result<&'a [u8], Error> {
        let (bytes, rest) =
            self.0.split_at_checked(n).ok_or_else(|| problem(what, "the file ends too soon"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Read a number from 0 to `limit`.
    fn number(&mut self, what: &str, limit: usize) -> Result<usize, Error> {
        let bytes = self.bytes(4, what)?.try_into().unwrap_or([0; 4]);
        let number = usize::try_from(i32::from_le_bytes(bytes)).ok().filter(|number| *number <= limit);
        number.ok_or_else(|| problem(what, "a length or a number is out of range; this is no such file"))
    }
}

/// Read a file of the form before GGUF: for each tensor its name, a count, and means times it.
fn read_old(bytes: &[u8]) -> Result<Imatrix, Error> {
    let mut file = Old(bytes);
    let n_entries = file.number("the number of tensors", bytes.len() / 12)?;
    if n_entries == 0 {
        return Err(problem("the number of tensors", "there is none"));
    }
    let mut entries = BTreeMap::new();
    for i in 0..n_entries {
        let what = format!("entry {i}");
        let len = file.number(&what, MAX_NAME)?;
        let name = std::str::from_utf8(file.bytes(len, &what)?);
        let name = name.map_err(|_| problem(&what, "the name is no UTF-8"))?.to_owned();
        let count = file.number(&name, i32::MAX as usize)?;
        let n_values = file.number(&name, file.0.len() / 4)?;
        if n_values == 0 {
            return Err(problem(&name, "there are no numbers"));
        }
        let sums = floats(DType::F32, file.bytes(n_values * 4, &name)?, &name)?;
        check(&sums, &name)?;
        entries.insert(name, Entry { sums, counts: vec![count as f32], is_scaled: true });
    }
    let (mut n_chunks, mut datasets) = (None, Vec::new());
    if !file.0.is_empty() {
        n_chunks = Some(file.number("the number of chunks", i32::MAX as usize)? as u32);
        if !file.0.is_empty() {
            let len = file.number("the dataset", MAX_NAME)?;
            let name = String::from_utf8_lossy(file.bytes(len, "the dataset")?).into_owned();
            datasets.extend(Some(name).filter(|name| !name.is_empty()));
        }
    }
    Ok(Imatrix { entries, datasets, n_chunks, chunk_size: 0 })
}

#[cfg(test)]
mod tests;
