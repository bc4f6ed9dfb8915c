//! The places of a request from which an index may be read: memory, memory that is mapped, a folder, another
//! machine's memory, a bucket, or the profile of any of them.

use bathyal_index::cost::demand::{Bound, Demand, Execution, Prediction};
use bathyal_index::cost::store::{StoreBound, StoreTimes};
use bathyal_index::{IndexError, StoreOptions, TierChoice, find, probe_store};
use bathyal_store::StoreError;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::mapped::MappedOptions;
use bathyal_tier::probe::{
    MemoryProbeOptions, Mode, ProbeCell, ProbeOptions, probe_directory_with, probe_memory,
};
use bathyal_tier::{Tier, TierError, TierProfile};
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the file that measures a folder's device, or of measured memory, and the longest times of writing
/// and of reading it: less than in a probe by itself, since an answer should take seconds.
const PROBE_BYTES: u64 = 256 << 20;
const PROBE_WRITE_TIME: Duration = Duration::from_millis(1_000);
const PROBE_READ_TIME: Duration = Duration::from_millis(2_500);
/// The same for the choice of a default: a few numbers in half a second.
const BRIEF_BYTES: u64 = 64 << 20;
const BRIEF_WRITE_TIME: Duration = Duration::from_millis(300);
const BRIEF_CELL_TIME: Duration = Duration::from_millis(25);
const BRIEF_BLOCKS: [u32; 2] = [4096, 1 << 20];
const BRIEF_DEPTHS: [u32; 3] = [1, 16, 128];
/// Steps of the progress of a measurement, which reports its progress as a share.
const STEPS: u64 = 1000;
/// Processor nanoseconds of a request to an object store that was not measured.
const REQUEST_NS: f64 = 45_000.0;
/// The spread of the first byte of a store that was not measured (cloud-native-vector-search, section 2.3.1).
const USUAL_SPREAD: f64 = 0.4;
/// Dollars of a million reads of a store of which only a profile is given: the list price of Amazon and of
/// Google.
const LIST_MILLION_READS: f64 = 0.4;
/// Factor by which numbers of a profile may contradict each other: they are measured one after the other.
const CONTRADICTION: f64 = 3.0;
/// The most threads whose reads add up to the rate of a profile, each with its own reads in flight.
const MOST_THREADS: f64 = 512.0;
/// Standard deviations from the median to the 99th percentile of a normal distribution.
const TO_P99: f64 = 2.326;
/// The bytes of the reads by which the first byte is judged: so few that their transfer takes no time.
const FIRST_BYTES: u32 = 4096;

/// The largest possible rates of a device: a thousand times those of memory. Higher ones are errors of a
/// profile.
const MOST_BYTES_A_SECOND: f64 = 1e15;
const MOST_READS_A_SECOND: f64 = 1e12;
/// The longest possible latency of a device: a minute.
const MOST_LATENCY_NS: u64 = 60_000_000_000;
/// The largest granularity of a device: 1 GiB.
const MOST_GRANULARITY: u32 = 1 << 30;

/// The kinds of places, which differ in what a read costs and in how an index there is searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    /// The memory of this process. Reads are part of the processor time.
    Memory,
    /// Memory that loads reach, such as CXL memory.
    Mapped,
    /// Files of this machine.
    #[default]
    Files,
    /// The memory of other machines.
    Node,
    /// An object store.
    Bucket(StoreCosts),
}

/// The numbers of an object store that a profile does not have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoreCosts {
    /// Standard deviation of the logarithm of the time to the first byte.
    pub spread: f64,
    /// Dollars of a million read requests.
    pub million_reads: f64,
    /// Dollars of 10^9 bytes that leave the store.
    pub gigabyte: f64,
}

