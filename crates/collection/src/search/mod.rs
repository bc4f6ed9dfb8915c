//! Search: searches every part of a collection and merges the results.

mod audit;
mod division;
mod exact;
mod explain;
mod given_queries;
mod segments;
mod warm;

pub(crate) use audit::CollectionAudit;
pub use explain::{
    ExplainedSearch, ExplainedSegment, FilteredSegment, PartPlan, SegmentCurves, SegmentExplanation,
};
pub use given_queries::CollectionAuditRequest;

use crate::calibration::ChosenCalibrations;
use crate::error::CollectionError;
use crate::filter::{BoundFilter, Filter};
use crate::ids::Ids;
use crate::memtable::{MemTable, MemTableQuery};
use crate::parallel::thread_count;
use crate::schema::VectorField;
use crate::state::{Located, State};
use arrow_array::RecordBatch;
use bathyal_index::{
    Calibrated, Capability, Effort, IndexError, MergedAnswers, QueryLengths, Reach, RowSet, SearchOptions,
    SearchTotals, StoredVectors, families,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use segments::{SegmentResults, SegmentSearch};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A search: what to look for, and what to return.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    /// Name of the vector field; `None` means the only one.
    pub field: Option<String>,
    /// Number of neighbours of each query; at least 1.
    pub k: usize,
    /// How thoroughly to search. A recall is that of all parts together, under the filter. A search list
    /// applies to each segment that has one; rows in memory and small segments are compared one by one.
    pub effort: Effort,
    /// Name of the calibration ([`Collection::calibrate`](crate::Collection::calibrate)) that gives the
    /// effort for a recall; `build` is that of the builds. `None` means the one named `default`, and if there
    /// is none, the largest effort that any calibration chooses.
    pub calibration: Option<String>,
    /// Only rows that match are found; `None` means all rows.
    pub filter: Option<Filter>,
    /// Names of the columns to return.
    pub columns: Vec<String>,
    /// True to return the vectors.
    pub vectors: bool,
    /// Number of threads; 0 means one per core.
    pub threads: usize,
}

impl Default for SearchRequest {
    fn default() -> SearchRequest {
        let SearchOptions { k, effort, threads, .. } = SearchOptions::default();
        let (field, calibration, filter, columns) = (None, None, None, Vec::new());
        SearchRequest { field, k, effort, calibration, filter, columns, vectors: false, threads }
    }
}

/// Result of a search.
#[derive(Debug, Clone)]
pub struct FoundRows {
    /// Neighbours of each query: the requested k, or the number of matching rows if that is smaller.
    pub k: usize,
    /// `queries x k` ids, nearest first.
    pub ids: Ids,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// `queries x k` rows of the requested columns.
    pub columns: RecordBatch,
    /// `queries x k` vectors, if requested.
    pub vectors: Option<StoredVectors>,
    /// Live rows that match the filter.
    pub matches: u64,
    /// Explanation of the search in each part.
    pub plans: Vec<PartPlan>,
    /// Total costs of the searches in segments.
    pub totals: SearchTotals,
    /// Duration in seconds.
    pub seconds: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// How the queries compare with those of the calibrations.
    pub judgement: Judgement,
}

/// Result of a search, and where its rows are.
pub(crate) struct LocatedAnswers {
    pub(crate) found: FoundRows,
    /// `queries x k` places of the rows in the state that was searched.
    pub(crate) rows: Vec<Located>,
}

/// How the queries of a search compare with those of the calibrations, for merging with other answers.
#[derive(Debug, Clone, Default)]
pub struct Judgement {
    /// True if the last note says that the queries are unlike those of the calibrations.
    pub(crate) unlike: bool,
    /// For each query, how far the queries of a calibration are from their neighbours: that of the segment
    /// which holds the query's farthest neighbour. `None` if that was not measured.
    pub(crate) reach: Vec<Option<Reach>>,
    /// The lengths of the queries.
    pub(crate) lengths: QueryLengths,
}

