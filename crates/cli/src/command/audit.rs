//! `bathyal audit`.

use bathyal_console::{Console, Failure};
use bathyal_index::{AuditReport, AuditRequest, Index};
use serde::Serialize;

use crate::arguments::AuditArguments;
use crate::measured::end_audit;

#[derive(Serialize)]
struct AuditOutput {
    index: String,
    #[serde(flatten)]
    report: AuditReport,
}

pub(super) fn run(arguments: &AuditArguments, console: &Console) -> Result<(), Failure> {
    if arguments.field.is_some() || arguments.filter.is_some() {
        return Err(Failure::usage("--field and --filter are options of the audit of a collection"));
    }
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
    end_audit(&answer, &answer.report, arguments, console)
}
