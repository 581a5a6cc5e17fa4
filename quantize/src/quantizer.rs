//! The quantisation of a whole model: a plan, and the writing of the new file.

use crate::mix::{self, Mix, in_order};
use crate::{Error, Imatrix, Options};
use backstitch_core::pool::{Parts, Pool, n_jobs};
use backstitch_core::{DType, PackedType};
use backstitch_models::gguf::{Gguf, TensorInfo, Value, Writer};
use std::io::Write;

/// The version of llama.cpp's block formats, as `general.quantization_version` states it.
const QUANTIZATION_VERSION: u32 = 2;

/// Fewer elements than this are encoded faster by one thread than handed to a second.
const LEAST: usize = 8192;

/// Rows of a tensor are encoded and written in steps of about so many bytes of the original.
const STEP: usize = 16 << 20;

/// A tensor with the type that it gets.
#[derive(Clone, Debug)]
pub struct PlannedTensor<'g, 'a> {
    /// The tensor.
    pub tensor: &'g TensorInfo<'a>,
    /// The type that it gets.
    pub dtype: DType,
    /// The importance of its columns, of each matrix of a tensor of experts.
    importance: Option<Vec<f32>>,
}

impl PlannedTensor<'_, '_> {
    /// Return the bytes that it will take.
    pub fn n_bytes(&self) -> u64 {
        let (n_rows, n_cols) = rows_and_cols(self.tensor);
        self.dtype.row_bytes(n_cols).unwrap_or(0) as u64 * n_rows as u64
    }

    /// Return true if the tensor is copied as it is.
    pub fn is_copied(&self) -> bool {
        self.dtype == self.tensor.dtype()
    }
}

/// Return the number of rows of all matrices of a tensor, and their length.
fn rows_and_cols(tensor: &TensorInfo<'_>) -> (usize, usize) {
    let n_cols = tensor.shape().last().copied().unwrap_or(0);
    (tensor.n_elements().checked_div(n_cols).unwrap_or(0), n_cols)
}

/// A model with the type that each tensor gets, ready to be quantised.
#[derive(Debug)]
pub struct Quantizer<'g, 'a> {
    gguf: &'g Gguf<'a>,
    options: &'g Options,
    tensors: Vec<PlannedTensor<'g, 'a>>,
    /// Keys that the new file has beside those of the model.
    extra: Vec<(&'static str, Value<'g>)>,
}

impl<'g, 'a> Quantizer<'g, 'a> {
    /// Plan the quantisation of a model without an importance matrix.
    ///
    /// # Errors
    /// Those of [`Quantizer::with_imatrix`].
    pub fn new(gguf: &'g Gguf<'a>, options: &'g Options) -> Result<Self, Error> {
        Self::planned(gguf, options, None)
    }

    /// Plan the quantisation of a model with the importance matrix that was read from the file
    /// `name`.
    ///
    /// # Errors
    /// [`Error::Model`] if the model states no architecture; [`Error::AlreadyQuantized`] and
    /// [`Error::NotRows`] if a tensor cannot be quantised; [`Error::ImatrixSize`] and
    /// [`Error::NotFinite`] if the importance matrix does not suit it; [`Error::Layer`] and
    /// [`Error::NoFallback`] as [`Mix::choose`]. Where importance is missing, writing fails, so
    /// that the plan can be shown.
    pub fn with_imatrix(
        gguf: &'g Gguf<'a>,
        options: &'g Options,
        imatrix: &'g Imatrix,
        name: &'g str,
    ) -> Result<Self, Error> {
        let mut plan = Self::planned(gguf, options, Some(imatrix))?;
        plan.extra.push(("quantize.imatrix.file", cut(name).into()));
        if let Some(dataset) = imatrix.datasets().first() {
            plan.extra.push(("quantize.imatrix.dataset", cut(dataset).into()));
        }
        plan.extra.push(("quantize.imatrix.entries_count", (imatrix.n_entries() as u32).into()));
        if let Some(n_chunks) = imatrix.n_chunks().filter(|&n| n > 0) {
            plan.extra.push(("quantize.imatrix.chunks_count", n_chunks.into()));
        }
        Ok(plan)
    }

