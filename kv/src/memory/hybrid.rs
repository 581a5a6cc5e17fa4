//! The memory of a whole model: parts of one kind each, composed by layer.

use super::cross::Cross;
use super::none::Uncached;
use super::recurrent::Recurrent;
use super::stage::Stage;
use super::unified::Unified;
use super::{Kind, Memory, Op, Part, Pass};
use crate::batch::Batch;
use crate::error::Error;
use crate::ids::{Pos, SeqId};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Params, Sizes, Window, check_layers};
use crate::plan::{Attention, Plan, States, Store};
use crate::rewind::{Rewind, Stretch};
use crate::room;
use crate::split::{Schedule, Split};
use crate::storage::Home;
use crate::timeline::{Route, Timeline};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// A layer's number within a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub part: usize,
    pub layer: usize,
}

/// Where a layer of the model finds its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub attention: Option<Place>,
    /// Whether it attends to what another layer stored.
    pub shared: bool,
    pub recurrent: Option<Place>,
}

/// Every memory: one part for each kind that the model's layers ask for.
///
/// An operation is checked by all parts before any of them changes, so it happens on all layers or on none.
///
/// # Example
/// ```
/// use backstitch_core::cell::CellType;
/// use backstitch_kv::{AttentionLayer, AttentionSpec, Batch, Hybrid, LayerSpec, Memory, Params, Pos, SeqId, TimelineParams, Token};
///
/// let layer = AttentionLayer { n_head_kv: 2, d_k: 4, d_v: 4, ..AttentionLayer::default() };
/// let layers = [LayerSpec { attention: AttentionSpec::Cached(layer), ..LayerSpec::default() }];
/// let (k_type, v_type) = (CellType::F16, CellType::F16);
/// let timeline = TimelineParams::default();
/// let params = Params::default().n_ctx(256).n_seq_max(2).n_batch(64).k_type(k_type).v_type(v_type).timeline(timeline);
/// let mut memory = Hybrid::new(&layers, &params)?;
///
/// let mut batch = Batch::new();
/// batch.push(Token(5), Pos(0), &[SeqId(0)], true);
/// let mut plan = memory.prepare(&batch, 64)?;
/// while let Some(mut ubatch) = plan.next_ubatch() {
///     if let Some(mut store) = ubatch.store(0) {
///         store.put(&[1.0; 8], &[2.0; 8])?;
///     }
/// }
/// plan.commit()?;
/// memory.seq_cp(SeqId(0), SeqId(1), Pos::ZERO..Pos::MAX)?;
/// assert_eq!(memory.seq_pos_max(SeqId(1)), Some(Pos(0)));
/// # Ok::<(), backstitch_kv::Error>(())
/// ```
pub struct Hybrid {
    pub(super) params: Params,
    /// Where cells and states are.
    pub(super) home: Home,
    pub(super) parts: Vec<Box<dyn Part>>,
    pub(super) timeline: Timeline,
    pub(super) places: Vec<Places>,
    schedule: Schedule,
    /// The last position of each sequence while a batch is checked.
    last: Vec<Option<Option<Pos>>>,
    /// Whether a plan has reserved something that is neither committed nor undone.
    pub(super) open: bool,
    /// What was taken from an image and is not visible yet.
    pub(super) staged: Option<Stage>,
}

/// The layers of each part while a memory is made.
#[derive(Default)]
struct Sorted {
    /// By the window that lets cells go.
    cached: Vec<(Option<Window>, Vec<AttentionLayer>)>,
    causal: Vec<AttentionLayer>,
    bidirectional: Vec<AttentionLayer>,
    cross: Vec<AttentionLayer>,
}

impl Hybrid {
    /// Makes the memory of a model with these layers; everything is allocated here.
    ///
    /// # Errors
    /// [`Error::Layer`] for impossible layers, [`Error::OutOfMemory`].
    pub fn new(layers: &[LayerSpec], params: &Params) -> Result<Hybrid, Error> {
        Hybrid::with_home(layers, params, Home::HERE)
    }

