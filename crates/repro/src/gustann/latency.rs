//! Figure 17: latency against throughput, predicted for each number of queries in flight.
//!
//! The model is a closed queueing network. Each round of a query has a read and a launch with fixed delays.
//! Between them the query queues for five resources, each of which serves one query after the other with the
//! service time that the cost model gives (`CardMachine::demands`). Mean value analysis then gives the mean
//! throughput and latency, exactly if service times are exponential. Waiting queries share launches, so
//! launches are a delay and no queue. Real disks and cards are more regular than exponential, and real
//! queries less regular: the model has only their mean.

use bathyal_index::cost::card::CardDemand;
use bathyal_index::cost::queueing::closed_network;
use serde::Serialize;

use super::model::Machine;

/// Numbers of queries in flight.
pub(super) const IN_FLIGHT: [u32; 9] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536];

/// An index at one number of queries in flight.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadRow {
    pub(super) set: String,
    pub(super) index: &'static str,
    #[serde(flatten)]
    pub(super) load: LoadPrediction,
    /// The same if reads go through the system.
    pub(super) through_system: LoadPrediction,
}

/// Prediction for one number of queries in flight.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LoadPrediction {
    /// Always true: nothing was measured.
    pub(super) predicted: bool,
    pub(super) in_flight: u32,
    pub(super) qps: f64,
    pub(super) latency_ms: f64,
    /// Upper bound of the throughput: the smaller of that without any queueing and that of the slowest
    /// resource.
    pub(super) most_qps: f64,
}

impl Machine {
    /// Returns the predictions for queries with this demand and this many rounds.
    pub(super) fn loads(&self, demand: &CardDemand, rounds: f64) -> Vec<LoadPrediction> {
        let demands = self.card.demands(demand).map(|(_, seconds)| seconds);
        let delay = rounds * (self.read_us + self.launch_us) * 1e-6;
        let alone = delay + demands.iter().sum::<f64>();
        let slowest = demands.iter().copied().fold(0.0, f64::max);
        let load = |(in_flight, qps): (u32, f64)| LoadPrediction {
            predicted: true,
            in_flight,
            qps,
            latency_ms: f64::from(in_flight) / qps * 1e3,
            most_qps: (f64::from(in_flight) / alone).min(1.0 / slowest),
        };
        closed_network(&demands, delay, &IN_FLIGHT).into_iter().map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::cost::card::{CardMachine, HostTimes};

    #[test]
    fn throughput_and_latency_rise_with_queries_in_flight() {
        let card = CardMachine {
            ssds: 6,
            ssd_reads: 2.44e6,
            link: 24e9,
            card_memory: 1.555e12,
            card_operations: 9.7e12,
            cores: 8,
            host: HostTimes::PAPER,
        };
        let machine = Machine { card, read_us: 80.0, launch_us: 30.0, price: 36_939.0 };
        let demand = CardDemand {
            pages: 20.0,
            vector_bytes: 2560.0,
            sent_bytes: 5000.0,
            card_bytes: 20_000.0,
            card_operations: 5e4,
        };
        let loads = machine.loads(&demand, 20.0);
        assert_eq!(loads.len(), IN_FLIGHT.len());
        for pair in loads.windows(2) {
            assert!(
                pair[0].qps <= pair[1].qps && pair[0].latency_ms <= pair[1].latency_ms * (1.0 + 1e-9),
                "{pair:?}"
            );
        }
        for load in &loads {
            assert!(load.qps <= load.most_qps * (1.0 + 1e-9), "{load:?}");
        }
        // A single query takes twenty rounds of a read and a launch, and almost nothing else.
        let alone = 20.0 * (machine.read_us + machine.launch_us) * 1e-3;
        assert!((alone..1.1 * alone).contains(&loads[0].latency_ms), "{:?}", loads[0]);
        // With many queries, the slowest resource is always busy.
        let last = loads[IN_FLIGHT.len() - 1];
        assert!(last.qps > 0.99 * machine.predict(&demand).qps, "{last:?}");
    }
}
