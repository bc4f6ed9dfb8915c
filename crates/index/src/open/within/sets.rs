//! Where the codes of a set's vectors lie, of families that keep codes in another order than that of the ids.

use crate::error::IndexError;
use crate::format::groups::NO_ID;
use crate::open::Index;
use crate::query::RowSet;
use crate::room::room;
use bathyal_tier::Control;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// Sets that are remembered: those of several filters that are asked for in turn.
const MOST_SETS: usize = 8;
/// The part of the memory for searches that all this may take, and what is noted of where vectors lie, beside one search.
const SETS_SHARE: u64 = 4;
/// Candidates of that search, many times what most take.
const LONG_LIST: usize = 1000;
/// What is said of all this where there is no memory for it.
const IDS: &str = "whose vector lies where";

/// What an open index knows of the sets that searches were told to keep to.
#[derive(Default)]
pub(in crate::open) struct KnownSets {
    /// Ids by place, once they were read.
    ids: OnceLock<Vec<u32>>,
    /// The last sets, the latest at the end, by place. A set that nobody else holds is forgotten.
    placed: Mutex<Vec<(Weak<RowSet>, Arc<RowSet>)>>,
}

impl KnownSets {
    /// Bytes of memory.
    pub(in crate::open) fn bytes(&self) -> u64 {
        let ids = self.ids.get().map_or(0, |ids| (ids.len() * size_of::<u32>()) as u64);
        ids + self.placed().iter().map(|(_, placed)| placed.bytes()).sum::<u64>()
    }

    fn placed(&self) -> MutexGuard<'_, Vec<(Weak<RowSet>, Arc<RowSet>)>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The places of a set that was asked for before.
    fn find(&self, set: &Arc<RowSet>) -> Option<Arc<RowSet>> {
        let mut placed = self.placed();
        placed.retain(|(of, _)| of.strong_count() > 0);
        let at = placed.iter().position(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(set)))?;
        placed[at..].rotate_left(1);
        placed.last().map(|(_, places)| places.clone())
    }

    fn remember(&self, set: &Arc<RowSet>, places: &Arc<RowSet>) {
        let mut placed = self.placed();
        if placed.len() >= MOST_SETS {
            placed.remove(0);
        }
        placed.push((Arc::downgrade(set), places.clone()));
    }
}

impl Index {
    /// Places of codes, where these are not the ids.
    fn code_places(&self) -> Option<u32> {
        let rows = self.opened.rows();
        rows.first_place(rows.units()).map(|end| end.max(self.manifest.vectors as u32))
    }

    /// Whether all that searches read may have to be read once to know where the codes of sets lie.
    pub(super) fn reads_places(&self) -> bool {
        self.code_places().is_some() && self.opened.places().is_none()
    }

    /// Whether a budget of memory leaves room for knowing where the codes of sets lie.
    pub(super) fn may_place(&self) -> bool {
        let Some(places) = self.code_places() else { return true };
        let ids =
            if self.opened.places().is_some() { 0 } else { u64::from(places) * size_of::<u32>() as u64 };
        self.spares(ids + MOST_SETS as u64 * u64::from(places / 8))
    }

    /// Whether where each vector lies is noted, or will be by a scan.
    pub(super) fn may_note(&self) -> bool {
        self.located().is_some() || self.spares(self.manifest.vectors * size_of::<u32>() as u64)
    }

    /// Whether so many bytes may be taken from what searches have.
    fn spares(&self, bytes: u64) -> bool {
        let one = self.thread_bytes + self.stored.query_bytes(LONG_LIST);
        self.split.budget.is_none() || bytes <= self.split.searches.saturating_sub(one) / SETS_SHARE
    }

    /// The places of the codes of a set; `None` where these are the ids. The first time all that searches read is read once, unless
    /// it is in memory who lies where.
    pub(super) fn placed(
        &self,
        set: &Arc<RowSet>,
        control: Control<'_>,
    ) -> Result<Option<Arc<RowSet>>, IndexError> {
        let Some(places) = self.code_places() else { return Ok(None) };
        if let Some(known) = self.sets.find(set) {
            return Ok(Some(known));
        }
        let of_set = match self.opened.places() {
            Some(all) => RowSet::from_ids(places, all.filter(|(_, id)| set.has(*id)).map(|(place, _)| place)),
            None => {
                let all = (0..).zip(self.ids_by_place(places, control)?);
                RowSet::from_ids(places, all.filter(|(_, id)| set.has(**id)).map(|(place, _)| place))
            }
        };
        if of_set.count() != set.count() {
            let reason = format!("{} of the {} rows of a set are there", of_set.count(), set.count());
            return Err(self.opened.rows().set().damaged("its vectors", reason));
        }
        let of_set = Arc::new(of_set);
        self.sets.remember(set, &of_set);
        Ok(Some(of_set))
    }

    fn ids_by_place(&self, places: u32, control: Control<'_>) -> Result<&[u32], IndexError> {
        if let Some(known) = self.sets.ids.get() {
            return Ok(known);
        }
        let go_on = || {
            let cancelled = control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
            let late = control.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            match (cancelled, late) {
                (true, _) => Err(IndexError::Cancelled),
                (false, true) => Err(IndexError::Deadline),
                (false, false) => Ok(()),
            }
        };
        if let Some(ids) = self.opened.read_places(&go_on)? {
            return Ok(self.sets.ids.get_or_init(|| ids));
        }
        let (rows, mut ids) = (self.opened.rows(), room(IDS, places as usize)?);
        ids.resize(places as usize, NO_ID);
        let (mut of, mut next) = (None, 0);
        self.walk(&*rows, 0..rows.units(), control, |unit, id, _| {
            if of != Some(unit) {
                (of, next) = (Some(unit), rows.first_place(unit).unwrap_or(places));
            }
            if let Some(at) = ids.get_mut(next as usize) {
                *at = id;
            }
            next = next.saturating_add(1);
            Ok(())
        })?;
        // Whoever else has found them meanwhile has found the same.
        Ok(self.sets.ids.get_or_init(|| ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sets_are_remembered_for_as_long_as_somebody_has_them() {
        let known = KnownSets::default();
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
