//! The answer to a request.

use crate::assumed::AssumedData;
use crate::candidates::{AdvisedOptions, candidates};
use crate::core_share::CoreShare;
use crate::pilot::PilotInputs;
use crate::place::{AdviceTier, PlaceKind};
use crate::prediction::{IndexPrediction, PilotedCandidate};
use crate::ranking::{RankedAdvice, RejectedCandidate, size_words};
use crate::request::{AdviceRequest, IndexLimits};
use crate::sample::DataSample;
use crate::shape::VectorShape;
use crate::statistics::{DataStatistics, LID_NEIGHBORS};
use crate::widening::widened;
use bathyal_index::IndexError;
use bathyal_tier::TierProfile;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The share of near copies from which on the laws of pilots do not hold.
const MANY_COPIES: f64 = 0.3;
/// A set is more than its sample if it has more vectors by this factor.
const WHOLE: f64 = 1.2;

/// Factor by which intervals of searches are wider if the whole set has more copies than the sample.
const COPIES_WIDEN: f64 = 4.0;

/// A device that was considered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdvisedDevice {
    /// Its name in the predictions.
    pub name: String,
    /// Its profile.
    pub profile: TierProfile,
    /// The kind of place.
    #[serde(default)]
    pub kind: PlaceKind,
}

/// The answer: which index to build, with its predicted numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Number of vectors of the index.
    pub vectors: u64,
    /// Dimensions.
    pub dim: u32,
    /// Element name.
    pub element: String,
    /// Metric name.
    pub metric: String,
    /// Neighbours per query.
    pub k: usize,
    /// The recall of searches; for a ratio, that of the first index.
    pub recall: f32,
    /// The overall ratio of the request, which replaces a recall: each index has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f32>,
    /// Queries in flight by which indexes are ranked.
    pub concurrency: u32,
    /// Threads of searches and of the build.
    pub threads: usize,
    /// The seed of the sample, the pilots and the build.
    pub seed: u64,
    /// The devices that were considered.
    pub devices: Vec<AdvisedDevice>,
    /// The limits.
    pub limits: IndexLimits,
    /// Rows of the sample.
    pub sample_rows: usize,
    /// Queries with which pilots were measured.
    pub sample_queries: usize,
    /// The assumption about the data if there was no sample of it, so that the sample is made up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<AssumedData>,
    /// Properties of the sample.
    pub statistics: DataStatistics,
    /// The ranked indexes, and those that are left out.
    #[serde(flatten)]
    pub indexes: RankedAdvice,
    /// The answers for the other recalls of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_recalls: Vec<Advice>,
    /// Seconds until this answer.
    pub seconds: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Advice {
    /// Returns the recall or the ratio of searches in words, such as "recall@10 0.95".
    pub fn quality_words(&self) -> String {
        match self.ratio {
            Some(ratio) => format!("ratio@{} of {ratio} at most", self.k),
            None => format!("recall@{} {}", self.k, self.recall),
        }
    }
}

