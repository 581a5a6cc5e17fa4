//! `backstitch state inspect`: show what a state file holds.
//!
//! Descriptions are read and checked, cells and states are not, so that large files are shown as
//! fast as small ones. The text of a state needs a vocabulary; everything else needs no model.

mod json;

use super::expect_fingerprint;
use crate::args::{InspectStateArgs, ModelArgs};
use crate::error::Error;
use crate::model;
use crate::output::{Output, bytes, counted, note, one_line, shorten};
use crate::saved::{self, rotation::long_fingerprint};
use backstitch_kv::rollback_cost::Kept;
use backstitch_kv::snapshot::{Group, Sees, Sequence};
use backstitch_kv::storage::{Codec, Container, Section};
use backstitch_kv::{CostRange, RollbackCost, Window};
use backstitch_models::vocab::WriteSpecial;
use backstitch_models::{SavedContext, SavedSequence};
use std::path::Path;

/// Run the command.
///
/// # Errors
/// - [`Error::State`] if the file cannot be read, or a description in it is damaged.
/// - [`Error::Refused`] if it is no saved state.
/// - [`Error::Engine`] if the model that `--text` needs cannot be loaded.
/// - [`Error::Terminal`] if the output fails.
pub fn run(args: &InspectStateArgs) -> Result<(), Error> {
    let file = saved::open(&args.path)?;
    let container = saved::container(&args.path, &file)?;
    let saved = saved::parse(&args.path, &container)?;
    let mut out = Output::new(args.json);
    if args.text {
        show_text(&mut out, args, &saved)?;
    } else if out.is_json() {
        out.serialize(&json::Report { path: &args.path, saved: &saved })?;
    } else {
        show(&mut out, &args.path, &saved, args.sections)?;
    }
    Ok(out.flush()?)
}

/// Print the texts of all sequences, each under its number if there are several.
fn show_text(out: &mut Output, args: &InspectStateArgs, saved: &SavedContext<'_>) -> Result<(), Error> {
    let (vocab, fingerprint) = model::vocab(&args.model)?;
    let fits = expect_fingerprint(&args.path, saved.container, &fingerprint, &args.model);
    if fits.is_err() && !is_of_long_context(&args.model, saved.container)? {
        return fits;
    }
    for sequence in &saved.sequences {
        if saved.sequences.len() > 1 {
            let heading = out.heading();
            out.line(format_args!("{heading}sequence {}{heading:#}", sequence.id))?;
        }
        if sequence.edited || sequence.start.0 > 0 {
            note("note", format_args!("not all tokens of sequence {} are known", sequence.id));
        }
        let text = vocab.detokenize(&sequence.tokens, WriteSpecial::No);
        out.stream(&String::from_utf8_lossy(&text))?;
        out.line("")?;
    }
    Ok(())
}

/// Return true if a state is one of this model in long contexts. Only the whole model says whether
/// it has another fingerprint there, so the weights are loaded.
fn is_of_long_context(args: &ModelArgs, container: &Container<'_>) -> Result<bool, Error> {
    let model = model::open(args, model::n_threads(None))?;
    Ok(*container.fingerprint() == long_fingerprint(&model))
}

/// Print the report: the file, its layers, its sequences and its sections.
fn show(out: &mut Output, path: &Path, saved: &SavedContext<'_>, all: bool) -> Result<(), Error> {
    let (heading, container) = (out.heading(), saved.container);
    let name = one_line(&path.display().to_string());
    let (scope, size) = (container.scope(), bytes(container.file_len()));
    out.text(format_args!("{heading}{name}{heading:#}: {scope}, {size}, format {}", container.version()), 6)?;
    out.text(format_args!("model {}", container.fingerprint()), 6)?;
    out.text(how_written(container), 6)?;
    out.line(format_args!("\n{heading}Layers{heading:#}"))?;
    list_layers(out, saved)?;
    out.line(format_args!("\n{heading}Sequences{heading:#}"))?;
    for (i, sequence) in saved.sequences.iter().enumerate() {
        list_sequence(out, saved, i, sequence)?;
    }
    list_beside(out, saved)?;
    out.line(format_args!("\n{heading}Sections{heading:#}"))?;
    if all { list_sections(out, container) } else { list_tags(out, container) }
}

