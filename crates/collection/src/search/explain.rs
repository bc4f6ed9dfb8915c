//! Explains how each part of a collection was searched.

use super::segments::effort_in;
use super::{ResolvedSearch, SearchRequest};
use crate::error::CollectionError;
use crate::memtable::MemTable;
use crate::segment::Segment;
use crate::state::{SegmentState, State};
use bathyal_index::{
    Explanation, Index, PhaseTime, RecallCurve, RowSet, SearchOptions, SearchResult, WithinPlan,
};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::sync::Arc;
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
    /// How it was searched.
    #[serde(flatten)]
    pub how: SegmentExplanation,
}

/// How one segment was searched: in JSON a member beside those of the segment.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentExplanation {
    /// The explanation by its index. Ids and distances are left out: they are those of single segments.
    Explanation(Box<Explanation>),
    /// The search among the rows that match a filter, of which no prediction is made.
    Filtered(FilteredSegment),
}

/// The search of one query among the rows of a segment that match a filter.
#[derive(Debug, Clone, Serialize)]
pub struct FilteredSegment {
    /// The plan.
    pub plan: PartPlan,
    /// The kind of tier that was read.
    pub tier: String,
    /// Dependent rounds of reads.
    pub hops: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Codes scored.
    pub code_distances: u64,
    /// Full vectors scored.
    pub full_distances: u64,
    /// Nanoseconds from start to answer.
    pub total_ns: u64,
    /// The time by phase; empty if all rows that match were compared.
    pub phases: Vec<PhaseTime>,
    /// Notes about the answer.
    pub notes: Vec<String>,
}

/// The search of one query in every part of a collection, one after the other.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedSearch {
    /// The segments; with a filter, those of which rows match.
    pub segments: Vec<ExplainedSegment>,
    /// Live rows in memory that match, which are compared one by one.
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

/// Answers a query twice among the rows of a set, and reports the second time.
fn filtered(
    (segment, index): (&Segment, &Index),
    queries: &VectorFile,
    options: &SearchOptions,
    set: &Arc<RowSet>,
    control: Control<'_>,
) -> Result<FilteredSegment, CollectionError> {
    let k = options.k.min(set.count() as usize);
    let options = SearchOptions { k, timed: true, threads: 1, ..*options };
    index.search_within(queries, &options, set, control)?;
    let started = Instant::now();
    let found = index.search_within(queries, &options, set, control)?;
    let total_ns = started.elapsed().as_nanos() as u64;
    Ok(FilteredSegment {
        plan: PartPlan::for_segment(segment, index, set, &found),
        tier: index.tier().profile().kind.clone(),
        hops: found.totals.hops,
        reads: found.totals.reads,
        bytes: found.totals.bytes,
        code_distances: found.totals.code_distances,
        full_distances: found.totals.full_distances,
        total_ns,
        phases: found.phases,
        notes: found.notes,
    })
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
        let resolved = ResolvedSearch::new(self, queries, request)?;
        let sets = self.matching(resolved.filter.as_ref(), &control)?;
        let mut segments = Vec::with_capacity(self.segments.len());
        // A segment of which no row matches is not searched.
        let some = |set: &Arc<RowSet>| resolved.filter.is_none() || set.count() > 0;
        for (state, set) in self.segments.iter().zip(&sets).filter(|(_, set)| some(set)) {
            let (segment, name) = (&state.segment, &state.segment.entry().name);
            let index = segment.index_for_search(resolved.field)?;
            let (calibration, _) = resolved.calibrations.in_segment(name);
            let (k, effort) = (request.k.min(index.len()), effort_in(&index, request.effort));
            let options = SearchOptions { k, effort, calibration, ..resolved.options };
            let how = if resolved.filter.is_some() {
                let filtered = filtered((segment, &index), &resolved.queries, &options, set, control)?;
                SegmentExplanation::Filtered(filtered)
            } else {
                let explanation = index.explain(&resolved.queries, 0, &options, control)?;
                let explanation = Explanation { ids: Vec::new(), distances: Vec::new(), ..explanation };
                SegmentExplanation::Explanation(Box::new(explanation))
            };
            segments.push(ExplainedSegment { part: name.clone(), rows: segment.rows(), how });
        }
        let started = Instant::now();
        let (mut lists, mut memory_rows) = ([Vec::new()], 0);
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
