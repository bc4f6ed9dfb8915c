//! How each part of a collection was searched.

use crate::memory::Memory;
use crate::segment::Segment;
use bathyal_index::{Index, RowSet, SearchResult, WithinPlan};
use serde::Serialize;

/// How a part was searched.
#[derive(Debug, Clone, Serialize)]
pub struct PartPlan {
    /// The segment's name, or `memory`.
    pub part: String,
    /// The family of its index, or `memory`.
    pub family: String,
    /// Rows of the part.
    pub rows: u32,
    /// Those of them that are there and match.
    pub matches: u32,
    /// What was done.
    pub plan: WithinPlan,
    /// Why.
    pub reason: String,
    /// Candidates of the search.
    pub search_list: u32,
}

impl PartPlan {
    pub(super) fn of_segment(
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

    pub(super) fn of_memory(memory: &Memory, set: &RowSet) -> PartPlan {
        PartPlan {
            part: "memory".into(),
            family: "memory".into(),
            rows: memory.rows(),
            matches: set.count(),
            plan: WithinPlan::Scan,
            reason: "rows in memory are compared one by one".into(),
            search_list: 0,
        }
    }
}
