//! The earlier states of a chain, by position of its sequence.

use super::rng::STEP;
use crate::error::Error;
use alloc::vec::Vec;
use backstitch_kv::Pos;

/// Consecutive positions at each of which one random number was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: Pos,
    /// The number of draws, at `start` and the positions after it.
    len: u32,
    seed: u64,
    /// The random numbers before the first draw.
    rng: u64,
    /// They were chosen at `start`, not what was left after the run before.
    is_set: bool,
}

impl Run {
    /// Return the random numbers as they stood when the sequence reached `pos`, which is not before the start.
    fn rng_at(&self, pos: Pos) -> u64 {
        let n_drawn = u64::from(pos.0.abs_diff(self.start.0).min(self.len));
        self.rng.wrapping_add(n_drawn.wrapping_mul(STEP))
    }
}

/// The states of a chain's samplers at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    pos: Pos,
    /// The end of its bytes; they begin where those of the mark before end.
    end: usize,
}

/// A record of where a chain stood at every position of a sequence, so that a rollback can take it back
/// there.
///
/// Random numbers take 24 bytes for each stretch of tokens drawn one after another, whatever its length.
/// Samplers with a state of their own add its bytes for each token drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    runs: Vec<Run>,
    marks: Vec<Mark>,
    bytes: Vec<u8>,
}

/// An earlier state of a chain.
pub(crate) struct Stand<'a> {
    pub seed: u64,
    pub rng: u64,
    /// The samplers' states at a position, after which they only accepted tokens.
    pub samplers: Option<(Pos, &'a [u8])>,
}

/// The version of the layout of [`Trail::encode`].
const VERSION: u32 = 1;
/// The bit of an encoded run's length that says that its random numbers were chosen there.
const IS_SET: u32 = 1 << 31;
const WHAT: &str = "the record of a sampler's earlier states";

impl Trail {
    /// Make room, so that `n` tokens can be drawn by samplers of `n_bytes` of state without allocating. Where
    /// there is not so much memory, drawing makes room as it goes.
    pub(crate) fn reserve(&mut self, n: usize, n_bytes: usize) {
        self.runs.reserve(2);
        if n_bytes > 0 {
            let marks = self.marks.try_reserve(n);
            let _ = marks.and_then(|()| self.bytes.try_reserve(n.saturating_mul(n_bytes)));
        }
    }

    /// Forget the states of samplers; random numbers stay.
    pub(crate) fn forget_samplers(&mut self) {
        self.marks.clear();
        self.bytes.clear();
    }

    /// Note that the chain stands anew at `pos`, the end of the sequence: at `rng` among the random numbers
    /// of `seed`, its samplers at what `save` appends. It stands so from now on whenever it comes back to
    /// `pos`.
    pub(crate) fn set(&mut self, pos: Pos, seed: u64, rng: u64, save: impl FnOnce(&mut Vec<u8>)) {
        self.runs.truncate(self.runs.partition_point(|run| run.start < pos));
        self.runs.push(Run { start: pos, len: 0, seed, rng, is_set: true });
        self.marks.truncate(self.marks.partition_point(|mark| mark.pos < pos));
        self.bytes.truncate(self.marks.last().map_or(0, |mark| mark.end));
        self.mark(pos, save);
    }

    /// Note that a random number is drawn at `pos`.
    pub(crate) fn draw(&mut self, pos: Pos, seed: u64, rng: u64) {
        match self.runs.last_mut() {
            Some(last)
                if pos.0.checked_sub(last.start.0) == i32::try_from(last.len).ok()
                    && (last.rng_at(pos), last.seed) == (rng, seed) =>
            {
                last.len += 1;
            }
            _ => self.runs.push(Run { start: pos, len: 1, seed, rng, is_set: false }),
        }
    }

    /// Note the states of the samplers at `pos`, which `save` appends; nothing if they have none.
    pub(crate) fn mark(&mut self, pos: Pos, save: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        save(&mut self.bytes);
        if self.bytes.len() > start {
            self.marks.push(Mark { pos, end: self.bytes.len() });
        }
    }

    /// Forget what was noted behind `pos`.
    pub(crate) fn cut(&mut self, pos: Pos) {
        // What was drawn at `pos` itself is taken back too, but not random numbers that were chosen there.
        let stays = |run: &Run| run.start < pos || run.start == pos && run.is_set;
        self.runs.truncate(self.runs.partition_point(stays));
        if let Some(last) = self.runs.last_mut() {
            last.len = last.len.min(pos.0.abs_diff(last.start.0));
        }
        self.marks.truncate(self.n_marks(pos));
        self.bytes.truncate(self.marks.last().map_or(0, |mark| mark.end));
    }

