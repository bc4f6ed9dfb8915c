//! Other searches of open indexes: ranges, several indexes, files of queries, warm-up, explanations,
//! counters.

use crate::answers::{Costs, no_costs};
use crate::arrays::{matrix, queries as queries_of, vectors};
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::index::{IndexHandle, SearchKeywords};
use bathyal_advise::ExplainedByPlan;
use bathyal_index::{Index, RangeOptions, Requests, SearchTotals};
use bathyal_tier::Control;
use bathyal_vectors::{IdWriter, VectorFile};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// Offsets of each query's neighbours, their ids and distances, notes, and costs.
type Ranges<'py> =
    (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f32>>, Vec<String>, Costs);

/// Numbers of indexes, ids and distances (`queries x k`), notes, and costs.
type ManyAnswers<'py> =
    (Bound<'py, PyArray2<u32>>, Bound<'py, PyArray2<u32>>, Bound<'py, PyArray2<f32>>, Vec<String>, Costs);

/// Returns the sum of the requests to the stores of several indexes since `before`; `None` if all are on this
/// machine.
fn requests_since(indexes: &[&Index], before: &[Option<Requests>]) -> Option<Requests> {
    let each = indexes.iter().zip(before);
    each.filter_map(|(index, before)| Some(index.requests()?.since(&(*before)?))).reduce(|a, b| a.and(&b))
}

/// Finds all vectors within `radius` of each query.
#[pyfunction]
pub(crate) fn range_search<'py>(
    py: Python<'py>,
    handle: &IndexHandle,
    queries: &Bound<'_, PyAny>,
    radius: f32,
    limit: Option<usize>,
    arguments: SearchKeywords,
) -> PyResult<Ranges<'py>> {
    let index = handle.index()?;
    let (search, deadline) = (arguments.options()?, arguments.deadline()?);
    let options = RangeOptions {
        recall: arguments.recall(),
        limit,
        beam_width: search.beam_width,
        threads: search.threads,
        mode: search.mode,
        in_flight: search.in_flight,
    };
    let Some(queries) = queries_of(queries, "queries")? else {
        let none = (PyArray1::from_vec(py, vec![0]), PyArray1::from_vec(py, Vec::new()));
        return Ok((none.0, none.1, PyArray1::from_vec(py, Vec::new()), Vec::new(), no_costs()));
    };
    let before = [index.requests()];
    let found = run_detached(py, None, |watch| {
        let control = Control { cancel: Some(watch.cancel()), deadline };
        index.range_search(&queries, radius, &options, control).map_err(Failure::from)
    })?;
    let offsets = found.offsets.into_iter().map(|offset| offset as i64).collect();
    let (ids, distances) = (PyArray1::from_vec(py, found.ids), PyArray1::from_vec(py, found.distances));
    let requests = requests_since(&[&index], &before);
    let costs =
        Costs::new(found.seconds, found.threads, found.latencies_ns, found.per_query, found.own, requests);
    Ok((PyArray1::from_vec(py, offsets), ids, distances, found.notes, costs))
}

/// Searches several indexes and merges their answers.
#[pyfunction]
pub(crate) fn search_many<'py>(
    py: Python<'py>,
    handles: Vec<PyRef<'_, IndexHandle>>,
    queries: &Bound<'_, PyAny>,
    arguments: SearchKeywords,
) -> PyResult<ManyAnswers<'py>> {
    let indexes: Vec<Arc<Index>> = handles.iter().map(|handle| handle.index()).collect::<PyResult<_>>()?;
    let (options, deadline) = (arguments.options()?, arguments.deadline()?);
    let indexes: Vec<&Index> = indexes.iter().map(|index| &**index).collect();
    let Some(queries) = queries_of(queries, "queries")? else {
        for index in &indexes {
            index.query_bytes(&options).map_err(Failure::from)?;
        }
        let k = options.k.min(indexes.iter().map(|index| index.len()).sum());
        let (numbers, ids) = (matrix(py, Vec::new(), k)?, matrix(py, Vec::new(), k)?);
        return Ok((numbers, ids, matrix(py, Vec::new(), k)?, Vec::new(), no_costs()));
    };
    let before: Vec<_> = indexes.iter().map(|index| index.requests()).collect();
    let found = run_detached(py, None, |watch| {
        let control = Control { cancel: Some(watch.cancel()), deadline };
        bathyal_index::search_many(&indexes, &queries, &options, control).map_err(Failure::from)
    })?;
    let (numbers, ids) = found.places.iter().map(|place| (place.index, place.id)).unzip();
    let (numbers, ids) = (matrix(py, numbers, found.k)?, matrix(py, ids, found.k)?);
    let distances = matrix(py, found.distances, found.k)?;
    let requests = requests_since(&indexes, &before);
    let costs =
        Costs::new(found.seconds, found.threads, found.latencies_ns, found.per_query, found.own, requests);
    Ok((numbers, ids, distances, found.notes, costs))
}

