//! The part of a service that differs from kernel to kernel.

use super::batch::{BatchAddresses, Inputs, LaunchParameters, QueryBytes};
use crate::card::Kernel;
use crate::error::GpuError;
use std::fmt::Debug;

/// A kernel that executes the requests of many queries, one in each block of threads.
///
/// The service does what all kernels need: it allocates memory, keeps the slots, copies inputs and outputs,
/// launches, counts, and handles failures. An implementation defines the contents of inputs and outputs.
pub trait QueryKernel: Debug + Send + Sync + 'static {
    /// Request of a query, with room for the response. Its memory is reused.
    type Request: Default + Send;
    /// Largest sizes among the requests of a launch.
    type Sizes: Debug + Default + Send;

    /// Returns the function that executes requests.
    fn kernel(&self) -> Kernel;

    /// Returns the largest number of bytes that a query takes in the inputs and outputs of a launch.
    fn query_bytes(&self) -> QueryBytes;

    /// Appends the request of slot number `slot` to the inputs of a launch.
    fn add(&self, slot: u32, request: &mut Self::Request, inputs: &mut Inputs, sizes: &mut Self::Sizes);

    /// Returns the parameters of a launch with requests of these sizes.
    fn parameters(&self, sizes: &Self::Sizes, addresses: &BatchAddresses) -> LaunchParameters;

    /// Checks the output of a query: callers use its numbers as indexes.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] for a number that is out of range.
    fn check(&self, sizes: &Self::Sizes, output: &[u8]) -> Result<(), GpuError>;

    /// Writes the response in the output of a query to its request.
    fn write_response(&self, sizes: &Self::Sizes, output: &[u8], request: &mut Self::Request);
}

/// Checks that `numbers` in an output of `kernel` are less than `end`. `what` names their kind.
pub(crate) fn check_numbers(
    kernel: Kernel,
    what: &str,
    mut numbers: impl Iterator<Item = u32>,
    end: u64,
) -> Result<(), GpuError> {
    match numbers.find(|number| u64::from(*number) >= end) {
        Some(number) => Err(GpuError::Kernel {
            kernel: kernel.name(),
            reason: format!("it returned {what} {number} of {end}"),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_in_outputs_are_detected() {
        assert_eq!(check_numbers(Kernel::Hop, "vector", [0, 9].into_iter(), 10), Ok(()));
        let error =
            check_numbers(Kernel::Hop, "vector", [0, 10, 11].into_iter(), 10).expect_err("one too many");
        assert_eq!(error.to_string(), "the kernel hop: it returned vector 10 of 10");
    }
}
