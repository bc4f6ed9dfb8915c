//! The prediction of a collection whose rows are replaced: its segments, their merges, and searches of all of
//! them.
//!
//! The collection is simulated by its own policy of merges ([`worth_merging`]) until its segments repeat:
//! rows fill the memory for writes and become a segment, and each replaces a row somewhere, which is then
//! deleted in its segment. Searches take the work of an index of each segment's size, by the laws of the
//! pilots, among the rows that are not deleted.

use crate::interval::Interval;
use crate::pilot::{LatencyShape, PilotSearch};
use crate::place::AdviceTier;
use crate::prediction::{Counters, Demands, PilotPoint, PilotedCandidate, PredictedLoad};
use bathyal_index::cost::demand::Demand;
use bathyal_index::cost::merging::{
    ACTIVE_SHARE, DEFAULT_WRITE_MEMORY_BYTES, DELETED_SHARE, FLAT_BELOW_ROWS, SegmentRows, worth_merging,
};
use bathyal_index::cost::processor::Processor;
use serde::{Deserialize, Serialize};

/// Bytes of a row in the memory for writes, besides its vector: a short id and its place.
const ROW_BYTES: f64 = 64.0;
/// Number of times that all rows are replaced in a simulation. The second half counts.
const TURNOVERS: f64 = 3.0;
/// The fewest and the most segments that are written in a simulation. After the fewest, the levels of small
/// segments repeat.
const LEAST_FLUSHES: f64 = 256.0;
const MOST_FLUSHES: f64 = 20_000.0;
/// Factor of the interval of a collection's counters and merges, besides those of an index: segments and
/// deleted rows differ from moment to moment.
const MOMENT_FACTOR: f64 = 1.3;
/// Seconds of a day.
const DAY_SECONDS: f64 = 86_400.0;

/// The predicted collection, of which some rows are replaced each day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdatesPrediction {
    /// Rows that are replaced each day.
    pub rows_a_day: u64,
    /// Segments that a search looks into, on average.
    pub segments: f64,
    /// The share of the stored rows that are deleted, on average.
    pub deleted: f64,
    /// Times that a row is written by merges and by the segment of the memory for writes.
    pub writes_a_row: f64,
    /// Seconds of merges and builds a day, on the threads of the build.
    pub merge_seconds_a_day: Interval,
    /// Bytes of the files, with deleted rows. Ids and metadata are not included.
    pub disk_bytes: Interval,
    /// Bytes of memory, with that for writes.
    pub dram_bytes: Interval,
    /// Reads of a query over all segments.
    pub reads: Interval,
    /// Bytes of these reads.
    pub read_bytes: Interval,
    /// Microseconds of a processor for a query.
    pub processor_us: Interval,
    /// The speed by queries in flight.
    pub loads: Vec<PredictedLoad>,
}

impl UpdatesPrediction {
    /// Returns the collection and its speed in words, at a number of queries in flight.
    pub fn words(&self, concurrency: u32) -> String {
        let none = Interval::exactly(0.0);
        let load = self.loads.iter().find(|load| load.concurrency == concurrency);
        let (qps, p50) = load.map_or((none, none), |load| (load.queries_per_second, load.p50_us));
        format!(
            "a collection with {} rows replaced a day: {:.0} queries/s ({:.0}..{:.0}), p50 {:.0} us, {:.1} \
             segments, {:.0} s of merges a day",
            self.rows_a_day,
            qps.value,
            qps.low,
            qps.high,
            p50.value,
            self.segments,
            self.merge_seconds_a_day.value
        )
    }

    /// Returns the share of the day for which merges run.
    pub(crate) fn share_of_day(&self) -> f64 {
        self.merge_seconds_a_day.value / DAY_SECONDS
    }
}

/// The segments of a collection while its rows are replaced, as means over the moments of a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
struct SteadySegments {
    /// Rows of a segment, not deleted, and the mean number of segments with so many.
    sizes: Vec<(f64, f64)>,
    /// Deleted rows as a share of all.
    deleted: f64,
    /// Rows that are written, by merges and otherwise, for each that is replaced.
    writes_a_row: f64,
}

