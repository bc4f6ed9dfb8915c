//! `bathyal convert-layout`.

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{LayoutConversion, convert_layout_in, find, holding};
use serde::Serialize;

use crate::arguments::ConvertLayoutArguments;

#[derive(Serialize)]
struct ConvertLayoutOutput {
    output: String,
    #[serde(flatten)]
    made: LayoutConversion,
}

pub(super) fn run(arguments: &ConvertLayoutArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let (index, output) = (&arguments.index, &arguments.output);
    let source = find(index, &[], &arguments.stores.from()?)?;
    let target = holding(output, &arguments.stores.to.options()?)?;
    let (layout, threads) = (arguments.layout, arguments.threads);
    let made = convert_layout_in(source.as_ref(), target.store(), &target.name, layout, threads, &progress)?;
    drop(progress);
    let answer = ConvertLayoutOutput { output: output.display().to_string(), made };
    let LayoutConversion { from, to, vectors, index_bytes, index_bytes_before, amplification, .. } =
        &answer.made;
    let text = format!(
        "{}: {vectors} vectors from {from} to {to}, {} in place of {}, {amplification:.2} times the data",
        answer.output,
        byte_size::format(*index_bytes),
        byte_size::format(*index_bytes_before),
    );
    console.answer(&answer, &text)
}
