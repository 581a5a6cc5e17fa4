//! Drafts of a smaller model.

use super::{Drafter, room_after};
use crate::{cancel::Cancel, context::Context, error::Error, model::Model, params::Params, vocab::Vocab};
use alloc::{boxed::Box, format, vec::Vec};
use backstitch_kv::{Pos, SeqId, Token};

/// The largest difference between vocabulary sizes that counts as padding. Files of one family pad
/// their vocabularies to different sizes.
const MAX_PADDING: usize = 128;

/// A drafter that decodes greedily with a smaller model. Any architecture will do, if the
/// vocabulary is the same.
///
/// Its own context follows the text: tokens that are no longer in the text are rolled back, new
/// ones are evaluated. A text that is too long for this context gets no drafts.
///
/// # Example
/// ```
/// use backstitch_models::speculative::{DraftModel, Drafter};
/// use backstitch_models::{Model, Params, Token};
///
/// let model = Model::from_bytes(backstitch_demo::GGUF)?;
/// let mut drafter = DraftModel::new(&model, &model, Params::default().n_ctx(64))?;
/// let mut draft = Vec::new();
/// drafter.draft(&[Token(5), Token(6)], Token(7), 4, &mut draft)?;
/// assert_eq!(draft.len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DraftModel {
    ctx: Context,
    seq: SeqId,
    /// The number of tokens that both models know.
    n_common: usize,
    /// The tokens of the text that the context does not hold yet.
    new: Vec<Token>,
}

impl DraftModel {
    /// Make a drafter for `target` of the model `draft`, in a context of these parameters and one
    /// sequence. The context has no more tokens than the model has positions for.
    ///
    /// # Errors
    /// [`Error::DraftVocab`] if a token differs between the models; those of [`Context::new`].
    pub fn new(target: &Model, draft: &Model, params: Params) -> Result<Self, Error> {
        check_vocabs(draft.vocab(), target.vocab())?;
        let n_positions = draft.graph().n_positions().map_or(u32::MAX, |n| n as u32);
        let n_ctx = params.n_ctx.min(n_positions);
        let mut ctx = Context::new(draft, Params { n_ctx, n_seq_max: 1, ..params })?;
        let seq = ctx.sequence()?;
        let n_ctx = ctx.params().n_ctx;
        let mut new = Vec::new();
        let refused = Error::OutOfMemory { what: "a draft's tokens", n_bytes: 4 * u64::from(n_ctx) };
        new.try_reserve_exact(n_ctx as usize + 1).map_err(|_| refused)?;
        let n_common = target.hparams().n_vocab.min(draft.hparams().n_vocab);
        Ok(DraftModel { ctx, seq, n_common, new })
    }

    /// Make the context hold `tokens` and `last`. Return false if the draft model does not know one
    /// of them.
    fn follow(&mut self, tokens: &[Token], last: Token) -> Result<bool, Error> {
        let known = self.ctx.tokens(self.seq)?;
        let n_same = known.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.new.clear();
        let n_new = tokens.len() - n_same + 1;
        let n_bytes = 4 * n_new as u64;
        self.new.try_reserve(n_new).map_err(|_| Error::OutOfMemory { what: "a draft's tokens", n_bytes })?;
        self.new.extend_from_slice(&tokens[n_same..]);
        self.new.push(last);
        if self.new.iter().any(|token| token.0 as usize >= self.n_common) {
            return Ok(false);
        }
        self.ctx.rollback(self.seq, Pos(n_same as i32))?;
        self.ctx.append(self.seq, &self.new)?;
        Ok(true)
    }

    /// Return the likeliest token after those in the context.
    fn best(&self) -> Option<Token> {
        let logits = self.ctx.logits_at_hand(self.seq)?.get(..self.n_common)?;
        (self.ctx.kernels().argmax)(logits).map(|i| Token(i as u32))
    }
}

impl Drafter for DraftModel {
    fn draft(
        &mut self,
        tokens: &[Token],
        last: Token,
        n: usize,
        draft: &mut Vec<Token>,
    ) -> Result<(), Error> {
        // The last token of a draft is not evaluated.
        let room = room_after(&self.ctx, tokens.len());
        if n.min(room) == 0 || !self.follow(tokens, last)? {
            return Ok(());
        }
        for i in 1..=n.min(room) {
            let Some(token) = self.best() else { break };
            draft.push(token);
            if i < n.min(room) {
                self.ctx.append(self.seq, &[token])?;
            }
        }
        Ok(())
    }

    fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.ctx.set_cancel(cancel);
    }
}

/// Compare the tokens that both vocabularies have.
fn check_vocabs(draft: &Vocab, target: &Vocab) -> Result<(), Error> {
    let (found, wanted) = (draft.n_vocab(), target.n_vocab());
    if found.abs_diff(wanted) > MAX_PADDING {
        let (found, wanted) = (format!("{found}"), format!("{wanted}"));
        let what = "the number of tokens".into();
        return Err(Error::DraftVocab { what, found: found.into(), wanted: wanted.into() });
    }
    let differs = |&id: &u32| draft.piece(Token(id)) != target.piece(Token(id));
    match (0..found.min(wanted) as u32).find(differs) {
        None => Ok(()),
        Some(id) => {
            let text = |vocab: &Vocab| -> Box<str> {
                alloc::string::String::from_utf8_lossy(vocab.piece(Token(id))).into()
            };
            let what = format!("token {id}").into();
            Err(Error::DraftVocab { what, found: text(draft), wanted: text(target) })
        }
    }
}
