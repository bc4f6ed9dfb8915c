//! Memory, copies and launch for a batch of queries, with any kernel.

use crate::card::{Card, CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use std::sync::Arc;

/// Threads of a block; `THREADS` in `kernels/keys.h`.
pub(crate) const THREADS: u32 = 128;

/// Largest number of bytes that a query takes in the inputs and outputs of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryBytes {
    /// Bytes in [`Inputs::queries`].
    pub query: usize,
    /// Bytes in [`Inputs::work`].
    pub work: usize,
    /// Bytes in [`Inputs::items`].
    pub items: usize,
    /// Bytes of its output.
    pub output: usize,
}

impl QueryBytes {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        (self.query + self.work + self.items + self.output) as u64
    }
}

/// Bytes that a launch copies to the card, one query after another.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The queries in the kernel's representation.
    pub queries: Vec<u8>,
    /// A struct of fixed size for each query, which says where its query and items are.
    pub work: Vec<u8>,
    /// Lists of variable length, such as the ids to score or the groups to scan.
    pub items: Vec<u8>,
}

/// Addresses of the inputs and outputs of a launch on the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchAddresses {
    /// Address of [`Inputs::queries`].
    pub queries: u64,
    /// Address of [`Inputs::work`].
    pub work: u64,
    /// Address of [`Inputs::items`].
    pub items: u64,
    /// Address of the outputs.
    pub output: u64,
}

/// Parameters of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchParameters {
    /// Bytes of shared memory of a block.
    pub shared_bytes: u64,
    /// The kernel's parameter.
    pub argument: Vec<u8>,
    /// Bytes of output for each query.
    pub output_bytes: usize,
}

/// Inputs and outputs of a kernel for a batch of queries.
#[derive(Debug)]
pub(super) struct LaunchBatch {
    queue: Box<dyn CardQueue>,
    /// Memory on the card for each part of [`LaunchBatch::inputs`], in their order.
    input_memory: [Box<dyn CardMemory>; 3],
    output_memory: Box<dyn CardMemory>,
    /// Memory that only kernels access, shared with other batches.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    resident: Arc<[Box<dyn CardMemory>]>,
    pub(super) inputs: Inputs,
    /// The outputs of all queries, copied from the card.
    outputs: Vec<u8>,
    /// Bytes of the output of a query.
    output_bytes: usize,
}

impl LaunchBatch {
    /// Allocates memory of `card` for up to `queries` queries. `resident` is kept as long as the batch.
    pub(super) fn allocate(
        card: &dyn Card,
        queries: u32,
        bytes: &QueryBytes,
        resident: Arc<[Box<dyn CardMemory>]>,
    ) -> Result<LaunchBatch, GpuError> {
        let allocate =
            |bytes: usize| card.allocate("the queries in flight", u64::from(queries) * bytes as u64);
        Ok(LaunchBatch {
            input_memory: [allocate(bytes.query)?, allocate(bytes.work)?, allocate(bytes.items)?],
            output_memory: allocate(bytes.output)?,
            queue: card.queue()?,
            resident,
            inputs: Inputs::default(),
            outputs: Vec::new(),
            output_bytes: 0,
        })
    }

    /// Returns the bytes of the card's memory that the batch takes, without those of `resident`.
    pub(super) fn bytes(&self) -> u64 {
        self.input_memory.iter().chain([&self.output_memory]).map(|memory| memory.bytes()).sum()
    }

    /// Returns the addresses of inputs and outputs.
    pub(super) fn addresses(&self) -> BatchAddresses {
        let [queries, work, items] = self.input_memory.each_ref().map(|memory| memory.address());
        BatchAddresses { queries, work, items, output: self.output_memory.address() }
    }

    /// Removes all inputs.
    pub(super) fn clear(&mut self) {
        let Inputs { queries, work, items } = &mut self.inputs;
        [queries, work, items].into_iter().for_each(Vec::clear);
    }

