//! `bathyal advise`.

use std::fmt::Write;
use std::path::PathBuf;

use bathyal_advise::{
    Advice, AdviceOptions, AdviceRequest, AdviceTier, AssumedData, IndexPrediction, Interval, PageFormat,
    PlanFile, VectorShape, advise,
};
use bathyal_console::{Console, Failure, byte_size};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;

use crate::arguments::AdviseArguments;

pub(super) fn run(arguments: &AdviseArguments, console: &Console) -> Result<(), Failure> {
    if let Some(plan) = &arguments.check {
        return super::check_plan::run(arguments, plan.as_deref(), console);
    }
    // The parser has checked that it is given.
    let metric = arguments.metric.as_ref().ok_or_else(|| Failure::usage("--metric is missing"))?.name;
    let page = arguments.page.as_deref().map(PageFormat::of_file).transpose()?;
    let progress = console.progress();
    let (data, assumed) = data(arguments, console, &progress)?;
    let (data, metric_of_data) = data.for_metric(metric)?;
    let queries = arguments.queries.as_ref().map(|path| console.open_vectors(path)).transpose()?;
    let queries = queries.map(|queries| queries.for_metric(metric)).transpose()?;
    let (recall, more_recalls) = arguments.recalls()?;
    let request = AdviceRequest::new(AdviceOptions {
        metric: metric_of_data,
        k: arguments.k as usize,
        recall,
        more_recalls,
        ratio: arguments.ratio,
        vectors: arguments.vectors,
        assumed,
        filters: arguments.filters.clone(),
        rows_a_day: arguments.rows_a_day,
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
    if let Some((path, format)) = arguments.page.as_ref().zip(page) {
        std::fs::write(path, format.text(&advice)?).map_err(|error| {
            Failure::system(&error, format!("{}: cannot write the page: {error}", path.display()))
        })?;
    }
    if let Some(output) = &arguments.output {
        let Some(plan) = PlanFile::of(&advice, 0) else {
            let why = advice.notes.iter().find(|note| note.starts_with("no index meets"));
            let why = why.cloned().unwrap_or_default();
            let failure = Failure::new(format!("{}: there is no plan to write: {why}", output.display()));
            return console.answer_and_fail(&advice, &text(&advice), failure);
        };
        std::fs::write(output, plan.text()?).map_err(|error| {
            Failure::system(&error, format!("{}: cannot write the plan: {error}", output.display()))
        })?;
    }
    console.answer(&advice, &text(&advice))
}

/// Opens the vectors, or makes them by an assumption if there are none.
fn data(
    arguments: &AdviseArguments,
    console: &Console,
    progress: &dyn Progress,
) -> Result<(VectorFile, Option<AssumedData>), Failure> {
    match (&arguments.data, arguments.vectors, arguments.dim) {
        (Some(data), ..) => Ok((console.open_vectors(data)?, None)),
        (None, Some(count), Some(dim)) => {
            let shape = VectorShape { element: arguments.element, dim: dim as usize, count };
            let assumed = AssumedData::of_dim(shape.dim);
            let data = assumed.vectors(shape, arguments.pace().rows(), arguments.seed, progress)?;
            Ok((data, Some(assumed)))
        }
        _ => Err(Failure::usage("give DATA, or --vectors and --dim of vectors that do not exist yet")),
    }
}

/// Returns the tiers of `--on`: those that are folders are measured.
fn tiers(arguments: &AdviseArguments, progress: &dyn Progress) -> Result<Vec<AdviceTier>, Failure> {
    let by_default = [PathBuf::from("dram"), PathBuf::from(".")];
    let places = if arguments.places.is_empty() { &by_default[..] } else { &arguments.places[..] };
    Ok(AdviceTier::all_at(places, &arguments.store.options()?, progress)?)
}

/// Returns the table of the recommended indexes, and the reasons of the others.
fn text(advice: &Advice) -> String {
    let Advice { vectors, dim, element, metric, concurrency, threads, .. } = advice;
    let mut text = format!(
        "{vectors} vectors of {dim} {element} ({metric}), {}, {concurrency} queries in flight on {threads} \
         threads\n{}",
        advice.quality_words(),
        statistics(advice)
    );
    text += &indexes_text(advice);
    for other in &advice.other_recalls {
        let _ = write!(text, "\n\n{}{}", other.quality_words(), indexes_text(other));
    }
    text
}

/// Returns the tables and the reasons of an answer for one recall.
fn indexes_text(advice: &Advice) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    if !advice.indexes.ranked.is_empty() {
        let _ = write!(
            text,
            "\n{:<34} {:<10} {:>9} {:>9} {:>8} {:>8} {:>9} {:>16} {:>8} {:>8}",
            "index", "tier", "disk", "memory", "reads", "KB", "queries/s", "(interval)", "p50 us", "build s"
        );
    }
    for index in &advice.indexes.ranked {
        let _ = write!(text, "\n{}", row(index, advice.concurrency));
        for words in index.further_words(advice.concurrency) {
            let _ = write!(text, "\n  {words}");
        }
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
        "{} of {} vectors, {} queries: intrinsic dimension {}, relative contrast {}, near copies {:.1}%; \
         {:.1} s",
        if advice.assumed.is_some() { "assumed sample" } else { "sample" },
        advice.sample_rows,
        advice.sample_queries,
        or_none(of.intrinsic_dimension),
        or_none(of.relative_contrast),
        100.0 * of.near_copies,
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
