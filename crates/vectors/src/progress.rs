//! Progress and cancellation of long work.

/// Receives the progress of long work (builds, ground truth, conversion) and may cancel it.
///
/// Its methods are called from any thread of that work. [`Progress::cancelled`] is called at least every 100
/// ms, so it has to be cheap: an atomic load, not a system call.
pub trait Progress: Sync {
    /// Announces the stages to come, in order, each with its expected share of the time (in any unit).
    ///
    /// Announced stages may be skipped and others may come between them. A receiver that shows no remaining
    /// time can ignore this call.
    fn plan(&self, _stages: &[(&str, f64)]) {}

    /// Begins the stage `name` of `total` steps. A step is what the stage counts, such as a vector or a
    /// query.
    fn stage(&self, name: &str, total: u64);

    /// Reports that `done` steps of the current stage are finished, counted from its start and not from the
    /// last call. Calls from several threads may arrive slightly out of order.
    fn advance(&self, done: u64);

    /// Returns true once the work should stop. The work then returns its `Cancelled` error and removes
    /// partial output.
    fn cancelled(&self) -> bool;
}

/// A receiver that shows nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// A receiver that shows nothing and forwards cancellation, for work that is only a part of a stage of other
/// work.
#[derive(Clone, Copy)]
pub struct CancelOnly<'a>(pub &'a dyn Progress);

impl Progress for CancelOnly<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
