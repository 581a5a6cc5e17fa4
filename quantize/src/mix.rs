//! The type of each tensor in a mixture: the choices of llama.cpp's `llama-quantize`.
//!
//! Some tensors matter more than others: attention values, down projections of the first and the
//! last layers, the output matrix. A mixture gives them more bits, in ways that were found by
//! measuring perplexity; there is no rule behind them. Choices depend on the number of tensors of a
//! kind that came before, so tensors are visited in llama.cpp's order: by layer, then by name.

mod category;
mod fallback;
mod layers;

use crate::{Error, FileType, Options};
use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, TensorInfo};
use category::Category;
use layers::{Layers, is_inner, use_more_bits};

pub use category::is_quantised;
pub use layers::in_order;

/// The properties of a model that choices depend on.
#[derive(Clone, Debug)]
struct Model {
    architecture: String,
    n_layer: u32,
    n_expert: u32,
    /// Query heads that share a key head; 0 if there are no key heads.
    n_gqa: u32,
}

impl Model {
    fn of(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let keys = gguf.keys()?;
        let first = |suffix: &str| -> Result<Option<u32>, Error> {
            let values = keys.per_layer::<u32>(suffix, 1);
            Ok(match values {
                Ok(values) => values.and_then(|values| values.at(0)),
                // One number for each of several layers.
                Err(_) => keys.optional::<Vec<u32>>(suffix)?.and_then(|values| values.first().copied()),
            })
        };
        let n_head = first("attention.head_count")?.unwrap_or(0);
        let n_head_kv = first("attention.head_count_kv")?.unwrap_or(n_head);
        Ok(Self {
            architecture: gguf.architecture()?.into(),
            n_layer: keys.optional::<u32>("block_count")?.unwrap_or(0),
            n_expert: keys.optional::<u32>("expert_count")?.unwrap_or(0),
            n_gqa: n_head.checked_div(n_head_kv).unwrap_or(0),
        })
    }

    fn is_falcon(&self) -> bool {
        self.architecture == "falcon"
    }

    /// Return true for the models that llama.cpp calls 70B: their attention values are small
    /// beside the rest, so more bits for them cost little.
    fn is_70b(&self) -> bool {
        match self.architecture.as_str() {
            "llama" => self.n_layer == 80 && self.n_gqa != 1,
            "qwen2" | "deci" | "olmo" => self.n_layer == 80,
            "jais2" => self.n_layer == 68,
            _ => false,
        }
    }
}

/// Chooses the type of each tensor of a model.
#[derive(Debug)]
pub struct Mix<'a> {
    options: &'a Options,
    model: Model,
    has_imatrix: bool,
    /// The token embeddings are the output matrix as well.
    is_tied: bool,
    /// Tensors of attention values, and those that were chosen for.
    n_attention_v: u32,
    i_attention_v: u32,
    ffn_down: Layers,
    ffn_gate: Layers,
    ffn_up: Layers,
}

impl<'a> Mix<'a> {
    /// Begin with a model; `has_imatrix` if there is an importance matrix.
    ///
    /// # Errors
    /// [`Error::Model`] if the model does not state its architecture, or states numbers of another
    /// type.
    pub fn new(gguf: &Gguf<'_>, options: &'a Options, has_imatrix: bool) -> Result<Self, Error> {
        let model = Model::of(gguf)?;
        let categories = gguf.tensors().iter().map(|tensor| Category::of(tensor.name()));
        let layers = Layers::new(model.n_layer, model.n_expert > 1);
        Ok(Self {
            options,
            has_imatrix,
            is_tied: categories.clone().all(|category| category != Category::Output),
            n_attention_v: categories.filter(|category| category.is_attention_v()).count() as u32,
            i_attention_v: 0,
            ffn_down: layers,
            ffn_gate: layers,
            ffn_up: layers,
            model,
        })
    }

    /// Return the type of a tensor. To be called once for each, in the order of [`in_order`].
    ///
    /// # Errors
    /// [`Error::Layer`] if a layer is needed and the name does not tell it, [`Error::NoFallback`]
    /// if the tensor has no type that fits.
    pub fn choose(&mut self, tensor: &TensorInfo<'_>) -> Result<DType, Error> {
        let (name, options) = (tensor.name(), self.options);
        if !is_quantised(tensor) || options.keep_output && name == "output.weight" {
            return Ok(tensor.dtype());
        }
        let category = Category::of(name);
        match category {
            Category::TokenEmbedding if options.token_embedding.is_some() => {
                return Ok(options.token_embedding.unwrap_or(tensor.dtype()));
            }
            Category::Output if options.output.is_some() => {
                return Ok(options.output.unwrap_or(tensor.dtype()));
            }
            _ => {}
        }
        let default = options.file_type.dtype();
        let is_pure = options.pure || matches!(default, DType::F32 | DType::F16 | DType::BF16);
        let manual = options.tensor_types.iter().find_map(|pattern| pattern.dtype_of(name));
        let chosen = match manual {
            Some(dtype) => dtype,
            None if is_pure => default,
            None => self.mixed(category, tensor)?,
        };
        fallback::fitting(tensor, chosen)
    }