/// Predicts indexes over `data`, or over [`vectors`](crate::AdviceOptions::vectors) vectors of which `data`
/// is a sample, and ranks those that meet the limits of the request.
///
/// Only a sample of the rows is read. Pilots are built in a temporary folder, which is removed in any case.
///
/// # Errors
/// [`IndexError::Parameter`]: too few vectors, queries of another shape, vectors that are all the same.
/// [`IndexError::Cancelled`]; errors of the file, of the folder for pilots, and of their builds. Limits that
/// no index meets are not an error: [`RankedAdvice::left_out`] has the reasons.
pub fn advise(
    data: &VectorFile,
    queries: Option<&VectorFile>,
    request: &AdviceRequest,
    progress: &dyn Progress,
) -> Result<Advice, IndexError> {
    let started = Instant::now();
    let options = request.options();
    let count = options.vectors.unwrap_or(data.count() as u64);
    if count < data.count() as u64 {
        return Err(IndexError::Parameter(format!(
            "the index is to have {count} vectors, fewer than the {} of the sample",
            data.count()
        )));
    }
    let shape = VectorShape { element: data.element(), dim: data.dim(), count };
    let candidates = candidates(shape, request)?;
    let sample = DataSample::take(data, queries, request, progress)?;
    let folder = pilots_folder(request)?;
    let inputs = PilotInputs::new(&sample, request, folder.path(), LID_NEIGHBORS, progress)?;
    let nearest = inputs.truths.last().ok_or_else(|| IndexError::Internal("no pilots".into()))?;
    let statistics = DataStatistics::measure(&sample, options.metric, nearest, progress)?;
    let mut core_share = CoreShare::default();
    let copies = has_more_copies(&sample, &statistics, count).then_some(COPIES_WIDEN);
    let widen = options.assumed.as_ref().map(|assumed| assumed.widened_by).or(copies);
    let (predicted, unpredicted) = predict((&candidates, widen), shape, &inputs, &mut core_share)?;
    let predicted: Vec<(f32, Vec<IndexPrediction>)> = match options.ratio {
        Some(ratio) => vec![(options.recall, least_recalls(predicted, f64::from(ratio)))],
        None => request.recalls().into_iter().zip(predicted).collect(),
    };
    let answers = predicted.into_iter().map(|(recall, predictions)| {
        let request = request.at_recall(recall);
        let indexes = RankedAdvice::new(predictions, unpredicted.clone(), &request);
        let recall = match (options.ratio, indexes.ranked.first()) {
            (Some(_), Some(best)) => best.recall,
            _ => recall,
        };
        Advice {
            vectors: count,
            dim: data.dim() as u32,
            element: data.element().name().into(),
            metric: options.metric.name_over(data.element()).into(),
            k: options.k,
            recall,
            ratio: options.ratio,
            concurrency: options.concurrency,
            threads: request.threads(),
            seed: options.seed,
            devices: devices(&request),
            limits: options.limits,
            sample_rows: sample.rows.count(),
            sample_queries: sample.queries.count(),
            assumed: options.assumed.clone(),
            statistics,
            notes: notes((&sample, &statistics, count), &indexes, &request)
                .into_iter()
                .chain(core_share.note())
                .collect(),
            indexes,
            other_recalls: Vec::new(),
            seconds: started.elapsed().as_secs_f64(),
        }
    });
    let mut answers: Vec<Advice> = answers.collect();
    let others = answers.split_off(1.min(answers.len()));
    let first = answers.pop().ok_or_else(|| IndexError::Internal("no recall".into()))?;
    Ok(Advice { other_recalls: others, ..first })
}

/// Predicts the candidates from their pilots: for each recall of the request, the predictions on all devices.
/// Intervals are wider by the factor `widen`. The second list has the candidates that their plans alone
/// exclude.
fn predict(
    (candidates, widen): (&[AdvisedOptions], Option<f64>),
    shape: VectorShape,
    inputs: &PilotInputs<'_>,
    core_share: &mut CoreShare,
) -> Result<(Vec<Vec<IndexPrediction>>, Vec<RejectedCandidate>), IndexError> {
    let PilotInputs { sample, request, progress, .. } = inputs;
    let options = request.options();
    let recalls = request.recalls();
    let (mut predictions, mut unpredicted) = (vec![Vec::new(); recalls.len()], Vec::new());
    let steps = candidates.len() * sample.sizes.len();
    for (at, build) in candidates.iter().enumerate() {
        progress.stage(&format!("pilots: {}", build.label()), steps as u64);
        let plan = build.plan(shape, request)?;
        if let Some(reason) = refused_by_plan(&plan, &options.limits) {
            unpredicted.push(RejectedCandidate {
                label: build.label(),
                tier: "any".into(),
                reasons: vec![reason],
                prediction: None,
                wanted_if: None,
            });
            continue;
        }
        let done = |pilots: usize| progress.advance((at * sample.sizes.len() + pilots) as u64);
        let pilots = inputs.pilots(build, &done)?;
        core_share.look();
        let piloted = PilotedCandidate { build, shape, plan: &plan, pilots: &pilots, request };
        for (tier_at, tier) in options.tiers.iter().enumerate() {
            for (recall_at, (predictions, recall)) in predictions.iter_mut().zip(&recalls).enumerate() {
                let prediction = piloted.on((tier_at * recalls.len() + recall_at, *recall), tier)?;
                predictions.push(match widen {
                    Some(factor) => widened(prediction, factor, &plan),
                    None => prediction,
                });
            }
        }
    }
    Ok((predictions, unpredicted))
}

