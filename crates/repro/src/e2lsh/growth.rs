//! The family's index at the ratio asked for, and how its time and that of the paper's tables grow with the number of vectors,
//! beside an exact scan (figure 14).

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

use super::accuracy::{Chosen, candidates};
use super::lab::{BLOCK_BYTES, Lab};
use super::points::{FamilyPoint, Point, hashes_of_theory};
use super::search::Ask;
use crate::numbers::median;
use crate::workload::Questions;

/// S that is tried for a ratio, in units of 2 L: in small steps, since figure 14 compares at one ratio.
const CANDIDATES: [f64; 17] =
    [0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 11.0, 16.0, 23.0, 32.0, 64.0, 128.0];
/// Queries whose exact scan is timed.
const SCANS: usize = 7;

/// What is measured of each number of vectors.
pub(super) struct Grown {
    pub family: Vec<FamilyPoint>,
    pub paper: Vec<Point>,
}

/// Measures the sizes, the whole set last.
pub(super) fn measure(lab: &Lab<'_>, chosen: &Chosen) -> Result<Grown, Failure> {
    let base = &lab.work.base;
    let mut sizes: Vec<usize> = lab.arguments.sizes.iter().map(|size| *size as usize).collect();
    sizes.retain(|size| *size < base.count());
    sizes.sort_unstable();
    sizes.dedup();
    let mut grown = Grown { family: Vec::new(), paper: Vec::new() };
    for size in sizes {
        let rows = (0..size).flat_map(|row| base.row(row).iter().copied()).collect();
        let some = VectorFile::from_rows(base.element(), base.dim(), rows)?;
        let k = lab.arguments.k.iter().copied().max().unwrap_or(1) as usize;
        let queries = &lab.work.all.queries;
        let exact = exact_neighbors(&some, queries, Metric::L2, k, None, &lab.console.progress())?;
        let rows = (0..queries.count()).flat_map(|row| queries.row(row).iter().copied()).collect();
        let queries = VectorFile::from_rows(queries.element(), queries.dim(), rows)?;
        let asked = Questions { queries, exact };
        grown.paper.extend(paper(lab, chosen, &some, &asked)?);
        grown.family.extend(family(lab, &some, &asked)?);
    }
    grown.paper.extend(paper(lab, chosen, base, &lab.work.all)?);
    grown.family.extend(family(lab, base, &lab.work.all)?);
    Ok(grown)
}

/// The paper's tables of some vectors in memory: L = n^rho and m = gamma log n, with rho and gamma as they are of all.
fn paper(
    lab: &Lab<'_>,
    chosen: &Chosen,
    base: &VectorFile,
    asked: &Questions,
) -> Result<Option<Point>, Failure> {
    let (all, ladder) = (lab.work.base.count(), *chosen.built.hashes.ladder());
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
            Some(lab.built(base, lab.plan(ladder, base.count(), BLOCK_BYTES), &name)?)
        }
    };
    let built = smaller.as_ref().unwrap_or(&chosen.built);
    let tier = if whole { chosen.in_memory.clone() } else { lab.in_memory(built)? };
    let k = lab.arguments.k[0] as usize;
    let mut reached = None;
    for times in CANDIDATES {
        let ask = Ask { k, candidates: candidates(times, tables as u32, k), first: 0, ahead: false };
        let outcome = lab.once((base, built), None, &tier, (asked, ask, lab.width()))?;
        if outcome.ratio <= f64::from(lab.arguments.ratio) {
            reached = Some(ask);
            break;
        }
    }
    let point = reached.map(|ask| {
        let again = (0..lab.arguments.repeats)
            .map(|_| lab.once((base, built), None, &tier, (asked, ask, lab.width())));
        let outcomes = again.collect::<Result<Vec<_>, _>>()?;
        let (labels, width) = (("growth", "memory".to_owned()), lab.width());
        let how = (ask, width.threads, width.in_flight);
        Ok::<Point, Failure>(Point::new(labels, built, base.count(), how, &outcomes))
    });
    drop(tier);
    if !whole {
        lab.remove(&name)?;
    }
    point.transpose()
}

