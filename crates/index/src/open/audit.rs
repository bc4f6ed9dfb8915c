//! The audit of an index with given queries: which recall do searches for a recall find?

use super::control::with_control;
use super::pool::RawQueries;
use super::request::{DEFAULT_K, DEFAULT_RECALL};
use super::scan::SetScan;
use super::{Effort, Index, SearchOptions, SearchRequest, SearchResult, thread_count};
use crate::audit::{Pace, RecallEstimate, RecallSums, recall_of_answer};
use crate::calibrate::choice::CalibrationChoice;
use crate::error::IndexError;
use crate::query::{NO_ID, RowSet};
use bathyal_kernels::Neighbor;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use rand::SeedableRng;
use rand::seq::index::sample;
use serde::Serialize;
use std::time::Instant;

/// The most queries that an audit answers: the mean recall of so many is known to about 0.01.
pub const MOST_AUDITED: usize = 1000;
/// The fewest queries whose interval is worth much.
const FEW_QUERIES: usize = 50;
/// The seed of the choice among more queries.
const SEED: u64 = 0xa0d17;

/// The request of [`Index::audit`].
#[derive(Debug, Clone)]
pub struct AuditRequest {
    /// Recalls to ask for, each above 0 and at most 1.
    pub recalls: Vec<f32>,
    /// Neighbours wanted.
    pub k: usize,
    /// The most queries to answer. Of more, a sample is taken.
    pub queries: usize,
    /// The calibration that gives the effort for a recall.
    pub calibration: CalibrationChoice,
    /// Threads; 0 means all cores.
    pub threads: usize,
}

impl Default for AuditRequest {
    fn default() -> Self {
        AuditRequest {
            recalls: vec![DEFAULT_RECALL],
            k: DEFAULT_K,
            queries: MOST_AUDITED,
            calibration: CalibrationChoice::Usual,
            threads: 0,
        }
    }
}

/// The recall that searches for one recall found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditedRecall {
    /// The recall asked for.
    pub asked: f32,
    /// The recall found.
    #[serde(flatten)]
    pub estimate: RecallEstimate,
    /// True if the recall asked for is at most the upper end of the interval.
    pub reached: bool,
    /// The length of the candidate list of these searches; of a collection, the longest of all segments.
    pub search_list: u32,
    /// Notes of these searches.
    pub notes: Vec<String>,
}

/// The result of [`Index::audit`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditReport {
    /// Queries answered, both by searches and exactly.
    pub queries: usize,
    /// Neighbours of each query.
    pub k: usize,
    /// The recall found for each recall asked for, in the order of the request.
    pub recalls: Vec<AuditedRecall>,
    /// Notes for the user, such as too few queries.
    pub notes: Vec<String>,
    /// Bytes read for the exact answers.
    pub exact_bytes: u64,
    /// Seconds for the exact answers.
    pub exact_seconds: f64,
    /// Seconds in all.
    pub seconds: f64,
}

impl AuditedRecall {
    /// Returns the recall that searches for `asked` found, by its sums over their queries; `None` without
    /// queries.
    pub fn of(asked: f32, sums: &RecallSums, search_list: u32, notes: Vec<String>) -> Option<AuditedRecall> {
        let estimate = sums.estimate()?;
        let reached = f64::from(asked) <= estimate.high;
        Some(AuditedRecall { asked, estimate, reached, search_list, notes })
    }
}

/// Returns a note if an audit of so many queries says little about others.
pub fn few_audited(count: usize) -> Option<String> {
    (count < FEW_QUERIES).then(|| {
        format!(
            "{count} queries say little about others: the intervals are wide, and may be wrong; audit \
             {FEW_QUERIES} or more"
        )
    })
}

/// Returns up to `most` of the queries, chosen at random but always the same, in their order.
///
/// # Errors
/// [`IndexError::Vectors`], which does not happen.
pub fn sample_of(queries: &VectorFile, most: usize) -> Result<VectorFile, IndexError> {
    let mut random = rand::rngs::StdRng::seed_from_u64(SEED);
    let mut rows = sample(&mut random, queries.count(), queries.count().min(most)).into_vec();
    rows.sort_unstable();
    let chosen = RawQueries::from_rows(queries, &rows);
    Ok(VectorFile::from_rows(queries.element(), queries.dim(), chosen.bytes)?)
}

/// The exact answers to some queries.
#[derive(Debug, Default)]
pub struct ExactAnswers {
    /// The nearest rows of each query with their distances, the nearest first.
    pub nearest: Vec<Vec<(u32, f32)>>,
    /// Bytes read.
    pub bytes: u64,
}

impl Index {
    /// Answers `queries` by searches for some recalls, and exactly by one pass over the vectors. Reports the
    /// recall that each of the searches found, with its confidence interval.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for queries or a request that do not fit the index, and for an index that
    /// has changed since its build; damage and device errors; [`IndexError::Cancelled`].
    pub fn audit(
        &self,
        queries: &VectorFile,
        request: &AuditRequest,
        progress: &dyn Progress,
    ) -> Result<AuditReport, IndexError> {
        let searches = request.searches()?;
        self.check_process()?;
        self.check_queries(queries, 0..queries.count())?;
        let all = RowSet::all(self.stored.vectors() as u32);
        self.check_set(&all)?;
        let refuse = |what: &str| Err(self.stored.refusal(what));
        if queries.count() == 0 || request.queries == 0 {
            return refuse("an audit requires at least one query");
        }
        if self.is_empty() {
            return refuse("an index without vectors has no recall to audit");
        }
        with_control(progress, |control| {
            self.wait(control)?;
            let queries = sample_of(&self.in_own_element(queries), request.queries)?;
            self.audit_all(&queries, request, &searches, (&all, control), progress)
        })
    }

