//! `bathyal audit`.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{AuditReport, AuditRequest, AuditedRecall, Index};
use serde::Serialize;

use crate::arguments::AuditArguments;

#[derive(Serialize)]
struct AuditOutput {
    index: String,
    #[serde(flatten)]
    report: AuditReport,
}

pub(super) fn run(arguments: &AuditArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let index = Index::open_attended(&arguments.index, &arguments.pass.options()?, &progress)?;
    let named = arguments.calibration.as_ref().map(|name| index.calibration(name)).transpose()?;
    let queries = console.open_vectors(&arguments.queries)?;
    let request = AuditRequest {
        recalls: arguments.recall.clone(),
        k: arguments.k as usize,
        queries: arguments.count as usize,
        calibration: named.unwrap_or_default(),
        threads: arguments.pass.threads,
    };
    let report = index.audit(&queries, &request, &progress)?;
    drop(progress);
    let answer = AuditOutput { index: arguments.index.display().to_string(), report };
    let text = text(&answer);
    match answer.report.recalls.iter().find(|audited| !audited.reached) {
        None => console.answer(&answer, &text),
        Some(missed) => console.answer_and_fail(&answer, &text, failure(arguments, missed)),
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

fn text(answer: &AuditOutput) -> String {
    let AuditOutput { index, report } = answer;
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
