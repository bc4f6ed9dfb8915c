//! `bathyal repro second-tier graph`: the graph on slow memory.

use std::path::{Path, PathBuf};

use bathyal_index::progress::Progress;
use bathyal_index::{Index, OpenOptions};
use bathyal_tier::Control;
use serde::Serialize;

use super::graph_cells::{Bench, Cell, How, Record, measure, record};
use super::graph_indexes::{GraphIndex, OnDevices, Reached, effort_for, find_or_build};
use super::graph_report::{ModelError, Report};
use super::workload::{Given, Workload};
use crate::arguments::{GraphLayoutName, GraphReproArguments};
use crate::console::Console;
use crate::failure::Failure;

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    report: String,
    records: &'a [Record],
    model: Option<ModelError>,
    emulated: Vec<&'a str>,
    files: Vec<String>,
}

pub(super) fn run(arguments: &GraphReproArguments, console: &Console) -> Result<(), Failure> {
    for folder in [&arguments.work, &arguments.output] {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: cannot make the folder: {e}", folder.display())))?;
    }
    let work = Workload::open(&given(arguments), console)?;
    let graphs = graphs(arguments, &work, console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };

    let progress = console.progress();
    progress.stage("measuring", steps(arguments));
    let mut steps_done = 0;
    let mut step = || {
        steps_done += 1;
        progress.advance(steps_done);
    };
    let mut records = Vec::new();
    let mut reached_of = Vec::new();
    for of_degree in graphs.chunks(arguments.layouts.len().max(1)) {
        let mut benches = benches(of_degree, arguments, &work, control)?;
        for _ in 0..arguments.repeats {
            for bench in &mut benches {
                bench.round(&work, arguments, control, &mut step)?;
            }
        }
        for bench in &benches {
            records.extend(bench.records(&work, arguments, &issue_costs(arguments)));
            reached_of.push(bench.reached);
        }
    }
    if !arguments.without_file {
        records.extend(on_files(&graphs, &reached_of, arguments, &work, control, &mut step)?);
    }
    drop(progress);

    let report = Report { arguments, work: &work, records: &records };
    let (path, files) = report.write()?;
    let answer = Answer {
        report: path.display().to_string(),
        records: &records,
        model: report.model_error(),
        emulated: arguments.devices.iter().map(|device| device.name.as_str()).collect(),
        files: files.iter().map(|file| file.display().to_string()).collect(),
    };
    console.answer(&answer, &format!("{}\nwritten: {}", report.summary(), path.display()))
}

fn given(arguments: &GraphReproArguments) -> Given<'_> {
    Given {
        data: &arguments.data,
        queries: &arguments.queries,
        groundtruth: arguments.groundtruth.as_deref(),
        work: &arguments.work,
        vectors: arguments.vectors,
        first_queries: arguments.first_queries,
        metric: arguments.metric,
        k: arguments.k as usize,
    }
}

/// The graphs of all degrees, rising, each in all layouts.
fn graphs(
    arguments: &GraphReproArguments,
    work: &Workload,
    console: &Console,
) -> Result<Vec<GraphIndex>, Failure> {
    let mut graphs = Vec::new();
    for max_degree in degrees(arguments) {
        for layout in &arguments.layouts {
            graphs.push(find_or_build(arguments, work, *layout, max_degree, console)?);
        }
    }
    Ok(graphs)
}

/// The degrees, rising, each once.
fn degrees(arguments: &GraphReproArguments) -> Vec<u32> {
    let mut degrees = arguments.degrees.clone();
    degrees.sort_unstable();
    degrees.dedup();
    degrees
}

/// The degree of the sweep of queries in flight.
pub(super) fn sweep_degree(arguments: &GraphReproArguments) -> u32 {
    let degrees = degrees(arguments);
    let middle = degrees.get(degrees.len() / 2).copied().unwrap_or_default();
    arguments.sweep_degree.unwrap_or(middle)
}

/// The layout that figure 9 and the sweep take.
pub(super) fn main_layout(arguments: &GraphReproArguments) -> GraphLayoutName {
    arguments.layouts.last().copied().unwrap_or(GraphLayoutName::Padded)
}

/// The cells of one graph: DRAM first, then each device, each pipelined; synchronous and swept where a figure asks.
fn cells(arguments: &GraphReproArguments, max_degree: u32, layout: GraphLayoutName) -> Vec<Cell> {
    let mut widths = vec![arguments.in_flight];
    if layout == main_layout(arguments) {
        widths.push(1);
        if max_degree == sweep_degree(arguments) {
            widths.extend(&arguments.sweep);
        }
    }
    widths.sort_unstable();
    widths.dedup();
    let devices = 0..=arguments.devices.len();
    widths
        .into_iter()
        .flat_map(|in_flight| devices.clone().map(move |device| Cell { device, in_flight }))
        .collect()
}

