//! Long work off the interpreter's lock, with an eye on Ctrl-C.
//!
//! The work runs on a thread of its own, but for a search, which has threads already and may be over before another
//! one would have started. The calling thread, which is the only one that Python delivers
//! signals to, wakes now and then to look for them and to pass progress on; between that, other Python
//! threads run.

use bathyal_store::Cancelling;
use bathyal_vectors::progress::Progress;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the calling thread looks up: with the library's own 100 ms, Ctrl-C is answered at once to a human.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the working thread and the calling thread know in common.
#[derive(Default)]
pub(crate) struct Watch {
    cancel: Arc<AtomicBool>,
    done: AtomicU64,
    /// Stages begun and not yet told, with their totals.
    begun: Mutex<Vec<(String, u64)>>,
}

impl Watch {
    /// The flag that stops the work.
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

/// Passes progress on to a Python callable, `(stage, done, total)`.
struct Teller {
    receiver: Option<Py<PyAny>>,
    stage: Option<(String, u64)>,
    told: u64,
}

impl Teller {
    fn tell(&mut self, py: Python<'_>, watch: &Watch) -> PyResult<()> {
        py.check_signals()?;
        let Some(receiver) = &self.receiver else { return Ok(()) };
        let (begun, done) = {
            let mut begun = watch.begun.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut *begun), watch.done.load(Ordering::Relaxed))
        };
        for (name, total) in begun {
            // The next stage has begun, so this one has ended.
            if let Some((name, total)) = self.stage.take().filter(|(_, total)| self.told < *total) {
                receiver.call1(py, (name, total, total))?;
            }
            receiver.call1(py, (name.as_str(), 0, total))?;
            (self.stage, self.told) = (Some((name, total)), 0);
        }
        if let Some((name, total)) = &self.stage
            && done > self.told
        {
            self.told = done;
            receiver.call1(py, (name.as_str(), done.min(*total), *total))?;
        }
        Ok(())
    }
}

/// Runs `work` without the interpreter's lock. Ctrl-C, or an exception in `receiver`, stops it through its
/// [`Watch`] and is raised once it has ended.
pub(crate) fn attend<T: Send, E: Send>(
    py: Python<'_>,
    receiver: Option<Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, E> + Send,
) -> PyResult<T>
where
    PyErr: From<E>,
{
    let watch = Watch::default();
    let mut teller = Teller { receiver, stage: None, told: 0 };
    let (outcome, interrupted) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ending, ended) = channel::<()>();
            let shared = &watch;
            let worker = std::thread::Builder::new().name("bathyal".into()).spawn_scoped(scope, move || {
                // Dropped with this closure, even by a panic: that is what the other side waits for.
                let _ending = ending;
                let _cancelling = Cancelling::by(Some(shared.cancel.clone()));
                work(shared)
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(error) => return (None, Some(error.into())),
            };
            let mut interrupted = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                if interrupted.is_none()
                    && let Err(error) = Python::attach(|py| teller.tell(py, &watch))
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
            teller.tell(py, &watch)?;
            Ok(value)
        }
        (Some(Err(error)), None) => Err(PyErr::from(error)),
        (None, None) => Err(crate::errors::Error::new_err("internal error: no thread and no error")),
    }
}

/// Runs a search on the calling thread, without the interpreter's lock. `search` is given a cancel flag and what to
/// call now and then while it waits: that looks for Ctrl-C, raises the flag, and is raised once the search has ended.
pub(crate) fn attend_search<T: Send, E: Send>(
    py: Python<'_>,
    search: impl FnOnce(&AtomicBool, &dyn Fn()) -> Result<T, E> + Send,
) -> PyResult<T>
where
    PyErr: From<E>,
{
    let (outcome, interrupted) = py.detach(|| {
        let (cancel, interrupted) = (AtomicBool::new(false), RefCell::new(None));
        let looked = Cell::new(Instant::now());
        let look = || {
            // To take the interpreter's lock disturbs the threads that have work for it.
            if looked.get().elapsed() < LOOK_EVERY || cancel.load(Ordering::Relaxed) {
                return;
            }
            looked.set(Instant::now());
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                cancel.store(true, Ordering::Relaxed);
                interrupted.replace(Some(error));
            }
        };
        let outcome = search(&cancel, &look);
        (outcome, interrupted.take())
    });
    match interrupted {
        Some(error) => Err(error),
        None => Ok(outcome?),
    }
}
