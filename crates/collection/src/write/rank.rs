//! Priorities: searches and writes come before flushes and merges.

use crate::error::CollectionError;
use bathyal_tier::TierError;
use bathyal_tier::process::{RestWatch, Share, yield_to_others};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Interval at which the processor time of low-priority work is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Number of checks that a decision about starvation takes.
const CHECKS: u32 = 10;
/// Work starves below this share of a core. A low priority would get about as much on busy cores.
const STARVING_SHARE: f64 = 0.1;

/// A share of the cores for some work. The flag is set when the work starves.
#[derive(Clone, Copy)]
pub(super) struct Priority<'a> {
    pub(super) share: Share,
    pub(super) starved: &'a AtomicBool,
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
