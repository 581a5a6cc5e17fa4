//! Tensors of low rank: products `b a` of which adapters store the factors.
//!
//! A family's edits reorder, cut, join and scale whole matrices. A tensor of low rank takes part in
//! that as the product that it is, and [`Tensor::factors`] then does to the factors what was done
//! to the product: rows are rows of `b`, columns are columns of `a`. Edits that no product of two
//! factors survives, such as adding 1 to each element, are refused.

use std::rc::Rc;

use super::{Change, Node, Tensor};
use crate::checkpoint::Checkpoint;
use crate::error::Error;

/// Most elements of a product. No matrix has as many, and stacks of products can be counted.
const MAX_ELEMENTS: usize = 1 << 40;

/// The factors of a tensor of low rank. Their leading dimensions are those of the product; `a` may
/// have 1 there, if all its matrices are one.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    /// The right factor: `[.., rank, columns]`.
    pub a: Tensor,
    /// The left factor: `[.., rows, rank]`.
    pub b: Tensor,
}

impl Tensor {
    /// Make the product of `b`, `[rows, rank]`, and `a`, `[rank, columns]`.
    ///
    /// # Errors
    /// [`Error::Tensor`] if these are no matrices, their ranks differ or are 0, or the product is
    /// larger than any matrix.
    pub(crate) fn low_rank(a: Self, b: Self) -> Result<Self, Error> {
        let (a, b) = (a.expect_rank(2)?, b.expect_rank(2)?);
        if a.dim(0) != b.dim(1) {
            return Err(b.misfit(format!("{} columns, the rank of {:?}", a.dim(0), a.name)));
        }
        let n = b.dim(0).checked_mul(a.dim(1)).filter(|n| (1..=MAX_ELEMENTS).contains(n));
        if a.dim(0) == 0 || n.is_none() {
            let wanted = format!("the factor of a matrix of 1 to 2^40 elements, with {:?}", a.shape);
            return Err(b.misfit(wanted));
        }
        let shape = vec![b.dim(0), a.dim(1)];
        let half = a.half && b.half;
        let name = a.name.clone();
        Ok(Self { name, shape, half, node: Rc::new(Node::LowRank(Factors { a, b })) })
    }

    /// Return the factors of the tensor, `None` if it is stored as a whole.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it was changed in a way that no factors give.
    pub(crate) fn factors(&self) -> Result<Option<Factors>, Error> {
        let found = match &*self.node {
            Node::LowRank(factors) => return Ok(Some(factors.clone())),
            Node::Stored(_) | Node::Values(_) | Node::Mxfp4 { .. } => return Ok(None),
            Node::Joined { of, axis } => return self.joined_factors(of, *axis),
            Node::Reshaped(of) => of.factors()?.map(|factors| factors.reshaped(self)),
            Node::Permuted { of, order } => of.factors()?.map(|factors| factors.permuted(order)),
            Node::Sliced { of, axis, start, step } => {
                of.factors()?.map(|factors| factors.sliced(self, *axis, *start, *step))
            }
            Node::Changed { of, change } => of.factors()?.map(|factors| factors.changed(self, change)),
            Node::BlockScaled { of, .. } => of.factors()?.map(|_| Err(self.indivisible())),
        };
        found.transpose()
    }

    /// Join the factors of parts.
    fn joined_factors(&self, of: &[Self], axis: usize) -> Result<Option<Factors>, Error> {
        let parts: Result<Vec<Option<Factors>>, Error> = of.iter().map(Tensor::factors).collect();
        let parts = parts?;
        if parts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let parts: Option<Vec<Factors>> = parts.into_iter().collect();
        let parts = parts.ok_or_else(|| self.indivisible())?;
        let (a, b): (Vec<Tensor>, Vec<Tensor>) = parts.into_iter().map(|part| (part.a, part.b)).unzip();
        // Rows share the right factor, columns the left one, and matrices nothing.
        let shared = |all: Vec<Tensor>| match all.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other.is_same(first)) => Ok(first.clone()),
            _ => Err(self.indivisible()),
        };
        let n = self.shape.len();
        Ok(Some(match n.checked_sub(axis) {
            Some(1) => Factors { a: Self::join(axis, a)?, b: shared(b)? },
            Some(2) => Factors { a: shared(a)?, b: Self::join(axis, b)? },
            _ => Factors { a: Self::join(axis, a)?, b: Self::join(axis, b)? },
        }))
    }

    /// Return true if both were made of the same data in the same way.
    fn is_same(&self, other: &Self) -> bool {
        self.shape == other.shape
            && match (self.before_reshapes(), other.before_reshapes()) {
                (Node::Stored(a), Node::Stored(b)) => a == b,
                (a, b) => std::ptr::eq(a, b),
            }
    }

    /// Return what gave the elements their order.
    fn before_reshapes(&self) -> &Node {
        match &*self.node {
            Node::Reshaped(of) => of.before_reshapes(),
            node => node,
        }
    }

    /// Make the error of an edit that the factors cannot follow.
    fn indivisible(&self) -> Error {
        let wanted = "a whole tensor, because this architecture changes it in a way that no two factors give";
        Error::Tensor { tensor: (*self.name).into(), found: "two factors".into(), wanted: wanted.into() }
    }
}