    /// Return the type by the mixture.
    fn mixed(&mut self, category: Category, tensor: &TensorInfo<'_>) -> Result<DType, Error> {
        use FileType as F;
        let file_type = self.options.file_type;
        let default = file_type.dtype();
        if category == Category::Output || self.is_tied && category == Category::TokenEmbedding {
            return Ok(self.options.output.unwrap_or_else(|| self.output(tensor)));
        }
        if file_type == F::MXFP4_MOE {
            let is_experts = matches!(tensor.shape(), [.., n, _, _] if *n > 1);
            return Ok(if is_experts { DType::MXFP4 } else { DType::Q8_0 });
        }
        if category == Category::TokenEmbedding {
            return Ok(match file_type {
                F::IQ2_XXS | F::IQ2_XS | F::IQ1_S | F::IQ1_M => DType::Q2_K,
                F::IQ2_S | F::IQ2_M | F::IQ3_XXS => DType::IQ3_S,
                F::TQ1_0 | F::TQ2_0 | F::Q2_0 => DType::Q4_K,
                _ => default,
            });
        }
        let is_tiny = matches!(file_type, F::IQ2_XXS | F::IQ2_XS | F::IQ2_S | F::IQ2_M | F::IQ1_S | F::IQ1_M);
        match category {
            _ if is_tiny => Ok(self.tiny(category).unwrap_or(default)),
            _ if category.is_attention_v() => Ok(self.attention_v()),
            Category::AttentionQ | Category::AttentionK => Ok(self.attention_qk(category)),
            Category::AttentionOutput => Ok(self.attention_output()),
            Category::FfnDown => {
                let layer = self.ffn_down.next(tensor.name())?;
                Ok(self.ffn_down_in(layer).unwrap_or(default))
            }
            Category::FfnGate | Category::FfnUp => {
                let layers =
                    if category == Category::FfnGate { &mut self.ffn_gate } else { &mut self.ffn_up };
                let is_inner = is_inner(layers.next(tensor.name())?, self.model.n_layer);
                Ok(if file_type == F::IQ3_XS && is_inner { DType::IQ3_XXS } else { default })
            }
            _ => Ok(default),
        }
    }

    /// Return the type of the output matrix.
    fn output(&self, tensor: &TensorInfo<'_>) -> DType {
        use FileType as F;
        let (file_type, n_cols) = (self.options.file_type, tensor.shape().last().copied().unwrap_or(0));
        let default = file_type.dtype();
        match file_type {
            F::MXFP4_MOE => DType::Q8_0,
            _ if self.model.is_falcon() || !n_cols.is_multiple_of(default.block_len()) => DType::Q8_0,
            F::IQ2_XXS | F::IQ2_XS | F::IQ3_XXS | F::IQ1_S | F::IQ2_S | F::IQ2_M | F::IQ1_M => DType::Q5_K,
            _ if default == DType::Q8_0 => DType::Q8_0,
            _ => DType::Q6_K,
        }
    }

    /// Return the type of a tensor in mixtures below three bits, if it is not that of most.
    fn tiny(&mut self, category: Category) -> Option<DType> {
        use FileType as F;
        let file_type = self.options.file_type;
        let is_larger = matches!(file_type, F::IQ2_S | F::IQ2_M);
        let better = if is_larger { DType::IQ3_S } else { DType::Q2_K };
        let n_expert = self.model.n_expert;
        match category {
            _ if category.is_attention_v() => {
                self.i_attention_v += 1;
                Some(if self.model.n_gqa >= 4 || n_expert >= 4 { DType::Q4_K } else { better })
            }
            Category::AttentionK if n_expert == 8 => Some(DType::Q4_K),
            Category::FfnDown => {
                let layer = self.ffn_down.count();
                (layer < self.model.n_layer / 8).then_some(better)
            }
            Category::AttentionOutput if n_expert == 8 => Some(DType::Q5_K),
            Category::AttentionOutput => match file_type {
                F::IQ1_S | F::IQ1_M => Some(DType::IQ2_XXS),
                _ => is_larger.then_some(DType::IQ3_S),
            },
            _ => None,
        }
    }

