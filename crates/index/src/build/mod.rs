//! Building an index of any family: the checks before a build, the shared parts of all builds, and their
//! reports.

pub mod codes;
pub(crate) mod journal;
pub mod options;
pub mod plan;
pub(crate) mod publishing;

use crate::error::IndexError;
use crate::form::loss::{LossMeasurement, MeasuredLoss};
use crate::form::source::SourceVectors;
use crate::form::{self, Form};
use crate::format::identity::Identity;
use crate::format::ids::IdRuns;
use crate::format::manifest::{FORMAT_VERSION, MAX_DIM, MAX_VECTORS, Manifest, version_of};
use crate::format::stored::StoreAs;
use crate::locate::holding;
use bathyal_store::{Replace, Store};
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{LargestValue, VectorFile};
use options::{BuildOptions, BuildReport, Details, Job, MOST_CALIBRATION_QUERIES, MOST_PLAN_BYTES, Target};
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

/// Vectors that are stored again as i8 are stored as f16 instead if exact search of the i8 values finds less
/// than this share of the nearest. Otherwise a single vector that is far longer than all others could reduce
/// the others to a few values, without a message.
const LEAST_BYTES_RECALL: f32 = 0.8;

/// Returns the bytes of memory of a build at its peak: within the budget of `options` if that is possible,
/// otherwise the least that would be enough.
pub fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    let own = without_card(options);
    own.family.builder().planned_memory(&planned_source(data, &own), &own) + beside_card(options)
}

/// Returns the bytes of host memory for a graphics card: blocks of vectors and results in transfer. The
/// memory of its driver is not counted.
fn beside_card(options: &BuildOptions) -> u64 {
    const CARD_BYTES: u64 = 80 << 20;
    if options.card.is_some() { CARD_BYTES } else { 0 }
}

/// Returns the options with the budget that remains for the family.
fn without_card(options: &BuildOptions) -> BuildOptions {
    let memory_bytes = options.memory_bytes.map(|given| given.saturating_sub(beside_card(options)));
    BuildOptions { memory_bytes, ..options.clone() }
}

/// Builds an index over `data` at `target`.
///
/// The index appears at `target` when it is complete; an old index at `target` stays until then. On an error
/// or a cancellation, the written files are removed. A killed build of the same index is continued.
///
/// # Errors
/// [`IndexError`]: bad parameters, vectors that are not finite, all-zero vectors under cosine, too small a
/// memory budget (with the number needed), an existing target, a full disk, cancellation.
pub fn build(
    data: &VectorFile,
    target: &Path,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let holding = holding(target, &options.store)?;
    let files = options.family.builder().striped();
    let striping = options.stripe.as_ref().map(|stripe| stripe.striping(files)).transpose()?;
    let holding = holding.striped(striping, files)?;
    let options = BuildOptions { stripe: None, ..options.clone() };
    build_in(data, holding.store(), &holding.name, &options, progress)
}

/// Builds an index over `data` as `name` in any store. The store stripes files as it is configured.
///
/// # Errors
/// As [`build`]; [`IndexError::Parameter`] for [`BuildOptions::stripe`].
pub fn build_in(
    data: &VectorFile,
    store: &dyn Store,
    name: &str,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    build_over(data, None, store, name, options, progress)
}

