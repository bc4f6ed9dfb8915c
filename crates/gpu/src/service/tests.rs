//! Tests of queries, launches and failures, with a card that doubles numbers.

use super::*;
use crate::card::{CardQueue, Kernel, Launch};
use crate::fields::{append_fields, read_u32s};
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use std::sync::{Condvar, Mutex};

/// Records of the launches of all workers.
#[derive(Debug, Default)]
struct LaunchRecords {
    /// Number of requests of each launch.
    sizes: Mutex<Vec<usize>>,
    /// Number of launches that have begun, and a condition that signals another.
    begun: Mutex<usize>,
    another: Condvar,
}

/// A card that doubles numbers. The number 13 causes a panic, and 14 an error. A launch with the number 15
/// lasts until another launch has begun, and one with 16 lasts a second.
#[derive(Debug)]
struct DoublingCard {
    profile: CardProfile,
    records: Arc<LaunchRecords>,
}

impl Card for DoublingCard {
    fn profile(&self) -> &CardProfile {
        &self.profile
    }

    fn free_bytes(&self) -> u64 {
        self.profile.memory_bytes
    }

    fn allocate(&self, _: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError> {
        Ok(Box::new(DoublingMemory(bytes)))
    }

    fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError> {
        Ok(Box::new(DoublingQueue { numbers: Vec::new(), records: self.records.clone() }))
    }
}

#[derive(Debug)]
struct DoublingMemory(u64);

impl CardMemory for DoublingMemory {
    fn address(&self) -> u64 {
        0
    }

