//! The processor's work for a query, by phase.

use super::demand::Demand;
use super::device::Device;
use serde::{Deserialize, Serialize};

/// The processor's work for one query: nanoseconds of one thread by phase, and the distances that they are
/// for. Means over a set of queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Finding groups, lists or the next record, and preparing the query.
    pub navigate_ns: f64,
    /// Scoring codes.
    pub scan_ns: f64,
    /// Comparing full vectors.
    pub rerank_ns: f64,
    /// Codes that are scored.
    pub code_distances: f64,
    /// Full vectors that are compared.
    pub full_distances: f64,
}

impl Work {
    /// Returns the nanoseconds of all phases.
    pub fn compute_ns(&self) -> f64 {
        self.navigate_ns + self.scan_ns + self.rerank_ns
    }
}

/// The expected demand of a query, with the processor's work in it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The demand. Its `compute_ns` is that of `work`.
    pub demand: Demand,
    /// The processor's work by phase.
    pub work: Work,
}

impl Estimate {
    /// Returns the estimate of a query with this demand, in which the time of the processor is replaced by
    /// that of `work`.
    pub fn of(demand: Demand, work: Work) -> Estimate {
        Estimate { demand: Demand { compute_ns: work.compute_ns(), ..demand }, work }
    }

    /// Returns the estimate with `ns` more for preparing the query. Such a time is the same for every effort.
    #[must_use]
    pub fn with_preparation(self, ns: f64) -> Estimate {
        let work = Work { navigate_ns: self.work.navigate_ns + ns, ..self.work };
        Estimate::of(self.demand, work)
    }

    /// Returns the price of the query ([`Demand::price_ns`]).
    pub fn price_ns(&self, device: &Device) -> f64 {
        self.demand.price_ns(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_demand_is_the_sum_of_its_phases() {
        let work = Work { navigate_ns: 10.0, scan_ns: 20.0, rerank_ns: 3.0, ..Work::default() };
        let demand = Demand { rounds: 1.0, reads: 2.0, moved_bytes: 128.0, compute_ns: 999.0 };
        let estimate = Estimate::of(demand, work);
        assert_eq!((estimate.demand.compute_ns, estimate.demand.reads), (33.0, 2.0));
        let prepared = estimate.with_preparation(7.0);
        assert_eq!((prepared.work.navigate_ns, prepared.demand.compute_ns), (17.0, 40.0));
    }
}
