//! Errors of reading and using adapters.

use crate::error::text::Quoted;
use alloc::boxed::Box;
use backstitch_kv::storage::Fingerprint;
use core::fmt;

/// The reason that an adapter or a set of adapters cannot be used.
///
/// # Example
/// ```
/// use backstitch_models::adapter::{Adapter, AdapterError};
/// use backstitch_models::{Error, Model};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let error = Adapter::from_bytes(backstitch_demo::GGUF, &model).unwrap_err();
/// let Error::Adapter(error) = error else { panic!("{error}") };
/// assert!(matches!(*error, AdapterError::Kind { key: "general.type", .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// The file is no adapter of the kind asked for.
    #[error("key {} is {}", Quoted(.key), other_kind(.found, .wanted))]
    Kind {
        /// The key that says so.
        key: &'static str,
        /// Its value; empty if the key is missing.
        found: Box<str>,
        /// The value of such adapters.
        wanted: &'static str,
    },
    /// The adapter was made for another architecture.
    #[error(
        "the adapter is for models of architecture {}, this one is {}; give an adapter of this model",
        Quoted(.found),
        Quoted(.wanted)
    )]
    Architecture {
        /// The adapter's architecture.
        found: Box<str>,
        /// The model's.
        wanted: Box<str>,
    },
    /// The adapter begins to act only behind certain tokens, which is not supported.
    #[error("the adapter acts behind certain tokens only (activated LoRA), which is not supported")]
    Activated,
    /// The file has no tensor that changes the model.
    #[error("the adapter has no tensor that changes a model; get the file again")]
    Empty,
    /// A tensor is named like none of an adapter.
    #[error("tensor {} is not named as {wanted}", Quoted(.tensor))]
    Name {
        /// The tensor.
        tensor: Box<str>,
        /// The names of such adapters, in words.
        wanted: &'static str,
    },
    /// One matrix of a pair is missing.
    #[error("tensor {} is missing, the other one of its pair is there", Quoted(.tensor))]
    Half {
        /// The tensor that is missing.
        tensor: Box<str>,
    },
    /// The model has no such tensor.
    #[error(
        "the adapter changes tensor {}, which the model lacks; give an adapter of this model",
        Quoted(.tensor)
    )]
    NoTensor {
        /// The tensor of the model that the adapter changes.
        tensor: Box<str>,
    },
    /// The model does not multiply by that tensor.
    #[error("the adapter changes tensor {}, which the model does not multiply by", Quoted(.tensor))]
    Use {
        /// The tensor of the model that the adapter changes.
        tensor: Box<str>,
    },
    /// The model scales the products with that tensor.
    #[error(
        "the adapter changes tensor {}, whose products the model scales; adapters of such tensors are not \
         supported",
        Quoted(.tensor)
    )]
    Scaled {
        /// The tensor of the model that the adapter changes.
        tensor: Box<str>,
    },
    /// A tensor has another shape than the model's tensor asks for.
    #[error(
        "tensor {} has shape {}, not {} (outermost dimension first); give an adapter of this model",
        Quoted(.tensor),
        dims(.found),
        dims(.wanted)
    )]
    Shape {
        /// The tensor of the adapter.
        tensor: Box<str>,
        /// Its shape, outermost dimension first.
        found: Box<[usize]>,
        /// The shape wanted; 0 stands for the rank, which is free.
        wanted: Box<[usize]>,
    },
    /// The matrices of a pair have different ranks.
    #[error("the matrices for tensor {} have ranks {a} and {b}, not the same", Quoted(.tensor))]
    Rank {
        /// The tensor of the model that the adapter changes.
        tensor: Box<str>,
        /// The rank of the first matrix.
        a: usize,
        /// The rank of the second matrix.
        b: usize,
    },
    /// A tensor of the adapter holds integers, or panels.
    #[error("tensor {} holds no rows of weights", Quoted(.tensor))]
    NotWeights {
        /// The tensor.
        tensor: Box<str>,
    },
    /// A number of the adapter is infinite or none.
    #[error("number {index} of {} is infinite or not a number", Quoted(.name))]
    NotFinite {
        /// The tensor or key.
        name: Box<str>,
        /// The index of the number.
        index: usize,
    },
    /// A control vector has a direction for a layer that cannot be steered.
    #[error(
        "tensor {} is of no layer that can be steered; those of this model are 1 to {}",
        Quoted(.tensor),
        .n_layer.saturating_sub(1)
    )]
    Layer {
        /// The tensor.
        tensor: Box<str>,
        /// The layers of the model; those from 1 on can be steered.
        n_layer: usize,
    },
    /// A scale is infinite or none.
    #[error("the scale of an adapter is {found}, not a finite number")]
    Scale {
        /// The scale.
        found: f32,
    },
    /// A range of layers is empty, or begins in front of layer 1.
    #[error("layers {first} to {last} are no range of layers from 1 on")]
    Layers {
        /// The first layer.
        first: usize,
        /// The last.
        last: usize,
    },
    /// The adapter was checked against another model than the one that is to use it.
    #[error("the adapter was read for the model with fingerprint {found}, this one has {wanted}")]
    Model {
        /// The fingerprint of the model that it was read for.
        found: Fingerprint,
        /// The fingerprint of the model that is to use it.
        wanted: Fingerprint,
    },
    /// A sequence that holds tokens was to get other adapters; those tokens have seen its own.
    #[error("sequence {seq} holds tokens up to position {end}, which have seen its adapters; make another")]
    HoldsTokens {
        /// The sequence.
        seq: u32,
        /// The position of its next token.
        end: i32,
    },
    /// Something evaluated with one set of adapters was to be used with another.
    #[error("evaluated with {found}, to be used with {wanted}; give the same adapters and scales")]
    OtherSet {
        /// The set that it was evaluated with, in words.
        found: Box<str>,
        /// The set, or the sets, that it was to be used with.
        wanted: Box<str>,
    },
    /// The file format has no place for adapters.
    #[error("sequence {seq} has adapters, which files of this format cannot name")]
    NoPlace {
        /// The sequence that has some.
        seq: u32,
    },
}

/// Return a shape, in which 0 is a free dimension.
fn dims(shape: &[usize]) -> impl fmt::Display {
    let dim =
        |&dim: &usize| fmt::from_fn(move |f| if dim == 0 { f.write_str("rank") } else { write!(f, "{dim}") });
    fmt::from_fn(move |f| f.debug_list().entries(shape.iter().map(dim)).finish())
}

/// Return the value of a key that should be another one, or that it is missing.
fn other_kind(found: &str, wanted: &str) -> impl fmt::Display {
    fmt::from_fn(move |f| match found {
        "" => write!(f, "missing, which is {} in such adapters", Quoted(wanted)),
        found => write!(f, "{}, not {}", Quoted(found), Quoted(wanted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn texts_name_the_tensor_and_both_shapes() {
        let (found, wanted) = ([4, 64].into(), [0, 32].into());
        let error = AdapterError::Shape { tensor: "output.weight.lora_a".into(), found, wanted };
        let text = "tensor \"output.weight.lora_a\" has shape [4, 64], not [rank, 32] (outermost dimension \
                    first); give an adapter of this model";
        assert_eq!(error.to_string(), text);
    }
}
