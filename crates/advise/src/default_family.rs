//! The family of a build that names none: a brief advice for the device of the target.
//!
//! The default family stays unless another one is clearly faster, so that the noise of small pilots does not
//! decide.

use crate::advice::{Advice, advise};
use crate::available_memory::available_memory;
use crate::candidates::AdvisedOptions;
use crate::interval::Interval;
use crate::place::AdviceTier;
use crate::plan_file::PlanFile;
use crate::prediction::IndexPrediction;
use crate::request::{AdviceOptions, AdviceRequest, IndexLimits, SamplePace};
use bathyal_index::families::{self, FAMILIES};
use bathyal_index::{BuildOptions, GivenOptions, IndexError, plan_build};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// The fewest vectors for which the advisor is asked. The answer takes some 5 seconds of processors, a
/// twentieth of the build of such an index.
pub const LEAST_CHOICE_VECTORS: usize = 1_000_000;
/// The factor of speed by which another family must exceed the default one. The lower end of its interval
/// must exceed the default's expected speed, too.
const CLEAR_FACTOR: f64 = 1.5;
/// The families of which one may be the default: those that suit any use.
const DEFAULTS: [&str; 3] = ["cluster", "graph", "flat"];

/// A family that was chosen for a build, with the predictions from which it follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilyChoice {
    /// The family and its options.
    #[serde(flatten)]
    pub build: AdvisedOptions,
    /// The reason, in a line.
    pub reason: String,
    /// The predictions of all families, the default one first.
    pub predicted: Vec<ChoiceCandidate>,
    /// The whole prediction of the chosen family, which the index keeps; `None` without one.
    #[serde(skip)]
    pub plan: Option<PlanFile>,
    /// The memory of the open index that was assumed; `None` if the system does not report what is available.
    pub memory_bytes: Option<u64>,
    /// Seconds of the choice.
    pub seconds: f64,
}

/// A family that was considered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChoiceCandidate {
    /// The name of the index for people.
    pub label: String,
    /// Predicted queries a second.
    pub queries_per_second: f64,
    /// Predicted bytes of memory.
    pub dram_bytes: f64,
    /// Predicted seconds of the build.
    pub build_seconds: f64,
}

impl FamilyChoice {
    /// Chooses a family for a build over `data` at `target`; `None` if the default one is taken without
    /// asking: for few vectors, for a build with a limit of memory, which small indexes would exceed, for a
    /// target that is no folder, and if a graphics card builds.
    ///
    /// # Errors
    /// [`IndexError::Cancelled`]. After all other errors, the default family is the choice, with the error as
    /// the reason.
    pub fn of_build(
        data: &VectorFile,
        target: &Path,
        options: &BuildOptions,
        progress: &dyn Progress,
    ) -> Result<Option<FamilyChoice>, IndexError> {
        let started = Instant::now();
        let is_large = data.count() >= LEAST_CHOICE_VECTORS;
        let folder =
            options.stripe.as_ref().and_then(|stripe| stripe.folders.first().map(|path| path.as_path()));
        let folder = folder.or_else(|| target.parent()).unwrap_or(Path::new("."));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // A build that will be refused is refused at once.
        let is_refused = (target.exists() && !options.overwrite)
            || !plan_build(data, options).is_ok_and(|plan| plan.memory.fits);
        let is_limited = options.memory_bytes.is_some() || options.card.is_some();
        if !is_large || !folder.is_dir() || is_limited || is_refused {
            return Ok(None);
        }
        let asked = AdviceTier::briefly(folder, progress)
            .and_then(|tier| FamilyChoice::on(data, tier, options, progress));
        let choice = match asked {
            Ok(choice) => choice,
            Err(IndexError::Cancelled) => return Err(IndexError::Cancelled),
            Err(error) => FamilyChoice::after(&error),
        };
        Ok(Some(FamilyChoice { seconds: started.elapsed().as_secs_f64(), ..choice }))
    }

    /// Chooses a family for a build over `data` whose index is read from `tier`, however few vectors there
    /// are.
    ///
    /// # Errors
    /// As [`advise`].
    pub fn on(
        data: &VectorFile,
        tier: AdviceTier,
        options: &BuildOptions,
        progress: &dyn Progress,
    ) -> Result<FamilyChoice, IndexError> {
        let memory_bytes = available_memory();
        // A flat index has nothing to calibrate.
        let wanted = |name: &&str| options.calibration.is_none() || *name != "flat";
        let request = AdviceRequest::new(AdviceOptions {
            metric: options.metric,
            tiers: vec![tier],
            limits: IndexLimits { dram_bytes: memory_bytes, ..IndexLimits::default() },
            threads: options.threads,
            pace: SamplePace::Instant,
            families: DEFAULTS.into_iter().filter(wanted).map(str::to_owned).collect(),
            seed: options.seed,
            ..AdviceOptions::default()
        })?;
        let advice = advise(data, options.calibration.as_ref(), &request, progress)?;
        let choice = FamilyChoice::from_advice(&advice, memory_bytes);
        choice.ok_or_else(|| IndexError::Parameter("nothing is predicted of the default family".into()))
    }

