//! How long work reports where it is and learns that it should stop.

/// Receives the progress of long work (builds, ground truth, conversion) and may cancel it.
///
/// Called from any thread of that work. Work asks [`Progress::cancelled`] at least every 100 ms, so an
/// answer has to be cheap: an atomic load, not a system call.
pub trait Progress: Sync {
    /// The stages to come, in their order, each with the share of the whole time that it is expected to take (any
    /// unit). Some may be left out, others may come between. Receivers that show no time left need not listen.
    fn plan(&self, _stages: &[(&str, f64)]) {}

    /// A new stage called `name` begins; it has `total` steps (vectors, queries: whatever `name` counts).
    fn stage(&self, name: &str, total: u64);

    /// `done` steps of the present stage are finished, counted from its start (not since the last call).
    /// Calls from several threads may arrive slightly out of order.
    fn advance(&self, done: u64);

    /// True once the work should stop: it then returns its `Cancelled` error and removes what it half wrote.
    fn cancelled(&self) -> bool;
}

/// Shows nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// Passes on the wish to stop, and shows nothing: for work that is a part of a stage of another.
#[derive(Clone, Copy)]
pub struct Unheard<'a>(pub &'a dyn Progress);

impl Progress for Unheard<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
