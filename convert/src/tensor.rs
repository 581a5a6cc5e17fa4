//! Tensors that will be computed: what is stored, and the small changes between it and the new
//! file.
//!
//! A [`Tensor`] knows its shape before any data is read, because the header of a GGUF file holds
//! the shapes of all tensors and comes first. Its data are computed when they are written.

mod compute;
mod factors;
mod write;

use std::rc::Rc;

use crate::checkpoint::Stored;
use crate::error::Error;
use crate::safetensors::StoredType;
pub(crate) use factors::Factors;

/// A tensor that will be computed, cheap to clone.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name in the checkpoint, for errors.
    name: Rc<str>,
    /// Dimensions, outermost first.
    shape: Vec<usize>,
    /// True if arithmetic rounds to half precision, which is the type that is stored.
    half: bool,
    node: Rc<Node>,
}

#[derive(Debug)]
enum Node {
    Stored(Stored),
    Values(Vec<f32>),
    Reshaped(Tensor),
    /// Axis `i` of the result is axis `order[i]`.
    Permuted {
        of: Tensor,
        order: Vec<usize>,
    },
    /// Elements `start`, `start + step` and so on of an axis, as many as the shape says.
    Sliced {
        of: Tensor,
        axis: usize,
        start: usize,
        step: usize,
    },
    Joined {
        of: Vec<Tensor>,
        axis: usize,
    },
    Changed {
        of: Tensor,
        change: Change,
    },
    /// Blocks of 16 bytes and their scales, to be stored as MXFP4.
    Mxfp4 {
        blocks: Tensor,
        scales: Tensor,
    },
    /// The product of two matrices of low rank, of which an adapter stores the factors.
    LowRank(Factors),
    /// Each block of rows and columns has a factor of its own.
    BlockScaled {
        of: Tensor,
        scales: Tensor,
        block: [usize; 2],
    },
}

/// A change of each element.
#[derive(Clone, Debug)]
enum Change {
    Add(f32),
    Multiply(f32),
    /// `-exp(x)`: decay rates of state spaces are stored as logarithms.
    NegExp,
    /// Runs of rows, each with its factor.
    MultiplyRows(Vec<(usize, f32)>),
}

impl Tensor {
    /// Make a tensor of what the checkpoint stores.
    pub(crate) fn stored(name: &str, shape: Vec<usize>, stored: Stored) -> Self {
        let half = stored.ty == StoredType::F16;
        Self { name: name.into(), shape, half, node: Rc::new(Node::Stored(stored)) }
    }

    /// Make a vector of values that no file stores.
    pub(crate) fn of_values(name: &str, values: Vec<f32>) -> Self {
        Self {
            name: name.into(),
            shape: vec![values.len()],
            half: false,
            node: Rc::new(Node::Values(values)),
        }
    }

    /// Return the dimensions, outermost first.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Return the size of an axis; 1 if there is none.
    pub(crate) fn dim(&self, axis: usize) -> usize {
        self.shape.get(axis).copied().unwrap_or(1)
    }

    /// Return the name in the checkpoint.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Return the number of elements. It fits: the data are in a file, or are values of this crate.
    pub(crate) fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Return true if the tensor will be written as MXFP4, whatever is asked for.
    pub(crate) fn is_mxfp4(&self) -> bool {
        match &*self.node {
            Node::Mxfp4 { .. } => true,
            Node::Joined { of, .. } => of.iter().any(Tensor::is_mxfp4),
            _ => false,
        }
    }

    /// Make the error of a shape that does not fit.
    pub(crate) fn misfit(&self, wanted: impl Into<String>) -> Error {
        let found = format!("the shape {:?}", self.shape);
        Error::Tensor { tensor: (*self.name).into(), found, wanted: wanted.into() }
    }

    /// Check the number of dimensions.
    ///
    /// # Errors
    /// [`Error::Tensor`] for another number.
    pub(crate) fn expect_rank(self, rank: usize) -> Result<Self, Error> {
        if self.shape.len() == rank { Ok(self) } else { Err(self.misfit(format!("{rank} dimensions"))) }
    }

    /// Return the tensor if it has elements.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a dimension is 0.
    pub(crate) fn expect_elements(self) -> Result<Self, Error> {
        if self.n_elements() == 0 { Err(self.misfit("no dimension of 0")) } else { Ok(self) }
    }

    fn of(&self, shape: Vec<usize>, node: Node) -> Self {
        Self { name: self.name.clone(), shape, half: self.half, node: Rc::new(node) }
    }

