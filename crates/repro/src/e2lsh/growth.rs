//! The family's index at the requested ratio, and how its time and that of the paper's tables grow with the
//! number of vectors, compared with an exact scan (figure 14).

use std::path::PathBuf;
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_index::families::lsh::{FAMILY, LshOptions};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, Effort, FamilyOptions, Index, OpenOptions, SearchOptions, SearchResult, TierChoice,
};
use bathyal_kernels::Metric;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{OverallRatio, exact_neighbors, recall, scan};

use super::accuracy::{ChosenTables, candidates};
use super::experiment::{BLOCK_BYTES, E2lshExperiment};
use super::points::{FamilyPoint, PaperPoint, hashes_of_theory};
use super::search::SearchParameters;
use crate::numbers::median;
use crate::workload::QuerySet;

/// Values of S, in units of 2 L, tried until the ratio is reached. The steps are small because figure 14
/// compares at one ratio.
const CANDIDATES: [f64; 17] =
    [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 11.0, 16.0, 23.0, 32.0, 64.0, 128.0];
/// Queries of the timed exact scan.
const SCANS: usize = 7;

/// Points for each number of vectors.
pub(super) struct GrowthPoints {
    pub family: Vec<FamilyPoint>,
    pub paper: Vec<PaperPoint>,
}

/// Measures the sizes, the whole set last.
pub(super) fn measure(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<GrowthPoints, Failure> {
    let base = &experiment.work.base;
    let mut sizes: Vec<usize> = experiment.arguments.sizes.iter().map(|size| *size as usize).collect();
    sizes.retain(|size| *size < base.count());
    sizes.sort_unstable();
    sizes.dedup();
    let mut grown = GrowthPoints { family: Vec::new(), paper: Vec::new() };
    for size in sizes {
        let rows = (0..size).flat_map(|row| base.row(row).iter().copied()).collect();
        let some = VectorFile::from_rows(base.element(), base.dim(), rows)?;
        let k = experiment.arguments.k.iter().copied().max().unwrap_or(1) as usize;
        let queries = &experiment.work.all.queries;
        let exact = exact_neighbors(&some, queries, Metric::L2, k, None, &experiment.console.progress())?;
        let rows = (0..queries.count()).flat_map(|row| queries.row(row).iter().copied()).collect();
        let queries = VectorFile::from_rows(queries.element(), queries.dim(), rows)?;
        let query_set = QuerySet { queries, exact };
        grown.paper.extend(measure_paper(experiment, chosen, &some, &query_set)?);
        grown.family.extend(measure_family(experiment, &some, &query_set)?);
    }
    grown.paper.extend(measure_paper(experiment, chosen, base, &experiment.work.all)?);
    grown.family.extend(measure_family(experiment, base, &experiment.work.all)?);
    Ok(grown)
}

/// Measures the paper's tables over some vectors in memory, with L = n^rho and m = gamma log n for the rho
/// and gamma of the whole set; `None` if no S reaches the ratio.
fn measure_paper(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
    base: &VectorFile,
    query_set: &QuerySet,
) -> Result<Option<PaperPoint>, Failure> {
    let (all, ladder) = (experiment.work.base.count(), *chosen.built.hashes.ladder());
    let rho = (ladder.tables as f64).ln() / (all as f64).ln();
    let gamma = ladder.hashes as f64 / hashes_of_theory(&ladder, all);
    let tables = (base.count() as f64).powf(rho).round().max(1.0) as usize;
    let hashes = (gamma * hashes_of_theory(&ladder, base.count())).round().max(1.0) as usize;
    let whole = base.count() == all;
    let name = format!("paper-n{}", base.count());
    let smaller = match whole {
        true => None,
        false => {
            let ladder = bathyal_kernels::lsh::Ladder { tables, hashes, ..ladder };
            Some(experiment.find_or_build(base, experiment.plan(ladder, base.count(), BLOCK_BYTES), &name)?)
        }
    };
    let built = smaller.as_ref().unwrap_or(&chosen.built);
    let tier = if whole { chosen.in_memory.clone() } else { experiment.in_memory(built)? };
    let k = experiment.arguments.k[0] as usize;
    let mut reached = None;
    for times in CANDIDATES {
        let parameters = SearchParameters {
            k,
            candidates: candidates(times, tables as u32, k),
            first: 0,
            read_ahead: false,
        };
        let outcome = experiment.search_once(
            (base, built),
            None,
            &tier,
            query_set,
            parameters,
            experiment.parallelism(),
        )?;
        if outcome.ratio <= f64::from(experiment.arguments.ratio) {
            reached = Some(parameters);
            break;
        }
    }
    let point = reached.map(|parameters| {
        let again = (0..experiment.arguments.repeats).map(|_| {
            experiment.search_once(
                (base, built),
                None,
                &tier,
                query_set,
                parameters,
                experiment.parallelism(),
            )
        });
        let outcomes = again.collect::<Result<Vec<_>, _>>()?;
        let (labels, parallelism) = (("growth", "memory".to_owned()), experiment.parallelism());
        let vectors = base.count();
        let point = PaperPoint::new(labels, built, vectors, parameters, parallelism, &outcomes);
        Ok::<PaperPoint, Failure>(point)
    });
    drop(tier);
    if !whole {
        experiment.remove(&name)?;
    }
    point.transpose()
}

/// Finds or builds the family's index over some vectors; an existing index over others is an error.
pub(super) fn find_or_build(experiment: &E2lshExperiment<'_>, base: &VectorFile) -> Result<PathBuf, Failure> {
    let path = experiment.folder(&format!("lsh-n{}", base.count()));
    if !path.exists() {
        let options = BuildOptions {
            metric: Metric::L2,
            ..BuildOptions::of(FamilyOptions::from(LshOptions::default()))
        };
        bathyal_index::build(base, &path, &options, &experiment.console.progress())?;
    }
    let manifest = Manifest::read(&path)?;
    let found = (manifest.family.as_str(), manifest.vectors, manifest.dim as usize, manifest.metric.as_str());
    if found != (FAMILY.name, base.count() as u64, base.dim(), Metric::L2.name()) {
        return Err(Failure::new(format!(
            "{}: holds an index of the family {} over {} vectors of {} dimensions, but this run needs the \
             family {} over {} of {}; name another work folder",
            path.display(),
            found.0,
            found.1,
            found.2,
            FAMILY.name,
            base.count(),
            base.dim()
        )));
    }
    Ok(path)
}

/// Measures the family's index over some vectors at the requested ratio, from its file and in memory.
fn measure_family(
    experiment: &E2lshExperiment<'_>,
    base: &VectorFile,
    query_set: &QuerySet,
) -> Result<Vec<FamilyPoint>, Failure> {
    let path = find_or_build(experiment, base)?;
    let scan_ms = scan_ms(base, query_set, experiment.arguments.k[0] as usize);
    let mut points = Vec::new();
    for (device, tier) in [("file", TierChoice::default()), ("memory", TierChoice::Dram)] {
        let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() })?;
        for k in &experiment.arguments.k {
            let options = SearchOptions {
                k: *k as usize,
                effort: Effort::Ratio(experiment.arguments.ratio),
                threads: 1,
                ..SearchOptions::default()
            };
            let run = || index.search(&query_set.queries, &options, experiment.control);
            run()?;
            let repeats = (0..experiment.arguments.repeats).map(|_| run());
            let results = repeats.collect::<Result<Vec<_>, _>>()?;
            points.push(point(experiment, &index, (device, *k as usize, scan_ms), query_set, &results)?);
        }
    }
    Ok(points)
}

