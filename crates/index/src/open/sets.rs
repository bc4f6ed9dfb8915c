//! Where the codes of a set's vectors lie, of families that keep codes in another order than that of the ids.

use super::Index;
use super::known_places::MOST_SETS;
use super::vectors::go_on;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::groups::NO_ID;
use crate::query::RowSet;
use bathyal_tier::Control;
use std::sync::Arc;

/// The part of the memory for searches that all this may take, and what is noted of where vectors lie, beside one search.
const SETS_SHARE: u64 = 4;
/// Candidates of that search, many times what most take.
const LONG_LIST: usize = 1000;
/// What is said of all this where there is no memory for it.
const IDS: &str = "whose vector lies where";

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
        if let Some(known) = self.known_places.find(set) {
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
        self.known_places.remember(set, &of_set);
        Ok(Some(of_set))
    }

    fn ids_by_place(&self, places: u32, control: Control<'_>) -> Result<&[u32], IndexError> {
        if let Some(known) = self.known_places.ids.get() {
            return Ok(known);
        }
        if let Some(ids) = self.opened.read_places(&|| go_on(control))? {
            return Ok(self.known_places.ids.get_or_init(|| ids));
        }
        let (rows, mut ids) = (self.opened.rows(), try_with_capacity(IDS, places as usize)?);
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
        Ok(self.known_places.ids.get_or_init(|| ids))
    }
}
