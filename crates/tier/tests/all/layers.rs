//! Tests of each layer beyond the conformance suite.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::sim::{SimFault, SimOptions, SimTier, When};
use bathyal_tier::conformance::content;
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::stripe::{MemberCounters, StripeTier};
use bathyal_tier::layer::trace::{Pace, Trace, TraceTier, read_json_lines, replay, write_json_lines};
use bathyal_tier::{Control, Engine, EngineOptions, ReadError, Span, Tier};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;

fn read(tier: &Arc<dyn Tier>, spans: &[Span]) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut engine = Engine::new(tier.clone(), EngineOptions::default()).unwrap();
    let spans = spans.to_vec();
    let query = |cx: &bathyal_tier::Cx| {
        let cx = cx.clone();
        async move {
            let batch = cx.read(&spans).await?;
            Ok((0..batch.len()).map(|i| batch.bytes(i).to_vec()).collect())
        }
    };
    engine.run_one(query, Control::default()).unwrap()
}

fn dram() -> Arc<dyn Tier> {
    Arc::new(DramTier::new(content(LEN)))
}

#[test]
fn a_trace_records_every_read_and_can_be_written_read_and_replayed() {
    let trace = Trace::in_memory(1000);
    let script = vec![(When::Touching(49_200), SimFault::Error(5))];
    let sim = SimTier::new(content(LEN), SimOptions { script, ..SimOptions::default() });
    let tier: Arc<dyn Tier> = Arc::new(TraceTier::new(Arc::new(sim), trace.clone()));
    let spans: Vec<_> = (0..20).map(|i| Span::at(i * 4096, 100)).collect();
    assert!(matches!(read(&tier, &spans), Err(ReadError::Device { errno: 5, .. })));
    read(&tier, &[Span::at(100_000, 5000)]).unwrap();
    let records = trace.records();
    let mut offsets: Vec<_> = records.iter().map(|r| (r.queue, r.offset, r.len)).collect();
    offsets.sort_unstable();
    let mut expected: Vec<_> = (0..20).map(|i| (0, i * 4096, 512)).collect();
    expected.push((1, 99_840, 5632));
    assert_eq!(offsets, expected);
    for record in &records {
        assert_eq!(record.result, if record.offset == 49_152 { -5 } else { i64::from(record.len) });
    }
    let mut lines = Vec::new();
    write_json_lines(&records, &mut lines).unwrap();
    assert_eq!(read_json_lines(lines.as_slice()).unwrap(), records);
    let damaged = [&lines[..], b"{\"offset\":"].concat();
    assert!(read_json_lines(damaged.as_slice()).unwrap_err().to_string().contains("line 22"));
    for pace in [Pace::Unpaced, Pace::Recorded] {
        let report = replay(&records, &dram(), pace).unwrap();
        assert_eq!((report.reads, report.errors, report.bytes), (21, 0, 20 * 512 + 5632));
    }
    assert_eq!(replay(&[], &dram(), Pace::Unpaced).unwrap().reads, 0);
}

#[test]
fn a_full_trace_counts_further_reads_and_a_file_records_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    let spans: Vec<_> = (0..700).map(|i| Span::at(i * 1000, 100)).collect();
    let small = Trace::in_memory(10);
    read(&(Arc::new(TraceTier::new(dram(), small.clone())) as Arc<dyn Tier>), &spans).unwrap();
    assert_eq!((small.records().len(), small.lost()), (10, 690));
    let file = Trace::to_file(&path).unwrap();
    read(&(Arc::new(TraceTier::new(dram(), file.clone())) as Arc<dyn Tier>), &spans).unwrap();
    file.flush().unwrap();
    let read_back = read_json_lines(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).unwrap();
    assert_eq!(read_back.len(), 700);
}

#[test]
fn a_stripe_joins_reads_across_members_and_counts_by_member() {
    let parts = StripeTier::distribute(&content(LEN), 4, 4096);
    let members = parts.into_iter().map(|p| Arc::new(DramTier::new(p)) as Arc<dyn Tier>).collect();
    let stripe = Arc::new(StripeTier::new(members, 4096).unwrap());
    let tier: Arc<dyn Tier> = stripe.clone();
    // The span begins in the middle of member 1's unit and ends at the start of member 0's next unit.
    let got = read(&tier, &[Span::at(4096 + 1000, 3 * 4096), Span::at(8192, 10)]).unwrap();
    assert_eq!(got[0], content(LEN)[4096 + 1000..][..3 * 4096]);
    assert_eq!(got[1], content(LEN)[8192..][..10]);
    let expected = [(1, 1000), (1, 3096), (2, 4106), (1, 4096)];
    let expected: Vec<_> =
        expected.into_iter().map(|(reads, bytes)| MemberCounters { reads, bytes }).collect();
    assert_eq!(stripe.counters(), expected);
}

