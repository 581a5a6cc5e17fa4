//! Filling what was reserved with an image's bytes.

use super::StageError;
use super::fit::{Conversion, Matched};
use super::reserve::Reserved;
use crate::error::Error;
use crate::image::{Group, Image, Source};
use crate::memory::Hybrid;
use crate::memory::cells::CellPart;
use crate::memory::snapshot::Place;
use crate::room;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};
use backstitch_core::pool::{Parts, Pool, n_jobs};

impl Hybrid {
    /// Fills all that was reserved, blocks on as many threads as `pool` has; tells what was converted.
    pub(super) fn fill_stage<S: Source + Sync>(
        &mut self,
        image: &Image,
        source: &S,
        matched: &[Matched],
        reserved: &Reserved,
        pool: &dyn Pool,
    ) -> Result<Option<Conversion>, StageError<S::Error>>
    where
        S::Error: Send,
    {
        let mut conversion = None;
        for Matched { place, group } in matched {
            let part = self.parts.get_mut(place.part).and_then(|part| part.as_cells_mut());
            let Some(part) = part else { continue };
            let mut rooms = rooms(part, place, &reserved.blocks[*group]);
            let saved = &image.shape.groups[*group];
            if (saved.k_type, saved.v_type) == (place.group.k_type, place.group.v_type) {
                fill_blocks(source, *group, &mut rooms, pool).map_err(StageError::Source)?;
                continue;
            }
            let mut converter = Converter::new(saved, &place.group);
            for Room { block, layers, .. } in &mut rooms {
                let live = image.blocks[*group][*block].live;
                converter.fill(source, (*group, *block), live, layers).map_err(StageError::Source)?;
            }
            conversion.get_or_insert_with(Conversion::default).add(&converter.done);
        }
        self.fill_states(image, source, reserved)?;
        Ok(conversion)
    }

    fn fill_states<S: Source>(
        &mut self,
        image: &Image,
        source: &S,
        reserved: &Reserved,
    ) -> Result<(), StageError<S::Error>> {
        let Some(states) = self.parts.iter_mut().find_map(|part| part.as_states_mut()) else {
            return Ok(());
        };
        for (state, slot) in reserved.slots.iter().enumerate() {
            if let Some(slot) = *slot {
                let mut pieces: Vec<&mut [f32]> = states.pieces_mut(slot).collect();
                source.fill_state(state, &mut pieces).map_err(StageError::Source)?;
            }
        }
        for (journal, rows) in reserved.rows.iter().enumerate() {
            let Some(rows) = rows.clone() else { continue };
            let saved = image.journals[journal];
            let mut targets: Vec<&mut [f32]> = states.rows_mut(rows.clone()).collect();
            if rows.len() as u32 == saved {
                source.fill_journal(journal, &mut targets).map_err(StageError::Source)?;
                continue;
            }
            // Only the first rows fit.
            let len = |target: &&mut [f32]| target.len() / rows.len().max(1) * saved as usize;
            let whole = targets.iter().map(|target| room::zeroed(len(target) as u64)).collect();
            let whole: Result<Vec<Vec<f32>>, Error> = whole;
            let mut whole = whole?;
            let mut slices: Vec<&mut [f32]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_journal(journal, &mut slices).map_err(StageError::Source)?;
            for (target, whole) in targets.iter_mut().zip(&whole) {
                target.iter_mut().zip(whole).for_each(|(target, x)| *target = *x);
            }
        }
        Ok(())
    }
}

/// Where a block of the image goes.
struct Room<'m, E> {
    /// Its number in the group.
    block: usize,
    /// Its bytes in each layer.
    layers: Vec<&'m mut [u8]>,
    /// What came of filling them.
    filled: Option<Result<(), E>>,
}

