//! Norms.

use super::Builder;
use crate::{
    error::Error,
    graph::{kind::Kind, step::Step, value::Value, weight::WeightId},
};
use alloc::format;

/// A norm with the weights `NAME.weight` and, for layer norms, `NAME.bias` where the file has it.
///
/// Some files lack the suffix `.weight` of a few norms, so the tensor `NAME` is taken where there
/// is no `NAME.weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    name: &'static str,
    rule: Rule,
    eps: f32,
    groups: Groups,
    is_bare: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Rms,
    RmsAndBias,
    Layer,
}

/// The columns that are normalised together, and the length of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    Row,
    /// Groups of so many columns with one weight for all.
    Alike(usize),
    /// Groups of so many columns with weights of their own.
    Own(usize),
}

impl Norm {
    /// The root-mean-square norm of rows.
    pub const fn rms(name: &'static str, eps: f32) -> Self {
        Norm { name, rule: Rule::Rms, eps, groups: Groups::Row, is_bare: false }
    }

    /// The root-mean-square norm of rows, and then the bias `NAME.bias`.
    pub const fn rms_and_bias(name: &'static str, eps: f32) -> Self {
        Norm { rule: Rule::RmsAndBias, ..Self::rms(name, eps) }
    }

    /// The layer norm of rows: mean 0 and variance 1.
    pub const fn layer(name: &'static str, eps: f32) -> Self {
        Norm { rule: Rule::Layer, ..Self::rms(name, eps) }
    }

    /// The root-mean-square norm of each head of `d_head` columns, with one weight `[d_head]`.
    pub const fn heads(name: &'static str, eps: f32, d_head: usize) -> Self {
        Norm { groups: Groups::Alike(d_head), ..Self::rms(name, eps) }
    }

    /// The layer norm of each group of `group` columns, with weights of their own.
    pub const fn layer_groups(name: &'static str, eps: f32, group: usize) -> Self {
        Norm { groups: Groups::Own(group), ..Self::layer(name, eps) }
    }

    /// The root-mean-square norm of each group of `group` columns, with weights of their own.
    pub const fn groups(name: &'static str, eps: f32, group: usize) -> Self {
        Norm { groups: Groups::Own(group), ..Self::rms(name, eps) }
    }

    /// The norm without weights and bias.
    pub const fn bare(self) -> Self {
        Norm { is_bare: true, ..self }
    }
}

impl Builder<'_, '_> {
    /// Return `x` normalised.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn norm(&mut self, x: Value, norm: Norm) -> Result<Value, Error> {
        let weights = self.norm_weights(x, norm)?;
        let out = self.value(norm.name, self.width(x), self.rows(x));
        self.push_norm(x, norm, weights, out)?;
        Ok(out)
    }

    /// Normalise `x` in place.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn norm_in_place(&mut self, x: Value, norm: Norm) -> Result<(), Error> {
        let weights = self.norm_weights(x, norm)?;
        self.push_norm(x, norm, weights, x)
    }

    /// Normalise `x` in place if the file has the norm's weight; return true if it has.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn norm_if_there(&mut self, x: Value, norm: Norm) -> Result<bool, Error> {
        let is_there = self.has(&format!("{}.weight", norm.name));
        if is_there {
            self.norm_in_place(x, norm)?;
        }
        Ok(is_there)
    }

    /// Divide each row of `x` by its root mean square, in place and without a weight.
    pub fn plain_norm(&mut self, x: Value, eps: f32) {
        self.plain_norm_heads(x, eps, self.width(x));
    }

    /// Divide each head of `d_head` columns of `x` by its root mean square, in place and without a
    /// weight.
    pub fn plain_norm_heads(&mut self, x: Value, eps: f32, d_head: usize) {
        let kind = Kind::RmsNorm { eps, group: d_head };
        self.push(Step::new("rms_norm", kind).changing(x));
    }

    /// Return the weight and the bias of a norm, if it has any.
    fn norm_weights(&mut self, x: Value, norm: Norm) -> Result<[Option<WeightId>; 2], Error> {
        if norm.is_bare {
            return Ok([None, None]);
        }
        let width = self.width(x);
        let len = match norm.groups {
            Groups::Alike(group) => group,
            Groups::Row | Groups::Own(_) => width,
        };
        let name = format!("{}.weight", norm.name);
        let weight = match !self.has(&name) && self.has(norm.name) {
            true => self.vector(norm.name, len)?,
            false => self.vector(&name, len)?,
        };
        let bias = match norm.rule {
            Rule::Layer => self.optional_vector(&format!("{}.bias", norm.name), len)?,
            Rule::Rms | Rule::RmsAndBias => None,
        };
        Ok([Some(weight), bias])
    }

    fn push_norm(
        &mut self,
        x: Value,
        norm: Norm,
        weights: [Option<WeightId>; 2],
        out: Value,
    ) -> Result<(), Error> {
        let group = match norm.groups {
            Groups::Row => self.width(x),
            Groups::Alike(group) | Groups::Own(group) => group,
        };
        let step = match norm.rule {
            Rule::Rms | Rule::RmsAndBias => Step::new("rms_norm", Kind::RmsNorm { eps: norm.eps, group }),
            Rule::Layer => Step::new("layer_norm", Kind::LayerNorm { eps: norm.eps, group }),
        };
        self.push(step.reading([x]).writing([out]).using(weights.into_iter().flatten()));
        match norm.rule {
            Rule::RmsAndBias => self.bias(out, &format!("{}.bias", norm.name)),
            Rule::Rms | Rule::Layer => Ok(()),
        }
    }
}
