//! The limit on requests in flight: the configured maximum, or fewer if the store asks for fewer. As in TCP
//! (Chiu and Jain, 1989), it grows by one for each round of responses and is halved by a refusal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The fewest requests in flight that a refusal leaves.
const MIN_REQUESTS: usize = 4;
/// Refusals within this time count as one, since they respond to requests that were in flight together.
const REFUSAL_WINDOW: Duration = Duration::from_millis(100);

/// See the module's description.
#[derive(Debug)]
pub(super) struct RequestLimit {
    max: usize,
    permits: Arc<Semaphore>,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    /// Requests that may be in flight now.
    current: usize,
    /// Permits to remove as soon as they are returned.
    permits_to_remove: usize,
    /// Responses since the limit last changed.
    responses: usize,
    /// The time of the last reduction.
    reduced: Option<Instant>,
}

/// A permit to have a request in flight.
#[derive(Debug)]
pub(super) struct Permit {
    limit: Arc<RequestLimit>,
    permit: Option<OwnedSemaphorePermit>,
}

impl RequestLimit {
    pub(super) fn new(max: usize) -> RequestLimit {
        let max = max.max(1);
        let state = LimitState { current: max, permits_to_remove: 0, responses: 0, reduced: None };
        RequestLimit { max, permits: Arc::new(Semaphore::new(max)), state: Mutex::new(state) }
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Waits for a permit.
    pub(super) async fn acquire(self: &Arc<Self>) -> Permit {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        Permit { limit: self.clone(), permit }
    }

    /// Returns a permit if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        Some(Permit { limit: self.clone(), permit: Some(permit) })
    }

    /// Returns the current limit.
    #[cfg(test)]
    fn current(&self) -> usize {
        self.state.lock().unwrap().current
    }
}

impl Permit {
    /// Records that the request got a response, and lets the limit grow.
    pub(super) fn record_response(&self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.current == self.limit.max {
            return;
        }
        state.responses += 1;
        if state.responses >= state.current {
            state.responses = 0;
            state.current += 1;
            match state.permits_to_remove {
                0 => self.limit.permits.add_permits(1),
                _ => state.permits_to_remove -= 1,
            }
        }
    }

    /// Records that the store asked for fewer requests, and halves the limit.
    pub(super) fn record_refusal(&self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.reduced.is_some_and(|time| time.elapsed() < REFUSAL_WINDOW) {
            return;
        }
        let fewer = (state.current / 2).max(MIN_REQUESTS.min(self.limit.max));
        let removed = self.limit.permits.forget_permits(state.current - fewer);
        state.permits_to_remove += state.current - fewer - removed;
        (state.current, state.responses, state.reduced) = (fewer, 0, Some(Instant::now()));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permit) = self.permit.take()
            && state.permits_to_remove > 0
        {
            state.permits_to_remove -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_halves_the_limit_and_responses_let_it_grow() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let limit = Arc::new(RequestLimit::new(16));
            let mut permits = Vec::new();
            for _ in 0..16 {
                permits.push(limit.acquire().await);
            }
            assert!(limit.try_acquire().is_none());
            permits[0].record_refusal();
            permits[1].record_refusal();
            assert_eq!(limit.current(), 8, "simultaneous refusals count as one");
            permits.truncate(8);
            assert!(limit.try_acquire().is_none(), "returned permits are removed");
            permits.truncate(7);
            assert!(limit.try_acquire().is_some());
            (0..8).for_each(|_| permits[0].record_response());
            assert_eq!(limit.current(), 9);
            permits.clear();
            let all: Vec<_> = std::iter::from_fn(|| limit.try_acquire()).collect();
            assert_eq!(all.len(), 9);
            (0..1000).for_each(|_| all[0].record_response());
            assert_eq!(limit.current(), 16);
        });
    }
}
