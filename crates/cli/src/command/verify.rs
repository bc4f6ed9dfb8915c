//! `bathyal verify`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{VerifyReport, encoded_keys, find, verify_in};

use crate::arguments::VerifyArguments;

pub(super) fn run(arguments: &VerifyArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let found = find(&arguments.index, &arguments.parts.stripe, &arguments.parts.store.options()?)?;
    let mut report = verify_in(found.as_ref(), &progress)?;
    report.encoded_keys = encoded_keys(&arguments.index, found.as_ref());
    drop(progress);
    let path = arguments.index.display().to_string();
    let text = text(&path, &report);
    if report.sound {
        return console.answer(&report, &text);
    }
    let failure = Failure::damaged(format!(
        "{path}: damaged: {} faults; restore the index from a copy or build it again",
        report.fault_count
    ));
    console.answer_and_fail(&report, &text, failure)
}

fn text(path: &str, report: &VerifyReport) -> String {
    let VerifyReport { vectors, links, bytes, .. } = report;
    let verdict = if report.sound { "sound" } else { "DAMAGED" };
    // Only graphs have links.
    let links = if *links > 0 { format!(", {links} links") } else { String::new() };
    let mut lines =
        vec![format!("{path}: {verdict}: {vectors} vectors{links}, {}", byte_size::format(*bytes))];
    lines.extend(report.faults.iter().map(|fault| format!("  {fault}")));
    let more = report.fault_count.saturating_sub(report.faults.len() as u64);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if let Some(keys) = &report.encoded_keys {
        lines.push(format!(
            "  the keys of the index are {keys}: an earlier version encoded its name; another client can \
             move them"
        ));
    }
    lines.join("\n")
}
