//! Writing the bytes of a snapshot into reserved blocks, states and journals.

use super::fit::Conversion;
use super::{ImportError, Request};
use crate::cache::{Caches, PagedCells};
use crate::error::Error;
use crate::external::Placement;
use crate::memory::Memory;
use crate::reserve;
use crate::snapshot::export::Place;
use crate::snapshot::owned::filled;
use crate::snapshot::{Snapshot, Source};
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};
use backstitch_core::pool::{Parts, Pool, n_jobs};

impl Memory {
    /// Write everything that was reserved, blocks on all threads of `pool`; return statistics of
    /// the conversion, if there was one.
    pub(super) fn fill_import<S: Source<Error: Send> + Sync>(
        &mut self,
        request: &Request<'_>,
        source: &S,
        pool: &dyn Pool,
    ) -> Result<Option<Conversion>, ImportError<S::Error>> {
        let Memory { reservation, caches, .. } = self;
        let placement = &reservation.placement;
        let mut conversion = None;
        for (group, place) in request.places.iter().enumerate() {
            let Some(cells) = caches.cells_mut(place.cache) else { continue };
            let mut rooms = rooms(cells, place, &placement.blocks[group]);
            let saved = &request.snapshot.shape.groups[group];
            let converts = (saved.k_type, saved.v_type) != (place.group.k_type, place.group.v_type);
            let layouts: Vec<_> = saved.layouts().zip(place.group.layouts()).collect();
            let done = fill_blocks(&mut rooms, pool, &|block, layers| {
                if !converts {
                    return source.fill_block(group, block, layers).map(|()| Conversion::default());
                }
                let live = request.snapshot.blocks[group][block].live;
                convert(source, (group, block), live, &layouts, layers)
            })
            .map_err(ImportError::Source)?;
            if converts {
                conversion.get_or_insert_with(Conversion::default).add(&done);
            }
        }
        fill_states(caches, request.snapshot, source, placement)?;
        Ok(conversion)
    }
}

/// Write states and journals. A journal that exceeds the reserved rows is read whole and cut.
fn fill_states<S: Source>(
    caches: &mut Caches,
    snapshot: &Snapshot,
    source: &S,
    placement: &Placement,
) -> Result<(), ImportError<S::Error>> {
    let Some(states) = &mut caches.states else { return Ok(()) };
    for (state, slot) in placement.states.iter().enumerate() {
        if let Some(slot) = *slot {
            let mut pieces: Vec<&mut [f32]> = states.tensors_mut(slot).collect();
            source.fill_state(state, &mut pieces).map_err(ImportError::Source)?;
        }
    }
    for (journal, rows) in placement.journals.iter().enumerate() {
        let Some(rows) = rows.clone() else { continue };
        let saved = snapshot.journals[journal];
        let mut targets: Vec<&mut [f32]> = states.rows_mut(rows.clone()).collect();
        if rows.len() as u32 == saved {
            source.fill_journal(journal, &mut targets).map_err(ImportError::Source)?;
            continue;
        }
        // The source writes whole journals, of which only the first rows fit here.
        let len = |target: &&mut [f32]| target.len() / rows.len().max(1) * saved as usize;
        let whole = targets.iter().map(|target| reserve::zeroed(len(target) as u64));
        let mut whole = whole.collect::<Result<Vec<Vec<f32>>, Error>>()?;
        let mut slices: Vec<&mut [f32]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
        source.fill_journal(journal, &mut slices).map_err(ImportError::Source)?;
        for (target, whole) in targets.iter_mut().zip(&whole) {
            target.iter_mut().zip(whole).for_each(|(target, x)| *target = *x);
        }
    }
    Ok(())
}

/// Destination of one block of the snapshot.
struct Room<'m, E> {
    /// Index of the block in its group.
    block: usize,
    /// Destination bytes, per layer.
    layers: Vec<&'m mut [u8]>,
    /// Result of writing them, once a job has done it.
    filled: Option<Result<Conversion, E>>,
}

