//! Texts about recalls that were measured, of indexes and of collections.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{AuditReport, AuditedRecall, RecallBefore};
use bathyal_vectors::VectorFile;
use chrono::DateTime;
use serde::Serialize;

use crate::arguments::{AuditArguments, CalibrateArguments};

/// Returns the date of a time in seconds since 1970, as `2026-11-28`; `at an unknown time` if there is none.
pub(crate) fn utc_date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(|| "at an unknown time".into(), |time| time.format("%Y-%m-%d").to_string())
}

/// Opens the queries.
pub(crate) fn queries_to_measure(
    arguments: &CalibrateArguments,
    console: &Console,
) -> Result<VectorFile, Failure> {
    let Some(queries) = &arguments.queries else {
        return Err(Failure::usage("a calibration requires a file of queries"));
    };
    console.open_vectors(queries)
}

/// Writes the recall that searches found before.
pub(crate) fn write_before(text: &mut String, before: &[RecallBefore]) {
    for before in before {
        let (k, asked, found) = (before.k, before.asked, before.found);
        // Writing to a string does not fail.
        let _ = writeln!(text, "before        k {k}: asked for {asked}, these queries found {found:.3}");
    }
}

/// Prints `answer`, which has the report. Fails if a recall is missed.
pub(crate) fn end_audit(
    answer: &impl Serialize,
    report: &AuditReport,
    arguments: &AuditArguments,
    console: &Console,
) -> Result<(), Failure> {
    let text = text(&arguments.index.display().to_string(), report);
    match report.recalls.iter().find(|audited| !audited.reached) {
        None => console.answer(answer, &text),
        Some(missed) => console.answer_and_fail(answer, &text, failure(arguments, missed)),
    }
}

/// Returns the failure for a recall that is missed.
fn failure(arguments: &AuditArguments, missed: &AuditedRecall) -> Failure {
    let (index, queries) = (arguments.index.display(), arguments.queries.display());
    Failure::new(format!(
        "{index}: searches for recall {} find {:.3}; calibrate it with such queries: bathyal \
         calibrate {index} {queries}",
        missed.asked, missed.estimate.found
    ))
}

fn text(index: &str, report: &AuditReport) -> String {
    let mut text = format!(
        "{index}: {} queries, k {}, answered exactly in {:.1} s ({} read)\n",
        report.queries,
        report.k,
        report.exact_seconds,
        byte_size::format(report.exact_bytes)
    );
    // Writing to a string does not fail.
    for AuditedRecall { asked, estimate, reached, notes, .. } in &report.recalls {
        let verdict = if *reached { "" } else { "  MISSED" };
        let _ = writeln!(
            text,
            "recall        asked for {asked}: found {:.3}, between {:.3} and {:.3}; less than half in {:.1}% \
             of the queries{verdict}",
            estimate.found,
            estimate.low,
            estimate.high,
            100.0 * estimate.poor
        );
        for note in notes {
            let _ = writeln!(text, "note          {note}");
        }
    }
    for note in &report.notes {
        let _ = writeln!(text, "note          {note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_902_049, "2026-11-28"),
            (u64::MAX, "at an unknown time"),
        ] {
            assert_eq!(utc_date(seconds), date);
        }
    }
}
