//! Failures that cost tokens: in a cache without a free block, a re-evaluation takes the cells of
//! the tokens that it replaces. If it fails, the branch ends where its sequence ends.

use super::*;
use backstitch_models::session::GenerateOptions;
use backstitch_models::speculative::Drafter;
use backstitch_models::{Cancel, Pos, RollbackParams};
use backstitch_testing::assert_bits;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// A request that is made after some checks, and stays until it is withdrawn.
struct After(Arc<AtomicI64>);

impl After {
    fn new(session: &mut Session) -> Self {
        let checks = Arc::new(AtomicI64::new(i64::MAX));
        let left = checks.clone();
        session.set_cancel(Some(Cancel::from_fn(move || left.fetch_sub(1, Relaxed) <= 0)));
        After(checks)
    }

    fn make(&self, n_checks: i64) {
        self.0.store(n_checks, Relaxed);
    }

    /// Withdraw the request; return true if it was made.
    fn withdraw(&self) -> bool {
        self.0.swap(i64::MAX, Relaxed) < 0
    }
}

fn options(n: usize) -> GenerateOptions {
    GenerateOptions::default().limit(n).ignore_eos()
}

fn generate(session: &mut Session, n: usize) {
    session.generate(options(n)).for_each(|chunk| drop(chunk.unwrap()));
}

/// A use of logits.
type Act = fn(&mut Session) -> Result<(), Error>;

/// Return a session of 250 tokens that has no logits, and whose last block is not full while no
/// other block is free.
fn crowded(text: &[Token]) -> Session {
    let model = model("llama");
    let params = Params::default().n_ctx(256).n_seq_max(2);
    let mut session = Session::with_chain(Context::new(&model, params).unwrap(), chain(&model)).unwrap();
    session.feed(text).unwrap();
    let (first, second) = (session.current(), session.empty_branch().unwrap());
    session.switch(second).unwrap().feed(&text[..128]).unwrap();
    session.switch(first).unwrap();
    session
}

#[test]
fn logits_that_cannot_be_had_again_shorten_the_branch_with_its_sequence() {
    let text: Vec<Token> = (0..250).map(|i| Token(30 + i % 97)).collect();
    let mut expected = crowded(&text);
    let logits = expected.logits().unwrap().to_vec();
    generate(&mut expected, 5);
    let acts: [Act; 3] = [
        |session| session.logits().map(|_| ()),
        |session| session.shared_logits().map(|_| ()),
        |session| session.generate(options(5)).next().unwrap().map(|_| ()),
    ];
    for act in acts {
        let mut session = crowded(&text);
        let after = After::new(&mut session);
        after.make(1);
        assert!(matches!(act(&mut session), Err(Error::Cancelled)));
        assert!(after.withdraw());
        let held = session.context().pos(session.current()).unwrap();
        assert!(held < Pos(250), "the cells were not given up");
        assert_eq!((session.pos(), session.tokens()), (held, &text[..held.0 as usize]));
        session.feed(&text[held.0 as usize..]).unwrap();
        assert_bits("after the loss", session.logits().unwrap(), &logits);
        generate(&mut session, 5);
        assert_eq!(session.tokens(), expected.tokens());
    }
}

/// A drafter that drafts one token again and again.
struct Stutter;

impl Drafter for Stutter {
    fn draft(&mut self, _: &[Token], _: Token, n: usize, draft: &mut Vec<Token>) -> Result<(), Error> {
        draft.extend(std::iter::repeat_n(Token(3), n));
        Ok(())
    }
}

#[test]
fn drafts_that_cannot_be_rolled_back_shorten_the_branch_with_its_sequence() {
    const N_NEW: usize = 3;
    let text: Vec<Token> = (0..100).map(|i| Token(30 + i % 97)).collect();
    let model = model("falcon_h1");
    let start = || {
        let params = Params::default().n_ctx(128).n_batch(32).rollback(RollbackParams::OFF);
        let mut session = Session::with_chain(Context::new(&model, params).unwrap(), chain(&model)).unwrap();
        session.feed(&text).unwrap();
        session
    };
    let mut expected = start();
    generate(&mut expected, N_NEW);
    let mut n_lost = 0;
    for n_checks in (1..).step_by(37) {
        let mut session = start();
        session.set_drafter(Some(Box::new(Stutter)), 4);
        let after = After::new(&mut session);
        after.make(n_checks);
        let result = session.generate(options(N_NEW)).try_for_each(|chunk| chunk.map(|_| ()));
        let is_cancelled = after.withdraw();
        let held = session.tokens().len();
        assert_eq!(session.tokens(), &expected.tokens()[..held], "{n_checks}");
        assert_eq!(session.pos(), Pos(held as i32));
        if held < text.len() {
            n_lost += 1;
            assert!(matches!(result, Err(Error::Cancelled)), "{n_checks}: {result:?}");
            session.feed(&text[held..]).unwrap();
        }
        session.evaluate_pending().unwrap();
        assert_eq!(session.context().tokens(session.current()).unwrap(), session.tokens());
        let n_left = text.len() + N_NEW - session.tokens().len();
        generate(&mut session, n_left);
        assert_eq!(session.tokens(), expected.tokens(), "{n_checks}");
        if !is_cancelled {
            break;
        }
    }
    assert!(n_lost > 0);
}
