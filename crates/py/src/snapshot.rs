//! Reading a collection or a snapshot: searches, counts, rows by ids, and scans.

use crate::arrays::{matrix, queries as queries_of};
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::tables::{Columns, ids, ids_to_python};
use bathyal_collection::{
    Collection, CollectionError, FetchedRows, Filter, FoundRows, Ids, Judgement, Projection, RowsById, Scan,
    Schema, SearchRequest, Snapshot,
};
use bathyal_index::{NamedEfforts, StoredVectors};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use numpy::{PyArray1, PyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A filter: true if it is JSON, and its text.
type Condition<'a> = (bool, &'a str);

/// Parses a filter, in words or in JSON.
pub(crate) fn filter((json, text): Condition<'_>) -> PyResult<Filter> {
    if !json {
        return Ok(Filter::parse(text).map_err(CollectionError::from).map_err(Failure::from)?);
    }
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("filter: {error}")))?;
    Ok(Filter::from_json(&value).map_err(CollectionError::from).map_err(Failure::from)?)
}

/// The options of a search in a collection, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct QuestionArguments<'py> {
    field: Option<String>,
    k: usize,
    recall: Option<f32>,
    search_list: Option<u32>,
    filter: Option<(bool, Bound<'py, pyo3::types::PyString>)>,
    columns: Vec<String>,
    vectors: bool,
    threads: usize,
    timeout: Option<f64>,
    calibration: Option<String>,
}

impl QuestionArguments<'_> {
    pub(crate) fn question(&self) -> PyResult<SearchRequest> {
        let condition = match &self.filter {
            None => None,
            Some((json, text)) => Some(filter((*json, &text.to_cow()?))?),
        };
        let QuestionArguments { recall, search_list, .. } = *self;
        if self.calibration.is_some() && search_list.is_some() {
            let message = "calibration is for a recall; leave it out, or ask for a recall";
            return Err(PyValueError::new_err(message));
        }
        let effort = NamedEfforts { recall, search_list, ..NamedEfforts::default() };
        let effort = effort.effort().map_err(Failure::from)?;
        Ok(SearchRequest {
            field: self.field.clone(),
            k: self.k,
            effort,
            calibration: self.calibration.clone(),
            filter: condition,
            columns: self.columns.clone(),
            vectors: self.vectors,
            threads: self.threads,
        })
    }

    pub(crate) fn deadline(&self) -> PyResult<Option<Instant>> {
        let Some(seconds) = self.timeout else { return Ok(None) };
        let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| {
            PyValueError::new_err(format!("timeout is {seconds}; expected a number of seconds, 0 or more"))
        })?;
        Ok(Instant::now().checked_add(timeout))
    }
}

/// Cancels a call that runs on another thread than the one that receives signals.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct Cancel {
    flag: AtomicBool,
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel { flag: AtomicBool::new(false) }
    }

    /// Stops the call that was given this object.
    fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Ids, `queries x k` distances, columns, vectors, matching rows, and the rest as JSON.
type Answers<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray2<f32>>, Columns, Option<Bytes<'py>>, u64, String);
/// The name of the element, the dim, and the vectors in order.
pub(crate) type Bytes<'py> = (&'static str, usize, Bound<'py, PyArray1<u8>>);
/// Ids, columns, and the vectors of each field.
pub(crate) type Part<'py> = (Bound<'py, PyAny>, Columns, Vec<Bytes<'py>>);

