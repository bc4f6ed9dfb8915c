//! `bathyal convert-stripes`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{StripeConversion, StripeConversionOptions, convert_stripes};
use serde::Serialize;

use super::stripes::shared_devices;
use crate::arguments::ConvertStripesArguments;

#[derive(Serialize)]
struct ConvertStripesOutput {
    output: String,
    #[serde(flatten)]
    made: StripeConversion,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub(super) fn run(arguments: &ConvertStripesArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let (index, output) = (&arguments.index, &arguments.output);
    let options = StripeConversionOptions {
        stripe: arguments.disks.options(),
        from: arguments.from_stripe.clone(),
        overwrite: arguments.overwrite,
    };
    let made = convert_stripes(index, output, &options, &progress)?;
    drop(progress);
    let notes = shared_devices(&arguments.disks.stripe);
    let answer = ConvertStripesOutput { output: output.display().to_string(), made, notes };
    let StripeConversion { vectors, index_bytes, parts_before, parts, .. } = &answer.made;
    let size = byte_size::format(*index_bytes);
    let mut text =
        format!("{}: {vectors} vectors from {parts_before} disks to {parts}, {size}", answer.output);
    answer.notes.iter().for_each(|note| text += &format!("\nnote: {note}"));
    console.answer(&answer, &text)
}
