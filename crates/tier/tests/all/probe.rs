//! Tests of the probe: it measures no more than the device can do, and removes its files.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::mapped::{MappedOptions, MappedPlace};
use bathyal_tier::backend::sim::{LatencyDistribution, SimClock, SimOptions, SimTier};
use bathyal_tier::probe::{
    MemoryProbeOptions, MemoryReport, Mode, ProbeOptions, ProbeReport, probe_directory_with, probe_memory,
    probe_tier,
};
use bathyal_tier::{Tier, TierError};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn short() -> ProbeOptions {
    ProbeOptions {
        file_bytes: 4 << 20,
        cell_time: Duration::from_millis(10),
        blocks: vec![512, 4096, 65_536],
        depths: vec![1, 8],
        ..ProbeOptions::from(Mode::Quick)
    }
}

#[test]
fn a_simulated_device_is_not_measured_faster_than_it_is() {
    let options = SimOptions {
        clock: SimClock::real_time(),
        latency: LatencyDistribution::Constant { ns: 200_000 },
        ..SimOptions::default()
    };
    let tier: Arc<dyn Tier> = Arc::new(SimTier::new(vec![0; 1 << 20], options));
    let report = probe_tier(&tier, &short(), &|_| true).unwrap();
    assert_eq!(report.cells.len(), 6);
    for cell in &report.cells {
        assert!(cell.reads > 0 && cell.mean_ns >= 200_000 && cell.p50_ns <= cell.p99_ns, "{cell:?}");
        assert!(cell.iops <= f64::from(cell.depth) * 5_000.0, "{cell:?}");
    }
    assert!(report.profile.latency_ns >= 200_000 && report.profile.iops <= 40_000.0);
    assert!([1, 8].contains(&report.profile.depth));
}

#[test]
fn memory_and_directories_are_measured() {
    let tier: Arc<dyn Tier> = Arc::new(DramTier::new(vec![1; 1 << 20]));
    assert!(probe_tier(&tier, &short(), &|_| true).unwrap().profile.iops > 0.0);
    let dir = tempfile::tempdir().unwrap();
    let last = Cell::new(0.0);
    let report = probe_directory_with(dir.path(), &short(), &|done| {
        assert!((last.get()..=1.0).contains(&done));
        last.set(done);
        true
    })
    .unwrap();
    assert_eq!((report.bytes, last.get()), (4 << 20, 1.0));
    assert!(report.cells.iter().all(|c| c.iops > 0.0 && c.mean_ns > 0));
    assert!(empty(dir.path()));
    let json = serde_json::to_string(&report).unwrap();
    let back: ProbeReport = serde_json::from_str(&json).unwrap();
    assert_eq!((back.cells.len(), back.profile.kind.as_str()), (report.cells.len(), "file"));
}

fn empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_cancelled_probe_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    for allowed in [0, 2, 5] {
        let calls = Cell::new(0);
        let progress = |_| {
            calls.set(calls.get() + 1);
            calls.get() <= allowed
        };
        let outcome = probe_directory_with(dir.path(), &short(), &progress);
        assert!(matches!(outcome, Err(TierError::Cancelled)), "{outcome:?}");
        assert!(empty(dir.path()));
    }
}

#[test]
fn a_tier_that_joins_near_reads_is_measured_by_reads_that_are_far_apart() {
    let tier: Arc<dyn Tier> = Arc::new(DramTier::new(vec![0; 1 << 19]));
    let report = probe_tier(&tier, &ProbeOptions { joins_reads: true, ..short() }, &|_| true).unwrap();
    let cells: Vec<(u32, u32)> = report.cells.iter().map(|cell| (cell.block_bytes, cell.depth)).collect();
    // A fourth of the tier is 128 KiB.
    assert_eq!(cells, [(512, 1), (512, 8), (4096, 1), (4096, 8), (65_536, 1)]);
}

#[test]
fn missing_folders_and_empty_tiers_are_errors() {
    let missing = probe_directory_with(Path::new("/no/such/directory"), &short(), &|_| true);
    assert!(missing.unwrap_err().to_string().contains("/no/such/directory"));
    let empty: Arc<dyn Tier> = Arc::new(DramTier::new(Vec::new()));
    assert!(matches!(probe_tier(&empty, &short(), &|_| true), Err(TierError::Parameter(_))));
}

#[test]
fn memory_of_every_kind_is_measured_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 6) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let options = MemoryProbeOptions {
        bytes: 2 << 20,
        cell_time: Duration::from_millis(2),
        payloads: vec![64, 4096],
        in_flight: vec![1, 8],
        threads: vec![1, 2],
    };
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let places = [MappedPlace::Anonymous, MappedPlace::Path(folder.clone()), MappedPlace::Path(file.clone())];
    for place in places.map(MappedOptions::at) {
        let report = probe_memory(&place, &options, &|done| (0.0..=1.0).contains(&done)).unwrap();
        assert_eq!((report.cells.len(), report.mixed.len()), (8, 20), "{place}");
        assert!(report.bytes <= 2 << 20 && report.dependent_load_ns > 0.0);
        assert!(report.cells.iter().all(|cell| cell.reads_per_s > 0.0));
        for unmixed in report.mixed.iter().filter(|cell| cell.small_share == 0.0) {
            assert_eq!(unmixed.slowdown, 0.0);
        }
        assert!(report.profile.iops > 0.0 && [1, 8].contains(&report.profile.depth));
        let json = serde_json::to_string(&report).unwrap();
        let back: MemoryReport = serde_json::from_str(&json).unwrap();
        assert_eq!((back.cells.len(), back.profile.kind.as_str()), (8, "mapped"));
        let cancelled = probe_memory(&place, &options, &|done| done < 0.5);
        assert!(matches!(cancelled, Err(TierError::Cancelled)), "{cancelled:?}");
    }
    assert!(empty(&folder) && std::fs::read(&file).unwrap() == content);
    let few = MemoryProbeOptions { bytes: 4096, ..options };
    assert!(matches!(probe_memory(&MappedOptions::default(), &few, &|_| true), Err(TierError::Parameter(_))));
}
