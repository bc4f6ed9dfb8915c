//! How many requests are in flight: as many as are allowed, and fewer where the store says so. Grows by one for each round of
//! answers and is halved by a refusal, as TCP does (Chiu and Jain, 1989).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Fewest requests in flight.
const LEAST: usize = 4;
/// Refusals within this time are one: they answer to requests that were in flight together.
const ONE_REFUSAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Limit {
    most: usize,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now: usize,
    /// Permits to be taken away as soon as they come back.
    owed: usize,
    /// Answers since the limit grew.
    answers: usize,
    cut: Option<Instant>,
}

/// The right to have a request in flight.
#[derive(Debug)]
pub(super) struct Permit {
    limit: Arc<Limit>,
    held: Option<OwnedSemaphorePermit>,
}

impl Limit {
    pub(super) fn new(most: usize) -> Limit {
        let most = most.max(1);
        let state = State { now: most, owed: 0, answers: 0, cut: None };
        Limit { most, permits: Arc::new(Semaphore::new(most)), state: Mutex::new(state) }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Waits for its turn.
    pub(super) async fn acquire(self: &Arc<Self>) -> Permit {
        // The semaphore is never closed.
        let held = self.permits.clone().acquire_owned().await.ok();
        Permit { limit: self.clone(), held }
    }

    /// A permit if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let held = self.permits.clone().try_acquire_owned().ok()?;
        Some(Permit { limit: self.clone(), held: Some(held) })
    }

    /// Requests that may be in flight now.
    #[cfg(test)]
    fn now(&self) -> usize {
        self.state.lock().unwrap().now
    }
}

impl Permit {
    /// The request was answered.
    pub(super) fn answered(&self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.now == self.limit.most {
            return;
        }
        state.answers += 1;
        if state.answers >= state.now {
            state.answers = 0;
            state.now += 1;
            match state.owed {
                0 => self.limit.permits.add_permits(1),
                _ => state.owed -= 1,
            }
        }
    }

    /// The store asked for fewer.
    pub(super) fn throttled(&self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.cut.is_some_and(|cut| cut.elapsed() < ONE_REFUSAL) {
            return;
        }
        let fewer = (state.now / 2).max(LEAST.min(self.limit.most));
        let gone = self.limit.permits.forget_permits(state.now - fewer);
        state.owed += state.now - fewer - gone;
        (state.now, state.answers, state.cut) = (fewer, 0, Some(Instant::now()));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = self.held.take()
            && state.owed > 0
        {
            state.owed -= 1;
            held.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_halves_it_and_answers_let_it_grow() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let limit = Arc::new(Limit::new(16));
            let mut held = Vec::new();
            for _ in 0..16 {
                held.push(limit.acquire().await);
            }
            assert!(limit.try_acquire().is_none());
            held[0].throttled();
            held[1].throttled();
            assert_eq!(limit.now(), 8, "refusals of one moment are one");
            held.truncate(8);
            assert!(limit.try_acquire().is_none(), "what came back is taken away");
            held.truncate(7);
            assert!(limit.try_acquire().is_some());
            (0..8).for_each(|_| held[0].answered());
            assert_eq!(limit.now(), 9);
            held.clear();
            let all: Vec<_> = std::iter::from_fn(|| limit.try_acquire()).collect();
            assert_eq!(all.len(), 9);
            (0..1000).for_each(|_| all[0].answered());
            assert_eq!(limit.now(), 16);
        });
    }
}