/// Return how the file came about, and what of it does not count.
fn how_written(container: &Container<'_>) -> String {
    if container.is_stream() {
        return "written in one pass; saving to it again writes it anew".into();
    }
    let mut text = format!("saved {}", counted(container.generation() as usize, "time"));
    for (n, what) in
        [(container.waste(), "of older saves"), (container.uncommitted(), "of a save that did not end")]
    {
        if n > 0 {
            text.push_str(&format!(", {} {what}", bytes(n)));
        }
    }
    text
}

/// List the groups of layers: cells, then recurrent states.
fn list_layers(out: &mut Output, saved: &SavedContext<'_>) -> Result<(), Error> {
    let snapshot = saved.snapshot();
    for (group, blocks) in snapshot.shape.groups.iter().zip(&snapshot.blocks) {
        let cell: usize = group.layouts().map(|layout| layout.cell_bytes()).sum();
        out.text(
            format_args!(
                "attention over {}: {}, keys {}, values {}, {} a token, {}",
                sees(group),
                counted(group.layers.len(), "layer"),
                group.k_type.name(),
                group.v_type.name(),
                bytes(cell as u64),
                counted(blocks.len(), "block")
            ),
            6,
        )?;
    }
    if !snapshot.shape.recurrent.is_empty() {
        let (state, row) =
            snapshot.shape.pieces().fold((0, 0), |sum, piece| (sum.0 + piece.len, sum.1 + piece.input));
        out.text(
            format_args!(
                "recurrent: {}, {} a state, {} a journaled token, {}, {}",
                counted(snapshot.shape.recurrent.len(), "layer"),
                bytes(4 * state as u64),
                bytes(4 * row as u64),
                counted(snapshot.n_states as usize, "state"),
                counted(snapshot.journals.len(), "journal")
            ),
            6,
        )?;
    }
    Ok(())
}

/// Describe the positions that a group of layers attends to.
fn sees(group: &Group) -> String {
    match group.sees {
        Sees::All => "everything".into(),
        Sees::Window(Window::Sliding(n)) => format!("a window of {n}"),
        Sees::Window(Window::Chunked(n)) => format!("chunks of {n}"),
        Sees::Window(Window::Symmetric(n)) => format!("a window of {n} around it"),
        Sees::EncoderOutput => "an encoded text".into(),
    }
}

/// List a sequence: its positions and tokens, its checkpoints and the cost of rollbacks.
fn list_sequence(
    out: &mut Output,
    saved: &SavedContext<'_>,
    i: usize,
    sequence: &SavedSequence,
) -> Result<(), Error> {
    let SavedSequence { id, edited, foreign, start, tokens, logits, end, .. } = sequence;
    let n = counted(tokens.len(), "token");
    let known = if *edited { format!(", edited: {n} known from {start} on") } else { format!(", {n}") };
    let origin = if *foreign { ", from another engine or rounded" } else { "" };
    let positions = if end.0 > 0 { format!("positions up to {}", end.0 - 1) } else { "empty".into() };
    let logits = if logits.is_some() { "" } else { ", no logits" };
    out.text(format_args!("{id}: {positions}{known}{origin}{logits}"), 6)?;
    let Some(held) = saved.snapshot().sequences.get(i) else { return Ok(()) };
    for (group, cells) in saved.snapshot().shape.groups.iter().zip(&held.cells) {
        if cells.whole_from.0 > 0 {
            let from = cells.whole_from.0;
            out.text(
                format_args!("   cells over {}: {} from position {from} on", sees(group), cells.len()),
                6,
            )?;
        }
    }
    if !held.checkpoints.is_empty() {
        out.text(format_args!("   checkpoints: {}", checkpoints(saved, held)), 6)?;
    }
    let costs = Kept::of(saved.snapshot(), i).map(|kept| kept.costs());
    for line in costs.iter().flat_map(|costs| rollback_costs(costs)) {
        out.text(format_args!("   {line}"), 6)?;
    }
    Ok(())
}

