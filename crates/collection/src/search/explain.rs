//! Explains how each part of a collection was searched.

use crate::memtable::MemTable;
use crate::segment::Segment;
use bathyal_index::{Index, RowSet, SearchResult, WithinPlan};
use serde::Serialize;

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
