//! Where each vector lies in a file that keeps near vectors together.

use crate::error::IndexError;
use crate::partition::placement::{Placement, Points};
use bathyal_vectors::progress::Progress;

/// A permutation of all vectors, both ways.
pub(crate) struct Places {
    /// The vectors' ids by place.
    pub(crate) ids: Vec<u32>,
    /// The places of the vectors by id.
    places: Vec<u32>,
}

impl Places {
    /// Bytes that the places of `count` vectors take.
    pub(crate) fn planned_bytes(count: u64) -> u64 {
        8 * count
    }

    /// Places `count` vectors so that near ones lie together, `unit` of them as close as can be.
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
        Ok(Places::of(ids))
    }

    /// The places of vectors whose ids are given by place, each once.
    pub(crate) fn of(ids: Vec<u32>) -> Places {
        let mut places = vec![0; ids.len()];
        for (place, id) in ids.iter().enumerate() {
            places[*id as usize] = place as u32;
        }
        Places { ids, places }
    }

    /// Where vector `id` lies.
    #[inline]
    pub(crate) fn place_of(&self, id: u32) -> u32 {
        self.places[id as usize]
    }
}
