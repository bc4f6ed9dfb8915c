//! Explains how each part of a collection was searched.

use super::segments::effort_in;
use super::{ResolvedSearch, SearchRequest};
use crate::error::CollectionError;
use crate::memtable::MemTable;
use crate::segment::Segment;
use crate::state::{SegmentState, State};
use bathyal_index::{Explanation, Index, RecallCurve, RowSet, SearchOptions, SearchResult, WithinPlan};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::time::Instant;

/// Explanation of the search in one part.
#[derive(Debug, Clone, Serialize)]
pub struct PartPlan {
    /// The segment's name, or `memtable`.
    pub part: String,
    /// The family of its index, or `memtable`.
    pub family: String,
    /// Rows of the part, deleted or not.
    pub rows: u32,
    /// Live rows that match the filter.
    pub matches: u32,
    /// The plan that was used.
    pub plan: WithinPlan,
    /// The reason for it.
    pub reason: String,
    /// Length of the candidate list.
    pub search_list: u32,
}

impl PartPlan {
    pub(super) fn for_segment(
        segment: &Segment,
        index: &Index,
        set: &RowSet,
        found: &SearchResult,
    ) -> PartPlan {
        PartPlan {
            part: segment.entry().name.clone(),
            family: index.manifest().family.clone(),
            rows: set.rows(),
            matches: set.count(),
            plan: found.within.unwrap_or(WithinPlan::All),
            reason: found.within_reason.clone().unwrap_or_default(),
            search_list: found.search_list,
        }
    }

    pub(super) fn for_memtable(memtable: &MemTable, set: &RowSet) -> PartPlan {
        PartPlan {
            part: "memory".into(),
            family: "memory".into(),
            rows: memtable.rows(),
            matches: set.count(),
            plan: WithinPlan::Scan,
            reason: "rows in memory are compared one by one".into(),
            search_list: 0,
        }
    }
}

/// The search of one query in one segment, run alone and timed.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedSegment {
    /// The segment's name.
    pub part: String,
    /// Rows of the segment, deleted or not.
    pub rows: u32,
    /// The explanation by its index. Ids and distances are left out: they are those of single segments.
    pub explanation: Explanation,
}

/// The search of one query in every part of a collection, one after the other.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedSearch {
    /// The segments.
    pub segments: Vec<ExplainedSegment>,
    /// Live rows in memory, which are compared one by one.
    pub memory_rows: u64,
    /// Nanoseconds of comparing them.
    pub memory_ns: u64,
}

/// Recall against effort in one segment.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentCurves {
    /// The segment's name.
    pub part: String,
    /// The family of its index.
    pub family: String,
    /// Its rows, deleted or not.
    pub rows: u32,
    /// A curve for each calibration, that of the build first. A curve without points means that all vectors
    /// are compared.
    pub curves: Vec<RecallCurve>,
}

impl State {
    /// Answers the first of `queries` in each part alone.
    ///
    /// # Errors
    /// As [`Collection::explain`](crate::Collection::explain).
    pub(crate) fn explain(
        &self,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<ExplainedSearch, CollectionError> {
        if request.filter.is_some() {
            let what = "times are measured without a filter; leave it out, or ask the search for its plans";
            return Err(CollectionError::Parameter(what.into()));
        }
        let resolved = ResolvedSearch::new(self, queries, request)?;
        let mut segments = Vec::with_capacity(self.segments.len());
        for state in &self.segments {
            let (segment, name) = (&state.segment, &state.segment.entry().name);
            let index = segment.index_for_search(resolved.field)?;
            let (calibration, _) = resolved.calibrations.in_segment(name);
            let (k, effort) = (request.k.min(index.len()), effort_in(&index, request.effort));
            let options = SearchOptions { k, effort, calibration, ..resolved.options };
            let explanation = index.explain(&resolved.queries, 0, &options, control)?;
            let explanation = Explanation { ids: Vec::new(), distances: Vec::new(), ..explanation };
            segments.push(ExplainedSegment { part: name.clone(), rows: segment.rows(), explanation });
        }
        let started = Instant::now();
        let (sets, mut lists, mut memory_rows) = (self.matching(None, &control)?, [Vec::new()], 0);
        for (part, set) in (0_u32..).zip(sets).filter(|(_, set)| set.count() > 0) {
            let Some(memtable) = self.memtable_of(part) else { continue };
            memory_rows += u64::from(set.count());
            let k = request.k;
            self.search_memtable((part, memtable), &resolved, k, &set, control, &mut lists)?;
        }
        Ok(ExplainedSearch { segments, memory_rows, memory_ns: started.elapsed().as_nanos() as u64 })
    }

    /// Returns recall against effort in each segment.
    ///
    /// # Errors
    /// As [`Collection::recall_curves`](crate::Collection::recall_curves).
    pub(crate) fn recall_curves(
        &self,
        field: Option<&str>,
        k: usize,
    ) -> Result<Vec<SegmentCurves>, CollectionError> {
        let field = self.schema().field(field)?;
        let of_segment = |state: &SegmentState| {
            let (segment, index) = (&state.segment, state.segment.index(field)?);
            Ok(SegmentCurves {
                part: segment.entry().name.clone(),
                family: index.manifest().family.clone(),
                rows: segment.rows(),
                curves: index.recall_curves(k)?,
            })
        };
        self.segments.iter().map(of_segment).collect()
    }
}
