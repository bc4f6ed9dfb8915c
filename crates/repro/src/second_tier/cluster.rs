//! `bathyal-repro second-tier cluster`: posting lists on slow memory.

use bathyal_console::{Console, Failure};
use bathyal_index::DEFAULT_BEAM_WIDTH;
use bathyal_tier::Control;
use serde::Serialize;

use crate::records::Records;
use crate::second_tier::arguments::{ClusterReproArguments, ListLayoutName};
use crate::second_tier::cells::{PlannedIndex, measure_all};
use crate::second_tier::details::Details;
use crate::second_tier::effort::Trial;
use crate::second_tier::subjects::{IndexShape, Subject};
use crate::workload::{Workload, make_folders};

pub(crate) fn run(arguments: &ClusterReproArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.trial.work, &arguments.output)?;
    let work = Workload::open(&(&arguments.trial).into(), console)?;
    let mut subjects = Vec::new();
    for shape in shapes(&arguments.replicas, &arguments.layouts, arguments.centroid_share) {
        subjects.push(Subject::find_or_build(shape, &arguments.trial, &work, console)?);
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let trial = Trial { arguments: &arguments.trial, work: &work, beam_width: DEFAULT_BEAM_WIDTH, control };
    let layouts = arguments.layouts.iter().map(|layout| layout.name()).collect();
    let details = ListDetails { layouts, centroid_share: arguments.centroid_share };
    let mut records =
        Records::create(&arguments.output, "second-tier cluster", &Details::of(&trial, details))?;
    let progress = console.progress();
    measure_all(&plan(&subjects, arguments), &trial, &mut records, &progress)?;
    drop(progress);
    records.print_location(console)
}

/// Details of this experiment in the line about the run. Figure 12 uses the last layout.
#[derive(Serialize)]
struct ListDetails {
    layouts: Vec<&'static str>,
    centroid_share: f32,
}

/// Returns posting lists with each number of replicas, in ascending order, each in all layouts.
pub(crate) fn shapes(replicas: &[u32], layouts: &[ListLayoutName], centroid_share: f32) -> Vec<IndexShape> {
    let mut replicas = replicas.to_vec();
    replicas.sort_unstable();
    replicas.dedup();
    let in_all_layouts = |replicas: u32| {
        layouts.iter().map(move |layout| IndexShape::Lists { layout: *layout, replicas, centroid_share })
    };
    replicas.into_iter().flat_map(in_all_layouts).collect()
}

/// Returns the layout of figure 12.
fn main_layout(arguments: &ClusterReproArguments) -> ListLayoutName {
    arguments.layouts.last().copied().unwrap_or(ListLayoutName::Grouped)
}

/// Plans groups of indexes with the same number of replicas, whose layouts take turns. The layout of figure
/// 12 is also searched with one query at a time: its latency then is the sum of terms in equation 1 of
/// cloud-native-vector-search.
fn plan<'a>(subjects: &'a [Subject], arguments: &ClusterReproArguments) -> Vec<Vec<PlannedIndex<'a>>> {
    let planned = |subject: &'a Subject| {
        let mut in_flight_counts = vec![arguments.trial.in_flight];
        if matches!(subject.shape, IndexShape::Lists { layout, .. } if layout == main_layout(arguments)) {
            in_flight_counts.push(1);
        }
        PlannedIndex { subject, in_flight_counts, on_file: true }
    };
    let of_replicas = subjects.chunks(arguments.layouts.len().max(1));
    of_replicas.map(|group| group.iter().map(planned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_ascending_replicas_without_repeats() {
        let layouts = [ListLayoutName::Coupled, ListLayoutName::Grouped];
        let named: Vec<(u32, ListLayoutName)> = shapes(&[8, 1, 8], &layouts, 0.04)
            .into_iter()
            .filter_map(|shape| match shape {
                IndexShape::Lists { layout, replicas, .. } => Some((replicas, layout)),
                _ => None,
            })
            .collect();
        let [coupled, grouped] = layouts;
        assert_eq!(named, [(1, coupled), (1, grouped), (8, coupled), (8, grouped)]);
    }
}