/// Return the destination of each reserved block.
fn rooms<'m, E>(cells: &'m mut PagedCells, place: &Place, taken: &[Option<u32>]) -> Vec<Room<'m, E>> {
    let mut number_of = vec![None; cells.pool.len()];
    let mut rooms = Vec::new();
    for (block, taken) in taken.iter().enumerate() {
        let Some(taken) = *taken else { continue };
        number_of[taken as usize] = Some(rooms.len());
        rooms.push(Room { block, layers: Vec::with_capacity(place.locals.len()), filled: None });
    }
    let is_filled: Vec<bool> = (0..cells.layers.len()).map(|local| place.locals.contains(&local)).collect();
    for (mut bytes, number) in cells.bytes.iter_mut().zip(&number_of) {
        let Some(room) = number.and_then(|number| rooms.get_mut(number)) else { continue };
        for (layer, is_filled) in cells.layers.iter().zip(&is_filled) {
            let (own, rest) = bytes.split_at_mut(layer.layout.block_bytes());
            bytes = rest;
            if *is_filled {
                room.layers.push(own);
            }
        }
    }
    rooms
}

/// Write blocks in parallel, each in one job of `fill`; return the sum of the statistics.
fn fill_blocks<E: Send>(
    rooms: &mut [Room<'_, E>],
    pool: &dyn Pool,
    fill: &(impl Fn(usize, &mut [&mut [u8]]) -> Result<Conversion, E> + Sync),
) -> Result<Conversion, E> {
    let n_jobs = n_jobs(pool, rooms.len(), 1);
    let parts = Parts::new(rooms, 1, n_jobs);
    let ran = pool.run(n_jobs, &|job| {
        let rooms = parts.take(job).map(|(_, rooms)| rooms).into_iter().flatten();
        rooms.for_each(|room| room.filled = Some(fill(room.block, &mut room.layers)));
    });
    let mut sum = Conversion::default();
    for Room { block, layers, filled } in rooms {
        debug_assert!(filled.is_some() || ran.is_err(), "every block has a job");
        // Without a result the job panicked; filling here lets the panic reach the caller.
        sum.add(&filled.take().unwrap_or_else(|| fill(*block, layers))?);
    }
    Ok(sum)
}

impl Conversion {
    fn add(&mut self, other: &Conversion) {
        self.n_values += other.n_values;
        self.n_changed += other.n_changed;
        self.max_error = self.max_error.max(other.max_error);
    }

    /// Count the conversion of values to others.
    fn note(&mut self, from: &[f32], to: &[f32]) {
        self.n_values += from.len() as u64;
        for (x, y) in from.iter().zip(to).filter(|(x, y)| x.to_bits() != y.to_bits()) {
            self.n_changed += 1;
            self.max_error = self.max_error.max((x - y).abs());
        }
    }
}

/// Write a block in another element type, via f32; `layouts` are those of source and target.
fn convert<S: Source>(
    source: &S,
    (group, block): (usize, usize),
    live: u32,
    layouts: &[(CellLayout, CellLayout)],
    targets: &mut [&mut [u8]],
) -> Result<Conversion, S::Error> {
    let lens = layouts.iter().map(|(saved, _)| saved.block_bytes());
    let blocks = filled(lens, |layers| source.fill_block(group, block, layers))?;
    let mut done = Conversion::default();
    for ((bytes, (saved, own)), target) in blocks.iter().zip(layouts).zip(targets) {
        let (n_k, n_v) = (saved.n_head_kv * saved.d_k, saved.n_head_kv * saved.d_v);
        let (mut row, mut back) = (vec![0.0; n_k.max(n_v)], vec![0.0; n_k.max(n_v)]);
        for cell in (0..BLOCK_CELLS).filter(|cell| live >> cell & 1 == 1) {
            saved.load_k(bytes, cell, &mut row[..n_k]);
            own.store_k(target, cell, &row[..n_k]);
            own.load_k(target, cell, &mut back[..n_k]);
            done.note(&row[..n_k], &back[..n_k]);
            saved.load_v(bytes, cell, &mut row[..n_v]);
            own.store_v(target, cell, &row[..n_v]);
            own.load_v(target, cell, &mut back[..n_v]);
            done.note(&row[..n_v], &back[..n_v]);
        }
    }
    Ok(done)
}
