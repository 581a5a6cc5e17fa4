//! The `backstitch` program.
#![forbid(unsafe_code)]
fn main() {}