    /// Return the type of attention values.
    fn attention_v(&mut self) -> DType {
        use FileType as F;
        let (i, n) = (self.i_attention_v, self.n_attention_v);
        self.i_attention_v += 1;
        let file_type = self.options.file_type;
        let is_shared = self.model.n_gqa >= 4;
        let chosen = match file_type {
            F::Q2_K => {
                if is_shared {
                    DType::Q4_K
                } else {
                    DType::Q3_K
                }
            }
            F::IQ3_XXS if !is_shared => {
                if self.has_imatrix {
                    DType::IQ3_XXS
                } else {
                    DType::IQ3_S
                }
            }
            F::Q2_K_S | F::IQ3_XXS | F::IQ3_XS | F::IQ3_S if is_shared => DType::Q4_K,
            F::IQ3_M => DType::Q4_K,
            F::Q3_K_M => {
                if i < 2 {
                    DType::Q5_K
                } else {
                    DType::Q4_K
                }
            }
            F::Q3_K_L => DType::Q5_K,
            F::IQ4_NL | F::IQ4_XS if is_shared => DType::Q5_K,
            F::Q4_K_M | F::Q5_K_M if use_more_bits(i, n) => DType::Q6_K,
            F::Q4_K_S if i < 4 => DType::Q5_K,
            _ => file_type.dtype(),
        };
        match chosen {
            _ if self.model.n_expert == 8 => DType::Q8_0,
            DType::Q3_K | DType::Q4_K if self.model.is_70b() => DType::Q5_K,
            chosen => chosen,
        }
    }

    /// Return the type of the projections of queries and keys.
    fn attention_qk(&self, category: Category) -> DType {
        match self.options.file_type {
            _ if category == Category::AttentionK && self.model.n_expert == 8 => DType::Q8_0,
            FileType::IQ3_XS => DType::IQ3_XXS,
            FileType::IQ3_XXS => DType::IQ2_S,
            file_type => file_type.dtype(),
        }
    }

    /// Return the type of the projection behind attention.
    fn attention_output(&self) -> DType {
        use FileType as F;
        let file_type = self.options.file_type;
        match file_type {
            F::Q3_K_L if self.model.is_falcon() => DType::Q4_K,
            _ if self.model.is_falcon() => file_type.dtype(),
            F::Q2_K
            | F::IQ3_XS
            | F::IQ3_XXS
            | F::Q3_K_S
            | F::Q3_K_M
            | F::IQ4_NL
            | F::Q4_K_S
            | F::Q4_K_M
            | F::IQ3_S
            | F::IQ3_M
            | F::IQ4_XS
                if self.model.n_expert == 8 =>
            {
                DType::Q5_K
            }
            _ if self.model.n_expert == 8 => file_type.dtype(),
            F::Q2_K => DType::Q3_K,
            F::IQ3_XXS => DType::IQ3_S,
            F::Q3_K_M | F::IQ3_M => DType::Q4_K,
            F::Q3_K_L => DType::Q5_K,
            _ => file_type.dtype(),
        }
    }

    /// Return the type of the down projection in layer `i`, if it is not that of most.
    fn ffn_down_in(&self, i: u32) -> Option<DType> {
        use FileType as F;
        let (n, is_falcon) = (self.model.n_layer, self.model.is_falcon());
        let more = use_more_bits(i, n);
        match self.options.file_type {
            F::Q2_K => Some(DType::Q3_K),
            F::Q2_K_S => (i < n / 8).then_some(DType::Q4_K),
            F::IQ3_XXS if !self.has_imatrix => Some(if i < n / 8 { DType::Q4_K } else { DType::Q3_K }),
            F::Q3_K_M => Some(match () {
                () if i < n / 16 => DType::Q5_K,
                () if !is_falcon || more => DType::Q4_K,
                () => DType::Q3_K,
            }),
            F::IQ3_M if i < n / 8 || self.model.n_expert == 8 && more => Some(DType::Q4_K),
            F::Q3_K_L => Some(if is_falcon { DType::Q4_K } else { DType::Q5_K }),
            F::Q4_K_M if is_falcon => Some(match () {
                () if i < n / 16 => DType::Q6_K,
                () if more => DType::Q5_K,
                () => DType::Q4_K,
            }),
            F::Q4_K_M | F::Q5_K_M => more.then_some(DType::Q6_K),
            F::IQ4_NL | F::IQ4_XS if i < n / 8 && !self.has_imatrix => Some(DType::Q5_K),
            F::Q4_K_S if !is_falcon && i < n / 8 => Some(DType::Q5_K),
            F::Q4_0 if self.has_imatrix && i < n / 8 => Some(DType::Q4_1),
            F::Q5_0 if self.has_imatrix && i < n / 8 => Some(DType::Q5_1),
            _ => None,
        }
    }
}

/// Return true if a tensor of this type in a file of that type is worthless without importance.
pub fn needs_imatrix(tensor: &str, dtype: DType, file_type: FileType) -> bool {
    match dtype {
        _ if dtype.needs_importance() => true,
        _ if matches!(Category::of(tensor), Category::TokenEmbedding | Category::Output) => false,
        DType::IQ3_XXS | DType::IQ2_S | DType::IQ1_M => true,
        DType::Q2_K => file_type == FileType::Q2_K_S,
        _ => false,
    }
}
