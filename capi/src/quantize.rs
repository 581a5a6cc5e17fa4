//! Quantising a model file.

use crate::border::{In, Text, exports};
use crate::error::Error;
use crate::layouts::QuantizeParams;
use crate::log::{self, Level};
use backstitch_core::DType;
use backstitch_core::pool::{MAX_THREADS, ThreadPool};
use backstitch_kv::storage::disk::Readers;
use backstitch_models::gguf::{Access, Source};
use backstitch_quantize::{FileType, Options as Wishes, Quantizer};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Wishes for a quantisation, whatever the layout that they came in.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of llama.h, as far as they mean something here")]
pub struct Options {
    pub n_threads: i32,
    pub file_type: i32,
    pub output: i32,
    pub token_embedding: i32,
    pub allow_requantize: bool,
    pub keep_output: bool,
    pub pure: bool,
    pub dry_run: bool,
    /// True if something is wished for that the library does not do.
    pub has_unknown: bool,
}

/// Return the type of one of ggml's numbers; none for those that stand for no wish.
fn dtype(number: i32) -> Option<DType> {
    u32::try_from(number).ok().and_then(DType::from_gguf_id)
}

fn quantize(input: &Path, output: &Path, options: &Options) -> Result<(), Error> {
    if options.has_unknown {
        return Err(Error::Absent {
            what: "only_copy, keep_split, importance matrices and overrides of llama_model_quantize",
        });
    }
    let file_type = FileType::ALL.iter().copied();
    let file_type = file_type.into_iter().find(|ty| i64::from(ty.number()) == i64::from(options.file_type));
    let unknown = Error::Range { what: "ftype", found: options.file_type.into(), wanted: "a file type" };
    let wishes = Wishes {
        output: dtype(options.output),
        token_embedding: dtype(options.token_embedding),
        pure: options.pure,
        keep_output: options.keep_output,
        allow_requantize: options.allow_requantize,
        ..Wishes::new(file_type.ok_or(unknown)?)
    };
    let source = Source::open(input, Access::Map)?;
    let same = |path: &Path| output.canonicalize().ok().is_some_and(|o| path.canonicalize().ok() == Some(o));
    if source.paths().any(same) {
        return Err(Error::Absent { what: "quantising a file in its own place" });
    }
    let gguf = source.gguf()?;
    let quantizer = Quantizer::new(&gguf, &wishes)?.without_keys();
    if options.dry_run {
        return Ok(());
    }
    let n_threads = usize::try_from(options.n_threads).ok().filter(|&n| n > 0);
    let n_threads = n_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let pool = ThreadPool::new(n_threads.min(MAX_THREADS)).map_err(backstitch_models::Error::from)?;
    crate::replace::replace(output, Readers::Usual, |file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        quantizer.write(&pool, &mut out, &mut |_| {})?;
        Ok(out.flush()?)
    })
}

exports! {
    /// Quantise the model file `input` to `output`: 0 if that was done; 1 if not, and `output` is
    /// as it was then, or the new file if only making it durable failed.
    fn llama_model_quantize(input: Text, output: Text, params: In<QuantizeParams>) -> u32 = [1] {
        let params = if params.is_null() { QuantizeParams::default() } else { params.get("params")? };
        quantize(&input.path("fname_inp")?, &output.path("fname_out")?, &params.options())?;
        log::write(Level::Info, "quantised");
        Ok(0)
    }

    /// Return parameters of quantising with the defaults filled in.
    fn llama_model_quantize_default_params() -> QuantizeParams = [QuantizeParams::default()] {
        Ok(QuantizeParams::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_with_the_defaults_wish_for_no_types() {
        let options = QuantizeParams::default().options();
        assert_eq!((dtype(options.output), dtype(options.token_embedding)), (None, None));
        let file_type =
            FileType::ALL.iter().find(|ty| i64::from(ty.number()) == i64::from(options.file_type));
        let wanted = if cfg!(feature = "layout-0-3-16") { "Q5_1" } else { "Q8_0" };
        assert_eq!(file_type.map(|ty| ty.name()), Some(wanted));
        assert!(!options.has_unknown && !options.keep_output);
    }
}
