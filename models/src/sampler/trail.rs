//! The earlier states of a chain, by position of its sequence.
//!
//! A rollback of a sequence has to take its chain back too: the same seed then gives the same text
//! again. The random numbers need little for this, because an [`Rng`](super::Rng) goes back by a
//! subtraction: a [`Draws`] covers any number of draws at consecutive positions. llama.cpp's random
//! numbers have the same positions, and are read at any of them (`mt19937.rs`). Samplers whose
//! state depends on what was drawn cannot be reversed, so their few bytes are recorded at every
//! draw, in a [`Checkpoint`]. Samplers whose state follows from the tokens accept these again.

use super::rng::STEP;
use crate::error::Error;
use crate::saved_reader::SavedReader;
use alloc::vec::Vec;
use backstitch_kv::Pos;
use bytemuck::{Pod, Zeroable};

/// Consecutive positions at each of which one random number was drawn, as they are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Draws {
    start: Pos,
    /// The number of draws, at `start` and the positions after it, and [`IS_RESTART`].
    len: u32,
    seed: u64,
    /// The state of the random numbers before the first draw.
    rng: u64,
}

/// The bit in the length of draws that says that the random numbers were set at their start.
/// Without it they continue those of the draws before.
const IS_RESTART: u32 = 1 << 31;

impl Draws {
    /// Return the number of draws.
    fn n(&self) -> u32 {
        self.len & !IS_RESTART
    }

    fn is_restart(&self) -> bool {
        self.len & IS_RESTART != 0
    }

    /// Return the state of the random numbers when the sequence reached `pos`, which is not before
    /// the start.
    fn rng_at(&self, pos: Pos) -> u64 {
        let n_drawn = u64::from(pos.0.abs_diff(self.start.0).min(self.n()));
        self.rng.wrapping_add(n_drawn.wrapping_mul(STEP))
    }

    /// Return true if a sequence at `pos` has these draws: a draw at `pos` itself comes later, but
    /// random numbers were set there before.
    fn is_before(&self, pos: Pos) -> bool {
        self.start < pos || self.start == pos && self.is_restart()
    }
}

/// The states of a chain's samplers at one position, as they are saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Checkpoint {
    pos: Pos,
    /// The number of its bytes, which follow those of the checkpoint before.
    len: u32,
}

/// Return the number of bytes of these checkpoints.
fn n_bytes(checkpoints: &[Checkpoint]) -> u64 {
    checkpoints.iter().map(|checkpoint| u64::from(checkpoint.len)).sum()
}

/// A record of the states that a chain had at the positions of a sequence, so that a rollback can
/// restore them.
///
/// [`Session`](crate::Session) keeps one per branch, and state files save it
/// ([`State::trail`](super::State)). Random numbers take 24 bytes for each stretch of tokens drawn
/// one after another, whatever its length. Samplers with a state that does not follow from the
/// tokens add its bytes for each token drawn, twice at most for a position.
///
/// # Example
/// ```
/// use backstitch_models::sampler::Trail;
///
/// let bytes = Trail::default().encode();
/// assert_eq!(Trail::decode(&bytes)?, Trail::default());
/// # Ok::<(), backstitch_models::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    draws: Vec<Draws>,
    checkpoints: Vec<Checkpoint>,
    bytes: Vec<u8>,
}

/// An earlier state of a chain, as [`Trail::at`] returns it.
pub(crate) struct PastState<'a> {
    pub seed: u64,
    pub rng: u64,
    /// The samplers' states at a position, after which they only accepted tokens.
    pub samplers: Option<(Pos, &'a [u8])>,
}

/// The version of the layout of [`Trail::encode`].
const VERSION: u32 = 1;
const WHAT: &str = "the record of a sampler's earlier states";

impl Trail {
    /// Reserve memory, so that `n` tokens can be drawn by samplers of `n_bytes` of state without
    /// allocating. If the allocator refuses, drawing allocates as it goes.
    pub(crate) fn reserve(&mut self, n: usize, n_bytes: usize) {
        self.draws.reserve(2);
        if n_bytes > 0 {
            let checkpoints = self.checkpoints.try_reserve(n);
            let _ = checkpoints.and_then(|()| self.bytes.try_reserve(n.saturating_mul(n_bytes)));
        }
    }

    /// Remove the states of samplers; the random numbers stay.
    pub(crate) fn clear_samplers(&mut self) {
        self.keep_checkpoints(0);
    }

    /// Remove all checkpoints but the first `n`.
    fn keep_checkpoints(&mut self, n: usize) {
        self.checkpoints.truncate(n);
        self.bytes.truncate(n_bytes(&self.checkpoints) as usize);
    }

