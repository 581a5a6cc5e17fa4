//! LoRA adapters as PEFT writes them, converted for the model that they belong to.
//!
//! A folder holds `adapter_config.json` and `adapter_model.safetensors`, which has two factors for
//! each matrix that was trained. They become `NAME.lora_a` and `NAME.lora_b`, where `NAME` is that
//! of the matrix in the model's GGUF file: the family of the base model renames, reorders and cuts
//! the product, and the factors follow ([`crate::tensor::Factors`]).
//!
//! An engine adds `alpha / rank` times the product, where the rank is that of the factors. Anything
//! else that PEFT could have trained, a GGUF file cannot say, so it is refused: magnitudes (DoRA),
//! biases, whole modules, a factor of its own for each matrix.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use backstitch_core::DType;
use serde_json::Value;

use crate::check;
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::convert::Plan;
use crate::error::Error;
use crate::family::Family;
use crate::general;
use crate::metadata::Metadata;
use crate::plan::{OutType, Output, convert_all, output, plan, row_type};
use crate::tensor::{Factors, Tensor};

/// Name of the configuration of an adapter.
const CONFIG: &str = "adapter_config.json";

/// Endings of the names of factors.
const ENDINGS: [(&str, Factor, Kind); 4] = [
    (".lora_A.weight", Factor::A, Kind::Linear),
    (".lora_B.weight", Factor::B, Kind::Linear),
    (".lora_embedding_A", Factor::A, Kind::Embedding),
    (".lora_embedding_B", Factor::B, Kind::Embedding),
];

/// Tensors by the names that the checkpoint of the base model has.
type Sources = Vec<(String, Tensor)>;

/// One of the two factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    A,
    B,
}

/// The module that a pair of factors belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A matrix as it is stored: a row for each output.
    Linear,
    /// A transposed matrix: the product has a column for each token.
    Embedding,
}

impl Plan {
    /// Plan the file of an adapter in `folder`. No data of tensors are read.
    ///
    /// `base` is the folder of the base model, of which `config.json` is needed. If its weights are
    /// there, the shapes of all matrices are compared with theirs; if not, the widths are compared
    /// with the configuration.
    ///
    /// # Errors
    /// [`Error::MissingFile`] and [`Error::MissingShards`] for files that are not there,
    /// [`Error::Key`] for an adapter of another kind, [`Error::InFile`] with the error of a tensor
    /// that the base model does not have, or has in another shape, or whose factors do not fit.
    pub fn of_adapter(folder: &Path, base: &Path, out_type: OutType) -> Result<Self, Error> {
        let config_path = file_of(folder, CONFIG)?;
        let settings = Settings::read(&Config::read(&config_path)?)?;
        let mut base_config = Config::read(&file_of(base, "config.json")?)?;
        let family = Family::of(&base_config)?;
        (family.prepare)(&mut base_config)?;
        let checkpoint = Checkpoint::open(folder, "adapter_model")?;
        let path = Some(folder.join("adapter_model.safetensors")).filter(|path| path.is_file());
        let path = path.unwrap_or_else(|| folder.into());
        let of_file = |error| in_file(&path, error);
        let (sources, rank) = pairs(&checkpoint, &settings).map_err(of_file)?;
        let trains_output = sources.iter().any(|source| source.0 == "lm_head.weight");
        let converted = convert_all(family, &base_config, sources).map_err(of_file)?;
        if converted.is_empty() || trains_output && !converted.iter().any(|(name, _)| name == "output.weight")
        {
            let (tensor, kind) =
                if trains_output { ("lm_head", "output matrix") } else { ("lora_A", "tensors") };
            let reason = format!("the base model, {}, has no {kind} that it changes", family.architecture);
            return Err(in_file(&path, Error::MissingTensor { tensor: tensor.into(), reason }));
        }
        Base::read(base, family, &base_config)?.check(&converted).map_err(of_file)?;
        let outputs = outputs(converted, out_type.dtype(&checkpoint)).map_err(of_file)?;
        let mut metadata = Metadata::new(family.architecture);
        metadata.set("general.type", "adapter");
        metadata.set("adapter.type", "lora");
        general::set_name(folder, &mut metadata);
        metadata.set("adapter.lora.alpha", settings.alpha(rank)?);
        if let Some(tokens) = settings.invocation {
            metadata.set("adapter.alora.invocation_tokens", tokens);
        }
        metadata.set("general.quantization_version", 2u32);
        Ok(Self { metadata, outputs, checkpoint })
    }
}

/// Return the path of a file that a folder must have.
fn file_of(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::MissingFile { folder: folder.into(), wanted: name.into() })
    }
}

/// Name the file that an error about a tensor is about.
fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Tensor { .. } | Error::MissingTensor { .. } | Error::UnknownTensor { .. } => {
            Error::InFile { path: path.into(), error: Box::new(error) }
        }
        error => error,
    }
}

