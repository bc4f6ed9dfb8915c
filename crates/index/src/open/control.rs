//! The ways in which a caller ends or observes a search.

use crate::audit::Pace;
use crate::error::IndexError;
use bathyal_tier::Control;
use std::sync::atomic::Ordering;
use std::time::Instant;

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

/// How passes over a set run.
#[derive(Clone, Copy)]
pub(super) struct PassSettings<'a> {
    /// The most threads.
    pub(super) threads: usize,
    pub(super) control: Control<'a>,
    /// Pauses between the reads of background work.
    pub(super) pace: Option<&'a Pace<'a>>,
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