    pub(super) fn with_home(layers: &[LayerSpec], params: &Params, home: Home) -> Result<Hybrid, Error> {
        check_layers(layers, params)?;
        let params = &params.settled();
        let sizes = Sizes::new(layers, params);
        let mut sorted = Sorted::default();
        let mut places = Vec::with_capacity(layers.len());
        for (i, spec) in layers.iter().enumerate() {
            let attention = sorted.place(i as u32, &spec.attention, params.n_ctx, &places)?;
            let shared = matches!(spec.attention, AttentionSpec::SharedWith(_));
            places.push(Places { attention, shared, recurrent: None });
        }
        let mut parts = sorted.parts(params, &sizes, &mut places, home)?;
        let recurrent: Vec<&[_]> =
            layers.iter().map(|spec| &*spec.recurrent).filter(|r| !r.is_empty()).collect();
        if !recurrent.is_empty() {
            let with_state = places.iter_mut().zip(layers).filter(|(_, spec)| !spec.recurrent.is_empty());
            for (layer, (place, _)) in with_state.enumerate() {
                place.recurrent = Some(Place { part: parts.len(), layer });
            }
            parts.push(Box::new(Recurrent::new(&recurrent, params, &sizes, home)?));
        }
        Ok(Hybrid {
            params: *params,
            home,
            parts,
            places,
            timeline: Timeline::new(params.timeline, sizes, params.n_seq_max)?,
            schedule: Schedule::new(params.n_batch, params.n_seq_max)?,
            last: room::filled(params.n_seq_max as usize, None)?,
            open: false,
            staged: None,
        })
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn begin(&mut self, ubatch: u32) {
        self.parts.iter_mut().for_each(|part| part.begin(ubatch));
    }

    pub(crate) fn commit(&mut self) {
        if core::mem::take(&mut self.open) {
            self.parts.iter_mut().for_each(|part| part.commit());
            self.timeline.commit(&mut self.parts);
            self.parts.iter_mut().for_each(|part| part.settle());
        }
    }

    pub(crate) fn undo(&mut self) {
        self.drop_stage();
        if core::mem::take(&mut self.open) {
            self.parts.iter_mut().for_each(|part| part.undo());
            self.timeline.undo();
        }
    }

    pub(crate) fn attention(&self, layer: usize, tokens: Range<usize>) -> Option<Attention<'_>> {
        let place = self.places.get(layer)?.attention?;
        self.parts.get(place.part)?.attention(place.layer, tokens)
    }

    pub(crate) fn store(&mut self, layer: usize, tokens: Range<usize>) -> Option<Store<'_>> {
        let places = self.places.get(layer).filter(|places| !places.shared)?;
        let place = places.attention?;
        self.parts.get_mut(place.part)?.store(place.layer, tokens)
    }

    pub(crate) fn states(&mut self, layer: usize, part: usize, runs: Range<usize>) -> Option<States<'_>> {
        let place = self.places.get(layer)?.recurrent?;
        self.parts.get_mut(place.part)?.states(place.layer, part, runs)
    }

    /// Does a checked operation on all parts or on none.
    fn run(&mut self, op: Op) -> Result<(), Error> {
        // A plan that was leaked instead of dropped is undone here.
        self.undo();
        self.parts.iter_mut().try_for_each(|part| part.admit(&op))?;
        self.admit_on_timeline(&op)?;
        let (end, touches) = (self.end_of(&op), self.touches(&op));
        if touches {
            self.parts.iter_mut().for_each(|part| part.apply(&op));
            self.apply_on_timeline(&op, end);
        }
        Ok(())
    }

    pub(super) fn check_seq(&self, seq: SeqId) -> Result<(), Error> {
        let n_seq_max = self.params.n_seq_max;
        if seq.0 < n_seq_max { Ok(()) } else { Err(Error::UnknownSequence { seq, n_seq_max }) }
    }

    fn check_range(&self, seq: SeqId, range: &Range<Pos>) -> Result<(), Error> {
        self.check_seq(seq)?;
        if range.start < Pos::ZERO || range.end < range.start {
            return Err(Error::Range { start: range.start, end: range.end });
        }
        Ok(())
    }

    /// Checks that each token follows the last of its sequences. A text to encode follows nothing.
    pub(super) fn check_order(&mut self, batch: &Batch, pass: Pass) -> Result<(), Error> {
        self.last.fill(None);
        for (index, &pos) in batch.positions().iter().enumerate() {
            for &seq in batch.seqs(index) {
                let last = match self.last[seq.index()] {
                    Some(last) => last,
                    None => self.seq_pos_max(seq).filter(|_| pass == Pass::Decode),
                };
                let wanted = last.map_or(pos, |last| Pos(last.0.saturating_add(1)));
                if pos != wanted {
                    return Err(Error::Order { index: index as u32, seq, pos, wanted });
                }
                self.last[seq.index()] = Some(Some(pos));
            }
        }
        Ok(())
    }

    /// Whether a part takes part in what a batch is for. Without an encoder apart there is one kind of batch.
    fn joins(&self, part: &dyn Part, pass: Pass) -> bool {
        let has_encoder = self.parts.iter().any(|part| part.kind() == Kind::Cross);
        match (pass, part.kind()) {
            (_, Kind::Cross) => true,
            (Pass::Encode, kind) => kind == Kind::None,
            (Pass::Decode, kind) => kind != Kind::None || !has_encoder,
        }
    }

    /// As [`Memory::prepare`], for a batch of whole texts that goes through an encoder. Only layers that keep nothing compute it; what
    /// layers of [`AttentionSpec::Cross`] store for it becomes the text of its sequences, in place of the last one, when the plan is
    /// committed.
    ///
    /// # Errors
    /// As there.
    pub fn prepare_encoding<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error> {
        self.prepare_pass(batch, n_ubatch, Pass::Encode)
    }

    /// Drops the encoded text of `seq`, if it has one.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn forget(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.undo();
        self.parts.iter_mut().for_each(|part| part.forget(seq));
        Ok(())
    }

    fn prepare_pass<'a>(
        &'a mut self,
        batch: &'a Batch,
        n_ubatch: usize,
        pass: Pass,
    ) -> Result<Plan<'a>, Error> {
        self.undo();
        self.check_followed()?;
        if n_ubatch == 0 {
            return Err(Error::Shape { what: "tokens of a ubatch", found: 0, wanted: 1 });
        }
        batch.check(self.params.n_batch, self.params.n_seq_max)?;
        self.check_order(batch, pass)?;
        let joining = self.parts.iter().filter(|part| self.joins(&***part, pass));
        let split = joining.map(|part| part.split()).max().unwrap_or(Split::Simple);
        self.schedule.fill(batch, split, n_ubatch, self.params.n_seq_max)?;
        if pass == Pass::Decode
            && let Err(error) = self.timeline.stage(batch, &mut self.schedule)
        {
            self.timeline.undo();
            return Err(error);
        }
        for i in 0..self.parts.len() {
            if !self.joins(&*self.parts[i], pass) {
                continue;
            }
            self.parts[i].enter(pass);
            if let Err(error) = self.parts[i].reserve(batch, &self.schedule) {
                self.parts[..i].iter_mut().for_each(|part| part.undo());
                self.timeline.undo();
                return Err(error);
            }
        }
        self.open = true;
        Ok(Plan::new(self, batch))
    }

    /// The parts that keep something.
    fn keeping(&self) -> impl Iterator<Item = &dyn Part> {
        self.parts.iter().map(|part| &**part as &dyn Part).filter(|part| part.kind() != Kind::None)
    }
}

