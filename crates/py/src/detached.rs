//! Long work without the GIL (the interpreter's lock), with checks for Ctrl-C.
//!
//! The work runs on its own thread, except a search, which has threads already and may end before another
//! thread would have started. Python delivers signals only to the main thread, which is usually the calling
//! one. The calling thread wakes regularly to check for signals and to pass on progress; meanwhile other
//! Python threads run.

use bathyal_store::CancelScope;
use bathyal_vectors::progress::Progress;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which the calling thread wakes: with the library's own 100 ms, short enough for Ctrl-C to seem
/// instant.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// State that the working thread and the calling thread share.
#[derive(Default)]
pub(crate) struct Watch {
    cancel: Arc<AtomicBool>,
    done: AtomicU64,
    /// Stages that have begun and are not reported yet, with their totals.
    begun: Mutex<Vec<(String, u64)>>,
}

impl Watch {
    /// Returns the flag that stops the work.
    pub(crate) fn cancel(&self) -> &AtomicBool {
        &self.cancel
    }
}

impl Progress for Watch {
    fn stage(&self, name: &str, total: u64) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        self.done.store(0, Ordering::Relaxed);
        begun.push((name.to_owned(), total));
    }

    fn advance(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Reports progress to a Python callable, `(stage, done, total)`.
struct Reporter {
    receiver: Option<Py<PyAny>>,
    stage: Option<(String, u64)>,
    reported_steps: u64,
}

impl Reporter {
    fn report(&mut self, py: Python<'_>, watch: &Watch) -> PyResult<()> {
        py.check_signals()?;
        let Some(receiver) = &self.receiver else { return Ok(()) };
        let (begun, done) = {
            let mut begun = watch.begun.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut *begun), watch.done.load(Ordering::Relaxed))
        };
        for (name, total) in begun {
            // The next stage has begun, so this one has ended.
            if let Some((name, total)) = self.stage.take().filter(|(_, total)| self.reported_steps < *total) {
                receiver.call1(py, (name, total, total))?;
            }
            receiver.call1(py, (name.as_str(), 0, total))?;
            (self.stage, self.reported_steps) = (Some((name, total)), 0);
        }
        if let Some((name, total)) = &self.stage
            && done > self.reported_steps
        {
            self.reported_steps = done;
            receiver.call1(py, (name.as_str(), done.min(*total), *total))?;
        }
        Ok(())
    }
}

/// Runs `work` without the GIL. Ctrl-C, or an exception in `receiver`, stops it through its [`Watch`], and is
/// raised once the work has ended.
pub(crate) fn run_detached<T: Send, E: Send>(
    py: Python<'_>,
    receiver: Option<Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, E> + Send,
) -> PyResult<T>
where
    PyErr: From<E>,
{
    let watch = Watch::default();
    let mut reporter = Reporter { receiver, stage: None, reported_steps: 0 };
    let (outcome, interrupted) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ending, ended) = channel::<()>();
            let shared = &watch;
            let worker = std::thread::Builder::new().name("bathyal".into()).spawn_scoped(scope, move || {
                // Dropped with this closure, even by a panic; the calling thread waits for that.
                let _ending = ending;
                let _cancelling = CancelScope::new(Some(shared.cancel.clone()));
                work(shared)
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(error) => return (None, Some(error.into())),
            };
            let mut interrupted = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(POLL_INTERVAL) {
                if interrupted.is_none()
                    && let Err(error) = Python::attach(|py| reporter.report(py, &watch))
                {
                    watch.cancel.store(true, Ordering::Relaxed);
                    interrupted = Some(error);
                }
            }
            match worker.join() {
                Ok(outcome) => (Some(outcome), interrupted),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    });
    match (outcome, interrupted) {
        (_, Some(error)) => Err(error),
        (Some(Ok(value)), None) => {
            reporter.report(py, &watch)?;
            Ok(value)
        }
        (Some(Err(error)), None) => Err(PyErr::from(error)),
        (None, None) => Err(crate::errors::Error::new_err("internal error: no thread and no error")),
    }
}

/// Runs a search on the calling thread, without the GIL. `search` gets a cancel flag, and a function to call
/// regularly while it waits, which checks for signals and sets the flag. The exception is raised once the
/// search has ended.
pub(crate) fn search_detached<T: Send, E: Send>(
    py: Python<'_>,
    search: impl FnOnce(&AtomicBool, &dyn Fn()) -> Result<T, E> + Send,
) -> PyResult<T>
where
    PyErr: From<E>,
{
    let (outcome, interrupted) = py.detach(|| {
        let (cancel, interrupted) = (AtomicBool::new(false), RefCell::new(None));
        let last_poll = Cell::new(Instant::now());
        let poll = || {
            // Taking the GIL disturbs the threads that need it.
            if last_poll.get().elapsed() < POLL_INTERVAL || cancel.load(Ordering::Relaxed) {
                return;
            }
            last_poll.set(Instant::now());
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                cancel.store(true, Ordering::Relaxed);
                interrupted.replace(Some(error));
            }
        };
        let outcome = search(&cancel, &poll);
        (outcome, interrupted.take())
    });
    match interrupted {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}
