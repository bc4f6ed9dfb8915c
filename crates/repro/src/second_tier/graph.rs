//! `bathyal-repro second-tier graph`: the graph on slow memory.

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;
use serde::Serialize;

use crate::records::Records;
use crate::second_tier::arguments::{GraphLayoutName, GraphReproArguments};
use crate::second_tier::cells::{PlannedIndex, measure_all};
use crate::second_tier::details::Details;
use crate::second_tier::effort::Trial;
use crate::second_tier::subjects::{IndexShape, Subject};
use crate::workload::{Workload, make_folders};

pub(crate) fn run(arguments: &GraphReproArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.trial.work, &arguments.output)?;
    let work = Workload::open(&(&arguments.trial).into(), console)?;
    let mut subjects = Vec::new();
    for shape in shapes(&arguments.degrees, &arguments.layouts) {
        subjects.push(Subject::find_or_build(shape, &arguments.trial, &work, console)?);
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let trial = Trial { arguments: &arguments.trial, work: &work, beam_width: arguments.beam_width, control };
    let layouts = arguments.layouts.iter().map(|layout| layout.name()).collect();
    let details = GraphDetails {
        beam_width: arguments.beam_width,
        layouts,
        sweep: &arguments.sweep,
        sweep_degree: sweep_degree(arguments),
    };
    let mut records = Records::create(&arguments.output, "second-tier graph", &Details::of(&trial, details))?;
    let progress = console.progress();
    measure_all(&plan(&subjects, arguments), &trial, &mut records, &progress)?;
    drop(progress);
    records.print_location(console)
}

/// Details of this experiment in the line about the run. Figure 9 and the sweep use the last layout.
#[derive(Serialize)]
struct GraphDetails<'a> {
    beam_width: u32,
    layouts: Vec<&'static str>,
    /// Numbers of queries in flight, and the degree of the graph in the sweep.
    sweep: &'a [u32],
    sweep_degree: u32,
}

/// Returns graphs of each degree, in ascending order, each in all layouts.
pub(crate) fn shapes(degrees: &[u32], layouts: &[GraphLayoutName]) -> Vec<IndexShape> {
    let in_all_layouts =
        |max_degree: u32| layouts.iter().map(move |layout| IndexShape::Graph { layout: *layout, max_degree });
    ascending(degrees).into_iter().flat_map(in_all_layouts).collect()
}

/// Returns the degrees in ascending order, without repeats.
fn ascending(degrees: &[u32]) -> Vec<u32> {
    let mut degrees = degrees.to_vec();
    degrees.sort_unstable();
    degrees.dedup();
    degrees
}

/// Returns the degree of the graph for the sweep of queries in flight.
fn sweep_degree(arguments: &GraphReproArguments) -> u32 {
    let degrees = ascending(&arguments.degrees);
    let middle = degrees.get(degrees.len() / 2).copied().unwrap_or_default();
    arguments.sweep_degree.unwrap_or(middle)
}

/// Returns the layout for figure 9 and the sweep.
fn main_layout(arguments: &GraphReproArguments) -> GraphLayoutName {
    arguments.layouts.last().copied().unwrap_or(GraphLayoutName::Padded)
}

/// Returns the numbers of queries in flight that the figures need from a graph: pipelined for all;
/// synchronous and swept for some.
fn in_flight_counts(arguments: &GraphReproArguments, shape: IndexShape) -> Vec<u32> {
    let mut counts = vec![arguments.trial.in_flight];
    if let IndexShape::Graph { layout, max_degree } = shape
        && layout == main_layout(arguments)
    {
        counts.push(1);
        if max_degree == sweep_degree(arguments) {
            counts.extend(&arguments.sweep);
        }
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Plans groups of graphs with the same degree, which take turns. The first layout of each degree is also
/// searched from its file.
fn plan<'a>(subjects: &'a [Subject], arguments: &GraphReproArguments) -> Vec<Vec<PlannedIndex<'a>>> {
    let planned = |(at, subject): (usize, &'a Subject)| {
        let in_flight_counts = in_flight_counts(arguments, subject.shape);
        PlannedIndex { subject, in_flight_counts, on_file: at == 0 }
    };
    let of_degree = subjects.chunks(arguments.layouts.len().max(1));
    of_degree.map(|of_degree| of_degree.iter().enumerate().map(planned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::second_tier::arguments::SecondTier;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        experiment: SecondTier,
    }

    fn parsed(more: &str) -> GraphReproArguments {
        let line = format!("second-tier graph base.u8bin queries.u8bin {more}");
        let Line { experiment } = Line::parse_from(line.split_whitespace());
        let SecondTier::Graph(arguments) = experiment else { panic!("another experiment") };
        *arguments
    }

    #[test]
    fn each_graph_gets_the_queries_in_flight_that_figures_need() {
        let arguments = parsed("--degrees 32,8,16 --devices cxl,rdma --sweep 1,4 --in-flight 16");
        assert_eq!(ascending(&arguments.degrees), [8, 16, 32]);
        assert_eq!((sweep_degree(&arguments), main_layout(&arguments)), (16, GraphLayoutName::Csr));
        for (max_degree, layout, expected) in [
            (8, GraphLayoutName::Padded, vec![16]),
            (8, GraphLayoutName::Csr, vec![1, 16]),
            (16, GraphLayoutName::Csr, vec![1, 4, 16]),
        ] {
            assert_eq!(in_flight_counts(&arguments, IndexShape::Graph { layout, max_degree }), expected);
        }
        assert_eq!(shapes(&arguments.degrees, &arguments.layouts).len(), 6);
    }
}
