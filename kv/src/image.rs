//! What sequences hold, as plain data apart from any memory: the common language of live memories and files.
//!
//! An [`Image`] is the description: which blocks of cells, states and journals there are, and how sequences and
//! checkpoints are made of them. Sharing stays visible: two forks name the same blocks. The bytes come from a [`Content`], which
//! shows them, or from a [`Source`], which puts them where they belong and checks them on the way.
//!
//! Layers are described by [`Shape`] in *groups*: layers that cache cells and see the same window. A memory may keep several groups in
//! one place, depending on its size; an image does not, so that it fits memories of other sizes.

mod beginning;
mod check;
mod owned;

use crate::ids::Pos;
use crate::layer::{StatePart, Window};
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout, CellType, Extent};

pub use beginning::Resume;
pub(crate) use beginning::drop_dead_spans;
pub use owned::Owned;

/// What layers keep, as far as both sides must agree on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Layers that cache keys and values, by what they see.
    pub groups: Vec<Group>,
    /// Layers with a recurrent state.
    pub recurrent: Vec<StateLayer>,
}

/// Layers that cache cells and see the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they see.
    pub sees: Sees,
    /// Element type of keys.
    pub k_type: CellType,
    /// Element type of values.
    pub v_type: CellType,
    /// The layers, ascending.
    pub layers: Vec<CellLayer>,
}

/// What the layers of a group see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// All earlier tokens of the sequence.
    All,
    /// Those in a window.
    Window(Window),
    /// The text that an encoder made cells of.
    Text,
}

/// Shape of one layer's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayer {
    /// The layer of the model, counted from 0.
    pub layer: u32,
    /// Heads of K and V.
    pub n_head_kv: u32,
    /// Elements of one head's key.
    pub d_k: u32,
    /// Elements of one head's value.
    pub d_v: u32,
}

/// One layer's recurrent state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLayer {
    /// The layer of the model, counted from 0.
    pub layer: u32,
    /// Its pieces; sizes are numbers of f32.
    pub parts: Vec<StatePart>,
}

impl Group {
    /// How the cells of a block of one of the layers lie.
    pub fn layout(&self, layer: &CellLayer) -> CellLayout {
        CellLayout {
            n_head_kv: layer.n_head_kv as usize,
            d_k: layer.d_k as usize,
            d_v: layer.d_v as usize,
            k_type: self.k_type,
            v_type: self.v_type,
        }
    }

    /// How the cells of each layer lie.
    pub fn layouts(&self) -> impl Iterator<Item = CellLayout> + '_ {
        self.layers.iter().map(|layer| self.layout(layer))
    }
}

impl Shape {
    /// The pieces of a state, in order: layer by layer.
    pub fn pieces(&self) -> impl Iterator<Item = &StatePart> + '_ {
        self.recurrent.iter().flat_map(|layer| &layer.parts)
    }
}

/// What sequences hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What the layers keep.
    pub shape: Shape,
    /// For each group of the shape, its blocks of cells.
    pub blocks: Vec<Vec<Block>>,
    /// How many recurrent states there are.
    pub n_states: u32,
    /// The journals: for each how many rows it has.
    pub journals: Vec<u32>,
    /// What sequences can go back to.
    pub checkpoints: Vec<Checkpoint>,
    /// The sequences.
    pub sequences: Vec<Sequence>,
}

/// A block of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The cells that anybody uses: bit `i` for cell `i`.
    pub live: u32,
    /// The position of each cell; zero where nobody uses it.
    pub pos: [Pos; BLOCK_CELLS],
}

/// Cells in order: blocks of a group, and which of their cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Entry `i` holds slots `32 * i ..`; [`Extent::EMPTY`] where there are none. `block` counts the blocks of the group.
    pub extents: Vec<Extent>,
    /// Positions below this may lack cells that were there once; 0: none are gone.
    pub whole_from: Pos,
    /// The position that the cells began at, if some are gone.
    pub start: Pos,
}

/// A recurrent state and what it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Which state; `None`: that of an empty sequence.
    pub state: Option<u32>,
    /// The first position that it has seen and that was not removed from the front.
    pub first: Pos,
}

/// What a sequence can go back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whether somebody wants it kept.
    pub pinned: bool,
    /// Whether nothing before it can be made again.
    pub anchor: bool,
    /// The journal of the tokens after it.
    pub journal: Option<u32>,
    /// For each group the cells that are needed to go on from there, where a memory keeps them apart.
    pub cells: Vec<Option<Cells>>,
    /// The recurrent state there.
    pub state: Option<State>,
}

/// An entry of a sequence's way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which checkpoint.
    pub checkpoint: u32,
    /// The position of the token that follows it.
    pub pos: Pos,
    /// How many of the tokens that follow are in its journal.
    pub n_rows: u32,
}

/// What one sequence holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// For each group the cells.
    pub cells: Vec<Cells>,
    /// The recurrent state after the last token.
    pub state: Option<State>,
    /// The last position, where there is a state.
    pub last: Pos,
    /// The way back, ascending.
    pub line: Vec<Mark>,
}

/// Bytes of an image, to look at.
pub trait Content {
    /// What the bytes are of.
    fn image(&self) -> &Image;

    /// A block of a group: for each layer all 32 cells as [`CellLayout`] has them; those that nobody uses may hold anything. Empty for a
    /// block that the image does not have.
    fn block(&self, group: usize, block: usize) -> Vec<&[u8]>;

    /// A state: for each piece its numbers. Empty for one that the image does not have.
    fn state(&self, state: usize) -> Vec<&[f32]>;

    /// A journal: for each piece its rows, `[n_rows, input]`. Empty for one that the image does not have.
    fn journal(&self, journal: usize) -> Vec<&[f32]>;
}

/// Bytes of an image, to be put where they belong. After an error the targets hold anything.
pub trait Source {
    /// Why bytes cannot be had.
    type Error;

    /// Fills a block of a group: `layers` has, for each layer, room for its 32 cells. Cells that nobody uses become anything.
    ///
    /// # Errors
    /// If the bytes are not to be had, or not sound.
    fn fill_block(&self, group: usize, block: usize, layers: &mut [&mut [u8]]) -> Result<(), Self::Error>;

    /// Fills a state, piece by piece.
    ///
    /// # Errors
    /// As [`Source::fill_block`].
    fn fill_state(&self, state: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error>;

    /// Fills a journal, piece by piece, `[n_rows, input]` each.
    ///
    /// # Errors
    /// As [`Source::fill_block`].
    fn fill_journal(&self, journal: usize, pieces: &mut [&mut [f32]]) -> Result<(), Self::Error>;
}
