//! How queries and a card meet: a query writes a letter and parks, and the card's thread answers whatever was written while it was busy
//! by one launch. There are no mini-batches of queries that wait for each other (GustANN, section 4.1.3): a query goes on when its own
//! page is there, and launches grow with the load.

mod batch;
mod conductor;
mod slot;

pub(crate) use batch::{Batch, Blocks};
pub(crate) use conductor::Wave;
pub(crate) use slot::{Place, Shared};

use crate::card::CardProfile;
use crate::error::GpuError;
use conductor::Conductor;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Queries under way at least.
const LEAST_SLOTS: u32 = 1 << 12;
/// And at most: more would only wait for each other.
const MOST_SLOTS: u32 = 1 << 16;
/// Share of a card's memory that queries under way may take: one part in so many.
const SLOT_SHARE: u64 = 32;

/// Queries that may be under way on a card, each of which takes `bytes` of its memory; more wait.
pub fn slots(profile: &CardProfile, bytes: u64) -> u32 {
    let fit = profile.memory_bytes / SLOT_SHARE / bytes.max(1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(LEAST_SLOTS, MOST_SLOTS)
}

/// What a card has done for searches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Launches.
    pub launches: u64,
    /// What queries have asked for, of which a launch answers many.
    pub asked: u64,
    /// Bytes that were copied to the card for that.
    pub bytes: u64,
}

/// A card's thread, and what it shares with queries.
#[derive(Debug)]
pub(crate) struct Service<W: Wave> {
    shared: Arc<Shared<W::Letter>>,
    thread: Option<JoinHandle<()>>,
}

impl<W: Wave> Service<W> {
    /// Begins to serve up to `slots` queries at a time.
    pub(crate) fn start(slots: u32, wave: W) -> Result<Service<W>, GpuError> {
        let shared = Arc::new(Shared::new(slots));
        let conductor = Conductor::new(shared.clone(), wave);
        let thread = std::thread::Builder::new().name("bathyal-card".into()).spawn(move || conductor.run());
        let thread =
            thread.map_err(|e| GpuError::Driver { operation: "start its thread", reason: e.to_string() })?;
        Ok(Service { shared, thread: Some(thread) })
    }

    /// What both sides share.
    pub(crate) fn shared(&self) -> &Arc<Shared<W::Letter>> {
        &self.shared
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> CardCounters {
        let counted = &self.shared.counted;
        CardCounters {
            launches: counted[0].load(Ordering::Relaxed),
            asked: counted[1].load(Ordering::Relaxed),
            bytes: counted[2].load(Ordering::Relaxed),
        }
    }
}

impl<W: Wave> Drop for Service<W> {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // What it has panicked of was said.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::backend::dram::DramTier;
    use bathyal_tier::{Control, Cx, Engine, EngineOptions};

    /// Doubles numbers, many at once; what it makes of the number 13 is a defect, and of 14 an error.
    #[derive(Default)]
    struct Doubling(Vec<u32>);

    impl Wave for Doubling {
        type Letter = u32;

        fn begin(&mut self) {
            self.0.clear();
        }

        fn take(&mut self, _: u32, letter: &mut u32) {
            self.0.push(*letter);
        }

        fn launch(&mut self) -> Result<u64, GpuError> {
            assert!(!self.0.contains(&13), "a defect");
            if self.0.contains(&14) {
                return Err(GpuError::Driver { operation: "double", reason: "of 14".into() });
            }
            self.0.iter_mut().for_each(|number| *number *= 2);
            Ok(4 * self.0.len() as u64)
        }

        fn answer(&mut self, at: usize, letter: &mut u32) {
            *letter = self.0[at];
        }
    }

    /// Asks for these numbers, four queries at a time on two places.
    fn doubled(service: &Service<Doubling>, numbers: &[u32]) -> Vec<(u32, Result<u32, GpuError>)> {
        let mut engine =
            Engine::new(Arc::new(DramTier::new(vec![0; 64])), EngineOptions::default()).expect("an engine");
        let (mut numbers, mut all) = (numbers.iter().copied(), Vec::new());
        let next = |cx: &Cx| {
            let (number, cx) = (numbers.next()?, cx.clone());
            Some(async move {
                let mut place = loop {
                    match Place::take(service.shared(), Some(cx.task_waker())) {
                        Some(place) => break place,
                        None => cx.parked().await,
                    }
                };
                place.write(|letter| *letter = number);
                place.send(cx.task_waker());
                let mut answer = 0;
                loop {
                    match place.answer(|letter| answer = *letter) {
                        Some(outcome) => return (number, outcome.map(|()| answer)),
                        None => cx.parked().await,
                    }
                }
            })
        };
        engine.run(4, next, |one| all.push(one), Control::default()).expect("a run");
        all
    }

    #[test]
    fn a_large_card_has_tens_of_thousands_of_queries_under_way() {
        let slots = |memory_bytes, bytes| {
            slots(&CardProfile { name: "some".into(), memory_bytes, shared_bytes: 48 << 10 }, bytes)
        };
        assert_eq!(slots(80 << 30, 18 << 10), 1 << 16);
        assert_eq!(slots(16 << 30, 18 << 10), 29_127);
        assert_eq!((slots(1 << 30, 18 << 10), slots(0, 0)), (1 << 12, 1 << 12));
    }

    #[test]
    fn what_was_asked_meanwhile_is_one_launch() {
        let service = Service::start(2, Doubling::default()).expect("a thread");
        let numbers: Vec<u32> = (100..400).collect();
        let all = doubled(&service, &numbers);
        assert_eq!(all.len(), numbers.len());
        assert!(all.iter().all(|(number, doubled)| *doubled == Ok(2 * number)));
        let counted = service.counters();
        assert!(counted.asked == 300 && counted.bytes == 1200 && counted.launches <= 300, "{counted:?}");
    }

    #[test]
    fn what_goes_wrong_is_an_answer_and_nobody_waits_for_ever() {
        for bad in [13, 14] {
            let service = Service::start(2, Doubling::default()).expect("a thread");
            let all = doubled(&service, &[1, 2, bad, 3, 4, 5]);
            assert_eq!(all.len(), 6);
            assert!(all.iter().any(|(number, outcome)| *number == bad && outcome.is_err()), "{all:?}");
            let later = doubled(&service, &[6]);
            assert!(matches!(later[..], [(6, Err(GpuError::Lost(_)))]), "{later:?}");
        }
    }

    #[test]
    fn a_query_that_is_given_up_gives_its_place_back() {
        let service = Service::start(1, Doubling::default()).expect("a thread");
        for number in 0..50 {
            let mut engine = Engine::new(Arc::new(DramTier::new(vec![0; 64])), EngineOptions::default())
                .expect("an engine");
            let given_up = |cx: &Cx| {
                let place = Place::take(service.shared(), None);
                let cx = cx.clone();
                async move {
                    if let Some(mut place) = place {
                        place.write(|letter| *letter = number);
                        place.send(cx.task_waker());
                    }
                }
            };
            engine.run_one(given_up, Control::default()).expect("a run");
        }
        let all = doubled(&service, &[7, 8, 9]);
        assert!(all.iter().all(|(number, doubled)| *doubled == Ok(2 * number)), "{all:?}");
    }
}
