//! The reasons that a generation ends.

use backstitch_kv::Token;

/// The reason that a generation ended.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Settings;
/// use backstitch_models::session::{Finish, GenerateOptions};
/// use backstitch_models::{Context, Model, Params, Session, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let ctx = Context::new(&model, Params::default().n_ctx(64))?;
/// let mut session = Session::new(ctx, &Settings::default())?;
/// session.feed(&[Token(5)])?;
/// session.generate(GenerateOptions::default().limit(3)).for_each(drop);
/// assert_eq!(session.finish(), Some(Finish::Limit));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The model ended the text with this token, which is not part of it.
    End(Token),
    /// A stop string occurred; the text ends before it. Its tokens stay in the branch until
    /// [`Session::cut_stop`](super::Session::cut_stop).
    Stop {
        /// The index of the stop string in
        /// [`GenerateOptions::stops`](super::GenerateOptions::stops).
        index: usize,
    },
    /// The number of tokens reached [`GenerateOptions::limit`](super::GenerateOptions::limit).
    Limit,
    /// The context has no free cell for another token, or the model no position.
    ContextFull,
    /// A request to cancel came; see [`Session::set_cancel`](super::Session::set_cancel).
    Cancelled,
}
