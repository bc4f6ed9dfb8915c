//! A prediction next to what was counted and measured, and the assumptions of the model that failed.

use super::device::Device;
use super::work::Estimate;
use serde::{Deserialize, Serialize};

/// The factor between prediction and measurement beyond which an assumption counts as failed. Predictions
/// that hold differ by a third at most in 19 of 20 cases, so half as much again is not chance.
pub const FAILING_FACTOR: f64 = 1.5;
/// A time below this share of the query is not judged: its error hardly changes the total, and short times
/// consist of the clock's own.
const LEAST_SHARE: f64 = 0.05;

/// The cost of a query by counter and phase, predicted or measured. Means over a set of queries that run one
/// after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryMeans {
    /// Dependent rounds of reads.
    pub rounds: f64,
    /// Reads.
    pub reads: f64,
    /// Bytes of all reads.
    pub bytes: f64,
    /// Codes scored.
    pub code_distances: f64,
    /// Full vectors compared.
    pub full_distances: f64,
    /// Processor nanoseconds for finding groups, lists or the next record, and for preparing the query.
    pub navigate_ns: f64,
    /// Processor nanoseconds for scoring codes.
    pub scan_ns: f64,
    /// Processor nanoseconds for comparing full vectors.
    pub rerank_ns: f64,
    /// Nanoseconds of waiting for reads, with the processor's time to submit them.
    pub read_ns: f64,
    /// Nanoseconds from start to answer.
    pub total_ns: f64,
    /// Processor nanoseconds of all phases, with those of submitting reads.
    pub processor_ns: f64,
}

impl QueryMeans {
    /// Returns the prediction for a query alone on `device`.
    pub fn predicted(estimate: &Estimate, device: &Device) -> QueryMeans {
        let Estimate { demand, work } = estimate;
        let total_ns = demand.alone_ns(device);
        QueryMeans {
            rounds: demand.rounds,
            reads: demand.reads,
            bytes: demand.moved_bytes,
            code_distances: work.code_distances,
            full_distances: work.full_distances,
            navigate_ns: work.navigate_ns,
            scan_ns: work.scan_ns,
            rerank_ns: work.rerank_ns,
            read_ns: total_ns - work.compute_ns(),
            total_ns,
            processor_ns: work.compute_ns() + demand.reads * device.issue_ns,
        }
    }
}

/// An assumption of the cost model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumption {
    /// Dependent rounds of reads of a query.
    Rounds,
    /// Reads of a query.
    Reads,
    /// Bytes of a read.
    Bytes,
    /// Codes and vectors that a query compares.
    Distances,
    /// Nanoseconds of a round of reads.
    Latency,
    /// Nanoseconds of the processor for scoring a code.
    CodeTime,
    /// Nanoseconds of the processor for comparing a full vector.
    VectorTime,
    /// Nanoseconds of the processor for navigation.
    NavigationTime,
    /// Nanoseconds of the processor for all that a query does, for each code and vector that it compares.
    ProcessorTime,
}

/// An assumption that failed, with both numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedAssumption {
    /// The assumption.
    pub assumption: Assumption,
    /// The number of the model.
    pub predicted: f64,
    /// The number that was counted or measured.
    pub actual: f64,
    /// A sentence that names the assumption and both numbers.
    pub sentence: String,
}

impl Assumption {
    /// Returns the sentence about an assumption of `whose` that failed.
    fn sentence(self, whose: &str, predicted: f64, actual: f64) -> String {
        let pair = |digits: usize| (format!("{predicted:.digits$}"), format!("{actual:.digits$}"));
        let us = || (format!("{:.1}", predicted / 1e3), format!("{:.1}", actual / 1e3));
        let ((expected, found), rest) = match self {
            Assumption::Rounds => (pair(1), ("rounds of reads a query", "were counted")),
            Assumption::Reads => (pair(1), ("reads a query", "were counted")),
            Assumption::Bytes => (pair(0), ("bytes a read", "were counted")),
            Assumption::Distances => (pair(0), ("codes and vectors compared a query", "were counted")),
            Assumption::Latency => (us(), ("us for a round of reads", "us were measured")),
            Assumption::CodeTime => (pair(2), ("ns for scoring a code", "ns were measured")),
            Assumption::VectorTime => (pair(1), ("ns for comparing a vector", "ns were measured")),
            Assumption::NavigationTime => (us(), ("us for navigation", "us were measured")),
            Assumption::ProcessorTime => {
                (pair(1), ("ns of the processor for each comparison of a code or vector", "were measured"))
            }
        };
        format!("{whose} expects {expected} {}, but {found} {}", rest.0, rest.1)
    }
}

