//! Writing a file of what a content holds.

mod data;
mod entries;

use super::layout::{Row, check_group, type_number};
use super::moves::give;
use super::{
    BUFFER_MAGIC, Error, Form, Layout, MAX_SEQUENCES, Options, SEQUENCE_MAGIC, SEQUENCE_VERSION,
    SESSION_MAGIC, SESSION_VERSION, tokens,
};
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::snapshot::{Content, Group, Sequence, Shape, Snapshot};
use backstitch_kv::{Pos, Token};
use entries::Entry;

/// Return the bytes of a file of this form. A session has all sequences of `content`, numbered as
/// they are there; the other forms have its only one. `tokens` are listed as they are, where the
/// form has a list, and name the cells of layouts with axes.
///
/// Of a window there are only the cells that the last token sees, unless `options` wants more.
/// Checkpoints are left out: llama.cpp knows nothing like them.
///
/// # Errors
/// [`Error::Content`] for what is not of the layout's shape, and [`Error::Hole`] where positions do
/// not follow each other.
pub fn export(
    content: &dyn Content,
    tokens: &[Token],
    layout: &Layout,
    form: Form,
    options: &Options,
) -> Result<Vec<u8>, Error> {
    layout.check()?;
    let snapshot = content.snapshot();
    snapshot.check()?;
    snapshot.shape.groups.iter().try_for_each(check_group)?;
    check_options(snapshot.sequences.len(), form, options)?;
    let groups = matched(&snapshot.shape, &layout.shape)?;
    let mut writer = Writer { content, snapshot, tokens, layout, form, options, groups, out: Vec::new() };
    writer.head()?;
    for (index, &group) in (0..).zip(&layout.caches) {
        writer.cache(index, group)?;
    }
    if let Some(recurrent) = &layout.recurrent {
        writer.states(recurrent.n_layer)?;
    }
    Ok(writer.out)
}

