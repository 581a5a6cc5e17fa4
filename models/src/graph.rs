//! The computation of a model as data: built once when the model is opened, run for every batch.
//!
//! An architecture file asks the [`Builder`] for products, norms, attention and so on. The builder
//! turns each request into a [`Step`]: a [`Kind`] with its numbers, the values that it reads and
//! writes, the weights that it uses, and the memory that it carries from token to token. Nothing
//! else describes an operation: the arena ([`Plan`]), the text for people ([`Graph::to_text`],
//! [`Graph::to_dot`]), the profile ([`Profile`]), the journal of the recurrences and the memory
//! budget are all read off the steps. A kind is matched on in one place only, where it is run.
//!
//! A [`Value`] is a matrix `[rows, width]` whose rows are the tokens of a ubatch (or those among
//! them whose output is wanted), so one graph serves one token and a thousand.
//!
//! Files of this folder import each other from the bottom up: `value`, `weight`, `kind`,
//! `rotation`, `step`, `computation`, then `plan`, `print`, `profile` and `builder`.

mod builder;
mod computation;
mod experts;
mod kind;
mod plan;
mod print;
mod profile;
mod rotation;
mod step;
mod value;
mod weight;

pub use backstitch_kv::Rotation;
pub use builder::{
    Builder,
    attention::{BucketTable, Cells, Qkv},
    elementwise::{EmbedTable, Part},
    experts::Mixture,
    lerp::{Mix, WeightRow},
    linear::{Cut, Linear, LowRank},
    norm::Norm,
    recurrence::{DeltaInputs, GlaInputs, KdaInputs, SelectiveInputs, Wkv6Inputs, Wkv7Inputs},
    rope::{RopeFactors, RopeSpec},
};
pub use computation::{Graph, Head, LayerEnd};
pub use experts::{ExpertGroups, ExpertNetwork, ExpertSizes, ExpertTensors, Gating, Routing};
pub use kind::{
    Activation, Columns, DeltaSizes, GlaSizes, KdaSizes, Kind, RowOf, Scores, Sharing, SsdSizes, Temperature,
    WkvSizes,
};
pub use plan::Plan;
pub use profile::{Profile, ProfileRow};
pub use rotation::{LongRotation, RopeId, RotationChoice};
pub use step::{Carried, CarriedState, Step};
pub use value::{Rows, Value, ValueInfo};
pub use weight::{StackOf, WeightId, WeightInfo, WeightShape};

pub(crate) use experts::ExpertScratch;
pub(crate) use weight::packed_type;
