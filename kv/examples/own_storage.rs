//! An engine with its own storage: the memory manages blocks, this file stores the bytes.
//!
//! `Memory::without_storage` allocates no cells. The engine below has them in plain vectors, which
//! could as well be on a GPU. It stores what each ubatch tells it to, makes the copies that plans
//! list, and attends through block tables. After every fork, rollback and eviction its content is
//! compared with the oracle, a list of tokens per sequence.
//!
//! Only the printing in `main` needs `std`.
//!
//! ```text
//! cargo run -p backstitch-kv --example own_storage --features testing
//! ```

use backstitch_core::cell::{BlockEntry, CellType};
use backstitch_kv::external::{CellCopy, KeyShift, StateCopy, Storage};
use backstitch_kv::testing::Naive;
use backstitch_kv::{
    AttentionLayer, AttentionSpec, Batch, Cell, Error, LayerSpec, Memory, Params, Pos, RollbackParams, SeqId,
    Token, Ubatch, Window,
};

/// Dimensions of a key and of a value.
const DIM: usize = 2;
/// Cells of a block.
const BLOCK: usize = 32;
const ALL: std::ops::Range<Pos> = Pos::ZERO..Pos::MAX;

/// The cells of one layer: block after block, cell after cell.
struct Layer {
    keys: Vec<[f32; DIM]>,
    values: Vec<[f32; DIM]>,
}

/// Storage outside of the memory.
struct Foreign {
    layers: Vec<Layer>,
    /// For each cache of the memory, the layers that lie in it.
    caches: Vec<Vec<usize>>,
}

fn index(block: u32, cell: u32) -> usize {
    block as usize * BLOCK + cell as usize
}

/// The cells whose bits are set.
fn bits(cells: u32) -> impl Iterator<Item = u32> {
    (0..BLOCK as u32).filter(move |cell| cells >> cell & 1 == 1)
}

impl Foreign {
    /// Return storage for all cells that the memory manages.
    fn new(memory: &Memory) -> Foreign {
        let shape = memory.storage_shape();
        let mut layers = Vec::new();
        for cache in &shape.caches {
            for &layer in &cache.layers {
                let n_cells = cache.n_blocks as usize * BLOCK;
                let empty = || Layer { keys: vec![[0.0; DIM]; n_cells], values: vec![[0.0; DIM]; n_cells] };
                layers.push((layer, empty()));
            }
        }
        layers.sort_by_key(|(layer, _)| *layer);
        let of_cache = |layers: &[u32]| layers.iter().map(|&layer| layer as usize).collect();
        Foreign {
            caches: shape.caches.iter().map(|cache| of_cache(&cache.layers)).collect(),
            layers: layers.into_iter().map(|(_, layer)| layer).collect(),
        }
    }
}

impl Storage for Foreign {
    type Error = &'static str;

    fn copy_cells(&mut self, copy: CellCopy) -> Result<(), Self::Error> {
        for &layer in &self.caches[copy.cache as usize] {
            let Layer { keys, values } = &mut self.layers[layer];
            for cell in bits(copy.cells) {
                let (from, to) = (index(copy.from, cell), index(copy.to, cell));
                (keys[to], values[to]) = (keys[from], values[from]);
            }
        }
        Ok(())
    }

    fn shift_keys(&mut self, _: KeyShift) -> Result<(), Self::Error> {
        Err("these keys hold no position")
    }

    fn copy_state(&mut self, _layer: usize, _: StateCopy) -> Result<(), Self::Error> {
        Err("no layer is recurrent")
    }
}

/// The key and value of a token in a layer: what a model would compute.
fn row(token: Token, layer: usize) -> ([f32; DIM], [f32; DIM]) {
    let x = (token.0 % 61) as f32 / 8.0 + layer as f32;
    ([x, 1.0 - x], [x * x, -x])
}

