//! Progress of long work, one line a stage, on stderr.

use bathyal_vectors::progress::Progress;
use std::sync::Mutex;
use std::time::Instant;

/// Says when each stage begins.
pub(crate) struct StageLines {
    what: String,
    started: Mutex<Instant>,
}

impl StageLines {
    pub(crate) fn new(what: impl Into<String>) -> StageLines {
        StageLines { what: what.into(), started: Mutex::new(Instant::now()) }
    }
}

impl Progress for StageLines {
    fn stage(&self, name: &str, total: u64) {
        let seconds = self.started.lock().map_or(0.0, |started| started.elapsed().as_secs_f64());
        eprintln!("{}: {seconds:7.1} s: {name} ({total})", self.what);
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}
