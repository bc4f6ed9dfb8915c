//! The places of the codes of a row set, in families whose codes are not in the order of the ids.

use super::Index;
use super::control::check_control;
use super::known_places::MOST_SETS;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::groups::NO_ID;
use crate::query::RowSet;
use bathyal_tier::Control;
use std::sync::Arc;

/// The places of sets, and the table of the unit of each vector, may each take this fraction (1/4) of the
/// memory that is left beside one search.
const SETS_SHARE: u64 = 4;
/// Candidates of that search: many more than most searches have.
const LONG_LIST: usize = 1000;
/// The name of the table of ids by place, in the error of a failed allocation.
const IDS: &str = "the ids of the vectors by place";

impl Index {
    /// Returns the number of places of codes; `None` if each code's place is its id.
    fn code_places(&self) -> Option<u32> {
        let rows = self.loaded.opened().rows();
        rows.first_place(rows.units()).map(|end| end.max(self.stored.vectors() as u32))
    }

    /// Returns true if finding the codes of sets may require reading the whole file of the tier once.
    pub(super) fn reads_places(&self) -> bool {
        self.code_places().is_some() && self.loaded.opened().places().is_none()
    }

    /// Returns true if the memory budget has space for the places of the codes of sets.
    pub(super) fn may_place(&self) -> bool {
        let Some(places) = self.code_places() else { return true };
        let known = self.loaded.opened().places().is_some();
        let ids = if known { 0 } else { u64::from(places) * size_of::<u32>() as u64 };
        self.can_spare(ids + MOST_SETS as u64 * u64::from(places / 8))
    }

    /// Returns true if the unit of each vector is known, or a scan may keep it.
    pub(super) fn may_keep_located(&self) -> bool {
        let bytes = self.stored.vectors() * size_of::<u32>() as u64;
        self.known_places.located().is_some() || self.can_spare(bytes)
    }

    /// Returns true if so many bytes may be taken from the memory for searches.
    fn can_spare(&self, bytes: u64) -> bool {
        let one_search = self.plan.thread_bytes() + self.stored.family().query_bytes(LONG_LIST);
        self.plan.can_spare(bytes, one_search, SETS_SHARE)
    }

    /// Returns the places of the codes of a set; `None` if these are the ids. The first call may read the
    /// whole file of the tier, if the ids by place are neither in memory nor in a file of their own.
    pub(super) fn placed(
        &self,
        set: &Arc<RowSet>,
        control: Control<'_>,
    ) -> Result<Option<Arc<RowSet>>, IndexError> {
        let Some(places) = self.code_places() else { return Ok(None) };
        if let Some(known) = self.known_places.find(set) {
            return Ok(Some(known));
        }
        let opened = self.loaded.opened();
        let of_set = match opened.places() {
            Some(all) => RowSet::from_ids(places, all.filter(|(_, id)| set.has(*id)).map(|(place, _)| place)),
            None => {
                let all = (0..).zip(self.ids_by_place(places, control)?);
                RowSet::from_ids(places, all.filter(|(_, id)| set.has(**id)).map(|(place, _)| place))
            }
        };
        if of_set.count() != set.count() {
            let reason = format!("only {} of the {} rows of a set were found", of_set.count(), set.count());
            return Err(opened.rows().set().damaged("its vectors", reason));
        }
        let of_set = Arc::new(of_set);
        self.known_places.remember(set, &of_set);
        Ok(Some(of_set))
    }

    fn ids_by_place(&self, places: u32, control: Control<'_>) -> Result<&[u32], IndexError> {
        if let Some(known) = self.known_places.ids.get() {
            return Ok(known);
        }
        let opened = self.loaded.opened();
        if let Some(ids) = opened.read_places(&|| check_control(control))? {
            return Ok(self.known_places.ids.get_or_init(|| ids));
        }
        let (rows, mut ids) = (opened.rows(), try_with_capacity(IDS, places as usize)?);
        ids.resize(places as usize, NO_ID);
        let (mut current, mut next) = (None, 0);
        self.walk(&*rows, 0..rows.units(), control, |unit, id, _| {
            if current != Some(unit) {
                (current, next) = (Some(unit), rows.first_place(unit).unwrap_or(places));
            }
            if let Some(at) = ids.get_mut(next as usize) {
                *at = id;
            }
            next = next.saturating_add(1);
            Ok(())
        })?;
        // If another thread has set them meanwhile, it has found the same.
        Ok(self.known_places.ids.get_or_init(|| ids))
    }
}