/// Attention over one sequence: softmax of scores, then the sum of values, cell by cell in order.
fn attend<'a>(
    query: [f32; DIM],
    cells: impl Iterator<Item = (&'a [f32; DIM], &'a [f32; DIM])>,
) -> [f32; DIM] {
    let (mut sum, mut total) = ([0.0; DIM], 0.0);
    for (key, value) in cells {
        let score = (query[0] * key[0] + query[1] * key[1]) / 64.0;
        let weight = score.exp();
        total += weight;
        sum = [sum[0] + weight * value[0], sum[1] + weight * value[1]];
    }
    sum.map(|x| x / total)
}

/// The cells that a token sees through a block table: slots `lo..hi`, of which live ones count.
fn seen(table: &[BlockEntry], slots: std::ops::Range<u32>) -> impl Iterator<Item = Cell> + '_ {
    table.iter().zip(0..).flat_map(move |(extent, entry)| {
        let slots = slots.clone();
        let own = bits(extent.live).filter(move |cell| slots.contains(&(entry * BLOCK as u32 + cell)));
        own.map(|cell| Cell { block: extent.block, cell })
    })
}

/// The engine: a memory without storage, storage for its cells, and the oracle to compare with.
struct Engine {
    memory: Memory,
    storage: Foreign,
    oracle: Naive,
    next_token: u32,
    n_copies: u32,
}

impl Engine {
    fn new() -> Result<Engine, Error> {
        let own = AttentionLayer { n_head_kv: 1, d_k: DIM, d_v: DIM, ..AttentionLayer::default() };
        let narrow = AttentionLayer { window: Some(Window::Sliding(24)), ..own.clone() };
        let layer = |own| LayerSpec { attention: AttentionSpec::Cached(own), ..LayerSpec::default() };
        let layers = [layer(own.clone()), layer(narrow), layer(own)];
        let params = Params::default()
            .n_ctx(512)
            .n_seq_max(4)
            .n_batch(64)
            .k_type(CellType::F32)
            .v_type(CellType::F32)
            .rollback(RollbackParams::default().checkpoint_bytes(1 << 16).spacing(16).journal(0).margin(8));
        let memory = Memory::without_storage(&layers, &params)?;
        let storage = Foreign::new(&memory);
        let oracle = Naive::new(&layers, &params);
        Ok(Engine { memory, storage, oracle, next_token: 0, n_copies: 0 })
    }

    /// Append new tokens to sequences that hold the same tokens.
    fn append(&mut self, seqs: &[SeqId], n: u32) -> Result<(), Box<dyn std::error::Error>> {
        let mut batch = Batch::new();
        let start = seqs.first().and_then(|seq| self.memory.seq_pos_max(*seq)).map_or(0, |last| last.0 + 1);
        for i in 0..n {
            batch.push(Token(self.next_token), Pos(start + i as i32), seqs, true);
            self.next_token += 1;
        }
        let tokens = batch.tokens().to_vec();
        self.oracle.append(&batch, |index, layer| {
            let (key, value) = row(tokens[index], layer);
            (key.to_vec(), value.to_vec())
        })?;
        let mut plan = self.memory.prepare(&batch, 16)?;
        while let Some(mut ubatch) = plan.next_ubatch() {
            for copy in ubatch.copies() {
                self.n_copies += 1;
                self.storage.copy_cells(copy)?;
            }
            compute(&mut ubatch, &mut self.storage, &self.oracle);
        }
        plan.commit()?;
        Ok(())
    }

    /// Roll back to `pos`, or to the checkpoint before it.
    fn rollback(&mut self, seq: SeqId, pos: Pos) -> Result<(), Error> {
        let rewind = self.memory.rewind(seq, pos, 16)?;
        let route = rewind.route();
        rewind.commit()?;
        self.oracle.rewind(seq, if route.reevaluated > 0 { route.restored_from } else { pos });
        Ok(())
    }

    fn fork(&mut self, from: SeqId, to: SeqId) -> Result<(), Error> {
        self.evict(to)?;
        self.memory.seq_cp(from, to, ALL)?;
        self.oracle.seq_cp(from, to, ALL)
    }

