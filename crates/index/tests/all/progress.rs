//! Receivers of the progress of builds: one cancels the build, one notes its stages.

use bathyal_index::{BuildOptions, IndexError, build};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cancels the work that reports to it once it has been checked for cancellation `limit` times.
pub struct CancelAfter {
    limit: usize,
    checks: AtomicUsize,
}

impl CancelAfter {
    pub fn checks(limit: usize) -> CancelAfter {
        CancelAfter { limit, checks: AtomicUsize::new(0) }
    }
}

impl Progress for CancelAfter {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.checks.fetch_add(1, Ordering::Relaxed) >= self.limit
    }
}

/// Cancels a build at `count` moments from its beginning to its end, and checks that it leaves nothing.
pub fn check_cancellation(data: &VectorFile, options: &BuildOptions, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let whole = CancelAfter::checks(usize::MAX);
    build(data, &dir.path().join("whole"), options, &whole).unwrap();
    let checks = whole.checks.into_inner();
    for part in 0..count {
        let cancel = CancelAfter::checks(checks * part / (count + 1));
        let error = build(data, &dir.path().join("cut"), options, &cancel).unwrap_err();
        assert!(matches!(error, IndexError::Cancelled), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the finished index is there");
}

/// Notes the stages that a build reports, in order.
#[derive(Default)]
pub struct StageLog(Mutex<Vec<(String, u64)>>);

impl StageLog {
    /// Returns the names of the stages.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the number of steps of the stage `name`.
    pub fn steps(&self, name: &str) -> Option<u64> {
        self.0.lock().unwrap().iter().find(|stage| stage.0 == name).map(|stage| stage.1)
    }
}

impl Progress for StageLog {
    fn stage(&self, name: &str, total: u64) {
        self.0.lock().unwrap().push((name.to_owned(), total));
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}
