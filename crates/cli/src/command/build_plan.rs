//! `bathyal build --plan`: the memory, the files and the stages of a build.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{BuildOptions, BuildPlan, plan_build};
use bathyal_vectors::VectorFile;

/// Prints the plan.
///
/// # Errors
/// The error of the build if the plan takes more memory than it is given. The plan is printed, too.
pub(super) fn run(data: &VectorFile, options: &BuildOptions, console: &Console) -> Result<(), Failure> {
    let plan = plan_build(data, options)?;
    match plan.memory.check() {
        Ok(()) => console.answer(&plan, &text(&plan)),
        Err(refused) => console.answer_and_fail(&plan, &text(&plan), refused.into()),
    }
}

/// Prints the plan as a detail.
pub(super) fn print_as_detail(
    data: &VectorFile,
    options: &BuildOptions,
    console: &Console,
) -> Result<(), Failure> {
    if console.is_verbose() {
        console.detail(&format!("planned: {}", text(&plan_build(data, options)?)));
    }
    Ok(())
}

fn text(plan: &BuildPlan) -> String {
    let BuildPlan { family, vectors, dim, element, stored_element, metric, memory, .. } = plan;
    let mut text = format!("{family} index of {vectors} vectors of {dim} {element}, {metric}");
    // Writing to a string does not fail.
    if stored_element != element {
        let _ = write!(text, ", stored as {stored_element}");
    }
    let parameters = plan.parameters.iter().map(|(name, value)| match value.as_str() {
        Some(words) => format!("{name} {words}"),
        None => format!("{name} {value}"),
    });
    let parameters: Vec<String> = parameters.collect();
    let _ = write!(text, "\nparameters    {}", parameters.join(", "));
    let _ = write!(text, "\n              {} threads, seed {}", plan.threads, plan.seed);
    let allowed = memory.allowed_bytes.map_or("no limit".to_owned(), |bytes| {
        let fits = if memory.fits { "fits" } else { "TOO LITTLE" };
        format!("{} allowed: {fits}", byte_size::at_most(bytes))
    });
    let planned = byte_size::at_least(memory.planned_bytes);
    let _ = write!(text, "\nmemory        {planned} ({} bytes) at the peak, {allowed}", memory.planned_bytes);
    if let Some(advice) = &memory.advice {
        let _ = write!(text, "\n              {advice}");
    }
    if memory.vectors_at_once < *vectors {
        let _ = write!(text, "\n              {} vectors at a time, in parts", memory.vectors_at_once);
    }
    let data = byte_size::format(plan.data_bytes);
    let index = range(plan.least_index_bytes, plan.most_index_bytes);
    let _ = write!(text, "\non disk       {index}, the data {data}");
    for file in &plan.files {
        let _ = write!(text, "\n  {:<15} {}", file.name, range(file.least_bytes, file.most_bytes));
    }
    text += "\nstages";
    for stage in &plan.stages {
        let share = stage.share.map(|share| 100.0 * share).filter(|percent| *percent >= 1.0);
        let share = share.map_or(String::new(), |percent| format!(", about {percent:.0}% of the time"));
        let _ = write!(text, "\n  {}{share}", stage.name);
    }
    text
}

/// Formats a number of bytes that is known exactly or within bounds.
fn range(least: u64, most: u64) -> String {
    let (from, to) = (byte_size::format(least), byte_size::format(most));
    if from == to { to } else { format!("{from} to {to}") }
}
