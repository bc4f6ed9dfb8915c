//! The prediction of an index: sizes by the plan of its build, counters by the laws of its pilots, and speed
//! by the cost model of the device.

use crate::candidates::AdvisedOptions;
use crate::costs::CostedNumbers;
use crate::counters::Counters;
use crate::demands::Demands;
use crate::filtered::FilteredPrediction;
use crate::interval::Interval;
use crate::law::{LawPoint, SlopePrior, extrapolate};
use crate::memory_law::{PilotFiles, PilotPart, PredictedFiles};
use crate::memory_speed::MemorySpeed;
use crate::pilot::{LatencyShape, PilotIndex, PilotSearch};
use crate::pilot_counters::PilotCounters;
use crate::place::{AdviceTier, PlaceKind};
use crate::request::{AdviceRequest, bound_words};
use crate::shape::VectorShape;
use crate::updates::UpdatesPrediction;
use bathyal_index::cost::demand::{Demand, Prediction, moved_bytes};
use bathyal_index::cost::processor::Processor;
use bathyal_index::{BuildPlan, IndexError};
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Factor of the interval of processor times, besides those of the counters: caches hold all of a pilot and a
/// part of a large index.
const PROCESSOR_FACTOR: f64 = 1.4;
/// Factor of the interval of latencies, besides that of throughput: queries wait for each other.
const LATENCY_FACTOR: f64 = 1.5;
/// Factor of the interval of memory: the parts of small pilots are rounded up to whole groups and pages.
const MEMORY_FACTOR: f64 = 1.02;
/// The most power of the number of vectors with which the memory of a query grows: that of the counters of
/// all families is 0.3 on average, and 0.5 two standard deviations above it.
const MOST_LIST_SLOPE: f64 = 0.5;
/// Factor of the interval of a build's time, besides that of its law: other work on the machine.
const BUILD_FACTOR: f64 = 1.25;
/// Nanoseconds of a distance from a code, besides its bytes: the comparison with the candidates so far.
const CODE_NS: f64 = 2.0;
/// Code bytes of candidates whose plan does not name them.
const USUAL_CODE_BYTES: f64 = 32.0;
/// The difference of two numbers of granules that are the same, apart from the errors of laws.
const SAME_GRANULES: f64 = 1e-3;

/// The predicted speed at a number of queries in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PredictedLoad {
    /// Queries in flight.
    pub concurrency: u32,
    /// Queries per second.
    pub queries_per_second: Interval,
    /// Microseconds of the median query.
    pub p50_us: Interval,
    /// Microseconds of the 99th percentile.
    pub p99_us: Interval,
    /// The limit of the speed, in words.
    pub bound: String,
}

/// The prediction of an index on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexPrediction {
    /// The name of the candidate for people.
    pub label: String,
    /// The family and its options.
    pub build: AdvisedOptions,
    /// The name of the device.
    pub tier: String,
    /// Bytes of the files.
    pub disk_bytes: Interval,
    /// Bytes of the files as a multiple of those of the vectors.
    pub amplification: f64,
    /// Bytes of memory of the open index while it searches at the request's queries in flight.
    pub dram_bytes: Interval,
    /// Bytes of memory of the build at its peak, by its plan.
    pub build_memory_bytes: u64,
    /// Seconds of the build.
    pub build_seconds: Interval,
    /// The recall for which searches ask; 0 in plans of earlier versions, which have it beside the
    /// prediction.
    #[serde(default)]
    pub recall: f32,
    /// The overall ratio that the largest pilot found with this recall, if the request names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot_ratio: Option<f64>,
    /// The least recall that the pilots found with the effort of their calibration.
    pub pilot_recall: f64,
    /// Dependent rounds of reads of a query.
    pub rounds: Interval,
    /// Reads of a query; of an index in memory, reads in place.
    pub reads: Interval,
    /// Bytes of these reads.
    pub read_bytes: Interval,
    /// Bytes that the device moves for a query: whole granules.
    pub moved_bytes: Interval,
    /// Distances from codes of a query.
    pub code_distances: Interval,
    /// Distances of full vectors of a query.
    pub full_distances: Interval,
    /// Microseconds of a processor for a query, with submitting its reads.
    pub processor_us: Interval,
    /// The speed by queries in flight.
    pub loads: Vec<PredictedLoad>,
    /// The searches under each filter of the request; of the collection, if rows are replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilteredPrediction>,
    /// The collection of these indexes, if rows are replaced; its searches then count instead of `loads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updates: Option<UpdatesPrediction>,
    /// Dollars for a million queries at the request's queries in flight.
    pub dollars_per_million: f64,
    /// Dollars a month for memory, storage and processors.
    pub dollars_per_month: f64,
}