    fn bytes(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct DoublingQueue {
    numbers: Vec<u32>,
    records: Arc<LaunchRecords>,
}

impl CardQueue for DoublingQueue {
    fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        assert!(offset == 0 && bytes.len() as u64 <= to.bytes(), "a batch has room for its queries");
        self.numbers = read_u32s(bytes).collect();
        Ok(())
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError> {
        assert_eq!((launch.blocks as usize, launch.threads), (self.numbers.len(), THREADS));
        let LaunchRecords { sizes, begun, another } = &*self.records;
        sizes.lock().expect("no panic").push(self.numbers.len());
        let mut now = begun.lock().expect("no panic");
        *now += 1;
        another.notify_all();
        if self.numbers.contains(&15) {
            let limit = Duration::from_secs(20);
            let (met, waited) = another.wait_timeout_while(now, limit, |now| *now < 2).expect("no panic");
            assert!(!waited.timed_out(), "no other launch has begun");
            now = met;
        }
        drop(now);
        if self.numbers.contains(&16) {
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(!self.numbers.contains(&13), "a defect");
        if self.numbers.contains(&14) {
            return Err(GpuError::Driver { operation: "double", reason: "of 14".into() });
        }
        self.numbers.iter_mut().for_each(|number| *number *= 2);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), GpuError> {
        Ok(())
    }

    fn read(&mut self, _: &dyn CardMemory, _: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let mut bytes = Vec::new();
        append_fields(&[], &self.numbers, &mut bytes);
        out.copy_from_slice(&bytes);
        Ok(())
    }
}

/// A kernel whose requests and responses are numbers. The response 2 * 17 is invalid.
#[derive(Debug)]
struct DoublingKernel;

impl QueryKernel for DoublingKernel {
    type Request = u32;
    type Sizes = ();

    fn kernel(&self) -> Kernel {
        Kernel::Hop
    }

    fn query_bytes(&self) -> QueryBytes {
        QueryBytes { query: 0, work: 4, items: 0, output: 4 }
    }

    fn add(&self, _: u32, request: &mut u32, inputs: &mut Inputs, (): &mut ()) {
        append_fields(&[], &[*request], &mut inputs.work);
    }

    fn parameters(&self, (): &(), _: &BatchAddresses) -> LaunchParameters {
        LaunchParameters { shared_bytes: 0, argument: Vec::new(), output_bytes: 4 }
    }

    fn check(&self, (): &(), output: &[u8]) -> Result<(), GpuError> {
        let invalid = read_u32s(output).filter(|number| *number == 2 * 17);
        check_numbers(Kernel::Hop, "number", invalid, 0)
    }

    fn write_response(&self, (): &(), output: &[u8], request: &mut u32) {
        *request = read_u32s(output).next().expect("a number");
    }
}

fn doubling_card() -> DoublingCard {
    let profile = CardProfile { name: "doubling".into(), memory_bytes: 1 << 30, shared_bytes: 48 << 10 };
    DoublingCard { profile, records: Arc::default() }
}

/// Starts a service with this many slots. Returns it with the records of its launches.
fn service(slots: u32, mini_batch: Option<u32>) -> (Service<DoublingKernel>, Arc<LaunchRecords>) {
    let card = doubling_card();
    let service = Service::with_kernel(&card, DoublingKernel, [], slots, mini_batch).expect("threads");
    (service, card.records)
}

fn engine() -> Engine {
    Engine::new(Arc::new(DramTier::new(vec![0; 64])), EngineOptions::default()).expect("an engine")
}

fn submit(slot: &mut ServiceSlot<DoublingKernel>, number: u32, cx: &Cx) {
    slot.write_request(|request| *request = number);
    slot.submit_request(cx.task_waker());
}

async fn response_of(slot: &mut ServiceSlot<DoublingKernel>, cx: &Cx) -> Result<u32, GpuError> {
    let mut response = 0;
    slot.wait_for_request(cx, |request| response = *request).await?;
    Ok(response)
}

/// Doubles `numbers`, with `in_flight` queries at a time. Returns each number with its result.
fn doubled(
    service: &Service<DoublingKernel>,
    numbers: &[u32],
    in_flight: usize,
) -> Vec<(u32, Result<u32, GpuError>)> {
    let (mut numbers, mut all) = (numbers.iter().copied(), Vec::new());
    let next = |cx: &Cx| {
        let (number, cx) = (numbers.next()?, cx.clone());
        Some(async move {
            let mut slot = service.wait_for_slot(&cx).await;
            submit(&mut slot, number, &cx);
            (number, response_of(&mut slot, &cx).await)
        })
    };
    engine().run(in_flight, next, |one| all.push(one), Control::default()).expect("a run");
    all
}

fn all_doubled(all: &[(u32, Result<u32, GpuError>)]) -> bool {
    all.iter().all(|(number, doubled)| *doubled == Ok(2 * number))
}

#[test]
fn a_large_card_has_thousands_of_slots() {
    let slots = |memory_bytes, bytes| {
        slots(&CardProfile { name: "some".into(), memory_bytes, shared_bytes: 48 << 10 }, bytes)
    };
    assert_eq!(slots(80 << 30, 18 << 10), 1 << 14);
    assert_eq!(slots(6 << 30, 18 << 10), 10_922);
    assert_eq!((slots(1 << 30, 18 << 10), slots(0, 0)), (1 << 12, 1 << 12));
}

#[test]
fn requests_that_arrive_during_a_launch_share_the_next_one() {
    let (service, _) = service(2, None);
    let numbers: Vec<u32> = (100..400).collect();
    let all = doubled(&service, &numbers, 4);
    assert!(all.len() == numbers.len() && all_doubled(&all));
    let counters = service.counters();
    assert!(counters.asked == 300 && counters.bytes == 1200 && counters.launches <= 300, "{counters:?}");
    // Two launches of one query each, with 4 bytes of input and of output.
    assert_eq!(service.resident_bytes(), 16);
}

#[test]
fn two_launches_run_at_a_time() {
    let (service, records) = service(4, None);
    let all = doubled(&service, &[15, 20, 21, 22], 4);
    assert!(all.len() == 4 && all_doubled(&all), "{all:?}");
    assert!(
        records.sizes.lock().expect("no panic").iter().all(|size| *size <= 2),
        "a launch has room for half"
    );
}

#[test]
fn failures_reach_every_query_and_none_waits_forever() {
    for (bad, mini_batch) in [(13, None), (14, None), (17, None), (13, Some(2)), (14, Some(2))] {
        let (service, _) = service(4, mini_batch);
        let all = doubled(&service, &[1, 2, bad, 3, 4, 5], 4);
        assert_eq!(all.len(), 6);
        assert!(all.iter().any(|(number, outcome)| *number == bad && outcome.is_err()), "{all:?}");
        let later = doubled(&service, &[6], 1);
        assert!(matches!(later[..], [(6, Err(GpuError::Lost(_)))]), "{later:?}");
    }
}

#[test]
fn a_failed_launch_does_not_affect_another_one() {
    // The launch with 15 runs while the other one fails.
    for bad in [13, 14] {
        for _ in 0..20 {
            let (service, _) = service(2, None);
            let all = doubled(&service, &[15, bad], 2);
            assert!(all.contains(&(15, Ok(30))), "{all:?}");
            assert!(all.iter().any(|(number, outcome)| *number == bad && outcome.is_err()), "{all:?}");
        }
    }
}

#[test]
fn an_abandoned_query_frees_its_slot() {
    for mini_batch in [None, Some(1)] {
        let (service, _) = service(1, mini_batch);
        // Numbers that cause no panic or error.
        for number in 100..150 {
            let abandoned = |cx: &Cx| {
                let slot = ServiceSlot::acquire(&service.shared, cx.task_waker());
                let cx = cx.clone();
                async move {
                    if let Some(mut slot) = slot {
                        submit(&mut slot, number, &cx);
                    }
                }
            };
            engine().run_one(abandoned, Control::default()).expect("a run");
        }
        assert!(all_doubled(&doubled(&service, &[7, 8, 9], 2)));
    }
}

#[test]
fn spurious_wakeups_do_not_starve_other_queries() {
    let (service, _) = service(1, None);
    let mut left = (0..4_u32).rev();
    let next = |cx: &Cx| {
        let (number, cx, service) = (left.next()?, cx.clone(), &service);
        Some(async move {
            // The first three poll for a slot repeatedly, like queries that are woken for another reason.
            let mut spurious = if number == 0 { 0 } else { 3 };
            let mut slot = loop {
                match ServiceSlot::acquire(&service.shared, cx.task_waker()) {
                    Some(slot) => break slot,
                    None if spurious > 0 => {
                        spurious -= 1;
                        cx.task_waker().wake();
                        cx.parked().await;
                    }
                    None => cx.parked().await,
                }
            };
            submit(&mut slot, number, &cx);
            response_of(&mut slot, &cx).await
        })
    };
    let until = Instant::now() + Duration::from_secs(20);
    let control = Control { cancel: None, deadline: Some(until) };
    let mut ended = 0;
    engine().run(4, next, |_| ended += 1, control).expect("no query waits forever");
    assert_eq!(ended, 4);
}

#[test]
fn a_mini_batch_waits_until_it_is_full_or_all_queries_have_submitted() {
    let (service, records) = service(12, Some(4));
    let sizes = || records.sizes.lock().expect("no panic").clone();
    let quiet = || std::thread::sleep(Duration::from_millis(30));
    let run = |cx: &Cx| {
        let cx = cx.clone();
        let service = &service;
        async move {
            let mut held = Vec::new();
            for _ in 0..7 {
                held.push(service.wait_for_slot(&cx).await);
            }
            for (number, slot) in held.iter_mut().enumerate().take(3) {
                submit(slot, number as u32, &cx);
            }
            quiet();
            assert!(sizes().is_empty(), "three of seven must not start a launch");
            submit(&mut held[3], 3, &cx);
            for (number, slot) in held.iter_mut().enumerate().take(4) {
                assert_eq!(response_of(slot, &cx).await, Ok(2 * number as u32));
            }
            // Two submit and one of them is abandoned; others end: the launch does not wait for those.
            submit(&mut held[4], 4, &cx);
            submit(&mut held[5], 5, &cx);
            quiet();
            assert_eq!(sizes(), [4]);
            drop(held.remove(5));
            drop(held.remove(5));
            drop(held.drain(..4));
            assert_eq!(response_of(&mut held[0], &cx).await, Ok(8));
            assert_eq!(sizes(), [4, 2]);
        }
    };
    engine().run_one(run, Control::default()).expect("a run");
    // A launch serves at most a mini-batch.
    assert!(all_doubled(&doubled(&service, &(20..60).collect::<Vec<u32>>(), 12)));
    assert!(sizes().iter().all(|size| *size <= 4), "{:?}", sizes());
}

#[test]
fn a_mini_batch_must_fit_a_launch() {
    for batch in [0, 7] {
        let started = Service::with_kernel(&doubling_card(), DoublingKernel, [], 12, Some(batch));
        let error = started.map(drop).expect_err("a batch that does not fit");
        assert_eq!(
            error.to_string(),
            format!(
                "a mini-batch of {batch} queries is not possible: on a graphics card it must have 1 to 6"
            )
        );
    }
}

#[test]
fn stopping_waits_for_a_launch_but_not_forever() {
    let (service, _) = service(2, None);
    let abandoned = |cx: &Cx| {
        let cx = cx.clone();
        let slot = ServiceSlot::acquire(&service.shared, cx.task_waker());
        async move {
            if let Some(mut slot) = slot {
                submit(&mut slot, 16, &cx);
            }
        }
    };
    engine().run_one(abandoned, Control::default()).expect("a run");
    let began = Instant::now();
    drop(service);
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(began.elapsed() < STOP_TIME, "{:?}", began.elapsed());
}
