//! Building, opening, searching and inspecting indexes.

use crate::answers::{Answers, answers, counts_of, no_answers};
use crate::arrays::{queries as queries_of, vectors};
use crate::detached::{run_detached, search_detached};
use crate::errors::Failure;
use crate::stores::{Pairs, store_options};
use bathyal_collection::is_collection;
use bathyal_gpu::{Card, DeviceChoice};
use bathyal_index::families::FAMILIES;
use bathyal_index::family::Family;
use bathyal_index::open::WrapTier;
use bathyal_index::{
    AuditOptions, AuditRequest, CalibrateOptions, CompactOptions, Counter, DEFAULT_RECALL, Effort, Index,
    IndexError, NamedEfforts, OpenOptions, OptionDoc, SearchMode, SearchOptions, SearchResult,
    StripeConversionOptions, StripeOptions, TierChoice, compact_in, convert_layout_in, encoded_keys, find,
    holding, inspect_in, verify_in,
};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::{Control, Tier, TierProfile};
use bathyal_vectors::IdFile;
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Returns the stripe options; `None` without folders.
pub(crate) fn stripe_options(folders: Vec<PathBuf>, unit: Option<u64>) -> Option<StripeOptions> {
    let given = !folders.is_empty();
    let stripe = StripeOptions::over(folders);
    // The library refuses a unit that is too long.
    let clamped = |unit| u32::try_from(unit).unwrap_or(u32::MAX);
    let stripe_bytes = unit.map_or(stripe.stripe_bytes, clamped);
    given.then_some(StripeOptions { stripe_bytes, ..stripe })
}

/// Returns the graphics card of this name, if it is one, for work that fails without it.
pub(crate) fn card(device: &str) -> PyResult<Option<Arc<dyn Card>>> {
    let device: DeviceChoice = device.parse().map_err(PyValueError::new_err::<String>)?;
    Ok(device.card_alone().map_err(IndexError::from).map_err(Failure::from)?)
}

/// Returns the index families as JSON: name, description, options of a build, and own counters.
#[pyfunction]
pub(crate) fn list_families() -> PyResult<String> {
    let option = |option: &OptionDoc| serde_json::json!({ "name": option.name, "help": option.help });
    let counter = |counter: &Counter| serde_json::json!({ "name": counter.name, "help": counter.about });
    let family = |family: &&Family| {
        let options: Vec<_> = family.options.iter().map(option).collect();
        let counters: Vec<_> = family.counters.iter().map(counter).collect();
        let (name, about) = (family.name, family.about);
        serde_json::json!({ "name": name, "about": about, "options": options, "counters": counters })
    };
    let all: Vec<_> = FAMILIES.iter().map(family).collect();
    Ok(serde_json::to_string(&all).map_err(Failure::from)?)
}

/// The share of the queries that are audited, and the reaction to a miss.
pub(crate) type AuditArguments = (f64, String);

/// Returns the options of an audit.
pub(crate) fn audit_options(given: Option<AuditArguments>) -> PyResult<Option<AuditOptions>> {
    let Some((share, on_miss)) = given else { return Ok(None) };
    let on_miss = on_miss.parse().map_err(PyValueError::new_err::<String>)?;
    Ok(Some(AuditOptions { share, on_miss, ..AuditOptions::default() }))
}

/// Returns a function that wraps a tier in an emulation of a device.
fn emulation(device: &str) -> PyResult<WrapTier> {
    let device = DelayProfile::named_or_file(device).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, device.clone())) as Arc<dyn Tier>)))
}

/// The place of an index: its path or address, the folders to which its parts were moved, and the options of
/// its store.
type Place = (PathBuf, Vec<PathBuf>, Pairs);

/// Verifies every byte and link of an index; returns the report as JSON.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, place: Place, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let (path, stripe, store) = (place.0, place.1, store_options(place.2)?);
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        let found = find(&path, &stripe, &store)?;
        let mut report = verify_in(found.as_ref(), watch)?;
        report.encoded_keys = encoded_keys(&path, found.as_ref());
        Ok(serde_json::to_string(&report)?)
    })
}

/// Describes an index; returns the report as JSON.
#[pyfunction]
pub(crate) fn inspect(py: Python<'_>, place: Place, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let (path, stripe, store) = (place.0, place.1, store_options(place.2)?);
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&inspect_in(find(&path, &stripe, &store)?.as_ref(), watch)?)?)
    })
}

