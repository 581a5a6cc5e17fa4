//! Slots that clients save, restore and erase.

use crate::{alone, answer, demo, params, request, some_tokens};
use backstitch_server::Error;
use backstitch_server::engine::{Engine, EngineParams, Event, SlotLayout, Tenant};

#[test]
fn a_busy_slot_is_saved_when_it_is_idle() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let engine = Engine::start(&model, params()).unwrap();
    let begin = |n: usize| {
        let mut asked = request(&model, &some_tokens(&model, 20, 1), n, 1);
        asked.slot = Some(1);
        let mut events = engine.generate(asked).unwrap();
        assert!(matches!(events.blocking_recv(), Some(Event::Began { slot: 1, .. })));
        events
    };
    let events = begin(100);
    let path = folder.path().join("a");
    let saved = runtime.block_on(engine.save_slot(1, tenant, path, SlotLayout::default())).unwrap();
    assert_eq!(saved.n_tokens, 119);
    drop(events);
    // A client that went away keeps its slot busy no longer.
    drop(begin(400));
    assert!(runtime.block_on(engine.erase_slot(1, tenant)).unwrap() >= 20);
}

#[test]
fn slots_are_saved_restored_and_erased() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 100, 1);
    let mut saved = request(&model, &prompt, 5, 1);
    saved.slot = Some(2);
    let first = answer(engine.generate(saved).unwrap());
    for (layout, name) in [(SlotLayout::Backstitch, "a.bst"), (SlotLayout::Llama, "a.bin")] {
        let path = folder.path().join(name);
        let file = runtime.block_on(engine.save_slot(2, tenant, path.clone(), layout)).unwrap();
        assert_eq!(file.n_tokens, 104);
        assert_eq!(file.n_bytes, std::fs::metadata(&path).unwrap().len());
        assert_eq!(
            runtime.block_on(engine.restore_slot(1, path, Tenant::of(&[name]), Vec::new())).unwrap().n_tokens,
            104
        );
        // The files of llama.cpp have no checkpoints, so only the end can be continued at once.
        let longer = [&prompt[..], &first.tokens, &some_tokens(&model, 3, 8)].concat();
        let mut again = request(&model, &longer, 5, 1);
        again.tenant = Tenant::of(&[name]);
        let again = answer(engine.generate(again).unwrap());
        assert_eq!(again.reuse.n_reused, 104, "{name}");
        assert_eq!(again.tokens, alone(&model, &longer, 5, 1), "{name}");
    }
    // The slot shows nothing to another tenant.
    assert_eq!(runtime.block_on(engine.erase_slot(2, Tenant::of(&["other"]))).unwrap(), 0);
    assert_eq!(runtime.block_on(engine.erase_slot(2, tenant)).unwrap(), 104);
    std::fs::write(folder.path().join("bad"), b"no state").unwrap();
    let bad =
        runtime.block_on(engine.restore_slot(0, folder.path().join("bad"), Tenant::default(), Vec::new()));
    assert!(matches!(bad, Err(Error::Engine(_))), "{bad:?}");
    let missing =
        runtime.block_on(engine.restore_slot(0, folder.path().join("none"), Tenant::default(), Vec::new()));
    assert!(matches!(missing, Err(Error::File { .. })), "{missing:?}");
}

#[test]
fn an_unused_slot_is_saved_and_restored_as_an_empty_sequence() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let engine = Engine::start(&model, params()).unwrap();
    for (layout, name) in [(SlotLayout::Backstitch, "a.bst"), (SlotLayout::Llama, "a.bin")] {
        let path = folder.path().join(name);
        let saved = runtime.block_on(engine.save_slot(0, tenant, path.clone(), layout)).unwrap();
        assert_eq!((saved.n_tokens, saved.n_bytes), (0, std::fs::metadata(&path).unwrap().len()), "{name}");
        assert!(saved.n_bytes > 0, "{name}");
        let restored = runtime.block_on(engine.restore_slot(0, path, tenant, Vec::new())).unwrap();
        assert_eq!((restored.n_tokens, restored.n_bytes), (0, saved.n_bytes), "{name}");
        assert_eq!(runtime.block_on(engine.held(tenant)).unwrap().len(), 0, "{name}");
    }
    let prompt = some_tokens(&model, 20, 1);
    let text = answer(engine.generate(request(&model, &prompt, 5, 1)).unwrap());
    assert_eq!(text.tokens, alone(&model, &prompt, 5, 1));
}

#[test]
fn a_slot_whose_sequence_goes_on_in_another_has_nothing_to_erase() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let model = demo();
    let engine = Engine::start(&model, params()).unwrap();
    let prompt = some_tokens(&model, 20, 1);
    let first = answer(engine.generate(request(&model, &prompt, 10, 1)).unwrap());
    // Too little in common for the same slot, but the sequence itself goes on.
    let longer = [&prompt[..], &first.tokens, &some_tokens(&model, 400, 2)].concat();
    let mut events = engine.generate(request(&model, &longer, 40, 1)).unwrap();
    let Event::Began { slot: 1, reuse } = events.blocking_recv().unwrap() else { panic!("not in slot 1") };
    assert_eq!(reuse.n_reused, 29);
    assert_eq!(runtime.block_on(engine.erase_slot(0, Tenant::default())).unwrap(), 0);
    let mut tokens = Vec::new();
    while let Some(event) = events.blocking_recv() {
        match event {
            Event::Chunk(chunk) => tokens.extend(chunk.tokens),
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(tokens, alone(&model, &longer, 40, 1));
}

#[test]
fn idle_sequences_make_place_for_a_restored_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let small = EngineParams { n_ctx: 256, n_slots: 2, n_held: 16, held_bytes: 0, ..params() };
    let engine = Engine::start(&model, small).unwrap();
    for (layout, name) in [(SlotLayout::Backstitch, "a.bst"), (SlotLayout::Llama, "a.bin")] {
        let path = folder.path().join(name);
        let mut saved = request(&model, &some_tokens(&model, 200, 1), 40, 1);
        saved.slot = Some(0);
        answer(engine.generate(saved).unwrap());
        runtime.block_on(engine.save_slot(0, tenant, path.clone(), layout)).unwrap();
        for seed in 2..10 {
            answer(engine.generate(request(&model, &some_tokens(&model, 200, seed), 40, 1)).unwrap());
        }
        let restored = runtime.block_on(engine.restore_slot(0, path, tenant, Vec::new())).unwrap();
        assert_eq!(restored.n_tokens, 239, "{name}");
    }
}

#[test]
fn a_slot_that_no_context_like_this_holds_drops_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (model, folder, tenant) = (demo(), tempfile::tempdir().unwrap(), Tenant::default());
    let path = folder.path().join("long.bst");
    let engine = Engine::start(&model, params()).unwrap();
    answer(engine.generate(request(&model, &some_tokens(&model, 490, 1), 5, 1)).unwrap());
    runtime.block_on(engine.save_slot(0, tenant, path.clone(), SlotLayout::Backstitch)).unwrap();
    let small = EngineParams { n_ctx: 128, n_slots: 2, n_held: 4, held_bytes: 0, ..params() };
    let engine = Engine::start(&model, small).unwrap();
    for seed in 1..3 {
        answer(engine.generate(request(&model, &some_tokens(&model, 60, seed), 5, 1)).unwrap());
    }
    let refused = runtime.block_on(engine.restore_slot(1, path, tenant, Vec::new())).unwrap_err();
    assert!(refused.to_string().contains("cache is full"), "{refused}");
    assert_eq!(runtime.block_on(engine.held(tenant)).unwrap().len(), 2);
}
