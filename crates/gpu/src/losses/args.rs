//! The kernel's argument, with its layout in memory: `LossArgs` in `kernels/loss.cu`.

/// `LossArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// points, members, means, near, losses.
    pub(super) addresses: [u64; 5],
    /// dim, others, unit, count, first, tiles.
    pub(super) numbers: [u32; 6],
}

impl Args {
    /// Returns the bytes of the kernel's parameter.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().flat_map(|address| address.to_le_bytes());
        addresses.chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }
}
