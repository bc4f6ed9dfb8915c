//! The audit of live searches: some queries are answered exactly in the background, on the rows that their
//! search saw.

use super::exact::{ExactQuery, ExactWork};
use super::{FoundRows, LocatedAnswers, SearchRequest};
use crate::error::CollectionError;
use crate::filter::{BoundFilter, Filter};
use crate::state::{Located, State};
use bathyal_index::audit::{AskedRecall, Audited, Auditor, Pace, Reaction, Verdict, recall_of_answer};
use bathyal_index::{AuditOptions, AuditStats, Effort};
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// A query with its answer.
struct LiveAnswer {
    /// The rows that its search saw.
    state: Arc<State>,
    field: usize,
    query: Vec<u8>,
    filter: Option<Filter>,
    k: usize,
    /// The rows that it found, nearest first.
    found: Vec<(Located, f32)>,
}

/// A search with what an audit changes about it.
pub(crate) struct Watched {
    /// The search to make in place of the given one; `None` for the same.
    request: Option<SearchRequest>,
    note: Option<String>,
    asked: AskedRecall,
}

impl Watched {
    /// Returns the search to make.
    pub(crate) fn request<'a>(&'a self, given: &'a SearchRequest) -> &'a SearchRequest {
        self.request.as_ref().unwrap_or(given)
    }
}

/// The audit of the searches of a collection.
pub(crate) struct CollectionAudit(Auditor<LiveAnswer>);

impl CollectionAudit {
    /// Starts the thread.
    pub(crate) fn start(options: AuditOptions) -> Result<CollectionAudit, CollectionError> {
        Ok(CollectionAudit(Auditor::start(options, audit)?))
    }

    /// Returns the search to make for a request.
    pub(crate) fn watched(&self, request: &SearchRequest) -> Watched {
        let recall = match request.effort {
            Effort::Recall(recall) => Some(recall),
            _ => None,
        };
        match self.0.reaction(recall) {
            (asked, None) => Watched { request: None, note: None, asked },
            (asked, Some(Reaction { effort_for, note, .. })) => {
                let request = SearchRequest { effort: Effort::Recall(effort_for), ..request.clone() };
                Watched { request: Some(request), note: Some(note), asked }
            }
        }
    }

    /// Chooses some of the answers to `queries` for the audit, which compares them with the rows of `state`,
    /// where they were found. Returns the answers with the note of the search.
    pub(crate) fn add(
        &self,
        watched: &Watched,
        (queries, request): (&VectorFile, &SearchRequest),
        state: &Arc<State>,
        answers: LocatedAnswers,
    ) -> Result<FoundRows, CollectionError> {
        let LocatedAnswers { mut found, rows } = answers;
        let field = state.schema().field(request.field.as_deref())?;
        for number in self.0.choose(queries.count()) {
            self.0.add(watched.asked, || {
                let range = number * found.k..(number + 1) * found.k;
                let pairs = rows[range.clone()].iter().zip(&found.distances[range]);
                let answer = LiveAnswer {
                    state: state.clone(),
                    field,
                    query: queries.row(number).to_vec(),
                    filter: request.filter.clone(),
                    k: found.k,
                    found: pairs.map(|(row, distance)| (*row, *distance)).collect(),
                };
                let bytes = answer.query.len() + size_of_val(&answer.found[..]);
                (answer, bytes as u64)
            });
        }
        found.notes.extend(watched.note.clone());
        Ok(found)
    }

    /// Returns the counters and the recall found.
    pub(crate) fn stats(&self) -> AuditStats {
        self.0.stats()
    }
}

/// Answers queries exactly, and compares.
fn audit(answers: &[LiveAnswer], pace: &Pace<'_>) -> Result<Audited, CollectionError> {
    let mut audited = Audited { verdicts: vec![Verdict::Discarded; answers.len()], bytes: 0 };
    let filters = answers
        .iter()
        .map(|answer| answer.filter.as_ref().map(|filter| filter.bind(answer.state.schema())).transpose());
    let filters: Vec<Option<BoundFilter>> = filters.collect::<Result<_, _>>()?;
    let text = |at: usize| filters[at].as_ref().map(BoundFilter::canonical);
    let mut left: Vec<usize> = (0..answers.len()).collect();
    while let Some(first) = left.first().copied() {
        let LiveAnswer { state, field, .. } = &answers[first];
        let (same, others): (Vec<usize>, Vec<usize>) = left.into_iter().partition(|at| {
            let other = &answers[*at];
            Arc::ptr_eq(&other.state, state) && other.field == *field && text(*at) == text(first)
        });
        let shape = &state.schema().vectors[*field];
        let bytes = same.iter().flat_map(|at| &answers[*at].query).copied().collect();
        let queries = VectorFile::from_rows(shape.element, shape.dim, bytes)?;
        let k = same.iter().map(|at| answers[*at].k).max().unwrap_or(0);
        let sets = state.matching(filters[first].as_ref(), &pace.control())?;
        let query = ExactQuery { field: *field, queries: &queries, k, work: ExactWork::Paced(pace) };
        let (exact, bytes) = state.exact_rows(&query, &sets)?;
        audited.bytes += bytes;
        for (at, nearest) in same.iter().zip(&exact) {
            let LiveAnswer { k, found, .. } = &answers[*at];
            if let Some(recall) = recall_of_answer(nearest, found, *k) {
                audited.verdicts[*at] = Verdict::Recall(recall);
            }
        }
        left = others;
    }
    Ok(audited)
}
