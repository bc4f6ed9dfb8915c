//! Results of searches: arrays for ids and distances, and counters that become arrays when they are read.

use crate::arrays::matrix;
use crate::errors::Failure;
use bathyal_index::{Index, OwnCosts, QueryStats, Requests, SearchOptions, SearchResult};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use serde_json::Value;

/// A counter, with one entry per query.
type Counts = PyArray1<u64>;

/// The costs of each query of a batch. An array is created when it is first read, because few callers read
/// any: creating all of them takes longer than everything else between a search in memory and its caller.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct Costs {
    #[pyo3(get)]
    seconds: f64,
    #[pyo3(get)]
    threads: usize,
    latencies_ns: Vec<u64>,
    per_query: Vec<QueryStats>,
    own: OwnCosts,
    /// Requests to the store for all queries together; `None` for an index on this machine.
    requests: Option<Requests>,
    /// The created arrays: latencies, then counters in the order of the getters.
    arrays: [PyOnceLock<Py<Counts>>; 6],
    own_arrays: PyOnceLock<Py<PyDict>>,
}

impl Costs {
    pub(crate) fn new(
        seconds: f64,
        threads: usize,
        latencies_ns: Vec<u64>,
        per_query: Vec<QueryStats>,
        own: OwnCosts,
        requests: Option<Requests>,
    ) -> Costs {
        Costs {
            seconds,
            threads,
            latencies_ns,
            per_query,
            own,
            requests,
            arrays: std::array::from_fn(|_| PyOnceLock::new()),
            own_arrays: PyOnceLock::new(),
        }
    }

    fn array<'py>(
        &self,
        py: Python<'py>,
        at: usize,
        values: impl FnOnce() -> Vec<u64>,
    ) -> Bound<'py, Counts> {
        let array = self.arrays[at].get_or_init(py, || PyArray1::from_vec(py, values()).unbind());
        array.bind(py).clone()
    }

    fn count<'py>(&self, py: Python<'py>, at: usize, each: fn(&QueryStats) -> u64) -> Bound<'py, Counts> {
        self.array(py, at, || self.per_query.iter().map(each).collect())
    }
}

#[pymethods]
impl Costs {
    #[getter]
    fn latencies_ns<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.array(py, 0, || self.latencies_ns.clone())
    }

    #[getter]
    fn hops<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.count(py, 1, |one| one.hops.into())
    }

    #[getter]
    fn reads<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.count(py, 2, |one| one.reads.into())
    }

    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.count(py, 3, |one| one.bytes)
    }

    #[getter]
    fn code_distances<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.count(py, 4, |one| one.code_distances.into())
    }

    #[getter]
    fn full_distances<'py>(&self, py: Python<'py>) -> Bound<'py, Counts> {
        self.count(py, 5, |one| one.full_distances.into())
    }

    /// Requests to the store for all queries together; None for an index on this machine.
    #[getter]
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.requests.as_ref().map(|asked| counts_of(py, asked)).transpose()
    }

    /// Counters that only the families of the searched indexes have, by name.
    #[getter]
    fn own<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let by_name = self.own_arrays.get_or_try_init(py, || {
            let by_name = PyDict::new(py);
            for (counter, counts) in self.own.columns() {
                let counts = counts.iter().map(|count| u64::from(*count)).collect();
                by_name.set_item(counter.name, Counts::from_vec(py, counts))?;
            }
            Ok::<_, PyErr>(by_name.unbind())
        })?;
        Ok(by_name.bind(py).clone())
    }
}

/// Converts the requests to a store to a dictionary.
pub(crate) fn counts_of<'py>(py: Python<'py>, asked: &Requests) -> PyResult<Bound<'py, PyDict>> {
    counts(py, serde_json::to_value(asked).map_err(Failure::from)?)
}

/// Converts a JSON object of numbers, and of such objects, to a dictionary.
fn counts(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyDict>> {
    let by_name = PyDict::new(py);
    let Value::Object(members) = value else { return Ok(by_name) };
    for (name, member) in members {
        match member.as_u64() {
            Some(whole) => by_name.set_item(name, whole)?,
            None if member.is_object() => by_name.set_item(name, counts(py, member)?)?,
            None => by_name.set_item(name, member.as_f64())?,
        }
    }
    Ok(by_name)
}

/// Ids and distances (`queries x k`), notes, costs, the length of the candidate list, and bytes of memory
/// during the search.
pub(crate) type Answers<'py> =
    (Bound<'py, PyArray2<u32>>, Bound<'py, PyArray2<f32>>, Vec<String>, Costs, u32, u64);

/// Returns the answers of a search, with the memory of the open index during it.
pub(crate) fn answers(py: Python<'_>, found: SearchResult, dram_bytes: u64) -> PyResult<Answers<'_>> {
    let ids = matrix(py, found.ids, found.k)?;
    let distances = matrix(py, found.distances, found.k)?;
    let SearchResult { seconds, threads, latencies_ns, per_query, own, requests, .. } = found;
    let costs = Costs::new(seconds, threads, latencies_ns, per_query, own, requests);
    Ok((ids, distances, found.notes, costs, found.search_list, dram_bytes))
}

/// Returns the answers to no queries, after checking that the options fit the index.
pub(crate) fn no_answers<'py>(
    py: Python<'py>,
    index: &Index,
    options: &SearchOptions,
) -> PyResult<Answers<'py>> {
    index.query_bytes(options).map_err(Failure::from)?;
    let k = options.k.min(index.len());
    let (ids, distances) = (matrix(py, Vec::new(), k)?, matrix(py, Vec::new(), k)?);
    Ok((ids, distances, Vec::new(), no_costs(), 0, index.dram_bytes(0, 0, 0)))
}

/// Returns the costs of no queries.
pub(crate) fn no_costs() -> Costs {
    Costs::new(0.0, 0, Vec::new(), Vec::new(), OwnCosts::default(), None)
}
