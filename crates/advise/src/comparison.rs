//! The comparison of a built index with its plan.

use crate::interval::Interval;
use crate::plan_file::PlanFile;
use bathyal_index::{Effort, Index, IndexError, SearchOptions, SearchResult};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};

/// Searches whose median speed is compared with the prediction.
const SEARCHES: usize = 3;

/// A predicted number and the measured one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedNumber {
    /// The name of the number, with its unit.
    pub name: String,
    /// The predicted number.
    pub predicted: Interval,
    /// The measured number.
    pub measured: f64,
    /// `measured / predicted`.
    pub ratio: f64,
    /// True if the measured number is in the interval.
    pub within: bool,
}

/// The comparison of an index with its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanComparison {
    /// The numbers.
    pub numbers: Vec<ComparedNumber>,
    /// Sentences that name the assumptions that did not hold.
    pub failed: Vec<String>,
}

/// Searches an open index with `queries` as its plan assumes, and compares sizes, counters and speed.
///
/// # Errors
/// Those of the search; [`IndexError::Parameter`] for an index of another family, shape or metric.
pub fn compare_with_plan(
    plan: &PlanFile,
    index: &Index,
    queries: &VectorFile,
    control: Control<'_>,
) -> Result<PlanComparison, IndexError> {
    let manifest = index.manifest();
    let (element, metric) = (manifest.element.as_str(), manifest.metric.as_str());
    let fits = plan.check_fits(manifest.vectors, manifest.dim, element, metric);
    let refused = |error| IndexError::Parameter(format!("{}: {error}", index.path().display()));
    let mut failed: Vec<String> = fits.map_err(refused)?.into_iter().collect();
    if manifest.family != plan.index.build.family {
        return Err(IndexError::Parameter(format!(
            "{}: is of family {}, and its plan of {}",
            index.path().display(),
            manifest.family,
            plan.index.build.family
        )));
    }
    let threads = plan.threads.min(plan.concurrency as usize).max(1);
    let search = SearchOptions {
        k: plan.k,
        effort: Effort::Recall(plan.recall),
        threads,
        in_flight: Some((plan.concurrency as usize).div_ceil(threads)),
        ..SearchOptions::default()
    };
    let found = median_search(index, queries, &search, control)?;
    let count = queries.count().max(1) as f64;
    let mut latencies = found.latencies_ns.clone();
    latencies.sort_unstable();
    let quantile = |share: f64| {
        let at = ((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1));
        latencies.get(at).copied().unwrap_or(0) as f64 / 1e3
    };
    let expected = &plan.index;
    // A prediction for memory of another kind does not count the pages that are there.
    let elsewhere = if plan.has_pages_elsewhere() { index.memory_split().pages } else { 0 };
    let dram_bytes = index.dram_bytes_of(&found, &search).saturating_sub(elsewhere);
    let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mut numbers = vec![
        compared("index bytes", expected.disk_bytes, files as f64),
        compared("memory bytes", expected.dram_bytes, dram_bytes as f64),
        compared("build seconds", expected.build_seconds, manifest.build_seconds),
        compared("rounds a query", expected.rounds, found.totals.hops as f64 / count),
        compared("reads a query", expected.reads, found.totals.reads as f64 / count),
        compared("bytes a query", expected.read_bytes, found.totals.bytes as f64 / count),
    ];
    if let Some(load) = expected.load(plan.concurrency) {
        let qps = if found.seconds > 0.0 { count / found.seconds } else { 0.0 };
        numbers.push(compared("queries a second", load.queries_per_second, qps));
        numbers.push(compared("p50 in us", load.p50_us, quantile(0.5)));
        numbers.push(compared("p99 in us", load.p99_us, quantile(0.99)));
    }
    failed.extend(numbers.iter().filter(|number| !number.within).map(|number| {
        format!("{} is {:.2} times the prediction, outside of its interval", number.name, number.ratio)
    }));
    Ok(PlanComparison { numbers, failed })
}

/// Searches several times and returns the search of median time. The first one warms caches and does not
/// count.
fn median_search(
    index: &Index,
    queries: &VectorFile,
    search: &SearchOptions,
    control: Control<'_>,
) -> Result<SearchResult, IndexError> {
    index.search(queries, search, control)?;
    let mut found =
        (0..SEARCHES).map(|_| index.search(queries, search, control)).collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(found.swap_remove(SEARCHES / 2))
}

pub(crate) fn compared(name: &str, predicted: Interval, measured: f64) -> ComparedNumber {
    let ratio = if predicted.value > 0.0 { measured / predicted.value } else { f64::from(measured == 0.0) };
    ComparedNumber { name: name.into(), predicted, measured, ratio, within: predicted.contains(measured) }
}