    /// Returns `options` with the family, its options and the plan, which the index then keeps.
    ///
    /// # Errors
    /// As [`families::options`] and [`PlanFile::text`].
    pub fn build_options(&self, options: BuildOptions) -> Result<BuildOptions, IndexError> {
        let family = families::options(&self.build.family, &self.build.options)?;
        let plan = self.plan.as_ref().map(PlanFile::kept).transpose()?;
        Ok(BuildOptions { family, plan, ..options })
    }

    /// Returns the default family, because nothing could be compared.
    fn after(error: &IndexError) -> FamilyChoice {
        let default = FAMILIES[0].name;
        FamilyChoice {
            build: AdvisedOptions { family: default.into(), options: GivenOptions::new() },
            reason: format!("{default}: small indexes could not be compared: {error}"),
            predicted: Vec::new(),
            plan: None,
            memory_bytes: None,
            seconds: 0.0,
        }
    }

    /// Returns the default family, or another one that is clearly faster and meets the limits; `None` without
    /// a prediction of the default one.
    fn from_advice(advice: &Advice, memory_bytes: Option<u64>) -> Option<FamilyChoice> {
        let default = FAMILIES[0].name;
        let is_default = |one: &&IndexPrediction| one.build.family == default;
        // A cluster index in less memory has shorter codes, so the limit does not exclude it.
        let left_out = advice.indexes.left_out.iter().filter_map(|one| one.prediction.as_ref());
        let own = advice.indexes.ranked.iter().chain(left_out).find(is_default)?;
        let speed = |one: &IndexPrediction| {
            one.load(advice.concurrency).map_or(Interval::exactly(0.0), |load| load.queries_per_second)
        };
        let others: Vec<&IndexPrediction> =
            advice.indexes.ranked.iter().filter(|one| !is_default(one)).collect();
        let expected = speed(own).value;
        let clearly_faster = |one: &&&IndexPrediction| {
            let found = speed(one);
            found.value >= CLEAR_FACTOR * expected && found.low >= expected
        };
        let faster = others.iter().filter(clearly_faster);
        let faster = faster.max_by(|a, b| speed(a).value.total_cmp(&speed(b).value));
        let build = match faster {
            Some(one) => one.build.clone(),
            // With its own defaults, as without an advice.
            None => AdvisedOptions { family: default.into(), options: GivenOptions::new() },
        };
        let candidate = |one: &IndexPrediction| ChoiceCandidate {
            label: one.label.clone(),
            queries_per_second: speed(one).value,
            dram_bytes: one.dram_bytes.value,
            build_seconds: one.build_seconds.value,
        };
        let predicted: Vec<ChoiceCandidate> =
            std::iter::once(own).chain(others.iter().copied()).map(candidate).collect();
        let reason = reason(advice, faster.map(|one| one.label.as_str()), &predicted);
        // The prediction of the default family is that of its default options.
        let plan = PlanFile::for_prediction(advice, faster.copied().unwrap_or(own));
        Some(FamilyChoice { build, reason, predicted, plan, memory_bytes, seconds: advice.seconds })
    }
}

