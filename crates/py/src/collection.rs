//! Collections: creating, opening and changing them.

use crate::arrays::{matrix, queries as queries_of, vectors};
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::index::{AuditArguments, audit_options};
use crate::served::GivenRows;
use crate::snapshot::{Bytes, QuestionArguments, ReadSource, SnapshotHandle, bytes, filter, run_controlled};
use crate::stores::{Pairs, store_options};
use crate::tables::{Columns, ids, ids_to_python, metadata};
use bathyal_collection::exchange::{ExportOptions, ImportMode, ImportOptions, export, import};
use bathyal_collection::{
    Collection, CollectionAuditRequest, CollectionCalibration, CollectionError, CollectionOptions,
    CompactOptions, Durability, FoundInMany, RepairOptions, Schema, SearchRequest, Written, search_many,
};
use bathyal_index::OpenOptions;
use bathyal_tier::Control;
use numpy::PyArray2;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The options for opening a collection, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CollectionArguments {
    store: Pairs,
    tier: String,
    memory: Option<u64>,
    write_memory: Option<u64>,
    build_memory: Option<u64>,
    compact_memory: Option<u64>,
    compact_speed: Option<u64>,
    threads: usize,
    durability: String,
    compact: bool,
    background: bool,
    flat_below: Option<usize>,
    keep_versions: usize,
    audit: Option<AuditArguments>,
}

impl CollectionArguments {
    fn options(self) -> PyResult<CollectionOptions> {
        let durability = match self.durability.as_str() {
            "disk" => Durability::Disk,
            "system" => Durability::System,
            other => {
                let message = format!("unknown durability '{other}': it is one of disk, system");
                return Err(PyValueError::new_err(message));
            }
        };
        let store = store_options(self.store)?;
        let tier = self.tier.parse().map_err(PyValueError::new_err::<String>)?;
        let index = OpenOptions { tier, memory_bytes: self.memory, ..OpenOptions::default() };
        let usual = CollectionOptions::default();
        Ok(CollectionOptions {
            store,
            index,
            write_memory_bytes: self.write_memory.unwrap_or(usual.write_memory_bytes),
            build_memory_bytes: self.build_memory,
            compact_memory_bytes: self.compact_memory,
            compact_bytes_per_second: self.compact_speed.and_then(NonZeroU64::new),
            direct_bytes: None,
            threads: self.threads,
            durability,
            background: self.background,
            compact: self.compact,
            flat_below_rows: self.flat_below.unwrap_or(usual.flat_below_rows),
            keep_versions: self.keep_versions,
            audit: audit_options(self.audit)?,
        })
    }
}

/// Converts the error of a bad Parquet file of the user, which is not damage of the collection.
fn as_file_error(error: CollectionError) -> CollectionError {
    match error {
        CollectionError::Parquet { path, source } => {
            CollectionError::File { path, reason: source.to_string() }
        }
        CollectionError::Imported { path, written, source } => {
            CollectionError::Imported { path, written, source: Box::new(as_file_error(*source)) }
        }
        error => error,
    }
}

/// The options for reading a file, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FileArguments {
    upsert: bool,
    id_column: Option<String>,
    columns: Option<Vec<String>>,
    ids: Option<PathBuf>,
    first_id: Option<u64>,
}

/// Rows added, replaced and deleted, and ids without a row.
type WrittenCounts = (u64, u64, u64, u64);

fn counts(written: Written) -> WrittenCounts {
    (written.added, written.replaced, written.deleted, written.missing)
}

/// An open collection.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct CollectionHandle {
    collection: Mutex<Option<Arc<Collection>>>,
    schema: Arc<Schema>,
}

impl CollectionHandle {
    fn new(collection: Collection) -> CollectionHandle {
        let schema = Arc::new(collection.schema());
        CollectionHandle { collection: Mutex::new(Some(Arc::new(collection))), schema }
    }

    fn collection(&self) -> PyResult<Arc<Collection>> {
        let collection = self.collection.lock().unwrap_or_else(PoisonError::into_inner);
        collection.clone().ok_or_else(|| PyValueError::new_err("the collection is closed; open it again"))
    }

