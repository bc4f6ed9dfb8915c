//! Tests of the simulated device: its time, its faults, and its record of breaches of the contract.

use bathyal_tier::backend::sim::{
    FaultRates, LatencyDistribution, POISON, SimFault, SimOptions, SimTier, Violation, When,
};
use bathyal_tier::conformance::content;
use bathyal_tier::{Completion, Queue, Read, Tier};
use std::time::Duration;

const WAIT: Option<Duration> = Some(Duration::from_secs(1));

/// Buffers of 4 KiB that outlive every queue made after them.
struct Memory(Vec<[u8; 4096]>, *mut u8);

impl Memory {
    fn new() -> Memory {
        let mut bytes = vec![[0; 4096]; 65];
        let start = bytes.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(4096));
        Memory(bytes, start)
    }

    fn read(&self, id: u64, offset: u64, len: u32) -> Read {
        Read { id, offset, len, buffer: self.1.wrapping_add(id as usize % 64 * 4096), round: 0 }
    }

    fn bytes(&self, read: &Read) -> Vec<u8> {
        assert!(!self.0.is_empty());
        (0..read.len as usize)
            // SAFETY: the buffers live as long as `self`; no slice is kept, so the device may write in
            // between.
            .map(|i| unsafe { read.buffer.add(i).read_volatile() })
            .collect()
    }
}

fn submit(queue: &mut dyn Queue, reads: &[Read]) -> usize {
    // SAFETY: all buffers come from a `Memory` that is declared before the queue.
    unsafe { queue.submit(reads).unwrap() }
}

fn reap(queue: &mut dyn Queue) -> Vec<Completion> {
    let mut done = Vec::new();
    queue.reap(&mut done, WAIT).unwrap();
    done
}

#[test]
fn virtual_time_follows_latency_rate_and_bandwidth() {
    let options = SimOptions {
        latency: LatencyDistribution::Constant { ns: 50_000 },
        iops: 100_000.0,
        bandwidth_bytes_per_s: 1e9,
        granularity: 4096,
        ..SimOptions::default()
    };
    let memory = Memory::new();
    let tier = SimTier::new(content(1 << 20), options);
    let clock = tier.handle().clock();
    let mut queue = tier.open(64).unwrap();
    let reads: Vec<_> = (0..10).map(|id| memory.read(id, id * 8192, 512)).collect();
    assert_eq!(submit(queue.as_mut(), &reads), 10);
    assert_eq!(clock.now_ns(), 0, "submitting takes no virtual time");
    for i in 0..10 {
        assert_eq!(reap(queue.as_mut()), [Completion { id: i, result: Ok(512) }]);
        // A read begins every 10 us. Each transfers 4 KiB at 1 GB/s and then waits 50 us.
        assert_eq!(clock.now_ns(), i * 10_000 + 4_096 + 50_000);
    }
    let before = clock.now_ns();
    assert!(reap(queue.as_mut()).is_empty());
    assert!(clock.now_ns() - before <= 1000, "a wait without reads takes no time");
}

#[test]
fn bytes_appear_at_completion() {
    let memory = Memory::new();
    let tier = SimTier::new(content(1 << 20), SimOptions::default());
    let mut queue = tier.open(8).unwrap();
    let read = memory.read(0, 512, 1024);
    submit(queue.as_mut(), &[read]);
    assert_eq!(memory.bytes(&read), [POISON; 1024]);
    assert_eq!(reap(queue.as_mut()).len(), 1);
    assert_eq!(memory.bytes(&read), content(4096)[512..1536]);
    assert_eq!(tier.handle().violations(), []);
}

#[test]
fn a_misdirected_read_returns_the_bytes_of_another_offset() {
    let memory = Memory::new();
    let script = vec![(When::Nth(0), SimFault::Misdirect(3)), (When::Nth(1), SimFault::Misdirect(u64::MAX))];
    let options = SimOptions { script, alignment: 512, ..SimOptions::default() };
    let tier = SimTier::new(content(1 << 16), options);
    let mut queue = tier.open(8).unwrap();
    let reads: Vec<_> = (0..2).map(|id| memory.read(id, 8192, 4096)).collect();
    submit(queue.as_mut(), &reads[..1]);
    assert_eq!(reap(queue.as_mut())[0].result, Ok(4096));
    assert_eq!(memory.bytes(&reads[0]), content(1 << 16)[3 * 512..][..4096]);
    submit(queue.as_mut(), &reads[1..]);
    assert_eq!(reap(queue.as_mut())[0].result, Ok(4096), "every offset is within the device");
    assert_eq!((tier.handle().stats().misdirected, tier.handle().violations()), (2, vec![]));
}