/// The part of `adapter_config.json` that a GGUF file can say.
struct Settings {
    config: Config,
    /// Factor of all products, before they are divided by the rank.
    alpha: f32,
    /// True if products are divided by the square root of the rank.
    by_root: bool,
    /// The rank of all factors, if there is one.
    rank: Option<u32>,
    /// True if the matrices of the base model are stored with a column for each output.
    transposed: bool,
    /// Tokens behind which the adapter begins to work.
    invocation: Option<Vec<u32>>,
}

impl Settings {
    /// Read the configuration.
    ///
    /// # Errors
    /// [`Error::Key`] for an adapter of another kind, or one with parts that GGUF files lack.
    fn read(config: &Config) -> Result<Self, Error> {
        const KIND: &[&str] = &["peft_type"];
        if config.get(KIND).is_some() && config.text(KIND) != Some("LORA") {
            return Err(config.wrong(KIND, "\"LORA\""));
        }
        for (key, wanted) in [
            ("use_dora", "false: GGUF adapters have no magnitudes"),
            ("lora_bias", "false: GGUF adapters have no biases"),
            ("modules_to_save", "none: GGUF adapters hold no whole modules"),
            ("trainable_token_indices", "none: GGUF adapters hold no single rows"),
            ("alpha_pattern", "none: GGUF adapters have one alpha for all matrices"),
        ] {
            let is_empty = match config.get(&[key]) {
                None | Some(Value::Bool(false)) => true,
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                Some(_) => false,
            };
            if !is_empty {
                return Err(config.wrong(&[key], wanted));
            }
        }
        let has_pattern = config.within("rank_pattern").is_some_and(|map| !map.is_empty());
        Ok(Self {
            alpha: config.need_float(&["lora_alpha"])?,
            by_root: config.flag("use_rslora") == Some(true),
            rank: config.number(&["r"])?.filter(|_| !has_pattern),
            transposed: config.flag("fan_in_fan_out") == Some(true),
            invocation: invocation(config)?,
            config: config.clone(),
        })
    }

    /// Return the alpha that an engine divides by the rank. `rank` is that of all factors, if they
    /// have one.
    ///
    /// # Errors
    /// [`Error::Key`] if one number cannot say it for all factors.
    fn alpha(&self, rank: Option<usize>) -> Result<f32, Error> {
        match rank {
            _ if !self.by_root => Ok(self.alpha),
            Some(rank) => Ok((f64::from(self.alpha) * (rank as f64).sqrt()) as f32),
            None => {
                Err(self.config.wrong(&["use_rslora"], "false, because ranks differ from matrix to matrix"))
            }
        }
    }
}

/// Read the tokens behind which an adapter begins to work, if it does not from the start.
fn invocation(config: &Config) -> Result<Option<Vec<u32>>, Error> {
    const KEY: &[&str] = &["alora_invocation_tokens"];
    let Some(value) = config.get(KEY) else {
        const TEXT: &[&str] = &["invocation_string"];
        return match config.text(TEXT) {
            None | Some("") => Ok(None),
            Some(_) => Err(config.wrong(TEXT, "nothing, or its tokens as alora_invocation_tokens")),
        };
    };
    let tokens = value.as_array().and_then(|list| {
        list.iter().map(|token| token.as_u64().and_then(|token| u32::try_from(token).ok())).collect()
    });
    let tokens: Vec<u32> = tokens.ok_or_else(|| config.wrong(KEY, "a list of tokens"))?;
    Ok(Some(tokens).filter(|tokens| !tokens.is_empty()))
}

/// The factors of a matrix, as they are found.
struct Pair {
    kind: Kind,
    a: Option<Tensor>,
    b: Option<Tensor>,
}

/// Collect the products by the names of the matrices in the base model, and the norms that some
/// programs add. Returns their rank too, if it is the same for all.
fn pairs(checkpoint: &Checkpoint, settings: &Settings) -> Result<(Sources, Option<usize>), Error> {
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut sources = Vec::new();
    for (name, shape, stored) in &checkpoint.tensors {
        let tensor = Tensor::stored(name, shape.clone(), stored.clone());
        let base_name = name.replace("base_model.model.", "");
        let found = ENDINGS.iter().find_map(|row| Some((base_name.strip_suffix(row.0)?, row.1, row.2)));
        match found {
            Some((module, factor, kind)) => {
                let new = Pair { kind, a: None, b: None };
                let pair = pairs.entry(format!("{module}.weight")).or_insert(new);
                let place = if factor == Factor::A { &mut pair.a } else { &mut pair.b };
                if place.replace(tensor).is_some() || pair.kind != kind {
                    let (found, wanted) = ("a module that others have too".into(), "one pair for it".into());
                    return Err(Error::Tensor { tensor: name.clone(), found, wanted });
                }
            }
            None if name.ends_with(".base_layer.weight") => {}
            None if name.contains("_layernorm") || name.contains(".norm") => {
                sources.push((base_name, tensor))
            }
            None => {
                let found = "a name of no factor".into();
                let wanted = "one that ends in .lora_A.weight or .lora_B.weight".into();
                return Err(Error::Tensor { tensor: name.clone(), found, wanted });
            }
        }
    }
    let mut ranks = Vec::new();
    for (name, pair) in pairs {
        let (product, rank) = pair.product(&name, settings)?;
        ranks.push(rank);
        sources.push((name, product));
    }
    let rank = ranks.first().copied().filter(|first| ranks.iter().all(|rank| rank == first));
    Ok((sources, rank))
}