/// Builds an index again with all changes; returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (index, memory, threads, progress))]
pub(crate) fn compact(
    py: Python<'_>,
    index: (PathBuf, Pairs),
    memory: Option<u64>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = CompactOptions { threads, memory_bytes: memory };
    let (index, store) = (index.0, store_options(index.1)?);
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        let holding = holding(&index, &store)?;
        let (store, name, folder) = (holding.store(), &holding.name, Some(holding.folder()));
        Ok(serde_json::to_string(&compact_in(store, name, folder, &options, watch)?)?)
    })
}

/// Copies a graph index to another layout; returns the report as JSON.
#[pyfunction]
pub(crate) fn convert_layout(
    py: Python<'_>,
    index: (PathBuf, Pairs),
    output: (PathBuf, Pairs),
    layout: &str,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let layout = layout.parse().map_err(|what| Failure::from(IndexError::Parameter(what)))?;
    let (from, to) = (store_options(index.1)?, store_options(output.1)?);
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        let (source, target) = (find(&index.0, &[], &from)?, holding(&output.0, &to)?);
        let (source, store, name) = (source.as_ref(), target.store(), &target.name);
        Ok(serde_json::to_string(&convert_layout_in(source, store, name, layout, threads, watch)?)?)
    })
}

/// Copies an index, whose parts may have been moved to folders, onto other disks with a stripe unit; returns
/// the report as JSON.
#[pyfunction]
#[pyo3(signature = (index, output, disks, overwrite, progress))]
pub(crate) fn convert_stripes(
    py: Python<'_>,
    index: (PathBuf, Vec<PathBuf>),
    output: PathBuf,
    disks: (Vec<PathBuf>, Option<u64>),
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let ((index, from), stripe) = (index, stripe_options(disks.0, disks.1));
    let options = StripeConversionOptions { stripe, from, overwrite };
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::convert_stripes(&index, &output, &options, watch)?)?)
    })
}

/// The options of a search, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SearchKeywords {
    k: usize,
    recall: Option<f32>,
    ratio: Option<f32>,
    probability: Option<f32>,
    within: Option<f32>,
    search_list: Option<u32>,
    probes: Option<u32>,
    prune: Option<f32>,
    beam_width: Option<u32>,
    multi_probe: Option<u32>,
    threads: usize,
    mode: Option<String>,
    timeout: Option<f64>,
    in_flight: Option<usize>,
    calibration: Option<String>,
}

impl SearchKeywords {
    /// Returns the target recall.
    pub(crate) fn recall(&self) -> f32 {
        self.recall.unwrap_or(DEFAULT_RECALL)
    }

    /// Returns the options of a search of `index`.
    pub(crate) fn options_for(&self, index: &Index) -> PyResult<SearchOptions> {
        let options = self.options_without_calibration()?;
        let Some(name) = &self.calibration else { return Ok(options) };
        if !matches!(options.effort, Effort::Recall(_)) {
            let message = "calibration is for a recall; leave it out, or ask for a recall";
            return Err(PyValueError::new_err(message));
        }
        let calibration = index.calibration(name).map_err(Failure::from)?;
        Ok(SearchOptions { calibration, ..options })
    }

    /// Returns the options of a search that takes no calibration.
    pub(crate) fn options(&self) -> PyResult<SearchOptions> {
        if self.calibration.is_some() {
            let message = "calibration is an argument of a search of one index; leave it out";
            return Err(PyValueError::new_err(message));
        }
        self.options_without_calibration()
    }

