//! `bathyal groundtruth`.

use std::num::NonZeroUsize;
use std::time::Instant;

use bathyal_console::{Console, Failure};
use bathyal_index::{IndexError, exact_neighbors_on};
use bathyal_vectors::{IdFormat, write_ids};
use serde::Serialize;

use crate::arguments::GroundtruthArguments;

#[derive(Serialize)]
struct GroundtruthOutput {
    output: String,
    queries: usize,
    k: usize,
    vectors: usize,
    metric: &'static str,
    device: String,
    seconds: f64,
}

pub(super) fn run(arguments: &GroundtruthArguments, console: &Console) -> Result<(), Failure> {
    // Refuse a wrong extension before the work.
    IdFormat::from_path(&arguments.output)?;
    let (data, metric) = console.open_vectors(&arguments.data)?.for_metric(arguments.metric.name)?;
    let (queries, _) = console.open_vectors(&arguments.queries)?.for_metric(arguments.metric.name)?;
    let k = arguments.k as usize;
    let card = arguments.device.card_alone().map_err(IndexError::from)?;
    let began = Instant::now();
    let progress = console.progress();
    let threads = NonZeroUsize::new(arguments.threads);
    let found = exact_neighbors_on(card.as_ref(), &data, &queries, metric, k, threads, &progress)?;
    drop(progress);
    write_ids(&arguments.output, &found)?;
    let answer = GroundtruthOutput {
        output: arguments.output.display().to_string(),
        queries: found.queries(),
        k: found.k(),
        vectors: data.count(),
        metric: metric.name_over(data.element()),
        device: arguments.device.to_string(),
        seconds: began.elapsed().as_secs_f64(),
    };
    let GroundtruthOutput { output, queries, k, vectors, metric, seconds, .. } = &answer;
    let text =
        format!("{output}: the {k} nearest of {vectors} for {queries} queries ({metric}), {seconds:.2} s");
    console.answer(&answer, &text)
}