/// Distance and location of a neighbour.
type LocatedNeighbor = (f32, Located);

/// A search that was checked against the schema: names are resolved to numbers.
struct ResolvedSearch<'a> {
    field: usize,
    queries: Cow<'a, VectorFile>,
    filter: Option<BoundFilter>,
    columns: Vec<usize>,
    options: SearchOptions,
    calibrations: ChosenCalibrations,
}

impl<'a> ResolvedSearch<'a> {
    fn new(
        state: &State,
        queries: &'a VectorFile,
        request: &SearchRequest,
    ) -> Result<ResolvedSearch<'a>, CollectionError> {
        let schema = state.schema();
        let field = schema.field(request.field.as_deref())?;
        let shape = &schema.vectors[field];
        let options = SearchOptions {
            k: request.k,
            effort: request.effort,
            threads: request.threads,
            ..SearchOptions::default()
        };
        check_options(&options, shape)?;
        let bits = if shape.element == Element::B1 { queries.as_bits() } else { None };
        let queries = bits.map_or(Cow::Borrowed(queries), Cow::Owned);
        shape.check_queries(&queries)?;
        let filter = request.filter.as_ref().map(|filter| filter.bind(schema)).transpose()?;
        let columns = request.columns.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?;
        let (version, name) = (&state.version, request.calibration.as_deref());
        let calibrations = ChosenCalibrations::new(version, &shape.name, name)?;
        Ok(ResolvedSearch { field, queries, filter, columns, options, calibrations })
    }
}

/// Refuses options that no index accepts, and efforts that the family and metric of the field can never use,
/// whatever segments exist.
fn check_options(options: &SearchOptions, field: &VectorField) -> Result<(), CollectionError> {
    let in_range = bathyal_index::SearchRequest::new(options);
    if let Err(IndexError::Parameter(reason)) = in_range {
        return Err(CollectionError::Parameter(reason));
    }
    let reason = match options.effort {
        Effort::SearchList(list) if (list as usize) < options.k => {
            format!("search_list is {list}, which must be at least k = {}", options.k)
        }
        Effort::Ratio(_) if !families::offers(&field.family, Capability::Ratio) => {
            format!("a search of {:?}: {}", field.name, families::refusal(&field.family, Capability::Ratio))
        }
        Effort::Ratio(_) if field.metric == Metric::InnerProduct => {
            "there is no ratio under ip, since an inner product is no distance; ask for a recall".into()
        }
        Effort::Probability { .. } => {
            "no probability is promised to a search of a collection; ask for a recall".into()
        }
        Effort::Recall(_) | Effort::SearchList(_) | Effort::Ratio(_) => return Ok(()),
    };
    Err(CollectionError::Parameter(reason))
}

