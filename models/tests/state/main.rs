//! A saved state is restored exactly: contracts 1 to 4 for state that outlives its context.

#[path = "../converted/mod.rs"]
mod converted;

use backstitch_testing::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

mod damage;
mod failures;
mod files;
mod goes_on;
mod process;
mod seen;
mod whole;
