//! `bathyal build`.

use std::path::Path;

use bathyal_advise::{FamilyChoice, PlanFile};
use bathyal_console::process_memory::peak_rss_bytes;
use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::{BuildOptions, BuildReport, DEFAULT_SEED, IndexError, MOST_CALIBRATION_QUERIES};
use bathyal_kernels::Metric;
use bathyal_tier::process_ns;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::stripes::shared_devices;
use crate::arguments::{BuildArguments, FamilyArguments};

#[derive(Serialize)]
struct BuildOutput {
    index: String,
    #[serde(flatten)]
    report: BuildReport,
    /// The family that was chosen, and why; absent if the command names one, or for few vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<FamilyChoice>,
    peak_rss_bytes: Option<u64>,
    /// Processor time of this process. A build that continued a killed one does not count the time of that
    /// one.
    processor_seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

pub(super) fn run(arguments: &BuildArguments, console: &Console) -> Result<(), Failure> {
    let (data, metric) = data(arguments, console)?.for_metric(arguments.metric.name)?;
    let mut options = options(arguments, metric, console)?;
    if let Some(path) = &arguments.advice {
        let plan = PlanFile::read(path)?;
        if !arguments.family.given.is_empty() {
            return Err(Failure::usage("--advice has the options of the family; leave the others out"));
        }
        let element = data.element();
        let (count, dim) = (data.count() as u64, data.dim() as u32);
        let fits = plan.check_fits(count, dim, element.name(), metric.name_over(element));
        let named = |what: String| Failure::of(Kind::InvalidArgument, format!("{}: {what}", path.display()));
        if let Some(difference) = fits.map_err(|error| named(error.to_string()))? {
            console.note(&format!("note: {}: {difference}", path.display()));
        }
        options = plan.build_options(options)?;
        options.seed = arguments.seed.unwrap_or(plan.seed);
    }
    if arguments.plan {
        return super::build_plan::run(&data, &options, console);
    }
    // The parser has checked that both paths are given unless this is a plan.
    let index = arguments.index.as_deref().ok_or_else(|| Failure::usage("INDEX is missing"))?;
    let progress = console.progress();
    let chosen = chosen(arguments, &data, index, &options, &progress)?;
    drop(progress);
    if let Some(choice) = &chosen {
        console.note(&format!("family {}; --family names another", choice.reason));
        options = choice.build_options(options)?;
    }
    super::build_plan::print_as_detail(&data, &options, console)?;
    let progress = console.progress();
    let report = bathyal_index::build(&data, index, &options, &progress)?;
    drop(progress);
    let index = index.display().to_string();
    let notes = shared_devices(&arguments.disks.stripe);
    let (peak_rss_bytes, processor_seconds) = (peak_rss_bytes(), process_ns() as f64 / 1e9);
    let answer = BuildOutput { index, report, chosen, peak_rss_bytes, processor_seconds, notes };
    console.answer(&answer, &text(&answer))
}

/// Chooses a family for a build that names neither a family nor options of one.
fn chosen(
    arguments: &BuildArguments,
    data: &VectorFile,
    index: &Path,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Option<FamilyChoice>, Failure> {
    let FamilyArguments { given, is_named, .. } = &arguments.family;
    if *is_named || !given.is_empty() || arguments.advice.is_some() {
        return Ok(None);
    }
    Ok(FamilyChoice::of_build(data, index, options, progress)?)
}

/// Opens the vectors, or makes vectors of the given shape for a plan.
fn data(arguments: &BuildArguments, console: &Console) -> Result<VectorFile, Failure> {
    if let (Some(vectors), Some(dim)) = (arguments.vectors, arguments.dim) {
        return Ok(VectorFile::of_shape(arguments.element, dim as usize, vectors)?);
    }
    let data = arguments.data.as_deref().ok_or_else(|| Failure::usage("DATA is missing"))?;
    console.open_vectors(data)
}

fn options(arguments: &BuildArguments, metric: Metric, console: &Console) -> Result<BuildOptions, Failure> {
    let FamilyArguments { options: family, given, .. } = &arguments.family;
    if arguments.calibration.is_some()
        && family.family() == "flat"
        && given.is_empty()
        && arguments.store_as.is_none()
    {
        return Err(Failure::usage(
            "--calibration: a flat index without codes compares all vectors, so there is nothing to \
             calibrate; leave it out",
        ));
    }
    let calibration = arguments.calibration.as_ref().map(|path| console.open_vectors(path)).transpose()?;
    let calibration = calibration.map(|queries| queries.for_metric(arguments.metric.name)).transpose()?;
    Ok(BuildOptions {
        metric,
        family: arguments.family.options.clone(),
        threads: arguments.threads,
        seed: arguments.seed.unwrap_or(DEFAULT_SEED),
        memory_bytes: arguments.memory,
        overwrite: arguments.overwrite,
        store_as: arguments.store_as,
        stored_before: None,
        calibration: calibration.map(|(queries, _)| queries),
        calibration_queries: MOST_CALIBRATION_QUERIES,
        stripe: arguments.disks.options(),
        store: arguments.store.options()?,
        card: arguments.device.card_alone().map_err(IndexError::from)?,
        plan: None,
    })
}

fn text(answer: &BuildOutput) -> String {
    let BuildOutput { index, report, peak_rss_bytes, processor_seconds, notes, .. } = answer;
    let stored = report.stored.map_or(String::new(), |stored| format!("\nstored as {stored}"));
    let remarks: String = report.remarks().map(|remark| format!("\n{remark}")).collect();
    let notes: String = notes.iter().map(|note| format!("\nnote: {note}")).collect();
    format!(
        "{index}: {} vectors of {} {} ({}), built in {:.1} s, {processor_seconds:.1} s of processor time\n\
         {}{stored}{remarks}{notes}",
        report.vectors,
        report.dim,
        report.element,
        report.metric,
        report.build_seconds,
        sizes(report, *peak_rss_bytes),
    )
}

/// Returns a line with the sizes of the index and the data, and the peak memory of the process.
pub(super) fn sizes(report: &BuildReport, peak_rss_bytes: Option<u64>) -> String {
    let peak = peak_rss_bytes.map_or("unknown".to_owned(), byte_size::format);
    let (index, data) = (byte_size::format(report.index_bytes), byte_size::format(report.data_bytes));
    format!("index {index}, data {data}, amplification {:.2}, peak memory {peak}", report.amplification)
}