#[test]
fn a_short_read_of_a_member_ends_the_valid_bytes() {
    let parts = StripeTier::distribute(&content(LEN), 2, 4096);
    let sim = |(i, bytes): (usize, Vec<u8>)| -> Arc<dyn Tier> {
        let script = if i == 1 { vec![(When::Touching(0), SimFault::Short(1000))] } else { Vec::new() };
        Arc::new(SimTier::new(bytes, SimOptions { script, ..SimOptions::default() }))
    };
    let tier: Arc<dyn Tier> =
        Arc::new(StripeTier::new(parts.into_iter().enumerate().map(sim).collect(), 4096).unwrap());
    let failed = read(&tier, &[Span::at(0, 3 * 4096)]).unwrap_err();
    assert_eq!(failed, ReadError::Short { offset: 0, expected: 3 * 4096, got: 4096 + 1000 });
    assert_eq!(read(&tier, &[Span::at(8192, 8192)]).unwrap()[0], content(LEN)[8192..][..8192]);
}

#[test]
fn invalid_stripes_are_refused() {
    assert!(StripeTier::new(Vec::new(), 4096).is_err());
    assert!(StripeTier::new(vec![dram()], 0).is_err());
    let sim: Arc<dyn Tier> = Arc::new(SimTier::new(content(LEN), SimOptions::default()));
    assert!(StripeTier::new(vec![sim], 700).is_err(), "not a multiple of 512");
    assert!(StripeTier::distribute(&content(10), 0, 4096).is_empty());
}

#[test]
fn a_delayed_tier_takes_at_least_the_time_of_its_device() {
    let time = |delay: DelayProfile, dependent: u32, spans: &[Span]| {
        let tier: Arc<dyn Tier> = Arc::new(DelayTier::new(dram(), delay));
        let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
        let query = |cx: &bathyal_tier::Cx| {
            let (cx, spans) = (cx.clone(), spans.to_vec());
            async move {
                for _ in 0..dependent {
                    cx.read(&spans).await.unwrap();
                }
            }
        };
        let start = Instant::now();
        engine.run_one(query, Control::default()).unwrap();
        start.elapsed()
    };
    // Only lower bounds: a loaded machine may take any time longer.
    let one = [Span::at(64, 64)];
    assert!(time(DelayProfile::rdma(), 1000, &one) >= Duration::from_nanos(1000 * 2_950));
    assert!(time(DelayProfile::cxl(), 1000, &one) >= Duration::from_nanos(1000 * 300));
    let narrow = DelayProfile { bandwidth_bytes_per_s: 1e9, ..DelayProfile::cxl() };
    let megabyte: Vec<_> = (0..16).map(|i| Span::at(i * 65_536, 65_536)).collect();
    assert!(time(narrow, 10, &megabyte) >= Duration::from_millis(10));
    assert!(DelayProfile::named("nvm").is_some() && DelayProfile::named("tape").is_none());
}

#[test]
fn a_delayed_tier_stays_addressable_and_names_its_device() {
    let tier = DelayTier::new(dram(), DelayProfile::cxl());
    assert!(tier.profile().addressable);
    assert_eq!((tier.profile().kind.as_str(), tier.profile().latency_ns), ("emulated cxl", 300));
    assert_eq!(tier.open(4).unwrap().map(Span::at(8, 8)).unwrap(), &content(16)[8..]);
}

#[test]
fn devices_to_emulate_are_named_or_described_in_a_file() {
    let named = |text: &str| DelayProfile::named_or_file(text);
    for device in [DelayProfile::rdma(), DelayProfile::connectx6()] {
        assert_eq!(named(&device.name).unwrap(), device);
    }
    assert!(named("tape").unwrap_err().to_string().contains("tape: no device of that name"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.json");
    let write = |profile: &str| std::fs::write(&path, profile).unwrap();
    let text = path.to_str().unwrap();
    let custom = DelayProfile { name: "custom".into(), granularity: 96, ..DelayProfile::nvm() };
    write(&serde_json::to_string(&custom).unwrap());
    assert_eq!(named(text).unwrap(), custom);
    for wrong in ["{}", "not json", &serde_json::to_string(&custom).unwrap().replace(":96", ":0")] {
        write(wrong);
        assert!(named(text).is_err(), "{wrong}");
    }
}

#[test]
fn a_granularity_that_is_no_power_of_two_limits_bandwidth() {
    let delay =
        DelayProfile { granularity: 96, bandwidth_bytes_per_s: 96e6, latency_ns: 0, ..DelayProfile::cxl() };
    let tier: Arc<dyn Tier> = Arc::new(DelayTier::new(dram(), delay));
    let start = Instant::now();
    // Each span touches two granules, and each granule takes a microsecond.
    let spans: Vec<_> = (0..100).map(|i| Span::at(i * 9600 + 90, 10)).collect();
    read(&tier, &spans).unwrap();
    assert!(start.elapsed() >= Duration::from_micros(200));
}
