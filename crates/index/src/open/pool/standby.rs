//! This processor, where it goes on for a graphics card that is lost: the codes come into memory once, at the first query that needs
//! them, and every query that has failed is searched again.

use crate::error::IndexError;
use crate::family::Opened;
use bathyal_gpu::GpuError;
use bathyal_tier::{Cx, TaskWaker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Opens the index without the card.
type Opens = dyn Fn() -> Result<Arc<dyn Opened>, IndexError> + Send + Sync;

/// See the module's description.
pub(in crate::open) struct Standby {
    opens: Box<Opens>,
    /// Why the card is not used any more.
    lost: OnceLock<GpuError>,
    /// What was too much for a card that is.
    beyond: OnceLock<GpuError>,
    opened: OnceLock<Result<Arc<dyn Opened>, Arc<IndexError>>>,
    /// Who waits for that, once it is being opened.
    waiting: Mutex<Option<Vec<TaskWaker>>>,
}

impl Standby {
    pub(in crate::open) fn new(
        opens: impl Fn() -> Result<Arc<dyn Opened>, IndexError> + Send + Sync + 'static,
    ) -> Arc<Standby> {
        let (lost, beyond, opened) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Standby { opens: Box::new(opens), lost, beyond, opened, waiting: Mutex::default() })
    }

    /// Why the card is not used any more, if so.
    pub(in crate::open) fn lost(&self) -> Option<&GpuError> {
        self.lost.get()
    }

    /// What was too much for the card, if something was.
    pub(in crate::open) fn beyond(&self) -> Option<&GpuError> {
        self.beyond.get()
    }

    /// Whether the codes are in memory.
    pub(in crate::open) fn is_open(&self) -> bool {
        self.opened.get().is_some_and(Result::is_ok)
    }

    /// What searches instead of a card that is lost, once it does.
    pub(in crate::open) fn now(&self) -> Option<&Arc<dyn Opened>> {
        self.lost()?;
        self.opened.get()?.as_ref().ok()
    }

    /// What answers a query instead of a card that has failed it as `lost` says. A thread of its own opens it, so that whoever waits can
    /// be given up meanwhile.
    pub(in crate::open) async fn opened(
        self: &Arc<Self>,
        cx: &Cx,
        lost: &GpuError,
    ) -> Result<Arc<dyn Opened>, IndexError> {
        loop {
            match self.ask(lost, || cx.task_waker()) {
                Some(Ok(opened)) => return Ok(opened.clone()),
                Some(Err(source)) => return Err(self.without(source.clone())),
                None => cx.parked().await,
            }
        }
    }

    /// What it is, if that is known; else `waker` is woken.
    fn ask(
        self: &Arc<Self>,
        lost: &GpuError,
        waker: impl FnOnce() -> TaskWaker,
    ) -> Option<&Result<Arc<dyn Opened>, Arc<IndexError>>> {
        match lost {
            GpuError::Unsuited(_) => self.beyond.get_or_init(|| lost.clone()),
            lost => self.lost.get_or_init(|| lost.clone()),
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.opened.get() {
            return Some(opened);
        }
        let begun = waiting.is_some();
        waiting.get_or_insert_default().push(waker());
        drop(waiting);
        if !begun {
            let this = self.clone();
            let thread = std::thread::Builder::new().name("bathyal-standby".into());
            if let Err(error) = thread.spawn(move || this.open()) {
                let text = format!("no thread that opens the index without the card: {error}");
                self.settle(Err(IndexError::Internal(text)));
            }
        }
        None
    }

    fn open(&self) {
        let opened = catch_unwind(AssertUnwindSafe(|| (self.opens)()));
        let panicked = |_| Err(IndexError::Internal("opening it without the card has panicked".into()));
        self.settle(opened.unwrap_or_else(panicked));
    }

    fn settle(&self, opened: Result<Arc<dyn Opened>, IndexError>) {
        // Nobody else sets it.
        let _ = self.opened.set(opened.map_err(Arc::new));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.as_mut().map(std::mem::take).unwrap_or_default();
        waiting.iter().for_each(TaskWaker::wake);
    }

    fn without(&self, source: Arc<IndexError>) -> IndexError {
        let card = self.lost().or(self.beyond()).map_or_else(String::new, ToString::to_string);
        IndexError::WithoutCard { card, source }
    }
}
