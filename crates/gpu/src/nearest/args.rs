//! The kernel's argument, with its layout in memory: `NearestArgs` in `kernels/nearest.cu`.

/// `NearestArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// queries, vectors, biases, scales, limits, found.
    pub(super) addresses: [u64; 6],
    pub(super) max_pairs: u64,
    /// words, kind, query_count, first, count, unused.
    pub(super) numbers: [u32; 6],
}

impl Args {
    /// Returns the bytes of the kernel's parameter.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let addresses =
            self.addresses.iter().chain([&self.max_pairs]).flat_map(|number| number.to_le_bytes());
        addresses.chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }
}