    fn planned(gguf: &'g Gguf<'a>, options: &'g Options, imatrix: Option<&Imatrix>) -> Result<Self, Error> {
        let mut mix = Mix::new(gguf, options, imatrix.is_some())?;
        let mut tensors = Vec::new();
        for tensor in in_order(gguf) {
            if tensor.is_packed() {
                return Err(Error::NotRows { tensor: tensor.name().into() });
            }
            let dtype = mix.choose(tensor)?;
            let mut planned = PlannedTensor { tensor, dtype, importance: None };
            if !planned.is_copied() {
                check_source(tensor, options)?;
                planned.importance =
                    imatrix.map(|imatrix| importance(imatrix, tensor)).transpose()?.flatten();
            }
            tensors.push(planned);
        }
        Ok(Self { gguf, options, tensors, extra: Vec::new() })
    }

    /// Leave out the keys that name the importance matrix, as the library function
    /// `llama_model_quantize` does; `llama-quantize` writes them.
    #[must_use]
    pub fn without_keys(mut self) -> Self {
        self.extra.clear();
        self
    }

    /// Return the tensors in the order in which they will be written.
    pub fn tensors(&self) -> &[PlannedTensor<'g, 'a>] {
        &self.tensors
    }

    /// Return the first tensor that needs importance and has none, with the type that it would get.
    pub fn lacks_importance(&self) -> Option<(&'a str, DType)> {
        let lacks = |planned: &&PlannedTensor<'g, 'a>| {
            let needs = mix::needs_imatrix(planned.tensor.name(), planned.dtype, self.options.file_type);
            needs && !planned.is_copied() && planned.importance.is_none()
        };
        self.tensors.iter().find(lacks).map(|planned| (planned.tensor.name(), planned.dtype))
    }

    /// Quantise the model and write the new file to `out`; `done` gets each tensor that was
    /// written.
    ///
    /// # Errors
    /// [`Error::NeedsImatrix`] before anything is written; [`Error::NotFinite`] if a tensor holds
    /// infinities or no numbers, or would in its new type; [`Error::Io`] if `out` fails.
    pub fn write(
        &self,
        pool: &dyn Pool,
        out: impl Write,
        done: &mut dyn FnMut(&PlannedTensor<'g, 'a>),
    ) -> Result<(), Error> {
        if let Some((tensor, dtype)) = self.lacks_importance() {
            return Err(Error::NeedsImatrix { tensor: tensor.into(), dtype });
        }
        let writer = self.writer()?;
        writer.write_with(out, |i, _, out| {
            let Some(planned) = self.tensors.get(i) else { return Ok(()) };
            self.write_tensor(planned, pool, out)?;
            done(planned);
            Ok(())
        })
    }

    /// Return the header of the new file.
    fn writer(&self) -> Result<Writer<'_>, Error> {
        let mut writer = Writer::new();
        let own = ["general.quantization_version", "general.file_type"];
        let is_own = |key: &str| own.contains(&key) || self.extra.iter().any(|(extra, _)| *extra == key);
        for entry in self.gguf.metadata() {
            if !is_own(entry.key) && !entry.key.starts_with("split.") {
                writer.set(entry.key, entry.value.clone())?;
            }
        }
        writer.set(own[0], QUANTIZATION_VERSION)?;
        writer.set(own[1], self.options.file_type.number())?;
        for (key, value) in &self.extra {
            writer.set(*key, value.clone())?;
        }
        for planned in &self.tensors {
            writer.planned_tensor(planned.tensor.name(), planned.tensor.shape(), planned.dtype)?;
        }
        Ok(writer)
    }

    fn write_tensor(
        &self,
        planned: &PlannedTensor<'_, 'a>,
        pool: &dyn Pool,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let data = self.gguf.tensor_data(planned.tensor);
        if planned.is_copied() {
            return Ok(out.write_all(data)?);
        }
        let (n_rows, n_cols) = rows_and_cols(planned.tensor);
        let not_rows = || Error::NotRows { tensor: planned.tensor.name().into() };
        let from = planned.tensor.dtype().row_bytes(n_cols).ok_or_else(not_rows)?.max(1);
        let to = planned.dtype.row_bytes(n_cols).ok_or_else(not_rows)?.max(1);
        // Each expert's matrix has its own importance.
        let n_matrices = planned.importance.as_ref().map_or(1, |all| (all.len() / n_cols.max(1)).max(1));
        let rows_of_one = (n_rows / n_matrices).max(1);
        let rows_a_step = (STEP / from).max(1);
        let mut encoded = Vec::new();
        for (i, matrix) in data.chunks(from * rows_of_one).enumerate() {
            let importance = planned.importance.as_ref().and_then(|all| all.chunks(n_cols.max(1)).nth(i));
            for rows in matrix.chunks(from * rows_a_step) {
                encoded.resize(rows.len() / from * to, 0);
                let job = Rows { planned, n_cols, from, to, importance };
                job.encode(rows, &mut encoded, pool)?;
                out.write_all(&encoded)?;
            }
        }
        Ok(())
    }
}