impl Factors {
    /// Give the product the shape of `to`, whose rows are as long.
    fn reshaped(self, to: &Tensor) -> Result<Self, Error> {
        let (rank, n_columns) = (self.rank(), self.a.shape.last().copied());
        let [outer @ .., _, columns] = to.shape() else { return Err(to.indivisible()) };
        if Some(*columns) != n_columns {
            return Err(to.indivisible());
        }
        let ones = outer.iter().map(|_| 1);
        let a: Vec<usize> = ones.chain([rank, *columns]).collect();
        let rows = to.shape().iter().copied().take(to.shape().len() - 1);
        let b: Vec<usize> = rows.chain([rank]).collect();
        Ok(Self { a: self.a.reshape(&a)?, b: self.b.reshape(&b)? })
    }

    /// Reorder the axes of the product: all but the last, or the last two.
    fn permuted(self, order: &[usize]) -> Result<Self, Error> {
        let n = order.len();
        let in_order = |axes: &[usize]| axes.iter().copied().eq(0..axes.len());
        match order {
            [outer @ .., last] if last + 1 == n => {
                let is_one = self.a.shape.iter().rev().skip(2).all(|&dim| dim == 1);
                if !is_one && !in_order(outer) {
                    return Err(self.b.indivisible());
                }
                Ok(Self { b: self.b.permute(order)?, a: self.a })
            }
            [outer @ .., last, second] if last + 1 == n && second + 2 == n && in_order(outer) => {
                Ok(Self { a: self.b.transpose()?, b: self.a.transpose()? })
            }
            _ => Err(self.b.indivisible()),
        }
    }

    /// Take elements of an axis of the product, which gives `to`.
    fn sliced(self, to: &Tensor, axis: usize, start: usize, step: usize) -> Result<Self, Error> {
        let len = to.dim(axis);
        let slice = |factor: &Tensor| factor.every(axis, start, step, len);
        match to.shape().len().checked_sub(axis) {
            Some(1) => Ok(Self { a: slice(&self.a)?, b: self.b }),
            Some(2) => Ok(Self { b: slice(&self.b)?, a: self.a }),
            _ if self.a.dim(axis) == 1 => Ok(Self { b: slice(&self.b)?, a: self.a }),
            _ => Ok(Self { a: slice(&self.a)?, b: slice(&self.b)? }),
        }
    }

    /// Multiply the product, which gives `to`. Other changes are refused.
    fn changed(self, to: &Tensor, change: &Change) -> Result<Self, Error> {
        match change {
            Change::Multiply(_) | Change::MultiplyRows(_) => {
                // Arithmetic rounds to half precision if both factors do.
                let b = Tensor { half: to.half, ..self.b };
                Ok(Self { b: b.changed(change.clone()), a: self.a })
            }
            Change::Add(_) | Change::NegExp => Err(to.indivisible()),
        }
    }

    /// Return the number of columns of `b`, which is that of rows of `a`.
    pub(crate) fn rank(&self) -> usize {
        self.b.shape.last().copied().unwrap_or(1)
    }

