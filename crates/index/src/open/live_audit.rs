//! The audit of live searches of an index: some queries are answered exactly, in the background.

use super::pool::RawQueries;
use super::scan::SetScan;
use super::{Effort, Index, SearchOptions, SearchRequest, SearchResult};
use crate::audit::{AskedRecall, Audited, Auditor, Pace, Verdict, recall_of_answer};
use crate::error::IndexError;
use crate::query::RowSet;
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A query with its answer.
pub(super) struct LiveAnswer {
    query: Vec<u8>,
    k: usize,
    /// The neighbours that the search found, nearest first.
    found: Vec<(u32, f32)>,
    /// The rows that were searched; `None` for all.
    within: Option<Arc<RowSet>>,
}

/// The audit of an index.
pub(super) type LiveAudit = Auditor<LiveAnswer>;

/// A search with what an audit changes about it.
pub(super) struct Watched {
    /// The search to make.
    pub(super) request: SearchRequest,
    /// A note for the answers.
    pub(super) note: Option<String>,
    asked: AskedRecall,
}

/// Queries of a search that are audited after it.
#[derive(Default)]
pub(super) struct ChosenQueries {
    audit: Weak<LiveAudit>,
    asked: AskedRecall,
    /// Their numbers among those of the search, and their bytes.
    queries: Vec<(usize, Vec<u8>)>,
}

impl ChosenQueries {
    /// Hands the queries over to the audit with their answers, which were found among the rows `within`.
    pub(super) fn add(self, result: &SearchResult, within: Option<&Arc<RowSet>>) {
        let Some(audit) = self.audit.upgrade() else { return };
        for (number, query) in self.queries {
            audit.add(self.asked, || {
                let found = result.answer(number);
                let set = within.map_or(0, |set| set.bytes());
                let bytes = (query.len() + size_of_val(&found[..])) as u64 + set;
                (LiveAnswer { query, k: result.k, found, within: within.cloned() }, bytes)
            });
        }
    }
}

impl Index {
    /// Returns the search to make for a request.
    pub(super) fn watched(&self, request: &SearchRequest) -> Watched {
        let recall = match request.options().effort {
            Effort::Recall(recall) => Some(recall),
            _ => None,
        };
        let (asked, reaction) =
            self.audit.as_ref().map_or_else(Default::default, |audit| audit.reaction(recall));
        match reaction {
            None => Watched { request: *request, note: None, asked },
            Some(reaction) => {
                let request = request.for_recall(reaction.effort_for);
                Watched { request, note: Some(reaction.note), asked }
            }
        }
    }

    /// Chooses queries of a search for the audit. `rows` are those of `queries` that it answers.
    pub(super) fn choose(
        &self,
        watched: &Watched,
        queries: &VectorFile,
        rows: Range<usize>,
    ) -> ChosenQueries {
        let Some(audit) = &self.audit else { return ChosenQueries::default() };
        let chosen = audit.choose(rows.len());
        let queries = chosen.map(|number| (number, queries.row(rows.start + number).to_vec())).collect();
        ChosenQueries { audit: Arc::downgrade(audit), asked: watched.asked, queries }
    }

    /// Answers queries exactly, and compares. Queries of an index that has changed since its build are
    /// discarded: no pass over its rows is possible.
    pub(super) fn audit_answers(
        &self,
        answers: &[LiveAnswer],
        pace: &Pace<'_>,
    ) -> Result<Audited, IndexError> {
        self.wait(pace.control())?;
        let mut audited = Audited { verdicts: vec![Verdict::Discarded; answers.len()], bytes: 0 };
        let all = RowSet::all(self.stored.vectors() as u32);
        // Changes only add up: there were none before the search either.
        if self.check_set(&all).is_err() {
            return Ok(audited);
        }
        let mut left: Vec<usize> = (0..answers.len()).collect();
        while let Some(first) = left.first() {
            let within = &answers[*first].within;
            let (same, others): (Vec<usize>, Vec<usize>) =
                left.iter().partition(|at| is_same(&answers[**at].within, within));
            let set = within.as_deref().unwrap_or(&all);
            let k = same.iter().map(|at| answers[*at].k).max().unwrap_or(0);
            let bytes = same.iter().flat_map(|at| &answers[*at].query).copied().collect();
            let queries = RawQueries { bytes, count: same.len() };
            let exact = self.exact_answers(&queries, &SetScan::paced(k, set, pace))?;
            audited.bytes += exact.bytes;
            for (at, nearest) in same.iter().zip(&exact.nearest) {
                let LiveAnswer { k, found, .. } = &answers[*at];
                if let Some(recall) = recall_of_answer(nearest, found, *k) {
                    audited.verdicts[*at] = Verdict::Recall(recall);
                }
            }
            left = others;
        }
        Ok(audited)
    }
}

/// Returns true if both are the same set of rows.
fn is_same(one: &Option<Arc<RowSet>>, other: &Option<Arc<RowSet>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

impl SearchRequest {
    /// Returns the same request with the effort for another recall, which is in range.
    fn for_recall(self, recall: f32) -> SearchRequest {
        self.with(SearchOptions { effort: Effort::Recall(recall), ..*self.options() })
    }
}
