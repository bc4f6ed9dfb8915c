//! Waiting for something that is no read: a task parks ([`Cx::parked`]), and whoever has what it waits for wakes it, from
//! any thread.

use super::core::Core;
use super::reads::Cx;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The longest sleep of a thread that has nothing in flight, and of one whose device cannot be woken: whoever hands it new
/// queries wakes the device that it does not sleep in.
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// Wakes one task of an engine, from any thread. To wake a task that has ended does nothing, or wakes one in vain.
#[derive(Clone)]
pub struct TaskWaker {
    inbox: Arc<Inbox>,
    task: u32,
}

/// The tasks of an engine that were woken and have not been readied yet.
#[derive(Default)]
pub(super) struct Inbox {
    woken: Mutex<Vec<u32>>,
    /// Whether there are any.
    any: AtomicBool,
    /// What ends the engine's sleep, while it sleeps.
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

    /// Whether both wake the same task.
    pub fn is_same(&self, other: &TaskWaker) -> bool {
        self.task == other.task && Arc::ptr_eq(&self.inbox, &other.inbox)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Readies the tasks that were woken.
    #[inline]
    pub(super) fn take_woken(&mut self) {
        if self.inbox.any.swap(false, Ordering::Acquire) {
            self.ready.extend(locked(&self.inbox.woken).drain(..));
        }
    }

    /// Forgets who was woken: after a run nobody is left.
    pub(super) fn forget_woken(&mut self) {
        self.inbox.any.store(false, Ordering::Release);
        locked(&self.inbox.woken).clear();
    }

    /// Whether a task waits for something that is no read.
    pub(super) fn has_parked(&self) -> bool {
        self.parked > 0
    }

    /// Sleeps until `until` is over, a task is woken or, in the device, something has arrived: `sleep` sleeps there. With
    /// nothing in flight (`idle`) the thread naps.
    pub(super) fn sleep_parked<T>(
        &mut self,
        until: Option<Duration>,
        idle: bool,
        sleep: impl FnOnce(&mut Core, Option<Duration>) -> T,
    ) -> T {
        let waker = if idle { Some(super::thread_waker()) } else { self.device_waker() };
        let until = if idle || waker.is_none() { until.map(|until| until.min(LONGEST_NAP)) } else { until };
        *locked(&self.inbox.sleeper) = waker;
        // Whoever wakes from here on ends the sleep; who did so before is seen now.
        let until = until.filter(|_| !self.inbox.any.load(Ordering::Acquire));
        if let Some(until) = until.filter(|_| idle) {
            std::thread::park_timeout(until);
        }
        let slept = sleep(self, until);
        *locked(&self.inbox.sleeper) = None;
        slept
    }

    /// What ends a sleep in the device, made once.
    fn device_waker(&mut self) -> Option<Waker> {
        let queue = &mut self.queue;
        self.device_waker.get_or_insert_with(|| queue.waker()).clone()
    }
}

impl Cx {
    /// What wakes the task that runs now.
    pub fn task_waker(&self) -> TaskWaker {
        let core = self.0.borrow();
        TaskWaker { inbox: core.inbox.clone(), task: core.current }
    }

    /// Suspends until the task is woken by its [`Cx::task_waker`]. It may go on for no reason, so that its caller looks
    /// again whether there is what it waits for, and says once more whom to wake.
    pub fn parked(&self) -> Waking<'_> {
        Waking { cx: self, waiting: false }
    }
}

/// The future of [`Cx::parked`].
pub struct Waking<'c> {
    cx: &'c Cx,
    waiting: bool,
}

impl Future for Waking<'_> {
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

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.cx.0.borrow_mut().parked -= 1;
        }
    }
}
