//! Accuracy against reads: the paper's parameters gamma and S (sections 3.3 and 4.3), the sizes of blocks
//! (figure 3), and the parameters that reach the requested ratio.

use std::sync::Arc;

use bathyal_console::Failure;
use bathyal_tier::Tier;

use super::build::{BuiltTables, TablePlan};
use super::experiment::{BLOCK_BYTES, E2lshExperiment};
use super::points::PaperPoint;
use super::search::SearchParameters;

/// Values of S, the most vectors compared at a radius, in units of 2 L: the value of equation 5, smaller and
/// larger ones.
const CANDIDATES: [f64; 10] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The tables for all further measurements, in memory, and the search parameters for each k.
pub(super) struct ChosenTables {
    pub built: BuiltTables,
    pub name: String,
    pub in_memory: Arc<dyn Tier>,
    /// For each k, the search that reaches the ratio with the least processor time, or comes closest to it.
    pub searches: Vec<SearchParameters>,
}

/// Returns S for `k`: `times` 2 L, and k - 1 more.
pub(super) fn candidates(times: f64, tables: u32, k: usize) -> usize {
    (times * 2.0 * f64::from(tables)).round() as usize + k - 1
}

/// The best tables so far.
struct BestTables {
    plan: TablePlan,
    name: String,
    /// Seconds of the build; `None` if the tables existed already.
    seconds: Option<f64>,
    searches: Vec<SearchParameters>,
    /// Processor time of a query that reaches the ratio for the first k; infinite if none does.
    cost_ns: f64,
}

/// Builds tables with each number of hashes, measures them with each S, and keeps the tables that answer the
/// first k best.
pub(super) fn measure(experiment: &E2lshExperiment<'_>) -> Result<(Vec<PaperPoint>, ChosenTables), Failure> {
    let base = &experiment.work.base;
    let (mut points, mut best): (Vec<PaperPoint>, Option<BestTables>) = (Vec::new(), None);
    for hashes in experiment.hashes() {
        let name = format!("paper-m{hashes}-b{BLOCK_BYTES}");
        let plan = experiment.plan(experiment.ladder(hashes), base.count(), BLOCK_BYTES);
        let (measured, seconds) = measure_tables(experiment, plan, &name)?;
        let searches = experiment
            .arguments
            .k
            .iter()
            .filter_map(|k| at_ratio(&measured, *k as usize, experiment.arguments.ratio));
        let first = at_ratio(&measured, experiment.arguments.k[0] as usize, experiment.arguments.ratio);
        let cost_ns = first
            .filter(|point| point.ratio <= f64::from(experiment.arguments.ratio))
            .map_or(f64::INFINITY, |point| point.processor_ns);
        if best.as_ref().is_some_and(|best| best.cost_ns <= cost_ns) {
            experiment.remove(&name)?;
        } else {
            let searches = searches.map(parameters_of).collect();
            if let Some(previous) = best.replace(BestTables { plan, name, seconds, searches, cost_ns }) {
                experiment.remove(&previous.name)?;
            }
        }
        points.extend(measured);
    }
    let BestTables { plan, name, seconds, searches, .. } =
        best.ok_or_else(|| Failure::usage("--gammas is empty; give at least one value"))?;
    let built = BuiltTables { seconds, ..experiment.find_or_build(base, plan, &name)? };
    let in_memory = experiment.in_memory(&built)?;
    Ok((points, ChosenTables { built, name, in_memory, searches }))
}

/// Measures tables for each k; returns the points, and the seconds of the build.
fn measure_tables(
    experiment: &E2lshExperiment<'_>,
    plan: TablePlan,
    name: &str,
) -> Result<(Vec<PaperPoint>, Option<f64>), Failure> {
    let built = experiment.find_or_build(&experiment.work.base, plan, name)?;
    let (tier, mut points) = (experiment.in_memory(&built)?, Vec::new());
    for k in &experiment.arguments.k {
        points.extend(measure_efforts(experiment, &built, &tier, *k as usize)?);
    }
    Ok((points, built.seconds))
}

/// Searches with each S, until a larger S compares no more vectors.
fn measure_efforts(
    experiment: &E2lshExperiment<'_>,
    built: &BuiltTables,
    tier: &Arc<dyn Tier>,
    k: usize,
) -> Result<Vec<PaperPoint>, Failure> {
    let mut points: Vec<PaperPoint> = Vec::new();
    for times in CANDIDATES {
        let parameters = SearchParameters {
            k,
            candidates: candidates(times, experiment.arguments.tables, k),
            first: 0,
            read_ahead: false,
        };
        let labels = ("accuracy", format!("S = {times} x 2 L"));
        let point = experiment.measure(
            (&experiment.work.base, built),
            None,
            tier,
            labels,
            (&experiment.work.all, parameters),
        )?;
        let more = points.last().is_none_or(|last| point.compared > last.compared * 1.001);
        points.push(point);
        if !more {
            break;
        }
    }
    Ok(points)
}

/// Returns the point for `k` that reaches the ratio with the least processor time, or the one with the
/// smallest ratio if none does.
pub(super) fn at_ratio(points: &[PaperPoint], k: usize, ratio: f32) -> Option<&PaperPoint> {
    let of_k = || points.iter().filter(|point| point.k == k);
    let enough = of_k().filter(|point| point.ratio <= f64::from(ratio));
    enough
        .min_by(|a, b| a.processor_ns.total_cmp(&b.processor_ns))
        .or_else(|| of_k().min_by(|a, b| a.ratio.total_cmp(&b.ratio)))
}

/// Returns the search parameters of a point.
fn parameters_of(point: &PaperPoint) -> SearchParameters {
    SearchParameters { k: point.k, candidates: point.candidates, first: 0, read_ahead: false }
}

/// Measures reads with other block sizes, with the hashes of the chosen tables (figure 3).
pub(super) fn block_sizes(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<Vec<PaperPoint>, Failure> {
    let (base, mut points) = (&experiment.work.base, Vec::new());
    let ladder = *chosen.built.hashes.ladder();
    let mut sizes = experiment.arguments.block_sizes.clone();
    sizes.retain(|bytes| *bytes != BLOCK_BYTES);
    for bytes in sizes {
        let name = format!("paper-m{}-b{bytes}", ladder.hashes);
        let built = experiment.find_or_build(base, experiment.plan(ladder, base.count(), bytes), &name)?;
        let tier = experiment.in_memory(&built)?;
        let mut of_size = measure_efforts(experiment, &built, &tier, experiment.arguments.k[0] as usize)?;
        of_size.iter_mut().for_each(|point| point.experiment = "block size");
        points.extend(of_size);
        drop(tier);
        experiment.remove(&name)?;
    }
    Ok(points)
}
