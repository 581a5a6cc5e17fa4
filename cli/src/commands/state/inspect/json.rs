//! The content of a state file as JSON, for programs. Names of fields are an interface: they stay.
//!
//! Lists are written entry by entry: a list of tokens that many sequences share is in memory once,
//! but many times in the text.

use super::codec;
use backstitch_kv::rollback_cost::Kept;
use backstitch_kv::snapshot::{Checkpoint, Group, Sees, StateLayer};
use backstitch_kv::storage::{Scope, Section};
use backstitch_kv::{CostRange, RollbackCost, Window};
use backstitch_models::{SavedContext, SavedSequence};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use std::path::Path;

/// Everything that the descriptions of a file say, without cells and states.
pub struct Report<'a> {
    pub path: &'a Path,
    pub saved: &'a SavedContext<'a>,
}

/// A list whose entries are made while it is written, one at a time.
struct List<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for List<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Report { path, saved } = *self;
        let (container, snapshot) = (saved.container, saved.snapshot());
        let groups = || snapshot.shape.groups.iter().zip(&snapshot.blocks);
        let sampler = saved.sampler();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("path", &path.display().to_string())?;
        map.serialize_entry("bytes", &container.file_len())?;
        map.serialize_entry("format", &container.version())?;
        let scope = match container.scope() {
            Scope::Context => "context",
            Scope::Sequence => "sequence",
            Scope::Entry => "entry",
        };
        map.serialize_entry("scope", scope)?;
        map.serialize_entry("fingerprint", &container.fingerprint().to_string())?;
        map.serialize_entry("stream", &container.is_stream())?;
        map.serialize_entry("generation", &container.generation())?;
        map.serialize_entry("committed_bytes", &container.committed_len())?;
        map.serialize_entry("uncommitted_bytes", &container.uncommitted())?;
        map.serialize_entry("waste_bytes", &container.waste())?;
        let groups = List(|| groups().map(|(group, blocks)| as_group(group, blocks.len())));
        map.serialize_entry("groups", &groups)?;
        map.serialize_entry("recurrent", &List(|| snapshot.shape.recurrent.iter().map(as_recurrent)))?;
        map.serialize_entry("n_states", &snapshot.n_states)?;
        map.serialize_entry("journals", &snapshot.journals)?;
        map.serialize_entry("checkpoints", &List(|| snapshot.checkpoints.iter().map(as_checkpoint)))?;
        let sequences = || saved.sequences.iter().enumerate();
        let sequences = List(|| sequences().map(|(i, own)| SequenceReport { saved, i, own }));
        map.serialize_entry("sequences", &sequences)?;
        let sampler =
            sampler.map(|sampler| json!({ "seed": sampler.seed, "n_tokens": sampler.tokens.len() }));
        map.serialize_entry("sampler", &sampler)?;
        map.serialize_entry("metadata_bytes", &saved.metadata.len())?;
        map.serialize_entry("sections", &List(|| container.sections().map(as_section)))?;
        map.end()
    }
}

/// Return a group of layers with attention, and the number of its blocks.
fn as_group(group: &Group, n_blocks: usize) -> Value {
    let (sees, window) = match group.sees {
        Sees::All => ("all", None),
        Sees::Window(Window::Sliding(n)) => ("window", Some(n)),
        Sees::Window(Window::Chunked(n)) => ("chunk", Some(n)),
        Sees::Window(Window::Symmetric(n)) => ("around", Some(n)),
        Sees::EncoderOutput => ("text", None),
    };
    let layers = group.layers.iter().map(|layer| {
        json!({ "layer": layer.layer, "n_head_kv": layer.n_head_kv, "d_k": layer.d_k, "d_v": layer.d_v })
    });
    json!({
        "sees": sees,
        "window": window,
        "k_type": group.k_type.name(),
        "v_type": group.v_type.name(),
        "n_blocks": n_blocks,
        "layers": layers.collect::<Vec<_>>(),
    })
}

/// Return a layer with a recurrent state: the lengths of its state tensors and of their inputs.
fn as_recurrent(layer: &StateLayer) -> Value {
    let parts = layer.parts.iter().map(|part| json!({ "state": part.len, "input": part.input }));
    json!({ "layer": layer.layer, "parts": parts.collect::<Vec<_>>() })
}

