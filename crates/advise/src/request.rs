//! A request for advice: the vectors, the search that is wanted, the devices, and the limits.

use crate::assumed::AssumedData;
use crate::place::AdviceTier;
use crate::ratio::{RATIO_RECALLS, check_ratio};
use bathyal_index::cost::demand::{Bound, Execution};
use bathyal_index::cost::merging::LIVE_SHARE;
use bathyal_index::families::FAMILIES;
use bathyal_index::{DEFAULT_SEED, IndexError, MOST_CALIBRATION_QUERIES};
use bathyal_kernels::Metric;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Rows of the sample for the choice of a default, and the queries of a pilot's calibration.
const INSTANT_ROWS: usize = 4_000;
const INSTANT_CALIBRATION: usize = 200;
/// Rows of the sample for a quick answer. Three pilots of up to so many vectors are built in seconds.
const QUICK_ROWS: usize = 8_000;
/// Rows of the sample for a good answer.
const THOROUGH_ROWS: usize = 40_000;
/// Rows of the sample otherwise: from a twentieth of a million on, laws are fitted over a factor of 4.
const USUAL_ROWS: usize = 20_000;
/// The fewest vectors of which anything is predicted. Calibrations of fewer vectors say little, and searches
/// of so few take microseconds in any index.
pub const LEAST_VECTORS: usize = 2_000;
/// The most queries in flight for which throughput is predicted.
pub const MOST_CONCURRENCY: u32 = 4096;
/// Queries in flight for which throughput is predicted, besides that of the request.
pub const CONCURRENCIES: [u32; 5] = [1, 4, 16, 64, 256];
/// Queries in flight, if the caller does not say: a busy server with a few cores.
pub const DEFAULT_CONCURRENCY: u32 = 64;
/// The most filters of a request. Each is measured with every pilot.
pub const MOST_FILTERS: usize = 8;

/// The time that the caller grants to the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplePace {
    /// The smallest sample and two pilots of each candidate, for the choice of a default.
    Instant,
    /// A small sample, and the usual candidates only.
    Quick,
    /// A sample of 20,000 vectors.
    #[default]
    Usual,
    /// A sample of 40,000 vectors.
    Thorough,
}

impl SamplePace {
    /// Returns the rows of the sample.
    pub fn rows(self) -> usize {
        match self {
            SamplePace::Instant => INSTANT_ROWS,
            SamplePace::Quick => QUICK_ROWS,
            SamplePace::Usual => USUAL_ROWS,
            SamplePace::Thorough => THOROUGH_ROWS,
        }
    }

    /// Returns the sizes of the pilots for a sample of `rows`, in ascending order.
    pub fn pilot_sizes(self, rows: usize) -> Vec<usize> {
        match self {
            SamplePace::Instant => vec![rows / 2, rows],
            _ => vec![rows / 4, rows / 2, rows],
        }
    }

    /// Returns the most queries of a pilot's calibration.
    pub fn calibration_queries(self) -> usize {
        match self {
            SamplePace::Instant => INSTANT_CALIBRATION,
            _ => MOST_CALIBRATION_QUERIES,
        }
    }
}

/// The limits that an index must meet. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexLimits {
    /// Bytes of memory of the open index while it searches.
    pub dram_bytes: Option<u64>,
    /// Bytes of the files of the index.
    pub disk_bytes: Option<u64>,
    /// Microseconds of the median query.
    pub p50_us: Option<f64>,
    /// Microseconds of the 99th percentile.
    pub p99_us: Option<f64>,
    /// Queries per second.
    pub queries_per_second: Option<f64>,
    /// Seconds of the build.
    pub build_seconds: Option<f64>,
    /// Bytes of memory of the build.
    pub build_memory_bytes: Option<u64>,
    /// Dollars a month for memory, disk and processors.
    pub dollars_per_month: Option<f64>,
}

/// Prices, in US dollars. The defaults are list prices of virtual machines of general purpose with attached
/// SSDs in the United States, and of the usual class of object stores there, rounded; they differ between
/// providers by a factor of two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvicePrices {
    /// A GB (10^9 bytes) of memory for a month, on this machine or a memory node.
    pub dram_gb_month: f64,
    /// A GB (10^9 bytes) of disk for a month.
    pub disk_gb_month: f64,
    /// A GB (10^9 bytes) in an object store for a month.
    pub bucket_gb_month: f64,
    /// A processor thread for an hour.
    pub thread_hour: f64,
}