impl IndexPrediction {
    /// Returns the speed at a number of queries in flight.
    pub fn load(&self, concurrency: u32) -> Option<&PredictedLoad> {
        self.loads.iter().find(|load| load.concurrency == concurrency)
    }

    /// Returns the recall to ask for, if the request names a ratio, the searches under filters, and those of
    /// a collection that changes, in words.
    pub fn further_words(&self, concurrency: u32) -> Vec<String> {
        let recall = self.pilot_ratio.map(|ratio| {
            format!("searched with recall {}, which has ratio {ratio:.4} in pilots", self.recall)
        });
        let filters = self.filters.iter().map(|filter| filter.words(concurrency));
        let updates = self.updates.iter().map(|updates| updates.words(concurrency));
        recall.into_iter().chain(filters).chain(updates).collect()
    }

    /// Returns true if the answers of the pilots have the ratio.
    pub(crate) fn is_near_enough(&self, ratio: f64) -> bool {
        self.pilot_ratio.is_some_and(|found| found <= ratio)
    }

    /// Returns the bytes of the files, and of memory while searched: of the collection, if rows are replaced.
    pub(crate) fn disk_and_dram(&self) -> (Interval, Interval) {
        self.updates
            .as_ref()
            .map_or((self.disk_bytes, self.dram_bytes), |updates| (updates.disk_bytes, updates.dram_bytes))
    }

    /// Returns the loads at a number of queries in flight: without a filter, and under each filter.
    pub(crate) fn all_loads(&self, concurrency: u32) -> impl Iterator<Item = &PredictedLoad> {
        let plain = self.updates.as_ref().map_or(&self.loads, |updates| &updates.loads);
        let loads = std::iter::once(plain).chain(self.filters.iter().map(|filter| &filter.loads));
        loads.filter_map(move |loads| loads.iter().find(|load| load.concurrency == concurrency))
    }

    /// Returns the queries a second at a number of queries in flight, of as many queries without a filter as
    /// under each one: the harmonic mean.
    pub(crate) fn mixed_queries_per_second(&self, concurrency: u32) -> f64 {
        let (mut count, mut seconds) = (0.0, 0.0);
        for load in self.all_loads(concurrency) {
            count += 1.0;
            seconds += 1.0 / load.queries_per_second.value.max(0.0);
        }
        if count > 0.0 { count / seconds } else { 0.0 }
    }
}

/// The number of vectors of a pilot, and the counters of a search of it.
pub(crate) type PilotPoint = (usize, PilotCounters);

/// A candidate with its pilots and plans.
pub(crate) struct PilotedCandidate<'a> {
    pub(crate) build: &'a AdvisedOptions,
    pub(crate) shape: VectorShape,
    pub(crate) plan: &'a BuildPlan,
    pub(crate) pilots: &'a [PilotIndex],
    pub(crate) request: &'a AdviceRequest,
}

