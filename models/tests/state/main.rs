//! What is saved comes back: contracts 1 to 4 for state that outlives its context.

#[path = "../converted/mod.rs"]
mod converted;

mod damage;
mod failures;
mod goes_on;
mod seen;
mod whole;
