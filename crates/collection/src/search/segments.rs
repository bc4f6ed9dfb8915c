//! Parallel search in the segments of a collection.

use super::{LocatedNeighbor, PartPlan, ResolvedSearch};
use crate::error::CollectionError;
use crate::parallel::{run_parallel, thread_count};
use crate::state::{Located, State};
use bathyal_index::{
    Effort, Index, IndexError, NO_ID, Reach, RowSet, SearchOptions, SearchResult, SearchTotals, WithinPlan,
};
use bathyal_tier::Control;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this number of queries on, the search of one segment keeps the device and all cores busy, so that
/// segments are searched one after the other.
const MANY_QUERIES: usize = 64;

/// A search in some segments.
pub(super) struct SegmentSearch<'a> {
    pub(super) state: &'a State,
    pub(super) resolved: &'a ResolvedSearch<'a>,
    pub(super) control: Control<'a>,
    /// Numbers of the segments, each with its rows that match the filter; at least one row.
    pub(super) parts: Vec<(u32, Arc<RowSet>)>,
}

/// Results of the search in segments.
#[derive(Default)]
pub(super) struct SegmentResults {
    pub(super) plans: Vec<PartPlan>,
    pub(super) totals: SearchTotals,
    pub(super) notes: Vec<String>,
    /// For each segment of which all rows were searched, how far the queries of its calibration are from
    /// their neighbours.
    pub(super) reach: BTreeMap<u32, Vec<Reach>>,
    /// A note if segments were not measured with the calibration that was asked for.
    pub(super) not_measured: Option<String>,
}

/// Answers of one segment.
struct SegmentAnswers {
    found: SearchResult,
    plan: PartPlan,
    reach: Vec<Reach>,
    measured: bool,
}

impl SegmentSearch<'_> {
    /// Searches each segment for the `k` nearest rows and adds them to `lists`. The alternative, to search
    /// for fewer first and for more if needed, was no less work (docs/decisions/collections.md).
    pub(super) fn search(
        &self,
        k: usize,
        lists: &mut [Vec<LocatedNeighbor>],
    ) -> Result<SegmentResults, CollectionError> {
        let many = self.resolved.queries.count() >= MANY_QUERIES;
        let reading_threads = match self.resolved.options.threads {
            _ if many => 1,
            threads if self.may_read_device() => self.state.part_threads(threads),
            threads => thread_count(threads),
        };
        let all =
            run_parallel(self.parts.len(), reading_threads, |at| self.search_segment(k, &self.parts[at]))?;
        let mut results = SegmentResults::default();
        let (searched, mut not_measured) = (all.len(), 0);
        for ((part, _), SegmentAnswers { found, plan, reach, measured }) in self.parts.iter().zip(all) {
            not_measured += usize::from(!measured);
            for (query, list) in lists.iter_mut().enumerate() {
                let range = query * found.k..(query + 1) * found.k;
                let rows = found.ids[range.clone()].iter().zip(&found.distances[range]);
                let rows = rows.filter(|(row, _)| **row != NO_ID);
                list.extend(rows.map(|(row, distance)| (*distance, Located { part: *part, row: *row })));
            }
            results.plans.push(plan);
            results.totals.merge(&found.totals);
            results.notes.extend(found.notes_for_merging().cloned());
            results.reach.insert(*part, reach);
        }
        results.not_measured = (not_measured > 0).then(|| {
            format!(
                "{not_measured} of {searched} segments could not be measured with the calibration {}; they \
                 were searched with the efforts of their builds; calibrate the collection again",
                self.resolved.calibrations.names()
            )
        });
        Ok(results)
    }

    /// Returns true if the search may read from a device.
    fn may_read_device(&self) -> bool {
        let in_memory =
            |part: u32| self.state.segments[part as usize].segment.is_in_memory(self.resolved.field);
        !self.parts.iter().all(|(part, _)| in_memory(*part))
    }

    fn search_segment(
        &self,
        k: usize,
        (part, set): &(u32, Arc<RowSet>),
    ) -> Result<SegmentAnswers, CollectionError> {
        let segment = &self.state.segments[*part as usize].segment;
        let index =
            segment.index_for_search(self.resolved.field).map_err(|error| self.with_memory_for_all(error))?;
        let effort = effort_in(&index, self.resolved.options.effort);
        // Without a calibration of the collection, no request looks for one in the segment.
        let (calibration, measured) = self.resolved.calibrations.in_segment(&segment.entry().name);
        let k = k.min(set.count() as usize);
        let options = SearchOptions { k, effort, calibration, ..self.resolved.options };
        let found = index.search_within(&self.resolved.queries, &options, set, self.control)?;
        let plan = PartPlan::for_segment(segment, &index, set, &found);
        // Distances to some of the rows are no measure.
        let all = found.within == Some(WithinPlan::All);
        let reach = if all { index.chosen_reach(calibration) } else { Vec::new() };
        let measured = measured || !matches!(effort, Effort::Recall(_)) || !index.has_efforts();
        Ok(SegmentAnswers { found, plan, reach, measured })
    }

    /// If the memory of one segment is too small: returns an error with the memory that is enough for all
    /// segments.
    fn with_memory_for_all(&self, error: CollectionError) -> CollectionError {
        let CollectionError::Index(IndexError::Memory { .. }) = &error else { return error };
        let state = self.state;
        let least = state.segments.iter().map(|one| one.segment.least_budget(self.resolved.field));
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

/// Returns the effort for the index of one segment. A small segment does not support every effort. It then
/// compares all its vectors. If a ratio is asked for and the segment has codes, it makes its largest effort.
pub(super) fn effort_in(index: &Index, effort: Effort) -> Effort {
    match effort {
        supported if index.supports(supported) => supported,
        Effort::SearchList(_) => Effort::Recall(f32::MIN_POSITIVE),
        Effort::Recall(_) | Effort::Ratio(_) | Effort::Probability { .. } => Effort::Recall(1.0),
    }
}
