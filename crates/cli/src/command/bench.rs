//! `bathyal bench`.

use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure, Kind};
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::bench_plot::{self, Curve};
use super::bench_subject::{Questions, Subject};
use super::bench_sweep::Sweep;
use super::bench_table::table;
use super::bench_truth::{self, FoundTruth};
use super::exact_scan::ExactScan;
use super::measurement::{Measurement, indexes};
use super::stripes::lines;
use crate::arguments::BenchArguments;

/// A measurement of one index. The names of the fields are keys of `--json` and of the lines of the output
/// file: they are stable.
#[derive(Serialize)]
struct BenchPoint<'a> {
    index: &'a str,
    #[serde(flatten)]
    measured: &'a Measurement,
}

#[derive(Serialize)]
struct BenchOutput<'a> {
    /// The first index.
    index: &'a str,
    /// All indexes.
    indexes: Vec<&'a str>,
    queries: String,
    repeats: u32,
    points: Vec<BenchPoint<'a>>,
    /// The exact scan without an index; null without `--data`.
    exact_scan: Option<ExactScan>,
    /// The ground truth that was found for this run; null with `--groundtruth`.
    found_groundtruth: Option<FoundTruth>,
    jsonl: String,
    plot: String,
}

pub(super) fn run(arguments: &BenchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    let sweep = Sweep::new(arguments)?;
    bench_truth::check(arguments)?;
    let mut subjects = open_all(arguments, &sweep, console)?;
    let first = &subjects[0].index;
    let queries = console.open_vectors(&arguments.queries)?;
    let k = (settings.k as usize).min(first.len());
    let (jsonl, plot_path) = (output(arguments, "jsonl"), output(arguments, "svg"));
    // Find an output that cannot be written before the work.
    write(&jsonl, "")?;
    let (exact, found_groundtruth) = bench_truth::load(arguments, first, &queries, k, console)?;
    let scan = |data: &PathBuf| ExactScan::measure(data, first, &queries, (k, settings.threads), console);
    let exact_scan = arguments.data.as_ref().map(scan).transpose()?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let questions = Questions { queries: &queries, exact: &exact, settings, control };
    measure(&mut subjects, &questions, (&sweep, arguments.repeats), console)?;

    print_notes(&subjects, console);
    let answer = BenchOutput {
        index: &subjects[0].name,
        indexes: subjects.iter().map(|subject| subject.name.as_str()).collect(),
        queries: arguments.queries.display().to_string(),
        repeats: arguments.repeats,
        points: subjects.iter().flat_map(points_of).collect(),
        exact_scan,
        found_groundtruth,
        jsonl: jsonl.display().to_string(),
        plot: plot_path.display().to_string(),
    };
    write(&jsonl, &json_lines(&answer.points)?)?;
    let curves: Vec<Curve<'_>> =
        subjects.iter().map(|subject| Curve { name: &subject.name, points: &subject.points }).collect();
    bench_plot::recall_against_throughput(&plot_path, &curves)?;
    console.answer(&answer, &text(&answer, &subjects, settings.emulated()))
}

/// Opens all indexes of `arguments`, which must be comparable.
fn open_all(
    arguments: &BenchArguments,
    sweep: &Sweep<'_>,
    console: &Console,
) -> Result<Vec<Subject>, Failure> {
    let paths: Vec<&Path> = indexes(&arguments.index, &arguments.also);
    let open = |path: &&Path| Subject::open(path, &paths, (&arguments.settings, sweep), console);
    let subjects: Vec<Subject> = paths.iter().map(open).collect::<Result<_, _>>()?;
    subjects.iter().try_for_each(|subject| subject.check_comparable(&subjects[0]))?;
    Ok(subjects)
}

/// Measures each step of the sweep `repeats` times. The indexes take turns, so that a disturbance of the
/// machine meets all of them.
fn measure(
    subjects: &mut [Subject],
    questions: &Questions<'_>,
    (sweep, repeats): (&Sweep<'_>, u32),
    console: &Console,
) -> Result<(), Failure> {
    let progress = console.progress();
    let steps = || subjects.iter().map(Subject::steps);
    let (longest, all) = (steps().max().unwrap_or(0), steps().sum::<usize>());
    progress.stage("measuring", all as u64 * u64::from(repeats));
    let mut done = 0;
    for step in 0..longest {
        let mut runs: Vec<Vec<Measurement>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..repeats {
            for (subject, runs) in subjects.iter().zip(&mut runs) {
                let run = subject.run(step, questions)?;
                done += u64::from(run.is_some());
                runs.extend(run);
                progress.advance(done);
            }
        }
        subjects.iter_mut().zip(runs).for_each(|(subject, runs)| subject.finish_step(runs, sweep));
    }
    Ok(())
}

fn points_of(subject: &Subject) -> impl Iterator<Item = BenchPoint<'_>> {
    subject.points.iter().map(|measured| BenchPoint { index: &subject.name, measured })
}

/// Prints the notes of all searches, each once, with the index if there are several.
fn print_notes(subjects: &[Subject], console: &Console) {
    let mut printed = Vec::new();
    for subject in subjects {
        let name = if subjects.len() > 1 { format!("{}: ", subject.name) } else { String::new() };
        for note in subject.points.iter().flat_map(|point| &point.notes) {
            let line = format!("note: {name}{note}");
            if !printed.contains(&line) {
                console.note(&line);
                printed.push(line);
            }
        }
    }
}

/// Returns the text output.
fn text(answer: &BenchOutput<'_>, subjects: &[Subject], emulated: Option<String>) -> String {
    let mut text = table(subjects);
    text += &answer.found_groundtruth.as_ref().map_or(String::new(), FoundTruth::line);
    text += &answer.exact_scan.as_ref().map_or(String::new(), ExactScan::line);
    if let Some(device) = emulated {
        text += &format!("emulated device {device}: latency and bandwidth are injected\n");
    }
    for last in subjects.iter().filter_map(|subject| subject.points.last()) {
        text += lines(&last.parts).trim_start();
        text += if last.parts.is_empty() { "" } else { "\n" };
    }
    text + &format!("written: {} {}", answer.jsonl, answer.plot)
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

fn json_lines(points: &[BenchPoint<'_>]) -> Result<String, Failure> {
    let mut lines = String::new();
    for point in points {
        let line = serde_json::to_string(point);
        lines +=
            &line.map_err(|e| Failure::of(Kind::Internal, format!("cannot write a result as JSON: {e}")))?;
        lines.push('\n');
    }
    Ok(lines)
}