/// Return the checkpoints of a sequence, with what makes them stay.
fn checkpoints(saved: &SavedContext<'_>, held: &Sequence) -> String {
    let one = |held: &backstitch_kv::snapshot::CheckpointRef| {
        let checkpoint = saved.snapshot().checkpoints.get(held.checkpoint as usize);
        let pinned = if checkpoint.is_some_and(|checkpoint| checkpoint.pinned) { " (pinned)" } else { "" };
        let rows = if held.n_rows > 0 { format!(" (journal of {})", held.n_rows) } else { String::new() };
        format!("{}{pinned}{rows}", held.pos.0)
    };
    held.checkpoints.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Return a line for each kind of rollback cost: the positions that are reached at once, those that
/// are reached by replay, and the most tokens that a rollback to any other re-evaluates.
fn rollback_costs(ranges: &[CostRange]) -> Vec<String> {
    let of = |cost: RollbackCost| ranges.iter().filter(move |range| range.cost == cost);
    let ranges = |cost: RollbackCost| {
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for range in of(cost) {
            let (first, last) = (range.positions.start.0, range.positions.end.0 - 1);
            match ranges.last_mut() {
                Some(before) if before.1 + 1 == first => before.1 = last,
                _ => ranges.push((first, last)),
            }
        }
        let text = |&(first, last): &(i32, i32)| {
            if first == last { first.to_string() } else { format!("{first} to {last}") }
        };
        ranges.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    let cost = |range: &CostRange| range.positions.end.0 - 1 - range.restored_from.0;
    let mut lines = vec![format!("rolls back at once to {}", ranges(RollbackCost::Held))];
    if of(RollbackCost::Replayed).next().is_some() {
        lines.push(format!("replays recurrences to {}", ranges(RollbackCost::Replayed)));
    }
    if let Some(most) = of(RollbackCost::Reevaluated).map(cost).max() {
        lines
            .push(format!("re-evaluates at most {} to roll back elsewhere", counted(most as usize, "token")));
    }
    lines
}

/// List what a file holds beside sequences: a sampler, and metadata of the program that saved it.
fn list_beside(out: &mut Output, saved: &SavedContext<'_>) -> Result<(), Error> {
    if let Some(sampler) = saved.sampler() {
        let n = counted(sampler.tokens.len(), "token");
        out.text(format_args!("sampler: seed {}, {n} remembered", sampler.seed), 6)?;
    }
    if !saved.metadata.is_empty() {
        let text: String = String::from_utf8_lossy(&saved.metadata).chars().take(200).collect();
        let n = bytes(saved.metadata.len() as u64);
        out.text(format_args!("metadata: {n}: {}", shorten(&one_line(&text))), 6)?;
    }
    Ok(())
}

/// List the sections, a line for each tag.
fn list_tags(out: &mut Output, container: &Container<'_>) -> Result<(), Error> {
    let mut rows = vec![["tag", "sections", "content", "stored", "codec"].map(String::from).to_vec()];
    let sections: Vec<&Section> = container.sections().collect();
    for of_tag in sections.chunk_by(|a, b| a.tag == b.tag) {
        let sum =
            |of: fn(&Section) -> u64| of_tag.iter().map(|section| of(section)).fold(0, u64::saturating_add);
        let mut codecs: Vec<_> = of_tag.iter().map(|section| section.codec).collect();
        codecs.sort_unstable();
        codecs.dedup();
        rows.push(vec![
            of_tag.first().map_or(String::new(), |section| section.tag.to_string()),
            of_tag.len().to_string(),
            bytes(sum(|section| section.raw_len)),
            bytes(sum(|section| section.stored_len)),
            codecs.into_iter().map(codec).collect::<Vec<_>>().join(" "),
        ]);
    }
    Ok(out.table(&rows)?)
}

/// List every section.
fn list_sections(out: &mut Output, container: &Container<'_>) -> Result<(), Error> {
    let head = ["tag", "index", "version", "offset", "content", "stored", "codec"].map(String::from).to_vec();
    let row = |section: &Section| {
        vec![
            section.tag.to_string(),
            section.index.to_string(),
            section.version.to_string(),
            section.offset.to_string(),
            section.raw_len.to_string(),
            section.stored_len.to_string(),
            codec(section.codec),
        ]
    };
    Ok(out.table(&std::iter::once(head).chain(container.sections().map(row)).collect::<Vec<_>>())?)
}

/// Return the name of a codec, or its number if it is unknown here.
fn codec(codec: Codec) -> String {
    match codec {
        Codec::RAW => "raw".into(),
        Codec::ZSTD => "zstd".into(),
        Codec::SHUFFLED_ZSTD => "shuffled-zstd".into(),
        Codec(number) => number.to_string(),
    }
}