/// For the oracle's eyes.
#[cfg(any(test, feature = "oracle"))]
impl Hybrid {
    pub(crate) fn place(&self, layer: usize) -> Option<(&dyn Part, usize)> {
        let place = self.places.get(layer)?.attention?;
        Some((&**self.parts.get(place.part)?, place.layer))
    }

    pub(crate) fn state_place(&self, layer: usize) -> Option<(&dyn Part, usize)> {
        let place = self.places.get(layer)?.recurrent?;
        Some((&**self.parts.get(place.part)?, place.layer))
    }

    /// Drops at once what the budget of checkpoints does not pay for; after a rollback that waits for the next token.
    pub(crate) fn keep_to_budget(&mut self) {
        self.timeline.settle(&mut self.parts);
    }

    pub(crate) fn timeline_audit(&self) -> Result<(), alloc::string::String> {
        self.timeline.audit()
    }

    pub(crate) fn inside(&self) -> impl Iterator<Item = &dyn Part> {
        self.parts.iter().map(|part| &**part as &dyn Part)
    }
}

impl Sorted {
    /// Where a layer's attention will be; `part` counts the two lists that keep nothing, the encoded texts, then the windows, and is resolved by
    /// `parts`.
    fn place(
        &mut self,
        layer: u32,
        spec: &AttentionSpec,
        n_ctx: u32,
        before: &[Places],
    ) -> Result<Option<Place>, Error> {
        let (part, list, own) = match spec {
            AttentionSpec::Absent => return Ok(None),
            AttentionSpec::SharedWith(owner) => {
                let what = "shares the cache of a layer that comes later or has none of its own";
                let owner = before.get(*owner).filter(|owner| !owner.shared);
                return owner.and_then(|owner| owner.attention).map(Some).ok_or(Error::Layer { layer, what });
            }
            AttentionSpec::Cached(own) => {
                let recycled = own.recycled(n_ctx);
                let known = self.cached.iter().position(|(window, _)| *window == recycled);
                let number = known.unwrap_or_else(|| {
                    self.cached.push((recycled, Vec::new()));
                    self.cached.len() - 1
                });
                (3 + number, &mut self.cached[number].1, own)
            }
            AttentionSpec::Uncached { layer: own, causal: true } => (0, &mut self.causal, own),
            AttentionSpec::Uncached { layer: own, causal: false } => (1, &mut self.bidirectional, own),
            AttentionSpec::Cross(own) => (2, &mut self.cross, own),
        };
        list.push(own.clone());
        Ok(Some(Place { part, layer: list.len() - 1 }))
    }

