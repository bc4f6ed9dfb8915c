//! Explained queries beside the plan that their index keeps.

use crate::comparison::{ComparedNumber, compared};
use crate::interval::Interval;
use crate::plan_file::PlanFile;
use bathyal_index::cost::deviation::{FAILING_FACTOR, FailedAssumption, QueryMeans, judge_plan};
use bathyal_index::{BatchExplanation, Effort, Explanation, Index, SearchOptions};
use serde::{Deserialize, Serialize};

/// Nanoseconds of a microsecond.
const US: f64 = 1e3;

/// The costs of explained queries beside their prediction by the plan of the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanDeviation {
    /// The name of the planned index.
    pub label: String,
    /// The name of the device of the plan.
    pub tier: String,
    /// Sentences about what is not as the plan assumes: the number of vectors, the search, the device.
    pub differences: Vec<String>,
    /// Means of a query.
    pub numbers: Vec<ComparedNumber>,
    /// The factor between prediction and measurement beyond which an assumption has failed.
    pub factor: f64,
    /// The assumptions that failed, those about counts first.
    pub failed: Vec<FailedAssumption>,
}

/// An explanation beside the plan of its index.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedByPlan<E> {
    /// The explanation. Its notes say why a plan that the index keeps cannot be read.
    #[serde(flatten)]
    pub explanation: E,
    /// The comparison with the plan; absent in JSON if the index keeps none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanDeviation>,
}

impl ExplainedByPlan<BatchExplanation> {
    /// Compares a batch of queries that were searched with `options` with the plan that the index keeps.
    pub fn of_batch(index: &Index, options: &SearchOptions, mut explanation: BatchExplanation) -> Self {
        let mut plan = deviation(index, options, &explanation.actual, &mut explanation.notes);
        let cached = explanation.tiers.iter().find(|share| share.tier == "page cache");
        if let (Some(plan), Some(share)) = (&mut plan, cached) {
            let (reads, all) = (share.reads, explanation.actual.reads);
            plan.differences.push(format!(
                "the page cache answers {reads:.1} of {all:.1} reads, and the plan has no such cache"
            ));
        }
        ExplainedByPlan { explanation, plan }
    }
}

impl ExplainedByPlan<Explanation> {
    /// Compares one query with the plan, whose numbers are means.
    pub fn of_query(index: &Index, options: &SearchOptions, mut explanation: Explanation) -> Self {
        let plan = deviation(index, options, &explanation.actual, &mut explanation.notes);
        ExplainedByPlan { explanation, plan }
    }
}

/// Returns the comparison with the plan; `None` without one. A note says why a plan cannot be read.
fn deviation(
    index: &Index,
    options: &SearchOptions,
    actual: &QueryMeans,
    notes: &mut Vec<String>,
) -> Option<PlanDeviation> {
    match PlanFile::kept_by(index.manifest()) {
        Ok(plan) => plan.map(|plan| deviation_from(&plan, index, options, actual)),
        Err(error) => {
            notes.push(error.to_string());
            None
        }
    }
}

fn deviation_from(
    plan: &PlanFile,
    index: &Index,
    options: &SearchOptions,
    actual: &QueryMeans,
) -> PlanDeviation {
    let expected = &plan.index;
    let planned = QueryMeans {
        rounds: expected.rounds.value,
        reads: expected.reads.value,
        bytes: expected.read_bytes.value,
        code_distances: expected.code_distances.value,
        full_distances: expected.full_distances.value,
        processor_ns: expected.processor_us.value * US,
        ..QueryMeans::default()
    };
    let number = |name: &str, interval: Interval, actual: f64| compared(name, interval, actual);
    PlanDeviation {
        label: expected.label.clone(),
        tier: expected.tier.clone(),
        differences: differences(plan, index, options),
        numbers: vec![
            number("rounds", expected.rounds, actual.rounds),
            number("reads", expected.reads, actual.reads),
            number("bytes read", expected.read_bytes, actual.bytes),
            number("codes", expected.code_distances, actual.code_distances),
            number("vectors", expected.full_distances, actual.full_distances),
            number("processor, us", expected.processor_us, actual.processor_ns / US),
        ],
        factor: FAILING_FACTOR,
        failed: judge_plan(&planned, actual, FAILING_FACTOR),
    }
}

/// Returns what is not as the plan assumes, a sentence each.
fn differences(plan: &PlanFile, index: &Index, options: &SearchOptions) -> Vec<String> {
    let mut found = Vec::new();
    let vectors = index.len() as u64;
    if vectors != plan.vectors {
        found.push(format!("the plan is for {} vectors, and the index has {vectors}", plan.vectors));
    }
    if options.k != plan.k {
        found.push(format!("the plan is for k {}, and this search has k {}", plan.k, options.k));
    }
    if options.effort != Effort::Recall(plan.recall) {
        let given = match options.effort {
            Effort::Recall(recall) => format!("recall {recall}"),
            _ => "another effort".into(),
        };
        found.push(format!("the plan is for recall {}, and this search has {given}", plan.recall));
    }
    let profile = index.tier().profile();
    if profile.addressable != plan.profile.addressable {
        found.push(format!(
            "the plan is for reads from {}, and these are from the tier {}",
            plan.index.tier, profile.kind
        ));
    }
    found
}