    /// Return where the chain stood when the sequence reached `pos`; `None` if that was before the record
    /// begins.
    pub(crate) fn at(&self, pos: Pos) -> Option<Stand<'_>> {
        let is_before = |run: &&Run| run.start < pos || run.start == pos && run.is_set;
        let run = self.runs.iter().rev().find(is_before)?;
        let n_marks = self.n_marks(pos);
        let end = |i: usize| self.marks.get(i).map_or(0, |mark| mark.end);
        let samplers = n_marks.checked_sub(1).and_then(|i| {
            let start = i.checked_sub(1).map_or(0, end);
            Some((self.marks.get(i)?.pos, self.bytes.get(start..end(i))?))
        });
        Some(Stand { seed: run.seed, rng: run.rng_at(pos), samplers })
    }

    /// Return the number of marks up to the one made when the sequence first came to `pos`.
    fn n_marks(&self, pos: Pos) -> usize {
        let n_before = self.marks.partition_point(|mark| mark.pos < pos);
        n_before + usize::from(self.marks.get(n_before).is_some_and(|mark| mark.pos == pos))
    }

    /// The record in bytes, little-endian: version, numbers of runs and of marks (u32 each); for each run
    /// its first position and length (u32 each; the highest bit of the length says that random numbers were
    /// chosen there), seed and random numbers (u64 each); for each mark its position and number of bytes
    /// (u32 each); the bytes of all marks.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [VERSION, self.runs.len() as u32, self.marks.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        for run in &self.runs {
            let len = run.len & !IS_SET | if run.is_set { IS_SET } else { 0 };
            bytes.extend([run.start.0 as u32, len].map(u32::to_le_bytes).as_flattened());
            bytes.extend([run.seed, run.rng].map(u64::to_le_bytes).as_flattened());
        }
        let mut start = 0;
        for mark in &self.marks {
            let len = (mark.end - start) as u32;
            bytes.extend([mark.pos.0 as u32, len].map(u32::to_le_bytes).as_flattened());
            start = mark.end;
        }
        bytes.extend(&self.bytes);
        bytes
    }

    /// The record that [`Trail::encode`] made these bytes of.
    ///
    /// # Errors
    /// [`Error::SavedLength`] if they are too few or too many, [`Error::SavedValue`] if their version is
    /// unknown or positions do not ascend.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let length = |wanted: u64| Error::SavedLength { what: WHAT, found: bytes.len() as u64, wanted };
        let Some(([version, n_runs, n_marks], rest)) = words::<3>(bytes) else { return Err(length(12)) };
        if version != VERSION {
            return Err(Error::SavedValue {
                what: WHAT,
                offset: 0,
                found: version.into(),
                wanted: "version 1",
            });
        }
        let n_head = 12 + 24 * u64::from(n_runs) + 8 * u64::from(n_marks);
        let n_rest = usize::try_from(n_head - 12).ok();
        let (lists, states) = n_rest.and_then(|n| rest.split_at_checked(n)).ok_or(length(n_head))?;
        let (runs, marks) = lists.split_at_checked(24 * n_runs as usize).ok_or(length(n_head))?;
        let trail = Trail {
            runs: runs.as_chunks::<24>().0.iter().filter_map(decode_run).collect(),
            marks: decode_marks(marks),
            bytes: states.to_vec(),
        };
        let n_states = trail.marks.last().map_or(0, |mark| mark.end);
        if n_states != states.len() {
            return Err(length(n_head.saturating_add(n_states as u64)));
        }
        trail.check().map(|()| trail)
    }

    fn check(&self) -> Result<(), Error> {
        let ascend =
            self.runs.is_sorted_by_key(|run| run.start) && self.marks.is_sorted_by_key(|mark| mark.pos);
        let starts = self.runs.iter().map(|run| run.start).chain(self.marks.iter().map(|mark| mark.pos));
        match starts.min().unwrap_or(Pos::ZERO) {
            first if ascend && first >= Pos::ZERO => Ok(()),
            first => {
                let (found, wanted) = (first.0 as u32, "positions that ascend from 0");
                Err(Error::SavedValue { what: WHAT, offset: 12, found: found.into(), wanted })
            }
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> Option<([u32; N], &[u8])> {
    let (words, rest) = bytes
        .as_chunks::<4>()
        .0
        .split_first_chunk::<N>()
        .map(|(words, _)| words)
        .and_then(|words| Some((words, bytes.get(4 * N..)?)))?;
    Some((words.map(u32::from_le_bytes), rest))
}

fn decode_run(bytes: &[u8; 24]) -> Option<Run> {
    let ([start, len, seed, seed_high, rng, rng_high], _) = words::<6>(bytes)?;
    let long = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (seed, rng) = (long(seed, seed_high), long(rng, rng_high));
    Some(Run { start: Pos(start as i32), len: len & !IS_SET, seed, rng, is_set: len & IS_SET != 0 })
}

fn decode_marks(bytes: &[u8]) -> Vec<Mark> {
    let mut end = 0usize;
    let marks = bytes.as_chunks::<8>().0.iter().filter_map(|bytes| {
        let ([pos, len], _) = words::<2>(bytes)?;
        end = end.saturating_add(len as usize);
        Some(Mark { pos: Pos(pos as i32), end })
    });
    marks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    fn stand(trail: &Trail, pos: i32) -> (u64, u64) {
        trail.at(Pos(pos)).map(|stand| (stand.seed, stand.rng)).unwrap()
    }

    /// Random numbers after `n` draws.
    fn after(seed: u64, n: usize) -> u64 {
        let mut rng = Rng::new(seed);
        for _ in 0..n {
            rng.bits();
        }
        rng.state()
    }

    /// Five tokens were fed, three drawn and the end at position 8; two were fed, and two drawn with
    /// another seed.
    fn trail() -> Trail {
        let mut trail = Trail::default();
        trail.set(Pos(0), 7, 7, |_| {});
        (0..4).for_each(|i| trail.draw(Pos(5 + i), 7, after(7, i as usize)));
        trail.set(Pos(10), 9, 9, |_| {});
        (0..2).for_each(|i| trail.draw(Pos(10 + i), 9, after(9, i as usize)));
        trail
    }

    #[test]
    fn random_numbers_stand_where_they_stood_when_a_position_was_reached() {
        let trail = trail();
        let expected = [(0, 0), (5, 0), (6, 1), (7, 2), (8, 3), (9, 4)];
        for (pos, n) in expected {
            assert_eq!(stand(&trail, pos), (7, after(7, n)), "{pos}");
        }
        for (pos, n) in [(10, 0), (11, 1), (12, 2), (99, 2)] {
            assert_eq!(stand(&trail, pos), (9, after(9, n)), "{pos}");
        }
        assert_eq!(trail.runs.len(), 3);
    }

    #[test]
    fn a_cut_takes_back_what_was_drawn() {
        let mut trail = trail();
        trail.cut(Pos(7));
        assert_eq!(stand(&trail, 7), (7, after(7, 2)));
        assert_eq!(stand(&trail, 50), (7, after(7, 2)));
        trail.draw(Pos(7), 7, after(7, 2));
        assert_eq!((stand(&trail, 8), trail.runs.len()), ((7, after(7, 3)), 2));
    }

    #[test]
    fn draws_that_a_cut_takes_back_leave_nothing_for_later_positions() {
        let mut trail = Trail::default();
        trail.set(Pos(0), 7, 7, |_| {});
        // The end of the text is drawn twice at position 2, then a token.
        (0..3).for_each(|i| trail.draw(Pos(2), 7, after(7, i)));
        trail.cut(Pos(2));
        // One token is fed, one drawn behind it.
        trail.draw(Pos(3), 7, after(7, 0));
        assert_eq!((stand(&trail, 3), stand(&trail, 4)), ((7, after(7, 0)), (7, after(7, 1))));
    }

    #[test]
    fn states_of_samplers_lie_between_marks() {
        let mut trail = Trail { runs: trail().runs, ..Trail::default() };
        [(5, &b"ab"[..]), (6, b""), (7, b"cde"), (7, b"f"), (9, b"")].into_iter().for_each(|(pos, state)| {
            trail.mark(Pos(pos), |bytes| bytes.extend(state));
        });
        let at = |trail: &Trail, pos| {
            trail.at(Pos(pos)).unwrap().samplers.map(|(pos, bytes)| (pos.0, bytes.to_vec()))
        };
        assert_eq!(at(&trail, 4), None);
        assert_eq!(at(&trail, 6), Some((5, b"ab".to_vec())));
        assert_eq!(at(&trail, 7), Some((7, b"cde".to_vec())));
        assert_eq!(at(&trail, 30), Some((7, b"f".to_vec())));
        trail.cut(Pos(6));
        assert_eq!((at(&trail, 30), trail.bytes.len()), (Some((5, b"ab".to_vec())), 2));
    }

    #[test]
    fn a_record_in_bytes_is_the_same_record() {
        let mut trail = trail();
        trail.mark(Pos(5), |bytes| bytes.extend(b"ab"));
        let bytes = trail.encode();
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
