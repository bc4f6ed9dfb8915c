//! The ways in which a caller ends or observes a search.

use crate::error::IndexError;
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two checks whether long work was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(20);

/// Returns an error if the caller has cancelled, or its deadline is over.
pub(super) fn check_control(control: Control<'_>) -> Result<(), IndexError> {
    let cancelled = control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    let late = control.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    match (cancelled, late) {
        (true, _) => Err(IndexError::Cancelled),
        (false, true) => Err(IndexError::Deadline),
        (false, false) => Ok(()),
    }
}

/// The ways to end or to observe a search while the calling thread waits for it.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(super) control: Control<'a>,
    /// Called about every 10 ms while the thread waits.
    pub(super) meanwhile: &'a dyn Fn(),
}

impl<'a> From<Control<'a>> for Waiting<'a> {
    fn from(control: Control<'a>) -> Waiting<'a> {
        Waiting { control, meanwhile: &|| () }
    }
}

impl Waiting<'_> {
    /// Returns the error with which the wait ends, if the search was cancelled or its deadline is over.
    pub(super) fn end(&self) -> Option<IndexError> {
        check_control(self.control).err()
    }
}

/// Runs `work` with a control that is cancelled when `progress` is.
pub fn with_control<R>(progress: &dyn Progress, work: impl FnOnce(Control<'_>) -> R) -> R {
    let (cancel, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) && !cancel.load(Ordering::Relaxed) {
                cancel.store(progress.cancelled(), Ordering::Relaxed);
                std::thread::park_timeout(CANCEL_CHECK);
            }
        });
        let result = work(Control { cancel: Some(&cancel), deadline: None });
        done.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        result
    })
}
