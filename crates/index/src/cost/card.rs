//! The throughput of a machine with a graphics card and several disks (GustANN), from the demand of a query
//! on each of its resources. The slowest resource decides, because all of them work at the same time for
//! different queries.
//!
//! The prediction is an upper bound: the model has no launches, no queues and no queries that wait for each
//! other. GustANN reaches 0.84 of what its disks could read.

use serde::{Deserialize, Serialize};

/// Nanoseconds of the processor for the work that a card leaves to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostTimes {
    /// To submit a read, to reap it and to extract the record.
    pub read_ns: f64,
    /// Per byte of a compared vector.
    pub vector_byte_ns: f64,
    /// Per query: to find its groups and to make its tables.
    pub query_ns: f64,
}

impl HostTimes {
    /// The times of GustANN: its threads do 2 million reads per second each with SPDK (section 4.1.3), and
    /// the paper has no time of a query in addition to them.
    pub const PAPER: HostTimes = HostTimes { read_ns: 500.0, vector_byte_ns: 0.03, query_ns: 0.0 };
}

/// A machine with a graphics card and several disks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardMachine {
    /// Disks.
    pub ssds: u32,
    /// Reads per second of each disk.
    pub ssd_reads: f64,
    /// Bytes per second into the card.
    pub link: f64,
    /// Bytes per second of the card's memory.
    pub card_memory: f64,
    /// Integer operations per second of the card.
    pub card_operations: f64,
    /// Processor cores.
    pub cores: u32,
    /// Times of each core.
    pub host: HostTimes,
}

/// Mean demand of a query on each resource of a machine with a card.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CardDemand {
    /// Pages read from disks.
    pub pages: f64,
    /// Bytes of vectors that the processor compares.
    pub vector_bytes: f64,
    /// Bytes sent to the card.
    pub sent_bytes: f64,
    /// Bytes that the card reads from its memory.
    pub card_bytes: f64,
    /// Integer operations of the card.
    pub card_operations: f64,
}

impl CardMachine {
    /// Returns the seconds for which a query occupies each resource.
    pub fn demands(&self, demand: &CardDemand) -> [(&'static str, f64); 5] {
        let HostTimes { read_ns, vector_byte_ns, query_ns } = self.host;
        let processor_ns = demand.pages * read_ns + demand.vector_bytes * vector_byte_ns + query_ns;
        [
            ("disks", demand.pages / (f64::from(self.ssds) * self.ssd_reads)),
            ("link", demand.sent_bytes / self.link),
            ("card's memory", demand.card_bytes / self.card_memory),
            ("card", demand.card_operations / self.card_operations),
            ("processor", processor_ns / (f64::from(self.cores) * 1e9)),
        ]
    }

    /// Returns the slowest resource, and the queries per second that it allows.
    pub fn slowest(&self, demand: &CardDemand) -> (&'static str, f64) {
        let most = |a: (&'static str, f64), b: (&'static str, f64)| if b.1 > a.1 { b } else { a };
        let (bound, seconds) = self.demands(demand).into_iter().fold(("nothing", 0.0), most);
        (bound, 1.0 / seconds)
    }

    /// Returns the queries per second that the disks alone allow.
    pub fn disks_qps(&self, demand: &CardDemand) -> f64 {
        f64::from(self.ssds) * self.ssd_reads / demand.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: CardMachine = CardMachine {
        ssds: 6,
        ssd_reads: 2.44e6,
        link: 24e9,
        card_memory: 1.555e12,
        card_operations: 9.7e12,
        cores: 8,
        host: HostTimes::PAPER,
    };

    /// The paper's numbers for SIFT100M at recall@10 0.9: 31.8 pages, records of 644 bytes.
    const SIFT100M: CardDemand = CardDemand {
        pages: 31.8,
        vector_bytes: 31.8 * 128.0,
        sent_bytes: 31.8 * 644.0,
        card_bytes: 31.8 * 128.0 * 32.0,
        card_operations: 31.8 * 128.0 * 64.0,
    };

    #[test]
    fn the_slowest_resource_decides() {
        let (bound, qps) = PAPER.slowest(&SIFT100M);
        // The paper measures 380,793, with disks at 84% of their throughput.
        assert!(bound == "disks" && (440_000.0..480_000.0).contains(&qps), "{bound} {qps}");
        let whole = PAPER.slowest(&CardDemand { sent_bytes: 31.8 * 4096.0, ..SIFT100M });
        assert!(whole.0 == "link" && whole.1 < 0.5 * qps, "{whole:?}");
        assert_eq!(CardMachine { ssds: 60, ..PAPER }.slowest(&SIFT100M).0, "processor");
    }

    #[test]
    fn reads_and_tables_of_the_processor_count_for_each_query() {
        let host = HostTimes { read_ns: 3_400.0, query_ns: 24_000.0, ..HostTimes::PAPER };
        let (bound, qps) = CardMachine { host, ..PAPER }.slowest(&SIFT100M);
        let ns = 31.8 * 3_400.0 + 31.8 * 128.0 * 0.03 + 24_000.0;
        assert!(bound == "processor" && (qps - 8e9 / ns).abs() < 1e-6, "{bound} {qps}");
    }
}
