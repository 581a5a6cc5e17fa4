//! `backstitch quantize`: make a smaller model of one in floats.
//!
//! Tensors are read, encoded and written one after the other, so the memory needs to hold neither
//! model.
//!
//! The crate `backstitch-quantize` chooses the types and computes. This command reads the files,
//! shows progress, and puts the new file in its place when it is complete: who interrupts it, or
//! names a type that some tensor cannot have, keeps the file that was there.

use crate::args::QuantizeArgs;
use crate::error::Error;
use crate::model;
use crate::output::{Output, bytes, counted, note, one_line};
use crate::progress::Progress;
use crate::target::{Kind, Target};
use crate::whole_file;
use backstitch_core::pool::ThreadPool;
use backstitch_models::Error as ModelError;
use backstitch_models::gguf::Access;
use backstitch_quantize::{Error as QuantizeError, Imatrix, Quantizer};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the model cannot be read or is damaged.
/// - [`Error::Read`] if the importance matrix cannot be read.
/// - [`Error::Refused`] if OUT is a file of another kind, if the importance matrix is damaged, of
///   another model or longer than 4 GiB, or if a tensor cannot get its type.
/// - [`Error::Write`] if the new file cannot be written.
pub fn run(args: &QuantizeArgs) -> Result<(), Error> {
    let source = model::source(&args.input, Access::Map)?;
    let imatrix = args.imatrix.as_deref().map(|path| read(path).map(|imatrix| (imatrix, path)));
    let imatrix = imatrix.transpose()?.map(|(imatrix, path)| (imatrix, path.display().to_string()));
    let gguf = source.gguf().map_err(|error| Error::of_model(&args.input, error))?;
    let options = args.options();
    let planned = match &imatrix {
        Some((imatrix, name)) => Quantizer::with_imatrix(&gguf, &options, imatrix, name),
        None => Quantizer::new(&gguf, &options),
    };
    let quantizer = planned.map_err(|error| of_quantizer(&args.input, error))?;
    if args.dry_run {
        return list(&quantizer, args.json);
    }
    // The new file must not replace any part of the model, which is mapped while it is written.
    let parts: Vec<_> = source.paths().map(Some).chain([args.imatrix.as_deref()]).collect();
    let target = Target::check(&args.output, "OUT", Kind::Model, &parts)?;
    let pool = ThreadPool::new(model::n_threads(args.n_threads) as usize).map_err(ModelError::from)?;
    let n_bytes = write(&quantizer, &target, &pool, &args.input)?;
    let mut out = Output::new(args.json);
    let (n_tensors, n_quantized) = (quantizer.tensors().len(), n_quantized(&quantizer));
    if out.is_json() {
        let (output, ty) = (args.output.display().to_string(), args.file_type.name());
        out.value(&json!({
            "output": output, "type": ty, "bytes": n_bytes, "tensors": n_tensors, "quantized": n_quantized,
        }))?;
    } else {
        let (name, tensors, size) =
            (one_line(&args.output.display().to_string()), counted(n_tensors, "tensor"), bytes(n_bytes));
        out.text(
            format_args!("{name}: {n_quantized} of {tensors} quantised to {}, {size}", args.file_type),
            6,
        )?;
    }
    Ok(out.flush()?)
}

/// Return the number of tensors that get another type. The others (norms, tensors of one dimension,
/// matrices whose rows are too short) are copied as they are.
fn n_quantized(quantizer: &Quantizer<'_, '_>) -> usize {
    quantizer.tensors().iter().filter(|planned| !planned.is_copied()).count()
}

/// Read an importance matrix. The largest models have some of half a gigabyte.
fn read(path: &Path) -> Result<Imatrix, Error> {
    Imatrix::read(&whole_file::content(path, 4 << 30)?).map_err(|error| of_quantizer(path, error))
}

/// Write the new model, and show a progress line. Returns the size of the file.
fn write(
    quantizer: &Quantizer<'_, '_>,
    target: &Target<'_>,
    pool: &ThreadPool,
    input: &Path,
) -> Result<u64, Error> {
    let progress = Progress::bytes("quantising");
    let size = |n_bytes: usize| n_bytes as u64;
    let total = quantizer.tensors().iter().map(|planned| size(planned.tensor.n_bytes())).sum();
    let mut done = 0;
    // An error that is not the file's must not be told as one of writing.
    let mut refused = None;
    let written = target.write(|file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let quantized = quantizer.write(pool, &mut file, &mut |planned| {
            done += size(planned.tensor.n_bytes());
            progress.set(done, total);
        });
        match quantized {
            Ok(()) => flush(file),
            Err(QuantizeError::Io(error)) => Err(error),
            Err(error) => {
                refused = Some(error);
                Err(io::ErrorKind::InvalidData.into())
            }
        }
    });
    match refused {
        Some(error) => Err(of_quantizer(input, error)),
        None => written,
    }
}

/// Write what is buffered. Returns the size of the file.
fn flush(file: BufWriter<File>) -> io::Result<u64> {
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}

/// List the type of each tensor and the size of them all.
fn list(quantizer: &Quantizer<'_, '_>, json: bool) -> Result<(), Error> {
    let mut out = Output::new(json);
    let n_bytes = quantizer.tensors().iter().map(|planned| planned.n_bytes()).sum();
    if out.is_json() {
        let tensors = quantizer.tensors().iter().map(|planned| {
            let (name, from) = (planned.tensor.name(), planned.tensor.dtype().name());
            json!({ "name": name, "from": from, "to": planned.dtype.name(), "bytes": planned.n_bytes() })
        });
        out.value(&json!({ "bytes": n_bytes, "tensors": tensors.collect::<Vec<_>>() }))?;
    } else {
        let rows = quantizer.tensors().iter().map(|planned| {
            let tensor = planned.tensor;
            let (from, to) = (tensor.dtype().name(), planned.dtype.name());
            vec![one_line(tensor.name()), from.into(), to.into(), bytes(planned.n_bytes())]
        });
        out.table(&rows.collect::<Vec<_>>())?;
        let (n, tensors) = (n_quantized(quantizer), counted(quantizer.tensors().len(), "tensor"));
        out.text(format_args!("{n} of {tensors} would be quantised, {}", bytes(n_bytes)), 6)?;
    }
    out.flush()?;
    if let Some((tensor, dtype)) = quantizer.lacks_importance() {
        let tensor = tensor.into();
        note("warning", QuantizeError::NeedsImatrix { tensor, dtype });
    }
    Ok(())
}

/// Return the error of the program for one about the file `path`.
fn of_quantizer(path: &Path, error: QuantizeError) -> Error {
    match error {
        QuantizeError::Model(error @ ModelError::File { .. }) => Error::Engine(error),
        QuantizeError::Model(error) => {
            Error::Engine(ModelError::File { path: path.into(), source: Box::new(error) })
        }
        error => Error::Refused(format!("{}: {error}", path.display())),
    }
}