/// A device from which an index may be read.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviceTier {
    /// The name in the answer.
    pub name: String,
    /// The kind of tier: files, or memory of this process.
    pub choice: TierChoice,
    /// The measured or given profile; 0 in a field means that it is not known.
    pub profile: TierProfile,
    /// The kind of place.
    pub kind: PlaceKind,
    /// True if pages that are held in memory take the machine's own memory, and not memory of another kind,
    /// such as CXL memory.
    pub pages_in_dram: bool,
}

impl AdviceTier {
    /// Returns the memory of this process, whose reads are loads. Their time is part of the processor time
    /// that pilots measure.
    pub fn dram() -> AdviceTier {
        let profile = DramTier::new(Vec::new()).profile().clone();
        let (name, choice) = ("dram".into(), TierChoice::Dram);
        AdviceTier { name, choice, profile, kind: PlaceKind::Memory, pages_in_dram: true }
    }

    /// Returns a device of files with a profile.
    pub fn file(name: impl Into<String>, profile: TierProfile) -> AdviceTier {
        let (name, choice) = (name.into(), TierChoice::File);
        AdviceTier { name, choice, profile, kind: PlaceKind::Files, pages_in_dram: true }
    }

    /// Returns true if the pages of an index are in the memory of this process.
    pub fn is_dram(&self) -> bool {
        self.choice == TierChoice::Dram
    }

    /// Returns true if pilots are searched in the memory of the place itself, by loads: with many queries in
    /// flight, most end without a wait for others. The memory of a profile is not at hand.
    pub(crate) fn answers_in_place(&self) -> bool {
        let is_profile = self.choice == TierChoice::Mapped(MappedOptions::default()) && !self.pages_in_dram;
        match self.kind {
            PlaceKind::Memory => true,
            PlaceKind::Mapped => !is_profile,
            _ => false,
        }
    }

    /// Refuses a profile that no device has.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let TierProfile { granularity, latency_ns, iops, bandwidth_bytes_per_s, issue_ns, .. } = self.profile;
        let name = &self.name;
        let refuse = |what: String| Err(IndexError::Parameter(format!("the profile of {name}: {what}")));
        let rate_is_possible = |rate: f64, most: f64| rate.is_finite() && (0.0..=most).contains(&rate);
        if !rate_is_possible(iops, MOST_READS_A_SECOND) {
            return refuse(format!("iops is {iops}; it must be 0 (not measured) to {MOST_READS_A_SECOND:e}"));
        }
        if !rate_is_possible(bandwidth_bytes_per_s, MOST_BYTES_A_SECOND) {
            return refuse(format!(
                "bandwidth_bytes_per_s is {bandwidth_bytes_per_s}; it must be 0 (not measured) to \
                 {MOST_BYTES_A_SECOND:e}"
            ));
        }
        if latency_ns > MOST_LATENCY_NS {
            return refuse(format!("latency_ns is {latency_ns}; it must be {MOST_LATENCY_NS} at most"));
        }
        if issue_ns > MOST_LATENCY_NS {
            return refuse(format!("issue_ns is {issue_ns}; it must be {MOST_LATENCY_NS} at most"));
        }
        if granularity == 0 || granularity > MOST_GRANULARITY {
            return refuse(format!("granularity is {granularity}; it must be 1 to {MOST_GRANULARITY} bytes"));
        }
        if !self.is_dram() && (latency_ns == 0 || iops == 0.0 || bandwidth_bytes_per_s == 0.0) {
            return refuse(
                "a prediction needs latency_ns, iops and bandwidth_bytes_per_s above 0; measure the device \
                 with a probe"
                    .into(),
            );
        }
        Ok(())
    }
}

impl StoreCosts {
    /// The costs of a store of which only a profile is given.
    const UNKNOWN: StoreCosts =
        StoreCosts { spread: USUAL_SPREAD, million_reads: LIST_MILLION_READS, gigabyte: 0.0 };
}