    /// Compute the product of two matrices.
    ///
    /// # Errors
    /// [`Error::Read`] if the checkpoint cannot be read.
    pub(super) fn product(&self, checkpoint: &mut Checkpoint) -> Result<Vec<f32>, Error> {
        let (a, b) = (self.a.values(checkpoint)?, self.b.values(checkpoint)?);
        let (rank, n_columns) = (self.rank().max(1), self.a.dim(1).max(1));
        let mut product = Vec::with_capacity(self.b.dim(0) * n_columns);
        for row in b.chunks_exact(rank) {
            let mut sums = vec![0.0; n_columns];
            for (x, columns) in row.iter().zip(a.chunks_exact(n_columns)) {
                sums.iter_mut().zip(columns).for_each(|(sum, y)| *sum += x * y);
            }
            product.extend(sums);
        }
        Ok(product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::of_values("t", (0..n).map(|i| (i % 7) as f32 - 3.0).collect()).reshape(shape).unwrap()
    }

    /// A product of 8 rows and 6 columns, of rank 2.
    fn product() -> Tensor {
        Tensor::low_rank(counting(&[2, 6]), counting(&[8, 2])).unwrap()
    }

    fn values(t: &Tensor) -> Vec<f32> {
        t.values(&mut Checkpoint::empty()).unwrap()
    }

    /// Multiply the factors of a tensor, matrix by matrix.
    fn multiplied(t: &Tensor) -> Vec<f32> {
        let factors = t.factors().unwrap().unwrap();
        let n_matrices: usize = t.shape().iter().rev().skip(2).product();
        let matrix = |factor: &Tensor, i: usize| {
            let [.., rows, columns] = factor.shape() else { panic!("{:?}", factor.shape()) };
            let (n, all) = (rows * columns, values(factor));
            let start = if all.len() == n { 0 } else { i * n };
            Tensor::of_values("m", all[start..start + n].to_vec()).reshape(&[*rows, *columns]).unwrap()
        };
        let product = |i| values(&Tensor::low_rank(matrix(&factors.a, i), matrix(&factors.b, i)).unwrap());
        (0..n_matrices).flat_map(product).collect()
    }

    #[test]
    fn factors_follow_what_is_done_to_the_product() {
        let heads = product().reshape(&[2, 2, 2, 6]).unwrap();
        let pairs = heads.permute(&[0, 2, 1, 3]).unwrap().reshape(&[8, 6]).unwrap();
        let cut = product().cut(0, &[3, 5]).unwrap();
        let stack = Tensor::stack(&[product(), product().multiply(2.0)]).unwrap();
        let cases = [
            product(),
            pairs,
            product().transpose().unwrap(),
            product().slice(1, 2, 3).unwrap(),
            product().every(0, 1, 2, 4).unwrap(),
            heads.slice(1, 1, 1).unwrap(),
            product().multiply_rows(vec![(3, 2.0), (5, 0.5)]),
            Tensor::join(0, vec![cut[1].clone(), cut[0].clone()]).unwrap(),
            Tensor::join(1, product().cut(1, &[1, 5]).unwrap()).unwrap(),
            Tensor::join(
                0,
                vec![cut[0].clone(), cut[1].reshape(&[5, 1, 6]).unwrap().reshape(&[5, 6]).unwrap()],
            )
            .unwrap(),
            stack.clone(),
            stack.transpose().unwrap().slice(0, 1, 1).unwrap(),
        ];
        for (number, case) in cases.iter().enumerate() {
            assert_eq!(multiplied(case), values(case), "case {number}");
            let factors = case.factors().unwrap().unwrap();
            assert_eq!(factors.rank(), 2, "case {number}");
        }
        assert!(counting(&[4, 4]).transpose().unwrap().factors().unwrap().is_none());
    }

    #[test]
    fn what_no_factors_give_is_refused() {
        let other = Tensor::low_rank(counting(&[2, 6]).multiply(3.0), counting(&[8, 2])).unwrap();
        let cases = [
            product().add(1.0),
            product().neg_exp(),
            product().reshape(&[48]).unwrap(),
            product().reshape(&[6, 8]).unwrap(),
            Tensor::join(0, vec![product(), other]).unwrap(),
            Tensor::join(0, vec![product(), counting(&[8, 6])]).unwrap(),
        ];
        for (number, case) in cases.iter().enumerate() {
            let error = case.factors().unwrap_err().to_string();
            assert!(error.contains("two factors, wanted a whole tensor"), "case {number}: {error}");
        }
        let ranks = Tensor::low_rank(counting(&[2, 6]), counting(&[8, 3])).unwrap_err().to_string();
        assert!(ranks.contains("the shape [8, 3], wanted 2 columns, the rank of"), "{ranks}");
        assert!(Tensor::low_rank(counting(&[2, 6, 1]), counting(&[8, 2])).is_err());
    }
}
