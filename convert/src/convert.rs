//! A whole conversion: planned, then written.

use std::io::Write;
use std::path::Path;

use backstitch_core::DType;
use backstitch_models::gguf::Writer;

use crate::check;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::Error;
use crate::family::{Family, KNOWN_TOKENS};
use crate::general;
use crate::metadata::Metadata;
use crate::plan::{OutType, Output, plan};
use crate::vocab::{self, PADDING, Sources};

/// Choices of the caller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Element type of the matrices.
    pub out_type: OutType,
    /// Name of the pre-tokeniser, for vocabularies whose own is unknown.
    pub pre_tokenizer: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { out_type: OutType::Auto, pre_tokenizer: None }
    }
}

/// A GGUF file that is known but for the data of its tensors.
#[derive(Debug)]
pub struct Plan {
    pub(crate) metadata: Metadata,
    pub(crate) outputs: Vec<Output>,
    pub(crate) checkpoint: Checkpoint,
}

impl Plan {
    /// Plan the file of a folder. No data of tensors are read.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`], [`Error::MissingFile`], [`Error::MissingShards`] and the
    /// others, whenever the folder is not a whole model.
    pub fn of_folder(folder: &Path, options: &Options) -> Result<Self, Error> {
        let path = folder.join("config.json");
        if !path.is_file() {
            return Err(Error::MissingFile { folder: folder.into(), wanted: "config.json".into() });
        }
        let mut config = Config::read(&path)?;
        let family = Family::of(&config)?;
        (family.prepare)(&mut config)?;
        if family.counts_tokens {
            config.set(KNOWN_TOKENS, vocab::count(folder, &config)? as u64);
        }
        let mut checkpoint = Checkpoint::open(folder, "model")?;
        let (outputs, dtype) = plan(family, &config, &mut checkpoint, options.out_type)?;
        let mut metadata = Metadata::new(family.architecture);
        general::set(folder, &outputs, &mut metadata)?;
        (family.metadata)(&config, &mut metadata)?;
        check::numbers(&path, &metadata)?;
        check::tensors(&outputs, config.n_layers()?, &metadata)?;
        if family.pools {
            general::set_pooling(folder, &mut metadata)?;
        }
        general::set_file_type(dtype, &outputs, &mut metadata);
        let pre_tokenizer = options.pre_tokenizer.as_deref();
        let limit = rows(&outputs)? + PADDING;
        let notes_prefix = family.notes_prefix;
        let sources = Sources { folder, config: &config, limit, pre_tokenizer, notes_prefix };
        vocab::set(family.vocabulary, sources, &mut metadata)?;
        (family.after_vocabulary)(&config, &mut metadata)?;
        Ok(Self { metadata, outputs, checkpoint })
    }

    /// Return the number of tensors.
    pub fn n_tensors(&self) -> usize {
        self.outputs.len()
    }

    /// Return the name of the architecture.
    pub fn architecture(&self) -> &'static str {
        self.metadata.architecture()
    }

    /// Return the number of bytes of all data.
    pub fn n_bytes(&self) -> u64 {
        self.outputs.iter().map(Output::n_bytes).sum()
    }

    /// Write the file. `progress` is called with the bytes of data that are written, and all.
    ///
    /// # Errors
    /// [`Error::Read`] if the checkpoint cannot be read, [`Error::Write`] if the file cannot be
    /// written, [`Error::Gguf`] if it cannot exist. Its beginning may have been written then.
    pub fn write(&mut self, out: impl Write, mut progress: impl FnMut(u64, u64)) -> Result<(), Error> {
        let total = self.n_bytes();
        let mut writer = Writer::new();
        self.metadata.write(&mut writer)?;
        for output in &self.outputs {
            writer.planned_tensor(output.name.as_str(), output.tensor.shape(), output.dtype)?;
        }
        let mut done = 0;
        writer.write_with(out, |number, n_bytes, out| {
            if let Some(output) = self.outputs.get(number) {
                output.tensor.write(output.dtype, &mut self.checkpoint, out)?;
            }
            done += n_bytes as u64;
            progress(done, total);
            Ok(())
        })
    }
}

impl Output {
    /// Return the number of bytes of the data.
    pub fn n_bytes(&self) -> u64 {
        self.dtype.row_bytes(self.tensor.n_elements()).unwrap_or(0) as u64
    }

    /// Return true if the data are blocks of MXFP4.
    pub fn is_mxfp4(&self) -> bool {
        self.dtype == DType::MXFP4
    }
}

/// Return the rows of the embedding.
fn rows(outputs: &[Output]) -> Result<usize, Error> {
    let embedding = outputs.iter().find(|output| output.name == "token_embd.weight");
    let embedding = embedding.ok_or_else(|| Error::MissingTensor {
        tensor: "token_embd.weight".into(),
        reason: "every model embeds its tokens".into(),
    })?;
    Ok(embedding.tensor.dim(0))
}
