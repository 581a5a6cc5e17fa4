//! Criterion benchmarks of the workspace live in `benches/`; this library is empty.
