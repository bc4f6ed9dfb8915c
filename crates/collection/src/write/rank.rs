//! Priorities: searches and writes come before flushes and merges.

use super::shared::Shared;
use crate::error::CollectionError;
use bathyal_tier::TierError;
use bathyal_tier::process::{RestWatch, Share, yield_to_others};
use bathyal_vectors::progress::Progress;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// For this long after a read, further reads are expected.
const READER_PERIOD: Duration = Duration::from_secs(10);
/// Interval at which the processor time of low-priority work is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Number of checks that a decision about starvation takes.
const CHECKS: u32 = 10;
/// Work starves below this share of a core. A low priority would get about as much on busy cores.
const STARVING_SHARE: f64 = 0.1;

/// For this long after work has starved, low priority is not tried again.
const STARVED_PERIOD: Duration = Duration::from_secs(60);

/// The time from which [`LastTime`] counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of the last event of a kind.
#[derive(Debug, Default)]
pub(super) struct LastTime {
    /// Milliseconds since [`START`], plus one; 0 means never.
    at: AtomicU64,
}

impl LastTime {
    pub(super) fn note(&self) {
        self.at.store(START.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// Returns true if the event was less than `time` ago.
    fn is_within(&self, time: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at > 0 && START.elapsed().saturating_sub(Duration::from_millis(at)) < time
    }
}

impl Shared {
    /// Records a read: merges that start later leave cores to readers.
    pub(crate) fn note_reading(&self) {
        self.last_read.note();
    }

    /// Returns true if reads are likely while segments are merged.
    pub(super) fn has_readers(&self) -> bool {
        self.last_read.is_within(READER_PERIOD)
    }

    /// Returns the share of the cores for work that only makes searches faster, if it should be less than
    /// usual. That is so while there are readers and no write waits for the work, unless such work has
    /// starved recently.
    pub(super) fn share(&self) -> Option<Share> {
        let rest =
            self.options.background && self.has_readers() && !self.last_starved.is_within(STARVED_PERIOD);
        rest.then_some(Share::Rest)
    }

    /// Runs `work`. While there are readers it only gets idle processor time. If that is too little, its
    /// progress is cancelled, and it starts again with a share of its own. `work` must end when the progress
    /// it is given is cancelled.
    pub(super) fn run_low_priority<T>(
        &self,
        progress: &dyn Progress,
        mut work: impl FnMut(Priority<'_>, &dyn Progress) -> Result<T, CollectionError>,
    ) -> Result<T, CollectionError> {
        let starved = AtomicBool::new(false);
        if let Some(share) = self.share() {
            let until_starved = UntilStarved { starved: &starved, progress };
            match work(Priority { share, starved: &starved }, &until_starved) {
                Err(CollectionError::Cancelled)
                    if starved.load(Ordering::Relaxed) && !progress.cancelled() =>
                {
                    self.last_starved.note();
                }
                done => return done,
            }
        }
        work(Priority { share: Share::Tenth, starved: &starved }, progress)
    }
}

/// A share of the cores for some work. The flag is set when the work starves.
#[derive(Clone, Copy)]
pub(super) struct Priority<'a> {
    pub(super) share: Share,
    pub(super) starved: &'a AtomicBool,
}

/// Cancels work that starves.
struct UntilStarved<'a> {
    starved: &'a AtomicBool,
    progress: &'a dyn Progress,
}

impl Progress for UntilStarved<'_> {
    fn stage(&self, name: &str, total: u64) {
        self.progress.stage(name, total);
    }

    fn advance(&self, done: u64) {
        self.progress.advance(done);
    }

    fn cancelled(&self) -> bool {
        self.starved.load(Ordering::Relaxed) || self.progress.cancelled()
    }
}

/// Detects work that gets too little processor time.
#[derive(Debug, Default)]
struct StarvationDetector {
    checks: u32,
    computed: Duration,
}

impl StarvationDetector {
    /// Records the processor time since the last check. `wants` is true if the work was waiting for a core.
    /// Returns true if the work has starved.
    fn observe(&mut self, computed: Duration, wants: bool) -> bool {
        if !wants {
            *self = StarvationDetector::default();
            return false;
        }
        self.checks += 1;
        self.computed += computed;
        if self.checks < CHECKS {
            return false;
        }
        let starves = self.computed < (CHECK_INTERVAL * CHECKS).mul_f64(STARVING_SHARE);
        *self = StarvationDetector::default();
        starves
    }
}

/// Runs `work` on a thread with a share of the cores. The threads that it starts have the same share.
pub(super) fn run_yielding<T: Send>(
    priority: Priority<'_>,
    work: impl FnOnce() -> Result<T, CollectionError> + Send,
) -> Result<T, CollectionError> {
    std::thread::scope(|scope| {
        let (ended_sender, ended_receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("bathyal-compact".into());
        let spawned = thread.spawn_scoped(scope, move || {
            // This channel closes when the thread ends, even by a panic.
            let _ended: mpsc::Sender<()> = ended_sender;
            yield_to_others(priority.share);
            work()
        });
        let started = spawned.map_err(|source| {
            let operation = "start a thread that merges segments";
            CollectionError::Index(TierError::System { operation, source }.into())
        })?;
        if priority.share == Share::Rest {
            let (mut watch, mut starving) = (RestWatch::default(), StarvationDetector::default());
            while ended_receiver.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let Some((computed, wants)) = watch.look() else { continue };
                if starving.observe(computed, wants) {
                    priority.starved.store(true, Ordering::Relaxed);
                }
            }
        }
        let thread_panicked =
            || CollectionError::Internal("the thread that merges segments has ended".into());
        started.join().unwrap_or_else(|_| Err(thread_panicked()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_recent_only_after_it_was_recorded() {
        let moment = LastTime::default();
        assert!(!moment.is_within(Duration::MAX));
        moment.note();
        assert!(moment.is_within(Duration::from_secs(3600)) && !moment.is_within(Duration::ZERO));
    }

    #[test]
    fn work_starves_if_it_gets_less_than_a_tenth_of_a_core_for_ten_checks() {
        let after = |checks: &[(u64, bool)]| {
            let mut starving = StarvationDetector::default();
            let results =
                checks.iter().map(|(ms, wants)| starving.observe(Duration::from_millis(*ms), *wants));
            results.collect::<Vec<_>>()
        };
        let few = [(5, true); 9];
        assert!(!after(&few).contains(&true));
        assert!(after(&[&few[..], &[(5, true)]].concat())[9]);
        // Work that waits for a device does not need a core.
        assert!(!after(&[&few[..], &[(0, false)], &few[..]].concat()).contains(&true));
        assert!(!after(&[&few[..], &[(980, true)]].concat()).contains(&true));
        // One good interval is forgotten after ten further checks.
        assert!(after(&[&[(1000, true)], &few[..], &few[..], &few[..1]].concat())[19]);
    }
}
