//! Results of look-ups, and why nothing longer was found.

use super::*;
use std::string::ToString;

#[test]
fn what_was_stored_is_found_by_whoever_opens_the_folder_next() {
    let bench = Bench::new();
    let tokens = prompt(1, 5);
    let done = bench.open(LARGE).put(&bench.entry(&tokens, 1000)).unwrap();
    assert_eq!((done.entries, done.blocks), (1, 5));
    for access in [LARGE, Access::ReadOnly] {
        let found = bench.verified(&bench.open(access), &tokens, Need::Blocks);
        assert_eq!((found.n_tokens, found.n_stored, found.why), (160, 160, Why::AllStored));
    }
}

#[test]
fn each_block_is_stored_once_however_prompts_fork() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let long = prompt(1, 6);
    let mut fork = long[..3 * BLOCK_TOKENS + 5].to_vec();
    fork.extend(prompt(2, 3));
    cache.put(&bench.entry(&long[..4 * BLOCK_TOKENS], 500)).unwrap();
    assert_eq!(cache.put(&bench.entry(&long[..4 * BLOCK_TOKENS], 500)).unwrap(), Put::default());
    assert_eq!(cache.put(&bench.entry(&long, 500)).unwrap().blocks, 2);
    assert_eq!(cache.put(&bench.entry(&fork, 500)).unwrap().blocks, 3);
    assert_eq!(bench.verified(&cache, &long, Need::Blocks).n_tokens, 192);
    assert_eq!(bench.verified(&cache, &fork, Need::Blocks).n_tokens, 192);
    assert_eq!(cache.stats().entries, 3);
}

#[test]
fn only_what_follows_the_blocks_that_are_stored_needs_to_be_given() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 6);
    cache.put(&bench.entry(&tokens[..64], 500)).unwrap();
    assert_eq!(cache.n_stored(&bench.root, &tokens).unwrap(), 2);
    let mut entry = bench.entry(&tokens, 500);
    entry.blocks.drain(..3);
    entry.first = 3;
    assert!(matches!(cache.put(&entry), Err(Error::Gap { block: 2 })));
    let mut entry = bench.entry(&tokens, 500);
    entry.blocks.drain(..1);
    entry.first = 1;
    assert_eq!(cache.put(&entry).unwrap().blocks, 4);
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 192);
}

#[test]
fn another_process_sees_what_this_one_stores() {
    let bench = Bench::new();
    let (a, b) = (bench.open(LARGE), bench.open(Access::ReadOnly));
    for n in 1..6 {
        let tokens = prompt(1, n);
        assert_eq!(bench.verified(&b, &tokens, Need::Blocks).n_tokens, (n - 1) * BLOCK_TOKENS);
        a.put(&bench.entry(&tokens, 300)).unwrap();
        assert_eq!(bench.verified(&b, &tokens, Need::Blocks).n_tokens, n * BLOCK_TOKENS);
    }
}

#[cfg(unix)]
#[test]
fn a_linked_folder_shows_what_another_process_stores() {
    let (bench, elsewhere) = (Bench::new(), tempfile::tempdir().unwrap());
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(bench.folder.path(), &link).unwrap();
    // An old link, whose own time says nothing of the folder.
    let aged = std::process::Command::new("touch").args(["-h", "-t", "202001010000"]).arg(&link).status();
    assert!(aged.unwrap().success());
    let cache = PromptCache::open(&link, Access::ReadOnly).unwrap();
    let tokens = prompt(1, 2);
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 0);
    bench.open(LARGE).put(&bench.entry(&tokens, 300)).unwrap();
    assert_eq!(bench.verified(&cache, &tokens, Need::Blocks).n_tokens, 64);
}

#[test]
fn what_could_not_be_read_is_left_out_the_next_time() {
    let bench = Bench::new();
    let (cache, tokens) = (bench.open(LARGE), prompt(1, 6));
    cache.put(&bench.entry(&tokens[..64], 10)).unwrap();
    cache.put(&bench.entry(&tokens, 10)).unwrap();
    let found = bench.verified(&cache, &tokens, Need::Blocks);
    let of_entry = |error| {
        let path = bench.folder.path().join(found.blocks[4].entry.name.to_string());
        Error::Entry { path: path.into(), error: Box::new(error) }
    };
    let unread = Error::Io(crate::io::Error::System(io::ErrorKind::PermissionDenied.into()));
    assert_eq!(found.retry_len(&of_entry(unread)), 64, "the entry in the way begins there");
    assert_eq!(found.retry_len(&of_entry(Error::ReadOnly)), 192, "damage is removed");
    let of_memory = Error::Memory(crate::Error::Snapshot { what: "anything", index: 0 });
    assert_eq!(found.retry_len(&of_memory), 160);
}

#[test]
fn why_no_more_was_found_is_told_with_the_first_token_that_differs() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    let why = |tokens: &[Token]| bench.verified(&cache, tokens, Need::Blocks).why;
    assert_eq!(why(&tokens), Why::NothingStored);
    cache.put(&bench.entry(&tokens, 100)).unwrap();
    for at in 0..tokens.len() {
        let mut other = tokens.clone();
        other[at].0 += 1;
        assert_eq!(why(&other), Why::Differs { at });
    }
    assert_eq!(why(&[&tokens[..], &prompt(5, 1)].concat()), Why::Ends { at: 128 });
    assert_eq!(why(&tokens[..70]), Why::AllStored);
    assert_eq!(why(&[]), Why::AllStored);
    let other = cache.longest(&Key::root(&[8; 32], &[9; 32]), &tokens, 128, Need::Blocks).unwrap();
    assert_eq!((other.n_tokens, other.why), (0, Why::NothingStored));
}

