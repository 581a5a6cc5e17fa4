//! Grids: the points that groups of elements choose from in IQ1, IQ2 and IQ3.
//!
//! These types do not store elements but groups of eight or four of them: the number of a point in
//! a list that the format fixes. A coordinate of a point is a *level*, 0 to 2 or 0 to 7; the type
//! says what a level is worth. A grid has a small part of all combinations of levels, those that
//! weights of real models come close to, so that a point takes 8 to 11 bits instead of 13 or 12.
//!
//! Decoding reads a list. Encoding rounds a group to levels; if these are no point, the nearest
//! points are tried ([`Grid::each_neighbour`]).

mod points;
pub mod search;
pub mod signs;

use super::round::nearest;

#[cfg(feature = "std")]
use std::{boxed::Box, sync::OnceLock, vec::Vec};

/// A list of points of `D` coordinates, 8 or 4.
pub struct Grid<const D: usize> {
    /// The points, in ascending order, `BITS` bits a coordinate.
    points: &'static [u16],
    /// Levels of a coordinate.
    levels: u8,
    /// Neighbours of levels that are no point are the points at this many smallest distances.
    n_distances: usize,
    /// The neighbours that were looked for already.
    #[cfg(feature = "std")]
    known: &'static [Neighbours],
}

#[cfg(feature = "std")]
type Neighbours = OnceLock<Box<[u16]>>;

/// Define a grid and the list of its known neighbours.
macro_rules! grid {
    ($(#[$doc:meta])* $name:ident, $dims:literal, $levels:literal, $n_distances:literal) => {
        $(#[$doc])*
        pub static $name: Grid<$dims> = Grid {
            points: &points::$name,
            levels: $levels,
            n_distances: $n_distances,
            #[cfg(feature = "std")]
            known: {
                static KNOWN: [Neighbours; ($levels as usize).pow($dims)] =
                    [const { OnceLock::new() }; ($levels as usize).pow($dims)];
                &KNOWN
            },
        };
    };
}

grid!(/** The grid of IQ1_S and IQ1_M: 2,048 points. */ IQ1, 8, 3, 3);
grid!(/** The grid of IQ2_XXS: 256 points. */ IQ2_XXS, 8, 3, 2);
grid!(/** The grid of IQ2_XS: 512 points. */ IQ2_XS, 8, 3, 2);
grid!(/** The grid of IQ2_S: 1,024 points. */ IQ2_S, 8, 3, 1);
grid!(/** The grid of IQ3_XXS: 256 points. */ IQ3_XXS, 4, 8, 2);
grid!(/** The grid of IQ3_S: 512 points. */ IQ3_S, 4, 8, 3);

impl<const D: usize> Grid<D> {
    /// Bits of a coordinate in the number of a point.
    const BITS: usize = if D == 8 { 2 } else { 3 };

    /// Return the levels of point `index`; of a point that the grid lacks, those of the first.
    pub fn point(&self, index: usize) -> [u8; D] {
        Self::unpack(self.points.get(index).copied().unwrap_or(0))
    }

    /// Return the number of the point with these levels; none if they are no point.
    pub fn find(&self, levels: &[u8; D]) -> Option<usize> {
        self.points.binary_search(&Self::pack(levels)).ok()
    }

    fn pack(levels: &[u8; D]) -> u16 {
        levels.iter().rev().fold(0, |packed, &level| packed << Self::BITS | u16::from(level))
    }

    fn unpack(packed: u16) -> [u8; D] {
        core::array::from_fn(|k| (packed >> (Self::BITS * k)) as u8 & ((1 << Self::BITS) - 1))
    }

    /// Pass the points near `levels` to `f`: those at the few smallest distances, nearest first,
    /// equally near ones in the grid's order.
    ///
    /// They are looked for once; without `std` there is no place to keep them, and they are looked
    /// for every time.
    pub fn each_neighbour(&self, levels: &[u8; D], f: &mut dyn FnMut(usize)) {
        #[cfg(feature = "std")]
        {
            let place = |at, level: &u8| at * usize::from(self.levels) + usize::from(*level);
            let Some(known) = self.known.get(levels.iter().fold(0, place)) else { return };
            let found = || {
                let mut found = Vec::new();
                self.look_for_neighbours(levels, &mut |index| found.push(index as u16));
                found.into_boxed_slice()
            };
            known.get_or_init(found).iter().for_each(|&index| f(usize::from(index)));
        }
        #[cfg(not(feature = "std"))]
        self.look_for_neighbours(levels, f);
    }

    fn look_for_neighbours(&self, levels: &[u8; D], f: &mut dyn FnMut(usize)) {
        let distance = |packed: u16| {
            let point = Self::unpack(packed);
            let squares = point.iter().zip(levels).map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2));
            squares.sum::<u32>()
        };
        let mut beyond = None;
        for _ in 0..self.n_distances {
            let farther = |distance: &u32| beyond.is_none_or(|last| *distance > last);
            let Some(next) = self.points.iter().map(|&point| distance(point)).filter(farther).min() else {
                return;
            };
            for (index, &point) in self.points.iter().enumerate() {
                if distance(point) == next {
                    f(index);
                }
            }
            beyond = Some(next);
        }
    }

    /// Return the levels nearest to `x / scale`, where level l stands for 2l + 1; `inverse` is
    /// `1 / scale`.
    fn levels(&self, x: &[f32; D], inverse: f32) -> [u8; D] {
        let largest = i32::from(self.levels) - 1;
        x.map(|x| nearest(0.5 * (inverse * x - 1.0)).clamp(0, largest) as u8)
    }

    /// Return the neighbour of `levels` with the least squared error, the first of equals.
    pub fn closest(&self, levels: &[u8; D], error: impl Fn(&[u8; D]) -> f32) -> [u8; D] {
        let (mut best, mut least) = (None, f32::MAX);
        self.each_neighbour(levels, &mut |index| {
            let point = self.point(index);
            let error = error(&point);
            // An error that is no number is never less; some point is needed all the same.
            if error < least {
                (best, least) = (Some(point), error);
            } else {
                best.get_or_insert(point);
            }
        });
        best.unwrap_or([0; D])
    }
}

