//! Running a graph: one ubatch, step by step, in one arena.
//!
//! `Frame::step` is the only place that matches on kinds of operations. Each arm calls a method
//! that takes the step's operands apart by number, as the kind documents them.

pub(crate) mod adapt;
mod attend;
mod experts;
mod frame;
mod journal;
mod lerp;
pub(crate) mod observe;
mod origin;
pub(crate) mod outputs;
mod pooling;
mod products;
mod recurrent;
mod routing;
mod rows;

use crate::{
    cancel::Stoppable,
    error::Error,
    graph::{Graph, Kind, Plan, Profile, Rotation, Step},
    model::Model,
    params::Params,
};
use adapt::Adapters;
use alloc::{vec, vec::Vec};
use backstitch_core::{KernelSet, packed::Line, pool::Pool};
use backstitch_kv::Ubatch;
use frame::{Frame, Values};
use observe::Observer;
use outputs::Outputs;

/// The buffers in which a graph runs, sized for the largest ubatch.
pub(crate) struct Runner {
    set: &'static KernelSet,
    /// The rotations of this context's length.
    rotations: Vec<Rotation>,
    main: Program,
    /// The encoder of an encoder-decoder.
    encoder: Option<Program>,
    arena: Vec<Line>,
    /// Partial results of attention.
    scratch: Vec<Line>,
    /// Tokens of the ubatch whose output is wanted, by their index in it.
    wanted: Vec<u32>,
    /// The adapters of sequences.
    pub(crate) adapters: Adapters,
    watch: Watch,
}

/// Those who look on while a graph runs.
#[derive(Default)]
struct Watch {
    profile: Option<Profile>,
    observer: Option<Observer>,
}

/// A graph's arena, and the steps that a ubatch may leave out.
struct Program {
    plan: Plan,
    /// For each step: true if it has nothing to do for tokens whose output is not wanted.
    outputs_only: Vec<bool>,
}

impl Program {
    fn new(graph: &Graph) -> Self {
        let outputs_only = graph.steps().iter().map(|step| graph.is_outputs_only(step)).collect();
        Program { plan: Plan::new(graph), outputs_only }
    }
}

/// One of a model's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The graph for texts to encode.
    Encoder,
    /// The graph for tokens that continue a sequence.
    Decoder,
}

impl Side {
    /// Return the graph; models that only encode or only decode have one for both sides.
    pub(crate) fn graph(self, model: &Model) -> &Graph {
        let graph = model.graph();
        graph.encoder().filter(|_| self == Side::Encoder).unwrap_or(graph)
    }
}

fn zeroed(n_floats: usize, what: &'static str) -> Result<Vec<Line>, Error> {
    let n_lines = n_floats.div_ceil(size_of::<Line>() / 4);
    let refused = |()| Error::OutOfMemory { what, n_bytes: (n_floats as u64).saturating_mul(4) };
    bytemuck::allocation::try_zeroed_vec(n_lines).map_err(refused)
}

/// Return the floats that activations and attention take.
pub(crate) fn sizes(graph: &Graph, params: &Params, n_threads: usize) -> (usize, usize) {
    let graphs = || [Some(graph), graph.encoder()].into_iter().flatten();
    let width = graphs().fold(0, |most, graph| most.max(Plan::new(graph).width()));
    let scratch = graphs().fold(0, |most, graph| most.max(attend::scratch_len(graph, params, n_threads)));
    (width.saturating_mul(params.n_ubatch as usize), scratch)
}

impl Runner {
    pub(crate) fn new(
        model: &Model,
        params: &Params,
        set: &'static KernelSet,
        pool: &dyn Pool,
    ) -> Result<Self, Error> {
        let (graph, n_ubatch) = (model.graph(), params.n_ubatch as usize);
        let (main, encoder) = (Program::new(graph), graph.encoder().map(Program::new));
        let (n_arena, n_scratch) = sizes(graph, params, pool.n_threads());
        let arena = zeroed(n_arena, "activations")?;
        let scratch = zeroed(n_scratch, "attention")?;
        let rotations = graph.rotations().iter().map(|choice| choice.of_context(params.n_ctx_seq).clone());
        Ok(Runner {
            set,
            rotations: rotations.collect(),
            main,
            encoder,
            arena,
            scratch,
            wanted: vec![0; n_ubatch],
            adapters: Adapters::new(graph, n_ubatch, params.n_seq_max as usize),
            watch: Watch::default(),
        })
    }

