//! Embeddings, element by element operations, and the outputs of the graph.

use super::Builder;
use crate::{
    error::Error,
    graph::{
        computation::Head,
        kind::{Activation, Columns, Kind, RowOf, Temperature},
        step::Step,
        value::{Rows, Value, quantized_width},
    },
};

/// A table of which each token gets a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedTable<'n> {
    /// Name of the tensor, `[n_rows, width]`.
    pub name: &'n str,
    /// Rows of the table.
    pub n_rows: usize,
    /// Columns of the table.
    pub width: usize,
    /// The row that a token gets.
    pub by: RowOf,
    /// Factor of the rows.
    pub scale: f32,
}

/// One of the values of [`Builder::join`].
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Columns for each group.
    Each(Value),
    /// Columns that all groups share.
    Same(Value),
}

impl Builder<'_, '_> {
    /// Return a row of `table` for each token.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn embed(&mut self, table: EmbedTable<'_>) -> Result<Value, Error> {
        let EmbedTable { name, n_rows, width, by, scale } = table;
        let weight = self.matrix(name, n_rows, width)?;
        let out = self.value("x", width, Rows::Tokens);
        self.push(Step::new("embed", Kind::Embed { by, scale }).writing([out]).using([weight]));
        Ok(out)
    }

    /// Change `x` to `activation(x)`.
    pub fn activate(&mut self, activation: Activation, x: Value) {
        self.push(Step::new("activate", Kind::Activate(activation)).changing(x));
    }

    /// Change `up` to `activation(gate) * up`, and return it. `gate` is as wide as `up`, or has one
    /// column for all of it.
    pub fn gate(&mut self, activation: Activation, gate: Value, up: Value) -> Value {
        self.push(Step::new("gate", Kind::Gate(activation)).reading([gate]).changing(up));
        up
    }

    /// Change `x` to `x * factor`.
    pub fn scale(&mut self, x: Value, factor: f32) {
        self.push(Step::new("scale", Kind::Scale { factor }).changing(x));
    }

    /// Change `x` to `x * factor` in front of the scores of the vocabulary; where embeddings are
    /// asked for in their place, `x` stays.
    pub fn scale_for_logits(&mut self, x: Value, factor: f32) {
        self.push(Step::new("scale", Kind::ScaleForLogits { factor }).changing(x));
    }

    /// Change `x` by the factor that the tensor `name` holds, if the file has it.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn scale_by_weight(&mut self, x: Value, name: &str) -> Result<(), Error> {
        if let Some(weight) = self.optional_vector(name, 1)? {
            self.push(Step::new("scale", Kind::Scale { factor: 1.0 }).changing(x).using([weight]));
        }
        Ok(())
    }

    /// Change each row of `x` by the factor of its token's position.
    pub fn scale_by_position(&mut self, x: Value, temperature: Temperature) {
        self.push(Step::new("temperature", Kind::ScaleByPosition(temperature)).changing(x));
    }

    /// Change `x` to what of it lies between `-limit` and `limit`, or to the nearer of both.
    pub fn clamp(&mut self, x: Value, limit: f32) {
        self.push(Step::new("clamp", Kind::Clamp { limit }).changing(x));
    }

    /// Change `x` to `x + y`.
    pub fn add(&mut self, x: Value, y: Value) {
        self.push(Step::new("add", Kind::Add).changing(x).reading([y]));
    }

    /// Change `x` to `x * y`, element by element.
    pub fn mul(&mut self, x: Value, y: Value) {
        self.push(Step::new("mul", Kind::Mul).changing(x).reading([y]));
    }

    /// Add the vector `name` to each row of `x`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn bias(&mut self, x: Value, name: &str) -> Result<(), Error> {
        let bias = self.vector(name, self.width(x))?;
        self.push(Step::new("bias", Kind::Bias { first: 0 }).changing(x).using([bias]));
        Ok(())
    }

    /// Return some columns of every group of columns of `x`.
    pub fn columns(&mut self, name: &'static str, x: Value, columns: Columns) -> Value {
        let n_group = self.width(x) / columns.group.max(1);
        let out = self.value(name, n_group * columns.n, self.rows(x));
        self.push(Step::new("columns", Kind::Columns(columns)).reading([x]).writing([out]));
        out
    }

    /// Return the columns of two values in turns: of each of `n_groups` groups first those of the
    /// one, then those of the other.
    pub fn join(&mut self, name: &'static str, n_groups: usize, parts: [Part; 2]) -> Value {
        let width = |part| match part {
            Part::Each(value) => self.width(value) / n_groups.max(1),
            Part::Same(value) => self.width(value),
        };
        let [n_x, n_y] = parts.map(width);
        let [x, y] = parts.map(|(Part::Each(value) | Part::Same(value))| value);
        let out = self.value(name, n_groups * (n_x + n_y), self.rows(x));
        self.push(Step::new("join", Kind::Join { n_groups, n_x }).reading([x, y]).writing([out]));
        out
    }

    /// Keep only the tokens whose output is wanted, behind the last layer's mixing of tokens: if
    /// `is_last`, return the rows of those tokens, else the values as they are. All that follows
    /// costs nothing for other tokens.
    pub fn last_outputs<const N: usize>(&mut self, is_last: bool, values: [Value; N]) -> [Value; N] {
        if is_last { values.map(|x| self.outputs(x)) } else { values }
    }

    /// Return the rows of `x` whose output is wanted.
    pub fn outputs(&mut self, x: Value) -> Value {
        let name = self.graph.values.get(x.0 as usize).map_or("outputs", |info| info.name);
        let out = self.value(name, self.width(x), Rows::Outputs);
        self.push(Step::new("outputs", Kind::SelectOutputs).reading([x]).writing([out]));
        out
    }

    /// End the graph with the scores of the vocabulary: `x` times `output.weight` or, where the
    /// file has none, times the embeddings. With `soft_cap` they become `cap * tanh(score / cap)`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::Shape`], [`Error::NotWeights`] or [`Error::PackedRows`].
    pub fn logits(&mut self, x: Value, n_vocab: usize, soft_cap: Option<f32>) -> Result<(), Error> {
        let n_embd = self.width(x);
        let name = if self.has("output.weight") { "output.weight" } else { "token_embd.weight" };
        let head = self.matrix(name, n_vocab, n_embd)?;
        let width = if self.takes_quantized(head) { quantized_width(n_embd) } else { 0 };
        let room = self.value("q8", width, self.rows(x));
        let step = Step::new("logits", Kind::Logits { soft_cap });
        let bias = self.optional_vector("output.bias", n_vocab)?;
        self.push(step.reading([x]).writing([room]).using([head]).using(bias));
        self.graph.head = Head::Logits;
        Ok(())
    }

    /// End the graph with the rows of `x` themselves: the embeddings of the tokens.
    pub fn embeddings(&mut self, x: Value) {
        self.push(Step::new("embeddings", Kind::Embeddings).reading([x]));
        self.graph.head = Head::Embeddings;
    }
}