impl AdviceTier {
    /// Returns the tiers that `places` name, as [`AdviceTier::at`].
    ///
    /// # Errors
    /// Those of [`AdviceTier::at`]; [`IndexError::Parameter`] for options of a store without an address.
    pub fn all_at(
        places: &[PathBuf],
        store: &StoreOptions,
        progress: &dyn Progress,
    ) -> Result<Vec<AdviceTier>, IndexError> {
        if !store.is_empty() && !places.iter().any(|place| is_address(place)) {
            let what = "store options are for the addresses of stores, and none of the places is an address";
            return Err(IndexError::Parameter(what.into()));
        }
        places.iter().map(|place| AdviceTier::at(place, store, progress)).collect()
    }

    /// Returns the tier that `place` names: `dram`, `mapped` or `mapped:PLACE`, the address of an index on a
    /// memory node or in a bucket, a folder, or the file of a profile that a probe wrote. All but `dram` and
    /// profiles are measured: a folder by a file that is written there and removed again, a node or a bucket
    /// by reads of the index at the address, for which `store` has options.
    ///
    /// # Errors
    /// Errors of the file, the folder or the store; a place that cannot be measured;
    /// [`IndexError::Cancelled`].
    pub fn at(place: &Path, store: &StoreOptions, progress: &dyn Progress) -> Result<AdviceTier, IndexError> {
        let name = place.display().to_string();
        if is_address(place) {
            return in_store(place, name, store, progress);
        }
        match name.parse::<TierChoice>() {
            Ok(TierChoice::Dram) => Ok(AdviceTier::dram()),
            Ok(TierChoice::Mapped(memory)) => {
                let profile = measure_memory(&memory, progress)?;
                // Without a place, the memory is the machine's own.
                let pages_in_dram = memory == MappedOptions::default();
                let choice = TierChoice::Mapped(memory);
                Ok(AdviceTier { name, choice, profile, kind: PlaceKind::Mapped, pages_in_dram })
            }
            Ok(TierChoice::Card) => Err(IndexError::Parameter(
                "gpu: no prediction is made for the memory of a graphics card; name dram for an index whose \
                 codes a card scans"
                    .into(),
            )),
            Ok(TierChoice::File) | Err(_) if place.is_dir() => {
                Ok(AdviceTier::file(name, measure_folder(place, &usual_probe(), progress)?))
            }
            Ok(TierChoice::File) | Err(_) => Ok(AdviceTier::of_profile(name, TierProfile::from_file(place)?)),
        }
    }

    /// Returns the tier of a folder, whose device is measured in half a second: less exact than
    /// [`AdviceTier::at`].
    ///
    /// # Errors
    /// As [`AdviceTier::at`].
    pub(crate) fn briefly(folder: &Path, progress: &dyn Progress) -> Result<AdviceTier, IndexError> {
        let options = ProbeOptions {
            file_bytes: BRIEF_BYTES,
            write_time: BRIEF_WRITE_TIME,
            cell_time: BRIEF_CELL_TIME,
            blocks: BRIEF_BLOCKS.to_vec(),
            depths: BRIEF_DEPTHS.to_vec(),
            ..usual_probe()
        };
        Ok(AdviceTier::file(folder.display().to_string(), measure_folder(folder, &options, progress)?))
    }

    /// Returns the tier of a device by its profile alone, which says what kind of place it is.
    pub fn of_profile(name: impl Into<String>, profile: TierProfile) -> AdviceTier {
        let kind = match profile.kind.as_str() {
            "object" => PlaceKind::Bucket(StoreCosts::UNKNOWN),
            "remote" => PlaceKind::Node,
            _ if profile.addressable => PlaceKind::Mapped,
            _ => PlaceKind::Files,
        };
        let choice = match kind {
            PlaceKind::Mapped => TierChoice::Mapped(MappedOptions::default()),
            _ => TierChoice::File,
        };
        let pages_in_dram = kind != PlaceKind::Mapped;
        AdviceTier { name: name.into(), choice, profile, kind, pages_in_dram }
    }