    pub(crate) fn kernels(&self) -> &'static KernelSet {
        self.set
    }

    pub(crate) fn start_profile(&mut self, graph: &Graph, clock: fn() -> u64) {
        self.watch.profile = Some(Profile::new(graph, clock));
    }

    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.watch.profile.as_ref()
    }

    pub(crate) fn set_observer(&mut self, observer: Option<Observer>) {
        self.watch.observer = observer;
    }

    /// Compute one ubatch: its keys, values and states go into the memory, its logits or embeddings
    /// into `outputs`.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if those are not finite; [`Error::Cancelled`].
    pub(crate) fn run(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        side: Side,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        self.wanted.clear();
        let all = outputs.takes_all();
        let wanted = ubatch.tokens().iter().enumerate().filter(|(_, token)| token.output || all);
        self.wanted.extend(wanted.map(|(i, _)| i as u32));
        self.adapters.start(ubatch);
        self.steps(model, work, side, ubatch, outputs)?;
        let rows = ubatch.tokens().iter().filter(|token| token.output || all);
        match outputs.are_finite(rows.map(|token| token.index as usize)) {
            true => Ok(()),
            false => Err(self.not_finite(model, work, side, ubatch, outputs)),
        }
    }

    /// Run the steps of a graph.
    fn steps(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        side: Side,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let graph = side.graph(model);
        let (mut frame, watch, outputs_only) = self.frame(model, work.pool(), side, ubatch.n_tokens());
        // The profile is one of the main graph's steps.
        let mut profile = watch.profile.as_mut().filter(|_| core::ptr::eq(graph, model.graph()));
        for (i, step) in graph.steps().iter().enumerate() {
            if frame.wanted.is_empty() && outputs_only[i] {
                continue;
            }
            work.check()?;
            let mut run = || frame.run(i, step, ubatch, outputs);
            match &mut profile {
                Some(profile) => profile.time(i, run)?,
                None => run()?,
            }
            if let Some(observer) = &mut watch.observer {
                frame.observe(step, observer)?;
            }
        }
        // Jobs may have been left out of the last step too.
        work.check()
    }

    /// Step the recurrent states through one ubatch of the journal.
    pub(crate) fn replay(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        self.wanted.clear();
        self.adapters.rest();
        let (mut frame, ..) = self.frame(model, work.pool(), Side::Decoder, ubatch.n_tokens());
        for step in model.graph().steps() {
            work.check()?;
            frame.replay(step, ubatch, outputs)?;
        }
        work.check()
    }

    /// Return the frame of a ubatch of `n_tokens`, those who look on, and the steps that concern
    /// outputs only.
    fn frame<'r>(
        &'r mut self,
        model: &'r Model,
        pool: &'r dyn Pool,
        side: Side,
        n_tokens: usize,
    ) -> (Frame<'r>, &'r mut Watch, &'r [bool]) {
        let graph = side.graph(model);
        let encoder = self.encoder.as_ref().filter(|_| side == Side::Encoder);
        let program = encoder.unwrap_or(&self.main);
        let arena = bytemuck::cast_slice_mut(&mut self.arena);
        let frame = Frame {
            set: self.set,
            pool,
            weights: model.weights(),
            rotations: &self.rotations,
            values: Values { graph, plan: &program.plan, arena, n_tokens, n_outputs: self.wanted.len() },
            scratch: bytemuck::cast_slice_mut(&mut self.scratch),
            wanted: &self.wanted,
            adapters: self.adapters.of_frame(&self.wanted),
        };
        (frame, &mut self.watch, &program.outputs_only)
    }
}

impl Frame<'_> {
    /// Run step `i` with what goes with it: the journal before, control vectors after.
    fn run(
        &mut self,
        i: usize,
        step: &Step,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        self.log(step, ubatch)?;
        self.step(step, ubatch, outputs)?;
        if self.adapters.is_any { self.steer(i) } else { Ok(()) }
    }

    /// Run one step.
    fn step(&mut self, step: &Step, ubatch: &mut Ubatch<'_>, outputs: &mut Outputs) -> Result<(), Error> {
        match step.kind {
            Kind::Embed { by, scale } => self.embed(step, by, scale, ubatch),
            Kind::Angles(rope) => self.angles(step, rope, ubatch),
            Kind::RmsNorm { eps, group } => self.rms_norm(step, eps, group),
            Kind::LayerNorm { eps, group } => self.layer_norm(step, eps, group),
            Kind::Quantize => self.quantize(step),
            Kind::MatMul { add } => self.matmul(step, add),
            Kind::MatMulHeads { n_head } => self.matmul_heads(step, n_head),
            Kind::Bias { first } => self.bias(step, first),
            Kind::Rotate { rope, n_head } => self.rotate(step, rope, n_head),
            Kind::StoreKv => self.store(step, ubatch),
            Kind::Attend { n_head, scores } => self.attend(step, n_head, scores, ubatch),
            Kind::Conv { silu } => self.conv(step, silu, ubatch),
            Kind::Selective => self.selective(step, ubatch),
            Kind::Ssd(sizes) => self.ssd(step, sizes, ubatch),
            Kind::Shift => self.shift(step, ubatch),
            Kind::Wkv6(sizes) => self.wkv6(step, sizes, ubatch),
            Kind::Wkv7(sizes) => self.wkv7(step, sizes, ubatch),
            Kind::Gla(sizes) => self.gla(step, sizes, ubatch),
            Kind::Kda(sizes) => self.kda(step, sizes, ubatch),
            Kind::Delta(sizes) => self.delta(step, sizes, ubatch),
            Kind::Lerp { row } => self.lerp(step, row),
            Kind::Columns(columns) => self.columns(step, columns),
            Kind::Join { n_groups, n_x } => self.join(step, n_groups, n_x),
            Kind::Scale { factor } => self.scale(step, factor),
            Kind::ScaleForLogits { .. } if outputs.are_embeddings() => Ok(()),
            Kind::ScaleForLogits { factor } => {
                if outputs.are_both() {
                    self.embeddings(step, ubatch, outputs)?;
                }
                self.scale(step, factor)
            }
            Kind::ScaleByPosition(temperature) => self.scale_by_position(step, temperature, ubatch),
            Kind::Clamp { limit } => self.clamp(step, limit),
            Kind::Activate(activation) => self.activate(step, activation),
            Kind::Gate(activation) => self.gate(step, activation),
            Kind::Experts(sizes) => self.experts(step, sizes),
            Kind::Add => self.add(step),
            Kind::Mul => self.mul(step),
            Kind::SelectOutputs => self.select_outputs(step),
            Kind::Logits { .. } if outputs.are_embeddings() => self.embeddings(step, ubatch, outputs),
            Kind::Logits { soft_cap } => {
                if outputs.are_both() && !self.values.graph.scales_for_logits() {
                    self.embeddings(step, ubatch, outputs)?;
                }
                self.logits(step, soft_cap, ubatch, outputs)
            }
            Kind::Embeddings => self.embeddings(step, ubatch, outputs),
        }
    }
}
