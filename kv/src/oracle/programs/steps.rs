//! What programs are made of.

use alloc::vec::Vec;

/// One step of a program. Numbers are taken modulo what makes sense when the step runs, so that shrinking a
/// program keeps it meaningful; sequences are 0 to 3, and 4 is one that there is not.
#[derive(Clone, Debug)]
pub enum Step {
    /// Appends segments of tokens.
    Decode {
        /// For each segment, its sequences (as bits) and how many tokens.
        runs: Vec<(u8, u8)>,
        /// Whether the tokens of segments take turns.
        woven: bool,
        /// Tokens of a ubatch at most.
        n_ubatch: u8,
        /// How the plan ends.
        end: End,
    },
    /// Appends one token somewhere it does not belong.
    Misplaced {
        /// The sequences, as bits.
        seqs: u8,
        /// How far from the sequence's end.
        offset: i8,
    },
    /// Removes a range of positions.
    Remove {
        /// The sequence.
        seq: u8,
        /// The positions; 255 is an open end.
        range: (u8, u8),
    },
    /// Removes the last few tokens by `seq_rm`.
    RemoveTail {
        /// The sequence.
        seq: u8,
        /// How many tokens.
        n: u8,
    },
    /// Goes back.
    Rewind {
        /// The sequence.
        seq: u8,
        /// By how many tokens.
        n: u8,
        /// Tokens of a replayed ubatch at most.
        n_ubatch: u8,
        /// The ubatches that are replayed before it is dropped; `None`: it is committed.
        dropped: Option<u8>,
    },
    /// Pins the end of a sequence.
    Pin {
        /// The sequence.
        seq: u8,
    },
    /// Takes a pin away.
    Unpin {
        /// The sequence.
        seq: u8,
        /// Tokens from the end.
        n: u8,
    },
    /// Copies a range to another sequence.
    Copy {
        /// The sequence copied.
        src: u8,
        /// The sequence that gets it.
        dst: u8,
        /// The positions; 255 is an open end.
        range: (u8, u8),
        /// Whether the target is emptied first, as a fork does.
        emptied: bool,
    },
    /// Removes all sequences but one.
    Keep {
        /// The one that stays.
        seq: u8,
    },
    /// Moves a range of positions.
    Add {
        /// The sequence.
        seq: u8,
        /// The positions; 255 is an open end.
        range: (u8, u8),
        /// By how many.
        delta: i8,
    },
    /// Divides a range of positions.
    Divide {
        /// The sequence.
        seq: u8,
        /// The positions; 255 is an open end.
        range: (u8, u8),
        /// By what.
        divisor: i8,
    },
    /// Removes all sequences.
    Clear,
    /// Takes a snapshot of everything to a new memory and goes on there.
    MoveOut,
    /// The same, to one with other checkpoints.
    MoveElsewhere {
        /// How long its journals are.
        journal: u8,
        /// Whether it has few checkpoints.
        few: bool,
    },
    /// Puts a snapshot of one sequence in the place of another.
    Restore {
        /// The sequence copied.
        src: u8,
        /// The sequence replaced.
        dst: u8,
        /// How the restore ends.
        end: End,
    },
}

impl Step {
    /// The step that eight bytes are, for fuzzers; any eight are one.
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
            0..8 => {
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

/// How a plan or a restore ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Committed.
    Commit,
    /// Dropped after so many ubatches.
    Drop(u8),
    /// Leaked, as `mem::forget` does.
    Leak,
}