/// Builds an index over vectors whose ids may differ from their places, in a family that supports that.
pub(crate) fn build_over(
    data: &VectorFile,
    ids: Option<&IdRuns>,
    store: &dyn Store,
    name: &str,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    if options.stripe.is_some() {
        let what = "pass the stripe to the store (LocalStore::striped), not to `build_in`";
        return Err(IndexError::Parameter(what.into()));
    }
    let options = &*with_default_codes(data, options);
    let builder = options.family.builder();
    builder.check()?;
    if !(1..=MOST_CALIBRATION_QUERIES).contains(&options.calibration_queries) {
        let (given, most) = (options.calibration_queries, MOST_CALIBRATION_QUERIES);
        return Err(IndexError::Parameter(format!("{given} queries of a calibration: 1 to {most}")));
    }
    if options.card.is_some() && !builder.calibrates() && options.store_as.is_none() {
        let what = "a graphics card has nothing to do for an index that is not calibrated: leave --device \
                    out, or build with codes (--code-bytes)";
        return Err(IndexError::Parameter(what.into()));
    }
    check_data(data, options)?;
    check_plan(options)?;
    let replace = if options.overwrite { Replace::Generation } else { Replace::Never };
    store.check(name, replace)?;
    let planned = planned_memory(data, options);
    if let Some(given) = options.memory_bytes.filter(|given| *given < planned) {
        let needed = enough_memory(data, options, planned);
        return Err(refused_memory(needed, given, memory_advice(data, options, planned)));
    }
    progress.stage("checking vectors", data.count() as u64);
    let (identity, largest) = identity(data, options, progress)?;
    let identity = match ids {
        Some(ids) => identity.and(&format!("ids {:08x}", crc32c::crc32c(&ids.to_bytes()))),
        None => identity,
    };
    let source = source(data, options, largest, progress)?.with_ids(ids);
    let target = Target { store, name, replace };
    let family_options = without_card(options);
    let job = Job {
        data: &source,
        target: &target,
        options: &family_options,
        identity,
        planned: planned - beside_card(options),
        progress,
    };
    Ok(BuildReport { planned_memory_bytes: planned, ..builder.build(job)? })
}

/// Returns the options with the default code size for the element of the vectors, unless the caller has
/// chosen a size.
fn with_default_codes<'a>(data: &VectorFile, options: &'a BuildOptions) -> Cow<'a, BuildOptions> {
    let bytes = codes::default_code_bytes(data.element(), data.dim());
    let family = bytes.and_then(|bytes| options.family.builder().with_default_code_bytes(bytes));
    family.map_or(Cow::Borrowed(options), |family| Cow::Owned(BuildOptions { family, ..options.clone() }))
}

/// Returns the vectors in the stored form of the index, without its scale, for planning memory.
fn planned_source<'a>(data: &'a VectorFile, options: &BuildOptions) -> SourceVectors<'a> {
    let form = match options.store_as {
        // Vectors that would lose too much as i8 are stored as f16.
        Some(StoreAs::I8) if options.stored_before.is_some() => {
            Form::smaller(StoreAs::F16, options.metric, 1.0, None)
        }
        Some(store_as) => Form::smaller(store_as, options.metric, 1.0, None),
        None => Form::as_given(data.element(), options.metric),
    };
    SourceVectors::new(data, form, None)
}

/// Returns the vectors in the stored form of the index, with its measured loss.
fn source<'a>(
    data: &'a VectorFile,
    options: &BuildOptions,
    largest: Option<LargestValue>,
    progress: &dyn Progress,
) -> Result<SourceVectors<'a>, IndexError> {
    let Some(store_as) = options.store_as else { return Ok(planned_source(data, options)) };
    let (before, largest) = (options.stored_before, largest.map_or(0.0, |largest| largest.value));
    let measured = |store_as| {
        let form = Form::smaller(store_as, options.metric, largest, before.as_ref());
        let (queries, threads) = (options.calibration.as_ref(), options.thread_count());
        let (seed, card) = (options.seed, options.card.as_ref());
        let error_before = before.map_or(0.0, |before| before.component_error);
        let loss =
            LossMeasurement { data, form, error_before, queries, seed, threads, card, progress }.run()?;
        Ok::<_, IndexError>((form, loss))
    };
    let (mut form, mut loss) = measured(store_as)?;
    let too_much = |measured: &MeasuredLoss| measured.loss.recall < LEAST_BYTES_RECALL;
    if before.is_some() && store_as == StoreAs::I8 && loss.as_ref().is_some_and(too_much) {
        let (f16_form, f16_loss) = measured(StoreAs::F16)?;
        let recall = |measured: &Option<MeasuredLoss>| measured.as_ref().map_or(0.0, |one| one.loss.recall);
        if recall(&f16_loss) > recall(&loss) {
            (form, loss) = (f16_form, f16_loss);
        }
    }
    Ok(SourceVectors::new(data, form, loss))
}

