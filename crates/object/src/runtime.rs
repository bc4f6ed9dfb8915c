//! The threads that speak to stores: few, shared by all stores of the process, started at the first need.

use bathyal_store::{Cancelling, StoreError};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Threads at most: one of them sends and receives some 20,000 small ranges a second.
const MOST_THREADS: usize = 4;

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// The process that started the threads, and these.
static STARTED: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// The runtime of this process. The child of a fork, which has none of its parent's threads, gets its own.
pub(crate) fn runtime() -> Result<Arc<Runtime>, StoreError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    match started.take() {
        Some((process, runtime)) if process == here => {
            *started = Some((process, runtime.clone()));
            return Ok(runtime);
        }
        // Its threads are not there to be waited for.
        Some((_, of_parent)) => std::mem::forget(of_parent),
        None => {}
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
    let built = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("bathyal-object")
        .enable_all()
        .build()
        .map_err(|source| StoreError::io("start threads for", "object stores", source))?;
    let runtime = Arc::new(built);
    *started = Some((here, runtime.clone()));
    Ok(runtime)
}

/// Waits for `future`, or until that is cancelled ([`Cancelling`]). A thread that runs asynchronous tasks of somebody else's may
/// not wait in a runtime, so another one does it for it.
pub(crate) fn wait_for<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, StoreError> {
    let (runtime, flag) = (runtime()?, Cancelling::flag());
    let waited = async {
        let mut future = pin!(future);
        let Some(flag) = flag else { return Ok(future.await) };
        loop {
            if flag.load(Ordering::Relaxed) {
                return Err(StoreError::Cancelled);
            }
            tokio::select! {
                done = &mut future => return Ok(done),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    };
    if tokio::runtime::Handle::try_current().is_err() {
        return runtime.block_on(waited);
    }
    std::thread::scope(|scope| {
        let waiting = std::thread::Builder::new().name("bathyal-wait".into());
        let waiting = waiting.spawn_scoped(scope, || runtime.block_on(waited));
        let waiting =
            waiting.map_err(|source| StoreError::io("start a thread for", "object stores", source))?;
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_other_runtimes_may_wait_too() {
        let theirs = Builder::new_current_thread().build().unwrap();
        assert_eq!(theirs.block_on(async { wait_for(async { 7 }).unwrap() }), 7);
    }
}
