//! `bathyal search --explain`: the time and the memory of one query by part, or the mean costs of several.

use std::fmt::Write;

use bathyal_advise::{ComparedNumber, ExplainedByPlan, Interval, PlanDeviation};
use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::cost::deviation::{FailedAssumption, QueryMeans};
use bathyal_index::{BatchExplanation, Explanation, StoreShare};
use bathyal_tier::Control;

use super::layout_note::in_command;
use super::measurement::open;
use super::search::{calibrated, rounds, search_options, shares, warm};
use crate::arguments::{ExplainedRows, SearchArguments};

pub(super) fn run(arguments: &SearchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    let rows = arguments.explain.unwrap_or(ExplainedRows::One(0));
    let options = search_options(arguments)?;
    let index = open(&arguments.index, settings, &[options], console)?;
    let options = calibrated(arguments, &index, options)?;
    let queries = console.open_vectors(&arguments.queries)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    warm(arguments, &index, &options, control)?;
    let row = match rows {
        ExplainedRows::One(row) => row,
        ExplainedRows::Several { first, end } => {
            let rows = first..end.unwrap_or(queries.count());
            let explanation = index.explain_batch(&queries, rows, &options, control)?;
            let answer = ExplainedByPlan::of_batch(&index, &options, explanation);
            print_notes(&answer.explanation.notes, arguments, console);
            let text = batch_text(&answer.explanation) + &plan_text(answer.plan.as_ref());
            return console.answer(&answer, &text);
        }
    };
    let answer =
        ExplainedByPlan::of_query(&index, &options, index.explain(&queries, row, &options, control)?);
    print_notes(&answer.explanation.notes, arguments, console);
    console.answer(&answer, &(text(row, &answer.explanation) + &plan_text(answer.plan.as_ref())))
}

fn print_notes(notes: &[String], arguments: &SearchArguments, console: &Console) {
    for note in notes {
        console.note(&format!("note: {}", in_command(note, &arguments.index)));
    }
}

/// Returns lines about the plan: its numbers beside the actual ones, what differs from its assumptions, and
/// the assumptions that failed.
fn plan_text(plan: Option<&PlanDeviation>) -> String {
    let Some(plan) = plan else { return String::new() };
    let mut text = format!("\nby its plan  {} on {}", plan.label, plan.tier);
    // Writing to a string does not fail.
    let _ =
        write!(text, "\n{:<22} {:>14} {:>14} {:>22}", "mean of a query", "planned", "actual", "(interval)");
    for number in &plan.numbers {
        let ComparedNumber { name, predicted: Interval { value, low, high }, measured, .. } = number;
        let interval = format!("{low:.1}..{high:.1}");
        let _ = write!(text, "\n{name:<22} {value:>14.1} {measured:>14.1} {interval:>22}");
    }
    for difference in &plan.differences {
        let _ = write!(text, "\nplan         {difference}");
    }
    for failed in &plan.failed {
        let _ = write!(text, "\nplan         {}", failed.sentence);
    }
    if plan.failed.is_empty() {
        let _ = write!(text, "\nplan         every number holds within a factor of {}", plan.factor);
    }
    text
}

