//! Generations that are interrupted between two chunks.

use super::*;
use backstitch_models::session::{Finish, GenerateOptions, PausedGeneration};
use backstitch_models::{Pos, SeqId};

/// Return a session with two branches of the same tokens, and the ids of both.
fn two(name: &str) -> (Session, [SeqId; 2]) {
    let model = model(name);
    let ctx = Context::new(&model, params()).unwrap();
    let mut session = Session::with_chain(ctx, chain(&model)).unwrap();
    session.feed(&[Token(30), Token(31), Token(32)]).unwrap();
    let (first, second) = (session.current(), session.branch().unwrap());
    session.switch(second).unwrap().reseed(9);
    (session, [first, second])
}

fn options() -> GenerateOptions {
    GenerateOptions::default().limit(24).stop("\u{0}never").ignore_eos()
}

fn start(session: &mut Session, branch: SeqId) -> PausedGeneration {
    session.switch(branch).unwrap().generate(options()).pause()
}

#[test]
fn branches_that_generate_by_turns_write_what_each_writes_alone() {
    for name in ["llama", "gemma3", "falcon_h1"] {
        let (mut alone, branches) = two(name);
        let expected = branches.map(|branch| {
            let chunks = alone.switch(branch).unwrap().generate(options());
            chunks.map(|chunk| chunk.unwrap().text).collect::<String>()
        });
        let (mut session, branches) = two(name);
        let mut texts = [String::new(), String::new()];
        let mut paused = branches.map(|branch| Some(start(&mut session, branch)));
        let mut is_over = false;
        while !is_over {
            for (paused, text) in paused.iter_mut().zip(&mut texts) {
                let mut generation = session.resume(paused.take().unwrap()).unwrap();
                let chunk = generation.next().transpose().unwrap();
                is_over = chunk.is_none();
                *text += &chunk.unwrap_or_default().text;
                *paused = Some(generation.pause());
                // Meanwhile a session can do other things.
                session.logits().unwrap();
            }
        }
        assert_eq!(texts, expected, "{name}");
        for branch in branches {
            assert_eq!(session.switch(branch).unwrap().finish(), Some(Finish::Limit), "{name}");
            assert_eq!(session.tokens(), alone.switch(branch).unwrap().tokens(), "{name}");
        }
    }
}

#[test]
fn a_generation_does_not_go_on_in_a_branch_that_was_changed() {
    let (mut session, [first, second]) = two("llama");
    let changes: [fn(&mut Session); 4] = [
        |session| session.feed(&[Token(40)]).unwrap(),
        |session| {
            session.rollback(Pos(session.pos().0 - 1)).unwrap();
        },
        |session| {
            let (end, last) = (session.pos(), *session.tokens().last().unwrap());
            session.rollback(Pos(end.0 - 1)).unwrap();
            session.feed(&[last]).unwrap(); // the same tokens, but not those that were yielded
        },
        |session| drop(session.generate(options())),
    ];
    for change in changes {
        let mut generation = session.switch(first).unwrap().generate(options());
        generation.next().unwrap().unwrap();
        let paused = generation.pause();
        assert_eq!(paused.branch(), first);
        change(&mut session);
        session.switch(second).unwrap();
        let refused = session.resume(paused).map(drop);
        assert!(matches!(refused, Err(Error::BranchChanged { seq: 0 })), "{refused:?}");
        assert_eq!(session.current(), second);
    }
    assert!(Error::BranchChanged { seq: 3 }.to_string().contains("sequence 3"));
}

#[test]
fn a_generation_does_not_go_on_in_another_branch_of_the_same_id() {
    let (mut session, [first, second]) = two("llama");
    let mut generation = session.switch(second).unwrap().generate(options());
    generation.next().unwrap().unwrap();
    let paused = generation.pause();
    let other = start(&mut session, second);
    session.switch(first).unwrap();
    session.remove(second).unwrap();
    assert!(matches!(session.resume(other).map(drop), Err(Error::Sequence { seq: 1 })));
    assert_eq!(session.branch().unwrap(), second);
    assert!(matches!(session.resume(paused).map(drop), Err(Error::BranchChanged { seq: 1 })));
    assert_eq!(session.current(), first);
}
