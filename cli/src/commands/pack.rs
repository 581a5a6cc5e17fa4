//! `backstitch pack`: a model whose weights are in panels already.

use crate::args::PackArgs;
use crate::error::Error;
use crate::model;
use crate::output::{Output, bytes, counted};
use crate::progress::Progress;
use backstitch_core::pool::ThreadPool;
use backstitch_models::gguf::{Access, Source, Writer};
use backstitch_models::{Error as ModelError, PackedModel};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Runs the command.
///
/// # Errors
/// If the file cannot be read, is damaged or not known; if it is the new file itself; or the new one cannot be written.
pub fn run(args: &PackArgs) -> Result<(), Error> {
    let source = Source::open(&args.input, Access::Map)?;
    refuse_itself(&source, &args.output)?;
    let gguf = source.gguf()?;
    let pool = ThreadPool::new(model::n_threads(args.n_threads) as usize).map_err(ModelError::from)?;
    let progress = Progress::new("packing");
    // Packing reads everything once, writing writes it.
    let total = 2 * gguf.tensors().iter().map(|tensor| tensor.n_bytes() as u64).sum::<u64>();
    let mut done = 0;
    let packed = PackedModel::new(&gguf, &pool, |tensor| {
        done += tensor.n_bytes() as u64;
        progress.set(done, total);
    })?;
    let writer = packed.writer()?;
    let target = |source| Error::Write { path: args.output.clone(), source };
    let written = replace(&args.output, &writer, |n| progress.set((done + n).min(total), total));
    let n_bytes = written.map_err(target)?;
    drop(progress);
    let mut out = Output::new(args.json);
    let (n_packed, n_tensors) = (packed.n_packed(), gguf.tensors().len());
    if out.is_json() {
        let output = args.output.display().to_string();
        out.value(&json!({ "output": output, "bytes": n_bytes, "tensors": n_tensors, "packed": n_packed }))?;
    } else {
        let (tensors, size) = (counted(n_tensors, "tensor"), bytes(n_bytes));
        out.line(format_args!("{}: {n_packed} of {tensors} packed, {size}", args.output.display()))?;
    }
    Ok(out.flush()?)
}

/// Refuses to replace a file that is being read.
fn refuse_itself(source: &Source, output: &Path) -> Result<(), Error> {
    let Ok(output) = fs::canonicalize(output) else { return Ok(()) };
    if source.paths().any(|path| fs::canonicalize(path).is_ok_and(|path| path == output)) {
        let text = format!("{} is the model itself; name another file for the packed one", output.display());
        return Err(Error::Refused(text));
    }
    Ok(())
}

/// Writes a new file beside `path` and gives it the name once it is whole; tells its bytes.
fn replace(path: &Path, writer: &Writer<'_>, mut progress: impl FnMut(u64)) -> io::Result<u64> {
    let temp = beside(path)?;
    let written = write(&temp, writer, &mut progress).and_then(|n| fs::rename(&temp, path).map(|()| n));
    if written.is_err() {
        // Why it failed says more than whether the remains could be removed.
        let _ = fs::remove_file(&temp);
    }
    written
}

fn write(temp: &Path, writer: &Writer<'_>, progress: &mut dyn FnMut(u64)) -> io::Result<u64> {
    let file = BufWriter::with_capacity(1 << 20, File::create(temp)?);
    let mut out = Counted { file, n: 0, progress };
    writer.write_to(&mut out)?;
    let n = out.n;
    out.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(n)
}

/// `.NAME.PID.tmp` in the folder of `path`.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temp = std::ffi::OsString::from(".");
    temp.push(name);
    temp.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(temp))
}

/// A file that tells how far it is.
struct Counted<'a> {
    file: BufWriter<File>,
    n: u64,
    progress: &'a mut dyn FnMut(u64),
}

/// Bytes that are written before the bar moves.
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