/// Returns the assumptions by which `actual` differs from `predicted` by more than `factor` in either
/// direction. The counts come first, since they explain times. Times are judged for each unit of what they
/// are for, and only where they are a part of the query that matters.
pub fn judge(predicted: &QueryMeans, actual: &QueryMeans, factor: f64) -> Vec<FailedAssumption> {
    let longest = predicted.total_ns.max(actual.total_ns);
    let matters = |time: fn(&QueryMeans) -> f64| {
        let larger = time(predicted).max(time(actual));
        larger >= LEAST_SHARE * longest && larger > 0.0
    };
    // A unit that one side lacks is reported as a count, and has no time.
    let timed = |time: fn(&QueryMeans) -> f64, units: fn(&QueryMeans) -> f64| {
        matters(time).then(|| per_unit(predicted, actual, time, units)).flatten()
    };
    let navigation =
        matters(|means| means.navigate_ns).then_some((predicted.navigate_ns, actual.navigate_ns));
    let times = [
        (Assumption::Latency, timed(|means| means.read_ns, |means| means.rounds)),
        (Assumption::NavigationTime, navigation),
        (Assumption::CodeTime, timed(|means| means.scan_ns, |means| means.code_distances)),
        (Assumption::VectorTime, timed(|means| means.rerank_ns, |means| means.full_distances)),
    ];
    failed("the model", counts(predicted, actual).into_iter().chain(times), factor)
}

/// Returns the assumptions of a plan by which `actual` differs, as [`judge`] does. A plan has counts and the
/// processor's time of a query, but no times of its phases.
pub fn judge_plan(planned: &QueryMeans, actual: &QueryMeans, factor: f64) -> Vec<FailedAssumption> {
    let processor = per_unit(planned, actual, |means| means.processor_ns, distances);
    let processor = (planned.processor_ns > 0.0 && actual.processor_ns > 0.0).then_some(processor).flatten();
    let numbers = counts(planned, actual).into_iter().chain([(Assumption::ProcessorTime, processor)]);
    failed("the plan", numbers, factor)
}

/// A number of the prediction and that of the queries; `None` if there is nothing to compare.
type BothNumbers = Option<(f64, f64)>;

/// Returns the counts of a query.
fn counts(predicted: &QueryMeans, actual: &QueryMeans) -> [(Assumption, BothNumbers); 4] {
    let both = |number: fn(&QueryMeans) -> f64| Some((number(predicted), number(actual)));
    [
        (Assumption::Rounds, both(|means| means.rounds)),
        (Assumption::Reads, both(|means| means.reads)),
        (Assumption::Bytes, per_unit(predicted, actual, |means| means.bytes, |means| means.reads)),
        (Assumption::Distances, both(distances)),
    ]
}

fn distances(means: &QueryMeans) -> f64 {
    means.code_distances + means.full_distances
}

/// Returns an amount for each unit; `None` if one side has no units.
fn per_unit(
    predicted: &QueryMeans,
    actual: &QueryMeans,
    amount: fn(&QueryMeans) -> f64,
    units: fn(&QueryMeans) -> f64,
) -> BothNumbers {
    let of = |means: &QueryMeans| amount(means) / units(means);
    (units(predicted) > 0.0 && units(actual) > 0.0).then(|| (of(predicted), of(actual)))
}

/// Returns the assumptions of `whose` whose numbers differ by more than `factor`.
fn failed(
    whose: &str,
    numbers: impl Iterator<Item = (Assumption, BothNumbers)>,
    factor: f64,
) -> Vec<FailedAssumption> {
    let failed = |(assumption, numbers): (Assumption, BothNumbers)| {
        let (predicted, actual) =
            numbers.filter(|(predicted, actual)| differ(*predicted, *actual, factor))?;
        let sentence = assumption.sentence(whose, predicted, actual);
        Some(FailedAssumption { assumption, predicted, actual, sentence })
    };
    numbers.filter_map(failed).collect()
}

