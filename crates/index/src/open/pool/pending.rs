//! A job on its way: the future of its answers.

use super::job::{Answers, Job};
use super::threads::Pool;
use crate::error::IndexError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The answers to a job. Works under any executor; when it is dropped before, what still runs of the job is given up.
pub(in crate::open) struct Pending {
    pool: &'static Pool,
    job: Arc<Job>,
    threads: usize,
    /// Whether the job is with the workers.
    entered: bool,
    over: bool,
}

impl Pending {
    /// Sends `job` to `threads` workers as soon as the queue has room, which it looks for when polled.
    pub(in crate::open) fn new(pool: &'static Pool, job: Arc<Job>, threads: usize) -> Pending {
        Pending { pool, job, threads, entered: false, over: false }
    }
}

impl Future for Pending {
    type Output = Result<Vec<Answers>, IndexError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.entered {
            if !self.pool.gate.enter(cx.waker()) {
                return Poll::Pending;
            }
            self.entered = true;
            if let Err(error) = self.pool.send(&self.job, self.threads) {
                self.job.fail(error);
            }
        }
        match self.job.outcome(cx.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                self.over = true;
                Poll::Ready(outcome)
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            self.job.fail(IndexError::Cancelled);
        }
        if self.entered {
            self.pool.gate.leave();
        } else {
            self.pool.gate.give_up();
        }
    }
}
