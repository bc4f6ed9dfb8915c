//! The prediction of searches under a filter.
//!
//! An index searches the rows that match a filter, or compares all of them, whichever the cost model takes
//! for cheaper. Both are predicted: a scan in proportion to the rows that match, a search by the laws of
//! the pilots.

use crate::counters::Counters;
use crate::demands::Demands;
use crate::interval::Interval;
use crate::pilot::{LatencyShape, PilotSearch};
use crate::pilot_counters::PilotCounters;
use crate::pilot_filters::PilotFilter;
use crate::place::AdviceTier;
use crate::prediction::{PilotPoint, PilotedCandidate, PredictedLoad};
use bathyal_index::cost::device::Device;
use serde::{Deserialize, Serialize};

/// Factor of the interval of a scan's counters: the rows of a share are drawn.
const SCAN_FACTOR: f64 = 1.1;

/// Factor between prices that are about equal, since processor times are measured.
const EQUAL_PRICE: f64 = 1.1;

/// The plan by which rows that match a filter are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterPlan {
    /// All rows that match are compared.
    Scan,
    /// The index is searched.
    Search,
}

/// The predicted searches under a filter, whose matching rows are spread evenly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilteredPrediction {
    /// The share of the rows that match.
    pub share: f64,
    /// The plan.
    pub plan: FilterPlan,
    /// Reads of a query.
    pub reads: Interval,
    /// Bytes of these reads.
    pub read_bytes: Interval,
    /// Bytes that the device moves for a query.
    pub moved_bytes: Interval,
    /// Distances from codes of a query.
    pub code_distances: Interval,
    /// Distances of full vectors of a query.
    pub full_distances: Interval,
    /// Microseconds of a processor for a query.
    pub processor_us: Interval,
    /// The speed by queries in flight.
    pub loads: Vec<PredictedLoad>,
}

impl FilteredPrediction {
    /// Returns the filter and the speed in words, at a number of queries in flight.
    pub fn words(&self, concurrency: u32) -> String {
        let none = Interval::exactly(0.0);
        let load = self.loads.iter().find(|load| load.concurrency == concurrency);
        let (qps, p50) = load.map_or((none, none), |load| (load.queries_per_second, load.p50_us));
        let plan = match self.plan {
            FilterPlan::Scan => "comparing all that match",
            FilterPlan::Search => "searching",
        };
        format!(
            "a filter that {}% match: {:.0} queries/s ({:.0}..{:.0}), p50 {:.0} us, {:.1} reads, by {plan}",
            100.0 * self.share,
            qps.value,
            qps.low,
            qps.high,
            p50.value,
            self.reads.value
        )
    }
}

/// The cheaper plan of a search under a filter, for an index of some number of vectors.
pub(crate) struct PlannedFilter {
    /// The share of the rows that match.
    pub(crate) share: f64,
    pub(crate) plan: FilterPlan,
    pub(crate) counters: Counters,
    pub(crate) demands: Demands,
    /// The counters of the largest pilot by this plan.
    pub(crate) pilot: PilotCounters,
}

