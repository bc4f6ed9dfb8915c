//! Figure 17: latency against throughput, predicted for each number of queries in flight.
//!
//! The model is a closed queueing network. Each round of a query has a read and a launch with fixed delays.
//! Between them the query queues for five resources, each of which serves one query after the other with the
//! service time that [`Machine::demands`] gives. Mean value analysis (Reiser & Lavenberg, JACM 1980) then
//! gives the mean throughput and latency, exactly if service times are exponential. Waiting queries share
//! launches, so launches are a delay and no queue. Real disks and cards are more regular than exponential,
//! and real queries less regular: the model has only their mean.

use serde::Serialize;

use super::model::{Machine, QueryDemand};

/// Numbers of queries in flight.
pub(super) const IN_FLIGHT: [u32; 9] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536];

/// An index at one number of queries in flight.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadRow {
    pub(super) set: String,
    pub(super) index: &'static str,
    #[serde(flatten)]
    pub(super) load: LoadPrediction,
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
    pub(super) fn loads(&self, demand: &QueryDemand, rounds: f64) -> Vec<LoadPrediction> {
        let demands = self.demands(demand).map(|(_, seconds)| seconds);
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

/// Returns the throughput of a closed network of stations with `demands` and one `delay`, all in seconds, for
/// each of `populations`, which must ascend.
fn closed_network(demands: &[f64], delay: f64, populations: &[u32]) -> Vec<(u32, f64)> {
    let mut queues = vec![0.0; demands.len()];
    let (mut populations_left, mut found) = (populations.iter().copied().peekable(), Vec::new());
    for customers in 1..=populations.last().copied().unwrap_or(0) {
        let waits: Vec<f64> =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        let throughput = f64::from(customers) / (delay + waits.iter().sum::<f64>());
        queues.iter_mut().zip(&waits).for_each(|(queue, wait)| *queue = throughput * wait);
        if populations_left.next_if_eq(&customers).is_some() {
            found.push((customers, throughput));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_station_with_a_delay_matches_the_machine_repair_model() {
        // By hand: 1 / (1 + 1) leaves half a customer at the station, then 2 / (1 + 1.5).
        let found = closed_network(&[1.0], 1.0, &[1, 2]);
        assert_eq!(found, [(1, 0.5), (2, 0.8)]);
        // Two equal stations without a delay: N / (N + 1).
        let found = closed_network(&[1.0, 1.0], 0.0, &[1, 3, 9]);
        for ((customers, throughput), expected) in found.iter().zip([0.5, 0.75, 0.9]) {
            assert!((throughput - expected).abs() < 1e-12, "{customers}: {throughput}");
        }
    }

    #[test]
    fn throughput_and_latency_rise_with_queries_in_flight() {
        let machine = super::super::model::tests::paper_machine();
        let demand = QueryDemand {
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
