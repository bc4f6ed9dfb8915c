//! Searches that an event loop awaits: begun here, run by the search threads, and taken when their socket
//! becomes readable.
//!
//! A search thread that has finished a search does not take the GIL: it notes the number of the search and
//! writes a byte to the socket, which the event loop watches like any other.

use crate::answers::{Answers, answers};
use crate::arrays::queries as queries_of;
use crate::errors::Failure;
use crate::index::{IndexHandle, SearchKeywords, memory_of};
use bathyal_index::{Index, IndexError, SearchOptions, SearchResult, Searching};
use bathyal_tier::wake_socket;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// The numbers of searches that can continue or have ended, and the socket that wakes the event loop.
struct WakeQueue {
    woken: Mutex<Vec<u64>>,
    socket: wake_socket::WakeSocket,
}

/// The waker of one search.
struct SearchWaker {
    wakes: Arc<WakeQueue>,
    number: u64,
}

impl Wake for SearchWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.wakes.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.number);
        if woken.len() == 1 {
            // Fails only if the socket is full or closed: then a wake-up is pending, or no loop waits.
            let _ = (&self.wakes.socket).write(&[0]);
        }
    }
}

/// A search in flight, with the index that it uses.
struct PendingSearch {
    search: Pin<Box<Searching>>,
    waker: Waker,
    options: SearchOptions,
    index: Arc<Index>,
}

/// The result of a search and the bytes of memory of the index during it, or the error.
type Outcome = Result<(SearchResult, u64), IndexError>;

impl PendingSearch {
    fn poll(&mut self) -> Option<Outcome> {
        match self.search.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(outcome) => Some(outcome.map(|found| {
                let dram_bytes = memory_of(&self.index, &found, &self.options);
                (found, dram_bytes)
            })),
            Poll::Pending => None,
        }
    }
}

#[derive(Default)]
struct Searches {
    begun: u64,
    pending: HashMap<u64, PendingSearch>,
    /// Searches that ended when they began.
    ended: Vec<(u64, Outcome)>,
}

/// The searches that one event loop awaits.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct Awaited {
    searches: Mutex<Searches>,
    wakes: Arc<WakeQueue>,
    socket: wake_socket::WakeSocket,
}

/// The number of a search, and its answers or its error.
type Ended<'py> = (u64, Option<Answers<'py>>, Option<PyErr>);

impl Awaited {
    fn searches(&self) -> MutexGuard<'_, Searches> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(SearchWaker { wakes: self.wakes.clone(), number }))
    }

    /// Returns the searches that have ended since the last call.
    fn ended(&self) -> Vec<(u64, Outcome)> {
        let mut bytes = [0; 64];
        while (&self.socket).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let numbers = {
            let mut woken = self.wakes.woken.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *woken)
        };
        let mut searches = self.searches();
        let mut ended = std::mem::take(&mut searches.ended);
        for number in numbers {
            if let Some(outcome) = searches.pending.get_mut(&number).and_then(PendingSearch::poll) {
                searches.pending.remove(&number);
                ended.push((number, outcome));
            }
        }
        ended
    }
}

#[pymethods]
impl Awaited {
    #[new]
    fn new() -> PyResult<Awaited> {
        let (ours, theirs) = wake_socket::wake_sockets()
            .map_err(|e| PyOSError::new_err(format!("cannot make a socket: {e}")))?;
        let wakes = Arc::new(WakeQueue { woken: Mutex::default(), socket: theirs });
        Ok(Awaited { searches: Mutex::default(), wakes, socket: ours })
    }

    /// The descriptor that the event loop watches for reading.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.socket)
    }

    /// The descriptor that the event loop watches for reading.
    #[cfg(windows)]
    fn fileno(&self) -> u64 {
        std::os::windows::io::AsRawSocket::as_raw_socket(&self.socket)
    }

    /// Begins a search; returns its number.
    fn begin(
        &self,
        handle: &IndexHandle,
        queries: &Bound<'_, PyAny>,
        arguments: SearchKeywords,
    ) -> PyResult<u64> {
        let index = handle.index()?;
        let (options, deadline) = (arguments.options_for(&index)?, arguments.deadline()?);
        let Some(queries) = queries_of(queries, "queries")? else {
            return Err(PyValueError::new_err("queries: there are none, so there is no search to await"));
        };
        let search = index.search_async(&queries, &options, deadline);
        let mut searches = self.searches();
        searches.begun += 1;
        let number = searches.begun;
        let waker = self.waker(number);
        let mut pending = PendingSearch { search: Box::pin(search), waker: waker.clone(), options, index };
        match pending.poll() {
            None => drop(searches.pending.insert(number, pending)),
            Some(outcome) => {
                searches.ended.push((number, outcome));
                waker.wake();
            }
        }
        Ok(number)
    }

    /// Returns the searches that have ended since the last call.
    fn take<'py>(&self, py: Python<'py>) -> Vec<Ended<'py>> {
        let result = |(number, outcome): (u64, Outcome)| match outcome
            .map_err(|error| PyErr::from(Failure::from(error)))
            .and_then(|(found, dram_bytes)| answers(py, found, dram_bytes))
        {
            Ok(found) => (number, Some(found), None),
            Err(error) => (number, None, Some(error)),
        };
        self.ended().into_iter().map(result).collect()
    }

    /// Drops a search that is no longer awaited.
    fn give_up(&self, number: u64) {
        let gone = {
            let mut searches = self.searches();
            searches.ended.retain(|(other, _)| *other != number);
            searches.pending.remove(&number)
        };
        drop(gone);
    }
}
