//! `bathyal convert`.

use bathyal_console::{Console, Failure};
use serde::Serialize;

use crate::arguments::ConvertArguments;

#[derive(Serialize)]
struct ConvertOutput {
    output: String,
    count: u64,
    dim: usize,
    /// `None` for files of ids.
    element: Option<&'static str>,
}

pub(super) fn run(arguments: &ConvertArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let (input, output) = (&arguments.input, &arguments.output);
    let made = bathyal_vectors::convert(input, output, arguments.element, arguments.rows.clone(), &progress)?;
    drop(progress);
    let answer = ConvertOutput {
        output: output.display().to_string(),
        count: made.count,
        dim: made.dim,
        element: made.element.map(|element| element.name()),
    };
    let what = answer.element.map_or("ids".to_owned(), |element| format!("{element} vectors"));
    let text = format!("{}: {} rows of {} {what}", answer.output, answer.count, answer.dim);
    console.answer(&answer, &text)
}