impl Default for AdvicePrices {
    fn default() -> AdvicePrices {
        // The price of memory is that by which instances with 8 instead of 4 GB a thread are dearer.
        AdvicePrices { dram_gb_month: 3.0, disk_gb_month: 0.08, bucket_gb_month: 0.023, thread_hour: 0.04 }
    }
}

/// The options of a request, before they are checked.
#[derive(Debug, Clone)]
pub struct AdviceOptions {
    /// The metric.
    pub metric: Metric,
    /// Neighbours per query.
    pub k: usize,
    /// The recall of searches.
    pub recall: f32,
    /// Further recalls, for which the same pilots are searched ([`Advice::other_recalls`]).
    ///
    /// [`Advice::other_recalls`]: crate::Advice::other_recalls
    pub more_recalls: Vec<f32>,
    /// An overall ratio, at least 1, that answers are to have, instead of the recall: each index is then
    /// asked for the least recall with which it has this ratio. Not under the inner product.
    pub ratio: Option<f32>,
    /// The number of vectors of the index, if the given file is only a sample of them.
    pub vectors: Option<u64>,
    /// The assumption that the given vectors are drawn from, if there is no sample of the data.
    pub assumed: Option<AssumedData>,
    /// Shares of the rows that match filters of the searches to come, each above 0 and below 1.
    pub filters: Vec<f64>,
    /// Rows of a collection that are replaced each day; `None` for an index that does not change.
    pub rows_a_day: Option<u64>,
    /// The devices that may be used.
    pub tiers: Vec<AdviceTier>,
    /// The limits.
    pub limits: IndexLimits,
    /// Queries in flight at which the limits hold and candidates are compared.
    pub concurrency: u32,
    /// Threads of searches and of the build; 0 means all cores.
    pub threads: usize,
    /// The time for the answer.
    pub pace: SamplePace,
    /// The families to consider; empty for all of which predictions are made.
    pub families: Vec<String>,
    /// Prices.
    pub prices: AdvicePrices,
    /// The seed of the sample and of the pilots.
    pub seed: u64,
    /// The folder for pilots, whose device their searches read; `None` is the system's temporary folder.
    pub work_folder: Option<PathBuf>,
}

impl Default for AdviceOptions {
    fn default() -> AdviceOptions {
        AdviceOptions {
            metric: Metric::L2,
            k: bathyal_index::DEFAULT_K,
            recall: bathyal_index::DEFAULT_RECALL,
            more_recalls: Vec::new(),
            ratio: None,
            vectors: None,
            assumed: None,
            filters: Vec::new(),
            rows_a_day: None,
            tiers: vec![AdviceTier::dram()],
            limits: IndexLimits::default(),
            concurrency: DEFAULT_CONCURRENCY,
            threads: 0,
            pace: SamplePace::default(),
            families: Vec::new(),
            prices: AdvicePrices::default(),
            seed: DEFAULT_SEED,
            work_folder: None,
        }
    }
}

/// A request whose options were checked.
#[derive(Debug, Clone)]
pub struct AdviceRequest {
    options: AdviceOptions,
}