/// Returns the reason of a choice in a line: the index that is clearly faster than the default one, or that
/// there is none, and the predictions.
fn reason(advice: &Advice, faster: Option<&str>, predicted: &[ChoiceCandidate]) -> String {
    let default = FAMILIES[0].name;
    let why = match faster {
        Some(label) => format!("{label}: clearly faster than {default}"),
        None => format!("{default}: no other family is clearly faster"),
    };
    let speeds: Vec<String> =
        predicted.iter().map(|one| format!("{} {:.0}", one.label, one.queries_per_second)).collect();
    let Advice { k, recall, concurrency, devices, .. } = advice;
    let place = devices.first().map_or("", |device| device.name.as_str());
    format!(
        "{why} (queries a second that are predicted on {place} with {concurrency} in flight, recall@{k} \
         {recall}: {})",
        speeds.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::PredictedLoad;
    use crate::ranking::{RankedAdvice, RejectedCandidate};
    use crate::statistics::DataStatistics;

    fn prediction(family: &str, qps: f64, factor: f64) -> IndexPrediction {
        let one = Interval::exactly(1.0);
        IndexPrediction {
            label: family.into(),
            build: AdvisedOptions {
                family: family.into(),
                options: GivenOptions::from([("code_bytes".into(), 32.into())]),
            },
            tier: "disk".into(),
            disk_bytes: one,
            amplification: 1.0,
            dram_bytes: one,
            build_memory_bytes: 1,
            build_seconds: one,
            recall: 0.95,
            pilot_ratio: None,
            pilot_recall: 1.0,
            rounds: one,
            reads: one,
            read_bytes: one,
            moved_bytes: one,
            code_distances: one,
            full_distances: one,
            processor_us: one,
            loads: vec![PredictedLoad {
                concurrency: 64,
                queries_per_second: Interval::within_factor(qps, factor),
                p50_us: one,
                p99_us: one,
                bound: String::new(),
            }],
            filters: Vec::new(),
            updates: None,
            dollars_per_million: 0.0,
            dollars_per_month: 0.0,
        }
    }

    fn chosen(ranked: Vec<IndexPrediction>, left_out: Vec<IndexPrediction>) -> Option<FamilyChoice> {
        let reject = |one: IndexPrediction| RejectedCandidate {
            label: one.label.clone(),
            tier: one.tier.clone(),
            reasons: vec!["memory".into()],
            prediction: Some(one),
            wanted_if: None,
        };
        let left_out = left_out.into_iter().map(reject).collect();
        let advice = Advice {
            vectors: 1,
            dim: 1,
            element: "f32".into(),
            metric: "l2".into(),
            k: 10,
            recall: 0.95,
            ratio: None,
            concurrency: 64,
            threads: 1,
            seed: 1,
            devices: Vec::new(),
            limits: IndexLimits::default(),
            sample_rows: 1,
            sample_queries: 1,
            assumed: None,
            statistics: DataStatistics {
                intrinsic_dimension: None,
                relative_contrast: None,
                copies: 0.0,
                near_copies: 0.0,
            },
            indexes: RankedAdvice { ranked, left_out, front: Vec::new() },
            other_recalls: Vec::new(),
            seconds: 1.0,
            notes: Vec::new(),
        };
        FamilyChoice::from_advice(&advice, None)
    }

    #[test]
    fn the_default_family_is_the_choice_after_an_error() {
        let choice = FamilyChoice::after(&IndexError::Parameter("no folder for pilots".into()));
        assert!(choice.reason.starts_with("cluster: ") && choice.reason.ends_with("no folder for pilots"));
        assert!(choice.plan.is_none());
        assert_eq!(choice.build_options(BuildOptions::default()).unwrap().family.family(), "cluster");
    }

    #[test]
    fn the_default_family_stays_unless_another_is_clearly_faster() {
        let family = |ranked, left_out| chosen(ranked, left_out).map(|choice| choice.build.family);
        let (cluster, graph) = (|| prediction("cluster", 100.0, 1.2), |qps| prediction("graph", qps, 1.4));
        assert_eq!(family(vec![graph(140.0), cluster()], vec![]).as_deref(), Some("cluster"));
        assert_eq!(family(vec![graph(160.0), cluster()], vec![]).as_deref(), Some("graph"));
        // Fast on average, but perhaps slower.
        let uncertain = prediction("graph", 160.0, 2.0);
        assert_eq!(family(vec![uncertain, cluster()], vec![]).as_deref(), Some("cluster"));
        // The default needs no place among those that meet the limits, and another one does.
        assert_eq!(family(vec![graph(140.0)], vec![cluster()]).as_deref(), Some("cluster"));
        assert_eq!(family(vec![cluster()], vec![graph(900.0)]).as_deref(), Some("cluster"));
        assert_eq!(family(vec![graph(160.0)], vec![]), None);
    }

    #[test]
    fn a_choice_has_its_reason_and_the_default_has_its_own_options() {
        let two = |qps| chosen(vec![prediction("cluster", 100.0, 1.0), prediction("flat", qps, 1.0)], vec![]);
        let (stays, changes) = (two(3.0).unwrap(), two(300.0).unwrap());
        assert!(stays.build.options.is_empty() && stays.build_options(BuildOptions::default()).is_ok());
        assert!(
            stays.reason.starts_with("cluster: no other") && stays.reason.ends_with("cluster 100, flat 3)")
        );
        assert_eq!(changes.build.options.len(), 1);
        assert!(changes.reason.starts_with("flat: clearly faster than cluster"), "{}", changes.reason);
        assert_eq!(changes.predicted[1].queries_per_second, 300.0);
    }
}
