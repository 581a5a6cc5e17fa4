//! Recurrent states: which there are, and their numbers.
//!
//! | number | type | what |
//! |---|---|---|
//! | states | u32 | |
//! | each state | i32, u32 | last position, number of sequences: 0 in a file of one |
//! | | n × i32 | sequences |
//! | scans transposed | u32 | 0 |
//! | layers | u32 | all of the model |
//! | R of each recurrent layer | i32, u64, bytes | type, bytes of a state, states |
//! | S of each recurrent layer | i32, u64, bytes | the same; of no bytes where nothing scans |

use super::layout::{Layout, Row, type_number};
use super::read::Reader;
use super::{Error, Form, MAX_SEQUENCES, Section, Wanted};
use alloc::vec::Vec;
use backstitch_core::cell::CellType;
use backstitch_kv::Pos;

/// A state of a file.
pub(super) struct State {
    /// The last position it has seen.
    pub pos: Pos,
    /// The sequences it belongs to.
    pub ids: Vec<u32>,
}

/// The recurrent states of a file.
#[derive(Default)]
pub(super) struct States<'a> {
    pub states: Vec<State>,
    /// For each recurrent layer of the shape `[n_states, row]`.
    pub r: Vec<&'a [u8]>,
    pub s: Vec<&'a [u8]>,
}

impl<'a> States<'a> {
    pub fn read(r: &mut Reader<'a>, layout: &Layout, n_layer: u32, form: Form) -> Result<Self, Error> {
        r.section = Section::States;
        let most = if form == Form::Session { MAX_SEQUENCES } else { 1 };
        let n = r.between("number of states", 0, most + 1)?;
        let mut states = States::default();
        let mut seen = [false; MAX_SEQUENCES as usize];
        for _ in 0..n {
            let pos = Pos(r.between("position", 0, i32::MAX as u32)? as i32);
            states.states.push(State { pos, ids: read_ids(r, form, &mut seen)? });
        }
        r.exactly("whether scans are transposed", 0)?;
        r.exactly("layers", n_layer)?;
        for row in [Row::R, Row::S] {
            r.section = if row == Row::R { Section::R } else { Section::S };
            for layer in 0..layout.shape.recurrent.len() {
                r.exactly("type", type_number(CellType::F32))?;
                let bytes = layout.row_len(layer, row).saturating_mul(4);
                r.exactly_u64("bytes of a state", bytes)?;
                let data = r.bytes(bytes.saturating_mul(n.into()), "states")?;
                if row == Row::R { states.r.push(data) } else { states.s.push(data) }
            }
        }
        Ok(states)
    }
}

/// Return the sequences of a state; each has one state only.
fn read_ids(r: &mut Reader<'_>, form: Form, seen: &mut [bool]) -> Result<Vec<u32>, Error> {
    const FIELD: &str = "number of sequences of a state";
    if form != Form::Session {
        r.exactly(FIELD, 0)?;
        return Ok([0].into());
    }
    let mut ids = Vec::new();
    for _ in 0..r.between(FIELD, 1, MAX_SEQUENCES + 1)? {
        let id = r.between("sequence of a state", 0, MAX_SEQUENCES)?;
        match seen.get_mut(id as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => {
                let wanted = Wanted::Text("a sequence without a state before this one");
                return Err(r.wrong("sequence of a state", id, wanted));
            }
        }
        ids.push(id);
    }
    Ok(ids)
}
