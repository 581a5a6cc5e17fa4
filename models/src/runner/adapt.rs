//! Adapters at work: what the sets of sequences add to products, embeddings and hidden states.
//!
//! Every row is changed by the set of its own sequence alone, adapter by adapter in the set's
//! order, after the product that all sequences share. Neighbouring rows with the same set are
//! multiplied together, in pieces of bounded length; products of many rows have the bits of single
//! ones, so a sequence's bits depend on nothing but its set.

use super::frame::Frame;
use super::zeroed;
use crate::adapter::AdapterSet;
use crate::error::Error;
use crate::graph::{Graph, Kind, Rows, Step, Value, WeightId, WeightShape};
use alloc::{vec, vec::Vec};
use backstitch_core::{
    KernelSet,
    matmul::{Input, Product, Write, matmul},
    packed::Line,
    pool::Pool,
    quantized::Quantized,
};
use backstitch_kv::{SeqId, Ubatch};
use core::ops::Range;

/// Rows that are multiplied together at most, which bounds the buffers.
const PIECE: usize = 64;

/// The sets of a context's sequences, and the buffers of their products.
pub(crate) struct Adapters {
    /// The set of sequences that are made without another.
    pub(crate) default: AdapterSet,
    /// The set of each sequence.
    sets: Vec<AdapterSet>,
    /// The sequence of each token of the ubatch.
    seqs: Vec<u32>,
    /// The row of each pair of a token and an expert.
    pairs: Vec<u32>,
    /// Products of one piece with first matrices, and its rows as floats.
    room: Vec<Line>,
    /// The largest rank that the buffers are for.
    rank: usize,
    /// Sizes of the buffers, which are made for the first set.
    sizes: Sizes,
    /// True if some token of the ubatch has a set that is not empty.
    is_any: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Tokens of a ubatch.
    n_ubatch: usize,
    /// Experts of a token.
    n_used: usize,
    /// Columns of the widest input that is quantised.
    width: usize,
}

impl Sizes {
    fn new(graph: &Graph, n_ubatch: usize) -> Self {
        let steps = || [Some(graph), graph.encoder()].into_iter().flatten().flat_map(Graph::steps);
        let used = steps().map(|step| if let Kind::Experts(sizes) = step.kind { sizes.n_used } else { 0 });
        let width = graph.weights().iter().map(|info| match info.shape {
            WeightShape::Matrix { n_cols, kind, .. } if kind.takes_quantized() => n_cols,
            _ => 0,
        });
        Sizes { n_ubatch, n_used: used.max().unwrap_or(0), width: width.max().unwrap_or(0) }
    }

    /// Return the floats of the products of a piece.
    fn n_floats(&self, rank: usize) -> usize {
        PIECE.saturating_mul(rank + self.width)
    }

    /// Return the numbers of pairs of a token and an expert.
    fn n_pairs(&self) -> usize {
        self.n_ubatch.saturating_mul(self.n_used)
    }
}

/// Return the bytes of adapters in a context with these sets, their buffers included.
pub(crate) fn adapter_bytes(graph: &Graph, n_ubatch: usize, sets: &[AdapterSet]) -> u64 {
    let (sizes, rank) = (Sizes::new(graph, n_ubatch), sets.iter().map(AdapterSet::rank).max());
    let Some(rank) = rank.filter(|_| sets.iter().any(|set| !set.is_empty())) else { return 0 };
    let floats = sizes.n_floats(rank).next_multiple_of(size_of::<Line>() / 4);
    let buffers = [floats, n_ubatch, sizes.n_pairs()].into_iter().fold(0, usize::saturating_add);
    AdapterSet::bytes_of_all(sets).saturating_add(4 * buffers as u64)
}

impl Adapters {
    pub(super) fn new(graph: &Graph, n_ubatch: usize, n_seq_max: usize) -> Self {
        Adapters {
            default: AdapterSet::default(),
            sets: vec![AdapterSet::default(); n_seq_max],
            seqs: Vec::new(),
            pairs: Vec::new(),
            room: Vec::new(),
            rank: 0,
            sizes: Sizes::new(graph, n_ubatch),
            is_any: false,
        }
    }

