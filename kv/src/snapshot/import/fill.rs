//! Writing the bytes of a snapshot into reserved blocks, states and journals.

use super::ImportError;
use super::fit::{Conversion, Matched};
use super::reserve::Reserved;
use crate::cache::PagedCells;
use crate::error::Error;
use crate::memory::Memory;
use crate::reserve;
use crate::snapshot::export::Place;
use crate::snapshot::{Group, Snapshot, Source};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};
use backstitch_core::pool::{Parts, Pool, n_jobs};

impl Memory {
    /// Write everything that was reserved, blocks on all threads of `pool`; return statistics of
    /// the conversion, if there was one.
    pub(super) fn fill_import<S: Source + Sync>(
        &mut self,
        snapshot: &Snapshot,
        source: &S,
        matched: &[Matched],
        reserved: &Reserved,
        pool: &dyn Pool,
    ) -> Result<Option<Conversion>, ImportError<S::Error>>
    where
        S::Error: Send,
    {
        let mut conversion = None;
        for Matched { place, group } in matched {
            let Some(cells) = self.caches.cells_mut(place.cache) else { continue };
            let mut rooms = rooms(cells, place, &reserved.blocks[*group]);
            let saved = &snapshot.shape.groups[*group];
            if (saved.k_type, saved.v_type) == (place.group.k_type, place.group.v_type) {
                fill_blocks(source, *group, &mut rooms, pool).map_err(ImportError::Source)?;
                continue;
            }
            let mut converter = Converter::new(saved, &place.group);
            for Room { block, layers, .. } in &mut rooms {
                let live = snapshot.blocks[*group][*block].live;
                converter.fill(source, (*group, *block), live, layers).map_err(ImportError::Source)?;
            }
            conversion.get_or_insert_with(Conversion::default).add(&converter.done);
        }
        self.fill_states(snapshot, source, reserved)?;
        Ok(conversion)
    }

    /// Write states and journals. A journal that exceeds the reserved rows is read whole and cut.
    fn fill_states<S: Source>(
        &mut self,
        snapshot: &Snapshot,
        source: &S,
        reserved: &Reserved,
    ) -> Result<(), ImportError<S::Error>> {
        let Some(states) = self.caches.states_mut() else { return Ok(()) };
        for (state, slot) in reserved.slots.iter().enumerate() {
            if let Some(slot) = *slot {
                let mut pieces: Vec<&mut [f32]> = states.tensors_mut(slot).collect();
                source.fill_state(state, &mut pieces).map_err(ImportError::Source)?;
            }
        }
        for (journal, rows) in reserved.rows.iter().enumerate() {
            let Some(rows) = rows.clone() else { continue };
            let saved = snapshot.journals[journal];
            let mut targets: Vec<&mut [f32]> = states.rows_mut(rows.clone()).collect();
            if rows.len() as u32 == saved {
                source.fill_journal(journal, &mut targets).map_err(ImportError::Source)?;
                continue;
            }
            // The source writes whole journals, of which only the first rows fit here.
            let len = |target: &&mut [f32]| target.len() / rows.len().max(1) * saved as usize;
            let whole = targets.iter().map(|target| reserve::zeroed(len(target) as u64)).collect();
            let whole: Result<Vec<Vec<f32>>, Error> = whole;
            let mut whole = whole?;
            let mut slices: Vec<&mut [f32]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_journal(journal, &mut slices).map_err(ImportError::Source)?;
            for (target, whole) in targets.iter_mut().zip(&whole) {
                target.iter_mut().zip(whole).for_each(|(target, x)| *target = *x);
            }
        }
        Ok(())
    }
}

/// Destination of one block of the snapshot.
struct Room<'m, E> {
    /// Index of the block in its group.
    block: usize,
    /// Destination bytes, per layer.
    layers: Vec<&'m mut [u8]>,
    /// Result of writing them, once a job has done it.
    filled: Option<Result<(), E>>,
}

/// Return the destination of each reserved block.
fn rooms<'m, E>(cells: &'m mut PagedCells, place: &Place, taken: &[Option<u32>]) -> Vec<Room<'m, E>> {
    let mut number_of = vec![None; cells.pool.len()];
    let mut rooms = Vec::new();
    for (block, taken) in taken.iter().enumerate() {
        let Some(number) = taken.and_then(|taken| number_of.get_mut(taken as usize)) else { continue };
        *number = Some(rooms.len());
        rooms.push(Room { block, layers: Vec::with_capacity(place.locals.len()), filled: None });
    }
    let layers = cells.layers.iter_mut().enumerate().filter(|(local, _)| place.locals.contains(local));
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

/// Write blocks in parallel, each in one job.
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
            // The job panicked; filling here lets the panic reach the caller.
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

    /// Count the conversion of `x` to `y`.
    fn note(&mut self, x: f32, y: f32) {
        self.n_values += 1;
        if x.to_bits() != y.to_bits() {
            self.n_changed += 1;
            self.max_error = self.max_error.max((x - y).abs());
        }
    }
}

/// Conversion of blocks from one element type to another, via f32.
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
