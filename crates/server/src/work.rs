//! Runs work that reads or writes collections on threads of its own, so that connections are served
//! meanwhile.

use crate::cancel::CancelFlag;
use crate::failure::Refusal;
use crate::places::Places;
use bathyal_console::Kind;
use bathyal_tier::Control;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Threads that work at the same time. Writes wait for the disk together, so there are more than cores.
pub(crate) const WORK_THREADS: usize = 48;

/// Limits how much work runs and waits.
#[derive(Debug)]
pub(crate) struct Work {
    threads: Arc<Semaphore>,
    waiting: Places,
    /// The most time of a request.
    time: Duration,
    /// The served folder, which no message names.
    data: PathBuf,
}

impl Work {
    pub(crate) fn new(most_waiting: usize, time: Duration, data: PathBuf) -> Work {
        let threads = Arc::new(Semaphore::new(WORK_THREADS));
        Work { threads, waiting: Places::new(most_waiting, "requests"), time, data }
    }

    /// Returns the moment at which the work of a request that arrives now is cancelled.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.time
    }

    /// Runs `work` on a thread. It is cancelled when the caller is dropped, or when its time is over.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Control<'_>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let deadline = self.deadline();
        self.run_long(move |cancel| work(Control { cancel: Some(cancel), deadline: Some(deadline) })).await
    }

    /// Runs `work` on a thread, however long it takes. Its flag is set when the caller is dropped.
    pub(crate) async fn run_long<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let cancel = CancelFlag::default();
        let _attendance = cancel.attend();
        let place = self.waiting.take()?;
        let permit = tokio::time::timeout(self.time, self.threads.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| Refusal::late())?.map_err(|_| Refusal::stopping())?;
        drop(place);
        let work = move || {
            let _permit = permit;
            work(cancel.flag())
        };
        let outcome = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(unfinished(&error)));
        outcome.map_err(|refusal| refusal.within(&self.data))
    }
}

/// Returns the failure of work that ended without a result.
pub(crate) fn unfinished(error: &tokio::task::JoinError) -> Refusal {
    if error.is_panic() { panicked() } else { Refusal::stopping() }
}

/// Returns the failure of work that panicked.
pub(crate) fn panicked() -> Refusal {
    Refusal::new(Kind::Internal, "this should not happen; please report it: the work panicked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use std::sync::atomic::Ordering;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
    }

    fn work() -> Work {
        Work::new(1, Duration::from_secs(60), "/data".into())
    }

    #[test]
    fn messages_do_not_name_the_folder() {
        let failed = runtime().block_on(async {
            work().run::<()>(|_| Err(Refusal::invalid("/data/words: is busy, as /data/words is"))).await
        });
        assert_eq!(failed.unwrap_err().message, "words: is busy, as words is");
    }

    #[test]
    fn more_requests_than_may_wait_are_refused() {
        let work = Arc::new(work());
        runtime().block_on(async {
            let permits = work.threads.clone().acquire_many_owned(WORK_THREADS as u32).await.unwrap();
            let first = tokio::spawn({
                let work = work.clone();
                async move { work.run(|_| Ok(1)).await }
            });
            while work.waiting.taken() == 0 {
                tokio::task::yield_now().await;
            }
            let refused = work.run(|_| Ok(2)).await.unwrap_err();
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
            drop(permits);
            assert_eq!(first.await.unwrap().unwrap(), 1);
            assert_eq!((work.run(|_| Ok(3)).await.unwrap(), work.waiting.taken()), (3, 0));
        });
    }

    #[test]
    fn work_is_cancelled_when_its_caller_leaves() {
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime().block_on(async {
            let work = work();
            let begun = Arc::new(tokio::sync::Notify::new());
            let notify = begun.clone();
            let running = work.run(move |control| {
                notify.notify_one();
                while !control.cancel.is_some_and(|flag| flag.load(Ordering::Acquire)) {
                    std::thread::yield_now();
                }
                sender.send(()).map_err(|_| Refusal::stopping())
            });
            tokio::select! {
                _ = running => panic!("the work ended although nobody cancelled it"),
                () = begun.notified() => {}
            }
        });
        receiver.recv().unwrap();
    }

    #[test]
    fn a_panic_of_the_work_is_a_failure_of_the_request() {
        let failed =
            runtime().block_on(async { work().run::<()>(|_| panic!("expected by this test")).await });
        assert_eq!(failed.unwrap_err().kind, Kind::Internal);
    }
}
