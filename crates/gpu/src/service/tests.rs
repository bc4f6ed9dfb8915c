//! Tests of queries, launches and failures, with a kernel that doubles numbers.

use super::*;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use std::sync::{Condvar, Mutex};

/// Records of the launches of all workers.
#[derive(Default)]
struct LaunchRecords {
    /// Number of requests of each launch.
    sizes: Mutex<Vec<usize>>,
    /// Number of launches that have begun, and a condition that signals another.
    begun: Mutex<usize>,
    another: Condvar,
}

/// Doubles numbers. The number 13 causes a panic, and 14 an error. A launch with the number 15 lasts until
/// another launch has begun, and one with 16 lasts a second.
#[derive(Default)]
struct DoublingLaunch {
    numbers: Vec<u32>,
    records: Arc<LaunchRecords>,
}

impl BatchLaunch for DoublingLaunch {
    type Request = u32;

    fn clear(&mut self) {
        self.numbers.clear();
    }

    fn add(&mut self, _: u32, request: &mut u32) {
        self.numbers.push(*request);
    }

    fn run(&mut self) -> Result<u64, GpuError> {
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
        Ok(4 * self.numbers.len() as u64)
    }

    fn write_response(&mut self, at: usize, request: &mut u32) {
        *request = self.numbers[at];
    }
}

/// Starts a service with this many slots. Returns it with the records of its launches.
fn service(slots: u32, mini_batch: Option<u32>) -> (Service<DoublingLaunch>, Arc<LaunchRecords>) {
    let records = Arc::<LaunchRecords>::default();
    let (launch_queries, launches) = launches(slots);
    let launches =
        (0..launches).map(|_| DoublingLaunch { numbers: Vec::new(), records: records.clone() }).collect();
    (Service::start(ServiceLimits { slots, launch_queries, mini_batch }, launches).expect("threads"), records)
}

fn engine() -> Engine {
    Engine::new(Arc::new(DramTier::new(vec![0; 64])), EngineOptions::default()).expect("an engine")
}

async fn acquired(service: &Service<DoublingLaunch>, cx: &Cx) -> ServiceSlot<u32> {
    loop {
        match ServiceSlot::acquire(service.shared(), Some(cx.task_waker())) {
            Some(slot) => return slot,
            None => cx.parked().await,
        }
    }
}

fn submit(slot: &mut ServiceSlot<u32>, number: u32, cx: &Cx) {
    slot.write(|request| *request = number);
    slot.submit(cx.task_waker());
}

async fn response_of(slot: &mut ServiceSlot<u32>, cx: &Cx) -> Result<u32, GpuError> {
    let mut response = 0;
    loop {
        match slot.take_response(|request| response = *request) {
            Some(outcome) => return outcome.map(|()| response),
            None => cx.parked().await,
        }
    }
}

/// Doubles `numbers`, with `in_flight` queries at a time. Returns each number with its result.
fn doubled(
    service: &Service<DoublingLaunch>,
    numbers: &[u32],
    in_flight: usize,
) -> Vec<(u32, Result<u32, GpuError>)> {
    let (mut numbers, mut all) = (numbers.iter().copied(), Vec::new());
    let next = |cx: &Cx| {
        let (number, cx) = (numbers.next()?, cx.clone());
        Some(async move {
            let mut slot = acquired(service, &cx).await;
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
    for (bad, mini_batch) in [(13, None), (14, None), (13, Some(2)), (14, Some(2))] {
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
                let slot = ServiceSlot::acquire(service.shared(), None);
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
                match ServiceSlot::acquire(service.shared(), Some(cx.task_waker())) {
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
                held.push(acquired(service, &cx).await);
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
        let launches = vec![DoublingLaunch::default()];
        let limits = ServiceLimits { slots: 12, launch_queries: 6, mini_batch: Some(batch) };
        let error = Service::start(limits, launches).map(drop).expect_err("a batch that does not fit");
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
        let slot = ServiceSlot::acquire(service.shared(), None);
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
