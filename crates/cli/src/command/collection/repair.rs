//! `bathyal collection repair`.

use std::fmt::Write;

use bathyal_collection::{Collection, CollectionOptions, RepairOptions, RepairReport};
use bathyal_console::{Console, Failure};
use serde::Serialize;

use crate::arguments::CollectionRepairArguments;

/// Most faults, ids and gaps in the text output.
const SHOWN: usize = 20;

#[derive(Serialize)]
struct RepairOutput {
    collection: String,
    output: String,
    #[serde(flatten)]
    repaired: RepairReport,
}

pub(super) fn run(arguments: &CollectionRepairArguments, console: &Console) -> Result<(), Failure> {
    let options = CollectionOptions {
        store: arguments.stores.from()?,
        build_memory_bytes: arguments.build_memory,
        threads: arguments.threads,
        ..CollectionOptions::default()
    };
    let what =
        RepairOptions { keep_uncertain: arguments.keep_uncertain, lost_ids: arguments.lost_ids.clone() };
    let to = (&arguments.to, &arguments.stores.to.options()?);
    let progress = console.progress();
    let repaired = Collection::repair(&arguments.collection, &options, to, &what, &progress)?;
    drop(progress);
    let (collection, output) =
        (arguments.collection.display().to_string(), arguments.to.display().to_string());
    let answer = RepairOutput { collection, output, repaired };
    let text = text(&answer);
    if answer.repaired.complete {
        return console.answer(&answer, &text);
    }
    let failure = Failure::damaged(format!(
        "{}: not all of {} could be saved: {}",
        answer.output,
        answer.collection,
        lost(&answer.repaired)
    ));
    console.answer_and_fail(&answer, &text, failure)
}

/// Returns the losses in a few words.
fn lost(repaired: &RepairReport) -> String {
    let batches: u64 = repaired.lost_batches.iter().map(|lost| lost.last - lost.first + 1).sum();
    // Rows of segments that only unreadable versions name may have been deleted before.
    let left_out = repaired.segments.iter().any(|segment| segment.outcome == "left out");
    let unsure = repaired.unknown_rows > 0 || left_out && !repaired.unreadable_versions.is_empty();
    let at_most = if unsure { "at most " } else { "" };
    let parts = [
        (repaired.lost_rows, format!("{at_most}{} rows are lost", repaired.lost_rows)),
        (batches, format!("{batches} batches of the log are lost")),
        (u64::from(repaired.lost_log), "the newest log is missing with all that it held".into()),
        (repaired.uncertain_rows, format!("{} rows may have been deleted before", repaired.uncertain_rows)),
        (
            repaired.unreadable_versions.len() as u64,
            format!("{} versions cannot be read", repaired.unreadable_versions.len()),
        ),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words).collect();
    if parts.is_empty() { "nothing is lost".into() } else { parts.join(", ") }
}

fn text(answer: &RepairOutput) -> String {
    let RepairOutput { collection, output, repaired } = answer;
    let copied = repaired.segments.iter().filter(|segment| segment.outcome == "copied").count();
    let others = repaired.segments.len() - copied;
    let mut text = format!(
        "{output}: {} rows of {collection}: {}\n\
         segments      {copied} copied, {others} damaged or left out\n\
         log           {} batches",
        repaired.rows,
        lost(repaired),
        repaired.batches
    );
    // Writing to a string does not fail.
    for segment in repaired.segments.iter().filter(|segment| segment.outcome != "copied") {
        let (name, kept, rows) = (&segment.name, segment.kept, segment.rows);
        let _ = write!(text, "\nsegment       {name}: {}: {kept} of {rows} rows", segment.outcome);
    }
    for lost in &repaired.lost_batches {
        let _ = write!(text, "\nlost          batches {} to {} of the log", lost.first, lost.last);
    }
    for gap in repaired.gaps.iter().take(SHOWN) {
        let _ = write!(text, "\nlost          {} rows of {}", gap.rows, gap.segment);
        if let Some(after) = &gap.after {
            let _ = write!(text, ", after {}", after.id());
        }
        if let Some(before) = &gap.before {
            let _ = write!(text, ", before {}", before.id());
        }
    }
    let known = repaired.lost_rows - repaired.unknown_rows;
    if known > 0 {
        let ids: Vec<String> =
            repaired.lost_ids.iter().take(SHOWN).map(|lost| lost.id().to_string()).collect();
        let more = known - ids.len() as u64;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = write!(text, "\nlost          {}{more}", ids.join(", "));
    }
    let faults = repaired.faults.iter().take(SHOWN);
    for line in faults.chain(&repaired.notes) {
        let _ = write!(text, "\n  {line}");
    }
    let more = repaired.fault_count.saturating_sub(SHOWN as u64);
    if more > 0 {
        let _ = write!(text, "\n  and {more} more faults");
    }
    text
}
