//! Hedging: decides when a response is late, and if a second request may be sent.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The number of response times that are kept.
const MAX_TIMES: usize = 512;
/// The fewest response times from which lateness is computed.
const MIN_TIMES: usize = 32;
/// The number of responses between two computations.
const COMPUTE_INTERVAL: usize = 32;
/// The quantile of response times above which a response is late.
const LATE_SHARE: f64 = 0.95;
/// The shortest time after which a response is late: timers are not finer.
const MIN_LATE_TIME: Duration = Duration::from_millis(2);
/// The number of first requests that earn one hedge, so that a store that is slow in general does not get
/// twice the load.
const REQUESTS_PER_HEDGE: i64 = 20;
/// The most hedges that can be saved up.
const MAX_SAVED_HEDGES: i64 = 16;

/// The number of a client's first small requests that are sent twice at once. The first search of a process
/// waits for them, and lateness is not known yet.
const SENT_TWICE: i64 = 64;
/// The most bytes of such a request.
const SMALL_BYTES: u64 = 64 << 10;
/// The smallest median time to the first byte at which requests are sent twice at once; a nearer store
/// responds soon enough.
const DISTANT_FIRST_BYTE: Duration = Duration::from_millis(5);

/// The recent response times, and the hedging decisions that follow from them.
#[derive(Debug)]
pub(super) struct Hedging {
    /// True if hedging is enabled.
    on: bool,
    /// The number of requests that may still be sent twice at once.
    twice_left: AtomicI64,
    times: Mutex<Times>,
    /// The median response time; 0 until it is known.
    median_ns: AtomicU64,
    /// The time after which a response is late; 0 until it is known.
    late_ns: AtomicU64,
    /// The number of responses that have not been spent on a hedge yet.
    unspent: AtomicI64,
}

#[derive(Debug, Default)]
struct Times {
    ns: Vec<u64>,
    /// The position of the oldest time, which is replaced next.
    oldest: usize,
    /// The number of times recorded since the last computation.
    since_computed: usize,
}

impl Hedging {
    pub(super) fn new(on: bool) -> Hedging {
        let unknown = AtomicU64::default;
        let (twice_left, unspent) = (AtomicI64::new(SENT_TWICE), AtomicI64::default());
        Hedging { on, twice_left, times: Mutex::default(), median_ns: unknown(), late_ns: unknown(), unspent }
    }

    /// Records the time to the first byte of a response.
    pub(super) fn record(&self, time: Duration) {
        if self.unspent.fetch_add(1, Relaxed) >= MAX_SAVED_HEDGES * REQUESTS_PER_HEDGE {
            self.unspent.store(MAX_SAVED_HEDGES * REQUESTS_PER_HEDGE, Relaxed);
        }
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.ns.len() < MAX_TIMES {
            times.ns.push(ns);
        } else {
            let oldest = times.oldest;
            times.ns[oldest] = ns;
            times.oldest = (oldest + 1) % MAX_TIMES;
        }
        times.since_computed += 1;
        if times.since_computed < COMPUTE_INTERVAL && times.ns.len() > COMPUTE_INTERVAL {
            return;
        }
        times.since_computed = 0;
        let mut sorted = times.ns.clone();
        drop(times);
        sorted.sort_unstable();
        let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        self.median_ns.store(quantile(0.5).max(1), Relaxed);
        if sorted.len() >= MIN_TIMES {
            self.late_ns.store(quantile(LATE_SHARE).max(1), Relaxed);
        }
    }

    /// Returns the median of the recent response times.
    pub(super) fn median(&self) -> Option<Duration> {
        Some(self.median_ns.load(Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    /// Returns the time after which a request is hedged; `None` if it is not.
    pub(super) fn hedge_delay(&self) -> Option<Duration> {
        let hedging = self.late_ns.load(Relaxed);
        (self.on && hedging > 0).then(|| Duration::from_nanos(hedging).max(MIN_LATE_TIME))
    }

    /// Returns true if a request for `bytes` may be sent twice at once, and uses up one of these requests.
    pub(super) fn may_send_twice(&self, bytes: u64) -> bool {
        let is_eligible = self.on
            && bytes <= SMALL_BYTES
            && self.median().is_some_and(|median| median >= DISTANT_FIRST_BYTE);
        let take = |left: i64| (left > 0).then_some(left - 1);
        is_eligible && self.twice_left.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Returns true if a hedge may be sent, and uses up the responses that earned it.
    pub(super) fn may_hedge(&self) -> bool {
        let taken = self.unspent.fetch_update(Relaxed, Relaxed, |unspent| {
            (unspent >= REQUESTS_PER_HEDGE).then_some(unspent - REQUESTS_PER_HEDGE)
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_twentieth_is_late_and_one_in_twenty_requests_is_hedged() {
        let hedging = Hedging::new(true);
        assert_eq!((hedging.hedge_delay(), hedging.median(), hedging.may_hedge()), (None, None, false));
        (1..=100).for_each(|ms| hedging.record(Duration::from_millis(ms)));
        let hedge_delay = hedging.hedge_delay().unwrap();
        assert!((80..=100).contains(&hedge_delay.as_millis()), "{hedge_delay:?}");
        assert!((40..=60).contains(&hedging.median().unwrap().as_millis()));
        assert_eq!((0..100).filter(|_| hedging.may_hedge()).count(), 5);
        (0..10_000).for_each(|_| hedging.record(Duration::from_millis(1)));
        assert_eq!(hedging.hedge_delay(), Some(MIN_LATE_TIME));
        assert_eq!((0..100).filter(|_| hedging.may_hedge()).count(), MAX_SAVED_HEDGES as usize);
        let off = Hedging::new(false);
        (1..=100).for_each(|ms| off.record(Duration::from_millis(ms)));
        assert_eq!(off.hedge_delay(), None);
    }

    #[test]
    fn the_first_small_requests_to_a_distant_store_are_sent_twice() {
        let sent = |hedging: &Hedging, bytes| (0..1000).filter(|_| hedging.may_send_twice(bytes)).count();
        let hedging = Hedging::new(true);
        assert_eq!(sent(&hedging, 1), 0, "the distance of the store is unknown");
        hedging.record(Duration::from_millis(31));
        assert_eq!(
            (sent(&hedging, SMALL_BYTES + 1), sent(&hedging, SMALL_BYTES), sent(&hedging, 1)),
            (0, SENT_TWICE as usize, 0)
        );
        let (near, off) = (Hedging::new(true), Hedging::new(false));
        near.record(Duration::from_millis(1));
        off.record(Duration::from_millis(31));
        assert_eq!((sent(&near, 1), sent(&off, 1)), (0, 0));
    }
}
