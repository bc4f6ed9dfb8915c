//! `bathyal bench`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bathyal_console::process_time::processor_seconds;
use bathyal_console::{Console, Failure, Kind};
use bathyal_index::{Effort, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::exact::{self, Judge};
use super::exact_scan::ExactScan;
use super::measurement::{Measurement, Spent, open, search_options};
use super::not_counted::NotCounted;
use super::plot;
use super::stripes::lines;
use crate::arguments::BenchArguments;

/// Factor between successive efforts: about seven points from recall 0.8 to 0.99.
const EFFORT_STEP: f64 = 1.4;

/// Most efforts of the default sweep: from k to about 30 k.
const EFFORTS: usize = 11;

/// The default sweep ends at this recall, beyond which more effort gains nothing.
const ENOUGH_RECALL: f64 = 0.999;

#[derive(Serialize)]
struct BenchOutput<'a> {
    index: String,
    queries: String,
    repeats: u32,
    points: &'a [Measurement],
    /// The exact scan without an index; null without `--data`.
    exact_scan: Option<ExactScan>,
    jsonl: String,
    plot: String,
}

pub(super) fn run(arguments: &BenchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    let sweep = sweep(arguments)?;
    let began = Instant::now();
    let index = open(&arguments.index, settings, &sweep, console)?;
    let open_seconds = began.elapsed().as_secs_f64();
    index.wait(Control { cancel: Some(console.interrupt().flag()), deadline: None })?;
    let queries = console.open_vectors(&arguments.queries)?;
    let k = (settings.k as usize).min(index.len());
    let exact = exact::open(&arguments.groundtruth, &index, k, queries.count())?;
    let jsonl = output(arguments, "jsonl");
    let plot_path = output(arguments, "svg");
    // Find an output that cannot be written before the work.
    write(&jsonl, "")?;

    let scan = |data: &PathBuf| ExactScan::measure(data, &index, &queries, (k, settings.threads), console);
    let exact_scan = arguments.data.as_ref().map(scan).transpose()?;
    let progress = console.progress();
    progress.stage("measuring", sweep.len() as u64 * u64::from(arguments.repeats));
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let mut points = Vec::with_capacity(sweep.len());
    for (step, options) in sweep.iter().enumerate() {
        let mut runs = Vec::with_capacity(arguments.repeats as usize);
        for repeat in 0..arguments.repeats {
            let before = processor_seconds();
            let found = index.search(&queries, options, control)?;
            let processor_seconds = before.zip(processor_seconds()).map(|(before, after)| after - before);
            let spent = Spent { open_seconds, processor_seconds };
            let mut judge = Judge::new(&exact, index.metric());
            judge.add(0..queries.count(), &found.ids, &found.distances, found.k)?;
            let shape = (k, found.threads);
            let not_counted =
                NotCounted::of(&index, &settings.tier, &queries, queries.count(), shape, Some(&exact));
            let quality = judge.quality();
            runs.push(Measurement::of(&index, settings, options, &found, quality, spent, not_counted));
            progress.advance(step as u64 * u64::from(arguments.repeats) + u64::from(repeat) + 1);
        }
        points.extend(median(runs));
        let reached = points.last().and_then(|point| point.quality.recall);
        if arguments.search_lists.is_empty() && reached.is_some_and(|recall| recall >= ENOUGH_RECALL) {
            break;
        }
    }
    drop(progress);

    write(&jsonl, &json_lines(&points)?)?;
    let title = format!("{} ({})", arguments.index.display(), points[0].tier);
    plot::recall_against_throughput(&plot_path, &title, &points)?;
    let answer = BenchOutput {
        index: arguments.index.display().to_string(),
        queries: arguments.queries.display().to_string(),
        repeats: arguments.repeats,
        points: &points,
        exact_scan,
        jsonl: jsonl.display().to_string(),
        plot: plot_path.display().to_string(),
    };
    let mut text = table(&points);
    text += &answer.exact_scan.as_ref().map_or(String::new(), ExactScan::line);
    if let Some(device) = settings.emulated() {
        let _ = writeln!(text, "emulated device {device}: latency and bandwidth are injected");
    }
    if let Some(last) = points.last() {
        text += lines(&last.parts).trim_start();
        text += if last.parts.is_empty() { "" } else { "\n" };
    }
    let _ = write!(text, "written: {} {}", answer.jsonl, answer.plot);
    console.answer(&answer, &text)
}

/// Returns the options of each search to measure.
fn sweep(arguments: &BenchArguments) -> Result<Vec<SearchOptions>, Failure> {
    let efforts = efforts(&arguments.search_lists, arguments.settings.k).into_iter();
    efforts.map(|list| search_options(&arguments.settings, Effort::SearchList(list))).collect()
}

/// Returns the efforts to measure: `given`, or if it is empty a geometric sweep from `k` up.
fn efforts(given: &[u32], k: u32) -> Vec<u32> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let sweep = (0..EFFORTS as i32).map(|step| (f64::from(k) * EFFORT_STEP.powi(step)).round() as u32);
    let mut efforts: Vec<u32> = sweep.collect();
    efforts.dedup();
    efforts
}

/// Returns the run of median throughput.
fn median(mut runs: Vec<Measurement>) -> Option<Measurement> {
    runs.sort_by(|a, b| a.qps.total_cmp(&b.qps));
    let middle = runs.len() / 2;
    (!runs.is_empty()).then(|| runs.swap_remove(middle))
}

/// Returns the path of the output file with `extension`.
fn output(arguments: &BenchArguments, extension: &str) -> PathBuf {
    let base = arguments.output.clone().unwrap_or_else(|| {
        let name = arguments.index.file_name().map(|name| name.to_string_lossy().into_owned());
        PathBuf::from(format!("{}-bench", name.unwrap_or_else(|| "index".to_owned())))
    });
    // Not `with_extension`, which would shorten `run.2` to `run`.
    let mut name = base.into_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let failed = |e| Failure::system(&e, format!("{}: cannot write the results: {e}", path.display()));
    std::fs::write(path, content).map_err(failed)
}

fn json_lines(points: &[Measurement]) -> Result<String, Failure> {
    let mut lines = String::new();
    for point in points {
        let line = serde_json::to_string(point);
        lines +=
            &line.map_err(|e| Failure::of(Kind::Internal, format!("cannot write a result as JSON: {e}")))?;
        lines.push('\n');
    }
    Ok(lines)
}

fn table(points: &[Measurement]) -> String {
    let mut table =
        "search_list   recall    ratio  ratio p99        qps  mean us   p95 us   p99 us    reads     hops    \
         kB\n"
            .to_owned();
    let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
    for point in points {
        let latency = &point.latency_us;
        let _ = writeln!(
            table,
            "{:>11} {:>8.4} {:>8} {:>10} {:>10.0} {:>8.0} {:>8.0} {:>8.0} {:>8.1} {:>8.1} {:>5.0}",
            point.search_list,
            point.quality.recall.unwrap_or(f64::NAN),
            shown(point.quality.ratio),
            shown(point.quality.ratio_p99),
            point.qps,
            latency.mean,
            latency.p95,
            latency.p99,
            point.reads_per_query,
            point.hops_per_query,
            point.bytes_per_query / 1e3,
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_rises_from_k() {
        let efforts = efforts(&[], 10);
        assert_eq!((efforts[0], efforts.len()), (10, EFFORTS));
        assert!(efforts.is_sorted());
        assert_eq!(super::efforts(&[], 1)[..2], [1, 2]);
        assert_eq!(super::efforts(&[50, 20], 10), [50, 20]);
    }
}
