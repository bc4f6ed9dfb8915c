//! Copies and launch for a batch of queries, with any kernel.

use crate::card::{CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use std::sync::Arc;

/// Inputs and outputs of a kernel for a batch of queries.
#[derive(Debug)]
pub(crate) struct Batch<const N: usize> {
    kernel: Kernel,
    queue: Box<dyn CardQueue>,
    /// Memory on the card for each of [`Batch::packed`].
    inputs: [Box<dyn CardMemory>; N],
    /// Memory on the card for the outputs.
    output: Box<dyn CardMemory>,
    /// Memory that only kernels access, shared with other batches.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    resident: Arc<[Box<dyn CardMemory>]>,
    /// Bytes to copy to the card, for each input.
    pub(crate) packed: [Vec<u8>; N],
    /// The outputs of all queries, copied from the card.
    outputs: Vec<u8>,
    /// Number of queries.
    pub(crate) count: usize,
}

/// Parameters of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchParameters<'a> {
    /// Threads of a block. Each query has one block.
    pub(crate) threads: u32,
    /// Bytes of shared memory of a block.
    pub(crate) shared_bytes: u64,
    /// The kernel's parameter.
    pub(crate) argument: &'a [u8],
    /// Bytes of output for each query.
    pub(crate) output_bytes: usize,
}

impl<const N: usize> Batch<N> {
    /// Creates a batch with inputs copied to `inputs` and outputs copied from `output`. `resident` is kept
    /// as long as the batch.
    pub(crate) fn new(
        kernel: Kernel,
        queue: Box<dyn CardQueue>,
        inputs: [Box<dyn CardMemory>; N],
        output: Box<dyn CardMemory>,
        resident: Arc<[Box<dyn CardMemory>]>,
    ) -> Batch<N> {
        Batch {
            kernel,
            queue,
            inputs,
            output,
            resident,
            packed: std::array::from_fn(|_| Vec::new()),
            outputs: Vec::new(),
            count: 0,
        }
    }

    /// Returns the addresses of the inputs on the card.
    pub(crate) fn input_addresses(&self) -> [u64; N] {
        std::array::from_fn(|at| self.inputs[at].address())
    }

    /// Returns the address of the outputs on the card.
    pub(crate) fn output_address(&self) -> u64 {
        self.output.address()
    }

    /// Removes all queries.
    pub(crate) fn clear(&mut self) {
        self.packed.iter_mut().for_each(Vec::clear);
        self.count = 0;
    }

    /// Runs the kernel for all queries. Returns the number of bytes copied to the card.
    pub(crate) fn launch(&mut self, parameters: LaunchParameters<'_>) -> Result<u64, GpuError> {
        let mut copied = 0;
        for (memory, bytes) in self.inputs.iter().zip(&self.packed).filter(|(_, bytes)| !bytes.is_empty()) {
            self.queue.write(&**memory, 0, bytes)?;
            copied += bytes.len() as u64;
        }
        self.queue.launch(&Launch {
            kernel: self.kernel,
            blocks: self.count as u32,
            threads: parameters.threads,
            shared_bytes: parameters.shared_bytes as u32,
            argument: parameters.argument,
        })?;
        self.outputs.resize(parameters.output_bytes * self.count, 0);
        self.queue.read(&*self.output, 0, &mut self.outputs)?;
        Ok(copied)
    }

    /// Returns the output of query number `at`, in elements of `B` bytes.
    pub(crate) fn output_of<const B: usize>(&self, at: usize) -> &[[u8; B]] {
        let bytes = self.outputs.len() / self.count.max(1);
        self.outputs[bytes * at..][..bytes].as_chunks().0
    }

    /// Checks that all `numbers` in the outputs are less than `end`, because callers use them as indexes.
    /// `what` names their kind.
    pub(crate) fn check(
        &self,
        what: &str,
        numbers: impl Iterator<Item = u32>,
        end: u64,
    ) -> Result<(), GpuError> {
        match { numbers }.find(|number| u64::from(*number) >= end) {
            Some(number) => Err(GpuError::Kernel {
                kernel: self.kernel.name(),
                reason: format!("it returned {what} {number} of {end}"),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Debug)]
    struct Memory(u64);

    impl CardMemory for Memory {
        fn address(&self) -> u64 {
            self.0
        }

        fn bytes(&self) -> u64 {
            64
        }
    }

    /// A queue that records its calls, and whose outputs are ascending bytes.
    #[derive(Debug, Default)]
    struct RecordingQueue(Arc<Mutex<Vec<String>>>);

    impl CardQueue for RecordingQueue {
        fn write(&mut self, to: &dyn CardMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
            let text = format!("write {bytes:?} to {} + {offset}", to.address());
            self.0.lock().expect("no panic").push(text);
            Ok(())
        }

        fn launch(&mut self, launch: &Launch<'_>) -> Result<(), GpuError> {
            let Launch { blocks, threads, shared_bytes, .. } = launch;
            let text = format!("{blocks} blocks of {threads}, {shared_bytes} bytes");
            self.0.lock().expect("no panic").push(text);
            Ok(())
        }

        fn finish(&mut self) -> Result<(), GpuError> {
            Ok(())
        }

        fn read(&mut self, _: &dyn CardMemory, _: u64, out: &mut [u8]) -> Result<(), GpuError> {
            out.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
            Ok(())
        }
    }

    #[test]
    fn nonempty_inputs_are_copied_and_outputs_are_in_the_order_of_queries() {
        let queue = RecordingQueue::default();
        let calls = queue.0.clone();
        let memory = |address| Box::new(Memory(address)) as Box<dyn CardMemory>;
        let inputs = [memory(1), memory(2), memory(3)];
        let mut batch = Batch::new(Kernel::Scan, Box::new(queue), inputs, memory(4), Arc::new([]));
        for queries in [3, 2] {
            batch.clear();
            batch.packed[0].extend([7; 2]);
            batch.packed[2].extend([8; 3]);
            batch.count = queries;
            let parameters =
                LaunchParameters { threads: 128, shared_bytes: 9, argument: &[], output_bytes: 4 };
            assert_eq!(batch.launch(parameters), Ok(5));
            let expected = ["write [7, 7] to 1 + 0", "write [8, 8, 8] to 3 + 0"].map(String::from);
            let expected = expected.into_iter().chain([format!("{queries} blocks of 128, 9 bytes")]);
            assert!(calls.lock().expect("no panic").drain(..).eq(expected));
            assert_eq!(batch.output_of(1), [[4, 5], [6, 7]]);
            assert_eq!(
                batch.output_of(queries - 1).last(),
                Some(&[4 * queries as u8 - 2, 4 * queries as u8 - 1])
            );
        }
    }

    #[test]
    fn invalid_numbers_in_outputs_are_detected() {
        let memory = || Box::new(Memory(0)) as Box<dyn CardMemory>;
        let inputs = [memory(), memory(), memory()];
        let batch =
            Batch::new(Kernel::Hop, Box::new(RecordingQueue::default()), inputs, memory(), Arc::new([]));
        assert_eq!(batch.check("vector", [0, 9].into_iter(), 10), Ok(()));
        let error = batch.check("vector", [0, 10, 11].into_iter(), 10).expect_err("one too many");
        assert_eq!(error.to_string(), "the kernel hop: it returned vector 10 of 10");
    }
}
