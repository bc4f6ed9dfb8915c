//! Building indexes.

use crate::arrays::vectors;
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::files::metric;
use crate::index::{card, stripe_options};
use crate::stores::{Pairs, store_options};
use bathyal_advise::{FamilyChoice, PlanFile};
use bathyal_index::families::{self, FAMILIES};
use bathyal_index::{
    BuildOptions, BuildReport, DEFAULT_SEED, GivenOptions, IndexError, MOST_CALIBRATION_QUERIES, StoreAs,
};
use bathyal_vectors::VectorFile;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Serialize;
use std::path::PathBuf;

/// The options of `build`, from a dictionary of the package.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct BuildKeywords<'py> {
    metric: String,
    family: Option<String>,
    /// The options of the family, as JSON.
    options: String,
    threads: usize,
    seed: Option<u64>,
    memory: Option<u64>,
    overwrite: bool,
    store_as: Option<String>,
    calibration: Option<Bound<'py, PyAny>>,
    stripe: Vec<PathBuf>,
    stripe_unit: Option<u64>,
    store: Pairs,
    device: String,
    /// The plan of an advice, as JSON.
    advice: Option<String>,
}

/// A build that is to be done.
struct Building {
    options: BuildOptions,
    data: VectorFile,
    /// Notes for the user.
    notes: Vec<String>,
    /// True if neither a family nor options of one are given.
    is_undecided: bool,
}

impl BuildKeywords<'_> {
    /// Returns the options of the library, with the vectors in the element that the metric compares.
    fn building(self, data: &Bound<'_, PyAny>) -> PyResult<Building> {
        let name = metric(&self.metric)?;
        let under =
            |vectors: VectorFile| -> PyResult<_> { Ok(vectors.for_metric(name).map_err(Failure::from)?) };
        let (data, metric) = under(vectors(data, "data")?)?;
        let calibration =
            self.calibration.as_ref().map(|queries| under(vectors(queries, "calibration")?)).transpose()?;
        let calibration = calibration.map(|(queries, _)| queries);
        let given: GivenOptions = serde_json::from_str(&self.options).map_err(Failure::from)?;
        let is_undecided = self.family.is_none() && given.is_empty();
        let family = self.family.as_deref().unwrap_or(FAMILIES[0].name);
        let family = families::options(family, &given).map_err(Failure::from)?;
        let plan = self.advice.as_deref().map(PlanFile::parse).transpose();
        let plan = plan.map_err(|why| PyValueError::new_err(format!("advice: {why}")))?;
        let seed = self.seed.or(plan.as_ref().map(|plan| plan.seed)).unwrap_or(DEFAULT_SEED);
        let options = BuildOptions {
            metric,
            family,
            threads: self.threads,
            seed,
            memory_bytes: self.memory,
            overwrite: self.overwrite,
            store_as: self.store_as.as_deref().map(store_as).transpose()?,
            stored_before: None,
            calibration,
            calibration_queries: MOST_CALIBRATION_QUERIES,
            stripe: stripe_options(self.stripe, self.stripe_unit),
            store: store_options(self.store)?,
            card: card(&self.device)?,
            plan: None,
        };
        let Some(plan) = plan else {
            return Ok(Building { options, data, notes: Vec::new(), is_undecided });
        };
        let (element, count, dim) = (data.element(), data.count() as u64, data.dim() as u32);
        let fits = plan.check_fits(count, dim, element.name(), metric.name_over(element));
        let notes = fits.map_err(Failure::from)?.into_iter().collect();
        let options = plan.build_options(options).map_err(Failure::from)?;
        Ok(Building { options, data, notes, is_undecided: false })
    }
}

/// Returns the stored form of this name.
fn store_as(name: &str) -> PyResult<StoreAs> {
    name.parse().map_err(|what| Failure::from(IndexError::Parameter(what)).into())
}

/// Returns the plan of a build over a path or an array as JSON. Nothing is built.
#[pyfunction]
pub(crate) fn plan(data: &Bound<'_, PyAny>, arguments: BuildKeywords<'_>) -> PyResult<String> {
    let Building { options, data, .. } = arguments.building(data)?;
    let plan = bathyal_index::plan_build(&data, &options).map_err(Failure::from)?;
    Ok(serde_json::to_string(&plan).map_err(Failure::from)?)
}

/// The report of a build with notes for the user.
#[derive(Serialize)]
struct NotedBuild {
    #[serde(flatten)]
    report: BuildReport,
    /// The family that was chosen, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<FamilyChoice>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Builds an index over a path or an array; returns the report as JSON.
#[pyfunction]
pub(crate) fn build(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    path: PathBuf,
    arguments: BuildKeywords<'_>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let Building { mut options, data, notes, is_undecided } = arguments.building(data)?;
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        let chosen = if is_undecided { FamilyChoice::of_build(&data, &path, &options, watch)? } else { None };
        if let Some(choice) = &chosen {
            options = choice.build_options(options)?;
        }
        let report = bathyal_index::build(&data, &path, &options, watch)?;
        Ok(serde_json::to_string(&NotedBuild { report, chosen, notes })?)
    })
}
