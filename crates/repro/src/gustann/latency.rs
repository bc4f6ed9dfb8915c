//! Figure 17: latency against throughput, predicted for so many queries under way.
//!
//! A closed network: each query waits for its rounds, of which each has a read and a launch that take their time whatever else goes on,
//! and between them queues for five parts, of which each serves one query after the other as fast as [`Machine::demands`] says. Mean
//! value analysis (Reiser & Lavenberg, JACM 1980) then gives the mean throughput and latency exactly, where service times are
//! exponential. Launches are shared by what waits for them, and cost nobody's turn. Real disks and cards are more regular than that,
//! and real queries less: of the latter, nothing is known here but the mean.

use serde::Serialize;

use super::model::{Asks, Machine};

/// Queries under way.
pub(super) const IN_FLIGHT: [u32; 9] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536];

/// An index with so many queries under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Loaded {
    pub(super) set: String,
    pub(super) index: &'static str,
    #[serde(flatten)]
    pub(super) load: Load,
}

/// What is predicted for so many.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Load {
    /// Always: nothing of it was measured.
    pub(super) predicted: bool,
    pub(super) in_flight: u32,
    pub(super) qps: f64,
    pub(super) latency_ms: f64,
    /// What no more queries under way would exceed: what they can be if nobody ever queues, and what the slowest part can.
    pub(super) most_qps: f64,
}

impl Machine {
    /// Of queries that ask for this in so many rounds.
    pub(super) fn loads(&self, asks: &Asks, rounds: f64) -> Vec<Load> {
        let demands = self.demands(asks).map(|(_, seconds)| seconds);
        let waits = rounds * (self.read_us + self.launch_us) * 1e-6;
        let alone = waits + demands.iter().sum::<f64>();
        let slowest = demands.iter().copied().fold(0.0, f64::max);
        let of = |(in_flight, qps): (u32, f64)| Load {
            predicted: true,
            in_flight,
            qps,
            latency_ms: f64::from(in_flight) / qps * 1e3,
            most_qps: (f64::from(in_flight) / alone).min(1.0 / slowest),
        };
        closed(&demands, waits, &IN_FLIGHT).into_iter().map(of).collect()
    }
}

/// Throughput of a closed network with some stations' demands and one delay, in seconds, for each of `populations`, which rise.
fn closed(demands: &[f64], delay: f64, populations: &[u32]) -> Vec<(u32, f64)> {
    let mut queues = vec![0.0; demands.len()];
    let (mut wanted, mut found) = (populations.iter().copied().peekable(), Vec::new());
    for customers in 1..=populations.last().copied().unwrap_or(0) {
        let waits: Vec<f64> =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        let throughput = f64::from(customers) / (delay + waits.iter().sum::<f64>());
        queues.iter_mut().zip(&waits).for_each(|(queue, wait)| *queue = throughput * wait);
        if wanted.next_if_eq(&customers).is_some() {
            found.push((customers, throughput));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_station_is_a_machine_repair_shop() {
        // By hand: 1 / (1 + 1), which leaves half a customer at the station, then 2 / (1 + 1.5).
        let found = closed(&[1.0], 1.0, &[1, 2]);
        assert_eq!(found, [(1, 0.5), (2, 0.8)]);
        // Two equal stations without a delay: N / (N + 1).
        let found = closed(&[1.0, 1.0], 0.0, &[1, 3, 9]);
        for ((customers, throughput), expected) in found.iter().zip([0.5, 0.75, 0.9]) {
            assert!((throughput - expected).abs() < 1e-12, "{customers}: {throughput}");
        }
    }

    #[test]
    fn more_queries_answer_more_and_wait_longer() {
        let machine = super::super::model::tests::paper_machine();
        let asks = Asks {
            pages: 20.0,
            vector_bytes: 2560.0,
            sent_bytes: 5000.0,
            card_bytes: 20_000.0,
            card_operations: 5e4,
        };
        let loads = machine.loads(&asks, 20.0);
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
        // Alone: twenty rounds of a read and a launch, and next to nothing beside.
        let alone = 20.0 * (machine.read_us + machine.launch_us) * 1e-3;
        assert!((alone..1.1 * alone).contains(&loads[0].latency_ms), "{:?}", loads[0]);
        // With many, the slowest part is busy all the time.
        let last = loads[IN_FLIGHT.len() - 1];
        assert!(last.qps > 0.99 * machine.predict(&asks).qps, "{last:?}");
    }
}