impl PilotedCandidate<'_> {
    /// Predicts the index on a device with a recall, from the searches number `at` of the pilots.
    ///
    /// # Errors
    /// Those of the plans of pilots.
    pub(crate) fn on(
        &self,
        (at, recall): (usize, f32),
        tier: &AdviceTier,
    ) -> Result<IndexPrediction, IndexError> {
        let options = self.request.options();
        let searches: Vec<&PilotSearch> =
            self.pilots.iter().filter_map(|pilot| pilot.searches.get(at)).collect();
        let points = self.pilots.iter().zip(&searches);
        let points: Vec<PilotPoint> =
            points.map(|(pilot, search)| (pilot.vectors, search.counters)).collect();
        let counters = self.counters(&points);
        let (disk, dram) = self.sizes(&searches)?;
        let build_seconds = self.build_seconds();
        let demands = self.demands(&points, &counters, (tier, dram.value));
        let loads: Vec<PredictedLoad> = self
            .request
            .concurrencies()
            .into_iter()
            .map(|concurrency| self.load(&demands.ends, tier, &latency_shape(&searches, concurrency)))
            .collect();
        let (updates, filters) = match self.updates(&searches, tier, [disk, dram, build_seconds]) {
            Some((updates, filters)) => (Some(updates), filters),
            None => (None, self.filters(&searches, (tier, dram.value))),
        };
        let costed = self.costed(updates.as_ref(), [disk, dram, counters.reads, counters.bytes], &loads);
        let least = |a: f64, search: &&PilotSearch| a.min(search.recall);
        Ok(IndexPrediction {
            label: self.build.label(),
            build: self.build.clone(),
            tier: tier.name.clone(),
            amplification: disk.value / self.plan.data_bytes.max(1) as f64,
            disk_bytes: disk,
            dram_bytes: dram,
            build_memory_bytes: self.plan.memory.planned_bytes,
            build_seconds,
            recall,
            pilot_ratio: searches.last().and_then(|search| search.ratio),
            pilot_recall: searches.iter().fold(1.0, least),
            rounds: counters.rounds,
            reads: counters.reads,
            read_bytes: counters.bytes,
            moved_bytes: demands.moved,
            code_distances: counters.code_distances,
            full_distances: counters.full_distances,
            processor_us: demands.compute_ns.plus(&counters.reads.times(tier.request_ns())).times(1e-3),
            loads,
            filters,
            updates,
            dollars_per_million: costed.a_million_queries(tier, &options.prices),
            dollars_per_month: costed.a_month(tier, &options.prices),
        })
    }

    /// Returns the numbers that cost money: those of the collection, if rows are replaced.
    fn costed(
        &self,
        updates: Option<&UpdatesPrediction>,
        [disk, dram, reads, bytes]: [Interval; 4],
        loads: &[PredictedLoad],
    ) -> CostedNumbers {
        let of_index = ([disk, dram, reads, bytes], loads);
        let ([disk, dram, reads, bytes], loads) = updates.map_or(of_index, |of| {
            ([of.disk_bytes, of.dram_bytes, of.reads, of.read_bytes], of.loads.as_slice())
        });
        let busy = loads.iter().find(|load| load.concurrency == self.request.options().concurrency);
        CostedNumbers {
            disk_bytes: disk.value,
            dram_bytes: dram.value,
            reads: reads.value,
            read_bytes: bytes.value,
            queries_per_second: busy.map_or(0.0, |load| load.queries_per_second.value),
            threads: self.request.threads(),
        }
    }

    /// Returns the counters by the laws of the pilots.
    pub(crate) fn counters(&self, pilots: &[PilotPoint]) -> Counters {
        self.counters_of(pilots, self.shape.count as f64)
    }

    /// Returns the counters of an index of `vectors` vectors.
    pub(crate) fn counters_of(&self, pilots: &[PilotPoint], vectors: f64) -> Counters {
        let law = |count: fn(&PilotCounters) -> f64| {
            let point = |(vectors, counters): &PilotPoint| LawPoint {
                vectors: *vectors as f64,
                count: count(counters),
            };
            let points: Vec<LawPoint> = pilots.iter().map(point).collect();
            extrapolate(&points, vectors, &SlopePrior::COUNTER)
        };
        Counters {
            rounds: law(|counters| counters.rounds),
            reads: law(|counters| counters.reads),
            bytes: law(|counters| counters.bytes),
            code_distances: law(|counters| counters.code_distances),
            full_distances: law(|counters| counters.full_distances),
        }
    }

    /// Returns the demand of a query with these counters, whose processor time is scaled from that of the
    /// largest pilot. The open index takes `dram` bytes.
    pub(crate) fn demands(
        &self,
        pilots: &[PilotPoint],
        counters: &Counters,
        (tier, dram): (&AdviceTier, f64),
    ) -> Demands {
        let moved = moved(counters, tier);
        let compute_ns = self.compute_ns(pilots.last().map(|(_, counters)| counters), counters, (tier, dram));
        let demand = |of: fn(&Interval) -> f64| Demand {
            rounds: if tier.is_dram() { 0.0 } else { of(&counters.rounds) },
            reads: if tier.is_dram() { 0.0 } else { of(&counters.reads) },
            moved_bytes: of(&moved),
            compute_ns: of(&compute_ns),
        };
        let ends = [demand(|number| number.value), demand(|number| number.low), demand(|number| number.high)];
        Demands { moved, compute_ns, ends }
    }

    /// Returns the processor time of a query: that of the pilots, scaled by the weighed counters. The open
    /// index takes `dram` bytes, and more of what is read in it is outside of the caches than in a pilot.
    fn compute_ns(
        &self,
        pilot: Option<&PilotCounters>,
        whole: &Counters,
        (tier, dram): (&AdviceTier, f64),
    ) -> Interval {
        let code_bytes = self.plan.parameters.get("code_bytes").and_then(Value::as_f64);
        // These times weigh the counters against each other: their common factor is measured with the pilots.
        let processor = Processor::of_this_machine();
        let code_ns = CODE_NS + processor.resident_codes_ns(code_bytes.unwrap_or(USUAL_CODE_BYTES));
        let vector_ns = processor.vector_byte_ns * self.shape.element.row_bytes(self.shape.dim) as f64;
        // The time of requests to other machines is added to that of pilots in memory.
        let read_ns = match tier.kind {
            PlaceKind::Files => processor.submit_ns,
            PlaceKind::Memory | PlaceKind::Mapped => processor.suspend_ns,
            PlaceKind::Node | PlaceKind::Bucket(_) => 0.0,
        };
        let query_ns = processor.preparation_ns(self.shape.dim);
        let weigh = |codes: f64, full: f64, reads: f64| {
            query_ns + codes * code_ns + full * vector_ns + reads * read_ns
        };
        let factor = pilot
            .map_or(1.0, |one| one.compute_ns / weigh(one.code_distances, one.full_distances, one.reads));
        let largest = self.pilots.last().and_then(|pilot| pilot.searches.first());
        let (memory, pilot_bytes) = (MemorySpeed::of_this_machine(), largest.map_or(dram, resident));
        let slower_ns = (memory.byte_ns(dram) - memory.byte_ns(pilot_bytes)).max(0.0);
        let row_bytes =
            if tier.is_dram() { self.shape.element.row_bytes(self.shape.dim) as f64 } else { 0.0 };
        let touched =
            |codes: f64, full: f64| codes * code_bytes.unwrap_or(USUAL_CODE_BYTES) + full * row_bytes;
        let of = |end: fn(&Interval) -> f64| {
            let (codes, full) = (end(&whole.code_distances), end(&whole.full_distances));
            factor * weigh(codes, full, end(&whole.reads)) + touched(codes, full) * slower_ns
        };
        Interval {
            value: of(|number| number.value),
            low: of(|number| number.low) / PROCESSOR_FACTOR,
            high: of(|number| number.high) * PROCESSOR_FACTOR,
        }
    }

    /// Returns the bytes of the files, and of the memory while the index is searched.
    fn sizes(&self, searches: &[&PilotSearch]) -> Result<(Interval, Interval), IndexError> {
        let shape = |vectors: usize| VectorShape { count: vectors as u64, ..self.shape };
        let plans = self
            .pilots
            .iter()
            .map(|pilot| self.build.plan(shape(pilot.vectors), self.request))
            .collect::<Result<Vec<BuildPlan>, _>>()?;
        let built: Vec<PilotFiles<'_>> = self
            .pilots
            .iter()
            .zip(&plans)
            .map(|(pilot, plan)| PilotFiles { files: &pilot.files, plan })
            .collect();
        let files = PredictedFiles::new(self.plan, &built);
        let (sizes, vectors): (Vec<f64>, f64) =
            (self.pilots.iter().map(|pilot| pilot.vectors as f64).collect(), self.shape.count as f64);
        let parts = searches.first().map_or(0, |search| search.memory.len());
        let mut dram = Interval::exactly(0.0);
        for part in 0..parts {
            let bytes =
                |search: &&PilotSearch| search.memory.get(part).map_or(0.0, |(_, bytes)| *bytes as f64);
            let pilot_part = PilotPart { bytes: searches.iter().map(bytes).collect() };
            dram = dram.plus(&files.part(&pilot_part, &sizes, &built, vectors));
        }
        let law = |bytes: fn(&PilotSearch) -> u64| {
            let points = sizes.iter().zip(searches);
            let points: Vec<LawPoint> = points
                .map(|(vectors, search)| LawPoint { vectors: *vectors, count: bytes(search) as f64 })
                .collect();
            extrapolate(&points, vectors, &SlopePrior::MEMORY)
        };
        let (used, most) = (law(|search| search.thread_bytes), law(|search| search.most_thread_bytes));
        // Limits count with the upper end, so that it has fuller buffers, up to all that there are, and
        // longer lists of candidates than those of pilots, which may all have the least length.
        let growth = (vectors / sizes.last().copied().unwrap_or(vectors)).max(1.0).powf(MOST_LIST_SLOPE);
        let full = law(|search| search.full_thread_bytes);
        let longer = (growth - 1.0) * law(|search| search.query_state_bytes).high;
        let thread = Interval {
            value: used.value.min(most.value),
            low: used.low.min(most.low),
            high: full.high.max(used.high * growth).min(most.high) + longer,
        };
        let execution = self.request.execution(self.request.options().concurrency);
        let thread = thread.times(f64::from(execution.threads));
        let dram = dram.plus(&thread);
        let within = Interval { low: dram.low / MEMORY_FACTOR, high: dram.high * MEMORY_FACTOR, ..dram };
        Ok((files.total(), within))
    }

    /// Returns the seconds of the build: the sum of its stages, each by its own law.
    fn build_seconds(&self) -> Interval {
        let Some(last) = self.pilots.last() else { return Interval::exactly(0.0) };
        let seconds = |pilot: &PilotIndex, name: &str| {
            pilot.stages.iter().filter(|(stage, _)| stage == name).map(|(_, seconds)| seconds).sum::<f64>()
        };
        let mut names: Vec<&str> = last.stages.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let stages = names.into_iter().map(|name| {
            let point =
                |pilot: &PilotIndex| LawPoint { vectors: pilot.vectors as f64, count: seconds(pilot, name) };
            let points: Vec<LawPoint> = self.pilots.iter().map(point).collect();
            extrapolate(&points, self.shape.count as f64, &SlopePrior::BUILD)
        });
        let sum = stages.fold(Interval::exactly(0.0), |sum, stage| sum.plus(&stage));
        Interval { value: sum.value, low: sum.low / BUILD_FACTOR, high: sum.high * BUILD_FACTOR }
    }

    /// Returns the speed at a number of queries in flight, from the expected, the least and the most demand.
    pub(crate) fn load(
        &self,
        [expected, least, most]: &[Demand; 3],
        tier: &AdviceTier,
        shape: &LatencyShape,
    ) -> PredictedLoad {
        let execution = self.request.execution(shape.concurrency);
        let on = |demand: &Demand| tier.predict(demand, &execution);
        let [expected, fast, slow] = [on(expected), on(least), on(most)];
        let latency = |share: f64| Interval {
            value: expected.latency_ns * share / 1e3,
            low: fast.latency_ns * share / 1e3 / LATENCY_FACTOR,
            high: slow.latency_ns * share / 1e3 * LATENCY_FACTOR,
        };
        let finite = |prediction: &Prediction| if prediction.qps.is_finite() { prediction.qps } else { 0.0 };
        PredictedLoad {
            concurrency: shape.concurrency,
            queries_per_second: Interval {
                value: finite(&expected),
                low: finite(&slow),
                high: finite(&fast),
            },
            p50_us: latency(shape.p50),
            p99_us: latency(shape.p99),
            bound: bound_words(expected.bound).into(),
        }
    }
}

