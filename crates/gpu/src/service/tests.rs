//! Queries, launches and what goes wrong with them, of a card that doubles numbers.

use super::*;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions};
use std::sync::{Condvar, Mutex};

/// What launches of all conductors have in common.
#[derive(Default)]
struct Seen {
    /// How many numbers each launch had.
    sizes: Mutex<Vec<usize>>,
    /// Launches that have begun, and whoever waits for another.
    begun: Mutex<usize>,
    another: Condvar,
}

/// Doubles numbers, many at once; what it makes of the number 13 is a defect, and of 14 an error. A launch with the number 15 lasts until
/// another is under way as well, and one with 16 for a second.
#[derive(Default)]
struct Doubling {
    numbers: Vec<u32>,
    seen: Arc<Seen>,
}

impl Wave for Doubling {
    type Letter = u32;

    fn begin(&mut self) {
        self.numbers.clear();
    }

    fn take(&mut self, _: u32, letter: &mut u32) {
        self.numbers.push(*letter);
    }

    fn launch(&mut self) -> Result<u64, GpuError> {
        let Seen { sizes, begun, another } = &*self.seen;
        sizes.lock().expect("no panic").push(self.numbers.len());
        let mut now = begun.lock().expect("no panic");
        *now += 1;
        another.notify_all();
        if self.numbers.contains(&15) {
            let limit = Duration::from_secs(20);
            let (met, waited) = another.wait_timeout_while(now, limit, |now| *now < 2).expect("no panic");
            assert!(!waited.timed_out(), "no other launch is under way");
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

    fn answer(&mut self, at: usize, letter: &mut u32) {
        *letter = self.numbers[at];
    }
}

/// A service of so many places, and what is seen of its launches.
fn service(slots: u32, mini_batch: Option<u32>) -> (Service<Doubling>, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let (room, launches) = launches(slots);
    let waves = (0..launches).map(|_| Doubling { numbers: Vec::new(), seen: seen.clone() }).collect();
    (Service::start(Terms { slots, room, mini_batch }, waves).expect("threads"), seen)
}

fn engine() -> Engine {
    Engine::new(Arc::new(DramTier::new(vec![0; 64])), EngineOptions::default()).expect("an engine")
}

async fn taken(service: &Service<Doubling>, cx: &Cx) -> Place<u32> {
    loop {
        match Place::take(service.shared(), Some(cx.task_waker())) {
            Some(place) => return place,
            None => cx.parked().await,
        }
    }
}

fn ask(place: &mut Place<u32>, number: u32, cx: &Cx) {
    place.write(|letter| *letter = number);
    place.send(cx.task_waker());
}

async fn answered(place: &mut Place<u32>, cx: &Cx) -> Result<u32, GpuError> {
    let mut answer = 0;
    loop {
        match place.answer(|letter| answer = *letter) {
            Some(outcome) => return outcome.map(|()| answer),
            None => cx.parked().await,
        }
    }
}

/// Asks for these numbers, `in_flight` queries at a time.
fn doubled(
    service: &Service<Doubling>,
    numbers: &[u32],
    in_flight: usize,
) -> Vec<(u32, Result<u32, GpuError>)> {
    let (mut numbers, mut all) = (numbers.iter().copied(), Vec::new());
    let next = |cx: &Cx| {
        let (number, cx) = (numbers.next()?, cx.clone());
        Some(async move {
            let mut place = taken(service, &cx).await;
            ask(&mut place, number, &cx);
            (number, answered(&mut place, &cx).await)
        })
    };
    engine().run(in_flight, next, |one| all.push(one), Control::default()).expect("a run");
    all
}

fn all_doubled(all: &[(u32, Result<u32, GpuError>)]) -> bool {
    all.iter().all(|(number, doubled)| *doubled == Ok(2 * number))
}

#[test]
fn a_large_card_has_thousands_of_queries_under_way() {
    let slots = |memory_bytes, bytes| {
        slots(&CardProfile { name: "some".into(), memory_bytes, shared_bytes: 48 << 10 }, bytes)
    };
    assert_eq!(slots(80 << 30, 18 << 10), 1 << 14);
    assert_eq!(slots(6 << 30, 18 << 10), 10_922);
    assert_eq!((slots(1 << 30, 18 << 10), slots(0, 0)), (1 << 12, 1 << 12));
}

#[test]
fn what_was_asked_meanwhile_is_one_launch() {
    let (service, _) = service(2, None);
    let numbers: Vec<u32> = (100..400).collect();
    let all = doubled(&service, &numbers, 4);
    assert!(all.len() == numbers.len() && all_doubled(&all));
    let counted = service.counters();
    assert!(counted.asked == 300 && counted.bytes == 1200 && counted.launches <= 300, "{counted:?}");
}

#[test]
fn while_a_launch_is_under_way_another_begins() {
    let (service, seen) = service(4, None);
    let all = doubled(&service, &[15, 20, 21, 22], 4);
    assert!(all.len() == 4 && all_doubled(&all), "{all:?}");
    assert!(seen.sizes.lock().expect("no panic").iter().all(|size| *size <= 2), "a launch has room for half");
}

#[test]
fn what_goes_wrong_is_an_answer_and_nobody_waits_for_ever() {
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
fn a_launch_that_fails_takes_no_answers_of_another() {
    // The one that meets 15 is under way while the other fails.
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
fn a_query_that_is_given_up_gives_its_place_back() {
    for mini_batch in [None, Some(1)] {
        let (service, _) = service(1, mini_batch);
        // None that is a defect or an error.
        for number in 100..150 {
            let given_up = |cx: &Cx| {
                let place = Place::take(service.shared(), None);
                let cx = cx.clone();
                async move {
                    if let Some(mut place) = place {
                        ask(&mut place, number, &cx);
                    }
                }
            };
            engine().run_one(given_up, Control::default()).expect("a run");
        }
        assert!(all_doubled(&doubled(&service, &[7, 8, 9], 2)));
    }
}

#[test]
fn one_that_is_woken_in_vain_takes_nobodys_turn() {
    let (service, _) = service(1, None);
    let mut left = (0..4_u32).rev();
    let next = |cx: &Cx| {
        let (number, cx, service) = (left.next()?, cx.clone(), &service);
        Some(async move {
            // The first three look for a place over and over, as they do that are woken for something else.
            let mut vain = if number == 0 { 0 } else { 3 };
            let mut place = loop {
                match Place::take(service.shared(), Some(cx.task_waker())) {
                    Some(place) => break place,
                    None if vain > 0 => {
                        vain -= 1;
                        cx.task_waker().wake();
                        cx.parked().await;
                    }
                    None => cx.parked().await,
                }
            };
            ask(&mut place, number, &cx);
            answered(&mut place, &cx).await
        })
    };
    let until = Instant::now() + Duration::from_secs(20);
    let control = Control { cancel: None, deadline: Some(until) };
    let mut ended = 0;
    engine().run(4, next, |_| ended += 1, control).expect("nobody waits for ever");
    assert_eq!(ended, 4);
}

#[test]
fn a_mini_batch_waits_until_it_is_full_or_all_have_asked() {
    let (service, seen) = service(12, Some(4));
    let sizes = || seen.sizes.lock().expect("no panic").clone();
    let quiet = || std::thread::sleep(Duration::from_millis(30));
    let run = |cx: &Cx| {
        let cx = cx.clone();
        let service = &service;
        async move {
            let mut places = Vec::new();
            for _ in 0..7 {
                places.push(taken(service, &cx).await);
            }
            for (number, place) in places.iter_mut().enumerate().take(3) {
                ask(place, number as u32, &cx);
            }
            quiet();
            assert!(sizes().is_empty(), "three of seven are not enough");
            ask(&mut places[3], 3, &cx);
            for (number, place) in places.iter_mut().enumerate().take(4) {
                assert_eq!(answered(place, &cx).await, Ok(2 * number as u32));
            }
            // Two ask and one of them is given up; others end: nobody waits for those.
            ask(&mut places[4], 4, &cx);
            ask(&mut places[5], 5, &cx);
            quiet();
            assert_eq!(sizes(), [4]);
            drop(places.remove(5));
            drop(places.remove(5));
            drop(places.drain(..4));
            assert_eq!(answered(&mut places[0], &cx).await, Ok(8));
            assert_eq!(sizes(), [4, 2]);
        }
    };
    engine().run_one(run, Control::default()).expect("a run");
    // A launch takes no more than a mini-batch.
    assert!(all_doubled(&doubled(&service, &(20..60).collect::<Vec<u32>>(), 12)));
    assert!(sizes().iter().all(|size| *size <= 4), "{:?}", sizes());
}

#[test]
fn a_mini_batch_has_to_fit_a_launch() {
    for batch in [0, 7] {
        let waves = vec![Doubling::default()];
        let terms = Terms { slots: 12, room: 6, mini_batch: Some(batch) };
        let error = Service::start(terms, waves).map(drop).expect_err("a batch that does not fit");
        assert_eq!(
            error.to_string(),
            format!("a mini-batch of {batch} queries: it is of 1 to 6 on a graphics card")
        );
    }
}

#[test]
fn the_end_waits_for_a_launch_and_not_for_ever() {
    let (service, _) = service(2, None);
    let given_up = |cx: &Cx| {
        let cx = cx.clone();
        let place = Place::take(service.shared(), None);
        async move {
            if let Some(mut place) = place {
                ask(&mut place, 16, &cx);
            }
        }
    };
    engine().run_one(given_up, Control::default()).expect("a run");
    let began = Instant::now();
    drop(service);
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}
