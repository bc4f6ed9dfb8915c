//! `bathyal audit` of a collection.

use bathyal_collection::{CollectionAuditRequest, CollectionOptions, SearchRequest};
use bathyal_console::{Console, Failure};
use bathyal_index::{AuditReport, OpenOptions};
use serde::Serialize;

use super::open::opened;
use crate::arguments::AuditArguments;
use crate::measured::end_audit;

#[derive(Serialize)]
struct AuditOutput {
    collection: String,
    #[serde(flatten)]
    report: AuditReport,
}

pub(in crate::command) fn run(arguments: &AuditArguments, console: &Console) -> Result<(), Failure> {
    if !arguments.pass.parts.stripe.is_empty() {
        return Err(Failure::usage("a collection has no parts to name: leave --stripe out"));
    }
    let store = arguments.pass.parts.store.options()?;
    let index =
        OpenOptions { memory_bytes: arguments.pass.memory, store: store.clone(), ..OpenOptions::default() };
    let options = CollectionOptions { index, store, ..CollectionOptions::default() };
    let collection = opened(&arguments.index, &options, console)?;
    let queries = console.open_vectors(&arguments.queries)?;
    let search = SearchRequest {
        field: arguments.field.clone(),
        k: arguments.k as usize,
        calibration: arguments.calibration.clone(),
        filter: arguments.filter.clone(),
        threads: arguments.pass.threads,
        ..SearchRequest::default()
    };
    let request = CollectionAuditRequest {
        recalls: arguments.recall.clone(),
        queries: arguments.count as usize,
        search,
    };
    let progress = console.progress();
    let report = collection.audit(&queries, &request, &progress)?;
    drop(progress);
    let answer = AuditOutput { collection: arguments.index.display().to_string(), report };
    end_audit(&answer, &answer.report, arguments, console)
}