/// Answers the queries of a file block by block, and writes a file of ids; returns the report as JSON.
#[pyfunction]
pub(crate) fn search_file(
    py: Python<'_>,
    handle: &IndexHandle,
    queries: PathBuf,
    output: PathBuf,
    block: NonZeroUsize,
    arguments: SearchKeywords,
) -> PyResult<String> {
    let index = handle.index()?;
    let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
    run_detached(py, None, |watch| -> Result<String, Failure> {
        let queries = VectorFile::open(queries)?;
        let k = options.k.min(index.len());
        let mut writer = IdWriter::create(output, k)?;
        let (mut totals, mut seconds, mut notes) = (SearchTotals::default(), 0.0, Vec::new());
        let before = [index.requests()];
        let control = Control { cancel: Some(watch.cancel()), deadline };
        index.search_blocks(&queries, block, &options, control, |_, found| -> Result<(), Failure> {
            writer.push(&found.ids, &found.distances)?;
            totals.merge(&found.totals);
            seconds += found.seconds;
            notes = found.notes;
            Ok(())
        })?;
        writer.finish()?;
        let mut report = serde_json::json!({
            "queries": queries.count(),
            "k": k,
            "seconds": seconds,
            "notes": notes,
            "requests": requests_since(&[&index], &before),
        });
        if let (Some(report), Value::Object(totals)) = (report.as_object_mut(), serde_json::to_value(totals)?)
        {
            report.extend(totals);
        }
        Ok(serde_json::to_string(&report)?)
    })
}

/// Starts threads, grows buffers, fills caches; returns the report as JSON.
#[pyfunction]
pub(crate) fn warm(py: Python<'_>, handle: &IndexHandle, arguments: SearchKeywords) -> PyResult<String> {
    let index = handle.index()?;
    let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
    run_detached(py, None, |watch| -> Result<String, Failure> {
        let control = Control { cancel: Some(watch.cancel()), deadline };
        Ok(serde_json::to_string(&index.warm(&options, control)?)?)
    })
}

/// Returns the costs of query number `row` of `queries` as JSON.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    handle: &IndexHandle,
    queries: &Bound<'_, PyAny>,
    row: usize,
    arguments: SearchKeywords,
) -> PyResult<String> {
    let index = handle.index()?;
    let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
    let queries = vectors(queries, "query")?;
    run_detached(py, None, |watch| -> Result<String, Failure> {
        let control = Control { cancel: Some(watch.cancel()), deadline };
        let explanation = index.explain(&queries, row, &options, control)?;
        Ok(serde_json::to_string(&ExplainedByPlan::of_query(&index, &options, explanation))?)
    })
}

/// Returns the mean costs of all `queries`, and the assumptions of the cost model that failed, as JSON.
#[pyfunction]
pub(crate) fn explain_batch(
    py: Python<'_>,
    handle: &IndexHandle,
    queries: &Bound<'_, PyAny>,
    arguments: SearchKeywords,
) -> PyResult<String> {
    let index = handle.index()?;
    let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
    let queries = vectors(queries, "query")?;
    run_detached(py, None, |watch| -> Result<String, Failure> {
        let control = Control { cancel: Some(watch.cancel()), deadline };
        let rows = 0..queries.count();
        let explanation = index.explain_batch(&queries, rows, &options, control)?;
        Ok(serde_json::to_string(&ExplainedByPlan::of_batch(&index, &options, explanation))?)
    })
}

/// Returns the counters of the index since it was opened: as JSON, and in the text format of Prometheus.
#[pyfunction]
pub(crate) fn stats(handle: &IndexHandle) -> PyResult<(String, String)> {
    let stats = handle.index()?.stats();
    Ok((serde_json::to_string(&stats).map_err(Failure::from)?, stats.to_prometheus()))
}
