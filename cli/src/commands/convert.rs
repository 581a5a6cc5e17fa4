//! `backstitch convert`: make a GGUF file of a Hugging Face folder, or of a LoRA adapter.
//!
//! The crate `backstitch-convert` reads the folder and computes the tensors. This command chooses
//! the file, shows progress, and puts the file in its place when it is complete.
//!
//! Names, shapes and lengths are checked when the conversion is planned, before the first tensor is
//! read. What is left are weights that are no numbers, and errors of disks.

use crate::args::ConvertFolderArgs;
use crate::error::Error;
use crate::output::{Output, bytes, counted};
use crate::progress::Progress;
use crate::target::{Kind, Target};
use backstitch_convert::{Error as ConvertError, Options, OutType, Plan};
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Run the command.
///
/// # Errors
/// - [`Error::Read`] if the folder or one of its files cannot be read.
/// - [`Error::Refused`] if the folder is no model that can be converted, or OUT is a file of
///   another kind.
/// - [`Error::Write`] if the new file cannot be written.
pub fn run(args: &ConvertFolderArgs) -> Result<(), Error> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => beside(&args.folder)?,
    };
    let target = Target::check(&path, "OUT", Kind::Model, &[])?;
    let mut plan = plan(args)?;
    let n_bytes = write(&target, &mut plan)?;
    let mut out = Output::new(args.json);
    let (architecture, n_tensors) = (plan.architecture(), plan.n_tensors());
    if out.is_json() {
        let output = path.display().to_string();
        out.value(&json!({ "output": output, "bytes": n_bytes, "tensors": n_tensors, "architecture": architecture }))?;
    } else {
        let (tensors, size) = (counted(n_tensors, "tensor"), bytes(n_bytes));
        out.text(format_args!("{}: {architecture}, {tensors}, {size}", path.display()), 6)?;
    }
    Ok(out.flush()?)
}

/// Plan the file of the model or of the adapter.
fn plan(args: &ConvertFolderArgs) -> Result<Plan, Error> {
    let planned = match &args.base {
        Some(base) => {
            let out_type = args.outtype.map_or(OutType::F32, OutType::from);
            Plan::of_adapter(&args.folder, base, out_type)
        }
        None if is_adapter(&args.folder) => {
            let folder = args.folder.display();
            return Err(Error::Refused(format!(
                "{folder} is an adapter; give --lora --base DIR of its model"
            )));
        }
        None => {
            let out_type = args.outtype.map_or(OutType::Auto, OutType::from);
            Plan::of_folder(&args.folder, &Options { out_type, pre_tokenizer: args.pre_tokenizer.clone() })
        }
    };
    planned.map_err(of_folder)
}

/// Return true for the folder of an adapter that holds no model besides.
fn is_adapter(folder: &Path) -> bool {
    folder.join("adapter_config.json").is_file() && !folder.join("config.json").is_file()
}

/// Return the path of a file beside the folder, with its name and ".gguf".
fn beside(folder: &Path) -> Result<PathBuf, Error> {
    // The path may be "." or end in "..".
    let whole = fs::canonicalize(folder).map_err(|source| Error::Read { path: folder.into(), source })?;
    let Some(name) = whole.file_name() else {
        return Err(Error::Refused(format!("{} has no name; name the new file", folder.display())));
    };
    let mut name = OsString::from(name);
    name.push(".gguf");
    // A short path as typed is easier to read than the whole one.
    let parent = match folder.file_name() {
        Some(_) => folder.parent().map(Path::to_path_buf),
        None => whole.parent().map(Path::to_path_buf),
    };
    Ok(parent.unwrap_or_default().join(name))
}

/// Write the file. Returns its size.
fn write(target: &Target<'_>, plan: &mut Plan) -> Result<u64, Error> {
    let progress = Progress::bytes("converting");
    let mut failure = None;
    let written = target.write(|file| match write_plan(plan, &file, &progress) {
        Ok(n_bytes) => Ok(n_bytes),
        Err(ConvertError::Write(source)) => Err(source),
        Err(error) => {
            failure = Some(error);
            Err(io::Error::other("the folder cannot be converted"))
        }
    });
    written.map_err(|error| failure.map_or(error, of_folder))
}

fn write_plan(plan: &mut Plan, file: &File, progress: &Progress) -> Result<u64, ConvertError> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    plan.write(&mut out, |done, total| progress.set(done, total))?;
    out.flush()?;
    drop(out);
    Ok(file.metadata()?.len())
}

/// Translate an error about the folder.
fn of_folder(error: ConvertError) -> Error {
    match error {
        ConvertError::Read { path, source } => Error::Read { path, source },
        ConvertError::UnknownPreTokenizer { .. } => Error::Refused(format!("{error}, with --pre-tokenizer")),
        ConvertError::Gguf(source) => source.into(),
        error => Error::Refused(error.to_string()),
    }
}