impl Pair {
    /// Return the product as the base model stores the matrix `name`, and its rank.
    fn product(self, name: &str, settings: &Settings) -> Result<(Tensor, usize), Error> {
        let (a, b) = match (self.a, self.b) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => {
                let there = a.or(b).map_or_else(String::new, |tensor| tensor.name().into());
                let reason = format!("{there:?} is only one of its two factors");
                return Err(Error::MissingTensor { tensor: name.into(), reason });
            }
        };
        let rank = a.dim(0);
        let product = Tensor::low_rank(a, b)?;
        if let Some(wanted) = settings.rank.filter(|&wanted| wanted as usize != rank) {
            return Err(Error::Tensor {
                tensor: product.name().into(),
                found: format!("rank {rank}"),
                wanted: format!("{wanted}, as {CONFIG} says"),
            });
        }
        let turned = settings.transposed || self.kind == Kind::Embedding;
        Ok((if turned { swapped(&product)? } else { product }, rank))
    }
}

/// Return the transposed product, as a product.
fn swapped(product: &Tensor) -> Result<Tensor, Error> {
    match product.factors()? {
        Some(Factors { a, b }) => Tensor::low_rank(b.transpose()?, a.transpose()?),
        None => product.transpose(),
    }
}

/// Make the tensors of the new file: two for each product, one for each norm.
fn outputs(converted: Sources, dtype: DType) -> Result<Vec<Output>, Error> {
    let mut outputs = Vec::new();
    for (name, tensor) in converted {
        let Some(Factors { a, b }) = tensor.factors()? else {
            if tensor.shape().len() != 1 || !name.contains("_norm") {
                return Err(tensor.misfit("that of a norm, because it has no factors"));
            }
            outputs.push(output(name, tensor, dtype)?);
            continue;
        };
        // A row of the embedding is looked up, not multiplied: both factors lie the other way.
        let is_embedding = name.contains("token_embd.weight");
        let (a, b) = if is_embedding { (b, a.transpose()?) } else { (a, b) };
        for (tensor, ending) in [(a, "lora_a"), (b, "lora_b")] {
            let dtype = row_type(tensor.shape(), dtype);
            outputs.push(Output { name: format!("{name}.{ending}"), tensor, dtype });
        }
    }
    Ok(outputs)
}

/// The base model, as far as its folder describes it.
struct Base<'a> {
    folder: &'a Path,
    /// Its tensors, if its weights are in the folder.
    tensors: Option<BTreeMap<String, Vec<usize>>>,
    /// The width of the model, if the configuration says so.
    width: Option<usize>,
}

impl<'a> Base<'a> {
    /// Read the shapes of the base model.
    fn read(folder: &'a Path, family: &'static Family, config: &Config) -> Result<Self, Error> {
        let tensors = match Checkpoint::open(folder, "model") {
            Ok(mut checkpoint) => {
                let (outputs, _) = plan(family, config, &mut checkpoint, OutType::F32)?;
                let shape = |output: Output| (output.name, output.tensor.shape().to_vec());
                Some(outputs.into_iter().map(shape).collect())
            }
            Err(Error::MissingFile { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { folder, tensors, width: config.width().ok() })
    }

    /// Compare the shapes of products with those of the base model.
    fn check(&self, converted: &[(String, Tensor)]) -> Result<(), Error> {
        converted.iter().try_for_each(|(name, tensor)| match &self.tensors {
            Some(tensors) => self.check_shape(name, tensor, tensors.get(name)),
            None => match self.width {
                Some(width) => {
                    let reason = format!("the width of the model in {}", self.folder.display());
                    check::width(name, tensor, width, &reason)
                }
                None => Ok(()),
            },
        })
    }

    fn check_shape(&self, name: &str, tensor: &Tensor, wanted: Option<&Vec<usize>>) -> Result<(), Error> {
        let folder = self.folder.display();
        match wanted {
            Some(shape) if shape == tensor.shape() => Ok(()),
            Some(shape) => Err(tensor.misfit(format!("{shape:?}, as {name:?} has in {folder}"))),
            None => Err(Error::Tensor {
                tensor: tensor.name().into(),
                found: format!("the place {name:?}"),
                wanted: format!("one that the model in {folder} has"),
            }),
        }
    }
}
