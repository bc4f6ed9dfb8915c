//! The audit with given queries: which recall do searches of the collection find?

use super::exact::{ExactQuery, ExactRows, ExactWork};
use super::{LocatedAnswers, SearchRequest};
use crate::error::CollectionError;
use crate::state::State;
use bathyal_index::audit::{RecallSums, recall_of_answer};
use bathyal_index::{
    AuditReport, AuditRequest, AuditedRecall, CalibrationChoice, Effort, RowSet, few_audited, sample_of,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::sync::Arc;
use std::time::Instant;

/// The request of [`Collection::audit`](crate::Collection::audit).
#[derive(Debug, Clone)]
pub struct CollectionAuditRequest {
    /// Recalls to ask for, each above 0 and at most 1.
    pub recalls: Vec<f32>,
    /// The most queries to answer. Of more, a sample is taken.
    pub queries: usize,
    /// The field, the number of neighbours, the calibration, the filter and the threads. Its effort and its
    /// columns are ignored.
    pub search: SearchRequest,
}

impl Default for CollectionAuditRequest {
    fn default() -> CollectionAuditRequest {
        let AuditRequest { recalls, queries, .. } = AuditRequest::default();
        CollectionAuditRequest { recalls, queries, search: SearchRequest::default() }
    }
}

/// The exact answers of an audit.
struct ExactAnswers {
    nearest: ExactRows,
    k: usize,
    bytes: u64,
    seconds: f64,
}

impl State {
    /// Answers `queries` by searches for some recalls, and exactly.
    ///
    /// # Errors
    /// As [`Collection::audit`](crate::Collection::audit).
    pub(crate) fn audit(
        &self,
        queries: &VectorFile,
        request: &CollectionAuditRequest,
        control: Control<'_>,
        progress: &dyn Progress,
    ) -> Result<AuditReport, CollectionError> {
        let started = Instant::now();
        request.check()?;
        let field = self.schema().field(request.search.field.as_deref())?;
        let shape = &self.schema().vectors[field];
        let bits = if shape.element == Element::B1 { queries.as_bits() } else { None };
        let queries = bits.as_ref().unwrap_or(queries);
        shape.check_queries(queries)?;
        if queries.count() == 0 || request.queries == 0 {
            return Err(CollectionError::Parameter("an audit requires at least one query".into()));
        }
        let queries = sample_of(queries, request.queries)?;
        let filter = request.search.filter.as_ref().map(|filter| filter.bind(self.schema())).transpose()?;
        let sets = self.matching(filter.as_ref(), &control)?;
        let exact = self.exact_answers((&queries, field), request, &sets, (control, progress))?;
        progress.stage("searches", request.recalls.len() as u64);
        let mut recalls = Vec::with_capacity(request.recalls.len());
        for asked in &request.recalls {
            recalls.push(self.audited(&queries, request, *asked, (&exact, control))?);
            progress.advance(recalls.len() as u64);
        }
        Ok(AuditReport {
            queries: queries.count(),
            k: exact.k,
            recalls,
            notes: few_audited(queries.count()).into_iter().collect(),
            exact_bytes: exact.bytes,
            exact_seconds: exact.seconds,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    fn exact_answers(
        &self,
        (queries, field): (&VectorFile, usize),
        request: &CollectionAuditRequest,
        sets: &[Arc<RowSet>],
        (control, progress): (Control<'_>, &dyn Progress),
    ) -> Result<ExactAnswers, CollectionError> {
        let started = Instant::now();
        let matches: u64 = sets.iter().map(|set| u64::from(set.count())).sum();
        let k = usize::try_from(matches).map_or(request.search.k, |matches| request.search.k.min(matches));
        if k == 0 {
            let what = "no row is there, or matches the filter, so there is no recall to audit";
            return Err(CollectionError::Parameter(what.into()));
        }
        progress.stage("exact neighbours", queries.count() as u64);
        let work = ExactWork::Threads(request.search.threads, control);
        let (nearest, bytes) = self.exact_rows(&ExactQuery { field, queries, k, work }, sets)?;
        Ok(ExactAnswers { nearest, k, bytes, seconds: started.elapsed().as_secs_f64() })
    }

    /// Returns the recall that searches for the recall `asked` find.
    fn audited(
        &self,
        queries: &VectorFile,
        request: &CollectionAuditRequest,
        asked: f32,
        (exact, control): (&ExactAnswers, Control<'_>),
    ) -> Result<AuditedRecall, CollectionError> {
        let (effort, columns) = (Effort::Recall(asked), Vec::new());
        let search = SearchRequest { effort, columns, vectors: false, ..request.search.clone() };
        let LocatedAnswers { found, rows } = self.search(queries, &search, control)?;
        let mut sums = RecallSums::default();
        for (query, nearest) in exact.nearest.iter().enumerate() {
            let range = query * found.k..(query + 1) * found.k;
            let pairs = rows[range.clone()].iter().copied().zip(found.distances[range].iter().copied());
            let answer: Vec<_> = pairs.collect();
            recall_of_answer(nearest, &answer, exact.k).into_iter().for_each(|one| sums.add(one));
        }
        let list = found.plans.iter().map(|plan| plan.search_list).max().unwrap_or(0);
        AuditedRecall::of(asked, &sums, list, found.notes)
            .ok_or_else(|| CollectionError::Internal("an audit without answers".into()))
    }
}

impl CollectionAuditRequest {
    /// Refuses numbers out of range.
    fn check(&self) -> Result<(), CollectionError> {
        let (recalls, k) = (self.recalls.clone(), self.search.k);
        let calibration = CalibrationChoice::Usual;
        let request =
            AuditRequest { recalls, k, queries: self.queries, calibration, threads: self.search.threads };
        Ok(request.searches().map(|_| ())?)
    }
}
