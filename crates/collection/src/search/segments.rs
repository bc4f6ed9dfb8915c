//! Search in the segments of a collection, all at the same time.

use super::{Asked, Near, PartPlan};
use crate::error::CollectionError;
use crate::state::{Located, State};
use crate::together::{thread_count, together};
use bathyal_index::{Effort, Index, IndexError, NO_ID, RowSet, SearchOptions, SearchResult, SearchTotals};
use bathyal_tier::Control;
use std::sync::Arc;

/// Queries from which on the searches of one segment keep the device and the cores busy by themselves.
const MANY_QUERIES: usize = 64;

/// The segments that are searched.
pub(super) struct InSegments<'a> {
    pub(super) state: &'a State,
    pub(super) asked: &'a Asked<'a>,
    pub(super) control: Control<'a>,
    /// Their numbers, and the rows of each that may be found: one at least.
    pub(super) parts: Vec<(u32, Arc<RowSet>)>,
}

/// How segments were searched.
#[derive(Default)]
pub(super) struct OfSegments {
    pub(super) plans: Vec<PartPlan>,
    pub(super) totals: SearchTotals,
    pub(super) notes: Vec<String>,
}

impl InSegments<'_> {
    /// Searches each for the `k` nearest, which are put to those of `lists`. Asking each for fewer at first, and again where there may
    /// be more, was no less work (docs/decisions/collections.md).
    pub(super) fn search(&self, k: usize, lists: &mut [Vec<Near>]) -> Result<OfSegments, CollectionError> {
        let many = self.asked.queries.count() >= MANY_QUERIES;
        let callers = match self.asked.options.threads {
            _ if many => 1,
            threads if self.waits() => self.state.callers(threads),
            threads => thread_count(threads),
        };
        let all = together(self.parts.len(), callers, |at| self.ask(k, &self.parts[at]))?;
        let mut told = OfSegments::default();
        for ((part, _), (found, plan)) in self.parts.iter().zip(all) {
            for (query, list) in lists.iter_mut().enumerate() {
                let own = query * found.k..(query + 1) * found.k;
                let rows = found.ids[own.clone()].iter().zip(&found.distances[own]);
                let rows = rows.filter(|(row, _)| **row != NO_ID);
                list.extend(rows.map(|(row, distance)| (*distance, Located { part: *part, row: *row })));
            }
            told.plans.push(plan);
            told.totals.merge(&found.totals);
            told.notes.extend(found.notes);
        }
        Ok(told)
    }

    /// Whether something is read from a device, as far as it is known before.
    fn waits(&self) -> bool {
        let in_memory = |part: u32| self.state.segments[part as usize].segment.is_in_memory(self.asked.field);
        !self.parts.iter().all(|(part, _)| in_memory(*part))
    }

    fn ask(
        &self,
        k: usize,
        (part, set): &(u32, Arc<RowSet>),
    ) -> Result<(SearchResult, PartPlan), CollectionError> {
        let segment = &self.state.segments[*part as usize].segment;
        let index = segment.searched(self.asked.field).map_err(|error| self.explained(error))?;
        let effort = effort_in(&index, self.asked.options.effort);
        let options = SearchOptions { k: k.min(set.count() as usize), effort, ..self.asked.options };
        let found = index.search_within(&self.asked.queries, &options, set, self.control)?;
        let plan = PartPlan::of_segment(segment, &index, set, &found);
        Ok((found, plan))
    }

    /// Where the memory of all segments is too little for one of them: how much would be enough for all.
    fn explained(&self, error: CollectionError) -> CollectionError {
        let CollectionError::Index(IndexError::Memory { .. }) = &error else { return error };
        let state = self.state;
        let least = state.segments.iter().map(|one| one.segment.least_budget(self.asked.field));
        let Ok(needed) = least.collect::<Result<Vec<u64>, _>>() else { return error };
        let needed = needed.into_iter().max().unwrap_or(0);
        let Some(given) = state.segments.first().and_then(|first| first.segment.budget()) else {
            return error;
        };
        if needed <= given {
            return error;
        }
        let advice = "allow at least that much (memory), or merge segments (compact)".into();
        CollectionError::Memory { what: "searching all segments of the collection", needed, given, advice }
    }
}

/// The effort of a search in the index of one segment. A small segment does not know every effort. It then compares all its
/// vectors, or makes its largest effort if a ratio is asked for and it has codes.
fn effort_in(index: &Index, effort: Effort) -> Effort {
    match effort {
        known if index.supports(known) => known,
        Effort::SearchList(_) => Effort::Recall(f32::MIN_POSITIVE),
        Effort::Recall(_) | Effort::Ratio(_) => Effort::Recall(1.0),
    }
}
