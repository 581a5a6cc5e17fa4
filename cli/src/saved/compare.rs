//! Differences between two saved states, sequence by sequence, with the first place of each kind.
//!
//! States are compared by content. The number of saves, the order of sections and the blocks in
//! which cells lie are accidents of how a state came about, and never differences.

use super::cells::{self, Place, Side};
use backstitch_kv::snapshot::{Group, Sequence, Shape, Source};
use backstitch_kv::storage::Error;
use backstitch_models::{SavedContext, SavedSequence};

/// A difference between two states, A and B.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Kind of the difference: "model", "scope", "layers", "sequences", "tokens", "cells", "state",
    /// "rollback costs", "logits", "sampler" or "metadata".
    pub what: &'static str,
    /// Id of the sequence, unless the difference concerns all.
    pub sequence: Option<u32>,
    /// First token, counted from 0, or first position that differs.
    pub at: Option<u64>,
    /// Description for people.
    pub text: String,
}

/// Make a difference that concerns all sequences.
fn of_all(what: &'static str, text: String) -> Difference {
    Difference { what, sequence: None, at: None, text }
}

/// List the differences between `a` and `b`, the most important first; none if they are the same
/// state. The number of times that they were saved does not matter, nor in which blocks cells lie.
///
/// # Errors
/// The [`Error`] of reading cells or states, if one of the files is damaged;
/// [`Error::OutOfMemory`] for layers that are larger than the memory.
pub fn compare(a: &SavedContext<'_>, b: &SavedContext<'_>) -> Result<Vec<Difference>, Error> {
    let mut found = Vec::new();
    let (header_a, header_b) = (a.container.header(), b.container.header());
    if header_a.fingerprint != header_b.fingerprint {
        let text = format!("model {} in A, {} in B", header_a.fingerprint, header_b.fingerprint);
        found.push(of_all("model", text));
    }
    if header_a.scope != header_b.scope {
        found.push(of_all("scope", format!("A holds {}, B {}", header_a.scope, header_b.scope)));
    }
    let shapes = shapes(&a.snapshot().shape, &b.snapshot().shape);
    let same_shape = shapes.is_none();
    found.extend(shapes.map(|text| of_all("layers", text)));
    sequences(a, b, same_shape, &mut found)?;
    let sampler = |saved: &SavedContext<'_>| {
        let first = saved.sequences.first()?;
        Some((first.sampler.clone()?, first.trail.clone()))
    };
    if sampler(a) != sampler(b) {
        found.push(of_all("sampler", samplers(a, b)));
    }
    if a.metadata != b.metadata {
        found.push(of_all(
            "metadata",
            format!("{} bytes in A, {} in B, not the same", a.metadata.len(), b.metadata.len()),
        ));
    }
    Ok(found)
}

/// Describe how the layers differ; none if they are alike.
fn shapes(a: &Shape, b: &Shape) -> Option<String> {
    if a == b {
        return None;
    }
    let (n_a, n_b) = (a.groups.len(), b.groups.len());
    if n_a != n_b {
        return Some(format!("{n_a} kinds of attention in A, {n_b} in B"));
    }
    let differs = a.groups.iter().zip(&b.groups).find(|(a, b)| a != b);
    Some(match differs {
        Some((a, b)) => format!("attention over {} in A, over {} in B", group(a), group(b)),
        None => "recurrent states of other sizes".into(),
    })
}

/// Describe a group of layers with attention.
fn group(group: &Group) -> String {
    let (n, k, v) = (group.layers.len(), group.k_type.name(), group.v_type.name());
    let layers = if n == 1 { "layer" } else { "layers" };
    format!("{:?} in {n} {layers} of keys {k}, values {v}", group.sees)
}

/// Describe how the samplers differ.
fn samplers(a: &SavedContext<'_>, b: &SavedContext<'_>) -> String {
    match (a.sampler(), b.sampler()) {
        (Some(a), Some(b)) if a.seed != b.seed => format!("seed {} in A, {} in B", a.seed, b.seed),
        (Some(_), Some(_)) => "random numbers or remembered tokens stand elsewhere".into(),
        (Some(_), None) => "only A has one".into(),
        _ => "only B has one".into(),
    }
}

/// Return the sequences of a state.
fn sides<'a>(saved: &'a SavedContext<'a>) -> impl Iterator<Item = Side<'a>> {
    saved.sequences.iter().zip(&saved.snapshot().sequences).map(move |(own, held)| Side { saved, held, own })
}

/// Compare the sequences, matched by id.
fn sequences(
    a: &SavedContext<'_>,
    b: &SavedContext<'_>,
    same_shape: bool,
    found: &mut Vec<Difference>,
) -> Result<(), Error> {
    for one in sides(a) {
        match sides(b).find(|other| other.own.id == one.own.id) {
            Some(other) => sequence(one, other, same_shape, found)?,
            None => found.push(of_all("sequences", format!("sequence {} is in A only", one.own.id))),
        }
    }
    for other in sides(b).filter(|other| sides(a).all(|one| one.own.id != other.own.id)) {
        found.push(of_all("sequences", format!("sequence {} is in B only", other.own.id)));
    }
    Ok(())
}