    fn parts(
        self,
        params: &Params,
        sizes: &Sizes,
        places: &mut [Places],
        home: Home,
    ) -> Result<Vec<Box<dyn Part>>, Error> {
        let mut parts: Vec<Box<dyn Part>> = Vec::new();
        let mut numbers = Vec::new();
        for (layers, causal) in [(self.causal, true), (self.bidirectional, false)] {
            numbers.push(parts.len());
            if !layers.is_empty() {
                parts.push(Box::new(Uncached::new(&layers, params, causal, home)?));
            }
        }
        numbers.push(parts.len());
        if !self.cross.is_empty() {
            parts.push(Box::new(Cross::new(&self.cross, params, home)?));
        }
        for (window, layers) in &self.cached {
            numbers.push(parts.len());
            parts.push(Box::new(match window {
                Some(window) => Unified::windowed(layers, params, *window, sizes, home)?,
                None => Unified::new(layers, params, params.n_ctx, params.n_blocks(), home)?,
            }));
        }
        for place in places.iter_mut().filter_map(|places| places.attention.as_mut()) {
            place.part = numbers[place.part];
        }
        Ok(parts)
    }
}

impl Memory for Hybrid {
    fn kind(&self) -> Kind {
        match self.parts.as_slice() {
            [] => Kind::None,
            [part] => part.kind(),
            _ => Kind::Hybrid,
        }
    }

    fn n_seq_max(&self) -> u32 {
        self.params.n_seq_max
    }

    fn seq_rm(&mut self, seq: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        self.run(Op::Remove { seq, range })
    }

    fn seq_cp(&mut self, src: SeqId, dst: SeqId, range: Range<Pos>) -> Result<(), Error> {
        self.check_range(src, &range)?;
        self.check_seq(dst)?;
        if src == dst {
            return Err(Error::SameSequence { seq: src });
        }
        self.run(Op::Copy { src, dst, range })
    }

    fn seq_keep(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.run(Op::Keep { seq })
    }

    fn seq_add(&mut self, seq: SeqId, range: Range<Pos>, delta: i32) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        if delta == 0 {
            return Ok(());
        }
        self.run(Op::Add { seq, range, delta })
    }

    fn seq_div(&mut self, seq: SeqId, range: Range<Pos>, divisor: i32) -> Result<(), Error> {
        self.check_range(seq, &range)?;
        match divisor {
            ..=0 => Err(Error::Divisor { divisor }),
            1 => Ok(()),
            _ => self.run(Op::Divide { seq, range, divisor }),
        }
    }

    fn seq_pos_min(&self, seq: SeqId) -> Option<Pos> {
        self.check_seq(seq).ok()?;
        self.keeping().filter_map(|part| part.pos_min(seq)).max()
    }

    fn seq_pos_max(&self, seq: SeqId) -> Option<Pos> {
        self.check_seq(seq).ok()?;
        self.keeping().filter_map(|part| part.pos_max(seq)).min()
    }

    fn clear(&mut self) {
        self.undo();
        self.parts.iter_mut().for_each(|part| part.apply(&Op::Clear));
        self.apply_on_timeline(&Op::Clear, Pos::ZERO);
    }

    fn route(&self, seq: SeqId, pos: Pos) -> Result<Route, Error> {
        self.way_back(seq, pos, 1).map(|(route, _)| route)
    }

    fn rewind(&mut self, seq: SeqId, pos: Pos, n_ubatch: usize) -> Result<Rewind<'_>, Error> {
        self.prepare_rewind(seq, pos, n_ubatch)
    }

    fn pin(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_seq(seq)?;
        self.undo();
        let end = self.end(seq);
        self.timeline.pin(seq, end, &mut self.parts)
    }

    fn unpin(&mut self, seq: SeqId, pos: Pos) -> Result<bool, Error> {
        self.check_seq(seq)?;
        Ok(self.timeline.unpin(seq, pos))
    }

    fn positions(&self, seq: SeqId) -> Result<Vec<Stretch>, Error> {
        self.stretches(seq)
    }

    fn prepare<'a>(&'a mut self, batch: &'a Batch, n_ubatch: usize) -> Result<Plan<'a>, Error> {
        self.prepare_pass(batch, n_ubatch, Pass::Decode)
    }
}