/// Return the numbers of the points of `N` groups of levels; 0 for a group that is no point.
pub fn numbers<const D: usize, const S: usize, const N: usize>(grid: &Grid<D>, levels: &[u8; S]) -> [u16; N] {
    let groups = levels.as_chunks::<D>().0;
    core::array::from_fn(|k| grid.find(&groups[k]).unwrap_or(0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn check<const D: usize>(grid: &Grid<D>, n_points: usize) {
        assert_eq!(grid.points.len(), n_points);
        assert!(grid.points.is_sorted_by(|a, b| a < b));
        for index in 0..n_points {
            let point = grid.point(index);
            assert!(point.iter().all(|&level| level < grid.levels));
            assert_eq!(grid.find(&point), Some(index));
        }
    }

    #[test]
    fn every_point_is_found_by_its_levels() {
        check(&IQ1, 2048);
        check(&IQ2_XXS, 256);
        check(&IQ2_XS, 512);
        check(&IQ2_S, 1024);
        check(&IQ3_XXS, 256);
        check(&IQ3_S, 512);
    }

    #[test]
    fn neighbours_come_by_distance_and_are_kept() {
        let levels = [7, 0, 7, 0];
        assert_eq!(IQ3_S.find(&levels), None);
        let distance = |index: &usize| {
            let point = IQ3_S.point(*index);
            (0..4).map(|k| u32::from(point[k].abs_diff(levels[k])).pow(2)).sum::<u32>()
        };
        let mut all: vec::Vec<usize> = (0..512).collect();
        all.sort_by_key(distance);
        for _ in 0..2 {
            let mut found = vec![];
            IQ3_S.each_neighbour(&levels, &mut |index| found.push(index));
            assert_eq!(found, all[..found.len()]);
            let mut distances: vec::Vec<u32> = found.iter().map(distance).collect();
            assert!(distance(&all[found.len()]) > distances[found.len() - 1]);
            distances.dedup();
            assert_eq!(distances.len(), IQ3_S.n_distances);
        }
    }
}
