//! An image with bytes of its own.

use super::{Content, Image, Source};
use crate::error::Error;
use alloc::vec::Vec;

/// An image and its bytes, apart from any memory or file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owned {
    /// What the bytes are of.
    pub image: Image,
    /// For each group, for each block, for each layer: 32 cells as its layout has them.
    pub blocks: Vec<Vec<Vec<Vec<u8>>>>,
    /// For each state its pieces.
    pub states: Vec<Vec<Vec<f32>>>,
    /// For each journal the rows of each piece.
    pub journals: Vec<Vec<Vec<f32>>>,
}

fn copies<T: Clone>(slices: &[&[T]]) -> Vec<Vec<T>> {
    slices.iter().map(|slice| slice.to_vec()).collect()
}

impl Owned {
    /// Copies all that `content` shows.
    pub fn copy(content: &impl Content) -> Owned {
        let image = content.image().clone();
        let group = |(group, blocks): (usize, &Vec<_>)| {
            (0..blocks.len()).map(|block| copies(&content.block(group, block))).collect()
        };
        Owned {
            blocks: image.blocks.iter().enumerate().map(group).collect(),
            states: (0..image.n_states as usize).map(|state| copies(&content.state(state))).collect(),
            journals: (0..image.journals.len()).map(|number| copies(&content.journal(number))).collect(),
            image,
        }
    }

    /// Copies all bytes of `image` that `source` has.
    ///
    /// # Errors
    /// As those of `source`.
    pub fn load<S: Source>(image: &Image, source: &S) -> Result<Owned, S::Error> {
        let mut owned = Owned { image: image.clone(), ..Owned::default() };
        for (group, blocks) in image.blocks.iter().enumerate() {
            let layouts: Vec<_> =
                image.shape.groups.get(group).into_iter().flat_map(|g| g.layouts()).collect();
            let mut list = Vec::with_capacity(blocks.len());
            for block in 0..blocks.len() {
                let mut layers: Vec<Vec<u8>> =
                    layouts.iter().map(|layout| alloc::vec![0; layout.block_bytes()]).collect();
                let mut targets: Vec<&mut [u8]> = layers.iter_mut().map(Vec::as_mut_slice).collect();
                source.fill_block(group, block, &mut targets)?;
                list.push(layers);
            }
            owned.blocks.push(list);
        }
        let zeros = |len: usize| alloc::vec![0.0; len];
        for state in 0..image.n_states as usize {
            let mut pieces: Vec<Vec<f32>> = image.shape.pieces().map(|piece| zeros(piece.len)).collect();
            let mut targets: Vec<&mut [f32]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_state(state, &mut targets)?;
            owned.states.push(pieces);
        }
        for (journal, &n_rows) in image.journals.iter().enumerate() {
            let rows = |input: usize| zeros(input * n_rows as usize);
            let mut pieces: Vec<Vec<f32>> = image.shape.pieces().map(|piece| rows(piece.input)).collect();
            let mut targets: Vec<&mut [f32]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_journal(journal, &mut targets)?;
            owned.journals.push(pieces);
        }
        Ok(owned)
    }
}

fn slices<T>(list: Option<&Vec<Vec<T>>>) -> Vec<&[T]> {
    list.into_iter().flatten().map(Vec::as_slice).collect()
}

impl Content for Owned {
    fn image(&self) -> &Image {
        &self.image
    }

    fn block(&self, group: usize, block: usize) -> Vec<&[u8]> {
        slices(self.blocks.get(group).and_then(|blocks| blocks.get(block)))
    }

    fn state(&self, state: usize) -> Vec<&[f32]> {
        slices(self.states.get(state))
    }

    fn journal(&self, journal: usize) -> Vec<&[f32]> {
        slices(self.journals.get(journal))
    }
}

/// Copies slices into others of the same lengths.
fn fill<T: Copy>(slices: &[&[T]], targets: &mut [&mut [T]], what: &'static str) -> Result<(), Error> {
    let (found, wanted) = (slices.len() as u64, targets.len() as u64);
    if found != wanted {
        return Err(Error::Shape { what, found, wanted });
    }
    for (slice, target) in slices.iter().zip(targets) {
        let (found, wanted) = (slice.len() as u64, target.len() as u64);
        if found != wanted {
            return Err(Error::Shape { what, found, wanted });
        }
        target.copy_from_slice(slice);
    }
    Ok(())
}

impl Source for Owned {
    type Error = Error;

    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Error> {
        fill(&self.block(group, block), layers, "bytes of a block")
    }

    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        fill(&self.state(state), pieces, "numbers of a state")
    }

    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Error> {
        fill(&self.journal(journal), pieces, "rows of a journal")
    }
}
