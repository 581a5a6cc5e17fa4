//! Steps of programs.

use alloc::vec::Vec;

/// One step of a program.
///
/// Numbers are taken modulo the valid ones when the step runs, so that shrinking a program keeps it
/// meaningful. Sequences are 0 to 3; 4 does not exist.
#[derive(Clone, Debug)]
pub enum Step {
    /// Append segments of tokens.
    Decode {
        /// Sequences (as bits) and number of tokens, per segment.
        runs: Vec<(u8, u8)>,
        /// True if the tokens of segments alternate.
        woven: bool,
        /// Maximum tokens of a ubatch.
        n_ubatch: u8,
        /// End of the plan.
        end: End,
    },
    /// Append one token at an invalid position.
    Misplaced {
        /// Sequences, as bits.
        seqs: u8,
        /// Distance from the sequence's end.
        offset: i8,
    },
    /// Remove a range of positions.
    Remove {
        /// Sequence to change.
        seq: u8,
        /// Positions; 255 is an open end.
        range: (u8, u8),
    },
    /// Remove the last few tokens by `seq_rm`.
    RemoveTail {
        /// Sequence to change.
        seq: u8,
        /// Number of tokens.
        n: u8,
    },
    /// Roll back.
    Rewind {
        /// Sequence to roll back.
        seq: u8,
        /// Number of tokens to roll back by.
        n: u8,
        /// Maximum tokens of a replayed ubatch.
        n_ubatch: u8,
        /// Number of ubatches to replay before the rewind is dropped; `None` to commit it.
        dropped: Option<u8>,
    },
    /// Pin the end of a sequence.
    Pin {
        /// Sequence to pin.
        seq: u8,
    },
    /// Remove a pin.
    Unpin {
        /// Sequence to unpin.
        seq: u8,
        /// Distance of the pin from the end, in tokens.
        n: u8,
    },
    /// Make a savepoint, roll a sequence back and append under it, then commit or drop it.
    Savepoint {
        /// Sequences whose ends it keeps, as bits; only they are appended to.
        seqs: u8,
        /// Sequence to roll back, and the number of tokens.
        back: Option<(u8, u8)>,
        /// Sequences (as bits) and number of tokens, per segment.
        runs: Vec<(u8, u8)>,
        /// True to drop the former content of the rolled-back sequence in the end.
        room: bool,
        /// True to commit the savepoint.
        committed: bool,
    },
    /// Copy a range to another sequence.
    Copy {
        /// Sequence to copy.
        src: u8,
        /// Sequence that receives the copy.
        dst: u8,
        /// Positions; 255 is an open end.
        range: (u8, u8),
        /// True to empty the target first, as a fork does.
        emptied: bool,
    },
    /// Remove all sequences but one.
    Keep {
        /// Sequence that stays.
        seq: u8,
    },
    /// Move a range of positions.
    Add {
        /// Sequence to change.
        seq: u8,
        /// Positions; 255 is an open end.
        range: (u8, u8),
        /// Distance to move by.
        delta: i8,
    },
    /// Divide a range of positions.
    Divide {
        /// Sequence to change.
        seq: u8,
        /// Positions; 255 is an open end.
        range: (u8, u8),
        /// Divisor.
        divisor: i8,
    },
    /// Remove all sequences.
    Clear,
    /// Export everything to a new memory and continue there.
    MoveOut,
    /// Export everything to a memory with other checkpoints and continue there.
    MoveElsewhere {
        /// Length of its journals.
        journal: u8,
        /// True to allow few checkpoints only.
        few: bool,
    },
    /// Replace one sequence by an export of another.
    Restore {
        /// Sequence to copy.
        src: u8,
        /// Sequence to replace.
        dst: u8,
        /// End of the import.
        end: End,
    },
}

impl Step {
    /// Decode a step from eight bytes, for fuzzers; all bytes are valid.
    pub fn read(bytes: &[u8; 8]) -> Step {
        let [op, a, b, c, d, e, f, g] = *bytes;
        let (seq, dst, range) = (a % 5, b % 4, (c, d));
        let end = match e % 8 {
            0 | 1 => End::Drop(f % 4),
            2 => End::Leak,
            _ => End::Commit,
        };
        let sets = |set: u8| set % 15 + 1;
        match op % 32 {
            7 => Step::Savepoint {
                seqs: sets(a),
                back: (b & 1 == 1).then_some((b >> 1 & 3, c % 60)),
                runs: [(sets(d), e % 40), (sets(f), e >> 2 & 31)]
                    .into_iter()
                    .filter(|run| run.1 > 0)
                    .collect(),
                room: g & 1 == 1,
                committed: g & 2 == 2,
            },
            0..7 => {
                let runs = [(sets(a), b % 40 + 1), (sets(c), d % 40)].into_iter().filter(|run| run.1 > 0);
                Step::Decode { runs: runs.collect(), woven: g & 1 == 1, n_ubatch: (g >> 1) % 48 + 1, end }
            }
            8 => Step::Misplaced { seqs: sets(a), offset: (b % 7) as i8 - 3 },
            9 | 10 => Step::Remove { seq, range },
            11..14 => Step::RemoveTail { seq: a % 4, n: b % 40 + 1 },
            14..20 => {
                let dropped = (d % 5 == 0).then_some(e % 4);
                Step::Rewind { seq, n: b % 90, n_ubatch: c % 6 + 1, dropped }
            }
            20 => Step::Pin { seq },
            21 => Step::Unpin { seq: a % 4, n: b % 40 },
            22..25 => Step::Copy {
                src: seq,
                dst,
                range: if f & 1 == 0 { (0, 255) } else { range },
                emptied: g % 5 > 0,
            },
            25 => Step::Add { seq: a % 4, range, delta: (b % 80) as i8 - 40 },
            26 => Step::Divide { seq: a % 4, range, divisor: (b % 6) as i8 - 1 },
            27 => Step::MoveOut,
            28 => Step::MoveElsewhere { journal: b % 9, few: c & 1 == 1 },
            29 => Step::Restore { src: a % 4, dst: b % 5, end },
            30 => Step::Keep { seq },
            _ => Step::Clear,
        }
    }
}

/// End of a plan or an import.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Commit it.
    Commit,
    /// Drop it after this number of ubatches.
    Drop(u8),
    /// Leak it, as `mem::forget` does.
    Leak,
}
