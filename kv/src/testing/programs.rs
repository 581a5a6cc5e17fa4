//! Random programs on a memory and the oracle, compared after every step.
//!
//! A program is a list of [`Step`]s over few sequences and a cache so small that it fills up. A
//! [`Machine`] runs it. Keys, values and states are functions of the token alone, every token is
//! new, and every cell that attention would read is compared while a plan is open. Besides the
//! memory's own bytes the machine checks those of an [`Engine`], which stores what ubatches tell it
//! to and follows the changes that the memory lists; [`Blocks`] is a simple one.
//!
//! # Example
//! An engine under test takes the place of [`Blocks`]; with the feature `proptest`, `program()`
//! generates the steps.
//! ```
//! use backstitch_core::cell::CellType;
//! use backstitch_kv::testing::programs::{Blocks, End, Machine, Step, hybrid};
//!
//! let mut machine = Machine::<Blocks>::new(hybrid(), 160, CellType::F32, CellType::F32);
//! let decode = |seqs, n| {
//!     let runs = vec![(seqs, n)];
//!     Step::Decode { runs, woven: false, n_ubatch: 16, end: End::Commit }
//! };
//! machine.run(&decode(0b0001, 40));
//! machine.run(&Step::Copy { src: 0, dst: 1, range: (0, 255), emptied: true });
//! machine.run(&decode(0b0010, 5)); // The fork appends: a block is copied.
//! machine.run(&Step::Rewind { seq: 0, n: 7, n_ubatch: 4, dropped: None });
//! assert_eq!(machine.tally().commits, 2);
//! ```

mod compute;
mod engine;
mod layers;
mod machine;
mod steps;
#[cfg(any(test, feature = "proptest"))]
mod strategies;
#[cfg(test)]
mod tests;

pub use engine::{Blocks, Engine};
pub use layers::{hybrid, recurrent, transformer, widened, windowed, windowed_and_recurrent};
pub use machine::{Machine, Tally};
pub use steps::{End, Step};
#[cfg(any(test, feature = "proptest"))]
pub use strategies::{program, step};

use super::{Naive, NaiveCell, Rows};
use crate::batch::Batch;
use crate::cache::table::bits;
use crate::cache::view::{Cell, Visible};
use crate::error::Error;
use crate::external::Placement;
use crate::ids::{Pos, SeqId, Token};
use crate::kind::{Kind, Operation, Retention};
use crate::layer::{AttentionLayer, AttentionSpec, LayerSpec, Rotation, StateTensor, Window};
use crate::memory::Memory;
use crate::memory::plan::{Plan, Ubatch};
use crate::params::{Params, RollbackParams};
use crate::rollback::RollbackCost;
use crate::snapshot::import::{Fit, ImportError};
use crate::snapshot::{Content, Owned};
use crate::storage::{Container, Fingerprint, Header, Scope, StoredSnapshot, Writer, write_snapshot};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellType};
use backstitch_core::rope::{Pairs, Rope};
use core::ops::Range;

use compute::*;
use layers::*;
