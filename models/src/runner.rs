//! Running a graph: one ubatch, step by step, in one arena.

mod attend;
mod experts;
mod journal;
mod mixing;
mod products;
mod recurrent;
mod rows;

use crate::{
    cancel::Stoppable,
    context::{Outputs, Params},
    error::Error,
    graph::{Graph, Head, Op, Plan, Profile, Rotation, Rows, Value},
    model::Model,
    weights::Weights,
};
use alloc::{vec, vec::Vec};
use backstitch_core::{KernelSet, packed::Line, pool::Pool};
use backstitch_kv::Ubatch;
use core::ops::Range;

/// The buffers a graph is run in, sized for the largest ubatch.
pub(crate) struct Runner {
    set: &'static KernelSet,
    main: Program,
    /// The encoder of an encoder-decoder.
    encoder: Option<Program>,
    arena: Vec<Line>,
    /// Partial results of attention, and whatever else needs room that no value has.
    scratch: Vec<Line>,
    /// Tokens of the ubatch whose output is wanted, by their index in it.
    wanted: Vec<u32>,
    profile: Option<Profile>,
}

/// What is known beforehand about running a graph.
struct Program {
    plan: Plan,
    /// Steps that have nothing to do for tokens whose output is not wanted.
    outputs_only: Vec<bool>,
}

impl Program {
    fn new(graph: &Graph) -> Self {
        let outputs_only = graph.steps().iter().map(|step| graph.is_outputs_only(&step.op)).collect();
        Program { plan: Plan::new(graph), outputs_only }
    }
}

/// Which of a model's graphs is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one for texts to encode.
    Encoder,
    /// The one for tokens that go on with a sequence.
    Decoder,
}

impl Side {
    /// The graph; models that only encode or only decode have one for both.
    pub(crate) fn graph(self, model: &Model) -> &Graph {
        let graph = model.graph();
        graph.encoder().filter(|_| self == Side::Encoder).unwrap_or(graph)
    }
}

/// What the steps of one ubatch share.
pub(crate) struct Frame<'r> {
    set: &'static KernelSet,
    pool: &'r dyn Pool,
    weights: &'r Weights,
    ropes: &'r [Rotation],
    values: Values<'r>,
    scratch: &'r mut [f32],
    wanted: &'r [u32],
}

/// The values of a ubatch: where each lies in the arena.
struct Values<'r> {
    graph: &'r Graph,
    plan: &'r Plan,
    arena: &'r mut [f32],
    n_tokens: usize,
    n_outputs: usize,
}

fn zeroed(n_floats: usize, what: &'static str) -> Result<Vec<Line>, Error> {
    let n_lines = n_floats.div_ceil(size_of::<Line>() / 4);
    let refused = |()| Error::OutOfMemory { what, n_bytes: (n_floats as u64).saturating_mul(4) };
    bytemuck::allocation::try_zeroed_vec(n_lines).map_err(refused)
}

impl Values<'_> {
    fn width(&self, value: Value) -> usize {
        self.graph.width(value)
    }

    fn n_rows(&self, value: Value) -> usize {
        match self.graph.values()[value.0 as usize].rows {
            Rows::Tokens => self.n_tokens,
            Rows::Outputs => self.n_outputs,
        }
    }

    /// Where the rows of `value` lie; where there are none, the start of the arena, which is disjoint from everything.
    fn range(&self, value: Value) -> Range<usize> {
        let len = self.n_rows(value) * self.width(value);
        let start = if len == 0 { 0 } else { self.plan.offset(value) * self.n_tokens };
        start..start + len
    }

    /// The values' rows, `[n_rows, width]` each; no two of them may be the same.
    fn slices<const N: usize>(&mut self, values: [Value; N]) -> Result<[&mut [f32]; N], Error> {
        let ranges = values.map(|value| self.range(value));
        // The plan keeps apart what lives at the same time.
        self.arena.get_disjoint_mut(ranges).map_err(|_| Error::Arena)
    }
}