    /// Record that the chain was set anew at `pos`, the end of the sequence: to `rng` among the
    /// random numbers of `seed`, with the samplers' states that `save` appends. This is the state
    /// of the chain whenever the sequence comes back to `pos`.
    pub(crate) fn restart(&mut self, pos: Pos, seed: u64, rng: u64, save: impl FnOnce(&mut Vec<u8>)) {
        self.draws.truncate(self.draws.partition_point(|draws| draws.start < pos));
        self.draws.push(Draws { start: pos, len: IS_RESTART, seed, rng });
        self.keep_checkpoints(self.checkpoints.partition_point(|checkpoint| checkpoint.pos < pos));
        self.checkpoint(pos, save);
    }

    /// Record that a random number is drawn at `pos`.
    pub(crate) fn draw(&mut self, pos: Pos, seed: u64, rng: u64) {
        match self.draws.last_mut() {
            Some(last)
                if pos.0.checked_sub(last.start.0) == i32::try_from(last.n()).ok()
                    && (last.rng_at(pos), last.seed) == (rng, seed) =>
            {
                last.len += 1;
            }
            _ => self.draws.push(Draws { start: pos, len: 1, seed, rng }),
        }
    }

    /// Record the states of the samplers at `pos`, which `save` appends; nothing if they have none.
    ///
    /// Of several states at a position the first and the last are kept: the one for a sequence that
    /// comes back to it, and the one from which later tokens continue.
    pub(crate) fn checkpoint(&mut self, pos: Pos, save: impl FnOnce(&mut Vec<u8>)) {
        let n_here = self.checkpoints.iter().rev().take_while(|checkpoint| checkpoint.pos == pos).count();
        let last = self.checkpoints.pop_if(|_| n_here > 1).map_or(0, |last| last.len as usize);
        let start = self.bytes.len().saturating_sub(last);
        self.bytes.truncate(start);
        save(&mut self.bytes);
        if self.bytes.len() > start {
            self.checkpoints.push(Checkpoint { pos, len: (self.bytes.len() - start) as u32 });
        }
    }

    /// Remove the records behind `pos`.
    pub(crate) fn truncate(&mut self, pos: Pos) {
        self.draws.truncate(self.draws.partition_point(|draws| draws.is_before(pos)));
        if let Some(last) = self.draws.last_mut() {
            last.len = last.len & IS_RESTART | last.n().min(pos.0.abs_diff(last.start.0));
        }
        self.keep_checkpoints(self.n_checkpoints(pos));
    }

