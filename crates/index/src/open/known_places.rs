//! What an open index has found out of where vectors lie, and the codes of sets that searches were told to keep to.

use crate::query::RowSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Sets that are remembered: those of several filters that are asked for in turn.
pub(super) const MOST_SETS: usize = 8;

/// What an open index knows of where vectors and the codes of sets lie.
#[derive(Default)]
pub(super) struct KnownPlaces {
    /// The units of vectors, by id, once somebody has asked for some that do not lie in order.
    pub(super) located: OnceLock<Vec<u32>>,
    /// Ids by place, once they were read.
    pub(super) ids: OnceLock<Vec<u32>>,
    /// The last sets, the latest at the end, by place. A set that nobody else holds is forgotten.
    placed: Mutex<Vec<(Weak<RowSet>, Arc<RowSet>)>>,
}

impl KnownPlaces {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let bytes =
            |numbers: &OnceLock<Vec<u32>>| numbers.get().map_or(0, |numbers| 4 * numbers.len() as u64);
        bytes(&self.located)
            + bytes(&self.ids)
            + self.placed().iter().map(|(_, placed)| placed.bytes()).sum::<u64>()
    }

    fn placed(&self) -> MutexGuard<'_, Vec<(Weak<RowSet>, Arc<RowSet>)>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of a set that was asked for before.
    pub(super) fn find(&self, set: &Arc<RowSet>) -> Option<Arc<RowSet>> {
        let mut placed = self.placed();
        placed.retain(|(of, _)| of.strong_count() > 0);
        let at = placed.iter().position(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(set)))?;
        placed[at..].rotate_left(1);
        placed.last().map(|(_, places)| places.clone())
    }

    pub(super) fn remember(&self, set: &Arc<RowSet>, places: &Arc<RowSet>) {
        let mut placed = self.placed();
        if placed.len() >= MOST_SETS {
            placed.remove(0);
        }
        placed.push((Arc::downgrade(set), places.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sets_are_remembered_for_as_long_as_somebody_has_them() {
        let known = KnownPlaces::default();
        let set = |id: u32| Arc::new(RowSet::from_ids(100, std::iter::once(id)));
        let sets: Vec<Arc<RowSet>> = (0..10).map(set).collect();
        for (at, of) in sets.iter().enumerate() {
            assert!(known.find(of).is_none(), "{at}");
            known.remember(of, &set(90 + at as u32));
            assert!(known.find(&sets[0]).is_some(), "what is asked for stays");
        }
        let held: Vec<usize> = (0..10).filter(|at| known.find(&sets[*at]).is_some()).collect();
        assert_eq!(held, [0, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(known.find(&sets[9]), Some(set(99)));
        assert!(known.find(&set(9)).is_none(), "an equal set is another");
        assert_eq!(known.bytes(), 8 * RowSet::all(100).bytes());
        drop(sets);
        assert!(known.find(&set(3)).is_none());
        assert_eq!(known.bytes(), 0);
    }
}