    /// Runs `work` on the collection without the GIL. If the collection is closed meanwhile, this call
    /// releases it last, which may take as long as writing a segment.
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&Collection, &crate::detached::Watch) -> Result<T, CollectionError> + Send,
    ) -> PyResult<T> {
        let collection = self.collection()?;
        run_detached(py, progress, move |watch| work(&collection, watch).map_err(Failure::from))
    }
}

impl Drop for CollectionHandle {
    fn drop(&mut self) {
        let held = self.collection.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Release the GIL, because dropping may wait for a segment to be written. At the end of the
        // interpreter there is no GIL to release.
        let mut held = Some(held);
        let _ = Python::try_attach(|py| py.detach(|| drop(held.take())));
    }
}

#[pymethods]
impl CollectionHandle {
    /// Creates a collection with a schema in JSON.
    #[staticmethod]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        schema: &str,
        arguments: CollectionArguments,
    ) -> PyResult<CollectionHandle> {
        let schema: Schema = serde_json::from_str(schema)
            .map_err(|error| PyValueError::new_err(format!("the schema: {error}")))?;
        let options = arguments.options()?;
        let made =
            run_detached(py, None, |_| Collection::create(path, schema, &options).map_err(Failure::from))?;
        Ok(CollectionHandle::new(made))
    }

    /// Opens a collection, or a version of it that was kept.
    #[staticmethod]
    #[pyo3(signature = (path, version, arguments))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        version: Option<u64>,
        arguments: CollectionArguments,
    ) -> PyResult<CollectionHandle> {
        let options = arguments.options()?;
        let opened = run_detached(py, None, |_| {
            match version {
                None => Collection::open(path, &options),
                Some(version) => Collection::open_version(path, version, &options),
            }
            .map_err(Failure::from)
        })?;
        Ok(CollectionHandle::new(opened))
    }

    /// Saves the undamaged parts of a damaged collection to another place; returns the report as JSON.
    #[staticmethod]
    #[pyo3(signature = (path, target, keep_uncertain, lost_ids, arguments, progress))]
    fn repair(
        py: Python<'_>,
        path: PathBuf,
        target: (PathBuf, Pairs),
        keep_uncertain: bool,
        lost_ids: Option<PathBuf>,
        arguments: CollectionArguments,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let (options, store) = (arguments.options()?, store_options(target.1)?);
        let what = RepairOptions { keep_uncertain, lost_ids };
        let report = run_detached(py, progress, move |watch| {
            Collection::repair(path, &options, (target.0, &store), &what, watch).map_err(Failure::from)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Releases the collection; the last handle releases the writer's lock.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let collection = self.collection.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(collection);
        });
    }

    #[getter]
    fn closed(&self) -> bool {
        self.collection.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The most bytes of a batch.
    #[getter]
    fn largest_batch_bytes(&self) -> PyResult<u64> {
        Ok(self.collection()?.largest_batch_bytes())
    }

    /// The schema as JSON.
    fn schema(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&*self.schema).map_err(Failure::from)?)
    }

    /// Returns a handle that reads the collection as it is at each read.
    fn reading(&self) -> PyResult<SnapshotHandle> {
        Ok(SnapshotHandle::new(ReadSource::Now(self.collection()?), self.schema.clone()))
    }

    /// Returns a snapshot of the collection.
    fn snapshot(&self) -> PyResult<SnapshotHandle> {
        Ok(SnapshotHandle::new(ReadSource::Then(self.collection()?.snapshot()), self.schema.clone()))
    }

    /// Copies the collection as it is now to another place; returns the report as JSON.
    fn copy_to(
        &self,
        py: Python<'_>,
        target: (PathBuf, Pairs),
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let store = store_options(target.1)?;
        let report =
            self.work(py, progress, move |collection, watch| collection.copy_to(target.0, &store, watch))?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Adds rows, or with `upsert` also replaces those with the same ids. `fields` are the vectors of each
    /// field.
    #[pyo3(signature = (given, fields, columns, upsert))]
    fn write(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        fields: Vec<Bound<'_, PyAny>>,
        columns: &Bound<'_, PyAny>,
        upsert: bool,
    ) -> PyResult<WrittenCounts> {
        let Some(given) = GivenRows::of(&self.schema, given, &fields, columns)? else {
            self.collection()?;
            return Ok(counts(Written::default()));
        };
        let schema = self.schema.clone();
        let written = self.work(py, None, move |collection, _| {
            let rows = given.rows(&schema)?;
            if upsert { collection.upsert(rows) } else { collection.add(rows) }
        })?;
        Ok(counts(written))
    }

    /// Adds the rows of a file, or with `upsert` also replaces those with the same ids; returns the report as
    /// JSON.
    fn import_file(
        &self,
        py: Python<'_>,
        file: PathBuf,
        arguments: FileArguments,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let FileArguments { upsert, id_column, columns, ids, first_id } = arguments;
        let how = if upsert { ImportMode::Upsert } else { ImportMode::Add };
        let options = ImportOptions { how, batch_rows: None, id_column, columns, ids, first_id };
        let report = self.work(py, progress, move |collection, watch| {
            import(collection, &file, &options, watch).map_err(as_file_error)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Writes rows to a file; returns the report as JSON.
    fn export_file(
        &self,
        py: Python<'_>,
        file: PathBuf,
        condition: Option<(bool, &str)>,
        columns: Option<Vec<String>>,
        vectors: Option<Vec<String>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let filter = condition.map(filter).transpose()?;
        let options = ExportOptions { filter, columns, vectors, ids: None };
        let report = self.work(py, progress, move |collection, watch| {
            let control = Control { cancel: Some(watch.cancel()), deadline: None };
            export(collection, &file, &options, control, watch)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Changes columns of rows.
    fn update(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        columns: &Bound<'_, PyAny>,
    ) -> PyResult<WrittenCounts> {
        let ids = ids(self.schema.id_kind, given)?;
        let Some(columns) = metadata(&self.schema, columns, ids.len(), true)? else {
            return Err(PyValueError::new_err("metadata is None; give the columns to change"));
        };
        let written = self.work(py, None, move |collection, _| collection.update(ids, columns))?;
        Ok(counts(written))
    }

    /// Deletes rows by their ids.
    fn delete(&self, py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<WrittenCounts> {
        let ids = ids(self.schema.id_kind, given)?;
        Ok(counts(self.work(py, None, move |collection, _| collection.delete(ids))?))
    }

    /// Deletes the rows that match a filter.
    fn delete_matching(&self, py: Python<'_>, condition: (bool, &str)) -> PyResult<WrittenCounts> {
        let filter = filter(condition)?;
        let deleted = self.work(py, None, move |collection, watch| {
            collection.delete_matching(&filter, Control { cancel: Some(watch.cancel()), deadline: None })
        })?;
        Ok(counts(deleted))
    }

    /// Writes the rows in memory as a segment.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.work(py, None, |collection, _| collection.flush())
    }

    /// Merges segments; returns the report as JSON.
    fn compact(&self, py: Python<'_>, full: bool, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let report = self.work(py, progress, move |collection, watch| {
            collection.compact(&CompactOptions { full }, watch)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Calibrates the collection with up to `counts.0` queries and `counts.1` threads. Returns the report as
    /// JSON.
    #[pyo3(signature = (queries, name, field, counts, progress))]
    fn calibrate(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        name: String,
        field: Option<String>,
        counts: (usize, usize),
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let queries = vectors(queries, "queries")?;
        let options = CollectionCalibration { field, name, queries: counts.0, threads: counts.1 };
        let report = self
            .work(py, progress, move |collection, watch| collection.calibrate(&queries, &options, watch))?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Removes a calibration. Returns false if there was none of this name.
    #[pyo3(signature = (name, field))]
    fn remove_calibration(&self, py: Python<'_>, name: String, field: Option<String>) -> PyResult<bool> {
        self.work(py, None, move |collection, _| collection.remove_calibration(&name, field.as_deref()))
    }

    /// Answers up to `most` queries by searches for these recalls, and exactly. Returns the report as JSON.
    #[pyo3(signature = (queries, recalls, arguments, most, progress))]
    fn audit(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        recalls: Vec<f32>,
        arguments: QuestionArguments<'_>,
        most: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let queries = vectors(queries, "queries")?;
        let request = CollectionAuditRequest { recalls, queries: most, search: arguments.question()? };
        let report =
            self.work(py, progress, move |collection, watch| collection.audit(&queries, &request, watch))?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Reads what other processes have written; returns true if there was anything.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        self.work(py, None, |collection, _| collection.refresh())
    }

    /// The description of the collection as JSON.
    fn describe(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.collection()?.describe()).map_err(Failure::from)?)
    }

    /// The counters of the collection as JSON, and in the format of Prometheus.
    fn stats(&self) -> PyResult<(String, String)> {
        let stats = self.collection()?.stats();
        Ok((serde_json::to_string(&stats).map_err(Failure::from)?, stats.to_prometheus()))
    }

    /// Prepares searches like that of `arguments`, in all fields if it names none; returns the report as
    /// JSON.
    fn warm(&self, py: Python<'_>, arguments: QuestionArguments<'_>) -> PyResult<String> {
        let (collection, question) = (self.collection()?, arguments.question()?);
        let deadline = arguments.deadline()?;
        let report = run_controlled(py, None, deadline, |control| collection.warm(&question, control))?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Returns the faults of the collection as sentences.
    fn verify(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Vec<String>> {
        self.work(py, progress, |collection, watch| collection.verify(watch))
    }

    /// The kept versions.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.work(py, None, |collection, _| collection.versions())
    }
}

/// Numbers of collections (`queries x k`), ids, distances, columns, vectors, matching rows, and the rest as
/// JSON.
type ManyAnswers<'py> = (
    Bound<'py, PyArray2<u32>>,
    Bound<'py, PyAny>,
    Bound<'py, PyArray2<f32>>,
    Columns,
    Option<Bytes<'py>>,
    u64,
    String,
);

/// Searches several collections and merges their answers.
#[pyfunction]
pub(crate) fn search_collections<'py>(
    py: Python<'py>,
    handles: Vec<PyRef<'_, CollectionHandle>>,
    queries: &Bound<'_, PyAny>,
    arguments: QuestionArguments<'_>,
) -> PyResult<ManyAnswers<'py>> {
    let held: Vec<Arc<Collection>> =
        handles.iter().map(|handle| handle.collection()).collect::<PyResult<_>>()?;
    let (question, deadline) = (arguments.question()?, arguments.deadline()?);
    let queries = queries_of(queries, "queries")?;
    let found = run_controlled(py, None, deadline, |control| match &queries {
        Some(queries) => {
            let collections: Vec<&Collection> = held.iter().map(|collection| &**collection).collect();
            search_many(&collections, queries, &question, control)
        }
        None => no_answers(&held, &question, control),
    })?;
    let report = serde_json::to_string(&serde_json::json!({ "notes": found.notes, "k": found.k }));
    let (numbers, distances) =
        (matrix(py, found.collections, found.k)?, matrix(py, found.distances, found.k)?);
    let columns = Columns { batch: found.columns };
    let vectors = found.vectors.map(|vectors| bytes(py, vectors));
    let report = report.map_err(Failure::from)?;
    Ok((numbers, ids_to_python(py, &found.ids)?, distances, columns, vectors, found.matches, report))
}

/// Returns the answers to no queries, after checking that the question fits the collections.
fn no_answers(
    collections: &[Arc<Collection>],
    question: &SearchRequest,
    control: Control<'_>,
) -> Result<FoundInMany, CollectionError> {
    let mut together: Option<FoundInMany> = None;
    for collection in collections {
        let handle = SnapshotHandle::new(ReadSource::Now(collection.clone()), Arc::new(collection.schema()));
        let found = handle.no_answers(question, control)?;
        let sum = together.get_or_insert_with(|| FoundInMany {
            k: 0,
            collections: Vec::new(),
            ids: found.ids,
            distances: Vec::new(),
            columns: found.columns,
            vectors: found.vectors,
            matches: 0,
            notes: Vec::new(),
        });
        sum.k = (sum.k + found.k).min(question.k);
        sum.matches += found.matches;
    }
    let none = || CollectionError::Parameter("no collection to search; give at least one".into());
    together.ok_or_else(none)
}