    /// Returns true if the device moves single cache lines, so that layouts without gaps suit it.
    pub(crate) fn moves_lines(&self) -> bool {
        matches!(self.kind, PlaceKind::Memory | PlaceKind::Mapped | PlaceKind::Node)
    }

    /// Returns a note if the numbers of the profile contradict each other, so that one of them is wrong.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let TierProfile { granularity, latency_ns, iops, bandwidth_bytes_per_s, depth, .. } = self.profile;
        if self.is_dram() {
            return None;
        }
        let read_bytes = iops * f64::from(granularity);
        if read_bytes > CONTRADICTION * bandwidth_bytes_per_s {
            return Some(format!(
                "the profile of {} contradicts itself: {iops:.0} reads/s of {granularity} B are {:.1} times \
                 its bandwidth; measure the device again",
                self.name,
                read_bytes / bandwidth_bytes_per_s
            ));
        }
        // Little's law: so many reads are in flight on the average.
        let in_flight = iops * latency_ns as f64 / 1e9;
        (depth > 0 && in_flight > MOST_THREADS * f64::from(depth)).then(|| {
            format!(
                "the profile of {} contradicts itself: {iops:.0} reads/s of {:.1} us each need \
                 {in_flight:.0} in flight, and its depth is {depth}; measure the device again",
                self.name,
                latency_ns as f64 / 1e3
            )
        })
    }

    /// Predicts a search. Reads from memory nodes and buckets take processor time that pilots do not measure.
    pub(crate) fn predict(&self, demand: &Demand, execution: &Execution) -> Prediction {
        match self.kind {
            PlaceKind::Bucket(costs) => self.in_bucket(demand, execution, costs),
            PlaceKind::Node => {
                demand.on(&self.profile, &Execution { issue_ns: self.request_ns(), ..*execution })
            }
            _ => demand.on(&self.profile, execution),
        }
    }

    /// Predicts a search of an index in an object store.
    fn in_bucket(&self, demand: &Demand, execution: &Execution, costs: StoreCosts) -> Prediction {
        let profile = &self.profile;
        let times = StoreTimes {
            first_byte_ns: profile.latency_ns as f64,
            spread: costs.spread,
            requests_per_s: profile.iops,
            bytes_per_s: profile.bandwidth_bytes_per_s,
            request_ns: self.request_ns(),
        };
        let concurrency = f64::from(execution.threads * execution.in_flight);
        let found = times.predict(demand, demand.rounds.max(1.0), concurrency, f64::from(execution.threads));
        let bound = match found.bound {
            StoreBound::Latency => Bound::Latency,
            StoreBound::Requests => Bound::Iops,
            StoreBound::Bandwidth => Bound::Bandwidth,
            StoreBound::Processor => Bound::Compute,
        };
        Prediction { qps: found.qps, latency_ns: found.latency_ns, bound, ..demand.on(profile, execution) }
    }

    /// Returns the processor nanoseconds of a request to another machine, which pilots do not measure; 0 of a
    /// place without requests.
    pub(crate) fn request_ns(&self) -> f64 {
        match self.kind {
            PlaceKind::Bucket(_) if self.profile.issue_ns == 0 => REQUEST_NS,
            PlaceKind::Bucket(_) | PlaceKind::Node => self.profile.issue_ns as f64,
            _ => 0.0,
        }
    }
}

/// Returns true if a place is the address of an index in a store.
fn is_address(place: &Path) -> bool {
    place.to_str().is_some_and(|text| text.contains("://"))
}