    /// Make room for sequences of `set`, so that decoding allocates nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn make_room(&mut self, set: &AdapterSet) -> Result<(), Error> {
        let n_ubatch = self.sizes.n_ubatch;
        if set.is_empty() || self.seqs.len() == n_ubatch && set.rank() <= self.rank {
            return Ok(());
        }
        let rank = set.rank().max(self.rank);
        let room = zeroed(self.sizes.n_floats(rank), "products of adapters")?;
        let list = |n: usize| {
            let refused = |()| Error::OutOfMemory { what: "adapters", n_bytes: 4 * n as u64 };
            bytemuck::allocation::try_zeroed_vec::<u32>(n).map_err(refused)
        };
        let (seqs, pairs) = (list(n_ubatch)?, list(self.sizes.n_pairs())?);
        (self.seqs, self.pairs, self.room, self.rank) = (seqs, pairs, room, rank);
        Ok(())
    }

    /// Return the bytes of all sets and buffers.
    pub(crate) fn n_bytes(&self) -> u64 {
        let buffers = size_of_val::<[Line]>(&self.room) + 4 * (self.seqs.len() + self.pairs.len());
        AdapterSet::bytes_of_all(self.sets.iter().chain([&self.default])).saturating_add(buffers as u64)
    }

    /// Evaluate `seq` with `set` from now on. There must be room for it.
    pub(crate) fn assign(&mut self, seq: SeqId, set: AdapterSet) {
        debug_assert!(set.is_empty() || set.rank() <= self.rank, "room for the set");
        if let Some(slot) = self.sets.get_mut(seq.index()) {
            *slot = set;
        }
    }

    /// Return the set of a sequence.
    pub(crate) fn of(&self, seq: SeqId) -> &AdapterSet {
        self.sets.get(seq.index()).unwrap_or(const { &AdapterSet::EMPTY })
    }

    /// Note the sequences of a ubatch.
    pub(super) fn start(&mut self, ubatch: &Ubatch<'_>) {
        let tokens = ubatch.tokens();
        self.is_any = tokens.iter().any(|token| !self.of(token.seq).is_empty());
        if self.is_any {
            self.seqs.iter_mut().zip(tokens).for_each(|(seq, token)| *seq = token.seq.0);
        }
    }

    /// Return the part that steps use; `wanted` are the tokens of rows for outputs.
    pub(super) fn of_frame<'r>(&'r mut self, wanted: &'r [u32]) -> Adapting<'r> {
        Adapting {
            is_any: self.is_any,
            who: Who { sets: &self.sets, seqs: &self.seqs, wanted },
            pairs: &mut self.pairs,
            room: bytemuck::cast_slice_mut(&mut self.room),
            rank: self.rank,
        }
    }

    /// Forget the ubatch: journal rows that are replayed have no tokens.
    pub(super) fn rest(&mut self) {
        self.is_any = false;
    }
}

/// The sets of a ubatch's rows.
#[derive(Clone, Copy)]
pub(super) struct Who<'r> {
    sets: &'r [AdapterSet],
    seqs: &'r [u32],
    wanted: &'r [u32],
}

impl<'r> Who<'r> {
    /// Return the token of a row.
    fn token(self, rows: Rows, row: usize) -> usize {
        match rows {
            Rows::Tokens => row,
            Rows::Outputs => self.wanted.get(row).map_or(usize::MAX, |&token| token as usize),
        }
    }

    /// Return what names the token of a row.
    pub(super) fn tokens(self, rows: Rows) -> impl Fn(usize) -> usize + use<'r> {
        move |row| self.token(rows, row)
    }

    /// Return the set of a token.
    fn set(self, token: usize) -> &'r AdapterSet {
        let set = self.seqs.get(token).and_then(|&seq| self.sets.get(seq as usize));
        set.unwrap_or(const { &AdapterSet::EMPTY })
    }
}

/// Adapters, as steps see them.
pub(super) struct Adapting<'r> {
    pub is_any: bool,
    pub who: Who<'r>,
    pub pairs: &'r mut [u32],
    room: &'r mut [f32],
    rank: usize,
}

impl Adapting<'_> {
    /// Return what adds to products.
    pub(super) fn adding<'a>(&'a mut self, set: &'static KernelSet, pool: &'a dyn Pool) -> Adding<'a> {
        self.pairs_and_adding(set, pool).1
    }

    /// Return the row of each pair of a token and an expert, and what adds to products.
    pub(super) fn pairs_and_adding<'a>(
        &'a mut self,
        set: &'static KernelSet,
        pool: &'a dyn Pool,
    ) -> (&'a [u32], Adding<'a>) {
        let (products, rows) = self.room.split_at_mut((PIECE * self.rank).min(self.room.len()));
        (self.pairs, Adding { set, pool, who: self.who, products, rows })
    }
}

/// The rows that a product read.
#[derive(Clone, Copy)]
pub(super) enum Read<'x> {
    Floats(&'x [f32]),
    Blocks(Quantized<'x>),
}

/// A product with a weight, to which the changes of adapters are added.
pub(super) struct Target<'x> {
    pub id: WeightId,
    /// The matrix of the weight.
    pub matrix: usize,
    pub x: Read<'x>,
    pub n_in: usize,
    pub out: &'x mut [f32],
    pub n_out: usize,
}

/// Kernels, sets and buffers: all that it takes to add to products.
pub(super) struct Adding<'a> {
    set: &'static KernelSet,
    pool: &'a dyn Pool,
    who: Who<'a>,
    products: &'a mut [f32],
    rows: &'a mut [f32],
}

