//! The predicted machine: its resources, prices, and the times that only predictions of latency need.

use bathyal_index::cost::card::{CardDemand, CardMachine};
use serde::Serialize;

/// A machine with a graphics card and several disks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// The resources that limit its throughput.
    pub(super) card: CardMachine,
    /// Microseconds of a read on an idle disk.
    pub(super) read_us: f64,
    /// Microseconds of a launch and the copies before and after it.
    pub(super) launch_us: f64,
    /// Dollars for the whole machine.
    pub(super) price: f64,
}

/// Predicted throughput.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ThroughputPrediction {
    /// Always true: nothing was measured.
    pub(super) predicted: bool,
    pub(super) qps: f64,
    /// The resource that limits the throughput.
    pub(super) bound: &'static str,
    pub(super) dollars_a_qps: f64,
}

impl Machine {
    /// Predicts the throughput for queries with this demand.
    pub(super) fn predict(&self, demand: &CardDemand) -> ThroughputPrediction {
        let (bound, qps) = self.card.slowest(demand);
        ThroughputPrediction { predicted: true, qps, bound, dollars_a_qps: self.price / qps }
    }
}