/// Return a checkpoint. Journal and state are indices into those of the file.
fn as_checkpoint(checkpoint: &Checkpoint) -> Value {
    json!({
        "pinned": checkpoint.pinned,
        "floor": checkpoint.floor,
        "journal": checkpoint.journal,
        "state": checkpoint.state.and_then(|state| state.state),
    })
}

/// A sequence: its tokens, its cells in each group, its checkpoints and rollback costs.
struct SequenceReport<'a> {
    saved: &'a SavedContext<'a>,
    i: usize,
    own: &'a SavedSequence,
}

impl Serialize for SequenceReport<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let SequenceReport { saved, i, own } = *self;
        let held = saved.snapshot().sequences.get(i);
        let cells = || held.into_iter().flat_map(|held| &held.cells);
        let checkpoints = || held.into_iter().flat_map(|held| &held.checkpoints);
        let positions = Kept::of(saved.snapshot(), i).map(|kept| kept.costs());
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("id", &own.id)?;
        map.serialize_entry("end", &own.end.0)?;
        map.serialize_entry("edited", &own.edited)?;
        map.serialize_entry("foreign", &own.foreign)?;
        map.serialize_entry("start", &own.start.0)?;
        map.serialize_entry("tokens", &List(|| own.tokens.iter().map(|token| token.0)))?;
        map.serialize_entry("has_logits", &own.logits.is_some())?;
        let cells =
            List(|| cells().map(|cells| json!({ "n": cells.len(), "whole_from": cells.whole_from.0 })));
        map.serialize_entry("cells", &cells)?;
        let checkpoints = List(|| {
            checkpoints().map(
                |held| json!({ "position": held.pos.0, "checkpoint": held.checkpoint, "journaled": held.n_rows }),
            )
        });
        map.serialize_entry("line", &checkpoints)?;
        let positions = positions.as_ref().map(|ranges| List(|| ranges.iter().map(as_cost_range)));
        map.serialize_entry("positions", &positions)?;
        map.end()
    }
}

/// Return a range of positions with one kind of rollback cost. Both ends belong to it.
fn as_cost_range(range: &CostRange) -> Value {
    let cost = match range.cost {
        RollbackCost::Held => "at once",
        RollbackCost::Replayed => "replayed",
        _ => "reevaluated",
    };
    json!({
        "first": range.positions.start.0,
        "last": range.positions.end.0 - 1,
        "restored_from": range.restored_from.0,
        "cost": cost,
    })
}

/// Return a section with its place in the file.
fn as_section(section: &Section) -> Value {
    json!({
        "tag": section.tag.to_string(),
        "index": section.index,
        "version": section.version,
        "required": section.is_required(),
        "codec": codec(section.codec),
        "offset": section.offset,
        "stored_bytes": section.stored_len,
        "raw_bytes": section.raw_len,
        "checksum": format!("{:016x}", section.checksum),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstitch_kv::storage::Container;
    use backstitch_models::{Context, Model, Params, SaveOptions, Token};
    use std::io::{self, Write};

    /// A receiver of so many bytes and no more.
    struct Room(usize);

    impl Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_list_that_many_sequences_share_is_written_and_not_copied() {
        let model = Model::from_bytes(crate::embedded::GGUF).unwrap();
        let mut ctx = Context::new(&model, Params::default().n_ctx(64)).unwrap();
        let seq = ctx.sequence().unwrap();
        ctx.append(seq, &[Token(5), Token(6)]).unwrap();
        let mut bytes = Vec::new();
        ctx.state_write(&mut bytes, &SaveOptions::default()).unwrap();
        let container = Container::parse(&bytes).unwrap();
        let mut saved = SavedContext::parse(&container).unwrap();
        saved.sequences[0].tokens = vec![Token(7); 1 << 20].into();
        // Their text has 200 GB.
        saved.sequences = vec![saved.sequences[0].clone(); 100_000];
        let report = Report { path: Path::new("a.bst"), saved: &saved };
        let mut room = Room(8 << 20);
        assert!(serde_json::to_writer(&mut room, &report).unwrap_err().is_io() && room.0 == 0);
    }
}