/// The room of each block that was taken.
fn rooms<'m, E>(part: &'m mut dyn CellPart, place: &Place, taken: &[Option<u32>]) -> Vec<Room<'m, E>> {
    let mut number_of = vec![None; part.pool().len()];
    let mut rooms = Vec::new();
    for (block, taken) in taken.iter().enumerate() {
        let Some(number) = taken.and_then(|taken| number_of.get_mut(taken as usize)) else { continue };
        *number = Some(rooms.len());
        rooms.push(Room { block, layers: Vec::with_capacity(place.locals.len()), filled: None });
    }
    let layers = part.layers_mut().iter_mut().enumerate().filter(|(local, _)| place.locals.contains(local));
    for (_, layer) in layers {
        let len = layer.layout.block_bytes();
        for (bytes, number) in layer.storage_mut().chunks_exact_mut(len).zip(&number_of) {
            if let Some(room) = number.and_then(|number| rooms.get_mut(number)) {
                room.layers.push(bytes);
            }
        }
    }
    rooms
}

/// Fills blocks, each on one thread.
fn fill_blocks<S: Source + Sync>(
    source: &S,
    group: usize,
    rooms: &mut [Room<'_, S::Error>],
    pool: &dyn Pool,
) -> Result<(), S::Error>
where
    S::Error: Send,
{
    let n_jobs = n_jobs(pool, rooms.len(), 1);
    let parts = Parts::new(rooms, 1, n_jobs);
    let ran = pool.run(n_jobs, &|job| {
        let rooms = parts.take(job).map(|(_, rooms)| rooms).into_iter().flatten();
        for Room { block, layers, filled } in rooms {
            *filled = Some(source.fill_block(group, *block, layers));
        }
    });
    for Room { block, layers, filled } in rooms {
        match filled.take() {
            Some(filled) => filled?,
            // Its job panicked: here that reaches the caller.
            None => {
                debug_assert!(ran.is_err(), "every block has a job");
                source.fill_block(group, *block, layers)?;
            }
        }
    }
    Ok(())
}

impl Conversion {
    fn add(&mut self, other: &Conversion) {
        self.n_values += other.n_values;
        self.n_changed += other.n_changed;
        self.max_error = self.max_error.max(other.max_error);
    }

    /// Notes that `x` became `y`.
    fn note(&mut self, x: f32, y: f32) {
        self.n_values += 1;
        if x.to_bits() != y.to_bits() {
            self.n_changed += 1;
            self.max_error = self.max_error.max((x - y).abs());
        }
    }
}

/// Turns blocks of one element type into those of another.
struct Converter {
    layouts: Vec<(CellLayout, CellLayout)>,
    blocks: Vec<Vec<u8>>,
    done: Conversion,
}

impl Converter {
    fn new(saved: &Group, own: &Group) -> Self {
        let layouts: Vec<_> = saved.layouts().zip(own.layouts()).collect();
        Converter { layouts, blocks: Vec::new(), done: Conversion::default() }
    }

    fn fill<S: Source>(
        &mut self,
        source: &S,
        (group, block): (usize, usize),
        live: u32,
        targets: &mut [&mut [u8]],
    ) -> Result<(), S::Error> {
        self.blocks.resize_with(self.layouts.len(), Vec::new);
        for (bytes, (saved, _)) in self.blocks.iter_mut().zip(&self.layouts) {
            bytes.resize(saved.block_bytes(), 0);
        }
        let mut slices: Vec<&mut [u8]> = self.blocks.iter_mut().map(Vec::as_mut_slice).collect();
        source.fill_block(group, block, &mut slices)?;
        for ((bytes, (saved, own)), target) in self.blocks.iter().zip(&self.layouts).zip(targets) {
            let width = saved.n_head_kv * saved.d_k.max(saved.d_v);
            let (mut row, mut back) = (vec![0.0; width], vec![0.0; width]);
            for cell in (0..BLOCK_CELLS).filter(|cell| live >> cell & 1 == 1) {
                let n = saved.n_head_kv * saved.d_k;
                saved.load_k(bytes, cell, &mut row[..n]);
                own.store_k(target, cell, &row[..n]);
                own.load_k(target, cell, &mut back[..n]);
                row[..n].iter().zip(&back).for_each(|(x, y)| self.done.note(*x, *y));
                let n = saved.n_head_kv * saved.d_v;
                saved.load_v(bytes, cell, &mut row[..n]);
                own.store_v(target, cell, &row[..n]);
                own.load_v(target, cell, &mut back[..n]);
                row[..n].iter().zip(&back).for_each(|(x, y)| self.done.note(*x, *y));
            }
        }
        Ok(())
    }
}