/// Returns the least budget from `planned` bytes on that a build does not exceed. The plan for a larger
/// budget may differ.
fn enough_memory(data: &VectorFile, options: &BuildOptions, planned: u64) -> u64 {
    /// The most budgets that are tried.
    const MOST_TRIES: usize = 64;
    let mut budget = planned;
    for _ in 0..MOST_TRIES {
        let again = planned_memory(data, &BuildOptions { memory_bytes: Some(budget), ..options.clone() });
        if again <= budget {
            break;
        }
        budget = again;
    }
    budget
}

/// Returns the error of a build that takes more memory than it is given.
fn refused_memory(needed: u64, given: u64, advice: String) -> IndexError {
    IndexError::Memory { what: "building this index", needed, given, advice }
}

/// Returns the advice for a build whose `planned` bytes exceed the budget. It contains only changes that
/// reduce the memory of this build.
fn memory_advice(data: &VectorFile, options: &BuildOptions, planned: u64) -> String {
    let takes_less = |changed: &BuildOptions| {
        changed.family.builder().check().is_ok() && planned_memory(data, changed) < planned
    };
    let one_thread = BuildOptions { threads: 1, ..options.clone() };
    let threads = (options.thread_count() > 1).then_some(("use fewer threads", one_thread));
    let leaner = options.family.builder().leaner(data.dim());
    let of_family =
        leaner.into_iter().map(|(words, family)| (words, BuildOptions { family, ..options.clone() }));
    let helpful = threads.into_iter().chain(of_family).filter(|(_, changed)| takes_less(changed));
    ["allow at least that much"]
        .into_iter()
        .chain(helpful.map(|(words, _)| words))
        .collect::<Vec<_>>()
        .join(", or ")
}

