//! Convert a folder: `convert FOLDER OUT [f32|f16|bf16|q8_0|auto] [pre-tokeniser]`.

use std::fs::File;
use std::io::BufWriter;

use backstitch_convert::{Error, Options, OutType, Plan};

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(out)) = (words.next(), words.next()) else {
        eprintln!("convert FOLDER OUT [f32|f16|bf16|q8_0|auto] [pre-tokeniser]");
        return Ok(());
    };
    let out_type = match words.next().as_deref() {
        Some("f32") => OutType::F32,
        Some("f16") => OutType::F16,
        Some("bf16") => OutType::BF16,
        Some("q8_0") => OutType::Q8_0,
        _ => OutType::Auto,
    };
    let mut plan = Plan::of_folder(folder.as_ref(), &Options { out_type, pre_tokenizer: words.next() })?;
    println!("{}: {} tensors, {} bytes", plan.architecture(), plan.n_tensors(), plan.n_bytes());
    plan.write(BufWriter::new(File::create(out)?), |_, _| {})
}