    /// Runs the kernel for all `queries` queries. Returns the number of bytes copied to the card.
    pub(super) fn run(
        &mut self,
        kernel: Kernel,
        queries: usize,
        parameters: &LaunchParameters,
    ) -> Result<u64, GpuError> {
        let Inputs { queries: query_bytes, work, items } = &self.inputs;
        let mut copied = 0;
        for (memory, bytes) in self.input_memory.iter().zip([query_bytes, work, items]) {
            if !bytes.is_empty() {
                self.queue.write(&**memory, 0, bytes)?;
                copied += bytes.len() as u64;
            }
        }
        self.queue.launch(&Launch {
            kernel,
            blocks: queries as u32,
            threads: THREADS,
            shared_bytes: parameters.shared_bytes as u32,
            argument: &parameters.argument,
        })?;
        self.output_bytes = parameters.output_bytes;
        self.outputs.resize(self.output_bytes * queries, 0);
        self.queue.read(&*self.output_memory, 0, &mut self.outputs)?;
        Ok(copied)
    }

    /// Returns the output of query number `at`.
    pub(super) fn output(&self, at: usize) -> &[u8] {
        &self.outputs[self.output_bytes * at..][..self.output_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::CardProfile;
    use std::sync::Mutex;

    #[derive(Debug)]
    struct Memory {
        address: u64,
        bytes: u64,
    }

    impl CardMemory for Memory {
        fn address(&self) -> u64 {
            self.address
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }
    }

    /// A card that records what is called, and whose outputs are ascending bytes.
    #[derive(Debug)]
    struct RecordingCard {
        profile: CardProfile,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl Card for RecordingCard {
        fn profile(&self) -> &CardProfile {
            &self.profile
        }

        fn free_bytes(&self) -> u64 {
            self.profile.memory_bytes
        }

        fn allocate(&self, _: &'static str, bytes: u64) -> Result<Box<dyn CardMemory>, GpuError> {
            let mut calls = self.calls.lock().expect("no panic");
            calls.push(format!("allocate {bytes}"));
            Ok(Box::new(Memory { address: calls.len() as u64, bytes }))
        }

        fn queue(&self) -> Result<Box<dyn CardQueue>, GpuError> {
            Ok(Box::new(RecordingQueue(self.calls.clone())))
        }
    }

    #[derive(Debug)]
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
        let profile = CardProfile { name: "recording".into(), memory_bytes: 1 << 20, shared_bytes: 1 << 10 };
        let card = RecordingCard { profile, calls: Arc::default() };
        let bytes = QueryBytes { query: 2, work: 5, items: 3, output: 4 };
        let mut batch = LaunchBatch::allocate(&card, 3, &bytes, Arc::new([])).expect("memory");
        let allocated: Vec<String> = card.calls.lock().expect("no panic").drain(..).collect();
        assert_eq!(allocated, ["allocate 6", "allocate 15", "allocate 9", "allocate 12"]);
        assert_eq!((batch.bytes(), bytes.total()), (42, 14));
        assert_eq!(batch.addresses(), BatchAddresses { queries: 1, work: 2, items: 3, output: 4 });
        let parameters = LaunchParameters { shared_bytes: 9, argument: Vec::new(), output_bytes: 4 };
        for queries in [3, 2] {
            batch.clear();
            batch.inputs.queries.extend([7; 2]);
            batch.inputs.items.extend([8; 3]);
            assert_eq!(batch.run(Kernel::Scan, queries, &parameters), Ok(5));
            let expected = ["write [7, 7] to 1 + 0", "write [8, 8, 8] to 3 + 0"].map(String::from);
            let expected = expected.into_iter().chain([format!("{queries} blocks of 128, 9 bytes")]);
            assert!(card.calls.lock().expect("no panic").drain(..).eq(expected));
            for at in 0..queries as u8 {
                assert_eq!(batch.output(at.into()), [4 * at, 4 * at + 1, 4 * at + 2, 4 * at + 3]);
            }
        }
    }
}