#[test]
fn scripted_faults_apply_to_the_selected_reads() {
    let memory = Memory::new();
    let script = vec![
        (When::Nth(1), SimFault::Error(5)),
        (When::Touching(9000), SimFault::Short(100)),
        (When::Nth(3), SimFault::Flip(13)),
        (When::Nth(4), SimFault::Delay(Duration::from_millis(2))),
        (When::Nth(5), SimFault::Stuck),
    ];
    let tier = SimTier::new(content(1 << 20), SimOptions { script, ..SimOptions::default() });
    let handle = tier.handle();
    let mut queue = tier.open(8).unwrap();
    let reads: Vec<_> = (0..7).map(|id| memory.read(id, id * 4096, 4096)).collect();
    submit(queue.as_mut(), &reads);
    let mut done = reap(queue.as_mut());
    assert_eq!(done.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
    assert!(done[1].result.is_err_and(|fault| fault.errno == 5));
    assert_eq!(memory.bytes(&reads[1]), [POISON; 4096]);
    assert_eq!(done[2].result, Ok(100));
    assert_eq!(memory.bytes(&reads[2])[100..], [POISON; 3996]);
    let mut expected = content(1 << 16)[3 * 4096..][..4096].to_vec();
    expected[1] ^= 1 << 5;
    assert_eq!(memory.bytes(&reads[3]), expected);
    done = reap(queue.as_mut());
    assert_eq!((done.len(), done[0].id, handle.clock().now_ns()), (1, 4, 2_075_000));
    assert!(reap(queue.as_mut()).is_empty());
    assert_eq!(queue.in_flight(), 1);
    handle.release_stuck();
    assert_eq!(reap(queue.as_mut()), [Completion { id: 5, result: Ok(4096) }]);
    let stats = handle.stats();
    assert_eq!((stats.reads, stats.errors, stats.shorts, stats.flips), (7, 1, 1, 1));
    assert_eq!((stats.delays, stats.stuck, stats.abandoned), (1, 1, 0));
    assert_eq!(handle.violations(), []);
}

#[test]
fn equal_seeds_give_equal_histories() {
    let history = |seed| {
        let rates = FaultRates {
            misdirect: 0.0,
            error: 0.1,
            short: 0.1,
            delay: 0.1,
            flip: 0.1,
            reorder: 0.5,
            refuse: 0.5,
            ..FaultRates::NONE
        };
        let latency = LatencyDistribution::LogNormal { median_ns: 50_000, sigma: 1.0 };
        let memory = Memory::new();
        let tier =
            SimTier::new(content(1 << 20), SimOptions { seed, latency, rates, ..SimOptions::default() });
        let mut queue = tier.open(16).unwrap();
        let mut all = Vec::new();
        let mut next = 0;
        while all.len() < 300 {
            let reads: Vec<_> = (next..next + 8).map(|id| memory.read(id, id * 512, 512)).collect();
            next += submit(queue.as_mut(), &reads) as u64;
            all.extend(reap(queue.as_mut()));
            // Buffers are reused after 64 reads, so none may be in flight for that long.
            while next % 64 >= 32 && queue.in_flight() > 0 {
                all.extend(reap(queue.as_mut()));
            }
        }
        assert_eq!(tier.handle().violations(), []);
        (all, tier.handle().clock().now_ns())
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn breaches_of_the_contract_are_recorded() {
    let memory = Memory::new();
    let tier = SimTier::new(content(1 << 20), SimOptions::default());
    let handle = tier.handle();
    let mut queue = tier.open(16).unwrap();
    submit(queue.as_mut(), &[memory.read(0, 0, 4096)]);
    // An overlap with a read of another queue of the same device is a violation, too.
    let mut other = tier.open(16).unwrap();
    let shifted = memory.read(0, 8192, 512);
    submit(other.as_mut(), &[Read { buffer: shifted.buffer.wrapping_add(512), ..shifted }]);
    assert_eq!(handle.violations(), [Violation::Overlap { offset: 8192 }]);
    // SAFETY: the memory is valid; the test writes to it while it belongs to a read in flight.
    unsafe { memory.read(0, 0, 1).buffer.add(4000).write(1) };
    reap(queue.as_mut());
    assert_eq!(handle.violations()[1..], [Violation::Changed { offset: 0 }]);
    submit(queue.as_mut(), &[memory.read(1, 7, 512), memory.read(2, 512, 100)]);
    let none = Read { buffer: std::ptr::null_mut(), ..memory.read(3, 1024, 512) };
    submit(queue.as_mut(), &[none]);
    let violations = handle.violations();
    assert!(matches!(violations[2], Violation::Misaligned { offset: 7, .. }));
    assert!(matches!(violations[3], Violation::Misaligned { len: 100, .. }));
    assert_eq!(violations[4..], [Violation::NoBuffer { offset: 1024 }]);
}

#[test]
fn a_linked_operation_waits_for_its_predecessor_and_is_skipped_if_that_fails() {
    use bathyal_tier::{Action, Completion, FaultKind, Operation, ReadFault, WriteTier};
    for (fault, stuck) in [(SimFault::Error(5), false), (SimFault::Stuck, true)] {
        let script = vec![(When::Nth(0), fault)];
        let tier = SimTier::writable_copy(&[0; 64], SimOptions { script, ..SimOptions::default() });
        let mut queue = tier.open_write(4).unwrap();
        let (bytes, mut old, mut done) = ([9_u8; 16], 7_u64, Vec::new());
        let write = Action::Write { from: bytes.as_ptr(), len: 16 };
        let add = Action::FetchAndAdd { by: 1, old: &raw mut old };
        let chain = [
            Operation { id: 1, offset: 0, action: write, linked: true },
            Operation { id: 2, offset: 8, action: add, linked: false },
        ];
        // SAFETY: bytes and number are valid until the queue is dropped.
        assert_eq!(unsafe { queue.submit_operations(&chain).unwrap() }, 2);
        queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
        if stuck {
            assert_eq!((done.len(), queue.in_flight()), (0, 2));
            tier.handle().release_stuck();
            while done.len() < 2 {
                queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
            }
            drop(queue);
            assert_eq!(done.iter().map(|ended| ended.result).collect::<Vec<_>>(), [Ok(16), Ok(8)]);
            assert_eq!(old, 0x0909_0909_0909_0909);
        } else {
            drop(queue);
            let skipped = Completion { id: 2, result: Err(ReadFault::of(FaultKind::Skipped)) };
            assert_eq!(done, [Completion { id: 1, result: Err(ReadFault::system(5)) }, skipped]);
            assert_eq!(old, 7);
        }
    }
}