/// Compare a sequence of A with that of B.
fn sequence(a: Side<'_>, b: Side<'_>, same_shape: bool, found: &mut Vec<Difference>) -> Result<(), Error> {
    let mut push = |what, difference: Option<Place>| {
        let sequence = Some(a.own.id);
        found.extend(difference.map(|(at, text)| Difference { what, sequence, at, text }));
    };
    push("tokens", tokens(a.own, b.own));
    if same_shape {
        push("cells", cells::compare(a, b)?);
        push("state", states(a, b)?);
        push("rollback costs", checkpoints(a.held, b.held));
    }
    let bits = |own: &SavedSequence| -> Option<Vec<u32>> {
        own.logits.as_ref().map(|logits| logits.iter().map(|x| x.to_bits()).collect())
    };
    if bits(a.own) != bits(b.own) {
        let text = match (&a.own.logits, &b.own.logits) {
            (Some(_), Some(_)) => "the logits after the last token differ",
            (Some(_), None) => "only A has the logits after the last token",
            _ => "only B has the logits after the last token",
        };
        push("logits", Some((None, text.into())));
    }
    Ok(())
}

/// Compare the tokens of a sequence.
fn tokens(a: &SavedSequence, b: &SavedSequence) -> Option<Place> {
    if a.start != b.start || a.edited != b.edited {
        return Some((None, format!("known from position {} on in A, from {} on in B", a.start, b.start)));
    }
    if let Some((at, (in_a, in_b))) =
        (0..).zip(a.tokens.iter().zip(b.tokens.iter())).find(|(_, (a, b))| a != b)
    {
        return Some((Some(at), format!("token {at} is {} in A, {} in B", in_a.0, in_b.0)));
    }
    let (n_a, n_b) = (a.tokens.len(), b.tokens.len());
    let at = n_a.min(n_b);
    let text = format!("the same up to token {at}, where one ends: {n_a} tokens in A, {n_b} in B");
    (n_a != n_b).then_some((Some(at as u64), text))
}

/// Compare the recurrent states after the last token, bit for bit.
fn states(a: Side<'_>, b: Side<'_>) -> Result<Option<Place>, Error> {
    let number = |side: Side<'_>| side.held.state.and_then(|state| state.state);
    let (in_a, in_b) = match (number(a), number(b)) {
        (Some(in_a), Some(in_b)) => (load(a.saved, in_a)?, load(b.saved, in_b)?),
        (None, None) => return Ok(None),
        _ => return Ok(Some((None, "only one of them has a recurrent state".into()))),
    };
    let layers = a.saved.snapshot().shape.recurrent.iter();
    let layers = layers.flat_map(|layer| layer.parts.iter().map(|_| layer.layer));
    for ((layer, tensor_a), tensor_b) in layers.zip(&in_a).zip(&in_b) {
        let pairs = tensor_a.iter().zip(tensor_b).enumerate();
        let mut differing = pairs.filter(|(_, (x, y))| x.to_bits() != y.to_bits());
        if let Some((at, (x, y))) = differing.next() {
            let (n, len) = (1 + differing.count(), tensor_a.len());
            let text = format!("layer {layer}: number {at} is {x} in A, {y} in B ({n} of {len} differ)");
            return Ok(Some((None, text)));
        }
    }
    Ok(None)
}

/// Read all tensors of a recurrent state.
fn load(saved: &SavedContext<'_>, state: u32) -> Result<Vec<Vec<f32>>, Error> {
    let tensors = saved.snapshot().shape.pieces().map(|tensor| cells::zeros(tensor.len));
    let mut tensors: Vec<Vec<f32>> = tensors.collect::<Result<_, _>>()?;
    let mut targets: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
    saved.memory.fill_state(state as usize, &mut targets)?;
    Ok(tensors)
}

/// Compare the checkpoints of a sequence: they determine the rollback costs.
fn checkpoints(a: &Sequence, b: &Sequence) -> Option<Place> {
    let list = |sequence: &Sequence| {
        sequence.checkpoints.iter().map(|checkpoint| (checkpoint.pos, checkpoint.n_rows)).collect()
    };
    let (in_a, in_b): (Vec<_>, Vec<_>) = (list(a), list(b));
    let (n_a, n_b) = (in_a.len(), in_b.len());
    let other = (0..n_a.max(n_b)).find(|&i| in_a.get(i) != in_b.get(i))?;
    let first = in_a.get(other).into_iter().chain(in_b.get(other)).map(|checkpoint| checkpoint.0).min();
    let at = first.and_then(|pos| u64::try_from(pos.0).ok());
    let from = at.map_or(String::new(), |at| format!(", other ones from position {at} on"));
    Some((at, format!("{n_a} checkpoints in A, {n_b} in B{from}")))
}
