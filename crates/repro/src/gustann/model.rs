//! Predicts the throughput of a machine with a graphics card and several disks from the demand of a query on
//! each of its resources. The slowest resource decides, because all of them work at the same time for
//! different queries.
//!
//! The prediction is an upper bound: the model has no launches, no queues and no queries that wait for each
//! other. GustANN reaches 0.84 of what its disks could read.

use serde::Serialize;

/// Processor nanoseconds of a read: to submit it, to reap it and to extract the record. The paper's threads
/// do 2 million reads per second each (section 4.1.3).
const READ_NS: f64 = 500.0;
/// Processor nanoseconds per byte of a compared vector.
const VECTOR_BYTE_NS: f64 = 0.03;

/// A machine with a graphics card and several disks.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) ssds: u32,
    /// Reads per second of each disk.
    pub(super) ssd_reads: f64,
    /// Bytes per second into the card.
    pub(super) link: f64,
    /// Bytes per second of the card's memory.
    pub(super) card_memory: f64,
    /// Integer operations per second of the card.
    pub(super) card_operations: f64,
    pub(super) cores: u32,
    /// Microseconds of a read on an idle disk.
    pub(super) read_us: f64,
    /// Microseconds of a launch and the copies before and after it.
    pub(super) launch_us: f64,
    /// Dollars for the whole machine.
    pub(super) price: f64,
}

/// Mean demand of a query on each resource.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct QueryDemand {
    /// Pages read from disks.
    pub(super) pages: f64,
    /// Bytes of vectors that the processor compares.
    pub(super) vector_bytes: f64,
    /// Bytes sent to the card.
    pub(super) sent_bytes: f64,
    /// Bytes that the card reads from its memory.
    pub(super) card_bytes: f64,
    /// Integer operations of the card.
    pub(super) card_operations: f64,
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
    /// Returns the seconds for which a query occupies each resource.
    pub(super) fn demands(&self, demand: &QueryDemand) -> [(&'static str, f64); 5] {
        let processor_ns = demand.pages * READ_NS + demand.vector_bytes * VECTOR_BYTE_NS;
        [
            ("disks", demand.pages / (f64::from(self.ssds) * self.ssd_reads)),
            ("link", demand.sent_bytes / self.link),
            ("card's memory", demand.card_bytes / self.card_memory),
            ("card", demand.card_operations / self.card_operations),
            ("processor", processor_ns / (f64::from(self.cores) * 1e9)),
        ]
    }

    /// Predicts the throughput for queries with this demand.
    pub(super) fn predict(&self, demand: &QueryDemand) -> ThroughputPrediction {
        let most = |a: (&'static str, f64), b: (&'static str, f64)| if b.1 > a.1 { b } else { a };
        let (bound, seconds) = self.demands(demand).into_iter().fold(("nothing", 0.0), most);
        let qps = 1.0 / seconds;
        ThroughputPrediction { predicted: true, qps, bound, dollars_a_qps: self.price / qps }
    }

    /// Returns the queries per second that the disks alone allow.
    pub(super) fn disks_qps(&self, demand: &QueryDemand) -> f64 {
        f64::from(self.ssds) * self.ssd_reads / demand.pages
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The paper's machine.
    pub(in crate::gustann) fn paper_machine() -> Machine {
        Machine {
            ssds: 6,
            ssd_reads: 2.44e6,
            link: 24e9,
            card_memory: 1.555e12,
            card_operations: 9.7e12,
            cores: 8,
            read_us: 80.0,
            launch_us: 30.0,
            price: 30_789.0 + 6.0 * 1025.0,
        }
    }

    #[test]
    fn the_slowest_resource_decides() {
        let machine = paper_machine();
        // The paper's numbers for SIFT100M at recall@10 0.9: 31.8 pages, records of 644 bytes.
        let paper = QueryDemand {
            pages: 31.8,
            vector_bytes: 31.8 * 128.0,
            sent_bytes: 31.8 * 644.0,
            card_bytes: 31.8 * 128.0 * 32.0,
            card_operations: 31.8 * 128.0 * 64.0,
        };
        let predicted = machine.predict(&paper);
        // The paper measures 380,793, with disks at 84% of their throughput.
        assert!(
            predicted.bound == "disks" && (440_000.0..480_000.0).contains(&predicted.qps),
            "{predicted:?}"
        );
        assert!((0.07..0.09).contains(&predicted.dollars_a_qps), "{predicted:?}");
        let whole = machine.predict(&QueryDemand { sent_bytes: 31.8 * 4096.0, ..paper });
        assert!(whole.bound == "link" && whole.qps < 0.5 * predicted.qps, "{whole:?}");
        let more = Machine { ssds: 60, ..machine }.predict(&paper);
        assert_eq!(more.bound, "processor");
    }
}