impl State {
    /// Answers all `queries`.
    pub(crate) fn search(
        &self,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<LocatedAnswers, CollectionError> {
        let started = Instant::now();
        let resolved = ResolvedSearch::new(self, queries, request)?;
        let sets = self.matching(resolved.filter.as_ref(), &control)?;
        let matches: u64 = sets.iter().map(|set| u64::from(set.count())).sum();
        let k = usize::try_from(matches).map_or(request.k, |matches| request.k.min(matches));
        let mut notes = Vec::new();
        if k < request.k {
            let reason = if request.filter.is_some() { "rows match the filter" } else { "rows are there" };
            notes.push(format!("asked for {} neighbours, only {matches} {reason}", request.k));
        }
        let mut lists: Vec<Vec<LocatedNeighbor>> = vec![Vec::new(); resolved.queries.count()];
        let (mut segment_parts, mut memtables) = (Vec::new(), Vec::new());
        for (part, set) in (0_u32..).zip(sets).filter(|(_, set)| set.count() > 0) {
            match self.memtable_of(part) {
                Some(memtable) => memtables.push((part, memtable, set)),
                None => segment_parts.push((part, set)),
            }
        }
        let mut memtable_plans = Vec::with_capacity(memtables.len());
        for (part, memtable, set) in memtables {
            memtable_plans.push(self.search_memtable(
                (part, memtable),
                &resolved,
                k,
                &set,
                control,
                &mut lists,
            )?);
        }
        let segments = SegmentSearch { state: self, resolved: &resolved, control, parts: segment_parts };
        let SegmentResults { mut plans, totals, notes: segment_notes, reach, not_measured } =
            segments.search(k, &mut lists)?;
        plans.extend(memtable_plans);
        for note in segment_notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let (rows, distances) = merged(lists, k);
        notes.extend(not_measured);
        let reach = reach_of_queries(&rows, k, &reach);
        let lengths = QueryLengths::of_file(self.schema().vectors[resolved.field].metric, &resolved.queries);
        let answers = MergedAnswers { k, distances: &distances, lengths: &lengths, effort: request.effort };
        let note = answers.unlike_note(Calibrated::Segments, |query| reach[query].as_slice());
        let judgement = Judgement { unlike: note.is_some(), reach, lengths };
        notes.extend(note);
        let fields: &[usize] = if request.vectors { &[resolved.field] } else { &[] };
        let mut fetched = self.fetch(&rows, &resolved.columns, fields, control)?;
        let found = FoundRows {
            k,
            ids: fetched.ids,
            distances,
            columns: fetched.columns,
            vectors: fetched.vectors.pop(),
            matches,
            plans,
            totals,
            seconds: started.elapsed().as_secs_f64(),
            notes,
            judgement,
        };
        Ok(LocatedAnswers { found, rows })
    }

    fn search_memtable(
        &self,
        (part, memtable): (u32, &MemTable),
        resolved: &ResolvedSearch<'_>,
        k: usize,
        set: &Arc<RowSet>,
        control: Control<'_>,
        lists: &mut [Vec<LocatedNeighbor>],
    ) -> Result<PartPlan, CollectionError> {
        let (threads, k) = (thread_count(resolved.options.threads), k.min(set.count() as usize));
        let shape = &self.schema().vectors[resolved.field];
        let queries = &*resolved.queries;
        let query = MemTableQuery { field: resolved.field, shape, queries, k, threads, control };
        for (list, found) in lists.iter_mut().zip(memtable.search(&query, set)?) {
            list.extend(
                found.into_iter().map(|neighbor| (neighbor.distance, Located { part, row: neighbor.id })),
            );
        }
        Ok(PartPlan::for_memtable(memtable, set))
    }
}

/// Returns for each query how far the queries of the calibration are from their neighbours, of the segment
/// that holds the query's farthest neighbour.
fn reach_of_queries(rows: &[Located], k: usize, measured: &BTreeMap<u32, Vec<Reach>>) -> Vec<Option<Reach>> {
    let of_query = |rows: &[Located]| {
        let measured = rows.last().and_then(|farthest| measured.get(&farthest.part))?;
        measured.iter().rev().find(|reach| reach.k as usize <= k).copied()
    };
    rows.chunks(k.max(1)).map(of_query).collect()
}

/// Returns the `k` nearest of each list; equal distances are in the order of parts, then of rows.
fn merged(lists: Vec<Vec<LocatedNeighbor>>, k: usize) -> (Vec<Located>, Vec<f32>) {
    let (mut rows, mut distances) =
        (Vec::with_capacity(lists.len() * k), Vec::with_capacity(lists.len() * k));
    for mut list in lists {
        list.sort_unstable_by(|(one, a), (other, b)| one.total_cmp(other).then(a.cmp(b)));
        rows.extend(list.iter().take(k).map(|(_, at)| *at));
        distances.extend(list.iter().take(k).map(|(distance, _)| *distance));
    }
    (rows, distances)
}
