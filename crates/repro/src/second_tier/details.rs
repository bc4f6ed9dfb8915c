//! What the first line of the records says of a run.

use bathyal_tier::layer::delay::DelayProfile;
use serde::Serialize;

use crate::second_tier::effort::Trial;
use crate::workload::file_name;

/// What every experiment says: what was searched for in what, on which devices, and how it was measured.
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
    /// Queries that files were searched for; none where they were left out.
    file_queries: Option<usize>,
    devices: &'a [DelayProfile],
    #[serde(flatten)]
    own: T,
}

impl<'a, T: Serialize> Details<'a, T> {
    /// Of a trial, with what the experiment itself says.
    pub(crate) fn of(trial: &'a Trial<'_>, own: T) -> Details<'a, T> {
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
            own,
        }
    }
}
