//! `bathyal search --explain`: where the time and the memory of one query go.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{Explanation, StoreShare};
use bathyal_tier::Control;

use super::measurement::{open, search_options};
use super::search::{effort, rounds, shares, warm};
use crate::arguments::SearchArguments;

pub(super) fn run(arguments: &SearchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    let row = arguments.explain.unwrap_or(0);
    let index = open(&arguments.index, settings, console)?;
    let queries = console.open_vectors(&arguments.queries)?;
    let options = search_options(settings, effort(arguments));
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    warm(arguments, &index, &options, control)?;
    let told = index.explain(&queries, row, &options, control)?;
    for note in &told.notes {
        console.remark(&format!("note: {note}"));
    }
    console.answer(&told, &text(row, &told))
}

fn text(row: usize, told: &Explanation) -> String {
    let mut text = format!(
        "query {row}: {} nearest by a {} index on the {} tier, search_list {}\n",
        told.k, told.family, told.tier, told.search_list
    );
    // Writing to a string does not fail.
    if let (Some(scanned), Some(groups)) = (told.groups_scanned, told.groups) {
        let _ = write!(text, "groups       {scanned} scanned of {groups}");
        if let Some(probes) = told.probes.filter(|_| told.prune > 0.0) {
            let _ = write!(text, " (probes {probes}, prune {:.3})", told.prune);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "codes        {} scored", told.code_distances);
    let bytes = byte_size::format(told.bytes);
    let _ = writeln!(text, "reads        {} ({bytes}) in {} rounds", told.reads, told.hops);
    let _ = writeln!(text, "vectors      {} scored in full", told.full_distances);
    let predicted = &told.predicted;
    let _ = writeln!(
        text,
        "predicted    {:.0} reads ({}) in {:.0} rounds, {:.1} us",
        predicted.reads,
        byte_size::format(predicted.moved_bytes as u64),
        predicted.hops,
        predicted.total_ns / 1e3
    );
    for (counter, count) in told.own.iter() {
        let _ = writeln!(text, "{:<12} {count}", counter.name.replace('_', " "));
    }
    let share = |ns: u64| 100.0 * ns as f64 / told.total_ns.max(1) as f64;
    let _ = writeln!(text, "time         {:.1} us", told.total_ns as f64 / 1e3);
    for phase in &told.phases {
        let (us, share) = (phase.ns as f64 / 1e3, share(phase.ns));
        let _ = writeln!(text, "  {:<10} {us:>10.1} us {share:>5.1}%", phase.phase);
    }
    if let Some(asked) = &told.store {
        store(&mut text, asked);
    }
    let total = told.memory.iter().map(|part| part.bytes).sum();
    let _ = writeln!(text, "memory       {}", byte_size::format(total));
    for part in &told.memory {
        let _ = writeln!(text, "  {:<24} {:>10}", part.part, byte_size::format(part.bytes));
    }
    let nearest = told.ids.iter().zip(&told.distances).take(10);
    let nearest: Vec<String> = nearest.map(|(id, distance)| format!("{id} ({distance})")).collect();
    let _ = write!(text, "nearest      {}", nearest.join(", "));
    text
}

/// What the store was asked, and where a cache in front of it had what the first answer wanted.
fn store(text: &mut String, asked: &StoreShare) {
    let [first, again] = [asked.first, asked.again]
        .map(|asked| format!("{} requests ({})", asked.requests, byte_size::format(asked.received_bytes)));
    let _ = writeln!(text, "the store    {first} until a first answer, {again} until this one");
    if asked.cache.is_empty() {
        return;
    }
    let _ = writeln!(text, "the cache    had, of the blocks that were looked for until the first:");
    let kinds = asked.cache.iter().map(|(kind, used)| (kind.clone(), used));
    let rounds = rounds(&asked.cache_rounds).map(|(round, used)| (format!("round {round}"), used));
    for (which, used) in kinds.chain(rounds) {
        let _ = writeln!(text, "  {which:<12} {:>5} blocks, {}", used.blocks(), shares(used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::{CacheUse, Requests};

    #[test]
    fn what_the_store_was_asked_is_told_with_what_the_cache_had() {
        let used = |hits, misses| CacheUse { hits, misses, ..CacheUse::default() };
        let mut asked = StoreShare {
            first: Requests { requests: 7, received_bytes: 16_384, ..Requests::default() },
            ..StoreShare::default()
        };
        let told = |asked: &StoreShare| {
            let mut text = String::new();
            store(&mut text, asked);
            text
        };
        let line =
            "the store    7 requests (16.4 kB) until a first answer, 0 requests (0 B) until this one\n";
        assert_eq!(told(&asked), line);
        asked.cache.insert("vectors".to_owned(), used(1, 1));
        asked.cache_rounds = vec![used(0, 1), used(1, 0)];
        let told = told(&asked);
        let lines: Vec<&str> = told.lines().skip(2).collect();
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