/// The floats that activations and attention take.
pub(crate) fn sizes(graph: &Graph, params: &Params, n_threads: usize) -> (usize, usize) {
    let graphs = || [Some(graph), graph.encoder()].into_iter().flatten();
    let width = graphs().map(|graph| Plan::new(graph).width()).max().unwrap_or(0);
    let scratch = graphs().map(|graph| attend::scratch_len(graph, params, n_threads)).max().unwrap_or(0);
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
        Ok(Runner { set, main, encoder, arena, scratch, wanted: vec![0; n_ubatch], profile: None })
    }

    pub(crate) fn kernels(&self) -> &'static KernelSet {
        self.set
    }

    pub(crate) fn start_profile(&mut self, graph: &Graph, clock: fn() -> u64) {
        self.profile = Some(Profile::new(graph, clock));
    }

    pub(crate) fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Computes one ubatch: its keys, values and states go into the memory, its logits or embeddings into `outputs`.
    pub(crate) fn run(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        side: Side,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        self.wanted.clear();
        let graph = side.graph(model);
        let all = graph.head() == Head::Embeddings && outputs.takes_all();
        let wanted = ubatch.tokens().iter().enumerate().filter(|(_, token)| token.output || all);
        self.wanted.extend(wanted.map(|(i, _)| i as u32));
        let (mut frame, profile, outputs_only) = self.frame(model, work.pool(), side, ubatch.n_tokens());
        // The profile is one of the main graph's steps.
        let mut profile = profile.as_mut().filter(|_| core::ptr::eq(graph, model.graph()));
        for (i, step) in graph.steps().iter().enumerate() {
            if frame.wanted.is_empty() && outputs_only[i] {
                continue;
            }
            work.check()?;
            let mut run = || {
                frame.log(&step.op, ubatch)?;
                frame.step(&step.op, ubatch, outputs)
            };
            match &mut profile {
                Some(profile) => profile.time(i, run)?,
                None => run()?,
            }
        }
        // What was left out of the last step too.
        work.check()
    }

    /// Steps the recurrent states through one ubatch of the journal.
    pub(crate) fn replay(
        &mut self,
        model: &Model,
        work: &Stoppable<'_>,
        ubatch: &mut Ubatch<'_>,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        self.wanted.clear();
        let (mut frame, ..) = self.frame(model, work.pool(), Side::Decoder, ubatch.n_tokens());
        for step in model.graph().steps() {
            work.check()?;
            frame.replay(&step.op, ubatch, outputs)?;
        }
        work.check()
    }

    /// What the steps of a ubatch of `n_tokens` share, and what `run` needs beside it.
    fn frame<'r>(
        &'r mut self,
        model: &'r Model,
        pool: &'r dyn Pool,
        side: Side,
        n_tokens: usize,
    ) -> (Frame<'r>, &'r mut Option<Profile>, &'r [bool]) {
        let graph = side.graph(model);
        let encoder = self.encoder.as_ref().filter(|_| side == Side::Encoder);
        let program = encoder.unwrap_or(&self.main);
        let arena = bytemuck::cast_slice_mut(&mut self.arena);
        let frame = Frame {
            set: self.set,
            pool,
            weights: model.weights(),
            ropes: &graph.ropes,
            values: Values { graph, plan: &program.plan, arena, n_tokens, n_outputs: self.wanted.len() },
            scratch: bytemuck::cast_slice_mut(&mut self.scratch),
            wanted: &self.wanted,
        };
        (frame, &mut self.profile, &program.outputs_only)
    }
}

impl Frame<'_> {
    fn step(&mut self, op: &Op, ubatch: &mut Ubatch<'_>, outputs: &mut Outputs) -> Result<(), Error> {
        match *op {
            Op::Embed { table, by, scale, out } => self.embed(table, (by, scale), out, ubatch),
            Op::Angles { rope, out } => self.angles(rope, out, ubatch),
            Op::RmsNorm { x, weight, eps, group, out } => self.rms_norm(x, weight, eps, group, out),
            Op::LayerNorm { x, weight, bias, eps, out } => self.layer_norm(x, weight, bias, eps, out),
            Op::Quantize { x, out } => self.quantize(x, out),
            Op::MatMul { x, ref products } => self.matmul(x, products),
            Op::Bias { x, bias } => self.bias(x, bias),
            Op::Rotate { x, angles, rope, n_head } => self.rotate(x, angles, rope, n_head),
            Op::Attend { layer, q, k, v, out, n_head, scores, terms } => {
                self.store(layer, k, v, ubatch)?;
                self.attend(layer, [q, out], n_head, (scores, terms), ubatch)
            }
            Op::StoreText { layer, k, v } => self.store(layer, k, v, ubatch),
            Op::Cross { layer, q, out, n_head, scores } => {
                self.attend(layer, [q, out], n_head, (scores, None), ubatch)
            }
            Op::Conv { state, x, out, params } => self.conv(state, x, out, params, ubatch),
            Op::Selective { state, x, dt, bc: [b, c], a, d, out } => {
                self.selective(state, [x, dt, b, c, out], [a, d], ubatch)
            }
            Op::Ssd { state, xbc, dt, out, ref params } => self.ssd(state, xbc, dt, out, params, ubatch),
            Op::Shift { state, x, out } => self.shift(state, x, out, ubatch),
            Op::Wkv6 { state, rwkv, out, ref params } => self.wkv6(state, rwkv, out, params, ubatch),
            Op::Wkv7 { state, rwkva, out, ref params } => self.wkv7(state, rwkva, out, params, ubatch),
            Op::Delta { state, qkv, beta, alpha, out, ref params } => {
                self.delta(state, [qkv, beta, alpha, out], params, ubatch)
            }
            Op::Lerp { x, y, mix, out } => self.lerp(x, y, mix, out),
            Op::Columns { x, columns, out } => self.columns(x, columns, out),
            Op::Scale { x, factor } => self.scale(x, factor),
            Op::Activate { activation, x } => self.activate(activation, x),
            Op::Gate { activation, gate, up } => self.gate(activation, gate, up),
            Op::Experts { x, router, scratch, out, ref params } => {
                self.experts(x, router, scratch, out, params)
            }
            Op::Add { x, y } => self.add(x, y),
            Op::Mul { x, y } => self.mul(x, y),
            Op::Outputs { x, out } => self.outputs(x, out),
            Op::Logits { x, head, scratch, soft_cap } => {
                self.logits([x, scratch], head, soft_cap, ubatch, outputs)
            }
            Op::Embeddings { x } => self.embeddings(x, ubatch, outputs),
        }
    }
}
