//! Parameters of an engine.

use super::drafts::Drafts;
use backstitch_models::Params;
use backstitch_models::backstitch_kv::storage::disk::{Disk, Readers, RealDisk, create_beside};
use std::io;
use std::path::{Path, PathBuf};

/// Check that files can be written in a folder, which is made if it is not there. What keeps its
/// files there would otherwise fail long after the server began to listen.
///
/// # Errors
/// Those of the system.
///
/// # Example
/// ```
/// use backstitch_server::engine::check_folder;
///
/// let folder = tempfile::tempdir()?;
/// check_folder(&folder.path().join("state"))?;
/// std::fs::write(folder.path().join("file"), "")?;
/// assert!(check_folder(&folder.path().join("file")).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn check_folder(folder: &Path) -> io::Result<()> {
    RealDisk.make_folder(folder)?;
    let (file, path) = create_beside(&folder.join("writable"), Readers::Owner)?;
    drop(file);
    std::fs::remove_file(path)
}

/// Sizes and choices of an engine.
///
/// # Example
/// ```
/// use backstitch_server::engine::EngineParams;
///
/// let params = EngineParams { n_slots: 2, ..EngineParams::default() };
/// assert_eq!(params.max_waiting, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct EngineParams {
    /// Parameters of the context. `n_ctx` and `n_seq_max` follow from the fields below.
    pub context: Params,
    /// The most tokens of one sequence; 0 for the context length of the model.
    pub n_ctx: u32,
    /// The number of requests that are evaluated together.
    pub n_slots: usize,
    /// The number of sequences that are held beside those under way.
    pub n_held: usize,
    /// The bytes of cells for sequences that are held beside those under way.
    pub held_bytes: u64,
    /// The most requests that may wait.
    pub max_waiting: usize,
    /// A folder in which what was evaluated survives a restart: a prompt cache for each tenant.
    pub state: Option<PathBuf>,
    /// The most bytes of a prompt cache.
    pub state_bytes: u64,
    /// The most bytes that wait for the disk at a time, for each tenant. What is larger than that
    /// is stored in parts.
    pub state_waiting: u64,
    /// Speculative decoding; `None` for one token a step.
    pub drafts: Option<Drafts>,
}

impl Default for EngineParams {
    /// Return 4 slots, 16 further sequences in 1 GiB of cells, 1024 requests in the queue, nothing
    /// on disk.
    fn default() -> Self {
        EngineParams {
            context: Params::default(),
            n_ctx: 0,
            n_slots: 4,
            n_held: 16,
            held_bytes: 1 << 30,
            max_waiting: 1024,
            state: None,
            state_bytes: 8 << 30,
            state_waiting: 256 << 20,
            drafts: None,
        }
    }
}