    fn audit_all(
        &self,
        queries: &VectorFile,
        request: &AuditRequest,
        searches: &[SearchRequest],
        (all, control): (&RowSet, Control<'_>),
        progress: &dyn Progress,
    ) -> Result<AuditReport, IndexError> {
        let (started, count) = (Instant::now(), queries.count());
        progress.stage("exact neighbours", count as u64);
        let raw = RawQueries::from_range(queries, 0..count);
        let k = request.k.min(self.len());
        let threads = thread_count(request.threads);
        let scan = SetScan { k, set: all, whole: false, threads, control, pace: None, progress };
        let exact = self.exact_answers(&raw, &scan)?;
        let exact_seconds = started.elapsed().as_secs_f64();
        progress.stage("searches", searches.len() as u64);
        let mut recalls = Vec::with_capacity(searches.len());
        for (search, asked) in searches.iter().zip(&request.recalls) {
            let found = self.search_unwatched(queries, 0..count, search, control)?;
            let mut sums = RecallSums::default();
            for (query, exact) in exact.nearest.iter().enumerate() {
                recall_of_answer(exact, &found.answer(query), k).into_iter().for_each(|one| sums.add(one));
            }
            let nothing = || IndexError::Internal("an audit without answers".into());
            let audited = AuditedRecall::of(*asked, &sums, found.search_list, found.notes);
            recalls.push(audited.ok_or_else(nothing)?);
            progress.advance(recalls.len() as u64);
        }
        Ok(AuditReport {
            queries: count,
            k,
            recalls,
            notes: few_audited(count).into_iter().collect(),
            exact_bytes: exact.bytes,
            exact_seconds,
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Finds the `k` nearest rows of `set`, or all if there are fewer, by comparing every row of the set on
    /// this thread, with the pauses of an audit.
    ///
    /// # Errors
    /// As [`Index::search_within`].
    pub fn exact_within(
        &self,
        queries: &VectorFile,
        k: usize,
        set: &RowSet,
        pace: &Pace<'_>,
    ) -> Result<ExactAnswers, IndexError> {
        self.check_process()?;
        self.check_queries(queries, 0..queries.count())?;
        self.check_set(set)?;
        self.wait(pace.control())?;
        let queries = RawQueries::from_range(queries, 0..queries.count());
        self.exact_answers(&queries, &SetScan::paced(k, set, pace))
    }

    /// Finds the `k` nearest rows of `set`, or all if there are fewer, by comparing every row of the set with
    /// `threads` threads; 0 means all cores.
    ///
    /// # Errors
    /// As [`Index::search_within`].
    pub fn exact_among(
        &self,
        queries: &VectorFile,
        k: usize,
        (set, threads): (&RowSet, usize),
        control: Control<'_>,
    ) -> Result<ExactAnswers, IndexError> {
        self.check_process()?;
        self.check_queries(queries, 0..queries.count())?;
        self.check_set(set)?;
        self.wait(control)?;
        let queries = RawQueries::from_range(queries, 0..queries.count());
        let threads = thread_count(threads);
        let scan = SetScan { k, set, whole: false, threads, control, pace: None, progress: &Silent };
        self.exact_answers(&queries, &scan)
    }

    /// Finds the nearest rows of a set for all queries by comparing every row.
    pub(super) fn exact_answers(
        &self,
        queries: &RawQueries,
        scan: &SetScan<'_>,
    ) -> Result<ExactAnswers, IndexError> {
        let mut exact = ExactAnswers::default();
        let scan = SetScan { k: scan.k.min(scan.set.count() as usize), ..*scan };
        self.scan_set(queries, &scan, |_, pass| {
            exact.bytes += pass.cost.bytes;
            let pairs = |near: Vec<Neighbor>| near.iter().map(|one| (one.id, one.distance)).collect();
            exact.nearest.extend(pass.nearest.into_iter().map(pairs));
        })?;
        Ok(exact)
    }
}

impl AuditRequest {
    /// Returns the searches of the audit, checked.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a number out of range, and without a recall to ask for.
    pub fn searches(&self) -> Result<Vec<SearchRequest>, IndexError> {
        if self.recalls.is_empty() {
            return Err(IndexError::Parameter("an audit requires at least one recall to ask for".into()));
        }
        let search = |recall: &f32| {
            SearchRequest::new(&SearchOptions {
                k: self.k,
                effort: Effort::Recall(*recall),
                calibration: self.calibration,
                threads: self.threads,
                ..SearchOptions::default()
            })
        };
        self.recalls.iter().map(search).collect()
    }
}

impl SearchResult {
    /// Returns the neighbours of a query with their distances, nearest first.
    pub(super) fn answer(&self, query: usize) -> Vec<(u32, f32)> {
        let range = query * self.k..(query + 1) * self.k;
        let pairs = self.ids[range.clone()].iter().copied().zip(self.distances[range].iter().copied());
        pairs.filter(|(id, _)| *id != NO_ID).collect()
    }
}
