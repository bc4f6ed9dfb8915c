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
    /// Returns the sentence about an assumption that failed.
    fn sentence(self, predicted: f64, actual: f64) -> String {
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
        };
        format!("the model expects {expected} {}, but {found} {}", rest.0, rest.1)
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
    let per_unit = |amount: f64, units: f64| if units > 0.0 { amount / units } else { 0.0 };
    let both = |number: &dyn Fn(&QueryMeans) -> f64| (number(predicted), number(actual));
    let distances = |means: &QueryMeans| means.code_distances + means.full_distances;
    // A unit that one side lacks is reported as a count, and has no time.
    let timed = |time: fn(&QueryMeans) -> f64, units: fn(&QueryMeans) -> f64| {
        let judged = matters(time) && units(predicted) > 0.0 && units(actual) > 0.0;
        judged.then(|| both(&|means| per_unit(time(means), units(means))))
    };
    let numbers = [
        (Assumption::Rounds, Some(both(&|means| means.rounds))),
        (Assumption::Reads, Some(both(&|means| means.reads))),
        (
            Assumption::Bytes,
            (predicted.reads > 0.0 && actual.reads > 0.0)
                .then(|| both(&|means| per_unit(means.bytes, means.reads))),
        ),
        (Assumption::Distances, Some(both(&distances))),
        (Assumption::Latency, timed(|means| means.read_ns, |means| means.rounds)),
        (Assumption::NavigationTime, matters(|means| means.navigate_ns).then(|| both(&|m| m.navigate_ns))),
        (Assumption::CodeTime, timed(|means| means.scan_ns, |means| means.code_distances)),
        (Assumption::VectorTime, timed(|means| means.rerank_ns, |means| means.full_distances)),
    ];
    let failed = |(assumption, numbers): (Assumption, Option<(f64, f64)>)| {
        let (predicted, actual) =
            numbers.filter(|(predicted, actual)| differ(*predicted, *actual, factor))?;
        let sentence = assumption.sentence(predicted, actual);
        Some(FailedAssumption { assumption, predicted, actual, sentence })
    };
    numbers.into_iter().filter_map(failed).collect()
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
        assert_eq!((means.code_distances, means.full_distances), (100.0, 10.0));
    }
}
