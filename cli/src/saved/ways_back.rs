//! Which positions of a saved sequence can be gone back to, and how.
//!
//! The memory itself is asked, so that the answer is the one that a restored sequence would get: the
//! description is staged without any bytes in a memory of layers of one number each.

use backstitch_core::cell::CellType;
use backstitch_kv::image::{CellLayer, Group, Image, Sees, Sequence, Shape, Source, StateLayer};
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Hybrid, LayerSpec, Memory, Params, SeqId, StatePart, Stretch,
    TimelineParams,
};
use std::convert::Infallible;

/// The most bytes that asking may take; far more than any sequence needs.
const MAX_BYTES: u64 = 64 << 20;

/// Positions of a sequence by the way in which they are reached, ascending; `None` if that cannot be told.
pub fn ways_back(image: &Image, sequence: usize) -> Option<Vec<Stretch>> {
    let small = reduced(image, sequence)?;
    let n_cells = small.blocks.iter().map(|blocks| 32 * blocks.len() as u64).max().unwrap_or(0);
    let gone =
        small.sequences.iter().flat_map(|sequence| &sequence.cells).any(|cells| cells.whole_from.0 > 0);
    // A window that let cells go is narrower than the context was.
    let windows = small.shape.groups.iter().filter(|_| gone).map(|group| match group.sees {
        Sees::Window(window) => u64::from(window.size()) + 1,
        Sees::All | Sees::Text => 0,
    });
    let n_ctx = u32::try_from(windows.max().unwrap_or(0).max(n_cells).max(32)).ok()?;
    let n_marks = small.sequences.first().map_or(0, |sequence| sequence.line.len()) as u32;
    let journal = small.journals.iter().copied().max().unwrap_or(0);
    let timeline = TimelineParams::default().checkpoint_bytes(u64::MAX).journal(journal);
    // Sequences that there are not pay for checkpoints that were pinned.
    let n_seq_max = 1 + n_marks / 4;
    let params = Params::default().n_ctx(n_ctx).n_seq_max(n_seq_max).n_batch(1).timeline(timeline);
    let layers = layers(&small.shape);
    if params.bytes(&layers).total() > MAX_BYTES || journal > 1 << 16 {
        return None;
    }
    let mut memory = Hybrid::new(&layers, &params).ok()?;
    let staged = memory.stage(&small, &NoBytes, &[SeqId(0)], false).ok()?;
    staged.commit();
    memory.positions(SeqId(0)).ok()
}

/// The image with one sequence, and layers of one number.
fn reduced(image: &Image, sequence: usize) -> Option<Image> {
    let sequence: Sequence = image.sequences.get(sequence)?.clone();
    let group = |(layer, group): (u32, &Group)| Group {
        sees: group.sees,
        k_type: CellType::F16,
        v_type: CellType::F16,
        layers: vec![CellLayer { layer, n_head_kv: 1, d_k: 1, d_v: 1 }],
    };
    let groups: Vec<Group> = (0..).zip(&image.shape.groups).map(group).collect();
    let parts = vec![StatePart { len: 1, input: 1 }];
    let state = StateLayer { layer: groups.len() as u32, parts };
    let recurrent = if image.shape.recurrent.is_empty() { Vec::new() } else { vec![state] };
    Some(Image { shape: Shape { groups, recurrent }, sequences: vec![sequence], ..image.clone() })
}

fn layers(shape: &Shape) -> Vec<LayerSpec> {
    let attention = |group: &Group| {
        let layer = AttentionLayer { n_head_kv: 1, d_k: 1, d_v: 1, ..AttentionLayer::default() };
        match group.sees {
            Sees::All => AttentionSpec::Cached(layer),
            Sees::Window(window) => AttentionSpec::Cached(AttentionLayer { window: Some(window), ..layer }),
            Sees::Text => AttentionSpec::Cross(layer),
        }
    };
    let cached =
        shape.groups.iter().map(|group| LayerSpec { attention: attention(group), recurrent: Vec::new() });
    let states = shape
        .recurrent
        .iter()
        .map(|layer| LayerSpec { attention: AttentionSpec::Absent, recurrent: layer.parts.clone() });
    cached.chain(states).collect()
}

/// Leaves everything as it is.
struct NoBytes;

impl Source for NoBytes {
    type Error = Infallible;

    fn fill_block(&self, _: usize, _: usize, _: &mut [&mut [u8]]) -> Result<(), Infallible> {
        Ok(())
    }

    fn fill_state(&self, _: usize, _: &mut [&mut [f32]]) -> Result<(), Infallible> {
        Ok(())
    }

    fn fill_journal(&self, _: usize, _: &mut [&mut [f32]]) -> Result<(), Infallible> {
        Ok(())
    }
}
