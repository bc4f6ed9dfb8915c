//! Details in the line about the run.

use bathyal_tier::layer::delay::DelayProfile;
use serde::Serialize;

use crate::second_tier::effort::Trial;
use crate::workload::file_name;

/// Details of every experiment: data, queries, devices, and conditions of the measurements.
#[derive(Serialize)]
pub(crate) struct Details<'a, T> {
    data: String,
    vectors: usize,
    dim: usize,
    element: &'static str,
    metric: &'static str,
    query_file: String,
    queries: usize,
    k: u32,
    recall: f32,
    threads: usize,
    in_flight: u32,
    repeats: u32,
    /// Queries for searches of files; `None` if files were left out.
    file_queries: Option<usize>,
    devices: &'a [DelayProfile],
    #[serde(flatten)]
    experiment: T,
}

impl<'a, T: Serialize> Details<'a, T> {
    /// Collects the details of a trial; `experiment` adds its own.
    pub(crate) fn of(trial: &'a Trial<'_>, experiment: T) -> Details<'a, T> {
        let (arguments, work) = (trial.arguments, trial.work);
        Details {
            data: file_name(&arguments.data),
            vectors: work.base.count(),
            dim: work.base.dim(),
            element: work.base.element().name(),
            metric: arguments.metric.name(),
            query_file: file_name(&arguments.queries),
            queries: work.all.queries.count(),
            k: arguments.k,
            recall: arguments.recall,
            threads: trial.threads(),
            in_flight: arguments.in_flight,
            repeats: arguments.repeats,
            file_queries: (!arguments.without_file).then(|| work.few.queries.count()),
            devices: &arguments.devices,
            experiment,
        }
    }
}