/// Returns the bytes of memory of an open pilot while a thread searches it.
fn resident(search: &PilotSearch) -> f64 {
    search.memory.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() + search.thread_bytes as f64
}

/// Returns the bytes that a device moves: whole granules of each read. The reads of pilots were aligned as
/// the tier requires, and granules may be larger.
fn moved(counters: &Counters, tier: &AdviceTier) -> Interval {
    let (reads, bytes) = (counters.reads.value, counters.bytes.value);
    if reads <= 0.0 || bytes <= 0.0 {
        return counters.bytes;
    }
    let each = bytes / reads;
    let TierProfile { granularity, alignment, .. } = tier.profile;
    // Reads of whole granules begin at granules.
    let granules = each / f64::from(granularity.max(1));
    let step = if (granules - granules.round()).abs() < SAME_GRANULES { granularity } else { alignment };
    let whole = moved_bytes(each, step.max(1), granularity);
    counters.bytes.times((whole / each).max(1.0))
}

/// Returns the distribution of latencies at a number of queries in flight: that of the largest pilot, or
/// that of the work of its queries where latencies were not measured.
fn latency_shape(searches: &[&PilotSearch], concurrency: u32) -> LatencyShape {
    let measured = searches
        .last()
        .and_then(|search| search.latencies.iter().find(|shape| shape.concurrency == concurrency).copied());
    measured.unwrap_or(LatencyShape {
        concurrency,
        p50: mean(searches, |search| search.counters.p50_work),
        p99: mean(searches, |search| search.counters.p99_work),
    })
}

fn mean(searches: &[&PilotSearch], of: fn(&PilotSearch) -> f64) -> f64 {
    searches.iter().map(|search| of(search)).sum::<f64>() / searches.len().max(1) as f64
}
