//! Advice on the index to build, and the measurement of devices.

use crate::arrays::vectors;
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::files::metric;
use bathyal_advise::{
    AdviceOptions, AdviceRequest, AdviceTier, IndexLimits, PlanFile, SamplePace, advise as find_advice,
    compare_with_plan,
};
use bathyal_index::{DEFAULT_SEED, Index, IndexError};
use bathyal_tier::Control;
use bathyal_tier::probe::{Mode, ProbeOptions, probe_directory_with};
use bathyal_vectors::progress::Progress;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Steps of the progress of a probe, which reports its progress as a share.
const PROBE_STEPS: u64 = 1000;

/// The options of `advise`, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct AdviceKeywords {
    metric: String,
    k: usize,
    recall: f32,
    vectors: Option<u64>,
    places: Vec<PathBuf>,
    /// An [`IndexLimits`] as JSON.
    limits: String,
    concurrency: u32,
    threads: usize,
    pace: String,
    families: Vec<String>,
    seed: Option<u64>,
    work_folder: Option<PathBuf>,
}

/// Returns the advice as JSON, and the plans of the ranked indexes.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    queries: Option<&Bound<'_, PyAny>>,
    arguments: AdviceKeywords,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    let name = metric(&arguments.metric)?;
    let (data, metric) = vectors(data, "data")?.for_metric(name).map_err(Failure::from)?;
    let queries = queries.map(|queries| vectors(queries, "queries")).transpose()?;
    let queries = queries.map(|queries| queries.for_metric(name)).transpose().map_err(Failure::from)?;
    let pace: SamplePace = serde_json::from_value(arguments.pace.clone().into()).map_err(|_| {
        PyValueError::new_err(format!("pace is {:?}; expected quick, usual or thorough", arguments.pace))
    })?;
    let limits: IndexLimits = serde_json::from_str(&arguments.limits).map_err(Failure::from)?;
    run_detached(py, progress, |watch| -> Result<_, Failure> {
        let tiers: Result<_, IndexError> =
            arguments.places.iter().map(|place| AdviceTier::at(place, watch)).collect();
        let request = AdviceRequest::new(AdviceOptions {
            metric,
            k: arguments.k,
            recall: arguments.recall,
            vectors: arguments.vectors,
            tiers: tiers?,
            limits,
            concurrency: arguments.concurrency,
            threads: arguments.threads,
            pace,
            families: arguments.families,
            seed: arguments.seed.unwrap_or(DEFAULT_SEED),
            work_folder: arguments.work_folder,
            ..AdviceOptions::default()
        })?;
        let advice = find_advice(&data, queries.as_ref().map(|(queries, _)| queries), &request, watch)?;
        let plans = (0..advice.indexes.ranked.len()).filter_map(|rank| PlanFile::of(&advice, rank));
        let plans = plans.map(|plan| plan.text()).collect::<Result<_, _>>()?;
        Ok((serde_json::to_string(&advice)?, plans))
    })
}

/// Compares the index at `path` with the text of its plan, or with the plan that it keeps, by a search with
/// `queries`; returns JSON.
#[pyfunction]
#[pyo3(signature = (path, plan, queries, progress))]
pub(crate) fn check_plan(
    py: Python<'_>,
    path: PathBuf,
    plan: Option<&str>,
    queries: &Bound<'_, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let plan = match plan {
        Some(text) => PlanFile::parse(text).map_err(|why| PyValueError::new_err(format!("plan: {why}")))?,
        None => PlanFile::kept_at(&path).map_err(Failure::from)?,
    };
    let (queries, _) =
        vectors(queries, "queries")?.for_metric(metric(&plan.metric)?).map_err(Failure::from)?;
    run_detached(py, progress, |watch| -> Result<_, Failure> {
        let index = Index::open_attended(&path, &plan.open_options(), watch)?;
        let control = Control { cancel: Some(watch.cancel()), deadline: None };
        Ok(serde_json::to_string(&compare_with_plan(&plan, &index, &queries, control)?)?)
    })
}

/// Measures the device of a folder; returns the report as JSON.
#[pyfunction]
pub(crate) fn probe(
    py: Python<'_>,
    folder: PathBuf,
    thorough: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = ProbeOptions::from(if thorough { Mode::Thorough } else { Mode::Quick });
    run_detached(py, progress, |watch| -> Result<_, Failure> {
        watch.stage("measuring the device", PROBE_STEPS);
        let go_on = |share: f64| {
            watch.advance((share * PROBE_STEPS as f64) as u64);
            !watch.cancelled()
        };
        let report = probe_directory_with(&folder, &options, &go_on).map_err(IndexError::from)?;
        Ok(serde_json::to_string(&report)?)
    })
}