impl Adding<'_> {
    /// Add to each row of a product what the set of its token makes of the row that was read;
    /// `token` names the token of a row.
    pub(super) fn add(&mut self, target: Target<'_>, token: impl Fn(usize) -> usize) -> Result<(), Error> {
        let Target { id, matrix, x, n_in, out, n_out } = target;
        let n_rows = out.len() / n_out.max(1);
        let mut first = 0;
        while first < n_rows {
            let set = self.who.set(token(first));
            let alike = |row: &usize| self.who.set(token(*row)) == set;
            let n = (first + 1..n_rows.min(first + PIECE)).take_while(alike).count() + 1;
            let changes =
                set.loras().iter().filter_map(|(adapter, scale)| Some((adapter.change(id)?, *scale)));
            let mut changes = changes.filter(|(change, _)| !change.is_table()).peekable();
            if changes.peek().is_some() {
                let x = floats(x, first..first + n, n_in, self.rows)?;
                let out = out.get_mut(first * n_out..(first + n) * n_out).ok_or(Error::Arena)?;
                for (change, scale) in changes {
                    let [a, b] = change.matrices(matrix)?;
                    let rank = change.rank();
                    let middle = self.products.get_mut(..n * rank).ok_or(Error::Arena)?;
                    let product = Product { weights: a, out: &mut *middle, write: Write::Store };
                    matmul(self.set, self.pool, Input::floats(x, n_in)?, &mut [product])?;
                    (self.set.scale_in_place)(middle, change.factor(scale));
                    let product = Product { weights: b, out: &mut *out, write: Write::Add };
                    matmul(self.set, self.pool, Input::floats(middle, rank)?, &mut [product])?;
                }
            }
            first += n;
        }
        Ok(())
    }

    /// Add to the embedding `out` of row `row` of a table what the set of `token` changes of that
    /// row; `scale` is the factor of all embeddings.
    pub(super) fn embed(
        &mut self,
        id: WeightId,
        row: usize,
        scale: f32,
        token: usize,
        out: &mut [f32],
    ) -> Result<(), Error> {
        for (adapter, of_adapter) in self.who.set(token).loras() {
            let Some(change) = adapter.change(id).filter(|change| change.is_table()) else { continue };
            let [table, up] = change.matrices(0)?;
            let middle = self.products.get_mut(..change.rank()).ok_or(Error::Arena)?;
            table.decode_row(row, middle)?;
            (self.set.scale_in_place)(middle, scale * change.factor(*of_adapter));
            let product = Product { weights: up, out: &mut *out, write: Write::Add };
            matmul(self.set, self.pool, Input::floats(middle, change.rank())?, &mut [product])?;
        }
        Ok(())
    }
}

/// Return some rows that a product read, as floats: rows in 8-bit blocks as the matrix saw them.
fn floats<'x>(
    x: Read<'x>,
    range: Range<usize>,
    n_in: usize,
    room: &'x mut [f32],
) -> Result<&'x [f32], Error> {
    match x {
        Read::Floats(x) => x.get(range.start * n_in..range.end * n_in).ok_or(Error::Arena),
        Read::Blocks(blocks) => {
            let room = room.get_mut(..range.len() * n_in).ok_or(Error::Arena)?;
            for (token, row) in range.zip(room.chunks_exact_mut(n_in.max(1))) {
                blocks.decode_row(token, row)?;
            }
            Ok(room)
        }
    }
}

impl Frame<'_> {
    /// Add what adapters change of the products of a step with whole matrices.
    pub(super) fn adapt_products(&mut self, step: &Step) -> Result<(), Error> {
        let x: Value = *step.reads.first().ok_or(Error::Operands { operation: step.name })?;
        for (&id, &out) in step.weights.iter().zip(&step.writes) {
            let matrix = self.weights.matrix(id, 0)?;
            let (n_in, n_out) = (matrix.n_cols(), matrix.n_rows());
            let rows = self.values.graph.info(out).rows;
            let [x, out] = self.values.slices([x, out])?;
            let x = match matrix.kind().takes_quantized() {
                true => Read::Blocks(Quantized::new(n_in, bytemuck::cast_slice(x))?),
                false => Read::Floats(x),
            };
            let token = self.adapters.who.tokens(rows);
            let target = Target { id, matrix: 0, x, n_in, out, n_out };
            self.adapters.adding(self.set, self.pool).add(target, token)?;
        }
        Ok(())
    }

    /// Add the control vectors of each row's set, if a layer ends with step number `step`.
    pub(super) fn steer(&mut self, step: usize) -> Result<(), Error> {
        let graph = self.values.graph;
        let ends = graph.layer_ends();
        let at = ends.partition_point(|end| end.step < step);
        for end in ends.iter().skip(at).take_while(|end| end.step == step) {
            let (who, rows) = (self.adapters.who, graph.info(end.stream).rows);
            let width = graph.width(end.stream).max(1);
            let [stream] = self.values.slices([end.stream])?;
            for (i, row) in stream.chunks_exact_mut(width).enumerate() {
                if let Some(direction) = who.set(who.token(rows, i)).direction(end.layer) {
                    (self.set.add)(row, direction);
                }
            }
        }
        Ok(())
    }
}
