//! Sessions that are adopted with samplers other than the saved ones.

use super::*;
use backstitch_models::sampler::Greedy;
use backstitch_models::session::GenerateOptions;
use backstitch_models::{Pos, RestoreOptions, SaveOptions, SeqId};

/// A sampler that makes one token likelier, which depends on all tokens accepted.
#[derive(Clone, Default)]
struct Tally(u32);

impl Sampler for Tally {
    fn apply(&mut self, candidates: &mut Candidates, _: &History) {
        let token = self.0 % candidates.items().len() as u32;
        candidates.add(Token(token), 4.0);
    }

    fn accept(&mut self, token: Token) {
        self.0 = (3 * self.0 + token.0) % 10_007;
    }

    fn reset(&mut self) {
        self.0 = 0;
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.0.to_le_bytes());
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let found = bytes.len() as u64;
        let bytes =
            bytes.try_into().map_err(|_| Error::SavedLength { what: "the tally", found, wanted: 4 })?;
        self.0 = u32::from_le_bytes(bytes);
        Ok(())
    }
}

fn plain(model: &Model) -> Chain {
    Chain::builder(model.hparams().n_vocab).with(Greedy).build()
}

fn tally(model: &Model) -> Chain {
    Chain::builder(model.hparams().n_vocab).with(Tally::default()).with(Greedy).build()
}

/// Return a session of nine tokens, five of them generated, sampled by `chain`.
fn told(model: &Model, chain: Chain) -> Session {
    let ctx = Context::new(model, params()).unwrap();
    let mut session = Session::with_chain(ctx, chain).unwrap();
    session.feed(&tokens(&[30, 31, 32, 33])).unwrap();
    assert_eq!(tell(&mut session, 5).len(), 5);
    session
}

fn tell(session: &mut Session, n: usize) -> Vec<Token> {
    let pieces = session.generate(GenerateOptions::default().limit(n).ignore_eos());
    pieces.flat_map(|piece| piece.unwrap().tokens).collect()
}

/// Return the continuation of the session in `bytes`, sampled by `chain`.
fn adopted(model: &Model, bytes: &[u8], chain: &Chain) -> Result<Session, Error> {
    let mut ctx = Context::new(model, params()).unwrap();
    let restored = ctx.state_read_bytes(bytes, &RestoreOptions::default()).unwrap();
    Session::adopt(ctx, chain, &restored)
}

fn saved(mut session: Session) -> Vec<u8> {
    let (states, mut bytes) = (session.states().unwrap(), Vec::new());
    let options = SaveOptions::default().samplers(&states);
    session.context().state_write(&mut bytes, &options).unwrap();
    bytes
}

#[test]
fn a_sampler_that_was_not_saved_goes_on_as_if_it_had_been_there() {
    let model = model("llama");
    let mut expected = told(&model, plain(&model));
    let bytes = saved(told(&model, plain(&model)));
    let mut session = adopted(&model, &bytes, &tally(&model)).unwrap();
    expected.set_chain(tally(&model));
    assert_eq!(tell(&mut session, 6), tell(&mut expected, 6));
    for pos in [12, 7, 2] {
        assert_eq!(session.rollback(Pos(pos)).unwrap(), expected.rollback(Pos(pos)).unwrap());
        assert_eq!(tell(&mut session, 6), tell(&mut expected, 6), "{pos}");
    }
}

#[test]
fn a_state_without_earlier_ones_goes_back_by_the_tokens() {
    let model = model("llama");
    let mut expected = told(&model, tally(&model));
    expected.evaluate_pending().unwrap();
    let (chain, mut bytes) = (expected.chain().clone(), Vec::new());
    let options = SaveOptions::default().sampler(Some(&chain));
    expected.context().state_write(&mut bytes, &options).unwrap();
    let mut session = adopted(&model, &bytes, &tally(&model)).unwrap();
    assert_eq!(session.rollback(Pos(6)).unwrap(), expected.rollback(Pos(6)).unwrap());
    assert_eq!(session.chain().state().samplers, expected.chain().state().samplers);
    assert_eq!(tell(&mut session, 6), tell(&mut expected, 6));
}

#[test]
fn a_state_that_neither_was_saved_nor_follows_from_tokens_is_missed() {
    let model = model("llama");
    let mut ctx = told(&model, plain(&model)).into_context().unwrap();
    ctx.seq_rm(SeqId(0), Pos(2)..Pos(4)).unwrap();
    let mut bytes = Vec::new();
    ctx.state_write(&mut bytes, &SaveOptions::default()).unwrap();
    assert!(matches!(adopted(&model, &bytes, &tally(&model)), Err(Error::NoSamplerState { index: 0 })));
    let chain = plain(&model);
    let options = SaveOptions::default().sampler(Some(&chain));
    bytes.clear();
    ctx.state_write(&mut bytes, &options).unwrap();
    assert!(matches!(adopted(&model, &bytes, &tally(&model)), Err(Error::NoSamplerState { index: 0 })));
    adopted(&model, &bytes, &plain(&model)).unwrap();
}

#[test]
fn a_state_of_other_samplers_is_refused() {
    let model = model("llama");
    let bytes = saved(told(&model, tally(&model)));
    let error = adopted(&model, &bytes, &plain(&model)).unwrap_err();
    assert!(matches!(error, Error::OtherSamplers { index: 0 }), "{error}");
}
