//! Searches that an event loop awaits: begun here, carried out by the search threads, and taken when their socket says so.
//!
//! A search thread that has ended one takes no lock of the interpreter: it notes the search's number and writes a byte to
//! the socket, which the event loop watches as it does all others.

use crate::answers::{Answers, answers};
use crate::arrays::queries as queries_of;
use crate::errors::Failure;
use crate::index::{IndexHandle, SearchArguments, memory_of};
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

/// What search threads tell the event loop.
struct Bell {
    rung_for: Mutex<Vec<u64>>,
    socket: wake_socket::WakeSocket,
}

/// Tells that one search can go on or has ended.
struct Call {
    bell: Arc<Bell>,
    number: u64,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let mut rung_for = self.bell.rung_for.lock().unwrap_or_else(PoisonError::into_inner);
        rung_for.push(self.number);
        if rung_for.len() == 1 {
            // Fails only where the socket is full or closed: somebody has been told, or nobody listens.
            let _ = (&self.bell.socket).write(&[0]);
        }
    }
}

/// A search on its way, and the index that it needs until then.
struct Asked {
    search: Pin<Box<Searching>>,
    waker: Waker,
    options: SearchOptions,
    index: Arc<Index>,
}

/// What was found, and the bytes of memory that the index held meanwhile; or why nothing was.
type Outcome = Result<(SearchResult, u64), IndexError>;

impl Asked {
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
    asked: HashMap<u64, Asked>,
    /// Ended before the event loop came to look.
    ended: Vec<(u64, Outcome)>,
}

/// The searches that one event loop awaits.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct Awaited {
    searches: Mutex<Searches>,
    bell: Arc<Bell>,
    socket: wake_socket::WakeSocket,
}

/// A search's number, and its answers or why there are none.
type Ended<'py> = (u64, Option<Answers<'py>>, Option<PyErr>);

impl Awaited {
    fn searches(&self) -> MutexGuard<'_, Searches> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Call { bell: self.bell.clone(), number }))
    }

    /// All that has ended since the last look.
    fn ended(&self) -> Vec<(u64, Outcome)> {
        let mut bytes = [0; 64];
        while (&self.socket).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let numbers = {
            let mut rung_for = self.bell.rung_for.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *rung_for)
        };
        let mut searches = self.searches();
        let mut ended = std::mem::take(&mut searches.ended);
        for number in numbers {
            if let Some(outcome) = searches.asked.get_mut(&number).and_then(Asked::poll) {
                searches.asked.remove(&number);
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
        let bell = Arc::new(Bell { rung_for: Mutex::default(), socket: theirs });
        Ok(Awaited { searches: Mutex::default(), bell, socket: ours })
    }

    /// What the event loop watches for reading.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        std::os::fd::AsRawFd::as_raw_fd(&self.socket)
    }

    /// What the event loop watches for reading.
    #[cfg(windows)]
    fn fileno(&self) -> u64 {
        std::os::windows::io::AsRawSocket::as_raw_socket(&self.socket)
    }

    /// Begins a search; the number that it will be told by.
    fn begin(
        &self,
        handle: &IndexHandle,
        queries: &Bound<'_, PyAny>,
        arguments: SearchArguments,
    ) -> PyResult<u64> {
        let index = handle.index()?;
        let (options, deadline) = (arguments.options()?, arguments.deadline()?);
        let Some(queries) = queries_of(queries, "queries")? else {
            return Err(PyValueError::new_err("queries: there are none, so there is nothing to wait for"));
        };
        let search = index.search_async(&queries, &options, deadline);
        let mut searches = self.searches();
        searches.begun += 1;
        let number = searches.begun;
        let waker = self.waker(number);
        let mut asked = Asked { search: Box::pin(search), waker: waker.clone(), options, index };
        match asked.poll() {
            None => drop(searches.asked.insert(number, asked)),
            Some(outcome) => {
                searches.ended.push((number, outcome));
                waker.wake();
            }
        }
        Ok(number)
    }

    /// The searches that have ended since the last call.
    fn take<'py>(&self, py: Python<'py>) -> Vec<Ended<'py>> {
        let tell = |(number, outcome): (u64, Outcome)| match outcome
            .map_err(|error| PyErr::from(Failure::from(error)))
            .and_then(|(found, dram_bytes)| answers(py, found, dram_bytes))
        {
            Ok(found) => (number, Some(found), None),
            Err(error) => (number, None, Some(error)),
        };
        self.ended().into_iter().map(tell).collect()
    }

    /// Gives a search up.
    fn give_up(&self, number: u64) {
        let gone = {
            let mut searches = self.searches();
            searches.ended.retain(|(other, _)| *other != number);
            searches.asked.remove(&number)
        };
        drop(gone);
    }
}
