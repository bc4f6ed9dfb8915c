//! The order of predicted indexes, and the reasons of those that are left out.
//!
//! Indexes that meet every limit are ordered by their throughput at the request's queries in flight, the
//! fastest first; among those within a tenth of each other, the one that takes the least memory and then the
//! least disk comes first. Memory and disk count with the upper ends of their intervals, so that a limit
//! holds; speeds and times count with their expected values.

use crate::prediction::{IndexPrediction, PredictedLoad};
use crate::request::{AdviceRequest, IndexLimits};
use crate::updates::UpdatesPrediction;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Throughputs within this factor are equal: predictions are not more precise.
const EQUAL_SPEED: f64 = 1.1;
/// The least share of the request's miss (1 - recall) by which pilots may miss it in addition.
const RECALL_TOLERANCE: f64 = 0.01;

/// A candidate that is not recommended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RejectedCandidate {
    /// The name of the candidate.
    pub label: String,
    /// The name of the device.
    pub tier: String,
    /// The limits that it exceeds, each as a sentence; or why there is no prediction.
    pub reasons: Vec<String>,
    /// The prediction; `None` if there is none.
    pub prediction: Option<IndexPrediction>,
    /// The limits with which it would be recommended first; `None` if another limit is in the way, too.
    pub wanted_if: Option<String>,
}

/// The ranked predictions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankedAdvice {
    /// The indexes that meet all limits, the best first.
    pub ranked: Vec<IndexPrediction>,
    /// The others.
    pub left_out: Vec<RejectedCandidate>,
    /// Labels and devices of all predicted indexes that no other one beats in memory and disk and speed.
    pub front: Vec<FrontPoint>,
}

/// The most of a day for which merges may run: beside searches they get half of the threads.
const MERGING_SHARE: f64 = 0.5;

/// An index that no other one beats in size and speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontPoint {
    /// The name of the candidate.
    pub label: String,
    /// The name of the device.
    pub tier: String,
    /// Bytes of memory.
    pub dram_bytes: f64,
    /// Bytes of the files.
    pub disk_bytes: f64,
    /// Queries per second at the request's queries in flight.
    pub queries_per_second: f64,
}

impl RankedAdvice {
    /// Ranks predictions; `unpredicted` are left out from the beginning.
    pub(crate) fn new(
        predictions: Vec<IndexPrediction>,
        unpredicted: Vec<RejectedCandidate>,
        request: &AdviceRequest,
    ) -> RankedAdvice {
        let options = request.options();
        let front = front(&predictions, options.concurrency);
        let (mut ranked, mut left_out) = (Vec::new(), Vec::new());
        for prediction in predictions {
            let exceeded = exceeded(&prediction, request);
            match exceeded.is_empty() {
                true => ranked.push(prediction),
                false => left_out.push((prediction, exceeded)),
            }
        }
        order(&mut ranked, options.concurrency);
        let best = ranked.first().map(|best| qps(best, options.concurrency));
        let rejected = left_out
            .into_iter()
            .map(|(prediction, exceeded)| reject(prediction, exceeded, best, options.concurrency));
        let mut left_out: Vec<RejectedCandidate> = rejected.collect();
        left_out.extend(unpredicted);
        RankedAdvice { ranked, left_out, front }
    }
}

/// Sorts by speed; those of equal speed as the fastest of them by memory, then by disk.
fn order(ranked: &mut Vec<IndexPrediction>, concurrency: u32) {
    ranked.sort_by(|a, b| qps(b, concurrency).total_cmp(&qps(a, concurrency)));
    let mut ordered = Vec::new();
    while let Some(fastest) = ranked.first().map(|first| qps(first, concurrency)) {
        let equal = ranked.iter().take_while(|one| qps(one, concurrency) * EQUAL_SPEED >= fastest).count();
        let mut together: Vec<IndexPrediction> = ranked.drain(..equal.max(1)).collect();
        together.sort_by(smaller);
        ordered.extend(together);
    }
    *ranked = ordered;
}

fn smaller(a: &IndexPrediction, b: &IndexPrediction) -> Ordering {
    let dram = a.dram_bytes.value.total_cmp(&b.dram_bytes.value);
    dram.then(a.disk_bytes.value.total_cmp(&b.disk_bytes.value))
}

fn qps(prediction: &IndexPrediction, concurrency: u32) -> f64 {
    prediction.mixed_queries_per_second(concurrency)
}

/// A limit that a prediction exceeds.
struct Exceeded {
    /// The sentence.
    reason: String,
    /// The limit that would be enough, in words.
    enough: String,
}

