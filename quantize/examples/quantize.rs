//! Quantise a model: `cargo run --example quantize IN OUT TYPE [IMATRIX [pure]]`.

use backstitch_core::pool::ThreadPool;
use backstitch_models::gguf::{Access, Source};
use backstitch_quantize::{FileType, Imatrix, Options, Quantizer};
use std::fs::File;
use std::io::BufWriter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, name, more @ ..] = &args[..] else {
        return Err("usage: quantize IN OUT TYPE [IMATRIX [pure]]".into());
    };
    let file_type = FileType::from_name(name).ok_or("no such type")?;
    let mut options = Options::new(file_type);
    options.allow_requantize = true;
    options.pure = more.get(1).is_some_and(|word| word == "pure");
    let source = Source::open(input, Access::Map)?;
    let gguf = source.gguf()?;
    let imatrix_file = more.first().filter(|path| *path != "-");
    let imatrix = imatrix_file.map(|path| Imatrix::read(&std::fs::read(path)?)).transpose()?;
    let quantizer = match (&imatrix, imatrix_file) {
        (Some(imatrix), Some(path)) => Quantizer::with_imatrix(&gguf, &options, imatrix, path)?,
        _ => Quantizer::new(&gguf, &options)?,
    };
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let out = BufWriter::new(File::create(output)?);
    quantizer.write(&ThreadPool::new(n_threads)?, out, &mut |planned| {
        println!("{}: {}", planned.tensor.name(), planned.dtype);
    })?;
    Ok(())
}
