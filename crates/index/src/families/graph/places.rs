//! The place of each vector in a file that keeps near vectors together.

use crate::error::IndexError;
use crate::partition::placement::{Placement, Points};
use bathyal_vectors::progress::Progress;

/// A permutation of all vectors, in both directions.
pub(crate) struct Places {
    /// The id at each place.
    pub(crate) ids: Vec<u32>,
    /// The place of each id.
    places: Vec<u32>,
}

impl Places {
    /// Returns the bytes that the places of `count` vectors take.
    pub(crate) fn planned_bytes(count: u64) -> u64 {
        8 * count
    }

    /// Orders `count` vectors so that near ones are beside each other, in units of `unit` vectors (see
    /// [`Placement::units`]).
    pub(crate) fn new(
        points: &impl Points,
        count: usize,
        unit: usize,
        seed: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Places, IndexError> {
        progress.stage("placing vectors", count as u64);
        let mut ids: Vec<u32> = (0..count as u32).collect();
        let placement = Placement { units: vec![unit], exchanged: None, threads, seed, card: None };
        placement.order(points, &mut ids, progress)?;
        Ok(Places::from_ids(ids))
    }

    /// Creates the permutation with `ids[place]` at each place. Each id below `ids.len()` occurs once.
    pub(crate) fn from_ids(ids: Vec<u32>) -> Places {
        let mut places = vec![0; ids.len()];
        for (place, id) in ids.iter().enumerate() {
            places[*id as usize] = place as u32;
        }
        Places { ids, places }
    }

    /// Returns the place of vector `id`.
    #[inline]
    pub(crate) fn place_of(&self, id: u32) -> u32 {
        self.places[id as usize]
    }
}
