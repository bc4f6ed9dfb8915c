//! Building, opening, searching and looking at an index.

use crate::arrays::{matrix, vectors};
use crate::attend::{attend, attend_search};
use crate::errors::Failure;
use crate::files::metric;
use bathyal_index::families::{self, FAMILIES};
use bathyal_index::family::Family;
use bathyal_index::open::WrapTier;
use bathyal_index::{
    BuildOptions, Counter, DEFAULT_SEED, Effort, Index, IndexError, OpenOptions, OptionDoc, OwnCosts,
    QueryStats, SearchMode, SearchOptions, SearchResult, TierChoice,
};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::{Control, Tier};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What `build` is told, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BuildArguments<'py> {
    metric: String,
    family: Option<String>,
    /// What only the family is told, as JSON.
    options: String,
    threads: usize,
    seed: Option<u64>,
    memory: Option<u64>,
    overwrite: bool,
    calibration: Option<Bound<'py, PyAny>>,
}

impl BuildArguments<'_> {
    fn options(self) -> PyResult<BuildOptions> {
        let given = serde_json::from_str(&self.options).map_err(Failure::from)?;
        let family = self.family.as_deref().unwrap_or(FAMILIES[0].name);
        let family = families::options(family, &given).map_err(Failure::from)?;
        Ok(BuildOptions {
            metric: metric(&self.metric)?,
            family,
            threads: self.threads,
            seed: self.seed.unwrap_or(DEFAULT_SEED),
            memory_bytes: self.memory,
            overwrite: self.overwrite,
            calibration: self.calibration.as_ref().map(vectors).transpose()?,
        })
    }
}

/// The index families as JSON: name, what it is, the options of a build, and the counters of its own.
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

/// Puts the emulation of a device on top of a tier.
fn emulation(device: &str) -> PyResult<WrapTier> {
    let device = DelayProfile::named_or_file(device).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, device.clone())) as Arc<dyn Tier>)))
}

/// Builds an index over a path or an array; returns the report as JSON.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    path: PathBuf,
    arguments: BuildArguments<'_>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = arguments.options()?;
    let data = vectors(data)?;
    attend(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::build(&data, &path, &options, watch)?)?)
    })
}

/// Walks every block and link of an index; returns the report as JSON.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<String> {
    attend(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::verify(&path, watch)?)?)
    })
}

/// Describes an index; returns the report as JSON.
#[pyfunction]
pub(crate) fn inspect(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<String> {
    attend(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::inspect(&path, watch)?)?)
    })
}

/// Copies a graph index to another layout; returns the report as JSON.
#[pyfunction]
pub(crate) fn convert_layout(
    py: Python<'_>,
    index: PathBuf,
    output: PathBuf,
    layout: &str,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let layout = layout.parse().map_err(|what| Failure::from(IndexError::Parameter(what)))?;
    attend(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::convert_layout(&index, &output, layout, threads, watch)?)?)
    })
}

/// How to search, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SearchArguments {
    k: usize,
    recall: f32,
    search_list: Option<u32>,
    probes: Option<u32>,
    prune: Option<f32>,
    beam_width: Option<u32>,
    threads: usize,
    mode: Option<String>,
    timeout: Option<f64>,
    in_flight: Option<usize>,
}

impl SearchArguments {
    /// The recall asked for.
    pub(crate) fn recall(&self) -> f32 {
        self.recall
    }

