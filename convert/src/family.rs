//! The architectures: what each class of `config.json` becomes.
//!
//! A [`Family`] is a row of tables: names of tensors, edits of some of them, functions for what
//! tables cannot say. The files below hold the rows; a new architecture is a new row.

mod bert;
mod classic;
mod cohere;
mod deepseek;
mod edits;
mod gemma;
mod glm;
mod gpt_oss;
mod granite;
mod hybrid;
mod lfm2;
mod llama;
mod mamba;
mod phi;
mod plamo;
mod qwen;
mod qwen_linear;
mod rwkv;
mod standard;
mod t5;

use crate::config::Config;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::names::{Name, Names};
use crate::plan::Tensors;
use crate::tensor::Tensor;
use crate::vocab::Style;

/// The tensor that an edit changes.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    /// Numbers of the model.
    pub config: &'a Config,
    /// Number of the layer; 0 outside of layers.
    pub layer: usize,
}

/// Tensors with their names in the new file.
pub(crate) type Named = Vec<(&'static str, Tensor)>;

/// A change between the checkpoint and the new file.
#[derive(Clone, Copy)]
pub(crate) enum Edit {
    /// The tensor becomes another one.
    Each(fn(At<'_>, Tensor) -> Result<Tensor, Error>),
    /// The tensor becomes another one, and its new name has no ending.
    Bare(fn(At<'_>, Tensor) -> Result<Tensor, Error>),
    /// The tensor becomes several, with these names.
    Parts(fn(At<'_>, Tensor) -> Result<Named, Error>),
    /// The tensor is left out.
    Drop,
}

/// An architecture, or several that only differ by name.
pub(crate) struct Family {
    /// Names of the class in `config.json`.
    pub classes: &'static [&'static str],
    /// Name of the architecture in GGUF.
    pub architecture: &'static str,
    /// Condition on the numbers, for classes that have several architectures.
    pub when: fn(&Config) -> bool,
    /// Corrects the numbers before they are used.
    pub prepare: fn(&mut Config) -> Result<(), Error>,
    /// Keys of the new file.
    pub metadata: fn(&Config, &mut Metadata) -> Result<(), Error>,
    /// Renames a tensor of the checkpoint, or leaves it out.
    pub rename: fn(&Config, String) -> Option<String>,
    /// Combines tensors before they get their new names.
    pub merge: fn(&Config, &mut Tensors) -> Result<(), Error>,
    /// Tables of names; the first that has a path decides.
    pub names: &'static [Names],
    /// Edits by new name, without layer and ending; `*x` means names that end with `x`.
    pub edits: &'static [(&'static str, Edit)],
    /// Tensors that the checkpoint does not have.
    pub extra: fn(&Config) -> Result<Named, Error>,
    /// Counts the tokens of the vocabulary's files as [`KNOWN_TOKENS`] of the numbers.
    pub counts_tokens: bool,
    /// Takes from `tokenizer_config.json` if a space is put before texts.
    pub notes_prefix: bool,
    /// Takes the kind of pooling from `modules.json`.
    pub pools: bool,
    /// Leaves the output matrix out if it equals the embedding.
    pub drops_tied_output: bool,
    /// Kinds of vocabulary, in the order in which they are looked for.
    pub vocabulary: &'static [Style],
    /// Corrects the keys of the vocabulary.
    pub after_vocabulary: fn(&Config, &mut Metadata) -> Result<(), Error>,
}

/// Number of tokens that the vocabulary's files name.
pub(crate) const KNOWN_TOKENS: &str = "known tokens";

/// A family without peculiarities, from which the rows start.
const PLAIN: Family = Family {
    classes: &[],
    architecture: "",
    when: |_| true,
    prepare: |_| Ok(()),
    metadata: standard::metadata,
    rename: |_, name| Some(name),
    merge: |_, _| Ok(()),
    names: &[],
    edits: &[],
    extra: |_| Ok(Vec::new()),
    counts_tokens: false,
    notes_prefix: false,
    pools: false,
    drops_tied_output: false,
    vocabulary: &[Style::Bpe],
    after_vocabulary: |_, _| Ok(()),
};

/// All rows.
const FAMILIES: &[&[Family]] = &[
    llama::FAMILIES,
    qwen::FAMILIES,
    qwen_linear::FAMILIES,
    gemma::FAMILIES,
    phi::FAMILIES,
    classic::FAMILIES,
    cohere::FAMILIES,
    glm::FAMILIES,
    granite::FAMILIES,
    deepseek::FAMILIES,
    gpt_oss::FAMILIES,
    lfm2::FAMILIES,
    mamba::FAMILIES,
    hybrid::FAMILIES,
    plamo::FAMILIES,
    rwkv::FAMILIES,
    bert::FAMILIES,
    t5::FAMILIES,
];

impl Family {
    /// Find the family of a model.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`] if no family has the class, [`Error::Key`] if none is named.
    pub fn of(config: &Config) -> Result<&'static Self, Error> {
        let class = config.class()?;
        let mut families = FAMILIES.iter().copied().flatten();
        let found = families.find(|family| family.classes.contains(&class) && (family.when)(config));
        found.ok_or_else(|| Error::UnknownArchitecture { found: class.into(), nearest: nearest(class) })
    }

    /// Apply the names and edits to a tensor.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] for a name that the architecture does not have, [`Error::Tensor`]
    /// for a shape that does not fit.
    pub fn convert(
        &self,
        config: &Config,
        name: &Name,
        tensor: Tensor,
    ) -> Result<Vec<(String, Tensor)>, Error> {
        let unknown =
            || Error::UnknownTensor { tensor: tensor.name().into(), architecture: self.architecture };
        let new = name.mapped(self.names).ok_or_else(unknown)?;
        let at = At { config, layer: name.layer.unwrap_or(0) };
        let whole = |new: &str| Name::whole(name.layer.filter(|_| new != "rope_freqs"), new, name.ending);
        let matches = |pattern: &str| match pattern.strip_prefix('*') {
            Some(end) => new.ends_with(end),
            None => new == pattern,
        };
        let edit = self.edits.iter().find(|row| matches(row.0)).map(|row| row.1);
        Ok(match edit {
            None => vec![(whole(new), tensor)],
            Some(Edit::Each(edit)) => vec![(whole(new), edit(at, tensor)?)],
            Some(Edit::Bare(edit)) => vec![(Name::whole(name.layer, new, ""), edit(at, tensor)?)],
            Some(Edit::Parts(edit)) => {
                edit(at, tensor)?.into_iter().map(|(new, part)| (whole(new), part)).collect()
            }
            Some(Edit::Drop) => Vec::new(),
        })
    }
}

/// Return all classes that can be converted, with the names of their architectures.
pub fn classes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let families = FAMILIES.iter().copied().flatten();
    families.flat_map(|family| family.classes.iter().map(|class| (*class, family.architecture)))
}

/// Return the known class whose name takes the fewest edits, if it is at all alike.
fn nearest(class: &str) -> Option<&'static str> {
    // Longer names are no classes, and comparing them takes long.
    let class: String = class.chars().take(80).collect();
    let closest = classes().map(|(known, _)| (distance(&class, known), known)).min()?;
    (closest.0 * 2 < class.chars().count().max(8)).then_some(closest.1)
}

/// Return the number of characters to insert, remove or replace between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((j, y), pair) in b.iter().enumerate().zip(row.windows(2)) {
            let (Some(&diagonal), Some(&above)) = (pair.first(), pair.get(1)) else { break };
            let left = next.get(j).copied().unwrap_or(0);
            next.push((diagonal + usize::from(x != *y)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_unknown_class_is_named_beside_the_nearest() {
        let of = |text: &str| Config::parse(Path::new("config.json"), text.as_bytes()).unwrap();
        let error = Family::of(&of(r#"{"architectures": ["Qwen33ForCausalLM"]}"#)).err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("\"Qwen33ForCausalLM\" are unknown; the nearest known one is \"Qwen"),
            "{text}"
        );
        let error = Family::of(&of(r#"{"architectures": ["CLIP"]}"#)).err().unwrap();
        assert!(error.to_string().ends_with("unknown"), "{error}");
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn no_class_stands_in_two_rows_without_a_condition() {
        let mut seen: Vec<&str> = Vec::new();
        for (class, _) in classes() {
            let rows = FAMILIES.iter().copied().flatten().filter(|family| family.classes.contains(&class));
            let always = (|_| true) as fn(&Config) -> bool;
            let unconditional = rows.filter(|family| std::ptr::fn_addr_eq(family.when, always)).count();
            seen.push(class);
            assert!(unconditional <= 1, "{class}");
        }
        assert!(seen.len() > 50);
    }
}
