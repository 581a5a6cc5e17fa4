//! `backstitch pack`: repack a model once, so that loading it repacks nothing.
//!
//! The format of the new file is described in `docs/packed-format.md`.

use crate::args::PackArgs;
use crate::error::Error;
use crate::model;
use crate::output::{Output, bytes, counted};
use crate::progress::Progress;
use crate::target::{Kind, Target};
use backstitch_core::pool::ThreadPool;
use backstitch_models::gguf::{Access, Writer};
use backstitch_models::{Error as ModelError, PackedModel};
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// Run the command.
///
/// # Errors
/// - [`Error::Engine`] if the model cannot be read, is damaged, or has an unknown architecture.
/// - [`Error::Refused`] if OUT is a part of the model, or a file of another kind.
/// - [`Error::Write`] if the new file cannot be written.
pub fn run(args: &PackArgs) -> Result<(), Error> {
    let source = model::source(&args.input, Access::Map)?;
    // The new file must not replace any part of the model, which is mapped while it is written.
    let parts: Vec<_> = source.paths().map(Some).collect();
    let target = Target::check(&args.output, "OUT", Kind::PackedModel, &parts)?;
    let gguf = source.gguf().map_err(|error| Error::of_model(&args.input, error))?;
    let pool = ThreadPool::new(model::n_threads(args.n_threads) as usize).map_err(ModelError::from)?;
    let progress = Progress::bytes("packing");
    // Packing passes over all tensors, and so does writing.
    let total = 2 * gguf.tensors().iter().map(|tensor| tensor.n_bytes() as u64).sum::<u64>();
    let mut done = 0;
    let packed = PackedModel::new(&gguf, &pool, None, |tensor| {
        done += tensor.n_bytes() as u64;
        progress.set(done, total);
    })?;
    let writer = packed.writer()?;
    let n_bytes =
        target.write(|file| write(file, &writer, &mut |n| progress.set((done + n).min(total), total)))?;
    drop(progress);
    let mut out = Output::new(args.json);
    let (n_packed, n_tensors) = (packed.n_packed(), gguf.tensors().len());
    if out.is_json() {
        let output = args.output.display().to_string();
        out.value(&json!({ "output": output, "bytes": n_bytes, "tensors": n_tensors, "packed": n_packed }))?;
    } else {
        let (tensors, size) = (counted(n_tensors, "tensor"), bytes(n_bytes));
        out.text(format_args!("{}: {n_packed} of {tensors} packed, {size}", args.output.display()), 6)?;
    }
    Ok(out.flush()?)
}

/// Write the packed model. Returns the size of the file.
fn write(file: File, writer: &Writer<'_>, progress: &mut dyn FnMut(u64)) -> io::Result<u64> {
    let file = BufWriter::with_capacity(1 << 20, file);
    let mut out = Counted { file, n: 0, progress };
    writer.write_to(&mut out)?;
    let n = out.n;
    out.file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(n)
}

/// A file that reports how many bytes were written.
struct Counted<'a> {
    file: BufWriter<File>,
    /// Bytes written so far.
    n: u64,
    /// Called with `n` after each write.
    progress: &'a mut dyn FnMut(u64),
}

/// Most bytes that are written between two reports.
const STEP: usize = 8 << 20;

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes.get(..STEP).unwrap_or(bytes))?;
        self.n += n as u64;
        (self.progress)(self.n);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
