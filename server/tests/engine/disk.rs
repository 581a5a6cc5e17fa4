//! The prompt cache on disk: what survives a restart.

use crate::{KINDS, answer, demo, golden, params, request, some_tokens};
use backstitch_server::engine::{Engine, EngineParams, Tenant};
use std::time::{Duration, Instant};

#[test]
fn what_was_evaluated_survives_a_restart() {
    for kind in KINDS {
        let model = golden(kind);
        let folder = tempfile::tempdir().unwrap();
        let kept = EngineParams { state: Some(folder.path().into()), ..params() };
        let prompt = some_tokens(&model, 300, 1);
        let first = {
            let engine = Engine::start(&model, kept.clone()).unwrap();
            let mut request = request(&model, &prompt, 8, 1);
            request.message_ends = vec![128, 256];
            answer(engine.generate(request).unwrap())
        };
        let engine = Engine::start(&model, kept).unwrap();
        let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
        assert!(again.reuse.n_from_disk >= 256, "{kind}: {:?}", again.reuse);
        assert_eq!(again.tokens, first.tokens, "{kind}");
    }
}

/// Less may wait for the disk than a block has, so that each becomes a part of its own.
#[test]
fn what_is_larger_than_may_wait_is_stored_in_parts() {
    for kind in KINDS {
        let model = golden(kind);
        let folder = tempfile::tempdir().unwrap();
        let kept = EngineParams { state: Some(folder.path().into()), state_waiting: 1, ..params() };
        let prompt = some_tokens(&model, 300, 1);
        let engine = Engine::start(&model, kept.clone()).unwrap();
        let mut asked = request(&model, &prompt, 8, 1);
        asked.message_ends = vec![128, 256];
        let first = answer(engine.generate(asked).unwrap());
        drop(engine);
        let engine = Engine::start(&model, kept).unwrap();
        let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
        assert!(again.reuse.n_from_disk >= 256, "{kind}: {:?}", again.reuse);
        assert_eq!(again.tokens, first.tokens, "{kind}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(engine.counters()).unwrap().n_unstored, 0, "{kind}");
    }
}

#[test]
fn what_the_disk_does_not_take_is_counted() {
    let (model, folder) = (demo(), tempfile::tempdir().unwrap());
    // Less than a block.
    let state = Some(folder.path().to_owned());
    let kept = EngineParams { state, state_bytes: 1, state_waiting: 1, ..params() };
    let engine = Engine::start(&model, kept).unwrap();
    answer(engine.generate(request(&model, &some_tokens(&model, 400, 1), 8, 1)).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let since = Instant::now();
    while runtime.block_on(engine.counters()).unwrap().n_unstored == 0 {
        assert!(since.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

#[test]
fn salts_leave_nothing_on_disk() {
    let (model, folder) = (demo(), tempfile::tempdir().unwrap());
    let kept = EngineParams { state: Some(folder.path().into()), ..params() };
    let engine = Engine::start(&model, kept).unwrap();
    let mut salted = request(&model, &some_tokens(&model, 100, 1), 4, 1);
    salted.tenant = Tenant::salted(&[], "a");
    answer(engine.generate(salted).unwrap());
    let mut of_key = request(&model, &some_tokens(&model, 100, 1), 4, 1);
    of_key.tenant = Tenant::of(&["key", "a"]);
    answer(engine.generate(of_key).unwrap());
    drop(engine);
    let found: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, [Tenant::of(&["key", "a"]).folder().unwrap().as_str()]);
}

#[test]
fn entries_that_are_damaged_are_counted() {
    let (model, folder) = (demo(), tempfile::tempdir().unwrap());
    let kept = EngineParams { state: Some(folder.path().into()), ..params() };
    let prompt = some_tokens(&model, 300, 1);
    let first = answer(
        Engine::start(&model, kept.clone()).unwrap().generate(request(&model, &prompt, 8, 1)).unwrap(),
    );
    let mut n_damaged = 0;
    for entry in std::fs::read_dir(folder.path().join("shared")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // The payload, behind what tells where it is.
        let Some(byte) = bytes.len().checked_sub(2000).and_then(|at| bytes.get_mut(at)) else { continue };
        *byte ^= 1;
        std::fs::write(&path, bytes).unwrap();
        n_damaged += 1;
    }
    assert!(n_damaged > 0);
    let engine = Engine::start(&model, kept).unwrap();
    let again = answer(engine.generate(request(&model, &prompt, 8, 1)).unwrap());
    assert_eq!((again.reuse.n_from_disk, again.tokens), (0, first.tokens));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let counted = runtime.block_on(engine.counters()).unwrap().n_damaged;
    assert!((1..=n_damaged).contains(&counted), "{counted} of {n_damaged}");
}
