//! The expected logits of a sequence: those of its recipe, run by one thread in whole pieces on a
//! fresh context.

use backstitch_core::cell::CellType;
use backstitch_models::adapter::AdapterSet;
use backstitch_models::{Batch, Context, Error, Model, Params, Pos, RollbackParams, SeqId, Token};
use std::collections::HashMap;

/// A recipe: the steps that make a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    Append(Vec<u32>),
    Remove(i32, i32),
    Move(i32, i32, i32),
}

/// A cache of the logits of recipes that are run with one set of adapters.
pub struct Fresh {
    model: Model,
    pub(super) cells: CellType,
    pub(super) set: AdapterSet,
    known: HashMap<Vec<Deed>, Option<Vec<u64>>>,
    /// For what comes before the last `Append` of a recipe: tokens that were appended, and what
    /// they gave.
    appended: HashMap<Vec<Deed>, (Vec<u32>, Vec<u64>)>,
}

impl Fresh {
    pub fn new(model: &Model, cells: CellType, set: AdapterSet) -> Fresh {
        Fresh { model: model.clone(), cells, set, known: HashMap::new(), appended: HashMap::new() }
    }

    /// Return a hash of the logits of the last token of a recipe that ends with an `Append`; `None`
    /// as [`Fresh::rows`].
    pub(super) fn last(&mut self, recipe: &[Deed]) -> Option<u64> {
        let (Deed::Append(tokens), before) = recipe.split_last()? else { return None };
        if let Some((known, rows)) = self.appended.get(before)
            && known.starts_with(tokens)
        {
            return rows.get(tokens.len().checked_sub(1)?).copied();
        }
        let rows = self.rows(recipe)?.to_vec();
        let last = rows.last().copied();
        self.appended.insert(before.to_vec(), (tokens.clone(), rows));
        last
    }

    /// Hashes of the logits of all tokens of the last `Append` of a recipe; `None` if a move in it
    /// is refused because of cells that are still there: in the context they had left the window.
    pub(super) fn rows(&mut self, recipe: &[Deed]) -> Option<&[u64]> {
        if self.known.len() > 2_000 {
            self.known.clear();
            self.appended.clear();
        }
        let model = &self.model;
        let known = self.known.entry(recipe.to_vec()).or_insert_with(|| {
            // Without checkpoints and journal, a rollback reaches only the position of a change.
            let rollback =
                RollbackParams::default().checkpoint_bytes(1 << 20).spacing(1 << 20).journal(0).margin(1024);
            let params = Params::default().n_ctx(1024).n_ubatch(1024).n_batch(1024).rollback(rollback);
            let params = params.type_k(self.cells).type_v(self.cells);
            let mut ctx = Context::new(model, params).unwrap();
            let seq = ctx.sequence_with(&self.set).unwrap();
            encode(&mut ctx, seq);
            let mut rows = Vec::new();
            for deed in recipe {
                rows.clear();
                match deed {
                    Deed::Append(tokens) => {
                        let start = ctx.pos(seq).unwrap().0;
                        let mut batch = Batch::new();
                        for (i, &token) in tokens.iter().enumerate() {
                            batch.push(Token(token), Pos(start + i as i32), &[seq], true);
                        }
                        ctx.decode(&batch).unwrap();
                        rows.extend((0..tokens.len()).map(|i| hash(ctx.output(i).unwrap())));
                    }
                    Deed::Remove(start, end) => ctx.seq_rm(seq, Pos(*start)..Pos(*end)).unwrap(),
                    Deed::Move(start, end, delta) => match ctx.seq_add(seq, Pos(*start)..Pos(*end), *delta) {
                        Err(Error::Memory(backstitch_kv::Error::Overtakes { .. })) => return None,
                        result => result.unwrap(),
                    },
                }
            }
            Some(rows)
        });
        known.as_deref()
    }
}

/// Encode an input for a sequence to decode from, if the model takes one. It is the same for all.
pub(super) fn encode(ctx: &mut Context, seq: SeqId) {
    if ctx.model().graph().encoder().is_none() {
        return;
    }
    let mut batch = Batch::new();
    for i in 0..3 {
        batch.push(Token(7 * i as u32), Pos(i), &[seq], false);
    }
    ctx.encode_batch(&batch).unwrap();
}

/// Return the FNV-1a hash of the bits.
pub(super) fn hash(logits: &[f32]) -> u64 {
    logits
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, x| (h ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3))
}
