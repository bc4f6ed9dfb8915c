//! The future of a job's answers.

use super::job::{Answers, Job};
use super::threads::Pool;
use crate::error::IndexError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The future of a job's answers. It works under any executor. If it is dropped before it is ready, the job
/// is cancelled.
pub(in crate::open) struct PendingJob {
    pool: &'static Pool,
    job: Arc<Job>,
    threads: usize,
    /// True once the job is with the workers.
    sent: bool,
    done: bool,
}

impl PendingJob {
    /// Creates the future. When it is polled, it sends `job` to `threads` workers as soon as the pool admits
    /// another job.
    pub(in crate::open) fn new(pool: &'static Pool, job: Arc<Job>, threads: usize) -> PendingJob {
        PendingJob { pool, job, threads, sent: false, done: false }
    }
}

impl Future for PendingJob {
    type Output = Result<Vec<Answers>, IndexError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.sent {
            if !self.pool.job_permits.acquire(cx.waker()) {
                return Poll::Pending;
            }
            self.sent = true;
            if let Err(error) = self.pool.send(&self.job, self.threads) {
                self.job.fail(error);
            }
        }
        match self.job.outcome(cx.waker()) {
            None => Poll::Pending,
            Some(outcome) => {
                self.done = true;
                Poll::Ready(outcome)
            }
        }
    }
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        if !self.done {
            self.job.fail(IndexError::Cancelled);
        }
        if self.sent {
            self.pool.job_permits.release();
        } else {
            self.pool.job_permits.stop_waiting();
        }
    }
}
