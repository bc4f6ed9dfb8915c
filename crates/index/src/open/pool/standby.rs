//! A searcher on the processor that replaces a lost graphics card. The first query that needs it loads the
//! codes into memory, once; every query that the card has failed is searched again.

use crate::error::IndexError;
use crate::family::Opened;
use bathyal_gpu::GpuError;
use bathyal_tier::{Cx, TaskWaker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A function that opens the index without the card.
type OpenWithoutCard = dyn Fn() -> Result<Arc<dyn Opened>, IndexError> + Send + Sync;

/// A searcher on the processor that replaces a lost graphics card, opened when it is needed first.
pub(in crate::open) struct Standby {
    open_without_card: Box<OpenWithoutCard>,
    /// The error with which the card was lost.
    lost: OnceLock<GpuError>,
    /// The first error about a query that the card cannot answer, although it works.
    unsuited: OnceLock<GpuError>,
    opened: OnceLock<Result<Arc<dyn Opened>, Arc<IndexError>>>,
    /// The queries that wait until the index is open; `None` until a thread begins to open it.
    waiters: Mutex<Option<Vec<TaskWaker>>>,
}

impl Standby {
    pub(in crate::open) fn new(
        open_without_card: impl Fn() -> Result<Arc<dyn Opened>, IndexError> + Send + Sync + 'static,
    ) -> Arc<Standby> {
        Arc::new(Standby {
            open_without_card: Box::new(open_without_card),
            lost: OnceLock::new(),
            unsuited: OnceLock::new(),
            opened: OnceLock::new(),
            waiters: Mutex::default(),
        })
    }

    /// Returns the error with which the card was lost, if it was.
    pub(in crate::open) fn lost(&self) -> Option<&GpuError> {
        self.lost.get()
    }

    /// Returns the first error about a query that the working card could not answer, if there was one.
    pub(in crate::open) fn unsuited(&self) -> Option<&GpuError> {
        self.unsuited.get()
    }

    /// Returns true if the codes are in memory.
    pub(in crate::open) fn is_open(&self) -> bool {
        self.opened.get().is_some_and(Result::is_ok)
    }

    /// Returns the searcher that replaces a lost card, once it is open.
    pub(in crate::open) fn replacement(&self) -> Option<&Arc<dyn Opened>> {
        self.lost()?;
        self.opened.get()?.as_ref().ok()
    }

    /// Returns the searcher for a query that a card has failed with `failure`. A thread of its own opens it,
    /// so that a waiting query can be cancelled meanwhile.
    pub(in crate::open) async fn opened(
        self: &Arc<Self>,
        cx: &Cx,
        failure: &GpuError,
    ) -> Result<Arc<dyn Opened>, IndexError> {
        loop {
            match self.poll_opened(failure, || cx.task_waker()) {
                Some(Ok(opened)) => return Ok(opened.clone()),
                Some(Err(source)) => return Err(self.open_error(source.clone())),
                None => cx.parked().await,
            }
        }
    }

    /// Returns the opened searcher, or the error of opening it. If neither is there yet, begins to open it if
    /// that has not begun, and wakes `waker` when it is done.
    fn poll_opened(
        self: &Arc<Self>,
        failure: &GpuError,
        waker: impl FnOnce() -> TaskWaker,
    ) -> Option<&Result<Arc<dyn Opened>, Arc<IndexError>>> {
        match failure {
            GpuError::Unsuited(_) => self.unsuited.get_or_init(|| failure.clone()),
            failure => self.lost.get_or_init(|| failure.clone()),
        };
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Some(opened);
        }
        let begun = waiters.is_some();
        waiters.get_or_insert_default().push(waker());
        drop(waiters);
        if !begun {
            let this = self.clone();
            let thread = std::thread::Builder::new().name("bathyal-standby".into());
            if let Err(error) = thread.spawn(move || this.open()) {
                let text = format!("cannot start the thread that opens the index without the card: {error}");
                self.settle(Err(IndexError::Internal(text)));
            }
        }
        None
    }

    fn open(&self) {
        let opened = catch_unwind(AssertUnwindSafe(|| (self.open_without_card)()));
        let panicked = |_| Err(IndexError::Internal("opening the index without the card panicked".into()));
        self.settle(opened.unwrap_or_else(panicked));
    }

    fn settle(&self, opened: Result<Arc<dyn Opened>, IndexError>) {
        // Only this function sets it, once.
        let _ = self.opened.set(opened.map_err(Arc::new));
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = waiters.as_mut().map(std::mem::take).unwrap_or_default();
        woken.iter().for_each(TaskWaker::wake);
    }

    fn open_error(&self, source: Arc<IndexError>) -> IndexError {
        let card = self.lost().or(self.unsuited()).map_or_else(String::new, ToString::to_string);
        IndexError::WithoutCard { card, source }
    }
}