    /// Give the same elements another shape.
    ///
    /// # Errors
    /// [`Error::Tensor`] if it has another number of elements.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Result<Self, Error> {
        let n = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        if n != Some(self.n_elements()) {
            return Err(self.misfit(format!("one that can become {shape:?}")));
        }
        Ok(self.of(shape.into(), Node::Reshaped(self.clone())))
    }

    /// Split an axis of `size * n` elements into two, of `size` and `n` elements.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the axis is not a multiple of `size`.
    pub(crate) fn split_axis(&self, axis: usize, size: usize) -> Result<Self, Error> {
        let dim = self.dim(axis);
        if axis >= self.shape.len() || size == 0 || !dim.is_multiple_of(size) {
            return Err(self.misfit(format!("a multiple of {size} as dimension {axis}")));
        }
        let mut shape = self.shape.clone();
        shape.splice(axis..=axis, [size, dim / size]);
        self.reshape(&shape)
    }

    /// Drop the dimensions of 1; a tensor of one element keeps one.
    pub(crate) fn squeeze(&self) -> Self {
        let mut shape: Vec<usize> = self.shape.iter().copied().filter(|&dim| dim != 1).collect();
        if shape.is_empty() {
            shape.push(1);
        }
        self.of(shape, Node::Reshaped(self.clone()))
    }

    /// Reorder the axes: axis `i` of the result is axis `order[i]`.
    ///
    /// # Errors
    /// [`Error::Tensor`] if `order` does not name each axis once.
    pub(crate) fn permute(&self, order: &[usize]) -> Result<Self, Error> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if sorted.into_iter().ne(0..self.shape.len()) {
            return Err(self.misfit(format!("{} dimensions", order.len())));
        }
        let shape = order.iter().map(|&axis| self.dim(axis)).collect();
        Ok(self.of(shape, Node::Permuted { of: self.clone(), order: order.into() }))
    }

    /// Exchange the last two axes.
    ///
    /// # Errors
    /// [`Error::Tensor`] if there are not two.
    pub(crate) fn transpose(&self) -> Result<Self, Error> {
        let rank = self.shape.len();
        if rank < 2 {
            return Err(self.misfit("two dimensions"));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.permute(&order)
    }

    /// Take `len` elements of an axis, from `start` on.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the axis is shorter.
    pub(crate) fn slice(&self, axis: usize, start: usize, len: usize) -> Result<Self, Error> {
        self.every(axis, start, 1, len)
    }

    /// Take `len` elements of an axis, from `start` on, `step` apart.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the axis is shorter.
    pub(crate) fn every(&self, axis: usize, start: usize, step: usize, len: usize) -> Result<Self, Error> {
        let last = len.checked_sub(1).and_then(|n| n.checked_mul(step)).and_then(|n| n.checked_add(start));
        if axis >= self.shape.len() || last.is_none_or(|last| last >= self.dim(axis)) {
            return Err(self.misfit(format!("at least {} as dimension {axis}", start.saturating_add(len))));
        }
        let mut shape = self.shape.clone();
        if let Some(dim) = shape.get_mut(axis) {
            *dim = len;
        }
        // Whole rows are not read just to be thrown away.
        if let (Node::Stored(stored), 0, 1) = (&*self.node, axis, step) {
            let row = self.n_elements() / self.dim(0).max(1) * stored.ty.n_bytes();
            let stored = Stored { start: stored.start + (start * row) as u64, ..stored.clone() };
            return Ok(self.of(shape, Node::Stored(stored)));
        }
        Ok(self.of(shape, Node::Sliced { of: self.clone(), axis, start, step }))
    }

    /// Cut an axis into pieces of these sizes.
    ///
    /// # Errors
    /// [`Error::Tensor`] if they do not add up to the axis.
    pub(crate) fn cut(&self, axis: usize, sizes: &[usize]) -> Result<Vec<Self>, Error> {
        let total = sizes.iter().try_fold(0usize, |n, &size| n.checked_add(size));
        if total != Some(self.dim(axis)) {
            return Err(self.misfit(format!("dimension {axis} to be the sum of {sizes:?}")));
        }
        let mut start = 0;
        let piece = |&len: &usize| {
            let piece = self.slice(axis, start, len);
            start += len;
            piece
        };
        sizes.iter().map(piece).collect()
    }

    /// Join tensors along an axis.
    ///
    /// # Errors
    /// [`Error::Tensor`] if other dimensions differ, or the size overflows.
    pub(crate) fn join(axis: usize, of: Vec<Self>) -> Result<Self, Error> {
        let Some(first) = of.first().cloned() else {
            let (found, wanted) = ("no parts".into(), "at least one".into());
            return Err(Error::Tensor { tensor: String::new(), found, wanted });
        };
        let mut shape = first.shape.clone();
        let mut total = 0usize;
        for part in &of {
            let fits = part.shape.len() == shape.len()
                && part.shape.iter().zip(&shape).enumerate().all(|(i, (a, b))| i == axis || a == b);
            let sum = total.checked_add(part.dim(axis)).filter(|_| fits);
            total = sum.ok_or_else(|| part.misfit(format!("that of {:?}, {:?}", first.name, first.shape)))?;
        }
        if let Some(dim) = shape.get_mut(axis) {
            *dim = total;
        }
        let half = of.iter().all(|part| part.half);
        Ok(Self { half, ..first.of(shape, Node::Joined { of, axis }) })
    }

    /// Stack tensors of one shape along a new first axis.
    ///
    /// # Errors
    /// [`Error::Tensor`] if their shapes differ.
    pub(crate) fn stack(of: &[Self]) -> Result<Self, Error> {
        let layers: Result<Vec<_>, _> = of.iter().map(Tensor::unsqueeze).collect();
        Self::join(0, layers?)
    }

    /// Add a first axis of 1.
    ///
    /// # Errors
    /// None.
    pub(crate) fn unsqueeze(&self) -> Result<Self, Error> {
        let shape: Vec<usize> = [1].into_iter().chain(self.shape.iter().copied()).collect();
        self.reshape(&shape)
    }

    fn changed(&self, change: Change) -> Self {
        self.of(self.shape.clone(), Node::Changed { of: self.clone(), change })
    }

    /// Add a number to each element.
    pub(crate) fn add(&self, x: f32) -> Self {
        self.changed(Change::Add(x))
    }

    /// Multiply each element.
    pub(crate) fn multiply(&self, x: f32) -> Self {
        self.changed(Change::Multiply(x))
    }

    /// Replace each element `x` by `-exp(x)`.
    pub(crate) fn neg_exp(&self) -> Self {
        self.changed(Change::NegExp)
    }

    /// Multiply runs of rows, each by its factor. The last run reaches to the end.
    pub(crate) fn multiply_rows(&self, runs: Vec<(usize, f32)>) -> Self {
        self.changed(Change::MultiplyRows(runs))
    }

    /// Make a tensor of MXFP4 blocks: 16 bytes for each block, and their scales.
    ///
    /// # Errors
    /// [`Error::Tensor`] if they are not bytes, or the shapes do not fit.
    pub(crate) fn mxfp4(blocks: &Self, scales: &Self) -> Result<Self, Error> {
        let (Some((&16, rows)), [outer @ .., n]) = (blocks.shape.split_last(), scales.shape()) else {
            return Err(blocks.misfit("16 bytes for each block of 32 elements"));
        };
        if rows != scales.shape() {
            return Err(scales.misfit(format!("{rows:?}, a scale for each block")));
        }
        let columns = n.checked_mul(32).ok_or_else(|| blocks.misfit("fewer blocks"))?;
        let shape = outer.iter().copied().chain([columns]).collect();
        Ok(blocks.of(shape, Node::Mxfp4 { blocks: blocks.clone(), scales: scales.clone() }))
    }

    /// Multiply blocks of rows and columns, each by its factor.
    ///
    /// # Errors
    /// [`Error::Tensor`] if there is not a factor for each block.
    pub(crate) fn block_scaled(&self, scales: &Self, block: [usize; 2]) -> Result<Self, Error> {
        let [rows, columns] = self.shape() else { return Err(self.misfit("two dimensions")) };
        let [height, width] = block;
        if height == 0 || width == 0 || scales.shape() != [rows.div_ceil(height), columns.div_ceil(width)] {
            return Err(scales.misfit(format!("a scale for each {height} x {width} of {:?}", self.shape)));
        }
        let node = Node::BlockScaled { of: self.clone(), scales: scales.clone(), block };
        Ok(Self { half: false, ..self.of(self.shape.clone(), node) })
    }

    /// Multiply by factors of outer dimensions: one for all elements, for each row, or for each
    /// expert. Trailing dimensions of 1 of `scales` do not count.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the factors are none of these, or there are no elements.
    pub(crate) fn outer_scaled(&self, scales: &Self) -> Result<Self, Error> {
        let n_outer = scales.shape.iter().rposition(|&dim| dim != 1).map_or(0, |last| last + 1);
        let outer = scales.shape.iter().take(n_outer);
        let fits = n_outer <= self.shape.len() && outer.eq(self.shape.iter().take(n_outer));
        let n = scales.n_elements();
        let Some(size) = self.n_elements().checked_div(n).filter(|_| fits) else {
            return Err(scales.misfit(format!("one scale, or one for each row of {:?}", self.shape)));
        };
        let scaled = self.reshape(&[n, size])?.block_scaled(&scales.reshape(&[n, 1])?, [1, size])?;
        scaled.reshape(&self.shape)
    }
}