    /// Return the state of the chain when the sequence reached `pos`; `None` if that was before the
    /// record begins.
    pub(crate) fn at(&self, pos: Pos) -> Option<PastState<'_>> {
        let draws = self.draws.iter().rev().find(|draws| draws.is_before(pos))?;
        let samplers = self.checkpoints[..self.n_checkpoints(pos)].split_last().and_then(|(last, before)| {
            let bytes = self.bytes.get(n_bytes(before) as usize..)?;
            Some((last.pos, bytes.get(..last.len as usize)?))
        });
        Some(PastState { seed: draws.seed, rng: draws.rng_at(pos), samplers })
    }

    /// Return the number of checkpoints up to the one made when the sequence first reached `pos`.
    fn n_checkpoints(&self, pos: Pos) -> usize {
        let n_before = self.checkpoints.partition_point(|checkpoint| checkpoint.pos < pos);
        n_before + usize::from(self.checkpoints.get(n_before).is_some_and(|checkpoint| checkpoint.pos == pos))
    }

    /// Encode the record as bytes, little-endian: version, number of draws and number of
    /// checkpoints (u32 each); for each draws its first position and length (u32 each; the highest
    /// bit of the length says that the random numbers were set there), seed and random numbers (u64
    /// each); for each checkpoint its position and number of bytes (u32 each); the bytes of all
    /// checkpoints.
    pub fn encode(&self) -> Vec<u8> {
        let head = [VERSION, self.draws.len() as u32, self.checkpoints.len() as u32];
        let parts: [&[u8]; 4] = [
            bytemuck::bytes_of(&head),
            bytemuck::must_cast_slice(&self.draws),
            bytemuck::must_cast_slice(&self.checkpoints),
            &self.bytes,
        ];
        parts.concat()
    }

    /// Decode the bytes that [`Trail::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::SavedLength`] if they are too few or too many; [`Error::SavedValue`] if their
    /// version is unknown or positions do not ascend; [`Error::OutOfMemory`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = SavedReader::new(WHAT, bytes);
        let [version, n_draws, n_checkpoints] = from.array::<u32, 3>()?;
        if version != VERSION {
            return Err(from.wrong(0, version, "version 1"));
        }
        let draws: Vec<Draws> = from.list(n_draws.into())?;
        let checkpoints: Vec<Checkpoint> = from.list(n_checkpoints.into())?;
        let bytes = from.list(n_bytes(&checkpoints))?;
        from.end()?;
        let ascend = draws.is_sorted_by_key(|draws| draws.start)
            && checkpoints.is_sorted_by_key(|checkpoint| checkpoint.pos);
        let starts = draws.iter().map(|draws| draws.start);
        let starts = starts.chain(checkpoints.iter().map(|checkpoint| checkpoint.pos));
        match starts.min().unwrap_or(Pos::ZERO) {
            first if ascend && first >= Pos::ZERO => Ok(Trail { draws, checkpoints, bytes }),
            first => Err(from.wrong(12, first.0 as u32, "positions that ascend from 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    fn past(trail: &Trail, pos: i32) -> (u64, u64) {
        trail.at(Pos(pos)).map(|past| (past.seed, past.rng)).unwrap()
    }

    /// Random numbers after `n` draws.
    fn after(seed: u64, n: usize) -> u64 {
        let mut rng = Rng::new(seed);
        for _ in 0..n {
            rng.bits();
        }
        rng.state()
    }

    /// Five tokens were fed, three drawn and the end at position 8; two were fed, and two drawn
    /// with another seed.
    fn trail() -> Trail {
        let mut trail = Trail::default();
        trail.restart(Pos(0), 7, 7, |_| {});
        (0..4).for_each(|i| trail.draw(Pos(5 + i), 7, after(7, i as usize)));
        trail.restart(Pos(10), 9, 9, |_| {});
        (0..2).for_each(|i| trail.draw(Pos(10 + i), 9, after(9, i as usize)));
        trail
    }

    #[test]
    fn random_numbers_stand_where_they_stood_when_a_position_was_reached() {
        let trail = trail();
        let expected = [(0, 0), (5, 0), (6, 1), (7, 2), (8, 3), (9, 4)];
        for (pos, n) in expected {
            assert_eq!(past(&trail, pos), (7, after(7, n)), "{pos}");
        }
        for (pos, n) in [(10, 0), (11, 1), (12, 2), (99, 2)] {
            assert_eq!(past(&trail, pos), (9, after(9, n)), "{pos}");
        }
        assert_eq!(trail.draws.len(), 3);
    }

    #[test]
    fn a_cut_takes_back_what_was_drawn() {
        let mut trail = trail();
        trail.truncate(Pos(7));
        assert_eq!(past(&trail, 7), (7, after(7, 2)));
        assert_eq!(past(&trail, 50), (7, after(7, 2)));
        trail.draw(Pos(7), 7, after(7, 2));
        assert_eq!((past(&trail, 8), trail.draws.len()), ((7, after(7, 3)), 2));
    }

    #[test]
    fn draws_that_a_cut_takes_back_leave_nothing_for_later_positions() {
        let mut trail = Trail::default();
        trail.restart(Pos(0), 7, 7, |_| {});
        // The end of the text is drawn twice at position 2, then a token.
        (0..3).for_each(|i| trail.draw(Pos(2), 7, after(7, i)));
        trail.truncate(Pos(2));
        // One token is fed, one drawn behind it.
        trail.draw(Pos(3), 7, after(7, 0));
        assert_eq!((past(&trail, 3), past(&trail, 4)), ((7, after(7, 0)), (7, after(7, 1))));
    }

    #[test]
    fn states_of_samplers_lie_between_marks() {
        let mut trail = Trail { draws: trail().draws, ..Trail::default() };
        [(5, &b"ab"[..]), (6, b""), (7, b"cde"), (7, b"f"), (9, b"")].into_iter().for_each(|(pos, state)| {
            trail.checkpoint(Pos(pos), |bytes| bytes.extend(state));
        });
        let at = |trail: &Trail, pos| {
            trail.at(Pos(pos)).unwrap().samplers.map(|(pos, bytes)| (pos.0, bytes.to_vec()))
        };
        assert_eq!(at(&trail, 4), None);
        assert_eq!(at(&trail, 6), Some((5, b"ab".to_vec())));
        assert_eq!(at(&trail, 7), Some((7, b"cde".to_vec())));
        assert_eq!(at(&trail, 30), Some((7, b"f".to_vec())));
        trail.truncate(Pos(6));
        assert_eq!((at(&trail, 30), trail.bytes.len()), (Some((5, b"ab".to_vec())), 2));
    }

    #[test]
    fn a_record_in_bytes_is_the_same_record() {
        let mut trail = trail();
        trail.checkpoint(Pos(5), |bytes| bytes.extend(b"ab"));
        let bytes = trail.encode();
        let head = [1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 7, 0, 0, 0];
        assert_eq!(bytes[..24], head);
        assert_eq!(bytes[bytes.len() - 10..], [5, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
        assert_eq!(Trail::decode(&bytes).unwrap(), trail);
        assert_eq!(Trail::decode(&Trail::default().encode()).unwrap(), Trail::default());
        for n in 0..bytes.len() {
            assert!(matches!(Trail::decode(&bytes[..n]), Err(Error::SavedLength { .. })), "{n}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Trail::decode(&bytes)
        };
        for (at, byte) in [(0, 2), (15, 0x80), (12, 200)] {
            assert!(matches!(changed(at, byte), Err(Error::SavedValue { .. })), "{at}");
        }
        for at in [7, 11, bytes.len() - 3] {
            assert!(matches!(changed(at, 255), Err(Error::SavedLength { .. })), "{at}");
        }
    }
}