fn point(
    experiment: &E2lshExperiment<'_>,
    index: &Index,
    (device, k, scan_ms): (&'static str, usize, f64),
    query_set: &QuerySet,
    results: &[SearchResult],
) -> Result<FamilyPoint, Failure> {
    let (found, queries) = (&results[0], query_set.queries.count());
    let mut ratio = OverallRatio::new(Metric::L2, &query_set.exact)
        .ok_or_else(|| Failure::new("the exact neighbours have no distances; compute them again"))?;
    ratio.add(&query_set.exact, &found.ids, &found.distances, found.k, queries)?;
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    let qps = |found: &SearchResult| queries as f64 / found.seconds.max(1e-9);
    let latency = |found: &SearchResult| mean(found.latencies_ns.iter().sum());
    Ok(FamilyPoint {
        experiment: "ratio",
        device,
        vectors: index.len(),
        k,
        asked: experiment.arguments.ratio,
        ratio: ratio.mean().unwrap_or(f64::NAN),
        ratio_p99: ratio.p99().unwrap_or(f64::NAN),
        recall: recall(&query_set.exact, &found.ids, found.k, queries)?,
        probes: found.probes.unwrap_or(0),
        search_list: found.search_list,
        reads: mean(found.totals.reads),
        table_reads: mean(found.totals.own.of("table_reads").unwrap_or(0)),
        qps: median(results.iter().map(qps).collect()),
        latency_ns: median(results.iter().map(latency).collect()),
        samples: results.iter().map(qps).collect(),
        index_bytes: index.manifest().index_bytes(),
        memory_bytes: index.dram_bytes(1, experiment.arguments.in_flight as usize, found.search_list),
        scan_ms,
    })
}

/// Returns the median milliseconds in which one thread compares one query with all vectors.
fn scan_ms(base: &VectorFile, query_set: &QuerySet, k: usize) -> f64 {
    let scan_one = |row: usize| {
        let began = Instant::now();
        let query = query_set.queries.row(row % query_set.queries.count());
        std::hint::black_box(scan(base, Metric::L2, query, k));
        began.elapsed().as_secs_f64() * 1e3
    };
    scan_one(0);
    median((0..SCANS).map(scan_one).collect())
}
