//! `bathyal advise`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bathyal_advise::{
    Advice, AdviceOptions, AdviceRequest, AdviceTier, IndexPrediction, Interval, PlanComparison, PlanFile,
    advise, compare_with_plan,
};
use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::Index;
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;

use crate::arguments::AdviseArguments;

pub(super) fn run(arguments: &AdviseArguments, console: &Console) -> Result<(), Failure> {
    if let Some(plan) = &arguments.check {
        return check(arguments, plan, console);
    }
    let (data, metric) = console.open_vectors(&arguments.data)?.for_metric(arguments.metric.name)?;
    let queries = arguments.queries.as_ref().map(|path| console.open_vectors(path)).transpose()?;
    let queries = queries.map(|queries| queries.for_metric(arguments.metric.name)).transpose()?;
    let progress = console.progress();
    let request = AdviceRequest::new(AdviceOptions {
        metric,
        k: arguments.k as usize,
        recall: arguments.recall,
        vectors: arguments.vectors,
        tiers: tiers(arguments, &progress)?,
        limits: arguments.limits.limits(),
        concurrency: arguments.concurrency,
        threads: arguments.threads,
        pace: arguments.pace(),
        families: arguments.families.clone(),
        prices: arguments.limits.prices(),
        seed: arguments.seed,
        work_folder: arguments.work_folder.clone(),
    })?;
    let advice = advise(&data, queries.as_ref().map(|(queries, _)| queries), &request, &progress)?;
    drop(progress);
    if let Some(output) = &arguments.output {
        let Some(plan) = PlanFile::of(&advice, 0) else {
            let why = advice.notes.last().cloned().unwrap_or_default();
            let failure = Failure::new(format!("{}: there is no plan to write: {why}", output.display()));
            return console.answer_and_fail(&advice, &text(&advice), failure);
        };
        std::fs::write(output, plan.text()?).map_err(|error| {
            Failure::system(&error, format!("{}: cannot write the plan: {error}", output.display()))
        })?;
    }
    console.answer(&advice, &text(&advice))
}

/// Returns the tiers of `--on`: those that are folders are measured.
fn tiers(arguments: &AdviseArguments, progress: &dyn Progress) -> Result<Vec<AdviceTier>, Failure> {
    let by_default = [PathBuf::from("dram"), PathBuf::from(".")];
    let places = if arguments.places.is_empty() { &by_default[..] } else { &arguments.places[..] };
    Ok(places.iter().map(|place| AdviceTier::at(place, progress)).collect::<Result<_, _>>()?)
}

/// Compares an index with its plan.
fn check(arguments: &AdviseArguments, plan: &Path, console: &Console) -> Result<(), Failure> {
    let plan = PlanFile::read(plan)?;
    // The parser has checked that queries are given.
    let queries = arguments.queries.as_deref().ok_or_else(|| Failure::usage("QUERIES is missing"))?;
    let (queries, _) = console.open_vectors(queries)?.for_metric(arguments.metric.name)?;
    let progress = console.progress();
    let index = Index::open_attended(&arguments.data, &plan.open_options(), &progress)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let comparison = compare_with_plan(&plan, &index, &queries, control)?;
    drop(progress);
    console.answer(&comparison, &comparison_text(&plan, &comparison))
}

/// Returns the table of the recommended indexes, and the reasons of the others.
fn text(advice: &Advice) -> String {
    let Advice { vectors, dim, element, metric, k, recall, concurrency, threads, .. } = advice;
    let mut text = format!(
        "{vectors} vectors of {dim} {element} ({metric}), recall@{k} {recall}, {concurrency} queries in \
         flight on {threads} threads\n{}",
        statistics(advice)
    );
    // Writing to a string does not fail.
    if !advice.indexes.ranked.is_empty() {
        let _ = write!(
            text,
            "\n{:<34} {:<10} {:>9} {:>9} {:>8} {:>8} {:>9} {:>16} {:>8} {:>8}",
            "index", "tier", "disk", "memory", "reads", "KB", "queries/s", "(interval)", "p50 us", "build s"
        );
    }
    for index in &advice.indexes.ranked {
        let _ = write!(text, "\n{}", row(index, *concurrency));
    }
    for left_out in &advice.indexes.left_out {
        let (label, tier) = (&left_out.label, &left_out.tier);
        let _ = write!(text, "\nleft out: {label} on {tier}: {}", left_out.reasons.join("; "));
    }
    for wanted in advice.indexes.left_out.iter().filter_map(|one| one.wanted_if.as_ref()) {
        let _ = write!(text, "\n{wanted}");
    }
    for note in &advice.notes {
        let _ = write!(text, "\nnote: {note}");
    }
    text
}

fn statistics(advice: &Advice) -> String {
    let or_none = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
    let of = &advice.statistics;
    format!(
        "sample of {} vectors, {} queries: intrinsic dimension {}, relative contrast {}, copies {:.1}%; \
         {:.1} s",
        advice.sample_rows,
        advice.sample_queries,
        or_none(of.intrinsic_dimension),
        or_none(of.relative_contrast),
        100.0 * of.copies,
        advice.seconds
    )
}

/// Returns the row of an index.
fn row(index: &IndexPrediction, concurrency: u32) -> String {
    let size = |bytes: &Interval| byte_size::format(bytes.value as u64);
    let load = index.load(concurrency);
    let none = Interval::exactly(0.0);
    let (qps, p50) = load.map_or((none, none), |load| (load.queries_per_second, load.p50_us));
    format!(
        "{:<34} {:<10} {:>9} {:>9} {:>8.1} {:>8.1} {:>9.0} {:>16} {:>8.0} {:>8.0}",
        index.label,
        index.tier,
        size(&index.disk_bytes),
        size(&index.dram_bytes),
        index.reads.value,
        index.moved_bytes.value / 1e3,
        qps.value,
        format!("{:.0}..{:.0}", qps.low, qps.high),
        p50.value,
        index.build_seconds.value,
    )
}

/// Returns the table of a comparison.
fn comparison_text(plan: &PlanFile, comparison: &PlanComparison) -> String {
    let mut text = format!("{} on {}", plan.index.label, plan.index.tier);
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