/// Return the first 127 bytes of a text, which is what `llama-quantize` writes of it.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(127)).unwrap_or(text)
}

/// Refuse tensors that have no floats to begin with.
fn check_source(tensor: &TensorInfo<'_>, options: &Options) -> Result<(), Error> {
    let name = || tensor.name().into();
    let Some(packed) = PackedType::of(tensor.dtype()) else { return Err(Error::NotRows { tensor: name() }) };
    if packed.takes_quantized() && !options.allow_requantize {
        return Err(Error::AlreadyQuantized { tensor: name(), dtype: tensor.dtype() });
    }
    Ok(())
}

/// Return the importance of the columns of a tensor; none if there is none for it.
fn importance(imatrix: &Imatrix, tensor: &TensorInfo<'_>) -> Result<Option<Vec<f32>>, Error> {
    let name = tensor.name();
    let Some(importance) = imatrix.importance(name) else { return Ok(None) };
    if importance.iter().any(|x| !x.is_finite()) {
        return Err(Error::NotFinite { tensor: name.into() });
    }
    let n_matrices = match tensor.shape() {
        [.., n, _, _] => *n,
        _ => 1,
    };
    let wanted = rows_and_cols(tensor).1.saturating_mul(n_matrices);
    let found = importance.len();
    match name {
        _ if found == wanted => Ok(Some(importance)),
        // Rows of these are looked up, not multiplied by: an entry is for another use.
        "token_embd.weight" | "per_layer_token_embd.weight" => Ok(None),
        _ => Err(Error::ImatrixSize { tensor: name.into(), found, wanted }),
    }
}

/// Rows of a tensor that are encoded together.
struct Rows<'r> {
    planned: &'r PlannedTensor<'r, 'r>,
    n_cols: usize,
    /// Bytes of a row of the model, and of the new file.
    from: usize,
    to: usize,
    importance: Option<&'r [f32]>,
}

impl Rows<'_> {
    /// Encode rows on all threads of the pool.
    fn encode(&self, rows: &[u8], encoded: &mut [u8], pool: &dyn Pool) -> Result<(), Error> {
        let n_rows = rows.len() / self.from;
        let jobs = n_jobs(pool, n_rows, LEAST.div_ceil(self.n_cols.max(1)));
        let mut results: Vec<Result<(), Error>> = Vec::new();
        results.resize_with(jobs, || Ok(()));
        let (parts, verdicts) = (Parts::new(encoded, self.to, jobs), Parts::new(&mut results, 1, jobs));
        let panicked = |source| self.failed(backstitch_core::Error::from(source));
        pool.run(jobs, &|job| {
            let (Some((start, part)), Some((_, [verdict]))) = (parts.take(job), verdicts.take(job)) else {
                return;
            };
            let first = start / self.to * self.from;
            *verdict = self.encode_part(rows.get(first..).unwrap_or_default(), part);
        })
        .map_err(panicked)?;
        results.into_iter().collect()
    }

    /// Encode as many rows as `encoded` has room for.
    fn encode_part(&self, rows: &[u8], encoded: &mut [u8]) -> Result<(), Error> {
        let mut floats = vec![0.0; self.n_cols];
        for (row, encoded) in rows.chunks_exact(self.from).zip(encoded.chunks_exact_mut(self.to)) {
            self.planned.tensor.dtype().decode(row, &mut floats).map_err(|error| self.failed(error))?;
            self.check_finite(&floats)?;
            let dtype = self.planned.dtype;
            let result = match self.importance {
                Some(importance) => dtype.encode_important(&floats, importance, encoded),
                None => dtype.encode(&floats, encoded),
            };
            result.map_err(|error| self.failed(error))?;
            // Finite weights may be too large for the scales of the type, or for F16.
            dtype.decode(encoded, &mut floats).map_err(|error| self.failed(error))?;
            self.check_finite(&floats)?;
        }
        Ok(())
    }

    fn check_finite(&self, row: &[f32]) -> Result<(), Error> {
        match row.iter().all(|x| x.is_finite()) {
            true => Ok(()),
            false => Err(Error::NotFinite { tensor: self.planned.tensor.name().into() }),
        }
    }

    fn failed(&self, source: backstitch_core::Error) -> Error {
        Error::Tensor { tensor: self.planned.tensor.name().into(), source }
    }
}