impl SteadySegments {
    /// Simulates a collection of `rows` rows of which `flushed` are written as a segment at a time.
    fn of(rows: f64, flushed: f64) -> SteadySegments {
        let flushed = flushed.clamp(1.0, rows.max(1.0));
        let flushes = (TURNOVERS * rows / flushed).clamp(LEAST_FLUSHES, MOST_FLUSHES) as usize;
        let mut segments = vec![(rows, 0.0)];
        let (mut written, mut moments, mut deleted) = (0.0, 0.0, 0.0);
        let mut sizes: Vec<(f64, f64)> = Vec::new();
        for flush in 0..flushes {
            // The rows that are replaced are spread evenly over all that are there.
            let live: f64 = segments.iter().map(|(rows, deleted)| rows - deleted).sum();
            let share = (flushed / live).min(1.0);
            segments.iter_mut().for_each(|(rows, deleted)| *deleted += share * (*rows - *deleted));
            segments.retain(|(rows, deleted)| rows - deleted >= 0.5);
            segments.push((flushed, 0.0));
            let is_counted = flush >= flushes / 2;
            let mut merged = flushed;
            while let Some(chosen) = worth_merging(&segments.iter().map(rounded).collect::<Vec<_>>()) {
                let rows: f64 = chosen.iter().map(|at| segments[*at].0 - segments[*at].1).sum();
                let mut at = 0;
                segments.retain(|_| {
                    at += 1;
                    !chosen.contains(&(at - 1))
                });
                segments.push((rows, 0.0));
                merged += rows;
            }
            if is_counted {
                moments += 1.0;
                written += merged;
                let all: f64 = segments.iter().map(|(rows, _)| rows).sum();
                deleted += segments.iter().map(|(_, deleted)| deleted).sum::<f64>() / all;
                for (rows, deleted) in &segments {
                    count(&mut sizes, rows - deleted);
                }
            }
        }
        sizes.iter_mut().for_each(|(_, number)| *number /= moments);
        SteadySegments { sizes, deleted: deleted / moments, writes_a_row: written / (moments * flushed) }
    }

    /// Returns the mean number of segments.
    fn number(&self) -> f64 {
        self.sizes.iter().map(|(_, number)| number).sum()
    }
}

fn rounded((rows, deleted): &(f64, f64)) -> SegmentRows {
    SegmentRows { rows: rows.round() as u64, deleted: deleted.floor() as u64 }
}

/// Counts a segment of `rows` rows together with those of about as many.
fn count(sizes: &mut Vec<(f64, f64)>, rows: f64) {
    let level = |rows: f64| (4.0 * rows.max(1.0).log2()).round();
    match sizes.iter_mut().find(|(known, _)| level(*known) == level(rows)) {
        Some((_, number)) => *number += 1.0,
        None => sizes.push((rows, 1.0)),
    }
}