/// Measures the store of the index at an address.
fn in_store(
    place: &Path,
    name: String,
    store: &StoreOptions,
    progress: &dyn Progress,
) -> Result<AdviceTier, IndexError> {
    let options = ProbeOptions { read_time: PROBE_READ_TIME, ..ProbeOptions::from(Mode::Quick) };
    let report = reported(progress, |go_on| probe_store(place, store, &options, go_on));
    let report = report.map_err(|error| match error {
        missing @ (IndexError::NotAnIndex { .. } | IndexError::Store(StoreError::Missing { .. })) => {
            IndexError::Parameter(format!(
                "{missing}; a store is measured by reads of an index there: name one that exists, or give \
                 the profile of a store like it"
            ))
        }
        other => other,
    })?;
    let profile = report.profile;
    let kind = match find(place, &[], store)?.traffic() {
        None => PlaceKind::Node,
        Some(traffic) => {
            let prices = traffic.prices();
            PlaceKind::Bucket(StoreCosts {
                spread: spread(&report.cells),
                million_reads: prices.million_reads,
                gigabyte: prices.gigabyte,
            })
        }
    };
    // The times of a bucket are distributed around the median.
    let median = first_byte(&report.cells).map_or(profile.latency_ns, |cell| cell.p50_ns);
    let latency_ns = if kind == PlaceKind::Node { profile.latency_ns } else { median };
    let (choice, profile) = (TierChoice::File, TierProfile { latency_ns, ..profile });
    Ok(AdviceTier { name, choice, profile, kind, pages_in_dram: true })
}

/// Returns the reads by which the first byte is judged: small ones, one at a time.
fn first_byte(cells: &[ProbeCell]) -> Option<&ProbeCell> {
    cells.iter().min_by_key(|cell| (cell.block_bytes.abs_diff(FIRST_BYTES), cell.depth))
}

/// Returns the standard deviation of the logarithm of the time to the first byte.
fn spread(cells: &[ProbeCell]) -> f64 {
    let measured = first_byte(cells).filter(|cell| cell.p50_ns > 0 && cell.p99_ns >= cell.p50_ns);
    measured.map_or(USUAL_SPREAD, |cell| (cell.p99_ns as f64 / cell.p50_ns as f64).ln() / TO_P99)
}

/// Returns the options of a measurement of a few seconds.
fn usual_probe() -> ProbeOptions {
    ProbeOptions {
        file_bytes: PROBE_BYTES,
        write_time: PROBE_WRITE_TIME,
        read_time: PROBE_READ_TIME,
        ..ProbeOptions::from(Mode::Quick)
    }
}

/// Measures the device of a folder.
fn measure_folder(
    folder: &Path,
    options: &ProbeOptions,
    progress: &dyn Progress,
) -> Result<TierProfile, IndexError> {
    let report = reported(progress, |go_on| Ok(probe_directory_with(folder, options, go_on)?))?;
    Ok(report.profile)
}

/// Measures memory in a few seconds.
fn measure_memory(memory: &MappedOptions, progress: &dyn Progress) -> Result<TierProfile, IndexError> {
    let options = MemoryProbeOptions { bytes: PROBE_BYTES, ..MemoryProbeOptions::from(Mode::Quick) };
    let report = reported(progress, |go_on| Ok(probe_memory(memory, &options, go_on)?))?;
    Ok(report.profile)
}

