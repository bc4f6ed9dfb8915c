//! The copies and the launch for many queries, whatever the kernel does for them.

use crate::card::{CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use std::sync::Arc;

/// What a kernel is given for many queries, and what it answers.
#[derive(Debug)]
pub(crate) struct Batch<const N: usize> {
    kernel: Kernel,
    queue: Box<dyn CardQueue>,
    /// Where [`Batch::packed`] is copied.
    given: [Box<dyn CardMemory>; N],
    returned: Box<dyn CardMemory>,
    /// What only kernels read and write, those of other launches too.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    kept: Arc<[Box<dyn CardMemory>]>,
    /// What is copied to the card.
    pub(crate) packed: [Vec<u8>; N],
    answers: Vec<u8>,
    /// Queries that there are.
    pub(crate) count: usize,
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks<'a> {
    /// Threads of a block; there is a block for each query.
    pub(crate) threads: u32,
    /// Bytes that they share.
    pub(crate) shared_bytes: u64,
    /// The kernel's parameter.
    pub(crate) argument: &'a [u8],
    /// Bytes that each answers.
    pub(crate) answer_bytes: usize,
}

impl<const N: usize> Batch<N> {
    /// Of copies to `given` and back from `returned`; `kept` is held as long.
    pub(crate) fn new(
        kernel: Kernel,
        queue: Box<dyn CardQueue>,
        given: [Box<dyn CardMemory>; N],
        returned: Box<dyn CardMemory>,
        kept: Arc<[Box<dyn CardMemory>]>,
    ) -> Batch<N> {
        Batch {
            kernel,
            queue,
            given,
            returned,
            kept,
            packed: std::array::from_fn(|_| Vec::new()),
            answers: Vec::new(),
            count: 0,
        }
    }

    /// Where what is copied to the card lies there.
    pub(crate) fn given(&self) -> [u64; N] {
        std::array::from_fn(|at| self.given[at].address())
    }

    /// Where it writes its answers.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.address()
    }

    /// Forgets the last queries.
    pub(crate) fn clear(&mut self) {
        self.packed.iter_mut().for_each(Vec::clear);
        self.count = 0;
    }

    /// Has the kernel answer the queries, and returns how many bytes were copied to the card.
    pub(crate) fn launch(&mut self, blocks: Blocks<'_>) -> Result<u64, GpuError> {
        let mut copied = 0;
        for (memory, bytes) in self.given.iter().zip(&self.packed).filter(|(_, bytes)| !bytes.is_empty()) {
            self.queue.write(&**memory, 0, bytes)?;
            copied += bytes.len() as u64;
        }
        self.queue.launch(&Launch {
            kernel: self.kernel,
            blocks: self.count as u32,
            threads: blocks.threads,
            shared_bytes: blocks.shared_bytes as u32,
            argument: blocks.argument,
        })?;
        self.answers.resize(blocks.answer_bytes * self.count, 0);
        self.queue.read(&*self.returned, 0, &mut self.answers)?;
        Ok(copied)
    }

    /// What query number `at` was answered, in whole `B` bytes.
    pub(crate) fn answer<const B: usize>(&self, at: usize) -> &[[u8; B]] {
        let bytes = self.answers.len() / self.count.max(1);
        self.answers[bytes * at..][..bytes].as_chunks().0
    }

    /// Refuses an answer that names what is not there: whoever gets it reads what lies there.
    pub(crate) fn check(
        &self,
        what: &str,
        named: impl Iterator<Item = u32>,
        there: u64,
    ) -> Result<(), GpuError> {
        match { named }.find(|number| u64::from(*number) >= there) {
            Some(number) => Err(GpuError::Kernel {
                kernel: self.kernel.name(),
                reason: format!("it names {what} {number} of {there}"),
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

    /// Keeps what it was told, and answers ascending bytes.
    #[derive(Debug, Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl CardQueue for Told {
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
    fn what_is_there_is_copied_and_answers_are_in_the_order_of_queries() {
        let told = Told::default();
        let all = told.0.clone();
        let memory = |address| Box::new(Memory(address)) as Box<dyn CardMemory>;
        let given = [memory(1), memory(2), memory(3)];
        let mut batch = Batch::new(Kernel::Scan, Box::new(told), given, memory(4), Arc::new([]));
        for queries in [3, 2] {
            batch.clear();
            batch.packed[0].extend([7; 2]);
            batch.packed[2].extend([8; 3]);
            batch.count = queries;
            let blocks = Blocks { threads: 128, shared_bytes: 9, argument: &[], answer_bytes: 4 };
            assert_eq!(batch.launch(blocks), Ok(5));
            let wanted = ["write [7, 7] to 1 + 0", "write [8, 8, 8] to 3 + 0"].map(String::from);
            let wanted = wanted.into_iter().chain([format!("{queries} blocks of 128, 9 bytes")]);
            assert!(all.lock().expect("no panic").drain(..).eq(wanted));
            assert_eq!(batch.answer(1), [[4, 5], [6, 7]]);
            assert_eq!(
                batch.answer(queries - 1).last(),
                Some(&[4 * queries as u8 - 2, 4 * queries as u8 - 1])
            );
        }
    }

    #[test]
    fn a_kernel_that_names_what_is_not_there_is_found_out() {
        let memory = || Box::new(Memory(0)) as Box<dyn CardMemory>;
        let given = [memory(), memory(), memory()];
        let batch = Batch::new(Kernel::Hop, Box::new(Told::default()), given, memory(), Arc::new([]));
        assert_eq!(batch.check("vector", [0, 9].into_iter(), 10), Ok(()));
        let error = batch.check("vector", [0, 10, 11].into_iter(), 10).expect_err("one too many");
        assert_eq!(error.to_string(), "the kernel hop: it names vector 10 of 10");
    }
}