fn text(row: usize, explanation: &Explanation) -> String {
    let mut text = format!(
        "query {row}: {} nearest by a {} index on the {} tier, search_list {}\n",
        explanation.k, explanation.family, explanation.tier, explanation.search_list
    );
    // Writing to a string does not fail.
    if let (Some(scanned), Some(groups)) = (explanation.groups_scanned, explanation.groups) {
        let _ = write!(text, "groups       {scanned} scanned of {groups}");
        if let Some(probes) = explanation.probes.filter(|_| explanation.prune > 0.0) {
            let _ = write!(text, " (probes {probes}, prune {:.3})", explanation.prune);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "codes        {} scored", explanation.code_distances);
    let bytes = byte_size::format(explanation.bytes);
    let _ = writeln!(text, "reads        {} ({bytes}) in {} rounds", explanation.reads, explanation.hops);
    let _ = writeln!(text, "vectors      {} scored in full", explanation.full_distances);
    let predicted = &explanation.predicted;
    let _ = writeln!(
        text,
        "predicted    {:.0} reads ({}) in {:.0} rounds, {:.1} us",
        predicted.reads,
        byte_size::format(predicted.moved_bytes as u64),
        predicted.hops,
        predicted.total_ns / 1e3
    );
    for (counter, count) in explanation.own.iter() {
        let _ = writeln!(text, "{:<12} {count}", counter.name.replace('_', " "));
    }
    let share = |ns: u64| 100.0 * ns as f64 / explanation.total_ns.max(1) as f64;
    let _ = writeln!(text, "time         {:.1} us", explanation.total_ns as f64 / 1e3);
    for phase in &explanation.phases {
        let (us, share) = (phase.ns as f64 / 1e3, share(phase.ns));
        let _ = writeln!(text, "  {:<10} {us:>10.1} us {share:>5.1}%", phase.phase);
    }
    append_failed(&mut text, &explanation.failed, explanation.factor);
    if let Some(share) = &explanation.store {
        append_store(&mut text, share);
    }
    let total = explanation.memory.iter().map(|part| part.bytes).sum();
    let _ = writeln!(text, "memory       {}", byte_size::format(total));
    for part in &explanation.memory {
        let _ = writeln!(text, "  {:<24} {:>10}", part.part, byte_size::format(part.bytes));
    }
    let nearest = explanation.ids.iter().zip(&explanation.distances).take(10);
    let nearest: Vec<String> = nearest.map(|(id, distance)| format!("{id} ({distance})")).collect();
    let _ = write!(text, "nearest      {}", nearest.join(", "));
    text
}

/// Returns the text of a batch: counters and times beside their predictions.
fn batch_text(explanation: &BatchExplanation) -> String {
    let mut text = format!(
        "{} queries, one after the other: {} nearest by a {} index on the {} tier, search_list {}\n",
        explanation.queries, explanation.k, explanation.family, explanation.tier, explanation.search_list
    );
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:<22} {:>14} {:>14}", "mean of a query", "predicted", "actual");
    let (predicted, actual) = (&explanation.predicted, &explanation.actual);
    let mut line = |name: &str, number: fn(&QueryMeans) -> f64, unit: f64| {
        let _ =
            writeln!(text, "{name:<22} {:>14.1} {:>14.1}", number(predicted) / unit, number(actual) / unit);
    };
    line("rounds", |means| means.rounds, 1.0);
    line("reads", |means| means.reads, 1.0);
    line("kB read", |means| means.bytes, 1e3);
    line("codes", |means| means.code_distances, 1.0);
    line("vectors", |means| means.full_distances, 1.0);
    line("navigate, us", |means| means.navigate_ns, 1e3);
    line("scan, us", |means| means.scan_ns, 1e3);
    line("read, us", |means| means.read_ns, 1e3);
    line("rerank, us", |means| means.rerank_ns, 1e3);
    line("processor, us", |means| means.processor_ns, 1e3);
    line("time, us", |means| means.total_ns, 1e3);
    for share in &explanation.tiers {
        let known = if share.measured { "measured" } else { "assumed" };
        let latency = match share.latency_ns > 0.0 {
            true => format!(", {:.1} us each ({known})", share.latency_ns / 1e3),
            false => String::new(),
        };
        let _ = writeln!(text, "from {:<17} {:>14} {:>14.1} reads{latency}", share.tier, "", share.reads);
    }
    append_failed(&mut text, &explanation.failed, explanation.factor);
    let total = explanation.memory.iter().map(|part| part.bytes).sum();
    let _ = write!(text, "memory       {}", byte_size::format(total));
    text
}

/// Appends the assumptions of the model that failed, one sentence each.
fn append_failed(text: &mut String, failed: &[FailedAssumption], factor: f64) {
    if failed.is_empty() {
        let _ = writeln!(text, "model        every assumption holds within a factor of {factor}");
    }
    for failed in failed {
        let _ = writeln!(text, "model        {}", failed.sentence);
    }
}

/// Appends the requests to the store, and the hits of a cache in front of it until the first answer.
fn append_store(text: &mut String, share: &StoreShare) {
    let [first, again] = [share.first, share.again]
        .map(|sent| format!("{} requests ({})", sent.requests, byte_size::format(sent.received_bytes)));
    let _ = writeln!(text, "the store    {first} until a first answer, {again} until this one");
    if share.cache.is_empty() {
        return;
    }
    let _ = writeln!(text, "the cache    lookups until the first answer:");
    let kinds = share.cache.iter().map(|(kind, used)| (kind.clone(), used));
    let rounds = rounds(&share.cache_rounds).map(|(round, used)| (format!("round {round}"), used));
    for (which, used) in kinds.chain(rounds) {
        let _ = writeln!(text, "  {which:<12} {:>5} blocks, {}", used.blocks(), shares(used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::{CacheUse, Requests};

    #[test]
    fn requests_to_the_store_are_printed_with_the_hits_of_the_cache() {
        let used = |hits, misses| CacheUse { hits, misses, ..CacheUse::default() };
        let mut share = StoreShare {
            first: Requests { requests: 7, received_bytes: 16_384, ..Requests::default() },
            ..StoreShare::default()
        };
        let lines_of = |share: &StoreShare| {
            let mut text = String::new();
            append_store(&mut text, share);
            text
        };
        let line =
            "the store    7 requests (16.4 kB) until a first answer, 0 requests (0 B) until this one\n";
        assert_eq!(lines_of(&share), line);
        share.cache.insert("vectors".to_owned(), used(1, 1));
        share.cache_rounds = vec![used(0, 1), used(1, 0)];
        let text = lines_of(&share);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "  vectors          2 blocks, 50.0% from memory, 0.0% from disk, 50.0% from the store",
                "  round 1          1 blocks, 0.0% from memory, 0.0% from disk, 100.0% from the store",
                "  round 2          1 blocks, 100.0% from memory, 0.0% from disk, 0.0% from the store",
            ]
        );
    }
}
