//! Filling what was reserved with an image's bytes.

use super::StageError;
use super::fit::{Conversion, Matched};
use super::reserve::Reserved;
use crate::image::{Group, Image, Source};
use crate::memory::Hybrid;
use alloc::vec;
use alloc::vec::Vec;
use backstitch_core::cell::{BLOCK_CELLS, CellLayout};

impl Hybrid {
    /// Fills all that was reserved; tells what was converted.
    pub(super) fn fill_stage<S: Source>(
        &mut self,
        image: &Image,
        source: &S,
        matched: &[Matched],
        reserved: &Reserved,
    ) -> Result<Option<Conversion>, StageError<S::Error>> {
        let mut conversion = None;
        for Matched { place, group } in matched {
            let part = self.parts.get_mut(place.part).and_then(|part| part.as_cells_mut());
            let Some(part) = part else { continue };
            let saved = &image.shape.groups[*group];
            let same = (saved.k_type, saved.v_type) == (place.group.k_type, place.group.v_type);
            let mut converter = Converter::new(saved, &place.group);
            for (block, taken) in reserved.blocks[*group].iter().enumerate() {
                let Some(taken) = *taken else { continue };
                let own = part.layers_mut().iter_mut().enumerate();
                let own = own.filter(|(local, _)| place.locals.contains(local)).filter_map(|(_, layer)| {
                    let range = layer.layout.block_range(taken as usize);
                    layer.storage_mut().get_mut(range)
                });
                let mut targets: Vec<&mut [u8]> = own.collect();
                let filled = match same {
                    true => source.fill_block(*group, block, &mut targets),
                    false => {
                        let live = image.blocks[*group][block].live;
                        converter.fill(source, (*group, block), live, &mut targets)
                    }
                };
                filled.map_err(StageError::Source)?;
            }
            if !same {
                conversion.get_or_insert_with(Conversion::default).add(&converter.done);
            }
        }
        self.fill_states(image, source, reserved).map_err(StageError::Source)?;
        Ok(conversion)
    }

    fn fill_states<S: Source>(
        &mut self,
        image: &Image,
        source: &S,
        reserved: &Reserved,
    ) -> Result<(), S::Error> {
        let Some(states) = self.parts.iter_mut().find_map(|part| part.as_states_mut()) else {
            return Ok(());
        };
        for (state, slot) in reserved.slots.iter().enumerate() {
            if let Some(slot) = *slot {
                let mut pieces: Vec<&mut [f32]> = states.pieces_mut(slot).collect();
                source.fill_state(state, &mut pieces)?;
            }
        }
        for (journal, rows) in reserved.rows.iter().enumerate() {
            let Some(rows) = rows.clone() else { continue };
            let saved = image.journals[journal];
            let mut targets: Vec<&mut [f32]> = states.rows_mut(rows.clone()).collect();
            if rows.len() as u32 == saved {
                source.fill_journal(journal, &mut targets)?;
                continue;
            }
            // Only the first rows fit.
            let len = |target: &&mut [f32]| target.len() / rows.len().max(1) * saved as usize;
            let mut whole: Vec<Vec<f32>> = targets.iter().map(|target| vec![0.0; len(target)]).collect();
            let mut slices: Vec<&mut [f32]> = whole.iter_mut().map(Vec::as_mut_slice).collect();
            source.fill_journal(journal, &mut slices)?;
            for (target, whole) in targets.iter_mut().zip(&whole) {
                target.iter_mut().zip(whole).for_each(|(target, x)| *target = *x);
            }
        }
        Ok(())
    }
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
