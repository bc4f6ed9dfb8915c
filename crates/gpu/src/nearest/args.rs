//! What the kernel is told, as it lies in memory: `NearestArgs` in `kernels/nearest.cu`.

/// `NearestArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// queries, vectors, biases, scales, limits, found.
    pub(super) addresses: [u64; 6],
    pub(super) room: u64,
    /// words, kind, query_count, first, count, unused.
    pub(super) numbers: [u32; 6],
}

impl Args {
    /// As the kernel's parameter lies in memory.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().chain([&self.room]).flat_map(|number| number.to_le_bytes());
        addresses.chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }
}