impl AdviceRequest {
    /// Checks options.
    ///
    /// # Errors
    /// [`IndexError::Parameter`]: a k, recall or ratio out of range, no device or a profile that no device
    /// has, limits or prices that are not positive numbers, unknown families.
    pub fn new(options: AdviceOptions) -> Result<AdviceRequest, IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if options.k == 0 || options.k > LEAST_VECTORS / 4 {
            return refuse(format!(
                "k is {}; predictions are made for 1 to {}",
                options.k,
                LEAST_VECTORS / 4
            ));
        }
        let recalls = std::iter::once(&options.recall).chain(&options.more_recalls);
        let mut seen: Vec<f32> = Vec::new();
        for recall in recalls {
            if !(*recall > 0.0 && *recall <= 1.0) {
                return refuse(format!("recall is {recall}; it must be above 0 and at most 1"));
            }
            if seen.contains(recall) {
                return refuse(format!("recall {recall} is given twice"));
            }
            seen.push(*recall);
        }
        if let Some(ratio) = options.ratio {
            check_ratio(ratio, options.metric, &options.more_recalls)?;
        }
        check_filters(&options.filters)?;
        if options.rows_a_day == Some(0) {
            return refuse("rows a day is 0; leave it out for an index that does not change".into());
        }
        if options.tiers.is_empty() {
            return refuse("no device is given; name a tier that may be used".into());
        }
        options.tiers.iter().try_for_each(AdviceTier::check)?;
        if !(1..=MOST_CONCURRENCY).contains(&options.concurrency) {
            let given = options.concurrency;
            return refuse(format!("concurrency is {given}; it must be 1 to {MOST_CONCURRENCY}"));
        }
        check_limits(&options.limits)?;
        let AdvicePrices { dram_gb_month, disk_gb_month, bucket_gb_month, thread_hour } = options.prices;
        if [dram_gb_month, disk_gb_month, bucket_gb_month, thread_hour]
            .iter()
            .any(|price| !(price.is_finite() && *price >= 0.0))
        {
            return refuse("prices must be 0 or positive numbers of dollars".into());
        }
        for family in &options.families {
            if FAMILIES.iter().all(|known| known.name != family.as_str()) {
                bathyal_index::families::find(family)?;
            }
        }
        Ok(AdviceRequest { options })
    }

    /// Returns the options.
    pub fn options(&self) -> &AdviceOptions {
        &self.options
    }

    /// Returns all recalls, that of the answer itself first; for a ratio, those that are tried, in ascending
    /// order.
    pub fn recalls(&self) -> Vec<f32> {
        if self.options.ratio.is_some() {
            return RATIO_RECALLS.to_vec();
        }
        std::iter::once(self.options.recall).chain(self.options.more_recalls.iter().copied()).collect()
    }

    /// Returns this request with one of its recalls alone.
    pub(crate) fn at_recall(&self, recall: f32) -> AdviceRequest {
        let options = AdviceOptions { recall, more_recalls: Vec::new(), ..self.options.clone() };
        AdviceRequest { options }
    }

    /// Returns the shares of the rows among which pilots are searched: those of filters. If rows are
    /// replaced, the first is the share of a segment that is not deleted, and a filter matches a part of it.
    pub(crate) fn shares(&self) -> Vec<f64> {
        let filters = self.options.filters.iter();
        match self.options.rows_a_day {
            Some(_) => std::iter::once(LIVE_SHARE).chain(filters.map(|share| LIVE_SHARE * share)).collect(),
            None => filters.copied().collect(),
        }
    }

    /// Returns the threads of searches and builds.
    pub fn threads(&self) -> usize {
        match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        }
    }

    /// Returns the queries in flight for which speeds are predicted, ascending: the usual ones and that of
    /// the request.
    pub fn concurrencies(&self) -> Vec<u32> {
        let mut all = CONCURRENCIES.to_vec();
        all.push(self.options.concurrency);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns how `concurrency` queries in flight are searched: spread over the threads. Pilots measure the
    /// processor time of reads together with that of all else, so that issuing one takes no further time.
    pub fn execution(&self, concurrency: u32) -> Execution {
        let threads = (self.threads() as u32).min(concurrency).max(1);
        Execution { threads, in_flight: concurrency.div_ceil(threads), issue_ns: 0.0 }
    }
}

/// Refuses shares that are no part of the rows, and too many of them.
fn check_filters(shares: &[f64]) -> Result<(), IndexError> {
    let bad = shares.iter().find(|share| !(**share > 0.0 && **share < 1.0));
    if let Some(share) = bad {
        return Err(IndexError::Parameter(format!(
            "the share of a filter is {share}; it must be above 0 and below 1: the part of the rows that \
             match"
        )));
    }
    match shares.len() > MOST_FILTERS {
        true => Err(IndexError::Parameter(format!(
            "{} shares of filters are given; predictions are made for {MOST_FILTERS} at most",
            shares.len()
        ))),
        false => Ok(()),
    }
}

