//! What a processor takes for the parts of a search.

use serde::{Deserialize, Serialize};

/// Nanoseconds of one thread for the steps that searches of all families are made of.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// A byte of code that is scored from the cache.
    pub code_byte_ns: f64,
    /// A byte that comes from memory in a stream, for what is kept there.
    pub stream_byte_ns: f64,
    /// A byte of a full vector that is compared from the cache.
    pub vector_byte_ns: f64,
    /// A look at some place in memory that is in no cache, with others under way at the same time.
    pub access_ns: f64,
}

impl Processor {
    /// What efforts were found by before processors were measured, from searches of 10^6 vectors of 128 to 400 bytes in memory:
    /// a group takes 80 ns to be found and 3 KiB of codes 140 ns to be scanned, a vector of 128 bytes that is read alone 50.
    pub const REFERENCE: Processor =
        Processor { code_byte_ns: 0.02, stream_byte_ns: 0.025, vector_byte_ns: 0.05, access_ns: 40.0 };

    /// Whether a processor can be like this: all numbers are above 0 and none is beyond a millisecond.
    pub(crate) fn is_possible(&self) -> bool {
        let all = [self.code_byte_ns, self.stream_byte_ns, self.vector_byte_ns, self.access_ns];
        all.iter().all(|ns| *ns > 0.0 && *ns < 1e6)
    }

    /// Nanoseconds for so many bytes of codes that lie in memory.
    pub fn resident_codes_ns(&self, bytes: f64) -> f64 {
        bytes * (self.code_byte_ns + self.stream_byte_ns)
    }
}

impl Default for Processor {
    fn default() -> Processor {
        Processor::REFERENCE
    }
}
