//! `bathyal advise --check`: an index beside its plan.

use std::fmt::Write;
use std::path::Path;

use bathyal_advise::{PlanComparison, PlanFile, compare_with_plan};
use bathyal_console::{Console, Failure, Kind};
use bathyal_index::{Index, OpenOptions};
use bathyal_kernels::MetricName;
use bathyal_tier::Control;

use super::memory_node::is_address;
use crate::arguments::AdviseArguments;

/// Compares an index with the plan in the file `given`, or with the one that it keeps.
pub(super) fn run(
    arguments: &AdviseArguments,
    given: Option<&Path>,
    console: &Console,
) -> Result<(), Failure> {
    let missing = || {
        Failure::usage(
            "QUERIES is missing: --check searches an index: bathyal advise INDEX QUERIES --check [PLAN]",
        )
    };
    // `--check INDEX QUERIES`: the word after the option is the index.
    let (index, queries, given) = match (arguments.data.as_deref(), arguments.queries.as_deref(), given) {
        (Some(index), Some(queries), given) => (index, queries, given),
        (Some(queries), None, Some(index)) if index.is_dir() || is_address(index) => (index, queries, None),
        _ => return Err(missing()),
    };
    let store = arguments.store.options()?;
    let plan = match given {
        Some(path) => PlanFile::read(path)?,
        None => PlanFile::kept_at(index, &store)?,
    };
    let metric: MetricName = plan
        .metric
        .parse()
        .map_err(|error| Failure::of(Kind::InvalidArgument, format!("the plan: {error}")))?;
    if let Some(given) = arguments.metric.as_ref().filter(|given| given.name != metric) {
        return Err(Failure::usage(format!(
            "--metric is {}, and the plan is for {metric}: leave --metric out",
            given.name
        )));
    }
    let (queries, _) = console.open_vectors(queries)?.for_metric(metric)?;
    let progress = console.progress();
    let options = OpenOptions { store, ..plan.open_options() };
    let index = Index::open_attended(index, &options, &progress)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let comparison = compare_with_plan(&plan, &index, &queries, control)?;
    drop(progress);
    console.answer(&comparison, &text(&plan, &comparison))
}

/// Returns the table of a comparison.
fn text(plan: &PlanFile, comparison: &PlanComparison) -> String {
    let mut text = format!("{} on {}", plan.index.label, plan.index.tier);
    // Writing to a string does not fail.
    let _ = write!(text, "\n{:<18} {:>14} {:>14} {:>6}", "", "predicted", "measured", "ratio");
    for number in &comparison.numbers {
        let mark = if number.within { "" } else { "  outside" };
        let _ = write!(
            text,
            "\n{:<18} {:>14.1} {:>14.1} {:>6.2}{mark}",
            number.name, number.predicted.value, number.measured, number.ratio
        );
    }
    for failed in &comparison.failed {
        let _ = write!(text, "\n{failed}");
    }
    text
}
