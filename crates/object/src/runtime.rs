//! The runtime whose threads send requests to stores: few threads, shared by all stores of the process and
//! started at the first use.

use bathyal_store::{CancelScope, StoreError};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The most threads; one of them sends and receives some 20,000 small ranges a second.
const MAX_THREADS: usize = 4;

/// The interval at which a wait checks its cancellation flag.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The process that started the runtime, and the runtime.
static STARTED: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Returns the runtime of this process, started at the first call. The child of a fork gets a new one, since
/// it has none of its parent's threads.
pub(crate) fn runtime() -> Result<Arc<Runtime>, StoreError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let this_process = std::process::id();
    match started.take() {
        Some((process, runtime)) if process == this_process => {
            *started = Some((process, runtime.clone()));
            return Ok(runtime);
        }
        // Dropping the parent's runtime would wait for threads that do not exist in this process.
        Some((_, parent_runtime)) => std::mem::forget(parent_runtime),
        None => {}
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MAX_THREADS);
    let built = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("bathyal-object")
        .enable_all()
        .build()
        .map_err(|source| StoreError::io("start threads for", "object stores", source))?;
    let runtime = Arc::new(built);
    *started = Some((this_process, runtime.clone()));
    Ok(runtime)
}

/// Waits for `future`, or until the thread's flag cancels it ([`CancelScope`]). A thread that runs tasks of
/// another asynchronous runtime must not block in this one, so a helper thread waits in its place.
pub(crate) fn wait_for<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, StoreError> {
    let (runtime, flag) = (runtime()?, CancelScope::flag());
    let cancellable = async {
        let mut future = pin!(future);
        let Some(flag) = flag else { return Ok(future.await) };
        loop {
            if flag.load(Ordering::Relaxed) {
                return Err(StoreError::Cancelled);
            }
            tokio::select! {
                done = &mut future => return Ok(done),
                () = tokio::time::sleep(CANCEL_CHECK_INTERVAL) => {}
            }
        }
    };
    if tokio::runtime::Handle::try_current().is_err() {
        return runtime.block_on(cancellable);
    }
    std::thread::scope(|scope| {
        let waiting = std::thread::Builder::new().name("bathyal-wait".into());
        let waiting = waiting.spawn_scoped(scope, || runtime.block_on(cancellable));
        let waiting =
            waiting.map_err(|source| StoreError::io("start a thread for", "object stores", source))?;
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_other_runtimes_can_wait() {
        let other_runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(other_runtime.block_on(async { wait_for(async { 7 }).unwrap() }), 7);
    }
}
