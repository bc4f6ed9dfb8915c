//! The times of a processor for the parts of a search.

use serde::{Deserialize, Serialize};

/// Bytes of an entry of the matrix that rotates a query.
const MATRIX_ENTRY_BYTES: f64 = 4.0;

/// Nanoseconds of one thread for the steps of searches of all families.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// Scoring of a byte of code in the cache.
    pub code_byte_ns: f64,
    /// Transfer of a byte from memory in a sequential stream.
    pub stream_byte_ns: f64,
    /// Comparison of a byte of a full vector in the cache.
    pub vector_byte_ns: f64,
    /// A random access to memory outside the caches, with other accesses in flight.
    pub access_ns: f64,
    /// A read in place: the engine prefetches it, suspends the query and resumes it.
    pub suspend_ns: f64,
    /// A read through a queue of the system: submitting it and reaping its completion.
    pub submit_ns: f64,
    /// Making the tables of a query for scoring codes, for each dimension.
    pub table_ns: f64,
}

impl Processor {
    /// The constants that were used before processors were measured, from searches of 10^6 vectors of 128 to
    /// 400 bytes in memory: finding a group takes 80 ns, scanning 3 KiB of codes 140 ns, and reading one
    /// vector of 128 bytes 50 ns. A read through a queue costs what GustANN's threads take with SPDK.
    pub const REFERENCE: Processor = Processor {
        code_byte_ns: 0.02,
        stream_byte_ns: 0.025,
        vector_byte_ns: 0.05,
        access_ns: 40.0,
        suspend_ns: 40.0,
        submit_ns: 500.0,
        table_ns: 20.0,
    };

    /// Returns the constants of this machine's processor: from the user's cache folder, or measured in some
    /// milliseconds and kept there. The environment variable `BATHYAL_PROCESSOR` changes this
    /// ([`OpenOptions::processor`](crate::OpenOptions::processor)).
    pub fn of_this_machine() -> Processor {
        *super::processor_cache::processor_of_this_machine()
    }

    /// Returns true if the constants are possible: all are above 0 and below a millisecond.
    pub(crate) fn is_possible(&self) -> bool {
        let all = [
            self.code_byte_ns,
            self.stream_byte_ns,
            self.vector_byte_ns,
            self.access_ns,
            self.suspend_ns,
            self.submit_ns,
            self.table_ns,
        ];
        all.iter().all(|ns| *ns > 0.0 && *ns < 1e6)
    }

    /// Returns the nanoseconds of preparing a query of `dim` dimensions for scoring codes: it is rotated,
    /// which takes a product for each entry of a square matrix of f32, and its tables are made.
    pub fn preparation_ns(&self, dim: usize) -> f64 {
        let dim = dim as f64;
        dim * (dim * MATRIX_ENTRY_BYTES * self.stream_byte_ns + self.table_ns)
    }

    /// Returns the nanoseconds of scanning `bytes` of codes in memory.
    pub fn resident_codes_ns(&self, bytes: f64) -> f64 {
        bytes * (self.code_byte_ns + self.stream_byte_ns)
    }
}

impl Default for Processor {
    fn default() -> Processor {
        Processor::REFERENCE
    }
}