#[test]
fn of_several_forks_the_nearest_tells_where_the_prompt_differs() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    for (seed, shared) in [(2, 40), (3, 50), (4, 45)] {
        let tokens = [&prompt(1, 2)[..shared], &prompt(seed, 1)].concat();
        cache.put(&bench.entry(&tokens, 100)).unwrap();
    }
    let found = bench.verified(&cache, &prompt(1, 3), Need::Blocks);
    assert_eq!((found.n_tokens, found.why), (32, Why::Differs { at: 50 }));
}

#[test]
fn no_more_is_found_than_is_asked_for() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 3);
    cache.put(&bench.entry(&tokens, 100)).unwrap();
    for most in 0..=tokens.len() {
        let found = cache.longest(&bench.root, &tokens, most, Need::Blocks).unwrap();
        assert_eq!((found.n_tokens, found.why), (most / 32 * 32, Why::AllStored));
    }
    assert_eq!(cache.longest(&bench.root, &tokens, usize::MAX, Need::Blocks).unwrap().n_tokens, 96);
}

#[test]
fn models_with_states_go_on_from_the_last_resume_point() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 6);
    cache.put(&bench.entry_with(&tokens, 400, &[2, 5])).unwrap();
    for (n, wanted) in [(1, 0), (2, 2), (3, 2), (4, 2), (5, 5), (6, 5)] {
        let found = bench.verified(&cache, &tokens[..n * BLOCK_TOKENS], Need::ResumePoint);
        assert_eq!((found.n_tokens, found.n_stored), (wanted * BLOCK_TOKENS, n * BLOCK_TOKENS));
        assert_eq!(found.resume.is_some(), wanted > 0);
    }
}

#[test]
fn a_resume_point_can_be_stored_after_its_blocks() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 4);
    cache.put(&bench.entry(&tokens, 400)).unwrap();
    assert!(cache.resume_points(&bench.root, &tokens).unwrap().is_empty());
    let done = cache.put(&bench.entry_with(&tokens, 400, &[3, 1])).unwrap();
    assert_eq!((done.entries, done.blocks), (2, 0));
    assert_eq!(cache.resume_points(&bench.root, &tokens).unwrap(), [1, 3]);
    assert_eq!(cache.resume_points(&bench.root, &tokens[..95]).unwrap(), [1]);
    assert_eq!(bench.verified(&cache, &tokens, Need::ResumePoint).n_tokens, 96);
    assert_eq!(cache.put(&bench.entry_with(&tokens, 400, &[1, 3])).unwrap(), Put::default());
}

#[test]
fn tokens_are_compared_even_if_keys_are_equal() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let (tokens, other) = (prompt(1, 1), prompt(2, 1));
    cache.put(&bench.entry(&tokens, 100)).unwrap();
    // As if both had the same hash: the entry of one under the key of the other.
    let key = chain(&bench.root, &other)[0];
    let mut index = cache.shared.index();
    index.collide(chain(&bench.root, &tokens)[0], key);
    assert!(index.at(&key).is_some());
    assert_eq!(index.stored(&[key], &other), 0);
    assert_eq!(index.stored(&[key], &tokens), 1);
}

#[test]
fn entries_that_do_not_fit_together_are_refused() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 2);
    let refused = |entry: &EvaluatedPrefix<'_>| match cache.put(entry) {
        Err(Error::Request { found, wanted, .. }) => (found, wanted),
        other => panic!("{other:?}"),
    };
    let mut entry = bench.entry(&tokens, 10);
    entry.tokens = tokens[..63].into();
    assert_eq!(refused(&entry), (2, 1));
    let entry = EvaluatedPrefix { first: usize::MAX, ..bench.entry(&tokens, 10) };
    assert_eq!(refused(&entry), (u64::MAX, 2));
    for place in [0, 3] {
        let resumes = vec![(place, vec![])];
        assert_eq!(refused(&EvaluatedPrefix { resumes, ..bench.entry(&tokens, 10) }), (place as u64, 2));
    }
    assert!(bench.files(".entry").is_empty());
}

#[test]
fn pieces_must_be_as_long_as_the_payload() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, 1);
    cache.put(&bench.entry(&tokens, 100)).unwrap();
    let found = bench.verified(&cache, &tokens, Need::Blocks);
    for len in [0, 99, 101] {
        let refused = found.blocks[0].read(&mut [&mut vec![0; len]]);
        assert!(matches!(refused, Err(Error::Request { found, wanted: 100, .. }) if found == len as u64));
    }
    assert_eq!(bench.files(".entry").len(), 1);
}

#[test]
fn payloads_of_any_size_are_kept_and_begin_at_multiples_of_64() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    for (seed, len) in [0, 1, 63, 64, 65, 300_000].into_iter().enumerate() {
        let tokens = prompt(seed as u64, 3);
        cache.put(&bench.entry_with(&tokens, len, &[1, 3])).unwrap();
        let found = bench.verified(&cache, &tokens, Need::ResumePoint);
        assert_eq!(found.n_tokens, 96);
        assert!(
            found
                .blocks
                .iter()
                .all(|payload| payload.section.offset % 64 == 0 && payload.len() == len as u64)
        );
    }
}

#[test]
fn long_prompts_become_several_entries() {
    let bench = Bench::new();
    let cache = bench.open(LARGE);
    let tokens = prompt(1, entry::MAX_PAYLOADS + 3);
    let done = cache.put(&bench.entry_with(&tokens, 1, &[10, entry::MAX_PAYLOADS + 1])).unwrap();
    assert_eq!((done.entries, done.blocks), (2, entry::MAX_PAYLOADS as u64 + 3));
    assert_eq!(bench.verified(&cache, &tokens, Need::ResumePoint).blocks.len(), entry::MAX_PAYLOADS + 1);
}