/// Single measurements of the whole run.
fn steps(arguments: &GraphReproArguments) -> u64 {
    let mut steps = 0;
    for max_degree in degrees(arguments) {
        for layout in &arguments.layouts {
            steps += cells(arguments, max_degree, *layout).len();
        }
        steps += usize::from(!arguments.without_file);
    }
    steps as u64 * u64::from(arguments.repeats)
}

fn benches<'a>(
    graphs: &'a [GraphIndex],
    arguments: &GraphReproArguments,
    work: &Workload,
    control: Control<'_>,
) -> Result<Vec<Bench<'a>>, Failure> {
    let mut benches = Vec::new();
    for graph in graphs {
        let open = OnDevices::open(graph, &arguments.devices)?;
        let reached = effort_for(&open.index, work, arguments, control)?;
        let cells = cells(arguments, graph.max_degree, graph.layout);
        benches.push(Bench { graph, open, reached, cells, samples: Vec::new() });
    }
    Ok(benches)
}

/// What issuing a read costs: nothing in DRAM, then each device's.
fn issue_costs(arguments: &GraphReproArguments) -> Vec<u64> {
    std::iter::once(0).chain(arguments.devices.iter().map(|device| device.issue_ns)).collect()
}

/// Figure 4: the first layout of each degree from its file, all degrees in turn.
fn on_files(
    graphs: &[GraphIndex],
    reached: &[Reached],
    arguments: &GraphReproArguments,
    work: &Workload,
    control: Control<'_>,
    step: &mut dyn FnMut(),
) -> Result<Vec<Record>, Failure> {
    let first = arguments.layouts.first().copied();
    let mut files = Vec::new();
    for (graph, reached) in graphs.iter().zip(reached).filter(|(graph, _)| Some(graph.layout) == first) {
        files.push((graph, *reached, Index::open(&graph.path, &OpenOptions::default())?, Vec::new()));
    }
    for _ in 0..arguments.repeats {
        for (_, reached, index, samples) in &mut files {
            let width = arguments.in_flight;
            let (sample, totals) = measure(index, work, arguments, reached.search_list, width, control)?;
            reached.totals = totals;
            samples.push(sample);
            step();
        }
    }
    let records = files.iter().map(|(graph, reached, _, samples)| {
        let how = How { in_flight: arguments.in_flight, device: "file".to_owned(), emulated: false };
        record(graph, reached, how, samples, work, arguments)
    });
    Ok(records.collect())
}

/// A file of the report.
pub(super) fn output(arguments: &GraphReproArguments, name: &str) -> PathBuf {
    Path::new(&arguments.output).join(name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command, Paper, ReproArguments, SecondTier};

    fn parsed(more: &str) -> GraphReproArguments {
        let line = format!("bathyal repro second-tier graph base.u8bin queries.u8bin {more}");
        let Command::Repro(ReproArguments { paper: Paper::SecondTier { experiment } }) =
            Arguments::parse_from(line.split_whitespace()).command
        else {
            panic!("another command");
        };
        let SecondTier::Graph(arguments) = experiment;
        *arguments
    }

    #[test]
    fn cells_hold_a_bound_for_every_device() {
        let arguments = parsed("--degrees 32,8,16 --devices cxl,rdma --sweep 1,4 --in-flight 16");
        assert_eq!(degrees(&arguments), [8, 16, 32]);
        assert_eq!((sweep_degree(&arguments), main_layout(&arguments)), (16, GraphLayoutName::Csr));
        for (degree, layout, widths) in [
            (8, GraphLayoutName::Padded, vec![16]),
            (8, GraphLayoutName::Csr, vec![1, 16]),
            (16, GraphLayoutName::Csr, vec![1, 4, 16]),
        ] {
            let cells = cells(&arguments, degree, layout);
            assert_eq!(cells.len(), 3 * widths.len());
            for width in widths {
                assert!((0..3).all(|device| cells.contains(&Cell { device, in_flight: width })));
            }
        }
        // Padded 3 a degree, csr 6, 6 and 9, a file each; five times.
        assert_eq!(steps(&arguments), 5 * (3 * 3 + 6 + 9 + 6 + 3));
    }
}