    /// Returns the options of the library. The search checks them.
    fn options_without_calibration(&self) -> PyResult<SearchOptions> {
        let SearchKeywords { recall, search_list, ratio, probability, within, .. } = *self;
        let named = NamedEfforts { recall, search_list, ratio, probability, within };
        let effort = named.effort().map_err(Failure::from)?;
        let mode = self.mode.as_deref().map(SearchMode::from_str).transpose();
        Ok(SearchOptions {
            k: self.k,
            effort,
            probes: self.probes,
            prune: self.prune,
            beam_width: self.beam_width,
            multi_probe: self.multi_probe,
            threads: self.threads,
            mode: mode.map_err(PyValueError::new_err::<String>)?,
            in_flight: self.in_flight,
            ..SearchOptions::default()
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

/// An open index.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct IndexHandle {
    index: Mutex<Option<Arc<Index>>>,
}

impl IndexHandle {
    pub(crate) fn index(&self) -> PyResult<Arc<Index>> {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.clone().ok_or_else(|| PyValueError::new_err("the index is closed; open it again"))
    }
}

#[pymethods]
impl IndexHandle {
    /// Opens the index at a place.
    #[staticmethod]
    #[pyo3(signature = (place, tier, memory, progress, device_profile, audit))]
    fn open(
        py: Python<'_>,
        place: Place,
        tier: (&str, Option<&str>, bool, (&str, Option<u32>)),
        memory: Option<u64>,
        progress: Option<Py<PyAny>>,
        device_profile: (Option<&str>, Option<PathBuf>),
        audit: Option<AuditArguments>,
    ) -> PyResult<IndexHandle> {
        let (delay, profile) = device_profile;
        let ((path, stripe, store), (tier, numa, wait, (device, mini_batch))) = (place, tier);
        let tier: TierChoice = tier.parse().map_err(PyValueError::new_err::<String>)?;
        let numa = numa.map(str::parse).transpose().map_err(PyValueError::new_err::<String>)?;
        let wrap = delay.map(emulation).transpose()?;
        let device: DeviceChoice = device.parse().map_err(PyValueError::new_err::<String>)?;
        let profile = profile.map(TierProfile::from_file).transpose();
        let profile = profile.map_err(|e| PyValueError::new_err(e.to_string()))?;
        let options = OpenOptions {
            tier,
            numa,
            wait,
            memory_bytes: memory,
            profile,
            wrap,
            stripe,
            store: store_options(store)?,
            mini_batch,
            audit: audit_options(audit)?,
            ..OpenOptions::default()
        };
        let options = options.on(device).map_err(IndexError::from).map_err(Failure::from)?;
        let index = run_detached(py, progress, |watch| {
            let opened = Index::open_attended(&path, &options, watch);
            opened.map_err(|error| match error {
                IndexError::NotAnIndex { .. } if is_collection(&path, &options.store) => {
                    Failure::is_collection(&path)
                }
                error => error.into(),
            })
        })?;
        Ok(IndexHandle { index: Mutex::new(Some(Arc::new(index))) })
    }

    /// Releases files, memory and threads.
    fn close(&self, py: Python<'_>) {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Dropping ends the search threads, which may take a moment.
        py.detach(|| drop(index));
    }

    /// Returns another handle of the index, which is closed separately.
    fn share(&self) -> PyResult<IndexHandle> {
        Ok(IndexHandle { index: Mutex::new(Some(self.index()?)) })
    }

    #[getter]
    fn closed(&self) -> bool {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    #[getter]
    fn len(&self) -> PyResult<usize> {
        Ok(self.index()?.len())
    }

    #[getter]
    fn dim(&self) -> PyResult<usize> {
        Ok(self.index()?.dim())
    }

    #[getter]
    fn element(&self) -> PyResult<&'static str> {
        Ok(self.index()?.element().name())
    }

    #[getter]
    fn metric(&self) -> PyResult<&'static str> {
        let index = self.index()?;
        Ok(index.metric().name_over(index.element()))
    }

    /// Bytes of memory between searches.
    #[getter]
    fn dram_bytes(&self) -> PyResult<u64> {
        Ok(self.index()?.dram_bytes(0, 0, 0))
    }

    /// Requests to the store for opening the index; None for an index on this machine.
    fn opening_requests<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.index()?.opening_requests().map(|asked| counts_of(py, &asked)).transpose()
    }

    /// Bytes of the index's memory that have arrived, as JSON; None if opening has waited for all.
    fn arrival(&self) -> PyResult<Option<String>> {
        let json = |arrival| serde_json::to_string(&arrival).map_err(Failure::from);
        Ok(self.index()?.arrival().map(json).transpose()?)
    }

    /// The manifest as JSON.
    fn manifest(&self) -> PyResult<String> {
        Ok(serde_json::to_string(self.index()?.manifest()).map_err(Failure::from)?)
    }

    /// Inserts an array of `vectors x dim`, or a single vector; returns the first id and one past the last.
    fn insert(&self, py: Python<'_>, vectors: &Bound<'_, PyAny>) -> PyResult<(u32, u32)> {
        let index = self.index()?;
        let Some(vectors) = queries_of(vectors, "vectors")? else {
            return Ok((index.next_id(), index.next_id()));
        };
        let ids = py.detach(|| index.insert(&vectors)).map_err(Failure::from)?;
        Ok((ids.start, ids.end))
    }

    /// Deletes vectors; returns the number deleted.
    fn delete(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<u64> {
        let index = self.index()?;
        Ok(py.detach(|| index.delete(&ids)).map_err(Failure::from)?)
    }

    /// Returns the name of the element, and the vectors of these ids, in order, as bytes.
    fn vectors<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<(&'static str, Bound<'py, PyArray1<u8>>)> {
        let index = self.index()?;
        let ids: Vec<u32> = ids.as_array().iter().copied().collect();
        let found = run_detached(py, None, |watch| {
            let control = Control { cancel: Some(watch.cancel()), deadline: None };
            index.vectors(&ids, control).map_err(Failure::from)
        })?;
        Ok((found.element.name(), PyArray1::from_vec(py, found.bytes)))
    }

    /// Returns the existing ids as ranges: the first id and one past the last.
    fn ids(&self, py: Python<'_>) -> PyResult<Vec<(u32, u32)>> {
        let index = self.index()?;
        let ids = run_detached(py, None, |watch| {
            let control = Control { cancel: Some(watch.cancel()), deadline: None };
            index.ids(control).map_err(Failure::from)
        })?;
        Ok(ids.into_iter().map(|ids| (ids.start, ids.end)).collect())
    }

    /// Reads the changes of other processes; returns true if there were any.
    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        let index = self.index()?;
        Ok(py.detach(|| index.refresh()).map_err(Failure::from)?)
    }

    /// The changes since the build, as JSON.
    fn changed(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.index()?.changed()).map_err(Failure::from)?)
    }

    /// Calibrates the index with `queries`; `truth` are the ids and distances of their true neighbours.
    /// Returns the report as JSON.
    #[pyo3(signature = (queries, name, truth, counts, progress))]
    fn calibrate(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        name: String,
        truth: Option<(PyReadonlyArray2<'_, u32>, Option<PyReadonlyArray2<'_, f32>>)>,
        counts: (usize, usize),
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let index = self.index()?;
        let queries = vectors(queries, "queries")?;
        let truth = truth.map(|(ids, distances)| {
            let ids = ids.as_array();
            let distances = distances.map(|distances| distances.as_array().iter().copied().collect());
            IdFile::from_parts(ids.ncols(), ids.iter().copied().collect(), distances)
        });
        let truth = truth.transpose().map_err(Failure::from)?;
        let options = CalibrateOptions { name, queries: counts.0, truth, threads: counts.1 };
        let report = run_detached(py, progress, |watch| {
            index.calibrate(&queries, &options, watch).map_err(Failure::from)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Answers up to `counts.1` of `queries`, `counts.0` neighbours each, by searches for these recalls and
    /// exactly, with `counts.2` threads. Returns the report as JSON.
    #[pyo3(signature = (queries, recalls, calibration, counts, progress))]
    fn audit(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        recalls: Vec<f32>,
        calibration: Option<&str>,
        counts: [usize; 3],
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let index = self.index()?;
        let queries = vectors(queries, "queries")?;
        let named = calibration.map(|name| index.calibration(name)).transpose().map_err(Failure::from)?;
        let [k, most, threads] = counts;
        let calibration = named.unwrap_or_default();
        let request = AuditRequest { recalls, k, queries: most, calibration, threads };
        let report = run_detached(py, progress, |watch| {
            index.audit(&queries, &request, watch).map_err(Failure::from)
        })?;
        Ok(serde_json::to_string(&report).map_err(Failure::from)?)
    }

    /// Returns the calibrations with queries, as JSON.
    fn calibrations(&self, py: Python<'_>) -> PyResult<String> {
        let index = self.index()?;
        let all = py.detach(|| index.calibrations()).map_err(Failure::from)?;
        Ok(serde_json::to_string(&all).map_err(Failure::from)?)
    }

    /// Removes a calibration. Returns false if there was none of this name.
    fn remove_calibration(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let index = self.index()?;
        Ok(py.detach(|| index.remove_calibration(name)).map_err(Failure::from)?)
    }

    /// Answers `queries`, an array of `queries x dim` or a single query.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'_, PyAny>,
        arguments: SearchKeywords,
    ) -> PyResult<Answers<'py>> {
        let index = self.index()?;
        let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
        let Some(queries) = queries_of(queries, "queries")? else {
            return no_answers(py, &index, &options);
        };
        let found = search_detached(py, |cancel, look| {
            let control = Control { cancel: Some(cancel), deadline };
            index.search_attended(&queries, &options, control, look).map_err(Failure::from)
        })?;
        let dram_bytes = memory_of(&index, &found, &options);
        answers(py, found, dram_bytes)
    }
}

/// Returns the bytes of memory of the open index during a search.
pub(crate) fn memory_of(index: &Index, found: &SearchResult, options: &SearchOptions) -> u64 {
    index.dram_bytes_of(found, options)
}
