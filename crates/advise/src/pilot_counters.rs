//! The counters of a pilot's searches.

use crate::pilot_place::{counted_bytes, counted_reads};
use bathyal_index::SearchResult;

/// The counters of a pilot's searches: means over the queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PilotCounters {
    /// Dependent rounds of reads.
    pub rounds: f64,
    /// Reads.
    pub reads: f64,
    /// Bytes of the reads, with the alignment of the tier.
    pub bytes: f64,
    /// Distances from codes.
    pub code_distances: f64,
    /// Distances of full vectors.
    pub full_distances: f64,
    /// Processor time in nanoseconds, with that of submitting reads on this machine; measured with the
    /// largest pilot, which is the most like the whole index, and 0 in the others.
    pub compute_ns: f64,
    /// The 99th percentile of a query's work, as a multiple of its mean; work is the largest of its counters
    /// in proportion to their means.
    pub p99_work: f64,
    /// The median of the work, as a multiple of its mean.
    pub p50_work: f64,
}

impl PilotCounters {
    /// Returns the counters of a search of `count` queries.
    pub(crate) fn of(found: &SearchResult, count: usize) -> PilotCounters {
        let count = count.max(1) as f64;
        let (p50_work, p99_work) = work_quantiles(found);
        PilotCounters {
            rounds: found.totals.hops as f64 / count,
            reads: counted_reads(found) as f64 / count,
            bytes: counted_bytes(found) as f64 / count,
            code_distances: found.totals.code_distances as f64 / count,
            full_distances: found.totals.full_distances as f64 / count,
            compute_ns: 0.0,
            p99_work,
            p50_work,
        }
    }

    /// Returns the mean of several searches' counters, each with its share of the queries.
    pub(crate) fn mean(searches: &[(PilotCounters, f64)]) -> PilotCounters {
        let mean = |of: fn(&PilotCounters) -> f64| {
            searches.iter().map(|(counters, share)| of(counters) * share).sum::<f64>()
        };
        PilotCounters {
            rounds: mean(|one| one.rounds),
            reads: mean(|one| one.reads),
            bytes: mean(|one| one.bytes),
            code_distances: mean(|one| one.code_distances),
            full_distances: mean(|one| one.full_distances),
            compute_ns: mean(|one| one.compute_ns),
            p99_work: mean(|one| one.p99_work),
            p50_work: mean(|one| one.p50_work),
        }
    }

    /// Returns these counters with the processor time of another search of the same pilot, in proportion to
    /// the distances of both. Efforts may differ a little, because a load costs less than another read.
    pub(crate) fn timed_as(self, other: &PilotCounters) -> PilotCounters {
        let distances = |one: &PilotCounters| one.code_distances + one.full_distances;
        let share = distances(&self) / distances(other).max(1.0);
        PilotCounters { compute_ns: other.compute_ns * share, ..self }
    }

    /// Returns the counters, and the processor time, of `factor` times the work.
    pub(crate) fn times(self, factor: f64) -> PilotCounters {
        PilotCounters {
            rounds: self.rounds * factor,
            reads: self.reads * factor,
            bytes: self.bytes * factor,
            code_distances: self.code_distances * factor,
            full_distances: self.full_distances * factor,
            compute_ns: self.compute_ns * factor,
            ..self
        }
    }
}

/// Returns the median and the 99th percentile of the queries' work, as multiples of its mean.
fn work_quantiles(found: &SearchResult) -> (f64, f64) {
    let count = found.per_query.len().max(1) as f64;
    let mean = |of: &dyn Fn(usize) -> f64| (0..found.per_query.len()).map(of).sum::<f64>() / count;
    let value = |counter: usize, query: usize| {
        let Some(stats) = found.per_query.get(query) else { return 0.0 };
        match counter {
            0 => f64::from(stats.reads),
            1 => stats.bytes as f64,
            2 => f64::from(stats.code_distances),
            _ => f64::from(stats.full_distances),
        }
    };
    let means: Vec<f64> = (0..4).map(|counter| mean(&|query| value(counter, query))).collect();
    let work = |query: usize| {
        let shares = means.iter().enumerate().filter(|(_, mean)| **mean > 0.0);
        shares.map(|(counter, mean)| value(counter, query) / mean).fold(0.0, f64::max)
    };
    let mut all: Vec<f64> = (0..found.per_query.len()).map(work).collect();
    all.sort_by(f64::total_cmp);
    let middle = all.iter().sum::<f64>() / count;
    let quantile = |share: f64| {
        let at = ((all.len() as f64 * share) as usize).min(all.len().saturating_sub(1));
        let value = all.get(at).copied().unwrap_or(1.0);
        if middle > 0.0 { value / middle } else { 1.0 }
    };
    (quantile(0.5), quantile(0.99).max(1.0))
}
