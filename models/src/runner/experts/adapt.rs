//! Adapters of expert matrices: each pair of a token and an expert is changed by the set of the
//! token, with the matrices of the expert.

use super::{Networks, Pairs, rows, runs};
use crate::error::Error;
use crate::graph::{Rows, WeightId};
use crate::runner::adapt::{Adapting, Read, Target};

/// A product of all pairs with the matrices of a stack.
struct Product<'x> {
    id: WeightId,
    x: &'x [f32],
    n_in: usize,
    out: &'x mut [f32],
    n_out: usize,
}

impl Networks<'_> {
    /// Add to the products with gate and up matrices what adapters change of them; `tokens` are
    /// those that the rows of `x` stand for.
    pub(super) fn adapt_hidden(
        &self,
        x: &[f32],
        n_in: usize,
        tokens: Rows,
        pairs: &mut Pairs<'_>,
        adapting: &mut Adapting<'_>,
    ) -> Result<(), Error> {
        let n_used = self.sizes.n_used;
        for (pair, &place) in pairs.places.iter().enumerate() {
            *adapting.pairs.get_mut(place as usize).ok_or(Error::Arena)? = (pair / n_used) as u32;
        }
        if x.len() == n_in && !self.sizes.routing.is_before {
            // The input of a single token was not copied for each of its experts.
            pairs.rows.chunks_exact_mut(n_in).take(n_used).for_each(|row| row.copy_from_slice(x));
        }
        let n_ff = self.sizes.n_ff;
        for (id, out) in [(self.tensors.gate, &mut *pairs.gate), (Some(self.tensors.up), &mut *pairs.up)] {
            let Some(id) = id else { continue };
            let product = Product { id, x: &*pairs.rows, n_in, out, n_out: n_ff };
            self.adapt(product, pairs.sorted, tokens, adapting)?;
        }
        Ok(())
    }

    /// Add to the results what adapters change of the products with down matrices.
    pub(super) fn adapt_results(
        &self,
        n_out: usize,
        tokens: Rows,
        pairs: &mut Pairs<'_>,
        adapting: &mut Adapting<'_>,
    ) -> Result<(), Error> {
        let (id, n_in) = (self.tensors.down, self.sizes.n_ff);
        let product = Product { id, x: &*pairs.up, n_in, out: &mut *pairs.rows, n_out };
        self.adapt(product, pairs.sorted, tokens, adapting)
    }

    /// Add to the rows of each expert.
    fn adapt(
        &self,
        product: Product<'_>,
        sorted: &[u32],
        tokens: Rows,
        adapting: &mut Adapting<'_>,
    ) -> Result<(), Error> {
        let Product { id, x, n_in, out, n_out } = product;
        let token = adapting.who.tokens(tokens);
        for (matrix, range) in runs(sorted) {
            let x = Read::Floats(x.get(rows(&range, n_in)).ok_or(Error::Arena)?);
            let out = out.get_mut(rows(&range, n_out)).ok_or(Error::Arena)?;
            let (places, mut adding) = adapting.pairs_and_adding(self.set, self.pool);
            let row = |i: usize| places.get(range.start + i).map_or(usize::MAX, |&row| row as usize);
            adding.add(Target { id, matrix, x, n_in, out, n_out }, |i| token(row(i)))?;
        }
        Ok(())
    }
}