/// Returns, of each index on each device, the prediction for the least recall with which its pilots have the
/// ratio; that of the largest recall if none has. `predictions` are those of each recall, in ascending order,
/// of the same indexes in the same order.
fn least_recalls(predictions: Vec<Vec<IndexPrediction>>, ratio: f64) -> Vec<IndexPrediction> {
    let mut least: Vec<IndexPrediction> = Vec::new();
    for of_recall in predictions {
        for (at, prediction) in of_recall.into_iter().enumerate() {
            match least.get_mut(at) {
                None => least.push(prediction),
                Some(known) if !known.is_near_enough(ratio) => *known = prediction,
                Some(_) => {}
            }
        }
    }
    least
}

/// Returns the devices of a request.
fn devices(request: &AdviceRequest) -> Vec<AdvisedDevice> {
    let tiers = request.options().tiers.iter();
    let device = |tier: &AdviceTier| AdvisedDevice {
        name: tier.name.clone(),
        profile: tier.profile.clone(),
        kind: tier.kind,
    };
    tiers.map(device).collect()
}

/// Returns the reason for which the plan of a build alone excludes a candidate.
fn refused_by_plan(plan: &bathyal_index::BuildPlan, limits: &IndexLimits) -> Option<String> {
    let over = |what: &str, bytes: u64, limit: Option<u64>, more: String| {
        let limit = limit.filter(|limit| bytes > *limit)?;
        Some(format!("{what} {}{more}, over your {}", size_words(bytes as f64), size_words(limit as f64)))
    };
    let times = plan.least_index_bytes as f64 / plan.data_bytes.max(1) as f64;
    let more = format!(" at least, {times:.1} times the data");
    over("disk", plan.least_index_bytes, limits.disk_bytes, more).or_else(|| {
        let planned = plan.memory.needed_bytes.unwrap_or(plan.memory.planned_bytes);
        over("build memory", planned, limits.build_memory_bytes, String::new())
    })
}

/// Makes the folder for pilots.
fn pilots_folder(request: &AdviceRequest) -> Result<tempfile::TempDir, IndexError> {
    let options = request.options();
    let place = options.work_folder.clone().unwrap_or_else(std::env::temp_dir);
    tempfile::Builder::new().prefix("bathyal-pilots-").tempdir_in(&place).map_err(|error| {
        IndexError::Parameter(format!(
            "{}: pilots cannot be built here: {error}; name another folder for them",
            place.display()
        ))
    })
}

/// Returns true if many vectors of the sample have near copies, of which the whole set has more.
fn has_more_copies(sample: &DataSample, statistics: &DataStatistics, vectors: u64) -> bool {
    statistics.near_copies >= MANY_COPIES && vectors as f64 > WHOLE * sample.rows.count() as f64
}

/// Returns the notes about the sample and the answer.
fn notes(
    (sample, statistics, vectors): (&DataSample, &DataStatistics, u64),
    indexes: &RankedAdvice,
    request: &AdviceRequest,
) -> Vec<String> {
    let assumed = request.options().assumed.as_ref();
    let mut notes: Vec<String> = assumed.map(AssumedData::words).into_iter().collect();
    notes.extend(request.options().tiers.iter().filter_map(AdviceTier::contradiction));
    if assumed.is_none() && !sample.queries_given {
        notes.push(
            "no queries were given, so pilots were searched with held-out vectors; queries unlike the \
             vectors take more reads"
                .into(),
        );
    }
    if has_more_copies(sample, statistics, vectors) {
        notes.push(format!(
            "{:.0}% of the vectors of the sample have a near copy in it. The whole set has more copies of \
             each, which no pilot shows: reads, times and speeds may be several times those predicted, \
             those of graphs most. Build the index, and compare it with its plan (--check)",
            100.0 * statistics.near_copies
        ));
    }
    if !request.options().filters.is_empty() {
        notes.push(
            "indexes are ordered by the mean time of as many searches without a filter as under each one; \
             rows that match are taken as spread evenly"
                .into(),
        );
    }
    if indexes.ranked.is_empty() {
        let nearest = indexes.left_out.iter().filter(|one| one.prediction.is_some());
        let nearest = nearest.min_by_key(|one| one.reasons.len());
        notes.push(match nearest {
            Some(one) => format!(
                "no index meets all limits; {} on {} comes nearest: {}",
                one.label,
                one.tier,
                one.reasons.join("; ")
            ),
            None => "no index meets all limits".into(),
        });
    }
    notes
}
