//! Advice on the index to build, and the measurement of devices.

use crate::arrays::vectors;
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::files::metric;
use crate::stores::{Pairs, store_options};
use bathyal_advise::page::page_part;
use bathyal_advise::{
    Advice, AdviceOptions, AdvicePrices, AdviceRequest, AdviceTier, AssumedData, IndexLimits, PageFormat,
    PlanFile, SamplePace, VectorShape, advise as find_advice, compare_with_plan,
};
use bathyal_index::{DEFAULT_SEED, Index, IndexError, StoreOptions};
use bathyal_kernels::Element;
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
    more_recalls: Vec<f32>,
    ratio: Option<f32>,
    vectors: Option<u64>,
    dim: Option<usize>,
    element: String,
    filters: Vec<f64>,
    rows_a_day: Option<u64>,
    places: Vec<PathBuf>,
    store: Pairs,
    /// An [`IndexLimits`] as JSON.
    limits: String,
    /// An [`AdvicePrices`] as JSON.
    prices: String,
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
    data: Option<&Bound<'_, PyAny>>,
    queries: Option<&Bound<'_, PyAny>>,
    arguments: AdviceKeywords,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<String>)> {
    let name = metric(&arguments.metric)?;
    let data = data.map(|data| vectors(data, "data")).transpose()?;
    let shape = match (arguments.vectors, arguments.dim) {
        (Some(count), Some(dim)) => Some(VectorShape { element: element(&arguments.element)?, dim, count }),
        _ => None,
    };
    let queries = queries.map(|queries| vectors(queries, "queries")).transpose()?;
    let queries = queries.map(|queries| queries.for_metric(name)).transpose().map_err(Failure::from)?;
    let pace: SamplePace = serde_json::from_value(arguments.pace.clone().into()).map_err(|_| {
        PyValueError::new_err(format!("pace is {:?}; expected quick, usual or thorough", arguments.pace))
    })?;
    let limits: IndexLimits = serde_json::from_str(&arguments.limits).map_err(Failure::from)?;
    let prices: AdvicePrices = serde_json::from_str(&arguments.prices)
        .map_err(|error| PyValueError::new_err(format!("prices: {error}")))?;
    let store = store_options(arguments.store)?;
    let seed = arguments.seed.unwrap_or(DEFAULT_SEED);
    run_detached(py, progress, |watch| -> Result<_, Failure> {
        let (data, assumed) = match (data, shape) {
            (Some(data), _) => (data, None),
            (None, Some(shape)) => {
                let assumed = AssumedData::of_dim(shape.dim);
                (assumed.vectors(shape, pace.rows(), seed, watch)?, Some(assumed))
            }
            (None, None) => {
                return Err(IndexError::Parameter("neither data nor its shape is given".into()).into());
            }
        };
        let (data, metric) = data.for_metric(name)?;
        let tiers = AdviceTier::all_at(&arguments.places, &store, watch)?;
        let request = AdviceRequest::new(AdviceOptions {
            metric,
            k: arguments.k,
            recall: arguments.recall,
            more_recalls: arguments.more_recalls,
            ratio: arguments.ratio,
            vectors: arguments.vectors,
            assumed,
            filters: arguments.filters,
            rows_a_day: arguments.rows_a_day,
            tiers,
            limits,
            concurrency: arguments.concurrency,
            threads: arguments.threads,
            pace,
            families: arguments.families,
            seed,
            prices,
            work_folder: arguments.work_folder,
        })?;
        let advice = find_advice(&data, queries.as_ref().map(|(queries, _)| queries), &request, watch)?;
        Ok((serde_json::to_string(&advice)?, plans(&advice)?))
    })
}

/// Returns the plans of the ranked indexes of an advice, which is given as JSON.
#[pyfunction]
pub(crate) fn advice_plans(report: &str) -> PyResult<Vec<String>> {
    let advice: Advice = serde_json::from_str(report).map_err(Failure::from)?;
    Ok(plans(&advice)?)
}

/// Returns an advice, given as JSON, as the text of the file `path`, whose ending names the format; without a
/// file, as a part of a page.
#[pyfunction]
pub(crate) fn advice_page(report: &str, path: Option<PathBuf>) -> PyResult<String> {
    let advice: Advice = serde_json::from_str(report).map_err(Failure::from)?;
    let text = match path {
        Some(path) => PageFormat::of_file(&path).and_then(|format| format.text(&advice)),
        None => page_part(&advice),
    };
    Ok(text.map_err(Failure::from)?)
}

/// Returns the texts of the plans of the ranked indexes.
fn plans(advice: &Advice) -> Result<Vec<String>, Failure> {
    let plans = (0..advice.indexes.ranked.len()).filter_map(|rank| PlanFile::of(advice, rank));
    Ok(plans.map(|plan| plan.text()).collect::<Result<_, _>>()?)
}

/// Parses the name of an element.
fn element(name: &str) -> PyResult<Element> {
    name.parse().map_err(|error| PyValueError::new_err(format!("element: {error}")))
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
        None => PlanFile::kept_at(&path, &StoreOptions::default()).map_err(Failure::from)?,
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