/// Checks every vector. Returns the identity of the index, derived from everything that determines its
/// content, and the largest value.
fn identity(
    data: &VectorFile,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<(Identity, Option<LargestValue>), IndexError> {
    // The fields are named one by one, so that a new option has to be added here. The memory determines which
    // vectors are placed together; families add that themselves. Threads, replacement, location, device and
    // the kept plan do not change the content.
    let BuildOptions {
        metric,
        family,
        threads: _,
        seed,
        memory_bytes: _,
        overwrite: _,
        store_as,
        stored_before,
        calibration,
        calibration_queries,
        stripe: _,
        store: _,
        card: _,
        plan: _,
    } = options;
    let content = |vectors: &VectorFile| match vectors
        .check_content(options.thread_count(), &|| progress.cancelled())
    {
        Some(content) => {
            let content = content?;
            crate::extent::check_set(vectors, *metric, content.largest)?;
            Ok(content)
        }
        None => Err(IndexError::Cancelled),
    };
    let queries = calibration.as_ref().map(content).transpose()?.map(|content| content.hash);
    let of_data = content(data)?;
    let identity = Identity::of(&format!(
        "format {FORMAT_VERSION}; {} {:016x}; queries {queries:x?}; {metric} {seed}; {} {:?}",
        data.element(),
        of_data.hash,
        family.family(),
        family.builder(),
    ));
    let fewer = *calibration_queries < MOST_CALIBRATION_QUERIES;
    let stored = store_as.map(|store_as| format!("stored as {store_as}"));
    let before = stored_before.map(|before| format!("stored before, {before:?}"));
    let additions = stored
        .into_iter()
        .chain(before)
        .chain(fewer.then(|| format!("{calibration_queries} queries measured")));
    Ok((additions.fold(identity, |identity, text| identity.and(&text)), of_data.largest))
}

/// Returns the manifest of an index without the parts that its family adds.
pub(crate) fn least_manifest(
    data: &SourceVectors<'_>,
    options: &BuildOptions,
    identity: Identity,
) -> Manifest {
    let stored = data.form().entry(data.loss().map(|measured| measured.loss));
    Manifest {
        format_version: version_of((data.given().element(), options.metric), &stored, false),
        identity: Some(identity.to_string()),
        written_by: format!("bathyal {}", env!("CARGO_PKG_VERSION")),
        family: options.family.family().into(),
        vectors: data.count() as u64,
        dim: data.dim() as u32,
        element: data.given().element().name().into(),
        stored,
        metric: options.metric.name_over(data.given().element()).into(),
        data_bytes: data.given().data_bytes(),
        seed: options.seed,
        build_seconds: 0.0,
        plan: options.plan.clone(),
        files: Vec::new(),
        structure: Value::Null,
    }
}

impl BuildReport {
    pub(crate) fn new(
        manifest: &Manifest,
        threads: usize,
        planned_memory_bytes: u64,
        stages: StageTimes,
        details: Details,
    ) -> BuildReport {
        BuildReport {
            family: manifest.family.clone(),
            build_seconds: manifest.build_seconds,
            index_bytes: manifest.index_bytes(),
            data_bytes: manifest.data_bytes,
            amplification: manifest.index_bytes() as f64 / manifest.data_bytes as f64,
            vectors: manifest.vectors,
            dim: manifest.dim,
            element: manifest.element.clone(),
            stored: manifest.stored,
            metric: manifest.metric.clone(),
            details,
            threads,
            planned_memory_bytes,
            stage_seconds: stages.seconds,
        }
    }
}

/// The times of the stages of a build.
pub(crate) struct StageTimes {
    started: Instant,
    last: Instant,
    seconds: Vec<(String, f64)>,
    /// Seconds that an earlier, killed process has worked on the same index.
    before: f64,
}

impl StageTimes {
    pub(crate) fn begin() -> StageTimes {
        let now = Instant::now();
        StageTimes { started: now, last: now, seconds: Vec::new(), before: 0.0 }
    }

    pub(crate) fn begin_after(before: f64) -> StageTimes {
        StageTimes { before, ..StageTimes::begin() }
    }

    pub(crate) fn seconds_so_far(&self) -> f64 {
        self.before + self.started.elapsed().as_secs_f64()
    }

    pub(crate) fn end(&mut self, name: &str) {
        let now = Instant::now();
        let seconds = (now - self.last).as_secs_f64();
        // A stage that runs once for each part of the data is one stage in the report.
        match self.seconds.iter_mut().find(|stage| stage.0 == name) {
            Some(stage) => stage.1 += seconds,
            None => self.seconds.push((name.into(), seconds)),
        }
        self.last = now;
    }
}

/// Refuses a plan that is no object, or too large for a manifest.
fn check_plan(options: &BuildOptions) -> Result<(), IndexError> {
    let Some(plan) = &options.plan else { return Ok(()) };
    let bytes = plan.to_string().len();
    if !plan.is_object() || bytes > MOST_PLAN_BYTES {
        return Err(IndexError::Parameter(format!(
            "the plan that the index is to keep must be an object of up to {MOST_PLAN_BYTES} bytes as JSON; \
             it has {bytes}"
        )));
    }
    Ok(())
}

fn check_data(data: &VectorFile, options: &BuildOptions) -> Result<(), IndexError> {
    if data.count() as u64 > MAX_VECTORS {
        return Err(IndexError::Parameter(format!(
            "{}: {} vectors are more than the {MAX_VECTORS} that one index holds; split the file",
            data.path().display(),
            data.count()
        )));
    }
    if data.dim() > MAX_DIM as usize {
        return Err(IndexError::Parameter(format!(
            "{}: {} dimensions are more than the {MAX_DIM} that an index holds",
            data.path().display(),
            data.dim()
        )));
    }
    form::check(options.store_as, data.element())?;
    if let Some(before) = options.stored_before {
        before.check(options.store_as).map_err(IndexError::Parameter)?;
    }
    if let Some(queries) = &options.calibration
        && (queries.dim() != data.dim() || queries.element() != data.element())
    {
        return Err(IndexError::Parameter(format!(
            "{}: the calibration queries have {} dimensions of {}, the data has {} of {}",
            queries.path().display(),
            queries.dim(),
            queries.element(),
            data.dim(),
            data.element()
        )));
    }
    Ok(())
}