    pub(crate) fn options(&self) -> PyResult<SearchOptions> {
        let mode = match self.mode.as_deref() {
            None => None,
            Some("batched") => Some(SearchMode::Batched),
            Some("pipelined") => Some(SearchMode::Pipelined),
            Some(other) => {
                let message = format!("unknown mode '{other}': it is one of batched, pipelined");
                return Err(PyValueError::new_err(message));
            }
        };
        let effort = self.search_list.map_or(Effort::Recall(self.recall), Effort::SearchList);
        let (k, beam_width, threads) = (self.k, self.beam_width, self.threads);
        Ok(SearchOptions {
            k,
            effort,
            probes: self.probes,
            prune: self.prune,
            beam_width,
            threads,
            mode,
            in_flight: self.in_flight,
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
    /// Opens the index at `path`.
    #[staticmethod]
    #[pyo3(signature = (path, tier, memory, progress, delay))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        tier: &str,
        memory: Option<u64>,
        progress: Option<Py<PyAny>>,
        delay: Option<&str>,
    ) -> PyResult<IndexHandle> {
        let tier: TierChoice = tier.parse().map_err(PyValueError::new_err::<String>)?;
        let wrap = delay.map(emulation).transpose()?;
        let options = OpenOptions { tier, memory_bytes: memory, wrap, ..OpenOptions::default() };
        let index =
            attend(py, progress, |watch| Index::open_attended(path, &options, watch).map_err(Failure::from))?;
        Ok(IndexHandle { index: Mutex::new(Some(Arc::new(index))) })
    }

    /// Gives back files, memory and threads.
    fn close(&self, py: Python<'_>) {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Ends the search threads, which may take a moment.
        py.detach(|| drop(index));
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
        Ok(self.index()?.metric().name())
    }

    /// Bytes of memory while `threads` threads search with a candidate list of `search_list`, so many queries each as are
    /// in flight or as suit the tier.
    #[pyo3(signature = (threads, search_list, in_flight))]
    fn dram_bytes(&self, threads: usize, search_list: u32, in_flight: Option<usize>) -> PyResult<u64> {
        let index = self.index()?;
        let in_flight = in_flight.unwrap_or_else(|| index.default_in_flight(search_list));
        Ok(index.dram_bytes(threads, in_flight, search_list))
    }

    /// The manifest as JSON.
    fn manifest(&self) -> PyResult<String> {
        Ok(serde_json::to_string(self.index()?.manifest()).map_err(Failure::from)?)
    }

    /// Answers `queries`, an array of `queries x dim`.
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'_, PyAny>,
        arguments: SearchArguments,
    ) -> PyResult<Bound<'py, PyDict>> {
        let index = self.index()?;
        let (options, deadline) = (arguments.options()?, arguments.deadline()?);
        let queries = vectors(queries)?;
        let found = attend_search(py, |cancel, look| {
            let control = Control { cancel: Some(cancel), deadline };
            index.search_attended(&queries, &options, control, look).map_err(Failure::from)
        })?;
        answers(py, found)
    }
}

/// A dictionary with what each query cost.
pub(crate) fn per_query<'py>(
    py: Python<'py>,
    costs: &[QueryStats],
    own: &OwnCosts,
    latencies_ns: Vec<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let answers = PyDict::new(py);
    let count =
        |each: fn(&QueryStats) -> u64| PyArray1::from_vec(py, costs.iter().map(each).collect::<Vec<u64>>());
    answers.set_item("hops", count(|one| one.hops.into()))?;
    answers.set_item("reads", count(|one| one.reads.into()))?;
    answers.set_item("bytes", count(|one| one.bytes))?;
    answers.set_item("code_distances", count(|one| one.code_distances.into()))?;
    answers.set_item("full_distances", count(|one| one.full_distances.into()))?;
    let by_name = PyDict::new(py);
    for (counter, counts) in own.columns() {
        let counts = counts.iter().map(|count| u64::from(*count)).collect();
        by_name.set_item(counter.name, PyArray1::<u64>::from_vec(py, counts))?;
    }
    answers.set_item("own", by_name)?;
    answers.set_item("latencies_ns", PyArray1::from_vec(py, latencies_ns))?;
    Ok(answers)
}

pub(crate) fn answers(py: Python<'_>, found: SearchResult) -> PyResult<Bound<'_, PyDict>> {
    let answers = per_query(py, &found.per_query, &found.own, found.latencies_ns)?;
    answers.set_item("seconds", found.seconds)?;
    answers.set_item("search_list", found.search_list)?;
    answers.set_item("threads", found.threads)?;
    answers.set_item("notes", found.notes)?;
    answers.set_item("ids", matrix(py, found.ids, found.k)?)?;
    answers.set_item("distances", matrix(py, found.distances, found.k)?)?;
    Ok(answers)
}