/// Returns true if one number is more than `factor` times the other.
fn differ(predicted: f64, actual: f64, factor: f64) -> bool {
    predicted.max(actual) > factor * predicted.min(actual)
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::work::Work;
    use super::*;

    /// A query that holds all assumptions.
    const QUERY: QueryMeans = QueryMeans {
        rounds: 10.0,
        reads: 40.0,
        bytes: 163_840.0,
        code_distances: 2_000.0,
        full_distances: 40.0,
        navigate_ns: 10_000.0,
        scan_ns: 40_000.0,
        rerank_ns: 10_000.0,
        read_ns: 900_000.0,
        total_ns: 960_000.0,
        processor_ns: 204_000.0,
    };

    fn failed(actual: QueryMeans) -> Vec<Assumption> {
        judge(&QUERY, &actual, FAILING_FACTOR).iter().map(|failed| failed.assumption).collect()
    }

    #[test]
    fn each_assumption_fails_alone_in_both_directions_beyond_the_factor() {
        assert_eq!(failed(QUERY), []);
        // A time of a round of reads stays the same if rounds and waiting grow together.
        let rounds = |times: f64| QueryMeans { rounds: 10.0 * times, read_ns: 9e5 * times, ..QUERY };
        assert_eq!((failed(rounds(1.4)), failed(rounds(1.6))), (vec![], vec![Assumption::Rounds]));
        assert_eq!(failed(rounds(0.6)), [Assumption::Rounds]);
        let reads = |times: f64| QueryMeans { reads: 40.0 * times, bytes: 163_840.0 * times, ..QUERY };
        assert_eq!((failed(reads(1.5)), failed(reads(1.6))), (vec![], vec![Assumption::Reads]));
        assert_eq!(failed(QueryMeans { bytes: 9e6, ..QUERY }), [Assumption::Bytes]);
        assert_eq!(failed(QueryMeans { bytes: 10_000.0, ..QUERY }), [Assumption::Bytes]);
        assert_eq!(failed(QueryMeans { read_ns: 2e6, ..QUERY }), [Assumption::Latency]);
        let codes = |times: f64| QueryMeans { code_distances: 2e3 * times, scan_ns: 4e4 * times, ..QUERY };
        let slow = |total_ns: f64| QueryMeans { scan_ns: 400_000.0, total_ns, ..QUERY };
        assert_eq!(failed(codes(2.0)), [Assumption::Distances]);
        assert_eq!(failed(slow(1_320_000.0)), [Assumption::CodeTime]);
        let vectors = QueryMeans { rerank_ns: 100_000.0, total_ns: 1_050_000.0, ..QUERY };
        assert_eq!(failed(vectors), [Assumption::VectorTime]);
        assert_eq!(failed(QueryMeans { navigate_ns: 90_000.0, ..QUERY }), [Assumption::NavigationTime]);
    }

    #[test]
    fn short_times_and_missing_units_are_not_judged() {
        assert_eq!(failed(QueryMeans { rerank_ns: 30_000.0, ..QUERY }), []);
        let nothing = QueryMeans::default();
        assert_eq!(judge(&nothing, &nothing, FAILING_FACTOR), []);
        let unread = QueryMeans { rounds: 0.0, reads: 0.0, bytes: 0.0, read_ns: 0.0, ..QUERY };
        assert_eq!(failed(unread), [Assumption::Rounds, Assumption::Reads]);
    }

    #[test]
    fn a_plan_is_judged_by_its_counts_and_the_processor() {
        let failed = |actual: QueryMeans| -> Vec<Assumption> {
            judge_plan(&QUERY, &actual, FAILING_FACTOR).iter().map(|failed| failed.assumption).collect()
        };
        // Times of phases and of the whole query are not in a plan.
        let slow = QueryMeans { navigate_ns: 9e5, scan_ns: 9e6, read_ns: 1.0, total_ns: 1e9, ..QUERY };
        assert_eq!(failed(slow), []);
        assert_eq!(failed(QueryMeans { processor_ns: 1e6, ..QUERY }), [Assumption::ProcessorTime]);
        assert_eq!(failed(QueryMeans { processor_ns: 0.0, ..QUERY }), [], "not measured");
        // As many times the work in as many times the time: only the work was predicted wrong.
        let more = QueryMeans { code_distances: 6e3, full_distances: 120.0, processor_ns: 6.1e5, ..QUERY };
        assert_eq!(failed(more), [Assumption::Distances]);
        let [one] = judge_plan(&QUERY, &more, FAILING_FACTOR).try_into().unwrap();
        assert_eq!(
            one.sentence,
            "the plan expects 2040 codes and vectors compared a query, but 6120 were counted"
        );
    }

    #[test]
    fn a_sentence_has_both_numbers() {
        let actual = QueryMeans { reads: 123.25, bytes: 123.25 * 4096.0, ..QUERY };
        let [failed] = judge(&QUERY, &actual, FAILING_FACTOR).try_into().unwrap();
        assert_eq!((failed.predicted, failed.actual), (40.0, 123.25));
        assert_eq!(failed.sentence, "the model expects 40.0 reads a query, but 123.2 were counted");
        let actual = QueryMeans { read_ns: 9e6, total_ns: 9.06e6, ..QUERY };
        let [failed] = judge(&QUERY, &actual, FAILING_FACTOR).try_into().unwrap();
        assert_eq!(
            failed.sentence,
            "the model expects 90.0 us for a round of reads, but 900.0 us were measured"
        );
    }

    #[test]
    fn a_prediction_adds_up() {
        let work = Work {
            navigate_ns: 1e3,
            scan_ns: 2e3,
            rerank_ns: 3e3,
            code_distances: 100.0,
            full_distances: 10.0,
        };
        let demand = Demand { rounds: 2.0, reads: 10.0, moved_bytes: 40_960.0, compute_ns: 0.0 };
        let device = Device { latency_ns: 80_000.0, issue_ns: 500.0, read_ns: 12_000.0, byte_ns: 0.4 };
        let means = QueryMeans::predicted(&Estimate::of(demand, work), &device);
        assert_eq!((means.rounds, means.reads, means.bytes), (2.0, 10.0, 40_960.0));
        assert_eq!(means.read_ns, 160_000.0 + 120_000.0 + 5_000.0);
        assert_eq!(means.total_ns, means.read_ns + 6_000.0);
        assert_eq!(means.processor_ns, 6_000.0 + 5_000.0);
        assert_eq!((means.code_distances, means.full_distances), (100.0, 10.0));
    }
}
