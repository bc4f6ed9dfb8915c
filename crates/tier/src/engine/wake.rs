//! Waiting for something other than a read: a task parks ([`Cx::parked`]), and any thread wakes it
//! ([`TaskWaker`]).

use super::core::Core;
use super::reads::Cx;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The longest sleep of a thread while a task is parked, if nothing is in flight or the device cannot be
/// woken. A thread that hands it new queries wakes the device, in which it does not sleep then.
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// Wakes one task of an engine, from any thread. To wake a task that has ended does nothing, or causes a
/// spurious wake-up of a later task.
#[derive(Clone)]
pub struct TaskWaker {
    inbox: Arc<Inbox>,
    task: u32,
}

/// The tasks of an engine that were woken and have not been readied yet.
#[derive(Default)]
pub(super) struct Inbox {
    woken: Mutex<Vec<u32>>,
    /// True if `woken` is not empty.
    any: AtomicBool,
    /// Waker that ends the engine's sleep, while it sleeps.
    sleeper: Mutex<Option<Waker>>,
}

impl TaskWaker {
    /// Wakes the task.
    pub fn wake(&self) {
        let inbox = &self.inbox;
        locked(&inbox.woken).push(self.task);
        inbox.any.store(true, Ordering::Release);
        let sleeper = locked(&inbox.sleeper).take();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// Returns true if both wake the same task.
    pub fn is_same(&self, other: &TaskWaker) -> bool {
        self.task == other.task && Arc::ptr_eq(&self.inbox, &other.inbox)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Puts the tasks that were woken on the ready list.
    #[inline]
    pub(super) fn take_woken(&mut self) {
        if self.inbox.any.swap(false, Ordering::Acquire) {
            self.ready.extend(locked(&self.inbox.woken).drain(..));
        }
    }

    /// Clears the list of woken tasks. Called after a run, when no task is left.
    pub(super) fn forget_woken(&mut self) {
        self.inbox.any.store(false, Ordering::Release);
        locked(&self.inbox.woken).clear();
    }

    /// Returns true if a task waits for something other than a read.
    pub(super) fn has_parked(&self) -> bool {
        self.parked > 0
    }

    /// Sleeps for `limit`, until a task is woken, or until the device has a completion. With nothing in
    /// flight (`idle`) the thread parks; otherwise `sleep` sleeps in the device.
    pub(super) fn sleep_parked<T>(
        &mut self,
        limit: Option<Duration>,
        idle: bool,
        sleep: impl FnOnce(&mut Core, Option<Duration>) -> T,
    ) -> T {
        let waker = if idle { Some(super::thread_waker()) } else { self.device_waker() };
        let limit = if idle || waker.is_none() { limit.map(|limit| limit.min(LONGEST_NAP)) } else { limit };
        *locked(&self.inbox.sleeper) = waker;
        // A wake from here on ends the sleep; an earlier one is seen in the flag now.
        let limit = limit.filter(|_| !self.inbox.any.load(Ordering::Acquire));
        if let Some(limit) = limit.filter(|_| idle) {
            std::thread::park_timeout(limit);
        }
        let outcome = sleep(self, limit);
        *locked(&self.inbox.sleeper) = None;
        outcome
    }

    /// Returns the queue's waker, which ends a sleep in the device; requested once.
    fn device_waker(&mut self) -> Option<Waker> {
        let queue = &mut self.queue;
        self.device_waker.get_or_insert_with(|| queue.waker()).clone()
    }
}

impl Cx {
    /// Returns a waker of the task that runs now.
    pub fn task_waker(&self) -> TaskWaker {
        let core = self.0.borrow();
        TaskWaker { inbox: core.inbox.clone(), task: core.current }
    }

    /// Suspends until the task is woken by its [`Cx::task_waker`]. Wake-ups may be spurious: the caller
    /// checks its condition again and, if it does not hold, registers its waker once more.
    pub fn parked(&self) -> ParkFuture<'_> {
        ParkFuture { cx: self, waiting: false }
    }
}

/// The future of [`Cx::parked`].
pub struct ParkFuture<'c> {
    cx: &'c Cx,
    waiting: bool,
}

impl Future for ParkFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let mut core = self.cx.0.borrow_mut();
        if self.waiting {
            core.parked -= 1;
        } else {
            core.parked += 1;
        }
        drop(core);
        self.waiting = !self.waiting;
        if self.waiting { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for ParkFuture<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.cx.0.borrow_mut().parked -= 1;
        }
    }
}
