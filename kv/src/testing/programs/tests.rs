//! Checks that every kind of memory, and storage that follows it, agrees with the oracle.

use super::*;
use proptest::prelude::*;

const TYPES: [(CellType, CellType); 5] = [
    (CellType::F32, CellType::F32),
    (CellType::F16, CellType::BF16),
    (CellType::BF16, CellType::F16),
    (CellType::Q8_0, CellType::Q4_0),
    (CellType::Q4_0, CellType::Q8_0),
];

fn run(layers: Vec<LayerSpec>, n_ctx: u32, steps: &[Step]) -> Tally {
    let (k_type, v_type) = TYPES[steps.len() % TYPES.len()];
    let mut machine = Machine::<Blocks>::new(widened(layers, k_type, v_type), n_ctx, k_type, v_type);
    steps.iter().for_each(|step| machine.run(step));
    machine.tally()
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 4_000, ..ProptestConfig::default() }
}

/// Run `cases` programs, and check that they reached all paths.
fn hold(layers: fn() -> Vec<LayerSpec>, cases: u32, name: &'static str) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        test_name: Some(name),
        source_file: Some(file!()),
        ..config(cases)
    });
    let sum = core::cell::Cell::new(Tally::default());
    let result = runner.run(&program(), |(n_ctx, steps)| {
        let (t, s) = (run(layers(), n_ctx, &steps), sum.get());
        sum.set(Tally {
            commits: s.commits + t.commits,
            undone: s.undone + t.undone,
            full: s.full + t.full,
            diverged: s.diverged + t.diverged,
            errors: s.errors + t.errors,
            shared: s.shared + t.shared,
            held: s.held + t.held,
            replayed: s.replayed + t.replayed,
            evaluated: s.evaluated + t.evaluated,
            restored: s.restored + t.restored,
            copied: s.copied + t.copied,
            savepoints: s.savepoints + t.savepoints,
        });
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}\n{runner}"));
    let t = sum.get();
    std::println!("{name}: {cases} programs, {t:?}");
    assert!(t.commits > cases && t.undone > cases && t.errors > cases / 2, "programs do too little: {t:?}");
    let caches = layers().iter().any(|spec| !matches!(spec.attention, AttentionSpec::Absent));
    assert!(
        !caches || name.starts_with("windowed") || (t.full > cases / 100 && t.shared > cases),
        "programs never fill or share the cache: {t:?}"
    );
    // One program in six re-evaluates what a window has lost; of a few hundred, far fewer may.
    let (goes_back, again, least) = match name {
        "recurrent" | "hybrid" => (t.held.min(t.replayed), t.evaluated, cases / 10),
        "windowed" => (t.held, t.evaluated, cases / 40),
        _ => (t.held, u32::MAX, 0),
    };
    assert!(goes_back > cases / 10 && again > least, "programs seldom go back: {t:?}");
    assert!(t.restored > cases, "snapshots are seldom restored: {t:?}");
    assert!(t.savepoints > cases / 2, "savepoints are seldom made: {t:?}");
    assert!(t.copied > cases, "storage elsewhere has little to copy: {t:?}");
}

#[test]
fn unified_agrees_with_the_oracle() {
    hold(transformer, 300, "all cells");
}

#[test]
fn windowed_agrees_with_the_oracle() {
    hold(windowed, 200, "windowed");
    hold(windowed_and_recurrent, 200, "windowed and recurrent");
}

#[test]
fn recurrent_agrees_with_the_oracle() {
    hold(recurrent, 200, "recurrent");
}

#[test]
fn hybrid_agrees_with_the_oracle() {
    hold(hybrid, 200, "hybrid");
}

/// Return the number of programs, from the environment variable `PROGRAMS`.
fn many() -> u32 {
    std::env::var("PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

#[test]
#[ignore = "takes a while; PROGRAMS says how many"]
fn unified_and_windowed_agree_with_the_oracle_in_many_programs() {
    hold(transformer, many(), "all cells");
    hold(windowed, many(), "windowed");
}

#[test]
#[ignore = "takes a while; PROGRAMS says how many"]
fn recurrent_and_hybrid_agree_with_the_oracle_in_many_programs() {
    hold(recurrent, many(), "recurrent");
    hold(hybrid, many(), "hybrid");
    hold(windowed_and_recurrent, many(), "windowed and recurrent");
}
