//! Identifiers of answers.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();

/// Return an identifier that no other answer has: `prefix` and 32 digits.
///
/// # Example
/// ```
/// use backstitch_server::http::new_id;
///
/// let id = new_id("chatcmpl-");
/// assert_eq!(id.len(), "chatcmpl-".len() + 32);
/// assert_ne!(id, new_id("chatcmpl-"));
/// ```
pub fn new_id(prefix: &str) -> String {
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let [a, b] = KEYS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    format!("{prefix}{:016x}{:016x}", a.hash_one(n), b.hash_one(n))
}
