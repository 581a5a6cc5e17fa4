//! Generations that are interrupted between two chunks and do not borrow their session meanwhile.

use super::Session;
use super::chunk::Buffers;
use super::generate::{Generation, Rest};
use crate::error::Error;
use backstitch_kv::SeqId;

/// A generation between two chunks that does not borrow its session.
///
/// [`Generation::pause`] makes one, and [`Session::resume`] goes on with it. Meanwhile the session
/// can do anything else: generate in another branch, return logits, save. Several branches so
/// generate by turns.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::GenerateOptions;
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64).n_seq_max(2))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5)])?;
/// let other = session.branch()?;
/// let mut first = session.generate(GenerateOptions::default().limit(3)).pause();
/// let mut second = session.switch(other)?.generate(GenerateOptions::default().limit(3)).pause();
/// for _ in 0..3 {
///     let mut generation = session.resume(first)?;
///     let one = generation.next().transpose()?;
///     first = generation.pause();
///     let mut generation = session.resume(second)?;
///     let another = generation.next().transpose()?;
///     second = generation.pause();
///     assert_eq!(one, another); // the same samplers and seed
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PausedGeneration {
    seq: SeqId,
    /// The number of the branch among all branches that there ever were, and that of its changes.
    stamp: (usize, u64),
    rest: Rest,
    buffers: Buffers,
}

impl PausedGeneration {
    /// Return the branch that it generates in.
    pub fn branch(&self) -> SeqId {
        self.seq
    }
}

impl Generation<'_> {
    /// Interrupt the generation here. The branch holds exactly the tokens that were yielded.
    pub fn pause(self) -> PausedGeneration {
        let Generation { session, rest } = self;
        let buffers = core::mem::take(&mut session.buffers);
        PausedGeneration { seq: session.current(), stamp: session.current.stamp(), rest, buffers }
    }
}

impl Session {
    /// Go on with a generation that was interrupted, in its branch, which becomes the current one.
    /// It goes on as if there had been no interruption.
    ///
    /// # Errors
    /// [`Error::Sequence`] if the branch was removed. [`Error::BranchChanged`] if its tokens are
    /// others than those at the interruption, or were, or if another generation began there. The
    /// current branch stays the current one then.
    pub fn resume(&mut self, paused: PausedGeneration) -> Result<Generation<'_>, Error> {
        let PausedGeneration { seq, stamp, rest, buffers } = paused;
        let before = self.current();
        if self.switch(seq)?.current.stamp() != stamp {
            self.switch(before)?;
            return Err(Error::BranchChanged { seq: seq.0 });
        }
        self.buffers = buffers;
        Ok(Generation { session: self, rest })
    }
}