/// Finds or builds the family's index of some vectors; what is there under its name is of others where it does not agree.
pub(super) fn built(lab: &Lab<'_>, base: &VectorFile) -> Result<PathBuf, Failure> {
    let path = lab.folder(&format!("lsh-n{}", base.count()));
    if !path.exists() {
        let options = BuildOptions {
            metric: Metric::L2,
            ..BuildOptions::of(FamilyOptions::from(LshOptions::default()))
        };
        bathyal_index::build(base, &path, &options, &lab.console.progress())?;
    }
    let manifest = Manifest::read(&path)?;
    let there = (manifest.family.as_str(), manifest.vectors, manifest.dim as usize, manifest.metric.as_str());
    if there != (FAMILY.name, base.count() as u64, base.dim(), Metric::L2.name()) {
        return Err(Failure::new(format!(
            "{}: is an index of the family {} of {} vectors of {}; one of the family {} of {} of {} is wanted: name another \
             work folder",
            path.display(),
            there.0,
            there.1,
            there.2,
            FAMILY.name,
            base.count(),
            base.dim()
        )));
    }
    Ok(path)
}

/// The family's index of some vectors at the ratio asked for: from its file and in memory.
fn family(lab: &Lab<'_>, base: &VectorFile, asked: &Questions) -> Result<Vec<FamilyPoint>, Failure> {
    let path = built(lab, base)?;
    let scan_ms = scan_ms(base, asked, lab.arguments.k[0] as usize);
    let mut points = Vec::new();
    for (device, tier) in [("file", TierChoice::default()), ("memory", TierChoice::Dram)] {
        let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() })?;
        for k in &lab.arguments.k {
            let options = SearchOptions {
                k: *k as usize,
                effort: Effort::Ratio(lab.arguments.ratio),
                threads: 1,
                ..SearchOptions::default()
            };
            let run = || index.search(&asked.queries, &options, lab.control);
            run()?;
            let repeats = (0..lab.arguments.repeats).map(|_| run());
            let results = repeats.collect::<Result<Vec<_>, _>>()?;
            points.push(point(lab, &index, (device, *k as usize, scan_ms), asked, &results)?);
        }
    }
    Ok(points)
}

fn point(
    lab: &Lab<'_>,
    index: &Index,
    (device, k, scan_ms): (&'static str, usize, f64),
    asked: &Questions,
    results: &[SearchResult],
) -> Result<FamilyPoint, Failure> {
    let (found, queries) = (&results[0], asked.queries.count());
    let mut ratio = OverallRatio::new(Metric::L2, &asked.exact)
        .ok_or_else(|| Failure::new("the exact neighbours have no distances; compute them again"))?;
    ratio.add(&asked.exact, &found.ids, &found.distances, found.k, queries)?;
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    let qps = |found: &SearchResult| queries as f64 / found.seconds.max(1e-9);
    let latency = |found: &SearchResult| mean(found.latencies_ns.iter().sum());
    Ok(FamilyPoint {
        experiment: "ratio",
        device,
        vectors: index.len(),
        k,
        asked: lab.arguments.ratio,
        ratio: ratio.mean().unwrap_or(f64::NAN),
        ratio_p99: ratio.p99().unwrap_or(f64::NAN),
        recall: recall(&asked.exact, &found.ids, found.k, queries)?,
        probes: found.probes.unwrap_or(0),
        search_list: found.search_list,
        reads: mean(found.totals.reads),
        table_reads: mean(found.totals.own.of("table_reads").unwrap_or(0)),
        qps: median(results.iter().map(qps).collect()),
        latency_ns: median(results.iter().map(latency).collect()),
        samples: results.iter().map(qps).collect(),
        index_bytes: index.manifest().index_bytes(),
        memory_bytes: index.dram_bytes(1, lab.arguments.in_flight as usize, found.search_list),
        scan_ms,
    })
}

/// Milliseconds that one thread takes for one query by comparing it with all vectors: the median.
fn scan_ms(base: &VectorFile, asked: &Questions, k: usize) -> f64 {
    let one = |row: usize| {
        let began = Instant::now();
        std::hint::black_box(scan(base, Metric::L2, asked.queries.row(row % asked.queries.count()), k));
        began.elapsed().as_secs_f64() * 1e3
    };
    one(0);
    median((0..SCANS).map(one).collect())
}