    fn evict(&mut self, seq: SeqId) -> Result<(), Error> {
        self.memory.seq_rm(seq, ALL)?;
        self.oracle.seq_rm(seq, ALL)
    }

    /// Compare every cell with the oracle's; return their number.
    fn check(&self) -> usize {
        let mut n = 0;
        for (layer, own) in self.storage.layers.iter().enumerate() {
            for seq in (0..4).map(SeqId) {
                let cells = self.oracle.sequence(seq).map_or(&[][..], |sequence| &sequence.cells);
                let held = self.memory.cell_places(layer, seq);
                // Windows drop old cells.
                for ((pos, at), wanted) in held.iter().rev().zip(cells.iter().rev()) {
                    let (key, value) = &wanted.rows[layer];
                    let at = index(at.block, at.cell);
                    assert_eq!(*pos, wanted.pos);
                    assert_eq!((&own.keys[at][..], &own.values[at][..]), (&key[..], &value[..]));
                    n += 1;
                }
            }
        }
        n
    }
}

/// Store and attend layer by layer, as a model does, and compare the outputs of attention
/// with those over the oracle's cells.
fn compute(ubatch: &mut Ubatch<'_>, storage: &mut Foreign, oracle: &Naive) {
    for number in 0..storage.layers.len() {
        let tokens = ubatch.tokens().to_vec();
        let Some(store) = ubatch.store(number) else { continue };
        for (token, at) in tokens.iter().zip(store.cells) {
            let Layer { keys, values } = &mut storage.layers[number];
            let at = index(at.block, at.cell);
            (keys[at], values[at]) = row(token.token, number);
        }
        let Some(view) = ubatch.attention(number) else { continue };
        let Layer { keys, values } = &storage.layers[number];
        for (token, visible) in tokens.iter().zip(view.visible()) {
            let (query, _) = row(token.token, number);
            let cells = seen(view.table(visible), visible.lo..visible.hi).map(|at| index(at.block, at.cell));
            let got = attend(query, cells.map(|at| (&keys[at], &values[at])));

            let first = if number == 1 { Window::Sliding(24).first(token.pos) } else { Pos::ZERO };
            let cells = oracle.sequence(token.seq).map_or(&[][..], |sequence| &sequence.cells);
            let rows: Vec<_> = cells
                .iter()
                .filter(|cell| (first..=token.pos).contains(&cell.pos))
                .map(|cell| (as_array(&cell.rows[number].0), as_array(&cell.rows[number].1)))
                .collect();
            let wanted = attend(query, rows.iter().map(|(key, value)| (key, value)));
            assert_eq!(got.map(f32::to_bits), wanted.map(f32::to_bits), "token {token:?} of layer {number}");
        }
    }
}

fn as_array(row: &[f32]) -> [f32; DIM] {
    let mut array = [0.0; DIM];
    array.iter_mut().zip(row).for_each(|(to, from)| *to = *from);
    array
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [a, b, c] = [0, 1, 2].map(SeqId);
    let mut engine = Engine::new()?;
    engine.append(&[a], 40)?;
    engine.check();

    // A fork shares its blocks. The first of the two to append moves to a copy of the last one.
    engine.fork(a, b)?;
    engine.append(&[b], 5)?;
    engine.append(&[a], 7)?;
    engine.check();
    assert!(engine.n_copies > 0, "the fork's last block was copied");

    // A rollback shortens block tables; the cells behind are overwritten.
    engine.rollback(a, Pos(35))?;
    engine.append(&[a], 20)?;
    engine.check();

    // Evicting a sequence frees its blocks for others.
    engine.evict(b)?;
    engine.fork(a, c)?;
    engine.append(&[c], 64)?;
    engine.append(&[a], 3)?;
    let n_cells = engine.check();

    println!("{n_cells} cells agree with the oracle after {} copies", engine.n_copies);
    Ok(())
}
