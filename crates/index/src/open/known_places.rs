//! The positions that an open index has found: those of vectors, and those of the codes of row sets.

use crate::query::RowSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The most row sets whose places are kept: several filters may be used in turn.
pub(super) const MOST_SETS: usize = 8;

/// The positions of vectors and of the codes of row sets that an open index has found.
#[derive(Default)]
pub(super) struct KnownPlaces {
    /// The unit of each vector, by id, once a request needed it: in an index whose vectors are not in the
    /// order of their ids.
    located: OnceLock<Vec<u32>>,
    /// Ids by place, once they were read.
    pub(super) ids: OnceLock<Vec<u32>>,
    /// The sets that were used last, the latest at the end, each with its places. A set that has no other
    /// owner is removed.
    placed: Mutex<Vec<(Weak<RowSet>, Arc<RowSet>)>>,
}

impl KnownPlaces {
    /// Returns the bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let bytes =
            |numbers: &OnceLock<Vec<u32>>| numbers.get().map_or(0, |numbers| 4 * numbers.len() as u64);
        bytes(&self.located)
            + bytes(&self.ids)
            + self.placed().iter().map(|(_, placed)| placed.bytes()).sum::<u64>()
    }

    /// Returns the unit of each vector, by id, if the table is loaded.
    pub(super) fn located(&self) -> Option<&[u32]> {
        self.located.get().map(Vec::as_slice)
    }

    /// Sets the unit of each vector, by id.
    pub(super) fn set_located(&self, units: Vec<u32>) {
        // If another thread has set the table meanwhile, it has the same content.
        let _ = self.located.set(units);
    }

    fn placed(&self) -> MutexGuard<'_, Vec<(Weak<RowSet>, Arc<RowSet>)>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the places of a set, if they are known.
    pub(super) fn find(&self, set: &Arc<RowSet>) -> Option<Arc<RowSet>> {
        let mut placed = self.placed();
        placed.retain(|(known, _)| known.strong_count() > 0);
        let at = placed.iter().position(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(set)))?;
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
    fn the_sets_used_last_are_kept_while_they_have_another_owner() {
        let known = KnownPlaces::default();
        let set = |id: u32| Arc::new(RowSet::from_ids(100, std::iter::once(id)));
        let sets: Vec<Arc<RowSet>> = (0..10).map(set).collect();
        for (at, set_at) in sets.iter().enumerate() {
            assert!(known.find(set_at).is_none(), "{at}");
            known.remember(set_at, &set(90 + at as u32));
            assert!(known.find(&sets[0]).is_some(), "a set that is used stays");
        }
        let kept: Vec<usize> = (0..10).filter(|at| known.find(&sets[*at]).is_some()).collect();
        assert_eq!(kept, [0, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(known.find(&sets[9]), Some(set(99)));
        assert!(known.find(&set(9)).is_none(), "an equal set is a different one");
        assert_eq!(known.bytes(), 8 * RowSet::all(100).bytes());
        drop(sets);
        assert!(known.find(&set(3)).is_none());
        assert_eq!(known.bytes(), 0);
    }
}
