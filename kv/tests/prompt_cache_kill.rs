//! Two processes fill one cache while they are killed at random: nothing they leave is wrong, too
//! large, or in the way.
//!
//! The test runs itself again as those processes; what they are told stands in environment
//! variables.

use backstitch_kv::Token;
use backstitch_kv::storage::prompt_cache::{
    Access, BLOCK_TOKENS, Error, EvaluatedPrefix, Found, Key, Need, Payload, PromptCache, Prune, Report,
};
use backstitch_testing::Random;
use std::borrow::Cow;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The folder that a process is to fill; without it the test is not such a process.
const FOLDER: &str = "BACKSTITCH_CACHE_KILL_FOLDER";
/// Seed of the random choices of a process.
const SEED: &str = "BACKSTITCH_CACHE_KILL_SEED";
/// Seconds that the long run takes; 600 if it is not set.
const SECONDS: &str = "BACKSTITCH_CACHE_KILL_SECONDS";

/// Small enough that the processes evict most of the time.
const BUDGET: u64 = 2 << 20;

#[test]
fn processes_that_are_killed_leave_a_clean_prompt_cache() {
    fill_and_kill(Duration::from_secs(3));
}

#[test]
#[ignore = "takes ten minutes, or what BACKSTITCH_CACHE_KILL_SECONDS says"]
fn processes_that_are_killed_for_long_leave_a_clean_prompt_cache() {
    let seconds = env::var(SECONDS).map_or(600, |seconds| seconds.parse().unwrap());
    fill_and_kill(Duration::from_secs(seconds));
}

fn fill_and_kill(time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(1);
    let mut children: Vec<Child> = (0..2).map(|_| spawn(folder.path(), random.bits())).collect();
    let (mut kills, mut most) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        sleep(Duration::from_millis(random.below(120) as u64));
        let child = random.below(children.len());
        kill(&mut children[child]);
        kills += 1;
        most = most.max(clean(folder.path()).blocks);
        children[child] = spawn(folder.path(), random.bits());
    }
    children.iter_mut().for_each(kill);
    let report = clean(folder.path());
    println!(
        "{kills} kills, at most {most} blocks, {} entries of {} bytes at the end",
        report.entries, report.bytes
    );
    assert!(kills > 3 && most > 30);
}

/// Remove what dead writers left, check the whole cache, and return the report.
fn clean(folder: &Path) -> Report {
    let cache = open(folder);
    // Opening leaves this to others if the lock is held for long.
    cache.prune(Prune::ToBytes(BUDGET)).unwrap();
    let report = cache.check().unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.bytes <= BUDGET, "{} bytes", report.bytes);
    report
}

fn open(folder: &Path) -> PromptCache {
    PromptCache::open(folder, Access::ReadWrite { budget: BUDGET }).unwrap()
}

fn spawn(folder: &Path, seed: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "fills_a_prompt_cache_until_it_is_killed", "--ignored", "--nocapture"]);
    command.env(FOLDER, folder).env(SEED, seed.to_string()).stdout(std::process::Stdio::null());
    command.spawn().unwrap()
}

/// Kills a process; one that ended by itself found something wrong.
fn kill(child: &mut Child) {
    if let Some(status) = child.try_wait().unwrap() {
        panic!("a process ended by itself: {status}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Not a test of its own: what the processes of the others run.
#[test]
#[ignore = "is run by the other tests of this file"]
fn fills_a_prompt_cache_until_it_is_killed() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let mut random = Random::new(env::var(SEED).unwrap().parse().unwrap());
    let cache = open(folder.as_ref());
    loop {
        let tokens = prompt(&mut random);
        let found = verified(&cache, &tokens);
        let first = found.n_stored / BLOCK_TOKENS;
        match cache.put(&entry(&tokens, first)) {
            // The other process stores and evicts too.
            Ok(_) | Err(Error::Raced { .. } | Error::Gap { .. } | Error::NoRoom { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        verified(&cache, &tokens);
    }
}

fn root() -> Key {
    Key::root(&[1; 32], &[2; 32])
}

/// One of a few beginnings, and some blocks that may be like those of another prompt or not.
fn prompt(random: &mut Random) -> Vec<Token> {
    let n_blocks = 1 + random.below(12);
    let fork = random.below(n_blocks + 4);
    let (start, end) = (random.below(6) as u32, random.below(50) as u32);
    let block = |i: usize| if i < fork { start } else { 100 + end };
    (0..n_blocks).flat_map(|i| (0..BLOCK_TOKENS as u32).map(move |k| Token(block(i) * 1000 + k))).collect()
}

fn keys(tokens: &[Token]) -> Vec<Key> {
    let mut key = root();
    let blocks = tokens.as_chunks::<BLOCK_TOKENS>().0.iter();
    let link = |block| {
        key = key.then(block);
        key
    };
    blocks.map(link).collect()
}

/// Up to 40,000 bytes that belong to a key alone.
fn payload(key: &Key) -> Vec<u8> {
    let mut random = Random::new(u64::from_le_bytes(*key.as_bytes().first_chunk().unwrap()));
    let len = random.below(40_000);
    (0..len.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes()).take(len).collect()
}

fn resume(key: &Key) -> Vec<u8> {
    payload(&Key::root(key.as_bytes(), &[3; 32]))
}

fn entry(tokens: &[Token], first: usize) -> EvaluatedPrefix<'_> {
    let keys = keys(tokens);
    let blocks = keys[first..].iter().map(|key| vec![Cow::Owned(payload(key))]).collect();
    let last = keys.last().map(|key| (keys.len(), vec![Cow::Owned(resume(key))]));
    EvaluatedPrefix {
        root: root(),
        tokens: tokens.into(),
        first,
        blocks,
        resumes: last.into_iter().collect(),
    }
}

/// Looks up a prompt; every byte has to be right.
fn verified(cache: &PromptCache, tokens: &[Token]) -> Found {
    let keys = keys(tokens);
    for need in [Need::Blocks, Need::ResumePoint] {
        let found = cache.longest(&root(), tokens, tokens.len(), need).unwrap();
        for (stored, key) in found.blocks.iter().zip(&keys) {
            assert_eq!(read(stored), payload(key));
        }
        if let Some(stored) = &found.resume {
            assert_eq!(read(stored), resume(&keys[found.blocks.len() - 1]));
        }
    }
    cache.longest(&root(), tokens, tokens.len(), Need::Blocks).unwrap()
}

fn read(payload: &Payload) -> Vec<u8> {
    let mut bytes = vec![0; payload.len() as usize];
    payload.read(&mut [&mut bytes]).unwrap();
    bytes
}

/// The folder may hold only files that the cache knows.
#[test]
fn what_processes_leave_are_entries_and_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = spawn(folder.path(), 7);
    sleep(Duration::from_millis(500));
    kill(&mut child);
    clean(folder.path());
    for entry in fs::read_dir(folder.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "cache.lock" || name.ends_with(".entry"), "{name}");
    }
}