impl PilotedCandidate<'_> {
    /// Predicts the searches under each filter of the request on a device, on which the open index takes
    /// `dram` bytes.
    pub(crate) fn filters(
        &self,
        searches: &[&PilotSearch],
        (tier, dram): (&AdviceTier, f64),
    ) -> Vec<FilteredPrediction> {
        let on = |at: usize| {
            let pilots = self.filter_pilots(searches, at);
            let planned = self.planned_filter(&pilots, self.shape.count as f64, (tier, dram))?;
            Some(self.filtered(&planned, tier))
        };
        (0..self.request.shares().len()).filter_map(on).collect()
    }

    /// Returns the searches of the pilots under the filter number `at`, with their numbers of vectors.
    pub(crate) fn filter_pilots<'a>(
        &self,
        searches: &[&'a PilotSearch],
        at: usize,
    ) -> Vec<(usize, &'a PilotFilter)> {
        let pilots = self.pilots.iter().zip(searches);
        pilots.filter_map(|(pilot, search)| Some((pilot.vectors, search.filters.get(at)?))).collect()
    }

    /// Returns the cheaper plan of searches under a filter, in an index of `vectors` vectors.
    pub(crate) fn planned_filter(
        &self,
        pilots: &[(usize, &PilotFilter)],
        vectors: f64,
        place: (&AdviceTier, f64),
    ) -> Option<PlannedFilter> {
        let PilotFilter { share, is_among, .. } = *pilots.last()?.1;
        let rows = share * vectors;
        let points = |of: fn(&PilotFilter) -> Option<PilotCounters>| {
            let points = pilots.iter().filter_map(|(vectors, filter)| Some((*vectors, of(filter)?)));
            points.collect::<Vec<PilotPoint>>()
        };
        let planned = |plan: FilterPlan, points: Vec<PilotPoint>| {
            let last = points.last()?;
            let counters = match plan {
                FilterPlan::Scan => scanned(last, vectors),
                FilterPlan::Search if is_among => at_most(&self.counters_of(&points, vectors), rows),
                FilterPlan::Search => self.counters_of(&points, vectors),
            };
            // The processor time of the largest pilot belongs to its own counters.
            let is_timed = Some(last.0) == self.pilots.last().map(|pilot| pilot.vectors);
            let demands = self.demands(&points, &counters, place);
            is_timed.then_some(PlannedFilter { share, plan, counters, demands, pilot: last.1 })
        };
        let scan = planned(FilterPlan::Scan, points(|filter| filter.scan));
        let search = planned(FilterPlan::Search, points(|filter| filter.search));
        let device = Device::of(&place.0.profile);
        // At about equal prices, an index takes the scan, whose answers are exact.
        let price = |one: &PlannedFilter| {
            let more = if one.plan == FilterPlan::Search { EQUAL_PRICE } else { 1.0 };
            more * one.demands.ends[0].price_ns(&device)
        };
        // So many rows are compared, whatever it costs.
        let is_scan = rows <= self.request.options().k as f64 && scan.is_some();
        let both = scan.into_iter().chain(search.filter(|_| !is_scan));
        both.min_by(|a, b| price(a).total_cmp(&price(b)))
    }

    /// Returns the prediction of searches by a plan.
    pub(crate) fn filtered(&self, planned: &PlannedFilter, tier: &AdviceTier) -> FilteredPrediction {
        let PlannedFilter { share, plan, counters, demands, pilot } = planned;
        let shape = |concurrency| LatencyShape { concurrency, p50: pilot.p50_work, p99: pilot.p99_work };
        let loads = self.request.concurrencies().into_iter();
        FilteredPrediction {
            share: *share,
            plan: *plan,
            reads: counters.reads,
            read_bytes: counters.bytes,
            moved_bytes: demands.moved,
            code_distances: counters.code_distances,
            full_distances: counters.full_distances,
            processor_us: demands.compute_ns.times(1e-3),
            loads: loads.map(|concurrency| self.load(&demands.ends, tier, &shape(concurrency))).collect(),
        }
    }
}

/// Returns the counters of a scan of a share of `vectors` vectors, in proportion to those of a pilot.
fn scanned((of_pilot, counters): &PilotPoint, vectors: f64) -> Counters {
    let whole = counters.times(vectors / (*of_pilot).max(1) as f64);
    let number = |value: f64| Interval::within_factor(value, SCAN_FACTOR);
    Counters {
        rounds: number(whole.rounds),
        reads: number(whole.reads),
        bytes: number(whole.bytes),
        code_distances: number(whole.code_distances),
        full_distances: number(whole.full_distances),
    }
}

/// Returns the counters of a search among `rows` rows: it scores, reads and compares no more than these.
fn at_most(counters: &Counters, rows: f64) -> Counters {
    let at_most = |number: Interval| Interval {
        value: number.value.min(rows),
        low: number.low.min(rows),
        high: number.high.min(rows),
    };
    let reads = at_most(counters.reads);
    let fewer = if counters.reads.value > 0.0 { reads.value / counters.reads.value } else { 1.0 };
    Counters {
        reads,
        bytes: counters.bytes.times(fewer),
        code_distances: at_most(counters.code_distances),
        full_distances: at_most(counters.full_distances),
        ..*counters
    }
}