/// Runs `work` without the GIL, until it ends, Ctrl-C, or `cancel` is set.
pub(crate) fn run_controlled<T: Send>(
    py: Python<'_>,
    cancel: Option<&Cancel>,
    deadline: Option<Instant>,
    work: impl FnOnce(Control<'_>) -> Result<T, CollectionError> + Send,
) -> PyResult<T> {
    if let Some(cancel) = cancel {
        let flag = &cancel.flag;
        return Ok(py.detach(|| work(Control { cancel: Some(flag), deadline })).map_err(Failure::from)?);
    }
    run_detached(py, None, |watch| {
        work(Control { cancel: Some(watch.cancel()), deadline }).map_err(Failure::from)
    })
}

pub(crate) fn bytes(py: Python<'_>, vectors: StoredVectors) -> Bytes<'_> {
    (vectors.element.name(), vectors.dim, PyArray1::from_vec(py, vectors.bytes))
}

pub(crate) fn part(py: Python<'_>, fetched: FetchedRows) -> PyResult<Part<'_>> {
    let vectors = fetched.vectors.into_iter().map(|vectors| bytes(py, vectors)).collect();
    Ok((ids_to_python(py, &fetched.ids)?, Columns { batch: fetched.columns }, vectors))
}

/// The source of reads.
pub(crate) enum ReadSource {
    /// The collection as it is at each read.
    Now(Arc<Collection>),
    /// The collection at a moment.
    Then(Snapshot),
}

/// A handle that reads a collection or a snapshot.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct SnapshotHandle {
    source: ReadSource,
    schema: Arc<Schema>,
}

impl SnapshotHandle {
    pub(crate) fn new(source: ReadSource, schema: Arc<Schema>) -> SnapshotHandle {
        SnapshotHandle { source, schema }
    }

    fn search_for(
        &self,
        queries: &VectorFile,
        question: &SearchRequest,
        control: Control<'_>,
    ) -> Result<FoundRows, CollectionError> {
        match &self.source {
            ReadSource::Now(collection) => collection.search(queries, question, control),
            ReadSource::Then(snapshot) => snapshot.search(queries, question, control),
        }
    }

    fn fetch(&self, ids: &Ids, what: &Projection, control: Control<'_>) -> Result<RowsById, CollectionError> {
        match &self.source {
            ReadSource::Now(collection) => collection.get(ids, what, control),
            ReadSource::Then(snapshot) => snapshot.get(ids, what, control),
        }
    }

    fn count_of(&self, filter: Option<&Filter>, control: Control<'_>) -> Result<u64, CollectionError> {
        match &self.source {
            ReadSource::Now(collection) => collection.count(filter, control),
            ReadSource::Then(snapshot) => snapshot.count(filter, control),
        }
    }

    /// Returns the answers to no queries, after checking that the question fits the collection.
    pub(crate) fn no_answers(
        &self,
        question: &SearchRequest,
        control: Control<'_>,
    ) -> Result<FoundRows, CollectionError> {
        let field = self.schema.field(question.field.as_deref())?;
        let matches = self.count_of(question.filter.as_ref(), control)?;
        let k = usize::try_from(matches).map_or(question.k, |matches| question.k.min(matches));
        let none = Ids::none(self.schema.id_kind);
        let fields = question.vectors.then(|| self.schema.vectors[field].name.clone());
        let what =
            Projection { columns: Some(question.columns.clone()), vectors: fields.into_iter().collect() };
        let mut held = self.fetch(&none, &what, control)?;
        Ok(FoundRows {
            k,
            ids: none,
            distances: Vec::new(),
            columns: held.columns,
            vectors: held.vectors.pop(),
            matches,
            plans: Vec::new(),
            totals: Default::default(),
            seconds: 0.0,
            notes: Vec::new(),
            judgement: Judgement::default(),
        })
    }
}

#[pymethods]
impl SnapshotHandle {
    /// A number that rises with every written batch.
    #[getter]
    fn sequence(&self) -> u64 {
        match &self.source {
            ReadSource::Now(collection) => collection.snapshot().sequence(),
            ReadSource::Then(snapshot) => snapshot.sequence(),
        }
    }

    /// Answers `queries`, an array of `queries x dim` or a single query.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'_, PyAny>,
        arguments: QuestionArguments<'_>,
        cancel: Option<&Cancel>,
    ) -> PyResult<Answers<'py>> {
        let (question, deadline) = (arguments.question()?, arguments.deadline()?);
        let queries = queries_of(queries, "queries")?;
        let found = run_controlled(py, cancel, deadline, |control| match &queries {
            Some(queries) => self.search_for(queries, &question, control),
            None => self.no_answers(&question, control),
        })?;
        let report = serde_json::json!({
            "plans": found.plans,
            "totals": found.totals,
            "seconds": found.seconds,
            "notes": found.notes,
            "k": found.k,
        });
        let report = serde_json::to_string(&report).map_err(Failure::from)?;
        let distances = matrix(py, found.distances, found.k)?;
        let columns = Columns { batch: found.columns };
        let vectors = found.vectors.map(|vectors| bytes(py, vectors));
        Ok((ids_to_python(py, &found.ids)?, distances, columns, vectors, found.matches, report))
    }

    /// Returns the rows with these ids, and the position of each among the ids.
    fn get<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'_, PyAny>,
        columns: Option<Vec<String>>,
        vectors: Vec<String>,
        cancel: Option<&Cancel>,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, Part<'py>)> {
        let ids = ids(self.schema.id_kind, given)?;
        let what = Projection { columns, vectors };
        let gotten = run_controlled(py, cancel, None, |control| self.fetch(&ids, &what, control))?;
        let fetched = FetchedRows { ids: gotten.ids, columns: gotten.columns, vectors: gotten.vectors };
        Ok((PyArray1::from_vec(py, gotten.places), part(py, fetched)?))
    }

    /// Returns the number of rows, or of matching rows.
    fn count(
        &self,
        py: Python<'_>,
        condition: Option<Condition<'_>>,
        cancel: Option<&Cancel>,
    ) -> PyResult<u64> {
        let Some(condition) = condition else {
            // Known without reading anything.
            return Ok(self.count_of(None, Control::default()).map_err(Failure::from)?);
        };
        let filter = filter(condition)?;
        run_controlled(py, cancel, None, |control| self.count_of(Some(&filter), control))
    }

    /// Returns a scan of all rows, or of matching rows, in the order of their ids.
    fn scan(
        &self,
        py: Python<'_>,
        condition: Option<Condition<'_>>,
        columns: Option<Vec<String>>,
        vectors: Vec<String>,
    ) -> PyResult<ScanHandle> {
        let filter = condition.map(filter).transpose()?;
        let what = Projection { columns, vectors };
        let scan = run_controlled(py, None, None, |control| match &self.source {
            ReadSource::Now(collection) => collection.scan(filter.as_ref(), &what, None, control),
            ReadSource::Then(snapshot) => snapshot.scan(filter.as_ref(), &what, None, control),
        })?;
        Ok(ScanHandle { scan: Mutex::new(scan) })
    }
}

/// A scan of rows.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct ScanHandle {
    scan: Mutex<Scan>,
}

#[pymethods]
impl ScanHandle {
    /// Returns up to `most` further rows; None at the end.
    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Option<Part<'py>>> {
        let fetched = run_controlled(py, None, None, |control| {
            self.scan.lock().unwrap_or_else(PoisonError::into_inner).next(most, control)
        })?;
        fetched.map(|fetched| part(py, fetched)).transpose()
    }
}