/// Refuses limits that are not positive numbers.
fn check_limits(limits: &IndexLimits) -> Result<(), IndexError> {
    let bytes = |limit: Option<u64>| limit.map(|bytes| bytes as f64);
    let given = [
        ("memory", bytes(limits.dram_bytes)),
        ("disk", bytes(limits.disk_bytes)),
        ("p50", limits.p50_us),
        ("p99", limits.p99_us),
        ("queries per second", limits.queries_per_second),
        ("build time", limits.build_seconds),
        ("build memory", bytes(limits.build_memory_bytes)),
        ("dollars a month", limits.dollars_per_month),
    ];
    let bad =
        given.into_iter().find(|(_, limit)| limit.is_some_and(|limit| !(limit.is_finite() && limit > 0.0)));
    match bad {
        Some((name, limit)) => Err(IndexError::Parameter(format!(
            "the limit of {name} is {}; it must be a positive number",
            limit.unwrap_or(0.0)
        ))),
        None => Ok(()),
    }
}

/// Returns the limit of a search's speed in words.
pub(crate) fn bound_words(bound: Bound) -> &'static str {
    match bound {
        Bound::Compute => "the processor",
        Bound::Bandwidth => "the device's bandwidth",
        Bound::Iops => "the device's reads per second",
        Bound::Latency => "waiting for the device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::TierProfile;

    fn disk() -> TierProfile {
        TierProfile {
            kind: "file".into(),
            granularity: 4096,
            alignment: 512,
            addressable: false,
            latency_ns: 80_000,
            iops: 1e5,
            bandwidth_bytes_per_s: 2e9,
            ..AdviceTier::dram().profile
        }
    }

    fn refused(options: AdviceOptions) -> String {
        AdviceRequest::new(options).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn profiles_that_no_device_has_are_refused() {
        let with = |profile: TierProfile| {
            refused(AdviceOptions {
                tiers: vec![AdviceTier::file("disk", profile)],
                ..AdviceOptions::default()
            })
        };
        assert_eq!(with(disk()), "");
        for (bad, word) in [
            (TierProfile { iops: f64::NAN, ..disk() }, "iops"),
            (TierProfile { iops: -1.0, ..disk() }, "iops"),
            (TierProfile { iops: 1e300, ..disk() }, "iops"),
            (TierProfile { iops: 0.0, ..disk() }, "above 0"),
            (TierProfile { bandwidth_bytes_per_s: f64::INFINITY, ..disk() }, "bandwidth"),
            (TierProfile { bandwidth_bytes_per_s: 0.0, ..disk() }, "above 0"),
            (TierProfile { latency_ns: u64::MAX, ..disk() }, "latency_ns"),
            (TierProfile { latency_ns: 0, ..disk() }, "above 0"),
            (TierProfile { issue_ns: u64::MAX, ..disk() }, "issue_ns"),
            (TierProfile { granularity: 0, ..disk() }, "granularity"),
        ] {
            let message = with(bad);
            assert!(message.contains("the profile of disk") && message.contains(word), "{message}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let of = |limits: IndexLimits| refused(AdviceOptions { limits, ..AdviceOptions::default() });
        assert_eq!(of(IndexLimits::default()), "");
        assert!(of(IndexLimits { dram_bytes: Some(0), ..IndexLimits::default() }).contains("memory"));
        assert!(of(IndexLimits { p99_us: Some(f64::NAN), ..IndexLimits::default() }).contains("p99"));
        assert!(of(IndexLimits { p50_us: Some(-1.0), ..IndexLimits::default() }).contains("p50"));
        let other = AdviceOptions::default;
        assert!(refused(AdviceOptions { k: 0, ..other() }).contains("k is 0"));
        assert!(refused(AdviceOptions { recall: f32::NAN, ..other() }).contains("recall"));
        assert!(refused(AdviceOptions { recall: 1.5, ..other() }).contains("recall"));
        let more = |more_recalls: Vec<f32>| refused(AdviceOptions { recall: 0.9, more_recalls, ..other() });
        assert_eq!(more(vec![0.95, 0.99]), "");
        assert!(more(vec![0.95, 2.0]).contains("recall is 2") && more(vec![0.9]).contains("twice"));
        assert!(refused(AdviceOptions { tiers: Vec::new(), ..other() }).contains("no device"));
        assert!(refused(AdviceOptions { concurrency: 0, ..other() }).contains("concurrency"));
        assert!(refused(AdviceOptions { families: vec!["tree".into()], ..other() }).contains("tree"));
        let prices = AdvicePrices { thread_hour: -1.0, ..AdvicePrices::default() };
        assert!(refused(AdviceOptions { prices, ..other() }).contains("prices"));
    }
}
