//! The prediction of a collection whose rows are replaced: its segments (`SteadySegments`), their merges,
//! and searches of all of them, with and without a filter. These take the work of an index of each segment's
//! size, by the laws of the pilots, among the rows that are not deleted.

use crate::counters::Counters;
use crate::demands::Demands;
use crate::filtered::{FilterPlan, FilteredPrediction, PlannedFilter};
use crate::interval::Interval;
use crate::pilot::{LatencyShape, PilotSearch};
use crate::pilot_filters::PilotFilter;
use crate::place::AdviceTier;
use crate::prediction::{PilotPoint, PilotedCandidate, PredictedLoad};
use crate::segments::SteadySegments;
use bathyal_index::cost::merging::{ACTIVE_SHARE, DEFAULT_WRITE_MEMORY_BYTES, DELETED_SHARE, LIVE_SHARE};
use bathyal_index::cost::processor::Processor;
use serde::{Deserialize, Serialize};

/// Bytes of a row in the memory for writes, besides its vector: a short id and its place.
const ROW_BYTES: f64 = 64.0;
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

impl PilotedCandidate<'_> {
    /// Predicts a collection of the request's vectors on a device, from what is predicted of one index of all
    /// of them, and its searches under each filter of the request; `None` if no rows are replaced.
    pub(crate) fn updates(
        &self,
        searches: &[&PilotSearch],
        tier: &AdviceTier,
        [disk, dram, build_seconds]: [Interval; 3],
    ) -> Option<(UpdatesPrediction, Vec<FilteredPrediction>)> {
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
        let place = (tier, dram.value);
        let (counters, demands) = self.over(&segments, &points, place);
        // Half of the memory for writes is filled, on average. Its rows, and those of small segments, are
        // compared one by one.
        let compared = flushed / 2.0 + segments.compared_rows();
        let processor = Processor::of_this_machine();
        let compare_ns = compared * row_bytes * processor.vector_byte_ns;
        let more_ns = |share: f64| Interval::within_factor(share * compare_ns, MOMENT_FACTOR);
        let demands = demands.with_compute(more_ns(1.0));
        let shares = self.request.options().filters.iter().enumerate();
        let filters = shares.filter_map(|(at, share)| {
            let pilots = self.filter_pilots(searches, at + 1);
            let filtered = self.filter_of_segments(&segments, &pilots, more_ns(*share), place)?;
            Some(FilteredPrediction { share: *share, ..filtered })
        });
        let filters = filters.collect();
        let shape = |concurrency| LatencyShape { concurrency, p50: last.p50_work, p99: last.p99_work };
        let loads = self.request.concurrencies().into_iter();
        let memory = DEFAULT_WRITE_MEMORY_BYTES as f64;
        let stored = 1.0 / (1.0 - segments.deleted).max(1.0 - DELETED_SHARE);
        let merged = segments.writes_a_row * rows_a_day as f64 / self.shape.count.max(1) as f64;
        let seconds = build_seconds.times(merged);
        let predicted = UpdatesPrediction {
            rows_a_day,
            segments: segments.number(),
            deleted: segments.deleted,
            writes_a_row: segments.writes_a_row,
            merge_seconds_a_day: seconds.widened(MOMENT_FACTOR),
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
            processor_us: demands.compute_ns.times(1e-3),
            loads: loads.map(|concurrency| self.load(&demands.ends, tier, &shape(concurrency))).collect(),
        };
        Some((predicted, filters))
    }

    /// Returns the counters and the demand of a query over all segments that have an index.
    fn over(
        &self,
        segments: &SteadySegments,
        points: &[PilotPoint],
        place: (&AdviceTier, f64),
    ) -> (Counters, Demands) {
        let (mut counters, mut demands) = (Counters::nothing(), Demands::nothing());
        for (rows, number) in segments.indexed() {
            let one = self.counters_of(points, rows);
            counters = counters.beside(&one, number);
            demands = demands.beside(&self.demands(points, &one, place), number);
        }
        (counters.widened(MOMENT_FACTOR), demands.widened(MOMENT_FACTOR))
    }

    /// Predicts the searches of all segments under a filter with which the pilots were searched, each by its
    /// own plan, of which that of the largest segment is named. Rows without an index take `more_ns`, and the
    /// index of all rows takes `dram` bytes.
    fn filter_of_segments(
        &self,
        segments: &SteadySegments,
        pilots: &[(usize, &PilotFilter)],
        more_ns: Interval,
        (tier, dram): (&AdviceTier, f64),
    ) -> Option<FilteredPrediction> {
        let (mut counters, mut demands) = (Counters::nothing(), Demands::nothing());
        let mut largest: Option<(f64, PlannedFilter)> = None;
        for (rows, number) in segments.indexed() {
            // The shares of pilots are those of stored rows.
            let one = self.planned_filter(pilots, rows / LIVE_SHARE, (tier, dram))?;
            counters = counters.beside(&one.counters, number);
            demands = demands.beside(&one.demands, number);
            if largest.as_ref().is_none_or(|(most, _)| rows > *most) {
                largest = Some((rows, one));
            }
        }
        let largest = match largest {
            Some((_, one)) => one,
            // All segments are so small that their rows are compared one by one.
            None => {
                let of_pilots = self.planned_filter(pilots, self.shape.count as f64, (tier, dram))?;
                PlannedFilter { plan: FilterPlan::Scan, ..of_pilots }
            }
        };
        let whole = PlannedFilter {
            counters: counters.widened(MOMENT_FACTOR),
            demands: demands.widened(MOMENT_FACTOR).with_compute(more_ns),
            ..largest
        };
        Some(self.filtered(&whole, tier))
    }
}