struct Writer<'a> {
    content: &'a dyn Content,
    snapshot: &'a Snapshot,
    tokens: &'a [Token],
    layout: &'a Layout,
    form: Form,
    options: &'a Options,
    /// For each group of the layout's shape, that of the content.
    groups: Vec<usize>,
    /// The bytes so far.
    out: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn put(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn put_len(&mut self, n: usize) -> Result<(), Error> {
        let number = u32::try_from(n).map_err(|_| Error::Unsupported { what: "lists of 2^32 entries" })?;
        self.put(number);
        Ok(())
    }

    fn head(&mut self) -> Result<(), Error> {
        let numbers = match self.form {
            Form::Session => [SESSION_MAGIC, SESSION_VERSION],
            Form::Sequence => [SEQUENCE_MAGIC, SEQUENCE_VERSION],
            Form::Buffer => [BUFFER_MAGIC, self.options.sequence],
        };
        numbers.into_iter().for_each(|number| self.put(number));
        if self.form != Form::Buffer {
            self.put_len(self.tokens.len())?;
            for token in self.tokens {
                self.put(token.0);
            }
        }
        if self.form == Form::Session {
            self.put_len(self.layout.architecture.len())?;
            self.out.extend_from_slice(self.layout.architecture.as_bytes());
        }
        Ok(())
    }

    /// Return the sequences with their numbers in the file.
    fn sequences(&self) -> impl Iterator<Item = (u32, &'a Sequence)> + use<'a> {
        let first = if self.form == Form::Session { 0 } else { self.options.sequence };
        (first..).zip(&self.snapshot.sequences)
    }

    fn cache(&mut self, index: u8, group: Option<usize>) -> Result<(), Error> {
        let n_stream = self.options.n_stream;
        self.put(n_stream);
        let group = group.map(|group| self.groups[group]);
        for stream in 0..n_stream {
            let entries = self.entries(index, group, (n_stream > 1).then_some(stream))?;
            self.put_len(entries.len())?;
            if entries.is_empty() {
                continue;
            }
            entries.iter().for_each(|entry| self.meta(entry));
            self.put(self.options.v_trans.into());
            let group = group.map(|group| (group, &self.snapshot.shape.groups[group]));
            self.put_len(group.map_or(0, |(_, group)| group.layers.len()))?;
            // Neither keys nor values are rotated against the errors of quantised caches.
            self.put(0);
            self.put(0);
            if let Some((index, group)) = group {
                self.data(index, group, &entries)?;
            }
        }
        Ok(())
    }

    fn meta(&mut self, entry: &Entry) {
        let pos = entry.pos.0.cast_unsigned();
        self.put(pos);
        self.put(entry.ids.len() as u32);
        if self.layout.axes {
            self.put(pos);
            self.put(pos);
            let token = usize::try_from(entry.pos.0).ok().and_then(|pos| self.tokens.get(pos));
            self.put(token.map_or(tokens::NONE.cast_unsigned(), |token| token.0));
        }
        entry.ids.iter().for_each(|&id| self.put(id));
    }

    fn states(&mut self, n_layer: u32) -> Result<(), Error> {
        // Each state once, with the sequences that share it.
        let mut states: Vec<(u32, Pos, Vec<u32>)> = Vec::new();
        for (id, sequence) in self.sequences() {
            let Some(state) = sequence.state.and_then(|state| state.state) else { continue };
            match states.iter_mut().find(|known| (known.0, known.1) == (state, sequence.last)) {
                Some(known) => known.2.push(id),
                None => states.push((state, sequence.last, [id].into())),
            }
        }
        self.put_len(states.len())?;
        for (_, last, ids) in &states {
            let ids = if self.form == Form::Session { &ids[..] } else { &[] };
            self.put(last.0.cast_unsigned());
            self.put_len(ids.len())?;
            ids.iter().for_each(|&id| self.put(id));
        }
        self.put(0);
        self.put(n_layer);
        let content = self.content;
        let numbers: Vec<_> = states.iter().map(|state| content.state(state.0 as usize)).collect();
        for row in [Row::R, Row::S] {
            let mut first = 0;
            for layer in 0..self.layout.shape.recurrent.len() {
                self.put(type_number(CellType::F32));
                self.put_u64(self.layout.row_len(layer, row) * 4);
                for numbers in &numbers {
                    self.row(layer, row, numbers.get(first..).unwrap_or_default())?;
                }
                first += self.layout.pieces(layer).count();
            }
        }
        Ok(())
    }

    /// Return the pieces of a layer's state, of which `numbers` has this layer's first, that belong
    /// to a row.
    fn row(&mut self, layer: usize, row: Row, numbers: &[&[f32]]) -> Result<(), Error> {
        let mut numbers = numbers.iter();
        for (piece, len) in self.layout.pieces(layer) {
            let numbers = numbers.next().filter(|numbers| numbers.len() == len);
            let numbers = numbers.ok_or(Error::Content { what: "its states" })?;
            if piece.row == row {
                give(piece.order, numbers, &mut self.out);
            }
        }
        Ok(())
    }
}

/// Check that a file of this form can hold so many sequences, and that it has streams for them.
fn check_options(n_sequences: usize, form: Form, options: &Options) -> Result<(), Error> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(Error::Content { what }) };
    if form == Form::Session {
        ensure(n_sequences <= MAX_SEQUENCES as usize, "more sequences than a session has")?;
        let has_streams = options.n_stream == 1 || n_sequences <= options.n_stream as usize;
        ensure(has_streams, "more sequences than streams")?;
    } else {
        ensure(n_sequences == 1, "a file of one sequence is of exactly one")?;
        ensure(options.sequence < MAX_SEQUENCES, "the sequence's number")?;
        let has_stream = options.n_stream == 1 || options.sequence < options.n_stream;
        ensure(has_stream, "the sequence has no stream")?;
    }
    ensure((1..=MAX_SEQUENCES).contains(&options.n_stream), "the number of streams")
}

/// Return, for each group of `wanted`, the number of the same among those of `found`.
fn matched(found: &Shape, wanted: &Shape) -> Result<Vec<usize>, Error> {
    let lens = |shape: &Shape| -> Vec<(u32, Vec<usize>)> {
        let lens = shape.recurrent.iter();
        lens.map(|layer| (layer.layer, layer.parts.iter().map(|part| part.len).collect())).collect()
    };
    if lens(found) != lens(wanted) || found.groups.len() != wanted.groups.len() {
        return Err(Error::Content { what: "its layers" });
    }
    let matching = wanted.groups.iter().map(|wanted| {
        let is_same = |found: &Group| found.sees == wanted.sees && found.layers == wanted.layers;
        found.groups.iter().position(is_same).ok_or(Error::Content { what: "its layers" })
    });
    matching.collect()
}
