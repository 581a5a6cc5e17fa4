//! What the tests of the other crates share.
