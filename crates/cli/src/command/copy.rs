//! `bathyal copy`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{CopyOptions, CopyReport, copy};
use serde::Serialize;

use crate::arguments::CopyArguments;

#[derive(Serialize)]
struct CopyOutput {
    output: String,
    #[serde(flatten)]
    copied: CopyReport,
}

pub(super) fn run(arguments: &CopyArguments, console: &Console) -> Result<(), Failure> {
    let CopyArguments { index, output, overwrite, .. } = arguments;
    let options = CopyOptions {
        from: arguments.stores.from()?,
        to: arguments.stores.to.options()?,
        overwrite: *overwrite,
    };
    let progress = console.progress();
    let copied = copy(index, output, &options, &progress)?;
    drop(progress);
    let answer = CopyOutput { output: output.display().to_string(), copied };
    let CopyReport { vectors, index_bytes, calibrations } = answer.copied;
    if calibrations.left_out > 0 {
        console.note(&format!(
            "note: {} calibrations were left out, because the target accepts none; calibrate the \
             copy where it can be changed",
            calibrations.left_out
        ));
    }
    let text = format!("{}: {vectors} vectors copied, {}", answer.output, byte_size::format(index_bytes));
    console.answer(&answer, &text)
}