impl PilotedCandidate<'_> {
    /// Predicts a collection of the request's vectors on a device, from what is predicted of one index of all
    /// of them; `None` if no rows are replaced.
    pub(crate) fn updates(
        &self,
        searches: &[&PilotSearch],
        tier: &AdviceTier,
        [disk, dram, build_seconds]: [Interval; 3],
    ) -> Option<UpdatesPrediction> {
        let rows_a_day = self.request.options().rows_a_day?;
        let pilots = self.pilots.iter().zip(searches);
        let points: Vec<PilotPoint> = pilots
            .filter_map(|(pilot, search)| {
                let filter = search.filters.first()?;
                Some((pilot.vectors, filter.search.or(filter.scan)?))
            })
            .collect();
        let last = points.last()?.1;
        let row_bytes = self.shape.element.row_bytes(self.shape.dim) as f64;
        let flushed = DEFAULT_WRITE_MEMORY_BYTES as f64 * ACTIVE_SHARE / (row_bytes + ROW_BYTES);
        let segments = SteadySegments::of(self.shape.count as f64, flushed);
        let counters = self.over(&segments, &points);
        let demands = self.demands(&points, &counters, (tier, dram.value));
        // Half of the memory for writes is filled, on average. Its rows, and those of small segments, are
        // compared one by one.
        let small = segments.sizes.iter().filter(|(rows, _)| *rows < FLAT_BELOW_ROWS as f64);
        let compared = flushed / 2.0 + small.map(|(rows, number)| rows * number).sum::<f64>();
        let processor = Processor::of_this_machine();
        let more_ns = compared * row_bytes * processor.vector_byte_ns
            + segments.number() * processor.preparation_ns(self.shape.dim);
        let with_more = |demand: &Demand| Demand { compute_ns: demand.compute_ns + more_ns, ..*demand };
        let Demands { compute_ns, ends, .. } = demands;
        let ends = ends.map(|demand| with_more(&demand));
        let shape = |concurrency| LatencyShape { concurrency, p50: last.p50_work, p99: last.p99_work };
        let loads = self.request.concurrencies().into_iter();
        let memory = DEFAULT_WRITE_MEMORY_BYTES as f64;
        let stored = 1.0 / (1.0 - segments.deleted).max(1.0 - DELETED_SHARE);
        let merged = segments.writes_a_row * rows_a_day as f64 / self.shape.count.max(1) as f64;
        let seconds = build_seconds.times(merged);
        Some(UpdatesPrediction {
            rows_a_day,
            segments: segments.number(),
            deleted: segments.deleted,
            writes_a_row: segments.writes_a_row,
            merge_seconds_a_day: Interval {
                low: seconds.low / MOMENT_FACTOR,
                high: seconds.high * MOMENT_FACTOR,
                ..seconds
            },
            disk_bytes: Interval {
                value: disk.value * stored,
                low: disk.low,
                high: disk.high / (1.0 - DELETED_SHARE),
            },
            dram_bytes: Interval {
                value: dram.value * stored + memory,
                low: dram.low,
                high: dram.high / (1.0 - DELETED_SHARE) + memory,
            },
            reads: counters.reads,
            read_bytes: counters.bytes,
            processor_us: Interval {
                value: compute_ns.value + more_ns,
                low: compute_ns.low + more_ns / MOMENT_FACTOR,
                high: compute_ns.high + more_ns * MOMENT_FACTOR,
            }
            .times(1e-3),
            loads: loads.map(|concurrency| self.load(&ends, tier, &shape(concurrency))).collect(),
        })
    }

    /// Returns the counters of a query over all segments that have an index. Segments are read at the same
    /// time, so that the rounds are those of the one that takes the most.
    fn over(&self, segments: &SteadySegments, points: &[PilotPoint]) -> Counters {
        let nothing = || Interval::exactly(0.0);
        let mut all = Counters {
            rounds: nothing(),
            reads: nothing(),
            bytes: nothing(),
            code_distances: nothing(),
            full_distances: nothing(),
        };
        for (rows, number) in segments.sizes.iter().filter(|(rows, _)| *rows >= FLAT_BELOW_ROWS as f64) {
            let one = self.counters_of(points, *rows);
            let add = |sum: Interval, each: Interval| sum.plus(&each.times(*number));
            let rounds = if one.rounds.value > all.rounds.value { one.rounds } else { all.rounds };
            all = Counters {
                rounds,
                reads: add(all.reads, one.reads),
                bytes: add(all.bytes, one.bytes),
                code_distances: add(all.code_distances, one.code_distances),
                full_distances: add(all.full_distances, one.full_distances),
            };
        }
        let wider = |number: Interval| Interval {
            low: number.low / MOMENT_FACTOR,
            high: number.high * MOMENT_FACTOR,
            ..number
        };
        Counters {
            rounds: all.rounds,
            reads: wider(all.reads),
            bytes: wider(all.bytes),
            code_distances: wider(all.code_distances),
            full_distances: wider(all.full_distances),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_changing_collection_grow_with_the_logarithm_of_its_rows() {
        let of = |rows: f64| SteadySegments::of(rows, 10_000.0);
        let (few, many) = (of(1e5), of(1e7));
        assert!(
            few.number() > 1.5 && few.number() < many.number() && many.number() < 25.0,
            "{few:?} {many:?}"
        );
        assert!(few.writes_a_row > 2.0 && few.writes_a_row < many.writes_a_row, "{few:?} {many:?}");
        assert!(many.writes_a_row < 12.0, "{many:?}");
        for steady in [&few, &many] {
            assert!(steady.deleted > 0.01 && steady.deleted < DELETED_SHARE, "{steady:?}");
        }
        // All rows are in some segment.
        let live: f64 = many.sizes.iter().map(|(rows, number)| rows * number).sum();
        assert!((0.8..1.2).contains(&(live / 1e7)), "{live}");
    }

    #[test]
    fn rows_that_fit_in_the_memory_for_writes_are_one_segment_or_two() {
        let steady = SteadySegments::of(5_000.0, 30_000.0);
        assert!(steady.number() < 3.0 && steady.writes_a_row.is_finite(), "{steady:?}");
    }
}
