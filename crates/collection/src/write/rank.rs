//! What comes first: searches and writes, then what makes them faster.

use super::shared::Shared;
use crate::error::CollectionError;
use bathyal_tier::TierError;
use bathyal_tier::process::{RestWatch, Share, yield_to_others};
use bathyal_vectors::progress::Progress;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// So long after something was read, more reading is expected.
const READ_LATELY: Duration = Duration::from_secs(10);
/// How often it is looked how much what takes the rest of the cores has computed.
const LOOK: Duration = Duration::from_millis(200);
/// Looks after which less than [`LITTLE`] is too little.
const LOOKS: u32 = 10;
/// The share of a core that a low priority would get beside others.
const LITTLE: f64 = 0.1;

/// So long after that was too little, it is not tried again.
const STARVED_LATELY: Duration = Duration::from_secs(60);

/// From when on it is counted when something happened.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When something last happened.
#[derive(Debug, Default)]
pub(super) struct Moment {
    /// In milliseconds since [`START`], plus one; 0 is never.
    at: AtomicU64,
}

impl Moment {
    pub(super) fn note(&self) {
        self.at.store(START.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    }

    /// Whether that was no longer ago than `time`.
    fn is_within(&self, time: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at > 0 && START.elapsed().saturating_sub(Duration::from_millis(at)) < time
    }
}

impl Shared {
    /// Notes that something is read: what is merged next leaves cores to those that read.
    pub(crate) fn note_reading(&self) {
        self.read.note();
    }

    /// Whether somebody is likely to read while segments are merged.
    pub(super) fn is_read(&self) -> bool {
        self.read.is_within(READ_LATELY)
    }

    /// The share of the cores that is enough for what makes searches faster, if it is less than that of others: where somebody reads,
    /// and a write does not wait for it, unless it was too little a while ago.
    pub(super) fn share(&self) -> Option<Share> {
        let rest = self.options.background && self.is_read() && !self.starved.is_within(STARVED_LATELY);
        rest.then_some(Share::Rest)
    }

    /// Does `work` with what of the cores nobody else wants, if somebody reads meanwhile: it ends when the progress that it is given says
    /// so. A machine that has nothing to spare gives it next to nothing; then it is begun anew with a share of its own.
    pub(super) fn beside<T>(
        &self,
        progress: &dyn Progress,
        mut work: impl FnMut(Rank<'_>, &dyn Progress) -> Result<T, CollectionError>,
    ) -> Result<T, CollectionError> {
        let starved = AtomicBool::new(false);
        if let Some(share) = self.share() {
            let unless = UnlessStarved { starved: &starved, progress };
            match work(Rank { share, starved: &starved }, &unless) {
                Err(CollectionError::Cancelled)
                    if starved.load(Ordering::Relaxed) && !progress.cancelled() =>
                {
                    self.starved.note();
                }
                done => return done,
            }
        }
        work(Rank { share: Share::Tenth, starved: &starved }, progress)
    }
}

/// A share of the cores, and where it is said that this is too little.
#[derive(Clone, Copy)]
pub(super) struct Rank<'a> {
    pub(super) share: Share,
    pub(super) starved: &'a AtomicBool,
}

/// Ends work that gets too little of the cores.
struct UnlessStarved<'a> {
    starved: &'a AtomicBool,
    progress: &'a dyn Progress,
}

impl Progress for UnlessStarved<'_> {
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

/// What was seen of work that takes the rest of the cores.
#[derive(Debug, Default)]
struct Starving {
    looks: u32,
    computed: Duration,
}

impl Starving {
    /// Takes what was computed since the last look, and whether more would have been with a core; true if that was too little for too
    /// long.
    fn look(&mut self, computed: Duration, wants: bool) -> bool {
        if !wants {
            *self = Starving::default();
            return false;
        }
        self.looks += 1;
        self.computed += computed;
        if self.looks < LOOKS {
            return false;
        }
        let little = self.computed < (LOOK * LOOKS).mul_f64(LITTLE);
        *self = Starving::default();
        little
    }
}

/// Does `work` in a thread that has such a share of the cores beside others, and so does all that it starts.
pub(super) fn yielding<T: Send>(
    rank: Rank<'_>,
    work: impl FnOnce() -> Result<T, CollectionError> + Send,
) -> Result<T, CollectionError> {
    std::thread::scope(|scope| {
        let (ended, over) = mpsc::channel();
        let thread = std::thread::Builder::new().name("bathyal-compact".into());
        let spawned = thread.spawn_scoped(scope, move || {
            // Sent when this thread ends, whatever it ends by.
            let _ended: mpsc::Sender<()> = ended;
            yield_to_others(rank.share);
            work()
        });
        let started = spawned.map_err(|source| {
            let operation = "start a thread that merges segments";
            CollectionError::Index(TierError::System { operation, source }.into())
        })?;
        if rank.share == Share::Rest {
            let (mut watch, mut starving) = (RestWatch::default(), Starving::default());
            while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some((computed, wants)) = watch.look() else { continue };
                if starving.look(computed, wants) {
                    rank.starved.store(true, Ordering::Relaxed);
                }
            }
        }
        let ended = || CollectionError::Internal("the thread that merges segments has ended".into());
        started.join().unwrap_or_else(|_| Err(ended()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_just_now_was_not_long_ago_and_what_never_did_was() {
        let moment = Moment::default();
        assert!(!moment.is_within(Duration::MAX));
        moment.note();
        assert!(moment.is_within(Duration::from_secs(3600)) && !moment.is_within(Duration::ZERO));
    }

    #[test]
    fn work_starves_that_wants_a_core_and_gets_less_than_a_tenth_of_it_for_long() {
        let after = |looks: &[(u64, bool)]| {
            let mut starving = Starving::default();
            let told = looks.iter().map(|(ms, wants)| starving.look(Duration::from_millis(*ms), *wants));
            told.collect::<Vec<_>>()
        };
        let few = [(5, true); 9];
        assert!(!after(&few).contains(&true));
        assert!(after(&[&few[..], &[(5, true)]].concat())[9]);
        // What waits for a device does not want a core.
        assert!(!after(&[&few[..], &[(0, false)], &few[..]].concat()).contains(&true));
        assert!(!after(&[&few[..], &[(980, true)]].concat()).contains(&true));
        // One good time is forgotten after the next ten looks.
        assert!(after(&[&[(1000, true)], &few[..], &few[..], &few[..1]].concat())[19]);
    }
}