/// Returns the limits that a prediction exceeds.
fn exceeded(prediction: &IndexPrediction, request: &AdviceRequest) -> Vec<Exceeded> {
    let IndexLimits {
        dram_bytes,
        disk_bytes,
        p50_us,
        p99_us,
        queries_per_second,
        build_seconds,
        build_memory_bytes,
        dollars_per_month,
    } = request.options().limits;
    // Limits hold without a filter and under each one.
    let loads: Vec<&PredictedLoad> = prediction.all_loads(request.options().concurrency).collect();
    let latency = |of: fn(&PredictedLoad) -> f64| match loads.is_empty() {
        true => f64::INFINITY,
        false => loads.iter().map(|load| of(load)).fold(0.0, f64::max),
    };
    let times = |value: f64| format!(", {:.1} times the data", value * prediction.amplification);
    let bytes = |given: u64| given as f64;
    let mut found = Vec::new();
    let mut most = |name: &str, value: f64, limit: Option<f64>, words: &dyn Fn(f64) -> String, more: &str| {
        if let Some(limit) = limit.filter(|limit| value > *limit) {
            found.push(Exceeded {
                reason: format!("{name} {}{more}, over your {}", words(value), words(limit)),
                enough: format!("{} of {name}", words(value)),
            });
        }
    };
    let micros = |us: f64| format!("{us:.0} us");
    let (disk, dram) = prediction.disk_and_dram();
    most("memory", dram.high, dram_bytes.map(bytes), &size_words, "");
    most("disk", disk.high, disk_bytes.map(bytes), &size_words, &times(1.0));
    most("p50", latency(|load| load.p50_us.value), p50_us, &micros, "");
    most("p99", latency(|load| load.p99_us.value), p99_us, &micros, "");
    most("build time", prediction.build_seconds.value, build_seconds, &|s| format!("{s:.0} s"), "");
    let build_memory = prediction.build_memory_bytes as f64;
    most("build memory", build_memory, build_memory_bytes.map(bytes), &size_words, "");
    most("cost", prediction.dollars_per_month, dollars_per_month, &|d| format!("{d:.2} dollars a month"), "");
    let speed = loads.iter().map(|load| load.queries_per_second.value).fold(f64::INFINITY, f64::min);
    if let Some(limit) = queries_per_second.filter(|limit| speed < *limit) {
        found.push(Exceeded {
            reason: format!("{speed:.0} queries a second, below your {limit:.0}"),
            enough: format!("{speed:.0} queries a second"),
        });
    }
    let merging = prediction.updates.as_ref().map_or(0.0, UpdatesPrediction::share_of_day);
    if merging > MERGING_SHARE {
        found.push(Exceeded {
            reason: format!(
                "merges of the rows that are replaced would run for {:.1} hours a day, over {:.0}",
                24.0 * merging,
                24.0 * MERGING_SHARE
            ),
            enough: "fewer rows a day".into(),
        });
    }
    found.extend(misses(prediction, request));
    found
}

/// Returns the recall or the ratio of the request, if the pilots did not find it.
fn misses(prediction: &IndexPrediction, request: &AdviceRequest) -> Option<Exceeded> {
    let (recall, found) = (f64::from(request.options().recall), prediction.pilot_recall);
    if let Some(ratio) = request.options().ratio.map(f64::from) {
        let found_ratio = prediction.pilot_ratio.map_or("none".into(), |ratio| format!("{ratio:.4}"));
        return (!prediction.is_near_enough(ratio)).then(|| Exceeded {
            reason: format!(
                "with recall {}, the ratio of its answers is {found_ratio} in pilots, over your {ratio}",
                prediction.recall
            ),
            enough: format!("a ratio of {found_ratio}"),
        });
    }
    (found < recall - RECALL_TOLERANCE - (1.0 - recall)).then(|| Exceeded {
        reason: format!(
            "its calibration does not find recall {recall} for these queries: {found:.3} in pilots"
        ),
        enough: format!("recall {found:.3}"),
    })
}

/// Returns the candidate as one that is left out, with the limit that would make it the best.
fn reject(
    prediction: IndexPrediction,
    exceeded: Vec<Exceeded>,
    best: Option<f64>,
    concurrency: u32,
) -> RejectedCandidate {
    let speed = qps(&prediction, concurrency);
    let better = best.is_none_or(|best| speed > best * EQUAL_SPEED);
    let wanted_if = match exceeded.as_slice() {
        [one] if better => Some(format!(
            "from {} on, {} on {} ({speed:.0} queries a second)",
            one.enough, prediction.label, prediction.tier
        )),
        _ => None,
    };
    RejectedCandidate {
        label: prediction.label.clone(),
        tier: prediction.tier.clone(),
        reasons: exceeded.into_iter().map(|one| one.reason).collect(),
        prediction: Some(prediction),
        wanted_if,
    }
}

/// Returns the indexes that no other one beats in memory, disk and speed.
fn front(predictions: &[IndexPrediction], concurrency: u32) -> Vec<FrontPoint> {
    let measures =
        |one: &IndexPrediction| (one.dram_bytes.value, one.disk_bytes.value, qps(one, concurrency));
    let beats = |a: &IndexPrediction, b: &IndexPrediction| {
        let ((dram_a, disk_a, qps_a), (dram_b, disk_b, qps_b)) = (measures(a), measures(b));
        let no_worse = dram_a <= dram_b && disk_a <= disk_b && qps_a >= qps_b;
        no_worse && (dram_a < dram_b || disk_a < disk_b || qps_a > qps_b)
    };
    let unbeaten = predictions.iter().filter(|one| !predictions.iter().any(|other| beats(other, one)));
    let mut points: Vec<FrontPoint> = unbeaten
        .map(|one| FrontPoint {
            label: one.label.clone(),
            tier: one.tier.clone(),
            dram_bytes: one.dram_bytes.value,
            disk_bytes: one.disk_bytes.value,
            queries_per_second: qps(one, concurrency),
        })
        .collect();
    points.sort_by(|a, b| a.dram_bytes.total_cmp(&b.dram_bytes));
    points
}

/// Returns bytes in words, in decimal units.
pub(crate) fn size_words(bytes: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or(format!("{bytes:.0} B"), |(unit, name)| format!("{:.1} {name}", bytes / unit))
}