/// Runs a measurement, which reports its progress as a share and ends if the caller wants that.
fn reported<T>(
    progress: &dyn Progress,
    measurement: impl FnOnce(&(dyn Fn(f64) -> bool + Sync)) -> Result<T, IndexError>,
) -> Result<T, IndexError> {
    progress.stage("measuring the device", STEPS);
    let go_on = |share: f64| {
        progress.advance((share * STEPS as f64) as u64);
        !progress.cancelled()
    };
    measurement(&go_on).map_err(|error| match error {
        IndexError::Tier(TierError::Cancelled) => IndexError::Cancelled,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> AdviceTier {
        let profile = TierProfile {
            kind: "object".into(),
            granularity: 1,
            alignment: 1,
            addressable: false,
            latency_ns: 31_000_000,
            iops: 20_000.0,
            bandwidth_bytes_per_s: 625e6,
            ..AdviceTier::dram().profile
        };
        AdviceTier::of_profile("bucket", profile)
    }

    #[test]
    fn the_processor_time_of_requests_is_measured_or_assumed() {
        let with = |kind: &str, issue_ns| {
            let profile = TierProfile { kind: kind.into(), issue_ns, ..store().profile };
            AdviceTier::of_profile("device", profile).request_ns()
        };
        assert_eq!([with("object", 0), with("object", 70_000)], [REQUEST_NS, 70_000.0]);
        assert_eq!([with("remote", 0), with("remote", 900), with("file", 900)], [0.0, 900.0, 0.0]);
    }

    #[test]
    fn latencies_are_measured_where_pilots_answer_in_the_memory_of_the_place() {
        let mapped = TierProfile { kind: "mapped".into(), addressable: true, ..store().profile };
        let of_profile = AdviceTier::of_profile("cxl", mapped);
        let own = AdviceTier { pages_in_dram: true, ..of_profile.clone() };
        let choice = TierChoice::Mapped("node=1".parse().unwrap());
        let node = AdviceTier { choice, ..of_profile.clone() };
        let in_place = [AdviceTier::dram(), own, node].map(|tier| tier.answers_in_place());
        assert_eq!(in_place, [true; 3]);
        let elsewhere = [of_profile, store()].map(|tier| tier.answers_in_place());
        assert_eq!(elsewhere, [false; 2]);
    }

    #[test]
    fn each_kind_of_place_is_predicted_by_its_own_equation() {
        let demand = Demand { rounds: 4.0, reads: 80.0, moved_bytes: 80.0 * 4096.0, compute_ns: 1e5 };
        let execution = Execution { threads: 4, in_flight: 1, issue_ns: 0.0 };
        let bucket = store();
        let slow = bucket.predict(&demand, &execution);
        // Four waits for the slowest of 20 requests: more than four median first bytes, less than 20.
        assert!(slow.latency_ns > 4.0 * 31e6 && slow.latency_ns < 20.0 * 31e6, "{slow:?}");
        assert_eq!(slow.bound, Bound::Latency);
        let many = bucket.predict(&demand, &Execution { threads: 64, in_flight: 64, issue_ns: 0.0 });
        assert_eq!((many.bound, many.qps.round()), (Bound::Iops, 250.0));
        // The processor posts the reads of a memory node.
        let profile = TierProfile { kind: "remote".into(), latency_ns: 1, issue_ns: 5_000, ..bucket.profile };
        let node = AdviceTier::of_profile("node", TierProfile { iops: 1e9, ..profile });
        let rate = node.predict(&demand, &execution).compute_qps;
        assert!((rate - 4e9 / (1e5 + 80.0 * 5_000.0)).abs() < 1.0, "{rate}");
    }

    #[test]
    fn numbers_that_contradict_each_other_are_noted() {
        let file = TierProfile {
            kind: "file".into(),
            granularity: 4096,
            latency_ns: 80_000,
            iops: 1e5,
            bandwidth_bytes_per_s: 2e9,
            depth: 64,
            ..store().profile
        };
        let note = |profile| AdviceTier::file("disk", profile).contradiction().unwrap_or_default();
        assert_eq!((note(file.clone()), AdviceTier::dram().contradiction()), (String::new(), None));
        assert!(note(TierProfile { iops: 1e8, ..file.clone() }).contains("times its bandwidth"));
        let fast = TierProfile { iops: 1e9, bandwidth_bytes_per_s: 1e13, ..file };
        assert!(note(fast.clone()).contains("its depth is 64"), "{}", note(fast));
    }

    #[test]
    fn a_profile_names_its_kind_of_place() {
        let with = |kind: &str, addressable| {
            let profile = TierProfile { kind: kind.into(), addressable, ..store().profile };
            AdviceTier::of_profile("device", profile).kind
        };
        assert_eq!(with("file", false), PlaceKind::Files);
        assert_eq!(with("remote", false), PlaceKind::Node);
        assert_eq!(with("mapped", true), PlaceKind::Mapped);
        assert_eq!(with("object", false), PlaceKind::Bucket(StoreCosts::UNKNOWN));
    }
}
