//! When an answer is late, and whether it may be asked for a second time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Answers that are remembered.
const REMEMBERED: usize = 512;
/// Answers before anything is called late.
const LEAST: usize = 32;
/// Answers after which the times are looked at again.
const EVERY: usize = 32;
/// An answer is late when it takes longer than this share of those before.
const LATE_SHARE: f64 = 0.95;
/// Sooner than this nothing is late: timers are not so fine.
const SOONEST: Duration = Duration::from_millis(2);
/// One second request is allowed for so many first ones: a store that is slow as a whole does not get twice the work.
const REQUESTS_A_HEDGE: i64 = 20;
/// Second requests that may be saved up.
const SAVED_HEDGES: i64 = 16;

/// Requests that are sent twice at once, of those of a client's first ones that are for little: what the first answer of a
/// process waits for, and before anybody knows what is late.
const TWICE: i64 = 64;
/// Bytes that are little.
const LITTLE: u64 = 64 << 10;
/// Nearer than this nobody waits long for any one answer.
const FAR: Duration = Duration::from_millis(5);

/// Times of answers, and what follows from them.
#[derive(Debug)]
pub(super) struct Late {
    on: bool,
    /// Requests that may yet be sent twice at once.
    twice: AtomicI64,
    times: Mutex<Times>,
    /// In nanoseconds; 0 while nothing is known.
    median_ns: AtomicU64,
    late_ns: AtomicU64,
    /// First requests that no second one was sent for.
    saved: AtomicI64,
}

#[derive(Debug, Default)]
struct Times {
    ns: Vec<u64>,
    next: usize,
    since: usize,
}

impl Late {
    pub(super) fn new(on: bool) -> Late {
        let none = AtomicU64::default;
        let (twice, saved) = (AtomicI64::new(TWICE), AtomicI64::default());
        Late { on, twice, times: Mutex::default(), median_ns: none(), late_ns: none(), saved }
    }

    /// An answer's first byte came after this time.
    pub(super) fn took(&self, time: Duration) {
        if self.saved.fetch_add(1, Relaxed) >= SAVED_HEDGES * REQUESTS_A_HEDGE {
            self.saved.store(SAVED_HEDGES * REQUESTS_A_HEDGE, Relaxed);
        }
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.ns.len() < REMEMBERED {
            times.ns.push(ns);
        } else {
            let next = times.next;
            times.ns[next] = ns;
            times.next = (next + 1) % REMEMBERED;
        }
        times.since += 1;
        if times.since < EVERY && times.ns.len() > EVERY {
            return;
        }
        times.since = 0;
        let mut sorted = times.ns.clone();
        drop(times);
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        self.median_ns.store(at(0.5).max(1), Relaxed);
        if sorted.len() >= LEAST {
            self.late_ns.store(at(LATE_SHARE).max(1), Relaxed);
        }
    }

    /// Median time of the latest answers.
    pub(super) fn median(&self) -> Option<Duration> {
        Some(self.median_ns.load(Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    /// How long an answer may take before it is asked for again; `None` where that is not done.
    pub(super) fn patience(&self) -> Option<Duration> {
        let late = self.late_ns.load(Relaxed);
        (self.on && late > 0).then(|| Duration::from_nanos(late).max(SOONEST))
    }

    /// Takes the right to send a request for `bytes` twice at once, if there is one.
    pub(super) fn may_send_twice(&self, bytes: u64) -> bool {
        let wanted = self.on && bytes <= LITTLE && self.median().is_some_and(|median| median >= FAR);
        let take = |left: i64| (left > 0).then_some(left - 1);
        wanted && self.twice.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Takes the right to one second request, if there is one.
    pub(super) fn may_hedge(&self) -> bool {
        let taken = self.saved.fetch_update(Relaxed, Relaxed, |saved| {
            (saved >= REQUESTS_A_HEDGE).then_some(saved - REQUESTS_A_HEDGE)
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_twenty_are_late_and_one_in_twenty_is_asked_for_again() {
        let late = Late::new(true);
        assert_eq!((late.patience(), late.median(), late.may_hedge()), (None, None, false));
        (1..=100).for_each(|ms| late.took(Duration::from_millis(ms)));
        let patience = late.patience().unwrap();
        assert!((80..=100).contains(&patience.as_millis()), "{patience:?}");
        assert!((40..=60).contains(&late.median().unwrap().as_millis()));
        assert_eq!((0..100).filter(|_| late.may_hedge()).count(), 5);
        (0..10_000).for_each(|_| late.took(Duration::from_millis(1)));
        assert_eq!(late.patience(), Some(SOONEST));
        assert_eq!((0..100).filter(|_| late.may_hedge()).count(), SAVED_HEDGES as usize);
        let off = Late::new(false);
        (1..=100).for_each(|ms| off.took(Duration::from_millis(ms)));
        assert_eq!(off.patience(), None);
    }

    #[test]
    fn the_first_small_requests_to_a_store_far_away_are_sent_twice() {
        let sent = |late: &Late, bytes| (0..1000).filter(|_| late.may_send_twice(bytes)).count();
        let late = Late::new(true);
        assert_eq!(sent(&late, 1), 0, "nobody knows how far away it is");
        late.took(Duration::from_millis(31));
        assert_eq!((sent(&late, LITTLE + 1), sent(&late, LITTLE), sent(&late, 1)), (0, TWICE as usize, 0));
        let (near, off) = (Late::new(true), Late::new(false));
        near.took(Duration::from_millis(1));
        off.took(Duration::from_millis(31));
        assert_eq!((sent(&near, 1), sent(&off, 1)), (0, 0));
    }
}
